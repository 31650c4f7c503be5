"""One owner's store. `Records`, `Log`, `Sessions` and `ConversationIndex` are its parts.

A turn goes from `append` here to `Log.extend`, which encodes it (`turns.Draft`) and runs `lua/append.lua`.
The scripts implement the rules of `model.conversations`.
"""

import re
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from functools import partial

from msgspec.structs import replace

from aforesaid.contracts import (
    Appended,
    Change,
    Document,
    Entry,
    Listing,
    LogEnd,
    LogSnapshot,
    Place,
    Position,
    RecordChanges,
    Tally,
)
from aforesaid.model.clock import parse_moment
from aforesaid.model.conversations import Changes, Conversation, Page, Query, check_count, end_of, is_expired
from aforesaid.model.ids import parse_name, parse_uuid
from aforesaid.model.lineages import root_of
from aforesaid.model.messages import Message
from aforesaid.stores._arguments import DocumentChecks, frozen_in_time, last_sequence
from aforesaid.stores.redis.conversation_index import ConversationIndex
from aforesaid.stores.redis.log import Log
from aforesaid.stores.redis.owner_connection import OwnerConnection
from aforesaid.stores.redis.records import Documents, Records, Sessions, by_kind
from aforesaid.stores.redis.snapshots import SnapshotMemory, read_snapshot

# Watch changes: every script that changes a conversation publishes on its owner's channel.
#
# A notification is only a hint, because every client with access to the server can publish. It contains the
# id and the revision, but no content. After a hint, the watcher reads the record and reports its actual
# revision, so a forged or repeated hint costs one read and reports nothing false.


@asynccontextmanager
async def watch(
    connection: OwnerConnection, conversation_id: str | None
) -> AsyncIterator[AsyncIterator[Change]]:
    """Yield the changes of one conversation, or of all. Raise when the connection breaks or the server stops
    answering, because changes may be missed then.
    """
    async with connection.connections.listening(connection.keys.changes) as payloads:
        # Subscribed first, so that no change between the two is missed.
        watcher = _Watcher(connection, conversation_id)
        await watcher.begin()
        yield watcher.changes(payloads)


class _Watcher:
    """Compares the store with what it reported before."""

    def __init__(self, connection: OwnerConnection, conversation_id: str | None) -> None:
        self._connection = connection
        self._conversation_id = conversation_id
        # The last known revision by conversation; None where only its existence is known.
        self._revisions: dict[str, int | None] = {}

    async def begin(self) -> None:
        """Read which conversations exist: only those can be removed."""
        if self._conversation_id is None:
            # The revisions are not read: an owner may have thousands of conversations.
            found = await self._connection.call("ZRANGE", self._connection.keys.index, 0, -1)
            self._revisions = dict.fromkeys(one.decode() for one in found)
        elif (revision := await self._revision(self._conversation_id)) is not None:
            self._revisions = {self._conversation_id: revision}

    async def changes(self, payloads: AsyncIterator[bytes]) -> AsyncIterator[Change]:
        async for payload in payloads:
            hint = _PAYLOAD.fullmatch(payload)
            if hint is None:
                continue
            changed = hint.group(1).decode()
            if self._conversation_id in (None, changed) and await self._has_changed(changed):
                yield Change(conversation_id=changed, revision=self._revisions.get(changed))

    async def _has_changed(self, conversation_id: str) -> bool:
        revision = await self._revision(conversation_id)
        if revision is None:
            existed = conversation_id in self._revisions
            self._revisions.pop(conversation_id, None)
            return existed
        was, self._revisions[conversation_id] = self._revisions.get(conversation_id), revision
        return was != revision

    async def _revision(self, conversation_id: str) -> int | None:
        found = await self._connection.unexpired(conversation_id)
        return None if found is None else found.record.revision


# The id and the revision; no revision after a removal.
_PAYLOAD = re.compile(rb"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}):([0-9]{0,18})")


