"""One owner's store with branches: reads compose the parts of a log, removals move what branches need."""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import datetime
from functools import partial
from heapq import merge
from operator import attrgetter
from typing import Any, Self, TypeVar

from msgspec.structs import replace

from aforesaid.contracts import (
    Appended,
    Branchable,
    ConversationStore,
    Entry,
    Listing,
    LogSnapshot,
    Position,
    SnapshotReader,
    Tally,
    capability,
    check_position,
    check_same_content,
)
from aforesaid.contracts.names import ACCEPTS_NAMES
from aforesaid.errors import ConversationNotFound, RevisionConflict
from aforesaid.layers.base import StoreWrapper
from aforesaid.layers.branched.families import Families
from aforesaid.layers.branched.links import remove_links
from aforesaid.layers.branched.moves import moving
from aforesaid.layers.branched.parts import AncestorMoved, Prefix, PrefixCache
from aforesaid.model.clock import to_micros
from aforesaid.model.conversations import Changes, Conversation, Page, Query, check_count, check_revision
from aforesaid.model.ids import is_uuid
from aforesaid.model.lineages import Lineage, may_be_branch, shared_messages
from aforesaid.model.messages import Message
from aforesaid.stores.blobs import BlobStore

T = TypeVar("T")
_position = attrgetter("position")
# Reads of a branch that cross with moves of its parts are repeated this often.
ATTEMPTS = 5
# How often a removal is repeated that crosses with forks and writes.
REMOVALS = 20


def branched(
    store: ConversationStore, cache: PrefixCache | None = None, blobs: BlobStore | None = None
) -> ConversationStore:
    """Wrap a store in the branched layer; a store that keeps no branches is returned as it is.

    `blobs` are the owner's images, which move with the messages that refer to them.
    """
    if isinstance(store, BranchedStore) or capability(store, Branchable) is None:
        return store
    return BranchedStore(store, cache or PrefixCache(), blobs)


def stored_itself(store: ConversationStore) -> ConversationStore:
    """Return the store in which each conversation has only the messages that it stores itself."""
    return store.inner if isinstance(store, BranchedStore) else store


async def family_of(store: ConversationStore, conversation_id: str) -> list[str]:
    """Return the conversations that share messages with this one, itself included: branches before what they
    continue."""
    if not isinstance(store, BranchedStore):
        return [conversation_id]
    return await store.families.members(conversation_id)


async def settle(store: ConversationStore, blobs: BlobStore | None = None) -> int:
    """Move what living branches show of expired conversations to them; return how many these were.

    Without `blobs`, a conversation with images stays as it is.
    """
    whole = branched(store, blobs=blobs)
    return await whole.families.settle() if isinstance(whole, BranchedStore) else 0


