"""Logs in memory: each message encoded, at its position, in reading order."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from aforesaid.contracts import (
    Appended,
    Document,
    Entry,
    Place,
    Position,
    check_same_content,
)
from aforesaid.errors import MessageConflict, StoreDamaged
from aforesaid.model.clock import from_micros, to_micros
from aforesaid.model.conversations import Conversation, stamp_for
from aforesaid.model.lineages import first_sequence
from aforesaid.model.messages import Message
from aforesaid.model.wire import decode_message, encode_message
from aforesaid.stores._unreadable import noted_unreadable


class EncodedMessage(NamedTuple):
    """A message to be stored, with its encoded body. The caller cannot change the body afterwards."""

    message: Message
    body: bytes


def encode_messages(messages: Sequence[Message]) -> list[EncodedMessage]:
    """Encode the messages. Raise `InvalidMessage` for content that is not JSON; call this before any
    change."""
    return [EncodedMessage(message, encode_message(message)) for message in messages]


class EncodedEntry(Struct, frozen=True):
    """A stored message, encoded, at its position. The body always contains a timestamp."""

    position: Position
    revision: int
    stored_at: datetime
    body: bytes


class Log(Struct, kw_only=True):
    """One conversation: its record and its entries in reading order."""

    record: Conversation
    entries: list[EncodedEntry] = []
    by_id: dict[str, EncodedEntry] = {}
    next_sequence: int = 1
    documents: dict[Place, Document] = {}
    head: str | None = None
    """The sealed head of the log; see `contracts.Sealable`."""

    def copy(self) -> "Log":
        return Log(
            record=self.record,
            entries=self.entries.copy(),
            by_id=self.by_id.copy(),
            next_sequence=self.next_sequence,
            documents=self.documents.copy(),
            head=self.head,
        )


def new_log(record: Conversation) -> Log:
    """Return the empty log of a new conversation."""
    return Log(record=record, next_sequence=first_sequence(record.lineage))


NewEntries: TypeAlias = list[tuple[Message, EncodedEntry]]
EntryWithId: TypeAlias = tuple[str | None, EncodedEntry]
"""A message id and the entry that holds the message."""


def replace_entry(log: Log, at: int, encoded: EncodedEntry) -> None:
    old, log.entries[at] = log.entries[at], encoded
    # Search by identity: the body may be unreadable, so its id cannot be decoded.
    for message_id, other in log.by_id.items():
        if other is old:
            log.by_id[message_id] = encoded
            return


def forget_id(log: Log, encoded: EncodedEntry) -> None:
    try:
        message_id = decode_message(encoded.body).message_id
    except StoreDamaged:
        message_id = next((one for one, other in log.by_id.items() if other is encoded), None)
    if message_id is not None:
        log.by_id.pop(message_id, None)


def encode_entries(entries: Iterable[Entry]) -> list[EntryWithId]:
    """Encode entries, each with its message id."""
    return [
        (
            entry.message.message_id,
            EncodedEntry(entry.position, entry.revision, entry.stored_at, encode_message(entry.message)),
        )
        for entry in entries
    ]


def free_entries(
    log: Log | None, conversation_id: str, encoded_entries: Sequence[EntryWithId]
) -> list[EntryWithId]:
    """Return the entries with a free sequence. Raise `MessageConflict` for an id that another entry has."""
    taken = {encoded.position.sequence for encoded in log.entries} if log else set[int]()
    new = [one for one in encoded_entries if one[1].position.sequence not in taken]
    for message_id, _ in new:
        if log is not None and message_id is not None and message_id in log.by_id:
            raise MessageConflict(conversation_id, message_id)
    return new


def split_known(
    log: Log, turn: Sequence[EncodedMessage], *, now: datetime
) -> tuple[NewEntries, list[EncodedEntry]]:
    """Split a turn into new messages, each with its future entry, and the entries of known messages."""
    stamp = stamp_for(log.record.last_message_at, now=now)
    new: NewEntries = []
    known: list[EncodedEntry] = []
    seen = dict[str, EncodedEntry]()
    for message, body in turn:
        message_id = message.message_id
        # A turn may contain an id twice.
        earlier = seen.get(message_id) or log.by_id.get(message_id) if message_id is not None else None
        if earlier is not None:
            check_same_content(decode_entry(log.record.id, earlier), decode_message(body))
            known.append(earlier)
            continue
        position = Position(to_micros(message.timestamp or stamp), log.next_sequence + len(new))
        if message.timestamp is None:
            message, body = message.with_(timestamp=stamp), _with_timestamp(body, position)
        encoded = EncodedEntry(position, log.record.revision + 1, now, body)
        new.append((message, encoded))
        if message_id is not None:
            seen[message_id] = encoded
    return new, known


def _with_timestamp(body: bytes, position: Position) -> bytes:
    """Insert the time of its position into the body of a message without a timestamp."""
    stamp = from_micros(position.micros).isoformat().replace("+00:00", "Z")
    # Insert text instead of encoding again: a turn is encoded once.
    return b'%b,"timestamp":"%b"}' % (body[:-1], stamp.encode())


def appended(log: Log, new: NewEntries, known: Sequence[EncodedEntry]) -> Appended:
    return Appended(
        conversation=log.record,
        new=lambda: tuple(
            decode_entry(log.record.id, encoded) for _, encoded in new
        ),  # encoded entries are immutable
        known=tuple(decode_entry(log.record.id, encoded) for encoded in known),
    )


def decode_entry(conversation_id: str, encoded: EncodedEntry) -> Entry:
    try:
        message = decode_message(encoded.body)
    except StoreDamaged as error:
        return noted_unreadable(
            conversation_id,
            encoded.position,
            revision=encoded.revision,
            stored_at=encoded.stored_at,
            why=str(error),
        )
    return Entry(
        conversation_id=conversation_id,
        sequence=encoded.position.sequence,
        revision=encoded.revision,
        stored_at=encoded.stored_at,
        message=message,
    )


def entry_position(encoded: EncodedEntry) -> Position:
    return encoded.position
