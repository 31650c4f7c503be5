"""One owner's view of the database. The SQL function `aforesaid.turn` implements the rules of
`model.conversations`.
"""

from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from psycopg import Rollback

from aforesaid.contracts import (
    Appended,
    Change,
    Document,
    Entry,
    Listing,
    LogEnd,
    Matches,
    Place,
    Position,
    Tally,
    VectorMatch,
    check_head,
    check_not_partly_stored,
    check_position,
    check_restorable,
    entries_without_head,
    replaced_entry,
    replaced_id,
    replacement_message,
    same_content,
    split_head,
    without_head,
)
from aforesaid.errors import (
    ConversationExists,
    ConversationNotFound,
    MessageConflict,
    MessageNotFound,
    RevisionConflict,
    StoreUnavailable,
)
from aforesaid.model.clock import parse_moment
from aforesaid.model.conversations import (
    Changes,
    Conversation,
    Page,
    Query,
    check_count,
    cursor_of,
    is_expired,
)
from aforesaid.model.ids import parse_name, parse_uuid
from aforesaid.model.messages import Message
from aforesaid.model.wire import encode_message
from aforesaid.stores._document_checks import DocumentChecks
from aforesaid.stores.postgres import counts, rows
from aforesaid.stores.postgres.connections import Connection, execute_for
from aforesaid.stores.postgres.documents import Documents
from aforesaid.stores.postgres.keys import key_of
from aforesaid.stores.postgres.search import Index
from aforesaid.stores.postgres.terms import counted_values, index_values
from aforesaid.stores.postgres.turns import (
    SplitTurn,
    ids_in,
    known_values,
    repeats_an_id,
    restored_values,
    split_known,
    stored_entries,
    turn_values,
)
from aforesaid.stores.postgres.vectors import VectorSearch

if TYPE_CHECKING:
    from aforesaid.stores.postgres.backend import PostgresBackend

PURGE_BATCH = 100
ATTEMPTS = 50
"""Attempts to store a turn while other callers store the same message ids. One retry is rare."""


class _Written(NamedTuple):
    """A row of `write_turn`."""

    state: str
    sequence: int
    stamp: datetime
    row: rows.Row

    def record(self) -> Conversation:
        return rows.conversation(self.row)


