"""The log of a conversation: append, read, replace, restore, and what an encrypting layer needs.

The SQL function `aforesaid.turn` implements the rules of `model.conversations`.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

from aforesaid.contracts import (
    Appended,
    Entry,
    LogEnd,
    Position,
    check_head,
    check_not_partly_stored,
    check_position,
    check_restorable,
    check_same_content,
    entries_without_head,
    replaced_entry,
    replaced_id,
    replacement_message,
    same_content,
    split_head,
    without_head,
)
from aforesaid.errors import ConversationNotFound, MessageConflict, MessageNotFound, StoreUnavailable
from aforesaid.model.conversations import Conversation, check_count, check_revision, is_expired
from aforesaid.model.ids import parse_name, parse_uuid
from aforesaid.model.messages import Message
from aforesaid.model.wire import decode_message, encode_message
from aforesaid.stores.postgres import rows
from aforesaid.stores.postgres.connections import Connection
from aforesaid.stores.postgres.database import OwnerConnection, revision_conflict
from aforesaid.stores.postgres.rows import key_of
from aforesaid.stores.postgres.search import SearchIndex
from aforesaid.stores.postgres.terms import counted_values, index_values
from aforesaid.stores.postgres.turns import Turn, array, message_key

# Separate new from known messages of a turn, and encode both for SQL. Pure functions.


class SplitTurn(NamedTuple):
    """A turn: the indexes of its new messages, and the entry or earlier message of each known one."""

    new: list[int]
    known: list[Entry | int]
    """A stored entry, or the index of an earlier new message of the same turn."""

    def entries_known(self, stored_now: Sequence[Entry]) -> tuple[Entry, ...]:
        """Return the entries of the known messages, given those of the new ones."""
        return tuple(stored_now[known] if isinstance(known, int) else known for known in self.known)


def split_known(
    conversation_id: str, messages: Sequence[Message], bodies: Sequence[str], stored: Mapping[str, Entry]
) -> SplitTurn:
    """Separate new from known messages, given the stored messages with their ids. Raise `MessageConflict`.

    The messages are compared as they would be read back, with lists instead of tuples.
    """
    new: list[int] = []
    known: list[Entry | int] = []
    seen: dict[str, int] = {}
    for place, message in enumerate(messages):
        message_id = message.message_id
        earlier = None if message_id is None else stored.get(message_id, seen.get(message_id))
        if earlier is None:
            if message_id is not None:
                seen[message_id] = len(new)
            new.append(place)
            continue
        decoded = decode_message(bodies[place])
        if isinstance(earlier, Entry):
            check_same_content(earlier, decoded)
        elif not decode_message(bodies[new[earlier]]).same_content_as(decoded):
            raise MessageConflict(conversation_id, str(message_id))
        known.append(earlier)
    return SplitTurn(new, known)


def ids_in(messages: Iterable[Message]) -> list[str]:
    """Return the ids of the messages."""
    return [message.message_id for message in messages if message.message_id is not None]


def repeats_an_id(messages: Iterable[Message]) -> bool:
    """Return whether an id occurs twice in the turn."""
    ids = ids_in(messages)
    return len(set(ids)) < len(ids)


def is_timed(messages: Iterable[Message]) -> bool:
    """Return whether a message has a time of its own."""
    return any(message.timestamp is not None for message in messages)


def turn_values(messages: Sequence[Message], bodies: Sequence[str]) -> dict[str, Any]:
    """Return the messages for `write_turn`; times and keys only if there are any."""
    ids = ids_in(messages)
    return {
        "roles": array(message.role for message in messages),
        "times": [message.timestamp for message in messages] if is_timed(messages) else None,
        "keys": [message_key(message) for message in messages] if ids else None,
        "bodies": list(bodies),
    }


def restored_values(entries: Sequence[Entry], bodies: Mapping[int, str]) -> dict[str, Any]:
    """Return the entries for `restore_messages`."""
    return {
        "times": [entry.message.timestamp for entry in entries],
        "sequences": [entry.sequence for entry in entries],
        "roles": array(entry.message.role for entry in entries),
        "keys": [message_key(entry.message) for entry in entries],
        "revisions": [entry.revision for entry in entries],
        "stored": [entry.stored_at for entry in entries],
        "bodies": [bodies[entry.sequence] for entry in entries],
    }


def known_values(turn: SplitTurn) -> dict[str, Any]:
    """Return the known messages, which `write_turn` checks again under its lock."""
    entries = {known.sequence: known for known in turn.known if isinstance(known, Entry)}
    # Only stored ones: an id that is repeated within the turn is not stored yet.
    return {
        "known_keys": [message_key(entry.message) for entry in entries.values()] or None,
        "known_sequences": list(entries) or None,
    }


def stored_entries(
    conversation_id: str,
    messages: Iterable[Message],
    *,
    sequence: int,
    revision: int,
    stamp: datetime,
    now: datetime,
) -> tuple[Entry, ...]:
    """Return the entries of a stored turn."""
    stamp = stamp.astimezone(UTC)
    return tuple(
        Entry(
            conversation_id=conversation_id,
            sequence=number,
            revision=revision,
            stored_at=now,
            message=message if message.timestamp else message.with_(timestamp=stamp),
        )
        for number, message in enumerate(messages, sequence)
    )


# Attempts to store a turn while other callers store the same message ids. One retry is rare.
ATTEMPTS = 50


class _Written(NamedTuple):
    """A row of `write_turn`."""

    state: str
    sequence: int
    stamp: datetime
    row: rows.Row

    def record(self) -> Conversation:
        return rows.conversation(self.row)


class Log:
    """The logs of one owner's conversations. Each write is one transaction and mostly one round trip."""

    def __init__(self, connection: OwnerConnection, index: SearchIndex) -> None:
        self._connection = connection
        self._index = index

    # Turns

    async def append(
        self, conversation_id: str, messages: Sequence[Message], expected_revision: int | None
    ) -> Appended:
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        messages, head = without_head(messages)
        bodies = [encode_message(message).decode() for message in messages]
        # Most ids are new, so the first attempt reads nothing; `write_turn` says when one is known.
        stored = await self._stored(conversation_id, messages) if repeats_an_id(messages) else {}
        for _ in range(ATTEMPTS):
            turn = split_known(conversation_id, messages, bodies, stored)
            check_not_partly_stored(conversation_id, head, new=len(turn.new), known=len(turn.known))
            if messages and not turn.new:
                record = await self._connection.require(conversation_id)
                await self._connection.run_query("await_replication", {})
                return Appended(conversation=record, new=(), known=turn.entries_known(()))
            appended = await self._write(conversation_id, messages, bodies, turn, expected_revision, head)
            if appended is not None:
                return appended
            stored = await self._stored(conversation_id, messages)
        raise StoreUnavailable(f"conversation {conversation_id} changes too fast to be written to")

    async def rewrite(
        self, conversation_id: str, messages: Sequence[Message], expected_revision: int | None
    ) -> Appended:
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        messages, head = without_head(messages)
        bodies = [encode_message(message).decode() for message in messages]
        try:
            turn = split_known(conversation_id, messages, bodies, {})
        except MessageConflict:
            record = await self._connection.require(conversation_id)
            if expected_revision is not None and record.revision != expected_revision:
                raise revision_conflict(record, expected_revision) from None
            raise
        check_not_partly_stored(conversation_id, head, new=len(turn.new), known=len(turn.known))
        written = await self._write(
            conversation_id, messages, bodies, turn, expected_revision, head, rewrite=True
        )
        assert written is not None, "a rewrite knows no ids"
        return written

    async def _write(
        self,
        conversation_id: str,
        messages: Sequence[Message],
        bodies: Sequence[str],
        turn: SplitTurn,
        expected_revision: int | None,
        head: str | None,
        *,
        rewrite: bool = False,
    ) -> Appended | None:
        """Store the new messages; return None if more ids of the turn turn out to be known."""
        now = self._connection.now()
        new = [messages[place] for place in turn.new]
        new_bodies = [bodies[place] for place in turn.new]
        # Before a connection is taken: the terms of a long turn take milliseconds.
        index = await self._index.of(new, new_bodies, now)
        sealed, seen = split_head(head)
        written = None
        if new and not (rewrite or turn.known or is_timed(new)):
            usual = Turn(
                self._connection.key,
                conversation_id,
                now,
                expected_revision,
                seen,
                sealed,
                new,
                new_bodies,
                index,
            )
            written = await self._write_with_others(usual)
        if written is None:
            values: dict[str, Any] = turn_values(new, new_bodies) | known_values(turn) | index_values(index)
            values |= self._connection.named(conversation_id) | {"name": self._connection.name, "now": now}
            values |= {"expected": expected_revision, "rewrite": rewrite, "head": sealed, "seen": seen}
            written = await self._write_turn(values)
        if written.state == "missing":
            raise ConversationNotFound(conversation_id)
        if written.state == "moved":
            raise revision_conflict(written.record(), expected_revision)
        if written.state == "known":
            return None
        # Most callers use neither the record nor the entries, so both are built on first access.
        entries = partial(_entries_of, conversation_id, new, written, now)
        if not turn.known:
            return Appended(conversation=written.record, new=entries)
        stored = entries()
        return Appended(conversation=written.record, new=stored, known=turn.entries_known(stored))

    async def _write_with_others(self, turn: Turn) -> _Written | None:
        """Store a usual turn together with those that wait; None if it is not so usual."""
        stored = await self._connection.turns.store(turn)
        return None if stored is None else _Written("stored", stored.sequence, turn.now, stored.record)

    async def _write_turn(self, values: dict[str, Any]) -> _Written:
        ((state, sequence, stamp, *record),) = await self._connection.run_query("write_turn", values)
        return _Written(state, sequence, stamp, tuple(record))

    # Reading

    async def tail(self, conversation_id: str, limit: int, before: Position | None) -> list[Entry]:
        check_count(limit, field="limit", least=0)
        check_position(before)
        at = None if before is None else rows.moment_at(before.micros, field="before")
        sequence = None if before is None else before.sequence
        newest_first = await self._entries(
            "tail", conversation_id, limit=limit, before_at=at, before_sequence=sequence
        )
        return newest_first[::-1]

    async def page(self, conversation_id: str, limit: int, offset: int) -> list[Entry]:
        check_count(limit, field="limit", least=0)
        check_count(offset, field="offset", least=0)
        return await self._entries("page", conversation_id, limit=limit, offset=offset)

    async def entry(self, conversation_id: str, message_id: str) -> Entry | None:
        key = key_of(parse_name(message_id, field="message_id"))
        found = await self._entries("known_messages", conversation_id, keys=[key])
        return found[0] if found else None

    async def _entries(self, query: str, conversation_id: str, **values: Any) -> list[Entry]:
        """Run a query that sets the owner itself."""
        named = self._connection.named(conversation_id) | {"name": self._connection.name}
        return _found(named["id"], await self._connection.run_query(query, named | values))

    async def _stored(self, conversation_id: str, messages: Sequence[Message]) -> dict[str, Entry]:
        """Return the stored messages with the ids of these messages."""
        ids = {key_of(message_id): message_id for message_id in ids_in(messages)}
        named = self._connection.named(conversation_id) | {"name": self._connection.name, "keys": list(ids)}
        found = await self._connection.run_query("known_messages", named)
        entries = _found(named["id"], found)
        keys = [row[-1] for row in found if row[1] is not None]
        return {ids[key]: entry for key, entry in zip(keys, entries, strict=True)}

    # Replacing

    async def replace(self, conversation_id: str, message: Message, expected_revision: int | None) -> Entry:
        (message,), carried = without_head([message])
        encode_message(message)  # raises for a message that cannot be stored
        head, seen = split_head(carried)
        named = self._connection.named(conversation_id) | {
            "expected": expected_revision,
            "head": head,
            "seen": seen,
        }
        while (old := await self.entry(conversation_id, replaced_id(message))) is not None:
            new = replacement_message(old, message)
            values = {"key": key_of(replaced_id(message)), "sequence": old.sequence}
            values |= {"keeps_derived": same_content(old, message)} | await self._replacement(new)
            found = await self._connection.run(
                ("lock_conversation", named), ("replace_message", named | values)
            )
            if found:
                return replaced_entry(old, new, revision=found[0][0])
            # Either the revision differs, or the message was replaced since it was read: then read it again.
            record = await self._connection.require(conversation_id)
            if seen is not None or (expected_revision is not None and record.revision != expected_revision):
                raise revision_conflict(record, expected_revision)
        raise MessageNotFound(named["id"], replaced_id(message))

    async def _replacement(self, message: Message) -> dict[str, Any]:
        """Return a message with its time, for `replace_message`."""
        body = encode_message(message).decode()
        (found_by,) = await self._index.of([message], [body], self._connection.now())
        return {
            "role": message.role,
            "body": body,
            "vector": found_by.vector,
            "term_count": found_by.term_count,
        }

    # Sealing

    async def end(self, conversation_id: str) -> LogEnd | None:
        found = await self._connection.run(("log_end", self._connection.named(conversation_id)))
        return rows.log_end(found[0]) if found else None

    async def reseal(self, conversation_id: str, entries: Sequence[Entry]) -> int:
        await self._connection.require(conversation_id)
        bodies = {entry.sequence: encode_message(entry.message).decode() for entry in entries}
        values = self._connection.named(conversation_id) | restored_values(entries, bodies)
        return len(await self._connection.run(("lock_conversation", values), ("reseal_messages", values)))

    async def exchange_head(self, conversation_id: str, old: str | None, new: str) -> bool:
        values = self._connection.named(conversation_id) | {"old": old, "new": new}
        return bool(await self._connection.run(("exchange_head", values)))

    # Restoring

    async def restore(
        self, conversation: Conversation, entries: Sequence[Entry], *, expected_revision: int | None = None
    ) -> None:
        entries, carried = entries_without_head(entries)
        head, seen = split_head(carried)
        record, by_sequence = check_restorable(conversation, entries)
        bodies = {sequence: encode_message(entry.message).decode() for sequence, entry in by_sequence.items()}
        async with self._connection.borrow() as connection, connection.transaction():
            await self._check_revision(connection, record.id, expected_revision)
            # The record is locked first, so that no concurrent turn takes one of these sequences.
            next_sequence, stored_head = await self._restore_record(connection, record)
            check_head(record.id, record.revision, stored_head, seen)
            named = self._connection.named(record.id)
            free = await self._free(connection, named, by_sequence, next_sequence)
            new = [entry for sequence, entry in by_sequence.items() if sequence in free]
            if not new:
                return
            found_by = await self._index.of(
                [entry.message for entry in new], [bodies[entry.sequence] for entry in new], named["now"]
            )
            values = named | restored_values(new, bodies) | index_values(found_by)
            values |= {"last": max(free), "head": head}
            found = await self._connection.execute(connection, ("restore_messages", values))
            stored = {sequence for (sequence,) in found}
            for entry in new:
                if entry.sequence not in stored:
                    raise MessageConflict(record.id, str(entry.message.message_id))
            await self._connection.execute(connection, ("count_restored", values | counted_values(found_by)))

    async def _check_revision(
        self, connection: Connection, conversation_id: str, expected: int | None
    ) -> None:
        """Lock the conversation and compare its revision, before it is restored."""
        if expected is not None:
            named = self._connection.named(conversation_id)
            found = await self._connection.execute(connection, ("lock_at_revision", named))
            check_revision(conversation_id, found[0][0] if found else -1, expected)

    async def _restore_record(self, connection: Connection, record: Conversation) -> tuple[int, str | None]:
        """Store the record and lock it until the end of the transaction; return next sequence and head."""
        values = self._connection.creation(record)
        if not is_expired(record, now=values["now"]):
            await self._connection.execute(connection, ("delete_if_expired", values))
        ((next_sequence, head, _),) = await self._connection.execute(
            connection, ("restore_conversation", values)
        )
        return int(next_sequence), head

    async def _free(
        self, connection: Connection, named: dict[str, Any], wanted: Iterable[int], next_sequence: int
    ) -> set[int]:
        """Return the free ones of these sequences. Usually all are new, and no query is needed."""
        sequences = set(wanted)
        least = min(sequences, default=next_sequence)
        if least >= next_sequence:
            return sequences
        taken = await self._connection.execute(connection, ("taken_sequences", named | {"least": least}))
        return sequences - {sequence for (sequence,) in taken}


def _entries_of(
    conversation_id: str, messages: Sequence[Message], written: _Written, now: datetime
) -> tuple[Entry, ...]:
    """Return the entries of the stored messages."""
    revision = written.record().revision
    stamp = written.stamp or now
    return stored_entries(
        conversation_id, messages, sequence=written.sequence, revision=revision, stamp=stamp, now=now
    )


def _found(conversation_id: str, found: list[rows.Row]) -> list[Entry]:
    """Decode the entries. No row at all means that the conversation is missing."""
    if not found:
        raise ConversationNotFound(conversation_id)
    return rows.entries(conversation_id, found)