class RedisStore(DocumentChecks):
    """One owner's conversations on the server."""

    def __init__(self, connection: OwnerConnection, snapshots: SnapshotMemory) -> None:
        self._connection = connection
        self._snapshots = snapshots
        self._keys = connection.keys
        self._index = ConversationIndex(connection)
        self._sessions = Sessions(connection)
        self._records = Records(connection, self._index, self._sessions)
        self._log = Log(connection, self._index)

    @property
    def owner(self) -> str:
        return self._connection.owner

    def now(self) -> datetime:
        return self._connection.now()

    # Records

    async def create(self, conversation: Conversation) -> Conversation:
        await self._records.create(conversation)
        return conversation

    async def get(self, conversation_id: str) -> Conversation | None:
        found = await self._connection.unexpired(_parse_id(conversation_id))
        return found.record if found else None

    async def update(
        self, conversation_id: str, changes: Changes, *, expected_revision: int | None = None
    ) -> Conversation:
        return await self._records.update(_parse_id(conversation_id), changes, expected_revision)

    async def find(self, query: Query) -> Page:
        return await self._index.page(query, now=self.now())

    async def delete(self, conversation_id: str, *, expected_revision: int | None = None) -> Tally:
        gone = await self._records.delete(_parse_id(conversation_id), expected_revision=expected_revision)
        self._snapshots.forget()
        return gone

    # Sessions

    async def resume(
        self, session_id: str, fresh: Conversation, *, active_since: datetime | None = None
    ) -> Conversation:
        return await self._sessions.resume(
            parse_name(session_id, field="session_id"),
            fresh,
            active_since=active_since,
            create=lambda conversation, session: self._records.create(conversation, session=session),
            delete=self._records.delete,
        )

    async def session(self, session_id: str) -> Conversation | None:
        bound, _ = await self._sessions.find(parse_name(session_id, field="session_id"))
        return bound

    async def bind(self, session_id: str, conversation_id: str) -> None:
        name = parse_name(session_id, field="session_id")
        await self._sessions.bind(name, _parse_id(conversation_id))

    async def unbind(self, session_id: str) -> None:
        await self._sessions.unbind(parse_name(session_id, field="session_id"))

    async def sessions(self, conversation_id: str) -> list[str]:
        return await self._sessions.bound_to(_parse_id(conversation_id))

    # The log

    async def append(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        return await self._log.extend("append", _parse_id(conversation_id), messages, expected_revision)

    async def rewrite(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        done = await self._log.extend("rewrite", _parse_id(conversation_id), messages, expected_revision)
        self._snapshots.forget()
        return done

    async def tail(self, conversation_id: str, *, limit: int, before: Position | None = None) -> list[Entry]:
        return await self._log.tail(_parse_id(conversation_id), limit, before)

    async def page(self, conversation_id: str, *, limit: int, offset: int = 0) -> list[Entry]:
        return await self._log.page(_parse_id(conversation_id), limit, offset)

    async def read_snapshot(
        self, conversation_id: str, *, front: int, tail: int, documents: Listing
    ) -> LogSnapshot:
        return await read_snapshot(
            self._connection,
            self._snapshots,
            _parse_id(conversation_id),
            front=front,
            tail=tail,
            documents=documents,
        )

    async def entry(self, conversation_id: str, message_id: str) -> Entry | None:
        conversation_id = _parse_id(conversation_id)
        return await self._log.entry(conversation_id, parse_name(message_id, field="message_id"))

    async def replace(
        self, conversation_id: str, message: Message, *, expected_revision: int | None = None
    ) -> Entry:
        replaced = await self._log.replace(_parse_id(conversation_id), message, expected_revision)
        self._snapshots.forget()
        return replaced

    async def restore(
        self, conversation: Conversation, entries: Sequence[Entry], *, expected_revision: int | None = None
    ) -> None:
        await self._records.restore(conversation, entries, expected_revision=expected_revision)

    # Sealing; see `contracts.Sealable`

    async def log_end(self, conversation_id: str) -> LogEnd | None:
        return await self._log.end(_parse_id(conversation_id))

    async def reseal(self, conversation_id: str, entries: Sequence[Entry]) -> int:
        return await self._log.reseal(_parse_id(conversation_id), entries)

    async def exchange_head(self, conversation_id: str, old: str | None, new: str) -> bool:
        return await self._log.exchange_head(_parse_id(conversation_id), old, new)

    # Changes; see `contracts.ChangeTracking`

    async def changes_since(self, mark: str | None) -> RecordChanges:
        """On a cluster a conversation and the owner's changes are in different slots, so nothing is known."""
        if self._connection.clustered:
            return RecordChanges("", None)
        series, _, number = (mark or ":").partition(":")
        found = await self._connection.run_for_owner("read_changes", [self._keys.changed], series, number)
        current = b":".join(found[:2]).decode()
        if mark is None or len(found) == 2:
            return RecordChanges(current, None)
        return RecordChanges(current, [one.decode() for one in found[2] if one not in (b"", b"-")])

    # Documents

    async def _put_document(self, place: Place, data: bytes, expected: int | None) -> Document:
        documents = self._documents(place.conversation_id)
        if place.conversation_id is not None:
            return await documents.put(place, data, expected=expected)
        # Register the owner first, as for a conversation, and again for a new document, because a reader may
        # have removed the registration.
        await self._index.register_owner()
        document = await documents.put(place, data, expected=expected)
        if document.version == 1:
            await self._index.register_owner()
        return document

    async def _get_document(self, place: Place) -> Document | None:
        return await self._documents(place.conversation_id).get(place)

    async def _list_documents(self, listing: Listing) -> list[Document]:
        return await self._documents(listing.conversation_id).page(listing)

    async def _document_kinds(self, holder: str | None) -> list[str]:
        return await self._documents(holder).kinds()

    async def _delete_document(self, place: Place, expected: int | None) -> bool:
        deleted = await self._documents(place.conversation_id).delete(place, expected=expected)
        if deleted and place.conversation_id is None:
            await self._index.unregister_if_empty()
        return deleted

    async def _restore_documents(self, documents: Mapping[Place, Document]) -> None:
        holder = next(iter(documents)).conversation_id
        if holder is None:
            await self._index.register_owner()
        await self._documents(holder).restore(documents)
        if holder is None:
            await self._index.register_owner()

    def _documents(self, conversation_id: str | None) -> Documents:
        """Return the documents of a conversation or of the owner."""
        if conversation_id is None:
            return Documents(self._connection.run_on_documents, self.now())
        return Documents(partial(self._run_document_script, conversation_id), self.now())

    async def _run_document_script(self, conversation_id: str, script: str, *arguments: object) -> object:
        return await self._connection.run(script, conversation_id, *arguments)

    # Retention

    async def purge_expired(self) -> int:
        return await self.purge(self.now())

    async def purge(self, now: datetime) -> int:
        """Remove conversations expired by then; return their number, without those that the server
        expired."""
        removed = 0
        living = await self._living_families(now)
        async for conversation_ids in self._index.every_id():
            for one, found in await self._index.stored(conversation_ids):
                if found is None or _is_purgeable(found.record, now, living):
                    removed += (await self._records.delete(one, expired_by=now)).conversations
        await self._sessions.purge()
        await self._index.unregister_if_empty()
        self._snapshots.forget()
        return removed

    async def expired(self, *, by: datetime, limit: int = 100) -> list[Conversation]:
        moment = parse_moment(by, field="by")
        check_count(limit, field="limit", least=0)
        living = await self._living_families(moment)
        found: dict[str, Conversation] = {}
        async for conversation_ids in self._index.every_id():
            for one, stored in await self._index.stored(conversation_ids):
                if stored is not None and _is_purgeable(stored.record, moment, living):
                    found[one] = stored.record
        return sorted(found.values(), key=end_of)[:limit]

    # Branches; see `contracts.Branchable`

    def including_expired(self) -> "RedisStore":
        return RedisStore(frozen_in_time(self._connection), self._snapshots)

    async def family(self, root_id: str) -> list[Conversation]:
        return await self._records.family(parse_uuid(root_id, field="root_id"))

    async def kept_expired(self) -> list[Conversation]:
        # The branches of a root are listed together, so this reads families, not all conversations.
        now, view = self.now(), self.including_expired()
        found: list[Conversation] = []
        for root_id in await self._living_families(now):
            family = await self._records.family(root_id)
            root = await view.get(root_id)
            found += [one for one in (root, *family) if one is not None and is_expired(one, now=now)]
        return found

    async def last_sequence(self, conversation_id: str) -> int:
        return last_sequence(conversation_id, await self.log_end(conversation_id))

    async def _living_families(self, now: datetime) -> set[str]:
        """Return the roots of the branches that are alive at this time."""
        roots = set(await self._connection.call("HVALS", self._keys.branches))
        return {
            root.decode()
            for root in roots
            if not all(is_expired(one, now=now) for one in await self._records.family(root.decode()))
        }

    async def clear(self) -> Tally:
        removed = Tally(documents=await self._count_documents("remove"))
        async for conversation_ids in self._index.every_id():
            for one in conversation_ids:  # damaged records too
                removed += await self._records.delete(one)
        await self._sessions.clear()
        await self._connection.call("UNLINK", self._keys.branches, self._keys.changed)
        await self._index.unregister_if_empty()
        self._snapshots.forget()
        return removed

    async def tally(self, conversation_id: str | None = None) -> Tally:
        if conversation_id is not None:
            return await self._records.tally(_parse_id(conversation_id))
        found: dict[str, Tally] = {}
        async for conversation_ids in self._index.every_id():
            found |= {one: replace(await self._records.tally(one), sessions=0) for one in conversation_ids}
        own = Tally(sessions=await self._sessions.count(), documents=await self._count_documents())
        return sum(found.values(), own)

    async def _count_documents(self, how: str = "") -> dict[str, int]:
        keys = [self._keys.documents]
        return by_kind(await self._connection.run_for_owner("count_documents", keys, how))

    async def holds_anything(self, *, ignored_kinds: Collection[str] = ()) -> bool:
        """Return whether this owner has a conversation, expired or not, or a document of a kind outside
        `ignored_kinds`."""
        if any(kind not in ignored_kinds for kind in await self._document_kinds(None)):
            return True
        return await self._index.has_conversations()

    # Watching

    def watch(self, conversation_id: str | None = None) -> AbstractAsyncContextManager[AsyncIterator[Change]]:
        """Watch the owner's conversations. Expiry by the server is not reported."""
        return watch(self._connection, None if conversation_id is None else _parse_id(conversation_id))


def _is_purgeable(record: Conversation, now: datetime, living: Collection[str]) -> bool:
    return is_expired(record, now=now) and root_of(record.id, record.lineage) not in living


def _parse_id(conversation_id: str) -> str:
    return parse_uuid(conversation_id, field="conversation_id")
