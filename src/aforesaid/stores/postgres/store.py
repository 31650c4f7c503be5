"""One owner's store. `Log` contains the turns; every call is one transaction as the owner.

A turn goes from `append` here to `Log.append`, which runs the query `write_turn` in `queries.sql`. That calls
the SQL function `aforesaid.turn`, which implements the rules of `model.conversations`.
"""

from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from copy import copy
from datetime import datetime
from functools import partial
from typing import Self

from msgspec.structs import replace
from psycopg import Rollback

from aforesaid.contracts import (
    Appended,
    Change,
    Document,
    Entry,
    Label,
    LabelChanges,
    Listing,
    LogEnd,
    LogSnapshot,
    Matches,
    Place,
    Position,
    Tally,
    VectorMatch,
)
from aforesaid.errors import ConversationExists, ConversationNotFound, RevisionConflict
from aforesaid.model.clock import parse_moment
from aforesaid.model.contacts import KIND as CONTACTS
from aforesaid.model.conversations import Changes, Conversation, Page, Query, check_count, cursor_of
from aforesaid.model.ids import parse_uuid
from aforesaid.model.messages import Message
from aforesaid.stores._arguments import DocumentChecks, frozen_in_time, last_sequence
from aforesaid.stores._snapshots import SnapshotQuery
from aforesaid.stores.postgres import rows
from aforesaid.stores.postgres.connections import Connection
from aforesaid.stores.postgres.database import Database, OwnerConnection, revision_conflict
from aforesaid.stores.postgres.documents import Documents
from aforesaid.stores.postgres.log import Log
from aforesaid.stores.postgres.search import SearchIndex, VectorSearch
from aforesaid.stores.postgres.snapshots import read_snapshot

PURGE_BATCH = 100


