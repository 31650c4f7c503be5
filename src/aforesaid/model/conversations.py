"""Conversation records and their pure transitions.

A record is everything about a conversation except its messages. All stores share the functions here that
derive the next record from a change.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any, Literal, get_args

from msgspec import UNSET, Struct, UnsetType, convert
from msgspec.structs import asdict, force_setattr

from aforesaid.errors import InvalidInput, RevisionConflict, shown
from aforesaid.model.clock import from_micros, parse_moment, to_micros
from aforesaid.model.ids import parse_uuid
from aforesaid.model.lineages import Lineage, check_lineage
from aforesaid.model.mappings import FrozenDict
from aforesaid.model.messages import Message, Role, parse_tags, parse_text
from aforesaid.model.participants import (
    Participants,
    parse_participant_id,
    parse_participants,
    participant_in,
)

# How a conversation takes place: `voice`, `text`, `email`, `phone`, or any other short word.
Channel = str
Status = Literal["open", "pending", "resolved", "closed"]
Priority = Literal["low", "normal", "high", "urgent"]

# The channels that the documentation names.
CHANNELS = ("voice", "text", "email", "phone")
LONGEST_CHANNEL = 32

VALUE_SETS: dict[str, tuple[str, ...]] = {
    "status": get_args(Status),
    "priority": get_args(Priority),
}

# How far a conversation's last message may be ahead of the clock and still be followed.
#
# A message without a time gets the time of storing, but never one before the previous message, so that
# clock differences between machines, or a clock set back, do not reorder a conversation. A caller's
# timestamp further in the future than this does not affect later messages.
CLOCK_SKEW = timedelta(minutes=1)


class Conversation(FrozenDict):
    """A conversation's record, a read-only dict. `messages` contains the requested ones; `message_count`
    counts all.
    """

    id: str
    name: str | None = None
    """The caller's name for the conversation, from which `id` is derived; None where the id was generated."""
    created_at: datetime
    updated_at: datetime
    channel: Channel = "text"
    status: Status = "open"
    priority: Priority = "normal"
    client_id: str | None = None
    client_name: str | None = None
    subject: str | None = None
    assigned_to: str | None = None
    tags: tuple[str, ...] = ()
    notes: str | None = None
    last_message_at: datetime | None = None
    last_message_from: Role | None = None
    unread_count: int = 0
    message_count: int = 0
    revision: int = 0
    ttl: timedelta | None = None
    expires_at: datetime | None = None
    participants: Participants = ()
    """The people and agents of the conversation; empty where only the owner uses it."""
    summary: str | None = None
    """The summary of the oldest messages, in single records; stored next to the record, never in it."""
    messages: tuple[Message, ...] = ()
    lineage: Lineage = ()
    """The conversations that a branch continues, the nearest first; see `model.lineages`."""

    @staticmethod
    def _check(fields: dict[str, Any]) -> None:
        fields["id"] = parse_uuid(fields["id"], field="id")
        _check_metadata(fields, most_unread=_LARGEST_COUNT)
        if fields["participants"] != ():
            fields["participants"] = parse_participants(fields["participants"])
        if fields["lineage"] != ():
            fields["lineage"] = check_lineage(fields["lineage"])

    @property
    def last_activity(self) -> datetime:
        """The time of the last message, or of creation; listings sort by it."""
        return self.last_message_at or self.created_at


_Fields = Conversation.struct()


def decode_record(kind: type, value: Any) -> Conversation:
    """Return a record from JSON; the `dec_hook` of decoders whose types contain records."""
    if kind is not Conversation:
        raise NotImplementedError(kind)
    return Conversation(**asdict(convert(value, _Fields)))