class PostgresStore(DocumentChecks):
    """Every call is one transaction as the owner, and mostly one round trip."""

    def __init__(self, backend: "PostgresBackend", owner: str) -> None:
        self._backend = backend
        self._name = owner
        self._owner = key_of(owner)
        self._index = Index(backend, owner, self._owner)

    def now(self) -> datetime:
        return self._backend.clock()

    async def create(self, conversation: Conversation) -> Conversation:
        values = self._creation(conversation)
        if not await self._run(("delete_if_expired", values), ("insert_conversation", values)):
            raise ConversationExists(conversation.id)
        return conversation

    async def get(self, conversation_id: str) -> Conversation | None:
        found = await self._run(("get_conversation", self._named(conversation_id)))
        return rows.conversation(found[0]) if found else None

    async def update(
        self, conversation_id: str, changes: Changes, *, expected_revision: int | None = None
    ) -> Conversation:
        named = self._named(conversation_id) | {"expected": expected_revision}
        values = rows.change_values(changes, named["now"]) | named
        found = await self._run(("update_conversation", values))
        if found:
            return rows.conversation(found[0])
        record = await self._require(conversation_id)
        raise _revision_conflict(record, expected_revision)

    async def find(self, query: Query) -> Page:
        values = rows.query_values(query) | self._mine()
        found = [rows.conversation(row) for row in await self._run(("find_conversations", values))]
        shown = found[: query.limit]
        more = len(found) > query.limit
        return Page(conversations=tuple(shown), next=cursor_of(shown[-1]) if more else None)

    async def delete(self, conversation_id: str, *, expected_revision: int | None = None) -> Tally:
        values = self._named(conversation_id) | {"expected": expected_revision}
        ((left, *gone),) = await self._run(("lock_to_delete", values), ("delete_conversation", values))
        if expected_revision is not None and left is not None:
            raise RevisionConflict(values["id"], expected=expected_revision, actual=left)
        return counts.deleted(tuple(gone))

    async def resume(
        self, session_id: str, fresh: Conversation, *, active_since: datetime | None = None
    ) -> Conversation:
        bound = await self.session(session_id)
        if bound is not None and _still_active(bound, active_since):
            return bound  # the usual case, without a transaction
        resumed = None
        while resumed is None:
            async with self._backend.connection() as connection, connection.transaction():
                resumed = await self._resume(connection, session_id, fresh, active_since)
                if resumed is None:
                    raise Rollback  # another caller was faster: resume its conversation
        return resumed

    async def session(self, session_id: str) -> Conversation | None:
        found = await self._run(("get_session", self._session(session_id)))
        return rows.conversation(found[0]) if found else None

    async def bind(self, session_id: str, conversation_id: str) -> None:
        values = self._session(session_id) | self._named(conversation_id)
        if not await self._run(("bind_session", values)):
            raise ConversationNotFound(conversation_id)

    async def unbind(self, session_id: str) -> None:
        await self._run(("unbind_session", self._session(session_id)))

    async def sessions(self, conversation_id: str) -> list[str]:
        found = await self._run(("get_sessions", self._named(conversation_id)))
        if not found:
            raise ConversationNotFound(conversation_id)
        return sorted(name for (name,) in found if name is not None)

    async def append(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        messages, head = without_head(messages)
        bodies = [encode_message(message).decode() for message in messages]
        stored = await self._stored(conversation_id, messages) if repeats_an_id(messages) else {}
        for _ in range(ATTEMPTS):
            turn = split_known(conversation_id, messages, bodies, stored)
            check_not_partly_stored(conversation_id, head, new=len(turn.new), known=len(turn.known))
            if messages and not turn.new:
                record = await self._require(conversation_id)
                return Appended(conversation=record, new=(), known=turn.entries_known(()))
            appended = await self._write(conversation_id, messages, bodies, turn, expected_revision, head)
            if appended is not None:
                return appended
            stored = await self._stored(conversation_id, messages)
        raise StoreUnavailable(f"conversation {conversation_id} changes too fast to be written to")

    async def rewrite(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        messages, head = without_head(messages)
        bodies = [encode_message(message).decode() for message in messages]
        try:
            turn = split_known(conversation_id, messages, bodies, {})
        except MessageConflict:
            record = await self._require(conversation_id)
            if expected_revision is not None and record.revision != expected_revision:
                raise _revision_conflict(record, expected_revision) from None
            raise
        check_not_partly_stored(conversation_id, head, new=len(turn.new), known=len(turn.known))
        written = await self._write(
            conversation_id, messages, bodies, turn, expected_revision, head, afresh=True
        )
        assert written is not None, "a rewrite knows no ids"
        return written

    async def tail(self, conversation_id: str, *, limit: int, before: Position | None = None) -> list[Entry]:
        check_count(limit, field="limit", least=0)
        check_position(before)
        at = None if before is None else rows.moment_at(before.micros, field="before")
        sequence = None if before is None else before.sequence
        newest_first = await self._entries(
            "tail", conversation_id, limit=limit, before_at=at, before_sequence=sequence
        )
        return newest_first[::-1]

    async def page(self, conversation_id: str, *, limit: int, offset: int = 0) -> list[Entry]:
        check_count(limit, field="limit", least=0)
        check_count(offset, field="offset", least=0)
        return await self._entries("page", conversation_id, limit=limit, offset=offset)

    async def entry(self, conversation_id: str, message_id: str) -> Entry | None:
        key = key_of(parse_name(message_id, field="message_id"))
        found = await self._entries("known_messages", conversation_id, keys=[key])
        return found[0] if found else None

    async def replace(
        self, conversation_id: str, message: Message, *, expected_revision: int | None = None
    ) -> Entry:
        (message,), carried = without_head([message])
        encode_message(message)  # raises for a message that cannot be stored
        head, seen = split_head(carried)
        named = self._named(conversation_id) | {"expected": expected_revision, "head": head, "seen": seen}
        while (held := await self.entry(conversation_id, replaced_id(message))) is not None:
            kept = replacement_message(held, message)
            values = {"key": key_of(replaced_id(message)), "sequence": held.sequence}
            values |= {"keeps_derived": same_content(held, message)} | await self._replacement(kept)
            found = await self._run(("lock_conversation", named), ("replace_message", named | values))
            if found:
                return replaced_entry(held, kept, revision=found[0][0])
            record = await self._require(conversation_id)
            if seen is not None or (expected_revision is not None and record.revision != expected_revision):
                raise _revision_conflict(record, expected_revision)
        raise MessageNotFound(named["id"], replaced_id(message))

    async def _replacement(self, message: Message) -> dict[str, Any]:
        """Return a message with its time, for `replace_message`."""
        body = encode_message(message).decode()
        (found_by,) = await self._index.of([message], [body], self.now())
        return {
            "role": message.role,
            "body": body,
            "vector": found_by.vector,
            "term_count": found_by.term_count,
        }

    async def log_end(self, conversation_id: str) -> LogEnd | None:
        found = await self._run(("log_end", self._named(conversation_id)))
        return rows.log_end(found[0]) if found else None

    async def reseal(self, conversation_id: str, entries: Sequence[Entry]) -> int:
        await self._require(conversation_id)
        bodies = {entry.sequence: encode_message(entry.message).decode() for entry in entries}
        values = self._named(conversation_id) | restored_values(entries, bodies)
        return len(await self._run(("lock_conversation", values), ("reseal_messages", values)))

    async def exchange_head(self, conversation_id: str, old: str | None, new: str) -> bool:
        values = self._named(conversation_id) | {"old": old, "new": new}
        return bool(await self._run(("exchange_head", values)))

    async def restore(self, conversation: Conversation, entries: Sequence[Entry]) -> None:
        entries, carried = entries_without_head(entries)
        head, seen = split_head(carried)
        record, given = check_restorable(conversation, entries)
        bodies = {sequence: encode_message(entry.message).decode() for sequence, entry in given.items()}
        async with self._backend.connection() as connection, connection.transaction():
            next_sequence, stored_head = await self._restore_record(connection, record)
            check_head(record.id, record.revision, stored_head, seen)
            named = self._named(record.id)
            free = await self._free(connection, named, given, next_sequence)
            new = [entry for sequence, entry in given.items() if sequence in free]
            if not new:
                return
            found_by = await self._index.of(
                [entry.message for entry in new], [bodies[entry.sequence] for entry in new], named["now"]
            )
            values = named | restored_values(new, bodies) | index_values(found_by)
            values |= {"last": max(free), "head": head}
            found = await execute_for(connection, self._name, ("restore_messages", values))
            stored = {sequence for (sequence,) in found}
            for entry in new:
                if entry.sequence not in stored:
                    raise MessageConflict(record.id, str(entry.message.message_id))
            await execute_for(connection, self._name, ("count_restored", values | counted_values(found_by)))

    async def matches(self, terms: Sequence[str], *, limit: int) -> Matches:
        """See `contracts.Searchable`. Common terms are read last; see `terms.COMMON`."""
        check_count(limit, field="limit", least=0)
        return await self._index.matches(terms, limit, self.now())

    async def nearest(
        self, model: str, vector: Sequence[float], *, limit: int, around: Sequence[float] | None = None
    ) -> list[VectorMatch] | None:
        """See `contracts.Nearest`. Needs pgvector; see `backend.abilities`."""
        check_count(limit, field="limit", least=0)
        if not self._backend.abilities.vectors:
            return None
        nearness = VectorSearch(self._backend, self._name, self._owner)
        return await nearness.nearest(model, vector, around, self._mine() | {"limit": limit})

    async def _put_document(self, place: Place, data: bytes, expected: int | None) -> Document:
        held = self._documents(place.conversation_id)
        return await held.put(place, data, expected=expected, owner_name=self._full_name)

    async def _get_document(self, place: Place) -> Document | None:
        return await self._documents(place.conversation_id).get(place)

    async def _list_documents(self, listing: Listing) -> list[Document]:
        return await self._documents(listing.conversation_id).page(listing)

    async def _document_kinds(self, holder: str | None) -> list[str]:
        return await self._documents(holder).kinds()

    async def _delete_document(self, place: Place, expected: int | None) -> bool:
        return await self._documents(place.conversation_id).delete(place, expected=expected)

    async def _restore_documents(self, documents: Mapping[Place, Document]) -> None:
        holder = next(iter(documents)).conversation_id
        await self._documents(holder).restore(documents, owner_name=self._full_name)

    async def purge_expired(self) -> int:
        total = 0
        while removed := (await self._run(("purge_owner", self._mine() | {"limit": PURGE_BATCH})))[0][0]:
            total += removed
        return total

    async def expired(self, *, by: datetime, limit: int = 100) -> list[Conversation]:
        values = {"by": parse_moment(by, field="by"), "limit": check_count(limit, field="limit", least=0)}
        return [rows.conversation(row) for row in await self._run(("expired", self._mine() | values))]

    async def clear(self) -> Tally:
        async with self._backend.connection() as connection, connection.transaction():
            return await counts.clear(connection, self._name, self._mine())

    async def tally(self, conversation_id: str | None = None) -> Tally:
        values = self._mine() | {"id": None} if conversation_id is None else self._named(conversation_id)
        async with self._backend.connection() as connection:
            return await counts.tally(connection, self._name, values)

    def watch(self, conversation_id: str | None = None) -> AbstractAsyncContextManager[AsyncIterator[Change]]:
        """Watch changes by any process. See `contracts.Watchable`."""
        wanted = None if conversation_id is None else parse_uuid(conversation_id, field="conversation_id")

        async def revisions(ids: Collection[str] | None) -> dict[str, int]:
            given = None if ids is None else list(ids)
            found = await self._run(("revisions", self._mine() | {"ids": given}))
            return {row[0]: row[1] for row in found}

        return self._backend.listener.watch(self._owner, wanted, revisions)

    async def _run(self, *steps: tuple[str, dict[str, Any]]) -> list[rows.Row]:
        return await self._backend.run_for(self._name, *steps)

    def _mine(self) -> dict[str, Any]:
        return {"owner": self._owner, "now": self.now()}

    def _named(self, conversation_id: str) -> dict[str, Any]:
        return self._mine() | {"id": parse_uuid(conversation_id, field="conversation_id")}

    def _session(self, session_id: str) -> dict[str, Any]:
        key = key_of(parse_name(session_id, field="session_id"))
        return self._mine() | {"session": key, "session_name": None if key == session_id else session_id}

    @property
    def _full_name(self) -> str | None:
        """The owner's name if its key is a digest."""
        return None if self._name == self._owner else self._name

    def _documents(self, conversation_id: str | None) -> Documents:
        """Return the documents of a conversation or of the owner."""
        return Documents(self._run, self._mine(), conversation_id)

    def _creation(self, conversation: Conversation) -> dict[str, Any]:
        return rows.conversation_values(conversation) | self._mine() | {"owner_name": self._full_name}

    async def _require(self, conversation_id: str) -> Conversation:
        record = await self.get(conversation_id)
        if record is None:
            raise ConversationNotFound(conversation_id)
        return record

    async def _entries(self, query: str, conversation_id: str, **values: Any) -> list[Entry]:
        """Run a query that sets the owner itself."""
        named = self._named(conversation_id) | {"name": self._name}
        return _found(named["id"], await self._backend.run(query, named | values))

    async def _stored(self, conversation_id: str, messages: Sequence[Message]) -> dict[str, Entry]:
        """Return the stored messages with the ids of these messages."""
        ids = {key_of(message_id): message_id for message_id in ids_in(messages)}
        named = self._named(conversation_id) | {"name": self._name, "keys": list(ids)}
        found = await self._backend.run("known_messages", named)
        entries = _found(named["id"], found)
        keys = [row[-1] for row in found if row[1] is not None]
        return {ids[key]: entry for key, entry in zip(keys, entries, strict=True)}

    async def _resume(
        self,
        connection: Connection,
        session_id: str,
        fresh: Conversation,
        active_since: datetime | None,
    ) -> Conversation | None:
        """Return the session's conversation, or a new one; None when another caller has bound the session."""
        values = self._session(session_id)
        binding = await execute_for(connection, self._name, ("session_binding", values))
        found = await execute_for(connection, self._name, ("get_session", values))
        if found and _still_active(bound := rows.conversation(found[0]), active_since):
            return bound
        values |= self._creation(fresh)
        steps = ("delete_if_expired", values), ("insert_conversation", values)
        if not await execute_for(connection, self._name, *steps):
            raise ConversationExists(fresh.id)
        values["bound"] = binding[0][0] if binding else None
        return fresh if await execute_for(connection, self._name, ("rebind_session", values)) else None

    async def _restore_record(self, connection: Connection, record: Conversation) -> tuple[int, str | None]:
        """Store the record and lock it until the end of the transaction; return next sequence and head."""
        values = self._creation(record)
        if not is_expired(record, now=values["now"]):
            await execute_for(connection, self._name, ("delete_if_expired", values))
        ((next_sequence, head, _),) = await execute_for(
            connection, self._name, ("restore_conversation", values)
        )
        return int(next_sequence), head

    async def _free(
        self, connection: Connection, named: dict[str, Any], given: Iterable[int], next_sequence: int
    ) -> set[int]:
        """Return the free ones of these sequences. Usually all are new, and no query is needed."""
        sequences = set(given)
        least = min(sequences, default=next_sequence)
        if least >= next_sequence:
            return sequences
        taken = await execute_for(connection, self._name, ("sequences_from", named | {"least": least}))
        return sequences - {sequence for (sequence,) in taken}

    async def _write(
        self,
        conversation_id: str,
        messages: Sequence[Message],
        bodies: Sequence[str],
        turn: SplitTurn,
        expected_revision: int | None,
        head: str | None,
        *,
        afresh: bool = False,
    ) -> Appended | None:
        """Store the new messages; return None if more ids of the turn turn out to be known."""
        now = self.now()
        new = [messages[place] for place in turn.new]
        new_bodies = [bodies[place] for place in turn.new]
        values: dict[str, Any] = turn_values(new, new_bodies) | known_values(turn)
        values |= index_values(await self._index.of(new, new_bodies, now))
        values |= {"name": self._name, "owner": self._owner, "id": conversation_id, "now": now}
        sealed, seen = split_head(head)
        values |= {"expected": expected_revision, "afresh": afresh, "head": sealed, "seen": seen}
        written = await self._write_turn(values)
        if written.state == "missing":
            raise ConversationNotFound(conversation_id)
        if written.state == "moved":
            raise _revision_conflict(written.record(), expected_revision)
        if written.state == "known":
            return None
        entries = partial(_entries_of, conversation_id, new, written, now)
        if not turn.known:
            return Appended(conversation=written.record, new=entries)
        stored = entries()
        return Appended(conversation=written.record, new=stored, known=turn.entries_known(stored))

    async def _write_turn(self, values: dict[str, Any]) -> _Written:
        ((state, sequence, stamp, *record),) = await self._backend.run("write_turn", values)
        return _Written(state, sequence, stamp, tuple(record))


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


def _still_active(record: Conversation, active_since: datetime | None) -> bool:
    return active_since is None or record.last_activity >= active_since


def _revision_conflict(record: Conversation, expected: int | None) -> RevisionConflict:
    return RevisionConflict(record.id, expected=-1 if expected is None else expected, actual=record.revision)