class PostgresStore(DocumentChecks):
    """One owner's conversations in the database."""

    def __init__(self, database: Database, owner: str) -> None:
        self._database = database
        self._connection = connection = OwnerConnection(database, owner)
        self._index = SearchIndex(database, owner, connection.key)
        self._log = Log(connection, self._index)

    @property
    def owner(self) -> str:
        return self._connection.name

    def now(self) -> datetime:
        return self._connection.now()

    # Records

    async def create(self, conversation: Conversation) -> Conversation:
        values = self._connection.creation(conversation)
        if not await self._connection.run(("delete_if_expired", values), ("insert_conversation", values)):
            raise ConversationExists(conversation.id)
        return conversation

    async def get(self, conversation_id: str) -> Conversation | None:
        return await self._connection.get(conversation_id)

    async def update(
        self, conversation_id: str, changes: Changes, *, expected_revision: int | None = None
    ) -> Conversation:
        named = self._connection.named(conversation_id) | {"expected": expected_revision}
        values = rows.change_values(changes, named["now"]) | named
        found = await self._connection.run(("update_conversation", values))
        if found:
            return rows.conversation(found[0])
        record = await self._connection.require(conversation_id)
        raise revision_conflict(record, expected_revision)

    async def find(self, query: Query) -> Page:
        values = rows.query_values(query) | self._connection.owned()
        found = [rows.conversation(row) for row in await self._connection.run(("find_conversations", values))]
        shown = found[: query.limit]
        more = len(found) > query.limit
        return Page(conversations=tuple(shown), next=cursor_of(shown[-1]) if more else None)

    async def delete(self, conversation_id: str, *, expected_revision: int | None = None) -> Tally:
        values = self._connection.named(conversation_id) | {"expected": expected_revision}
        ((left, *gone),) = await self._connection.run(
            ("lock_to_delete", values), ("delete_conversation", values)
        )
        self._database.forget_snapshots()
        if expected_revision is not None and left is not None:
            raise RevisionConflict(values["id"], expected=expected_revision, actual=left)
        return _deleted(tuple(gone))

    # Sessions

    async def resume(
        self, session_id: str, fresh: Conversation, *, active_since: datetime | None = None
    ) -> Conversation:
        bound = await self.session(session_id)
        if bound is not None and _still_active(bound, active_since):
            return bound  # the usual case, without a transaction
        resumed = None
        while resumed is None:
            async with self._connection.borrow() as connection, connection.transaction():
                resumed = await self._resume(connection, session_id, fresh, active_since)
                if resumed is None:
                    raise Rollback  # another caller was faster: resume its conversation
        return resumed

    async def _resume(
        self,
        connection: Connection,
        session_id: str,
        fresh: Conversation,
        active_since: datetime | None,
    ) -> Conversation | None:
        """Return the session's conversation, or a new one; None when another caller has bound the session."""
        values = self._connection.session(session_id)
        binding = await self._connection.execute(connection, ("session_binding", values))
        found = await self._connection.execute(connection, ("get_session", values))
        if found and _still_active(bound := rows.conversation(found[0]), active_since):
            return bound
        values |= self._connection.creation(fresh)
        steps = ("delete_if_expired", values), ("insert_conversation", values)
        if not await self._connection.execute(connection, *steps):
            raise ConversationExists(fresh.id)
        values["bound"] = binding[0][0] if binding else None
        return fresh if await self._connection.execute(connection, ("rebind_session", values)) else None

    async def session(self, session_id: str) -> Conversation | None:
        found = await self._connection.run(("get_session", self._connection.session(session_id)))
        return rows.conversation(found[0]) if found else None

    async def bind(self, session_id: str, conversation_id: str) -> None:
        values = self._connection.session(session_id) | self._connection.named(conversation_id)
        if not await self._connection.run(("bind_session", values)):
            raise ConversationNotFound(conversation_id)

    async def unbind(self, session_id: str) -> None:
        await self._connection.run(("unbind_session", self._connection.session(session_id)))

    async def sessions(self, conversation_id: str) -> list[str]:
        found = await self._connection.run(("get_sessions", self._connection.named(conversation_id)))
        if not found:
            raise ConversationNotFound(conversation_id)
        return sorted(name for (name,) in found if name is not None)

    # The log

    async def append(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        return await self._log.append(conversation_id, messages, expected_revision)

    async def rewrite(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        rewritten = await self._log.rewrite(conversation_id, messages, expected_revision)
        self._database.forget_snapshots()
        return rewritten

    async def tail(self, conversation_id: str, *, limit: int, before: Position | None = None) -> list[Entry]:
        return await self._log.tail(conversation_id, limit, before)

    async def page(self, conversation_id: str, *, limit: int, offset: int = 0) -> list[Entry]:
        return await self._log.page(conversation_id, limit, offset)

    async def read_snapshot(
        self, conversation_id: str, *, front: int, tail: int, documents: Listing
    ) -> LogSnapshot:
        named = self._connection.named(conversation_id) | {"name": self._connection.name}
        # Contacts are rows of another table, and no context needs them.
        is_apart = documents.kind == CONTACTS
        read = documents._replace(limit=0) if is_apart else documents
        query = SnapshotQuery(self._connection.key, named["id"], front, tail, read)
        snapshot = await read_snapshot(self._connection.run_query, self._database.snapshots, named, query)
        if not is_apart:
            return snapshot
        return replace(snapshot, documents=await self._documents(None).page(documents))

    async def entry(self, conversation_id: str, message_id: str) -> Entry | None:
        return await self._log.entry(conversation_id, message_id)

    async def replace(
        self, conversation_id: str, message: Message, *, expected_revision: int | None = None
    ) -> Entry:
        replaced = await self._log.replace(conversation_id, message, expected_revision)
        self._database.forget_snapshots()
        return replaced

    async def restore(
        self, conversation: Conversation, entries: Sequence[Entry], *, expected_revision: int | None = None
    ) -> None:
        await self._log.restore(conversation, entries, expected_revision=expected_revision)

    # Sealing; see `contracts.Sealable`

    async def log_end(self, conversation_id: str) -> LogEnd | None:
        return await self._log.end(conversation_id)

    async def reseal(self, conversation_id: str, entries: Sequence[Entry]) -> int:
        return await self._log.reseal(conversation_id, entries)

    async def exchange_head(self, conversation_id: str, old: str | None, new: str) -> bool:
        return await self._log.exchange_head(conversation_id, old, new)

    # Search

    async def labels_since(self, mark: int) -> LabelChanges:
        """See `contracts.Labelled`."""
        found = await self._connection.run(("labels_since", self._connection.owned() | {"mark": mark}))
        return LabelChanges(found[0][0], [Label(*row) for _, *row in found if row[0] is not None])

    async def matches(self, terms: Sequence[str], *, limit: int) -> Matches:
        """See `contracts.Searchable`. Common terms are read last; see `terms.COMMON`."""
        check_count(limit, field="limit", least=0)
        return await self._index.matches(terms, limit, self._connection.now())

    async def nearest(
        self, model: str, vector: Sequence[float], *, limit: int, around: Sequence[float] | None = None
    ) -> list[VectorMatch] | None:
        """See `contracts.VectorSearchable`. Needs pgvector; see `Database.abilities`."""
        check_count(limit, field="limit", least=0)
        if not self._database.abilities.vectors:
            return None
        nearness = VectorSearch(self._database, self._connection.name, self._connection.key)
        return await nearness.nearest(model, vector, around, self._connection.owned() | {"limit": limit})

    # Documents

    async def _put_document(self, place: Place, data: bytes, expected: int | None) -> Document:
        documents = self._documents(place.conversation_id)
        return await documents.put(place, data, expected=expected, owner_name=self._connection.full_name)

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
        await self._documents(holder).restore(documents, owner_name=self._connection.full_name)

    # Retention

    async def purge_expired(self) -> int:
        total = 0
        while removed := (
            await self._connection.run(("purge_owner", self._connection.owned() | {"limit": PURGE_BATCH}))
        )[0][0]:
            total += removed
        if total:
            self._database.forget_snapshots()
        return total

    async def expired(self, *, by: datetime, limit: int = 100) -> list[Conversation]:
        values = {"by": parse_moment(by, field="by"), "limit": check_count(limit, field="limit", least=0)}
        return [
            rows.conversation(row)
            for row in await self._connection.run(("expired", self._connection.owned() | values))
        ]

    # Branches; see `contracts.Branchable`

    def including_expired(self) -> Self:
        view = copy(self)
        view._connection = frozen_in_time(self._connection)
        view._log = Log(view._connection, self._index)
        return view

    async def family(self, root_id: str) -> list[Conversation]:
        values = self._connection.owned() | {"root": parse_uuid(root_id, field="root_id")}
        return [rows.conversation(row) for row in await self._connection.run(("family", values))]

    async def kept_expired(self) -> list[Conversation]:
        values = self._connection.owned()
        return [rows.conversation(row) for row in await self._connection.run(("kept_expired", values))]

    async def last_sequence(self, conversation_id: str) -> int:
        return last_sequence(conversation_id, await self.log_end(conversation_id))

    async def clear(self) -> Tally:
        owned = self._connection.owned()
        async with self._connection.borrow() as connection, connection.transaction():
            execute = partial(self._connection.execute, connection)
            await execute(("lock_to_delete", owned | {"id": None}))
            ((sessions,),) = await execute(("clear_sessions", owned))
            documents = await execute(("clear_documents", owned))
            ((conversations, messages, index_entries),) = await execute(("clear_conversations", owned))
            ((contacts,),) = await execute(("clear_contacts", owned))
        self._database.forget_snapshots()
        counts = (conversations, messages, index_entries, sessions)
        return _tally(counts, _with_contacts(documents, contacts))

    async def tally(self, conversation_id: str | None = None) -> Tally:
        if conversation_id is None:
            values = self._connection.owned() | {"id": None}
        else:
            values = self._connection.named(conversation_id)
        contacts = 0
        async with self._connection.borrow() as connection:
            execute = partial(self._connection.execute, connection)
            (counts,) = await execute(("tally_conversations", values))
            documents = await execute(("tally_documents", values))
            if conversation_id is None:
                ((contacts,),) = await execute(("tally_contacts", values))
        return _tally(counts, _with_contacts(documents, contacts))

    # Watching

    def watch(self, conversation_id: str | None = None) -> AbstractAsyncContextManager[AsyncIterator[Change]]:
        """Watch changes by any process. See `contracts.Watchable`."""
        wanted = None if conversation_id is None else parse_uuid(conversation_id, field="conversation_id")

        async def revisions(ids: Collection[str] | None) -> dict[str, int]:
            wanted_ids = None if ids is None else list(ids)
            values = self._connection.owned() | {"ids": wanted_ids}
            found = await self._connection.run(("revisions", values))
            return {row[0]: row[1] for row in found}

        return self._database.listener.watch(self._connection.key, wanted, revisions)

    def _documents(self, conversation_id: str | None) -> Documents:
        """Return the documents of a conversation or of the owner."""
        return Documents(self._connection.run, self._connection.owned(), conversation_id)


def _still_active(record: Conversation, active_since: datetime | None) -> bool:
    return active_since is None or record.last_activity >= active_since


def _deleted(row: rows.Row) -> Tally:
    """Parse the counts of `delete_conversation`."""
    *counts, kinds, numbers = row
    return _tally(counts, dict(zip(kinds, numbers, strict=True)))


def _tally(counts: Sequence[int], documents: dict[str, int]) -> Tally:
    conversations, messages, index_entries, sessions = counts
    return Tally(
        conversations=conversations,
        messages=messages,
        sessions=sessions,
        index_entries=index_entries,
        documents=documents,
    )


def _with_contacts(documents: list[rows.Row], contacts: int) -> dict[str, int]:
    """Add the contacts to the document counts: most contacts are rows of another table."""
    return dict(Counter(dict(documents)) + Counter({CONTACTS: contacts}))