class Changes(Struct, frozen=True, kw_only=True):
    """Changes to a record. Only the given fields change; None clears an optional field."""

    channel: Channel | UnsetType = UNSET
    status: Status | UnsetType = UNSET
    priority: Priority | UnsetType = UNSET
    client_id: str | UnsetType | None = UNSET
    client_name: str | UnsetType | None = UNSET
    subject: str | UnsetType | None = UNSET
    assigned_to: str | UnsetType | None = UNSET
    tags: tuple[str, ...] | UnsetType = UNSET
    notes: str | UnsetType | None = UNSET
    unread_count: int | UnsetType = UNSET
    ttl: timedelta | UnsetType | None = UNSET
    participants: Participants | UnsetType = UNSET
    name: str | UnsetType | None = UNSET
    """Another encrypted form of the name, for a layer that seals it. A name never changes."""

    def __post_init__(self) -> None:
        fields = asdict(self)
        _check_metadata(fields, most_unread=MOST_UNREAD)
        force_setattr(self, "tags", fields["tags"])
        force_setattr(self, "client_id", fields["client_id"])
        if self.participants is not UNSET:
            force_setattr(self, "participants", parse_participants(self.participants))

    @classmethod
    def of(cls, clear: Collection[str] = (), **fields: Any) -> "Changes":
        """Return the changes of the fields that are not None, and of those in `clear`, which empties them.

        Raise `InvalidInput` for a field that cannot be emptied.
        """
        if not isinstance(clear, Collection):
            raise InvalidInput(f"clear must be a list of names; got {shown(clear)}", field="clear")
        for field in clear:
            if field not in _EMPTY:
                raise InvalidInput.not_in("clear", field, _EMPTY)
        given = {field: value for field, value in fields.items() if value is not None}
        return cls(**given | {field: _EMPTY[field] for field in clear})

    def given(self) -> dict[str, Any]:
        """Return the fields that change, with their new values."""
        return {key: value for key, value in asdict(self).items() if value is not UNSET}


# The value of each field that can be emptied, when it is empty.
_EMPTY: dict[str, Any] = {
    "subject": None,
    "assigned_to": None,
    "notes": None,
    "client_id": None,
    "client_name": None,
    "tags": (),
    "ttl": None,
}

# The default lifetime after the last activity.
DEFAULT_TTL = timedelta(days=30)


def started(
    conversation_id: str, *, now: datetime, ttl: timedelta | None = DEFAULT_TTL, **metadata: Any
) -> Conversation:
    """Return a new, empty conversation."""
    return Conversation(
        id=conversation_id,
        created_at=now,
        updated_at=now,
        ttl=ttl,
        expires_at=expiry(ttl, now=now),
        **metadata,
    )


def applied(record: Conversation, changes: Changes, *, now: datetime) -> Conversation:
    """Return the record after the changes. A new lifetime counts from now."""
    fields = changes.given()
    if "ttl" in fields:
        fields["expires_at"] = expiry(fields["ttl"], now=now)
    return record.with_(**fields, updated_at=now, revision=record.revision + 1)


def expiry(ttl: timedelta | None, *, now: datetime) -> datetime | None:
    """Return when a conversation that is active now expires; None means never."""
    return None if ttl is None else now + ttl


def stamp_for(last_message_at: datetime | None, *, now: datetime) -> datetime:
    """Return the time for a message without one: now, but not before the previous message."""
    if last_message_at is not None and now < last_message_at <= now + CLOCK_SKEW:
        return last_message_at
    return now


def extended(record: Conversation, messages: Sequence[Message], *, now: datetime) -> Conversation:
    """Return the record after these messages, which have their times, were added."""
    # Compare instants, not wall time: within one zone Python compares wall time, and in autumn an
    # hour occurs twice.
    last_at = None if record.last_message_at is None else to_micros(record.last_message_at)
    last_from = record.last_message_from
    for message in messages:
        at = to_micros(_moment(message))
        if last_at is None or at >= last_at:
            last_at, last_from = at, message.role
    return record._unchecked(
        last_message_at=None if last_at is None else from_micros(last_at),
        last_message_from=last_from,
        unread_count=record.unread_count + len(messages),
        message_count=record.message_count + len(messages),
        revision=record.revision + 1,
        updated_at=now,
        expires_at=expiry(record.ttl, now=now),
    )


def touched(record: Conversation, *, now: datetime) -> Conversation:
    """Return the record after a message was replaced. That is no activity, so the lifetime stays."""
    return record._unchecked(updated_at=now, revision=record.revision + 1)


