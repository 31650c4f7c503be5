"""Encode and decode stored values. The scripts use the same formats; see `conversation.lua`."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import force_setattr

from aforesaid.contracts import Entry, Position
from aforesaid.errors import AforesaidError, StoreDamaged, shown
from aforesaid.model.clock import from_micros, to_micros
from aforesaid.model.conversations import Changes, Conversation, expiry
from aforesaid.model.lineages import decode_lineage, encode_lineage, first_sequence
from aforesaid.model.participants import decode_participants, encode_participants
from aforesaid.model.wire import decode_message, encode_message
from aforesaid.stores._unreadable import noted_unreadable

# A record's fields, in the order of the scripts. The last eight may be absent.
FIELDS = (
    "birth",
    "next_sequence",
    "revision",
    "message_count",
    "unread_count",
    "last_message_at",
    "last_message_from",
    "created_at",
    "updated_at",
    "expires_at",
    "ttl",
    "channel",
    "status",
    "priority",
    "tags",
    "lineage",
    "client_id",
    "client_name",
    "subject",
    "assigned_to",
    "notes",
    "name",
    "participants",
)

_OPTIONAL = FIELDS[-8:]
_TEXTS = FIELDS[-7:-1]

_MICROSECOND = timedelta(microseconds=1)
_BIAS = 10**17  # 3,170 years in microseconds: every time becomes positive, and its digits sort
_DIGITS = 20
_SEQUENCE_DIGITS = 16  # as many as 2**53 has
_POSITION = _DIGITS + _SEQUENCE_DIGITS


def moment(micros: int) -> str:
    """Encode microseconds since 1970 as text that sorts by time."""
    return f"{micros + _BIAS:0{_DIGITS}d}"


def moment_of(at: datetime) -> str:
    return moment(to_micros(at))


LATEST = moment_of(datetime.max.replace(tzinfo=UTC))


def moment_from(text: bytes) -> datetime:
    """Decode the text of `moment_of`."""
    return from_micros(int(text) - _BIAS)


def _moment_or_none(text: bytes) -> datetime | None:
    return moment_from(text) if text else None


def score(micros: int) -> float:
    """Return the index score of a time, rounded exactly as in `conversation.lua`."""
    # In halves, as in Lua: both sides must compute the same double.
    high, low = divmod(min(max(micros + _BIAS, 0), 10**_DIGITS - 1), 10**10)
    return (float(high) - 1e7) * 1e10 + float(low)


def score_text(micros: int) -> str:
    return f"{score(micros):.0f}"


def position_text(position: Position) -> str:
    """Encode a position as in the log. Clamp a position outside the storable range."""
    micros = min(max(position.micros + _BIAS, 0), 10**_DIGITS - 1)
    sequence = min(max(position.sequence, 0), 10**_SEQUENCE_DIGITS - 1)
    return f"{micros:0{_DIGITS}d}{sequence:0{_SEQUENCE_DIGITS}d}"


def entry(conversation_id: str, member: bytes) -> Entry:
    """Decode a log member: `position:revision:stored_at:body`."""
    try:
        _, revision, stored_at, body = member.split(b":", 3)
        message = decode_message(body)
        if message.timestamp is None:
            force_setattr(message, "timestamp", moment_from(member[:_DIGITS]))
        return Entry(
            conversation_id=conversation_id,
            sequence=int(member[_DIGITS:_POSITION]),
            revision=int(revision),
            stored_at=moment_from(stored_at),
            message=message,
        )
    except StoreDamaged as error:
        return _unreadable(conversation_id, member, why=str(error))
    except (ValueError, OverflowError):
        return _unreadable(conversation_id, member, why="its stored form is damaged: it has no position")


def _unreadable(conversation_id: str, member: bytes, *, why: str) -> Entry:
    """Return the entry of an unreadable member, with the position at its head."""
    try:
        at, sequence = moment_from(member[:_DIGITS]), int(member[_DIGITS:_POSITION])
    except (ValueError, OverflowError):
        # Not stored by this program: members of the log begin with digits.
        raise _damaged(conversation_id, member) from None
    revision, stored_at = _head(member, at)
    position = Position(to_micros(at), sequence)
    return noted_unreadable(conversation_id, position, revision=revision, stored_at=stored_at, why=why)


def _head(member: bytes, at: datetime) -> tuple[int, datetime]:
    """Return revision and storing time, as far as they are readable."""
    try:
        _, revision, stored_at, *_ = member.split(b":", 3)
        return int(revision), moment_from(stored_at)
    except (ValueError, OverflowError):
        return 0, at


def entry_values(entry: Entry) -> tuple[int, str, str, str]:
    """Return an entry for `restore.lua`."""
    position = position_text(entry.position)
    return entry.sequence, position, entry.message.message_id or "", "".join(member_of(entry))


def member_of(entry: Entry) -> tuple[str, str]:
    """Return the log member of an entry: its head and its body."""
    head = f"{position_text(entry.position)}:{entry.revision}:{moment_of(entry.stored_at)}:"
    return head, encode_message(entry.message).decode()


def next_sequence(fields: Sequence[bytes | None]) -> int:
    """Return the next sequence from the values of `FIELDS`."""
    return int(fields[FIELDS.index("next_sequence")] or 1)


def position_in(member: bytes) -> str:
    """Return the position at the head of a log member."""
    return member[:_POSITION].decode()


class Stored(msgspec.Struct, frozen=True):
    """A stored record, and the birth that distinguishes it from earlier conversations with the same id."""

    record: Conversation
    birth: str


def stored(conversation_id: str, values: Sequence[bytes | None]) -> Stored | None:
    """Decode the record from the values of `FIELDS`; None if it is missing."""
    if values[0] is None:
        return None
    try:
        return Stored(_record(conversation_id, dict(zip(FIELDS, values, strict=True))), values[0].decode())
    except (ValueError, TypeError, OverflowError, AforesaidError, msgspec.MsgspecError) as error:
        raise _damaged(conversation_id, values) from error


def record(conversation_id: str, fields: Sequence[bytes | None]) -> Conversation:
    """Decode the record in a script's reply."""
    found = stored(conversation_id, fields)
    assert found is not None, "the script answers with a record"
    return found.record


