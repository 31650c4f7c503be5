"""The log of a conversation: append, read, replace, and what an encrypting layer needs."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from aforesaid.contracts import (
    Appended,
    Entry,
    LogEnd,
    Position,
    check_not_partly_stored,
    check_position,
    check_same_content,
    replaced_entry,
    replaced_id,
    replacement_message,
    same_content,
    without_head,
)
from aforesaid.errors import Conflict, InvalidMessage, MessageConflict, MessageNotFound, TurnPartlyStored
from aforesaid.model.clock import to_micros
from aforesaid.model.conversations import CLOCK_SKEW, Conversation, check_count, is_expired
from aforesaid.model.messages import Message
from aforesaid.model.wire import decode_message, encode_message
from aforesaid.stores.redis import values
from aforesaid.stores.redis.conversation_index import ConversationIndex
from aforesaid.stores.redis.owner_connection import (
    OwnerConnection,
    head_values,
    revision_conflict,
    revision_text,
)
from aforesaid.stores.redis.values import moment_of

# Encode a turn for `append.lua` and interpret the reply. Pure; `store` sends it.
#
# New message ids cost nothing extra. If an id is known, the script stores nothing and returns the stored
# messages. This module compares them by the rule of all stores, and `store` sends the turn again with the
# positions of the compared messages. If the script then finds another message under an id, it returns that
# one. So comparing and storing together are atomic.


# The largest argument of a command in the servers' default configuration, in bytes.
MAX_TURN_BYTES = 512 * 1024 * 1024 - 1024

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


class Log:
    """The logs of one owner's conversations."""

    def __init__(self, connection: OwnerConnection, index: ConversationIndex) -> None:
        self._connection = connection
        self._index = index

    async def extend(
        self, mode: str, conversation_id: str, messages: Sequence[Message], expected_revision: int | None
    ) -> Appended:
        """Store a turn; `mode` is `append` or `rewrite`.

        On one server the script also updates the index. On a cluster the index is in another slot, so it is
        updated before and after.
        """
        messages, head = without_head(messages)
        draft = Draft(conversation_id, messages, head=head)
        now = self._connection.now()
        arguments = (*_moments(now), mode, revision_text(expected_revision))
        if not self._connection.clustered:
            return await self._store(conversation_id, draft, arguments, expected_revision)
        activity = draft.activity(now)
        if activity is not None:
            await self._index.raise_score(conversation_id, activity)
        try:
            appended = await self._store(conversation_id, draft, arguments, expected_revision)
        except Conflict:
            await self._index.correct(conversation_id)
            raise
        await self._index.follow(appended.conversation)
        return appended

    async def _store(
        self,
        conversation_id: str,
        draft: Draft,
        arguments: tuple[str, ...],
        expected_revision: int | None,
    ) -> Appended:
        """Run `append.lua` until no message id needs to be compared; see `turns`."""
        changes = self._connection.keys.changes
        while True:
            # A turn that contradicts itself is not stored; comparing raises the error of its first conflict.
            only_compare = "1" if draft.has_conflict else ""
            rest = (only_compare, changes, conversation_id, *head_values(draft.head), draft.packed())
            status, *reply = await self._connection.change("append", conversation_id, *arguments, *rest)
            if status == b"conflict":
                raise revision_conflict(conversation_id, expected_revision, reply)
            if status == b"partial":
                raise TurnPartlyStored(conversation_id)
            record = values.record(conversation_id, reply[0])
            if status == b"done":
                return draft.done(record, *reply[1:])
            draft.compare(reply[1])
            if draft.is_known:
                return draft.unchanged(record)

    # Reading

    async def tail(self, conversation_id: str, limit: int, before: Position | None) -> list[Entry]:
        check_count(limit, field="limit", least=0)
        check_position(before)
        if not limit:
            return await self._entries(conversation_id, "none")
        if before is None:
            newest_first = await self._entries(conversation_id, "tail", limit - 1)
        else:
            newest_first = await self._entries(conversation_id, "before", values.position_text(before), limit)
        return newest_first[::-1]

    async def page(self, conversation_id: str, limit: int, offset: int) -> list[Entry]:
        check_count(limit, field="limit", least=0)
        check_count(offset, field="offset", least=0)
        if not limit:
            return await self._entries(conversation_id, "none")
        return await self._entries(conversation_id, "page", offset, offset + limit - 1)

    async def entry(self, conversation_id: str, message_id: str) -> Entry | None:
        member = await self._member(conversation_id, message_id)
        return values.entry(conversation_id, member) if member else None

    async def _entries(self, conversation_id: str, *which: str | int) -> list[Entry]:
        now = moment_of(self._connection.now())
        _, members = await self._connection.run("read_log", conversation_id, now, *which)
        return [values.entry(conversation_id, member) for member in members]

    async def _member(self, conversation_id: str, message_id: str) -> bytes:
        """Return the log member of the message with this id; empty if it is missing."""
        now = moment_of(self._connection.now())
        _, member = await self._connection.run("find_message", conversation_id, now, message_id)
        return bytes(member)

    # Replacing

    async def replace(self, conversation_id: str, message: Message, expected_revision: int | None) -> Entry:
        (message,), head = without_head([message])
        encode_message(message)  # raises for a message that cannot be stored
        while True:
            member = await self._member(conversation_id, replaced_id(message))
            if not member:
                raise MessageNotFound(conversation_id, replaced_id(message))
            done = await self._replace(conversation_id, member, message, expected_revision, head)
            if done is not None:
                return done

    async def _replace(
        self,
        conversation_id: str,
        member: bytes,
        message: Message,
        expected_revision: int | None,
        head: str | None,
    ) -> Entry | None:
        """Replace the member that was read; return None if it has changed since."""
        old = values.entry(conversation_id, member)
        new = replacement_message(old, message)
        status, *reply = await self._connection.change(
            "replace",
            conversation_id,
            moment_of(self._connection.now()),
            revision_text(expected_revision),
            self._connection.keys.changes,
            conversation_id,
            member,
            values.position_text(old.position),
            moment_of(old.stored_at),
            encode_message(new),
            "1" if same_content(old, message) else "",
            *head_values(head),
        )
        if status == b"conflict":
            raise revision_conflict(conversation_id, expected_revision, reply)
        if status == b"changed":
            return None
        return replaced_entry(old, new, revision=int(reply[0]))

    # Sealing

    async def end(self, conversation_id: str) -> LogEnd | None:
        key = self._connection.keys.of(conversation_id).record
        *fields, head = await self._connection.call("HMGET", key, *values.FIELDS, "head")
        found = values.stored(conversation_id, fields)
        if found is None or is_expired(found.record, now=self._connection.now()):
            return None
        record, sealed = found.record, None if head is None else head.decode()
        return LogEnd(record.revision, values.next_sequence(fields), record.last_message_at, sealed)

    async def reseal(self, conversation_id: str, entries: Sequence[Entry]) -> int:
        now = moment_of(self._connection.now())
        _, exchanged = await self._connection.run("reseal", conversation_id, now, pack_members(entries))
        return int(exchanged)

    async def exchange_head(self, conversation_id: str, old: str | None, new: str) -> bool:
        now = moment_of(self._connection.now())
        _, exchanged = await self._connection.run("exchange_head", conversation_id, now, old or "", new)
        return bool(exchanged)


def _moments(now: datetime) -> tuple[str, str]:
    """Return the current time, and the latest last-message time that a new message may follow."""
    return moment_of(now), values.moment(to_micros(now) + CLOCK_SKEW // timedelta(microseconds=1))