def emptied(record: Conversation) -> Conversation:
    """Return the record without messages, the start of a rewrite."""
    return record.with_(last_message_at=None, last_message_from=None, unread_count=0, message_count=0)


def check_revision(conversation_id: str, actual: int, expected: int | None) -> None:
    """Raise `RevisionConflict` unless the conversation is at the expected revision."""
    if expected is not None and actual != expected:
        raise RevisionConflict(conversation_id, expected=expected, actual=actual)


def is_expired(record: Conversation, *, now: datetime) -> bool:
    """Whether the record's lifetime is over. Expired conversations are never returned."""
    return record.expires_at is not None and record.expires_at <= now


def end_of(record: Conversation) -> tuple[int, str]:
    """Return the sort key of a conversation that expires: the first to expire in front."""
    assert record.expires_at is not None, "it has an end"
    return to_micros(record.expires_at), record.id


def _moment(message: Message) -> datetime:
    assert message.timestamp is not None, "a stored message has a time"
    return message.timestamp


def _check_metadata(fields: dict[str, Any], *, most_unread: int) -> None:
    """Raise `InvalidInput` for values that stores cannot keep. Every read calls this, so it is fast."""
    channel, status, priority, tags, unread_count, ttl, *texts = _CHECKED(fields)
    if channel not in _CHANNELS or status not in _STATUSES or priority not in _PRIORITIES:
        _refuse_value(fields)
    if texts != _NO_TEXTS:
        _check_texts(fields)
    if tags is not UNSET and tags != ():
        fields["tags"] = parse_tags(tags)
    if unread_count is not UNSET and unread_count != 0:
        check_count(unread_count, field="unread_count", least=0, most=most_unread)
    if ttl is not None and ttl is not UNSET:
        check_span(ttl, field="ttl")


def _check_texts(fields: dict[str, Any]) -> None:
    # The length of a name is checked where a caller gives it; a sealed name is longer.
    for field in ("client_name", "subject", "assigned_to", "notes", "name"):
        value = fields[field]
        if value is not None and value is not UNSET:
            parse_text(value, field=field)
    if fields["client_id"] is not None and fields["client_id"] is not UNSET:
        fields["client_id"] = parse_uuid(fields["client_id"], field="client_id")


_TEXTS = ("client_id", "client_name", "subject", "assigned_to", "notes", "name")
_CHECKED = itemgetter("channel", "status", "priority", "tags", "unread_count", "ttl", *_TEXTS)
_NO_TEXTS = [None] * len(_TEXTS)
_CHANNELS = (*CHANNELS, UNSET)
_STATUSES, _PRIORITIES = ((*values, UNSET) for values in VALUE_SETS.values())


def check_channel(channel: object, *, field: str = "channel") -> str:
    """Return a channel: a short word. Raise `InvalidInput`."""
    if isinstance(channel, str) and (channel in CHANNELS or re.fullmatch(r"[\w.-]{1,32}", channel)):
        return channel
    raise InvalidInput(
        f"{field} must be a word of up to {LONGEST_CHANNEL} letters, digits, '.', '_' or '-', such as "
        f"{', '.join(CHANNELS)}; got {shown(channel)}",
        field=field,
        value=channel,
    )


def _refuse_value(fields: dict[str, Any]) -> None:
    if fields["channel"] is not UNSET:
        check_channel(fields["channel"])
    for field, allowed in VALUE_SETS.items():
        if fields[field] not in allowed and fields[field] is not UNSET:
            raise InvalidInput.not_in(field, fields[field], allowed)


# A thousand years, which every store can add to a time.
LONGEST_TTL = timedelta(days=365_000)


def check_span(span: timedelta | None, *, field: str) -> timedelta | None:
    """Return a duration that every store can add to a time, or None. Raise `InvalidInput`."""
    if span is not None and (not isinstance(span, timedelta) or not timedelta(0) < span <= LONGEST_TTL):
        raise InvalidInput(
            f"{field} must be a positive timedelta of up to {LONGEST_TTL.days:,} days, or None; "
            f"got {shown(span)}",
            field=field,
            value=span,
        )
    return span


