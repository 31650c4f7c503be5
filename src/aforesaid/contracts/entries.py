"""Entries: messages with their place in a log, and the result of an append."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from aforesaid.errors import (
    InvalidInput,
    MessageConflict,
    RevisionConflict,
    StoreDamaged,
    TurnPartlyStored,
    shown,
)
from aforesaid.model.clock import from_micros, parse_moment, to_micros
from aforesaid.model.conversations import MOST_UNREAD, Conversation, check_count
from aforesaid.model.messages import SEALED, Message, unchecked_copy


class Position(NamedTuple):
    """An entry's place in reading order: its time, then its sequence."""

    micros: int
    sequence: int


def check_position(position: Position | None) -> None:
    """Raise `InvalidInput` for a position that no message can have."""
    if position is None:
        return
    micros, sequence = position
    try:
        from_micros(micros)
        check_count(sequence, field="before", least=0)
    except (TypeError, OverflowError):
        raise InvalidInput(f"before must be the position of an entry; got {shown(position)}") from None


class Entry(Struct, frozen=True, kw_only=True):
    """A message with its place in the log. Its message always has a timestamp."""

    conversation_id: str
    sequence: int
    revision: int
    stored_at: datetime
    message: Message
    unreadable: str | None = None
    """Why the stored message cannot be read; `message` is then an empty placeholder."""

    @property
    def position(self) -> Position:
        assert self.message.timestamp is not None
        return Position(to_micros(self.message.timestamp), self.sequence)


def unreadable_reason(entry: Entry) -> str | None:
    """Return why this entry cannot be read above the store; None when it can."""
    if entry.unreadable is None and entry.message.dialect == SEALED:
        return "it is encrypted, and there is no master key here"
    return entry.unreadable


def unreadable_entry(
    conversation_id: str, position: Position, *, revision: int, stored_at: datetime, why: str
) -> Entry:
    """Return the entry of a message that cannot be read, with an empty message as placeholder."""
    return Entry(
        conversation_id=conversation_id,
        sequence=position.sequence,
        revision=revision,
        stored_at=stored_at,
        message=Message(role="system", content="", timestamp=from_micros(position.micros)),
        unreadable=why,
    )


def check_same_content(stored: Entry, message: Message) -> None:
    """Raise when the id of `message` belongs to a message with other content or to one that cannot
    be read.
    """
    if stored.unreadable is not None:
        raise StoreDamaged(
            f"message id {shown(message.message_id)} in conversation {stored.conversation_id} belongs to a "
            f"message that cannot be read, and nothing was stored: {stored.unreadable}"
        )
    if not stored.message.same_content_as(message):
        raise MessageConflict(stored.conversation_id, str(message.message_id))


class Appended:
    """The result of an append: the record after it, the new entries and the entries that were known already.

    Most callers use none of it, so a store may pass functions that are called on first access.
    """

    __slots__ = ("_conversation", "_new", "known")

    def __init__(
        self,
        *,
        conversation: Conversation | Callable[[], Conversation],
        new: tuple[Entry, ...] | Callable[[], tuple[Entry, ...]],
        known: tuple[Entry, ...] = (),
    ) -> None:
        # Decoded on demand: most callers of `append` only want to know that it is done.
        self._conversation = conversation
        self._new = new
        self.known = known

    @property
    def conversation(self) -> Conversation:
        if not isinstance(self._conversation, Conversation):
            self._conversation = self._conversation()
        return self._conversation

    @property
    def new(self) -> tuple[Entry, ...]:
        if not isinstance(self._new, tuple):
            self._new = self._new()
        return self._new

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Appended):
            return NotImplemented
        return self._compared() == other._compared()

    __hash__ = None  # type: ignore[assignment]  # messages may hold lists and dicts

    def __repr__(self) -> str:
        return f"Appended(conversation={self.conversation!r}, new={self.new!r}, known={self.known!r})"

    def _compared(self) -> tuple[object, ...]:
        return self.conversation, self.new, self.known


def replacement_message(stored: Entry, message: Message) -> Message:
    """Return the message with the time of the entry that it replaces. Raise `InvalidInput` for
    another role.
    """
    if stored.unreadable is None and message.role != stored.message.role:
        raise InvalidInput(
            f"role must stay {stored.message.role}; got {shown(message.role)}",
            field="role",
            value=message.role,
        )
    return message.with_(timestamp=stored.message.timestamp)


def replaced_entry(stored: Entry, message: Message, *, revision: int) -> Entry:
    """Return the entry with another message."""
    return replace(stored, message=message, revision=revision, unreadable=None)


def same_content(stored: Entry, message: Message) -> bool:
    """Return whether the replacement has the same content. Data derived from the log then stays valid."""
    return stored.unreadable is None and stored.message.same_content_as(message)