class BranchedStore(StoreWrapper):
    """A store in which a branch reads like a conversation with all of its messages."""

    def __init__(self, inner: ConversationStore, cache: PrefixCache, blobs: BlobStore | None = None) -> None:
        super().__init__(inner)
        self._cache = cache
        self._blobs = blobs
        self._view: ConversationStore | None = None

    def with_inner(self, inner: Any) -> Self:
        view = super().with_inner(inner)
        view._view = None
        return view

    @property
    def families(self) -> Families:
        """The branches of each root, and their moves."""
        return Families(self.inner, self._ancestors, self._blobs)

    @property
    def _ancestors(self) -> ConversationStore:
        """The store in which nothing has expired: a branch may outlive what it continues."""
        if self._view is None:
            self._view = self.inner_capability(Branchable).including_expired()
        return self._view

    # Records: `message_count` includes the messages of ancestors

    async def create(self, conversation: Conversation) -> Conversation:
        await self._make_room(conversation.id)
        return _shown(await self.inner.create(conversation))

    def get(self, conversation_id: str) -> Coroutine[Any, Any, Conversation | None]:
        # Not a coroutine of its own, as `append`.
        return (
            self._get(conversation_id) if may_be_branch(conversation_id) else self.inner.get(conversation_id)
        )

    setattr(get, ACCEPTS_NAMES, True)

    async def _get(self, conversation_id: str) -> Conversation | None:
        record = await self.inner.get(conversation_id)
        return None if record is None else _shown(record)

    async def update(
        self, conversation_id: str, changes: Changes, *, expected_revision: int | None = None
    ) -> Conversation:
        return _shown(await self.inner.update(conversation_id, changes, expected_revision=expected_revision))

    async def find(self, query: Query) -> Page:
        page = await self.inner.find(query)
        if not any(record.lineage for record in page.conversations):
            return page
        return replace(page, conversations=tuple(map(_shown, page.conversations)))

    async def delete(self, conversation_id: str, *, expected_revision: int | None = None) -> Tally:
        gone = await self._released(
            conversation_id,
            expected_revision,
            lambda revision: self.inner.delete(conversation_id, expected_revision=revision),
        )
        await remove_links(self.inner, conversation_id)
        await self._cache.remove_copies(self.owner, conversation_id)
        return gone

    async def _released(
        self, conversation_id: str, expected: int | None, remove: Callable[[int | None], Awaitable[T]]
    ) -> T:
        """Move what branches need of a conversation, and remove it at the expected revision, or else at the
        one that it had before.

        A fork changes the revision after it has stored the branch, so no branch is missed.
        """
        for _ in range(REMOVALS):
            record = await self._ancestors.get(conversation_id) if expected is None else None
            await self.families.release(conversation_id, expected_revision=expected)
            try:
                return await remove(expected if record is None else record.revision)
            except RevisionConflict:
                if expected is not None:
                    raise
        await self.families.release(conversation_id)
        return await remove(None)  # it is written to all the time

    async def resume(
        self, session_id: str, fresh: Conversation, *, active_since: datetime | None = None
    ) -> Conversation:
        await self._make_room(fresh.id)
        return _shown(await self.inner.resume(session_id, fresh, active_since=active_since))

    async def session(self, session_id: str) -> Conversation | None:
        record = await self.inner.session(session_id)
        return None if record is None else _shown(record)

    async def family(self, root_id: str) -> list[Conversation]:
        return list(map(_shown, await super().family(root_id)))

    async def purge_expired(self) -> int:
        return await self.families.settle() + await self.inner.purge_expired()

    # Writing

    def append(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Coroutine[Any, Any, Appended]:
        # Not a coroutine of its own: every turn of every conversation passes here.
        if not may_be_branch(conversation_id):
            return self.inner.append(conversation_id, messages, expected_revision=expected_revision)
        return self._append(conversation_id, messages, expected_revision)

    setattr(append, ACCEPTS_NAMES, True)  # `inner` translates names; a second check would cost a microsecond

    async def _append(
        self, conversation_id: str, messages: Sequence[Message], expected_revision: int | None
    ) -> Appended:
        known = await self._known(conversation_id, messages)
        new = [message for message in messages if message.message_id not in known]
        if known and not new:
            record = await self._require(conversation_id)
            return Appended(conversation=_shown(record), new=(), known=tuple(known.values()))
        done = await self.inner.append(conversation_id, new, expected_revision=expected_revision)
        return Appended(
            conversation=lambda: _shown(done.conversation),
            new=lambda: done.new,
            known=(*known.values(), *done.known),
        )

    async def _known(self, conversation_id: str, messages: Sequence[Message]) -> dict[str | None, Entry]:
        """Return the messages of ancestors with these ids. Raise `MessageConflict` for other content."""
        if not any(message.message_id for message in messages):
            return {}
        record = await self.inner.get(conversation_id)
        if record is None or not record.lineage:
            return {}
        known: dict[str | None, Entry] = {}
        for message in messages:
            if message.message_id is None or _is_younger(message.message_id, record):
                continue
            found = await self._entry_in_prefix(conversation_id, message.message_id)
            if found is not None:
                check_same_content(found, message)
                known[message.message_id] = found
        return known

    async def rewrite(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        return await self._released(
            conversation_id,
            expected_revision,
            lambda revision: self._rewrite(conversation_id, messages, revision),
        )

    async def _rewrite(
        self, conversation_id: str, messages: Sequence[Message], expected_revision: int | None
    ) -> Appended:
        if not may_be_branch(conversation_id):
            return await self.inner.rewrite(conversation_id, messages, expected_revision=expected_revision)
        # A branch made between both steps would belong to a family that is no longer found from here.
        async with moving(self.inner):
            record = await self._require(conversation_id)
            check_revision(record.id, record.revision, expected_revision)
            if record.lineage:
                # The new log has no earlier part. The revision stays, so that the caller's still holds.
                bare = record.with_(lineage=())
                await self.inner.restore(bare, [], expected_revision=record.revision)
            return await self.inner.rewrite(conversation_id, messages, expected_revision=expected_revision)

    async def replace(
        self, conversation_id: str, message: Message, *, expected_revision: int | None = None
    ) -> Entry:
        holder = await self.holder_of(conversation_id, message.message_id)
        if holder == conversation_id:
            entry = await self.inner.replace(conversation_id, message, expected_revision=expected_revision)
        else:
            record = await self._require(conversation_id)
            check_revision(conversation_id, record.revision, expected_revision)
            entry = await self._replace_in(holder, message)
        await self.families.refresh(entry)
        return entry

    async def _replace_in(self, holder: str, message: Message) -> Entry:
        try:
            return await self.inner.replace(holder, message)
        except ConversationNotFound:
            # It has expired, so only branches show the message. Move it to them, and replace it there.
            moved_to = await self.families.release(holder)
            await self.inner.delete(holder)
            for heir in moved_to:
                if await self.inner.entry(heir, str(message.message_id)) is not None:
                    return await self.inner.replace(heir, message)
            raise

    async def holder_of(self, conversation_id: str, message_id: str | None) -> str:
        """Return the conversation that stores a message of this one: itself or one that it continues."""
        if message_id is None or not may_be_branch(conversation_id):
            return conversation_id
        if await self.inner.entry(conversation_id, message_id) is not None:
            return conversation_id
        found = await self._in_prefix(conversation_id, lambda prefix: prefix.entry(message_id), None)
        return conversation_id if found is None else found[0].conversation_id

    async def restore(
        self, conversation: Conversation, entries: Sequence[Entry], *, expected_revision: int | None = None
    ) -> None:
        if expected_revision is None:
            await self._make_room(conversation.id)
        await self.inner.restore(conversation, entries, expected_revision=expected_revision)

    async def _make_room(self, conversation_id: str) -> None:
        """Move what living branches need of an expired conversation whose id is used again."""
        if not _is_new(conversation_id, self.now()):
            old = await self._ancestors.get(conversation_id)
            if old is not None and await self.inner.get(conversation_id) is None:
                await self.families.release(conversation_id)

    # Reading

    async def tail(self, conversation_id: str, *, limit: int, before: Position | None = None) -> list[Entry]:
        own = partial(self.inner.tail, conversation_id, limit=limit, before=before)
        if not may_be_branch(conversation_id):
            return await own()
        return await self._tail(conversation_id, own, limit, before, recent=False)

    async def recent(
        self, conversation_id: str, *, limit: int, before: Position | None = None
    ) -> list[Entry]:
        own = partial(self.inner.recent, conversation_id, limit=limit, before=before)
        if not may_be_branch(conversation_id):
            return await own()
        return await self._tail(conversation_id, own, limit, before, recent=True)

    async def _tail(
        self,
        conversation_id: str,
        own: Callable[[], Awaitable[list[Entry]]],
        limit: int,
        before: Position | None,
        *,
        recent: bool,
    ) -> list[Entry]:
        check_position(before)

        async def read(prefix: Prefix) -> list[Entry]:
            entries = await own()
            return await _joined(prefix, entries, limit, before)

        found = await self._in_prefix(conversation_id, read, None, recent=recent)
        return await own() if found is None else found

    async def page(self, conversation_id: str, *, limit: int, offset: int = 0) -> list[Entry]:
        if not may_be_branch(conversation_id):
            return await self.inner.page(conversation_id, limit=limit, offset=offset)
        check_count(limit, field="limit", least=0)
        check_count(offset, field="offset", least=0)
        found = await self._in_prefix(
            conversation_id, lambda prefix: self._page(conversation_id, prefix, limit, offset), None
        )
        if found is not None:
            return found
        return await self.inner.page(conversation_id, limit=limit, offset=offset)

    async def _page(self, conversation_id: str, prefix: Prefix, limit: int, offset: int) -> list[Entry]:
        first = await self.inner.page(conversation_id, limit=1)
        shared = prefix.messages
        if first and first[0].position <= prefix.end:
            # Own messages with earlier times stand between those of the ancestors.
            own = await self.inner.page(conversation_id, limit=offset + limit)
            return list(merge(await prefix.whole(), own, key=_position))[offset : offset + limit]
        found = await prefix.page(limit, offset) if offset < shared else []
        if len(found) < limit:
            start = max(0, offset - shared)
            found += await self.inner.page(conversation_id, limit=limit - len(found), offset=start)
        return found

    async def entry(self, conversation_id: str, message_id: str) -> Entry | None:
        found = await self.inner.entry(conversation_id, message_id)
        if found is not None or not may_be_branch(conversation_id):
            return found
        return await self._entry_in_prefix(conversation_id, message_id)

    async def _entry_in_prefix(self, conversation_id: str, message_id: str) -> Entry | None:
        found = await self._in_prefix(conversation_id, lambda prefix: prefix.entry(message_id), None)
        return None if found is None else replace(found[1], conversation_id=conversation_id)

    def read_snapshot(
        self, conversation_id: str, *, front: int, tail: int, documents: Listing
    ) -> Coroutine[Any, Any, LogSnapshot]:
        # Not a coroutine of its own, like `append`: every window passes here.
        reader = self.inner_capability(SnapshotReader)
        if not may_be_branch(conversation_id):
            return reader.read_snapshot(conversation_id, front=front, tail=tail, documents=documents)
        return self._read_branch(reader, conversation_id, front, tail, documents)

    setattr(read_snapshot, ACCEPTS_NAMES, True)

    async def _read_branch(
        self, reader: SnapshotReader, conversation_id: str, front: int, tail: int, documents: Listing
    ) -> LogSnapshot:
        for _ in range(ATTEMPTS):
            snapshot = await reader.read_snapshot(
                conversation_id, front=front, tail=tail, documents=documents
            )
            if not snapshot.lineage:
                return snapshot
            known: LogSnapshot | None = snapshot.cached(_COMPOSED)
            if known is not None:
                return known
            try:
                composed = await self._composed(conversation_id, snapshot, front, tail)
            except AncestorMoved:
                continue
            snapshot.cache(_COMPOSED, composed)
            return composed
        return snapshot

    async def _composed(
        self, conversation_id: str, snapshot: LogSnapshot, front: int, tail: int
    ) -> LogSnapshot:
        prefix = self._prefix(conversation_id, snapshot.lineage)
        entries = await _joined(prefix, list(snapshot.tail), tail, None)
        is_whole = len(entries) < tail or not front
        first = entries[:front] if is_whole else await prefix.page(front, 0)
        return LogSnapshot(
            message_count=snapshot.message_count + prefix.messages,
            front=first,
            tail=entries,
            documents=snapshot.documents,
            record=None if snapshot.record is None else _shown(snapshot.record),
        )

    async def _in_prefix(
        self,
        conversation_id: str,
        read: Callable[[Prefix], Awaitable[T]],
        default: T,
        *,
        recent: bool = False,
    ) -> T:
        """Return what `read` finds with the prefix of a branch; the default for other conversations."""
        for _ in range(ATTEMPTS):
            record = await self.inner.get(conversation_id)
            if record is None or not record.lineage:
                return default
            try:
                return await read(self._prefix(conversation_id, record.lineage, recent=recent))
            except AncestorMoved:
                continue  # a part has moved since the record was read
        return default

    def _prefix(self, conversation_id: str, lineage: Lineage, *, recent: bool = False) -> Prefix:
        return Prefix(self._ancestors, conversation_id, lineage, self._cache, recent=recent)

    async def _require(self, conversation_id: str) -> Conversation:
        record = await self.inner.get(conversation_id)
        if record is None:
            raise ConversationNotFound(conversation_id)
        return record


_COMPOSED = "composed"


async def _joined(prefix: Prefix, own: list[Entry], limit: int, before: Position | None) -> list[Entry]:
    """Return the last messages of the prefix and of the branch's own part."""
    if own and own[0].position <= prefix.end:
        return list(merge(await prefix.tail(limit, before), own, key=_position))[-limit:] if limit else []
    if len(own) >= limit:
        return own
    return await prefix.tail(limit - len(own), before) + own


def _shown(record: Conversation) -> Conversation:
    """Return the record as callers see it: its length includes the messages of ancestors."""
    if not record.lineage:
        return record
    return record.with_(message_count=record.message_count + shared_messages(record.lineage))


def _is_younger(message_id: str, record: Conversation) -> bool:
    """Return whether the id was generated after the branch was made, so that no ancestor has it."""
    stem = message_id.partition("/")[0]
    if not is_uuid(stem) or stem[14] != "7":
        return False
    return int(stem[:8] + stem[9:13], 16) * 1000 > to_micros(record.created_at)


def _is_new(conversation_id: str, now: datetime) -> bool:
    """Return whether the id was generated within the last hour, so that no conversation had it before."""
    if conversation_id[14] not in "78":
        return False
    return abs(int(conversation_id[:8] + conversation_id[9:13], 16) * 1000 - to_micros(now)) < 3_600_000_000
