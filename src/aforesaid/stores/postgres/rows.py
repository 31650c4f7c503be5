"""Convert rows to values and back, and names to keys. The order of columns is that of `queries.sql`."""

from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from msgspec.structs import force_setattr

from aforesaid.contracts import Entry, LogEnd, Position
from aforesaid.errors import InvalidInput, StoreDamaged
from aforesaid.model.clock import from_micros, to_micros
from aforesaid.model.conversations import Changes, Conversation, Query, expiry, parse_cursor
from aforesaid.model.lineages import decode_lineage, encode_lineage, first_sequence
from aforesaid.model.participants import decode_participants, encode_participants
from aforesaid.model.wire import decode_message
from aforesaid.stores._unreadable import DAMAGE, damaged_record, noted_unreadable

# Keys for names and tags for notifications. Equal to the SQL functions `aforesaid.key_of` and
# `aforesaid.tag`.


# Bytes. An index entry of PostgreSQL has about 2,700 and must hold two names.
LONGEST_KEY = 512
_DIGEST = "sha256/"


def key_of(name: str) -> str:
    """Return the name, or its digest if the name is too long for an index or looks like a digest."""
    # A name that looks like a digest is hashed too, so that it cannot be taken for the digest of another.
    encoded = name.encode()
    if len(encoded) <= LONGEST_KEY and not name.startswith(_DIGEST):
        return name
    return _DIGEST + sha256(encoded).hexdigest()


def name_of(key: str, full_name: str | None) -> str:
    """Return the name of a key, given the full name that is stored with a digest."""
    return key if full_name is None else full_name


class Tags:
    """Tags of owners and conversations in notifications: digests keyed with a secret of the database."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def owner(self, key: str) -> str:
        return self._tag("owner", key)

    def conversation(self, conversation_id: str) -> str:
        return self._tag("conversation", conversation_id)

    def _tag(self, kind: str, name: str) -> str:
        return sha256(self._key + f"{kind} {name}".encode()).hexdigest()[:32]


# Convert rows to values and back. The order of columns is that of `queries.sql`.


Row = tuple[Any, ...]


def utc(moment: datetime) -> datetime:
    """Return the time in UTC; drivers return it in the session's time zone."""
    return moment.astimezone(UTC)


def maybe_utc(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.astimezone(UTC)


def conversation(row: Row) -> Conversation:
    """Decode the record in a row; further columns are ignored."""
    try:
        return _conversation(row)
    except DAMAGE as error:
        raise damaged_record(row[0], error) from error


def _conversation(row: Row) -> Conversation:
    return Conversation(
        id=row[0],
        channel=row[1],
        status=row[2],
        priority=row[3],
        client_id=row[4],
        client_name=row[5],
        subject=row[6],
        assigned_to=row[7],
        tags=tuple(row[8]),
        notes=row[9],
        last_message_at=maybe_utc(row[10]),
        last_message_from=row[11],
        unread_count=row[12],
        message_count=row[13],
        revision=row[14],
        ttl=row[15],
        expires_at=maybe_utc(row[16]),
        created_at=utc(row[17]),
        updated_at=utc(row[18]),
        name=row[19],
        participants=() if row[20] is None else decode_participants(row[20]),
        lineage=decode_lineage(row[21]),
    )


def log_end(row: Row) -> LogEnd:
    """Decode a row of `revision, next_sequence, last_message_at, head`."""
    return LogEnd(row[0], row[1], maybe_utc(row[2]), row[3])


def conversation_values(record: Conversation) -> dict[str, Any]:
    """Return the parameters of `insert_conversation`, without the owner."""
    return record.typed() | {
        "tags": list(record.tags),
        "participants": encode_participants(record.participants),
        "lineage": encode_lineage(record.lineage),
        "next_sequence": first_sequence(record.lineage),
    }


def change_values(changes: Changes, now: datetime) -> dict[str, Any]:
    """Return the parameters of `update_conversation`."""
    given = changes.given()
    values = dict.fromkeys(changes.__struct_fields__) | given
    values["tags"] = list(given.get("tags", ()))
    values["participants"] = encode_participants(given.get("participants", ()))
    values["expires_at"] = expiry(given.get("ttl"), now=now)
    # The names of the changed fields, because NULL is also the value of a field that is cleared.
    return values | {"given": list(given)}


def query_values(query: Query) -> dict[str, Any]:
    """Return the parameters of `find_conversations`. One extra row shows whether there is a next page."""
    micros, after_id = parse_cursor(query.after) if query.after else (None, None)
    return {
        "after_activity": None if micros is None else moment_at(micros, field="after"),
        "after_id": after_id,
        "date_from": query.date_from,
        "date_to": query.date_to,
        "client_id": query.client_id,
        "channel": query.channel,
        "status": query.status,
        "priority": query.priority,
        "assigned_to": query.assigned_to,
        "tags": list(query.tags) if query.tags else None,
        "participant": query.participant,
        "limit": query.limit + 1,
    }


def moment_at(micros: int, *, field: str) -> datetime:
    """Return the time. Raise an error that names the field."""
    try:
        return from_micros(micros)
    except OverflowError:
        raise InvalidInput(f"{field} names no moment: {micros}", field=field, value=micros) from None


def entry(conversation_id: str, row: Row) -> Entry:
    """Decode a row of `at, sequence, revision, stored_at, body`; further columns are ignored."""
    at, sequence, revision, stored_at, body = row[:5]
    try:
        message = decode_message(body)
    except StoreDamaged as error:
        place, stored = Position(to_micros(at), sequence), utc(stored_at)
        return noted_unreadable(conversation_id, place, revision=revision, stored_at=stored, why=str(error))
    if message.timestamp is None:
        # Frozen, but decoded just now, so no caller has it yet.
        force_setattr(message, "timestamp", utc(at))
    return Entry(
        conversation_id=conversation_id,
        sequence=sequence,
        revision=revision,
        stored_at=utc(stored_at),
        message=message,
    )


def entries(conversation_id: str, found: Sequence[Row]) -> list[Entry]:
    """Decode the entries. A row without a sequence means that there are none."""
    return [entry(conversation_id, row) for row in found if row[1] is not None]