class Query(Struct, frozen=True, kw_only=True):
    """A filter for conversations: all given conditions apply. Results are ordered by last activity."""

    client_id: str | None = None
    channel: Channel | None = None
    status: Status | None = None
    priority: Priority | None = None
    assigned_to: str | None = None
    tags: tuple[str, ...] = ()
    """Conversations with any of these tags."""
    date_from: datetime | None = None
    date_to: datetime | None = None
    """The last activity is in [date_from, date_to]."""
    participant: str | None = None
    """Conversations in which this participant takes part. Those the participant left are excluded."""
    limit: int = 50
    after: str | None = None
    """The `next` of the previous page."""

    def __post_init__(self) -> None:
        if self.channel is not None:
            check_channel(self.channel)
        for field, allowed in VALUE_SETS.items():
            value = getattr(self, field)
            if value is not None and value not in allowed:
                raise InvalidInput.not_in(field, value, allowed)
        if self.client_id is not None:
            force_setattr(self, "client_id", parse_uuid(self.client_id, field="client_id"))
        if self.assigned_to is not None:
            parse_text(self.assigned_to, field="assigned_to")
        if self.participant is not None:
            parse_participant_id(self.participant, field="participant")
        force_setattr(self, "tags", parse_tags(self.tags))
        for field in ("date_from", "date_to"):
            value = getattr(self, field)
            if value is not None:
                force_setattr(self, field, parse_moment(value, field=field))
        check_count(self.limit, field="limit", least=1)
        if self.after is not None:
            parse_cursor(self.after)

    def matches(self, record: Conversation) -> bool:
        """Whether the record passes every filter. A store's own query must give the same result."""
        return (
            all(wanted is None or wanted == getattr(record, field) for field, wanted in self._exact_filters())
            and (not self.tags or not set(self.tags).isdisjoint(record.tags))
            and (self.date_from is None or to_micros(record.last_activity) >= to_micros(self.date_from))
            and (self.date_to is None or to_micros(record.last_activity) <= to_micros(self.date_to))
            and (self.participant is None or has_access(record, self.participant))
        )

    def _exact_filters(self) -> Iterable[tuple[str, str | None]]:
        for field in ("client_id", "channel", "status", "priority", "assigned_to"):
            yield field, getattr(self, field)


def has_access(record: Conversation, participant_id: str) -> bool:
    """Whether the participant takes part in the conversation and has not left."""
    found = participant_in(record.participants, participant_id)
    return found is not None and found.has_access


class Page(Struct, frozen=True, kw_only=True):
    """One page of a listing; `next` is the cursor of the following page, None on the last."""

    conversations: tuple[Conversation, ...]
    next: str | None = None
    degraded: bool = False
    """Whether the page comes from the last known state and may be incomplete or out of date."""


def cursor_of(record: Conversation) -> str:
    """Return the cursor after this record."""
    return f"{to_micros(record.last_activity)}:{record.id}"


def parse_cursor(cursor: str) -> tuple[int, str]:
    """Return the microseconds of the last activity and the id; the inverse of `cursor_of`."""
    micros, _, conversation_id = str(cursor).partition(":")
    try:
        return to_micros(from_micros(int(micros))), parse_uuid(conversation_id, field="after")
    except (ValueError, OverflowError):
        raise InvalidInput(
            f"after must be the `next` of an earlier page; got {shown(cursor)}", field="after", value=cursor
        ) from None


# Every store and every JSON parser represents this number exactly.
_LARGEST_COUNT = 2**53


# The largest unread count that a caller may set; later messages are still added to it.
MOST_UNREAD = 2**31 - 1


def check_count(value: object, *, field: str, least: int, most: int = _LARGEST_COUNT) -> int:
    """Return a whole number from `least` to `most`. Raise `InvalidInput`."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        bounds = f"{least} or more" if most == _LARGEST_COUNT else f"from {least} to {most}"
        raise InvalidInput(
            f"{field} must be a whole number, {bounds}; got {shown(value)}", field=field, value=value
        )
    return value
