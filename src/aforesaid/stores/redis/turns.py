"""Encode a turn for `append.lua` and interpret the reply. Pure; `store` sends it.

New message ids cost nothing extra. If an id is known, the script stores nothing and returns the stored
messages. This module compares them by the rule of all stores, and `store` sends the turn again with the
positions of the compared messages. If the script then finds another message under an id, it returns that one.
So comparing and storing together are atomic.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from aforesaid.contracts import Appended, Entry, check_not_partly_stored, check_same_content
from aforesaid.errors import InvalidMessage, MessageConflict
from aforesaid.model.conversations import Conversation
from aforesaid.model.messages import Message
from aforesaid.model.wire import decode_message, encode_message
from aforesaid.stores.redis import values

MAX_TURN_BYTES = 512 * 1024 * 1024 - 1024
"""The largest argument of a command in the servers' default configuration, in bytes."""

_pack = msgspec.msgpack.Encoder().encode


def pack_entries(entries: Iterable[Entry]) -> bytes:
    """Encode entries for `restore.lua`."""
    return _check_size(_pack([values.entry_values(entry) for entry in entries]))


def pack_members(entries: Iterable[Entry]) -> bytes:
    """Encode entries for `reseal.lua`: the head and the body of each member."""
    return _check_size(_pack([values.member_of(entry) for entry in entries]))


def _check_size(packed: bytes) -> bytes:
    if len(packed) > MAX_TURN_BYTES:
        raise InvalidMessage("the turn is larger than the store can hold", field="content")
    return packed


class Draft:
    """One turn. A repeated message id is sent once; the repetitions are compared here."""

    def __init__(self, conversation_id: str, messages: Sequence[Message], *, head: str | None = None) -> None:
        self._conversation_id = conversation_id
        self.head = head
        self._messages = tuple(messages)
        self._bodies = [encode_message(message) for message in self._messages]
        self._first: dict[str, int] = {}  # message id → index of the first message with it
        self._sent: list[int] = []  # indexes of the messages to send
        self._seen: dict[int, Entry] = {}  # index → the stored entry with the same id
        self._positions: dict[int, str] = {}  # index → the position of that entry
        self.has_conflict = False
        for place, message in enumerate(self._messages):
            self._add(place, message)
        repeated = len(self._messages) - len(self._sent)
        check_not_partly_stored(conversation_id, head, new=len(self._sent), known=repeated)

    def _add(self, place: int, message: Message) -> None:
        first = place if message.message_id is None else self._first.setdefault(message.message_id, place)
        if first == place:
            self._sent.append(place)
        elif not self._agree(first, place):
            self.has_conflict = True

    def _agree(self, first: int, place: int) -> bool:
        return self._decoded(first).same_content_as(self._decoded(place))

    def _decoded(self, place: int) -> Message:
        """Return the message as it would be read back, with lists instead of tuples."""
        return decode_message(self._bodies[place])

    # To the script

    def packed(self) -> bytes:
        """Encode the messages for `append.lua`."""
        return _check_size(_pack([self._packed(place) for place in self._sent]))

    def _packed(self, place: int) -> tuple[str, str, str, str, str]:
        message = self._messages[place]
        return (
            message.message_id or "",
            "" if message.timestamp is None else values.moment_of(message.timestamp),
            message.role,
            self._bodies[place].decode(),  # the server's msgpack supports text, not bytes
            self._positions.get(place, ""),
        )

    # After the first reply

    def compare(self, stored: Sequence[bytes]) -> None:
        """Compare the stored messages with these ids. Raise `MessageConflict` for the first that differs."""
        # Empty where the id is new.
        found = {place: member for place, member in zip(self._sent, stored, strict=False) if member}
        self._seen = {place: values.entry(self._conversation_id, member) for place, member in found.items()}
        self._positions = {place: values.position_in(member) for place, member in found.items()}
        for place in range(len(self._messages)):
            self._check_fits(place)

    def _check_fits(self, place: int) -> None:
        first = self._first_of(place)
        if first in self._seen:
            check_same_content(self._seen[first], self._decoded(place))
        elif first != place and not self._agree(first, place):
            raise MessageConflict(self._conversation_id, str(self._messages[place].message_id))

    @property
    def is_known(self) -> bool:
        """Whether all messages are stored already, according to the last reply."""
        return len(self._seen) == len(self._sent)

    def unchanged(self, record: Conversation) -> Appended:
        """Return the result for a turn that was stored before."""
        known = tuple(self._seen[self._first_of(place)] for place in range(len(self._messages)))
        return Appended(conversation=record, new=(), known=known)

    def done(
        self, record: Conversation, stamp: bytes, first_sequence: bytes, known: Sequence[bytes]
    ) -> Appended:
        """Return the result for a stored turn."""
        new: dict[int, Entry] = {}
        at = values.moment_from(stamp)
        for place, position in zip(self._sent, known, strict=True):
            if not position:
                new[place] = self._entry(place, int(first_sequence) + len(new), record, at)
        return Appended(conversation=record, new=tuple(new.values()), known=self._known(new))

    def _entry(self, place: int, sequence: int, record: Conversation, stamp: datetime) -> Entry:
        message = self._messages[place]
        return Entry(
            conversation_id=record.id,
            sequence=sequence,
            revision=record.revision,
            stored_at=record.updated_at,
            message=message if message.timestamp else message.with_(timestamp=stamp),
        )

    def _known(self, new: dict[int, Entry]) -> tuple[Entry, ...]:
        entries = self._seen | new
        return tuple(
            entries[self._first_of(place)] for place in range(len(self._messages)) if place not in new
        )

    def _first_of(self, place: int) -> int:
        message_id = self._messages[place].message_id
        return place if message_id is None else self._first[message_id]

    def activity(self, now: datetime) -> datetime | None:
        """Return the latest time in the turn, a lower bound for the conversation's activity."""
        return max((message.timestamp or now for message in self._messages), default=None)
