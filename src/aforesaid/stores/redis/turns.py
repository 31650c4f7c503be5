"""A turn on its way in: what is sent, and what the reply means. Decides; sends nothing itself.

A message id that is new costs nothing. For one that is known, the script shows what is stored and
stores nothing; whether that says the same is judged here, by the rule that all stores share, and the
turn is sent again with the position of what was seen. A script that finds another message at that
id by then shows it in turn. So the judgement is exact, and still one step with the storing.
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

LARGEST_TURN = 512 * 1024 * 1024 - 1024
"""Bytes in one argument of a command, as servers are set up by default."""

_pack = msgspec.msgpack.Encoder().encode


def packed_entries(entries: Iterable[Entry]) -> bytes:
    """The entries as `restore.lua` wants them."""
    return _bounded(_pack([values.entry_values(entry) for entry in entries]))


def packed_members(entries: Iterable[Entry]) -> bytes:
    """The entries as `reseal.lua` wants them: what stands at the head of each member, and the member."""
    return _bounded(_pack([values.member_of(entry) for entry in entries]))


def _bounded(packed: bytes) -> bytes:
    if len(packed) > LARGEST_TURN:
        raise InvalidMessage("the turn is larger than the store can hold", field="content")
    return packed


class Draft:
    """One turn. A message id is sent once; what repeats it in the turn is compared here."""

    def __init__(self, conversation_id: str, messages: Sequence[Message], *, head: str | None = None) -> None:
        self._conversation_id = conversation_id
        self.head = head
        self._messages = tuple(messages)
        self._bodies = [encode_message(message) for message in self._messages]
        self._first: dict[str, int] = {}
        self._sent: list[int] = []
        self._seen: dict[int, Entry] = {}
        self._positions: dict[int, str] = {}
        self.contradicts_itself = False
        for place, message in enumerate(self._messages):
            self._draw_up(place, message)
        repeated = len(self._messages) - len(self._sent)
        check_not_partly_stored(conversation_id, head, new=len(self._sent), known=repeated)

    def _draw_up(self, place: int, message: Message) -> None:
        first = place if message.message_id is None else self._first.setdefault(message.message_id, place)
        if first == place:
            self._sent.append(place)
        elif not self._agree(first, place):
            self.contradicts_itself = True

    def _agree(self, first: int, place: int) -> bool:
        return self._said(first).same_content_as(self._said(place))

    def _said(self, place: int) -> Message:
        """The message as it would be read back: lists where a caller may have had tuples."""
        return decode_message(self._bodies[place])

    def packed(self) -> bytes:
        """The messages as the script wants them."""
        return _bounded(_pack([self._packed(place) for place in self._sent]))

    def _packed(self, place: int) -> tuple[str, str, str, str, str]:
        message = self._messages[place]
        return (
            message.message_id or "",
            "" if message.timestamp is None else values.moment_of(message.timestamp),
            message.role,
            self._bodies[place].decode(),  # the server's msgpack knows text, not bytes
            self._positions.get(place, ""),
        )

    def compare(self, stored: Sequence[bytes]) -> None:
        """Judge what is stored under these ids. Raises `MessageConflict` for the first that differs."""
        found = {place: member for place, member in zip(self._sent, stored, strict=False) if member}
        self._seen = {place: values.entry(self._conversation_id, member) for place, member in found.items()}
        self._positions = {place: values.position_in(member) for place, member in found.items()}
        for place in range(len(self._messages)):
            self._check_fits(place)

    def _check_fits(self, place: int) -> None:
        first = self._first_of(place)
        if first in self._seen:
            check_same_content(self._seen[first], self._said(place))
        elif first != place and not self._agree(first, place):
            raise MessageConflict(self._conversation_id, str(self._messages[place].message_id))

    @property
    def is_known(self) -> bool:
        """Whether all of it is stored already, as far as has been seen."""
        return len(self._seen) == len(self._sent)

    def nothing_new(self, record: Conversation) -> Appended:
        """The turn was stored before: nothing has changed."""
        known = tuple(self._seen[self._first_of(place)] for place in range(len(self._messages)))
        return Appended(conversation=record, new=(), known=known)

    def done(
        self, record: Conversation, stamp: bytes, first_sequence: bytes, known: Sequence[bytes]
    ) -> Appended:
        """The turn is stored; every message that was not known has its place."""
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
        """The latest moment in the turn: the conversation will not have been active before it."""
        return max((message.timestamp or now for message in self._messages), default=None)