def fingerprint(entries: Iterable[Entry]) -> list[tuple[int, int]]:
    """Return a value that changes when the entries change."""
    return [(entry.sequence, entry.revision) for entry in entries]


def replaced_id(message: Message) -> str:
    """Return the id of the message to replace."""
    if message.message_id is None:
        raise InvalidInput("a message that replaces another names it by message_id", field="message_id")
    return message.message_id


# Separates a sealed message from the head of the log that it carries.
HEAD_MARK = "|"


def with_head(message: Message, head: str, *, seen: str | None = None) -> Message:
    """Attach the head of the log to a sealed message; see `Sealable`.

    `seen` is the head that the turn continues from, empty for none. The store refuses the turn at any other
    head.
    """
    # Not validated: the store splits the head off again before it stores the message.
    carrying = unchecked_copy(message)
    carried = head if seen is None else f"{head}{HEAD_MARK}{seen}"
    force_setattr(carrying, "content", f"{message.content}{HEAD_MARK}{carried}")
    return carrying


def split_head(carried: str | None) -> tuple[str | None, str | None]:
    """Split what a turn carries into its new head and the head that it continues from."""
    if carried is None:
        return None, None
    head, mark, seen = carried.partition(HEAD_MARK)
    return head, seen if mark else None


def check_head(conversation_id: str, revision: int, head: str | None, seen: str | None) -> None:
    """Raise `RevisionConflict` for a turn that continues from another head than the log's."""
    if seen is not None and seen != (head or ""):
        raise RevisionConflict(conversation_id, expected=revision, actual=revision)


def without_head(messages: Sequence[Message]) -> tuple[Sequence[Message], str | None]:
    """Split off the head that the last message carries; None when it carries none."""
    if not messages:
        return messages, None
    last = messages[-1]
    # A plain message may contain the mark in its text.
    if last.dialect != SEALED or type(last.content) is not str or HEAD_MARK not in last.content:
        return messages, None
    content, _, head = last.content.partition(HEAD_MARK)
    stored = unchecked_copy(last)
    force_setattr(stored, "content", content)
    return [*messages[:-1], stored], head


def entries_without_head(entries: Sequence[Entry]) -> tuple[Sequence[Entry], str | None]:
    """Split off the head that the last entry's message carries; None when it carries none."""
    (*_, last), head = without_head([entry.message for entry in entries[-1:]]) if entries else ((None,), None)
    if head is None or last is None:
        return entries, None
    return [*entries[:-1], replace(entries[-1], message=last)], head


def check_not_partly_stored(conversation_id: str, head: str | None, *, new: int, known: int) -> None:
    """Raise `TurnPartlyStored` for a turn that carries a head when only part of it is new."""
    if head is not None and new and known:
        raise TurnPartlyStored(conversation_id)


def check_restorable(
    conversation: Conversation, entries: Sequence[Entry]
) -> tuple[Conversation, dict[int, Entry]]:
    """Validate the input of `restore`: return the record without messages and the entries by sequence."""
    # `created_at` and `updated_at` are required; the other two may be None.
    for field in ("created_at", "updated_at", "last_message_at", "expires_at"):
        moment = getattr(conversation, field)
        if moment is not None or field.endswith("ated_at"):
            parse_moment(moment, field=field)
    for field in ("revision", "message_count"):
        check_count(getattr(conversation, field), field=field, least=0)
    most_unread = 2 * MOST_UNREAD  # the value a caller set, plus the messages added since
    check_count(conversation.unread_count, field="unread_count", least=0, most=most_unread)
    by_sequence: dict[int, Entry] = {}
    ids: dict[str, int] = {}
    for entry in entries:
        _check_entry(conversation.id, entry)
        message_id = entry.message.message_id
        if by_sequence.setdefault(entry.sequence, entry) is not entry or message_id is None:
            continue
        if ids.setdefault(message_id, entry.sequence) != entry.sequence:
            raise MessageConflict(conversation.id, message_id)
    if conversation.messages or conversation.summary is not None:
        conversation = conversation.with_(messages=(), summary=None)
    return conversation, by_sequence


def _check_entry(conversation_id: str, entry: Entry) -> None:
    if entry.conversation_id != conversation_id:
        raise InvalidInput(
            f"an entry of conversation {entry.conversation_id} cannot be restored into {conversation_id}",
            field="conversation_id",
            value=entry.conversation_id,
        )
    check_count(entry.sequence, field="sequence", least=1)
    check_count(entry.revision, field="revision", least=0)
    parse_moment(entry.stored_at, field="stored_at")
    if entry.message.timestamp is None:
        raise InvalidInput("an entry's message has a timestamp", field="timestamp")
    if entry.unreadable is not None:
        raise InvalidInput(
            f"entry {entry.sequence} holds no message that could be restored: {entry.unreadable}",
            field="unreadable",
            value=entry.unreadable,
        )