def _record(conversation_id: str, of: dict[str, Any]) -> Conversation:
    return Conversation(
        id=conversation_id,
        revision=int(of["revision"]),
        message_count=int(of["message_count"]),
        unread_count=int(of["unread_count"]),
        last_message_at=_moment_or_none(of["last_message_at"]),
        last_message_from=of["last_message_from"].decode() or None,
        created_at=moment_from(of["created_at"]),
        updated_at=moment_from(of["updated_at"]),
        expires_at=_moment_or_none(of["expires_at"]),
        ttl=int(of["ttl"]) * _MICROSECOND if of["ttl"] else None,
        channel=of["channel"].decode(),
        status=of["status"].decode(),
        priority=of["priority"].decode(),
        tags=() if of["tags"] == b"[]" else tuple(msgspec.json.decode(of["tags"])),
        lineage=decode_lineage(of["lineage"]),
        participants=decode_participants(of["participants"]),
        **{name: of[name].decode() for name in _TEXTS if of[name] is not None},
    )


def record_fields(record: Conversation, *, birth: str) -> list[str]:
    """Encode a new record as alternating fields and values."""
    first = str(first_sequence(record.lineage))
    return ["birth", birth, "next_sequence", first, *public_fields(record)]


def absent_fields(record: Conversation) -> list[str]:
    """Return the optional fields without a value."""
    return [name for name in _OPTIONAL if not getattr(record, name)]


def public_fields(record: Conversation) -> list[str]:
    """Encode the public part of a record as alternating fields and values."""
    moving = {
        "revision": str(record.revision),
        "message_count": str(record.message_count),
        "last_message_at": moment_text(record.last_message_at),
        "last_message_from": record.last_message_from or "",
        "created_at": moment_of(record.created_at),
        "updated_at": moment_of(record.updated_at),
        "expires_at": moment_text(record.expires_at),
    }
    if (lineage := encode_lineage(record.lineage)) is not None:
        moving["lineage"] = lineage
    chosen = {name: _text(name, getattr(record, name)) for name in Changes.__struct_fields__}
    present = {name: value for name, value in chosen.items() if value is not None}
    return [text for pair in (moving | present).items() for text in pair]


def change_fields(changes: Changes, *, now: datetime) -> list[str | bool]:
    """Encode changes as alternating fields and values; False clears a field."""
    changed = changes.given()
    fields: list[str | bool] = []
    for name, value in changed.items():
        text = _text(name, value)
        fields += [name, False if text is None else text]
    if "ttl" in changed:
        fields += ["expires_at", moment_text(expiry(changed["ttl"], now=now))]
    return fields


def server_expiry(expires_at: datetime | None, *, now: datetime) -> str:
    """Return the server-side expiry in milliseconds, rounded up; empty for none.

    It is a duration by the store's clock, so the server's clock, or a test's frozen clock, does not matter.
    """
    if expires_at is None:
        return ""
    # At least one: the server deletes a key with an expiry of zero at once.
    return str(max(1, -(-((expires_at - now) // _MICROSECOND) // 1000)))


# The minimum server-side expiry of restored data, so that later parts find the earlier ones, even of an
# expired conversation. Expired data is not returned; the sweep removes it.
MIN_RESTORED_EXPIRY = timedelta(hours=1)


def restored_server_expiry(expires_at: datetime | None, *, now: datetime) -> str:
    """Return the server-side expiry of restored data; see `server_expiry`."""
    if expires_at is None or expires_at - now >= MIN_RESTORED_EXPIRY:
        return server_expiry(expires_at, now=now)
    return str(MIN_RESTORED_EXPIRY // timedelta(milliseconds=1))


def moment_text(at: datetime | None) -> str:
    return "" if at is None else moment_of(at)


def _text(name: str, value: Any) -> str | None:
    """Encode the value of a field that callers may set; None if it is absent."""
    if name == "ttl":
        return "" if value is None else f"{value // _MICROSECOND:0{_DIGITS}d}"
    if name == "participants":
        return encode_participants(value)
    if name == "tags":
        return msgspec.json.encode(value).decode()
    return None if value is None else str(value)


def _damaged(conversation_id: str, what: object) -> StoreDamaged:
    return StoreDamaged(f"the stored data of conversation {conversation_id} is damaged: {shown(what)}")
