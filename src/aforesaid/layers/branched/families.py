"""Families of branches: move the parts that living branches need, and refresh branches after a replacement.

Every step stores the record and the messages of one branch in one transaction, at the revision that was read.
The conversation that gives a part away is removed afterwards. So an interrupted move leaves every branch
complete, and the next removal continues it.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence

from msgspec.structs import replace

from aforesaid.contracts import Branchable, ConversationStore, Entry, Position, capability, is_derived
from aforesaid.dialects import references_in
from aforesaid.errors import ConversationNotFound, RevisionConflict, StoreUnavailable
from aforesaid.layers.branched.moves import moving, nothing_moves
from aforesaid.model.conversations import Conversation, check_revision, is_expired
from aforesaid.model.lineages import Ancestor, Lineage, may_be_branch, no_messages_of, root_of
from aforesaid.stores.blobs import BlobStore, copy_blobs

# How often a write to a branch is repeated that crosses with others.
ATTEMPTS = 20
# Messages of one read.
CHUNK = 500


class Families:
    """The branches of one owner, by root."""

    def __init__(
        self, store: ConversationStore, ancestors: ConversationStore, blobs: BlobStore | None = None
    ) -> None:
        self._store = store
        self._ancestors = ancestors
        self._blobs = blobs
        branches = capability(store, Branchable)
        assert branches is not None, "the layer wraps only stores with branches"
        self._branches = branches

    async def descendants(self, record: Conversation) -> list[Conversation]:
        """Return the living branches that show messages of this conversation, the oldest first."""
        return self._living(record, await self._family(record))

    async def _family(self, record: Conversation) -> list[Conversation]:
        return await self._branches.family(root_of(record.id, record.lineage))

    def _living(self, record: Conversation, family: Sequence[Conversation]) -> list[Conversation]:
        now = self._store.now()
        found = [one for one in family if part_of(record.id, one.lineage) and not is_expired(one, now=now)]
        return sorted(found, key=lambda one: (one.created_at, len(one.lineage), one.id))

    async def members(self, conversation_id: str) -> list[str]:
        """Return all conversations of the family, expired or not: branches before what they continue."""
        record = await self._ancestors.get(conversation_id)
        if record is None:
            return [conversation_id]
        family = sorted(await self._family(record), key=lambda one: len(one.lineage), reverse=True)
        return [*(one.id for one in family), root_of(record.id, record.lineage)]

    async def release(self, conversation_id: str, *, expected_revision: int | None = None) -> list[str]:
        """Move the parts of this conversation that living branches need to them; return the new holders.

        The oldest branch takes its part. A younger one continues the branches that have taken messages of its
        part, and takes only what they lack.
        """
        if may_be_branch(conversation_id):
            # A move into it that has begun will list it as what others continue.
            await nothing_moves(self._store)
        record = await self._ancestors.get(conversation_id)
        if record is None or not await self.descendants(record):
            return []
        async with moving(self._store):
            return await self._release(conversation_id, expected_revision)

    async def _release(self, conversation_id: str, expected_revision: int | None) -> list[str]:
        record = await self._ancestors.get(conversation_id)
        if record is None:
            return []
        family = await self._family(record)
        needing = self._living(record, family)
        now = self._store.now()
        over = [one.id for one in family if is_expired(one, now=now) and one.id != record.id]
        hidden = [one for one in over if any(part_of(one, living.lineage) for living in needing)]
        for one in hidden:
            # An expired branch between both would still name this conversation. Its lifetime is over anyway.
            await self._release(one, None)
            await self._store.delete(one)
        if hidden:
            needing = await self.descendants(record)
        check_revision(record.id, record.revision, expected_revision)
        # The new holder of each message, by sequence; and up to which sequence a holder had the conversation.
        holders: dict[int, str] = {}
        limits: dict[str, int] = {}
        for branch in needing:
            move = _Move(self, record.id, needing[0].id, holders, limits)
            if await self._rewritten(branch, move.plan):
                move.settle(branch.id)
        return list(dict.fromkeys(holders.values()))

    async def settle(self) -> int:
        """Move what living branches show of expired conversations to them, and remove these conversations.

        Return how many were removed. Everything that reads all conversations then finds what branches show.
        """
        seen: set[str] = set()
        gone = 0
        while over := [one for one in await self._branches.kept_expired() if one.id not in seen]:
            for record in over:
                seen.add(record.id)
                if self._blobs is None and await self._has_images(record):
                    continue  # only a memory that has the images can move them
                await self.release(record.id)
                await self._store.delete(record.id)
                gone += 1
        return gone

    async def _has_images(self, record: Conversation) -> bool:
        for offset in range(0, record.message_count, CHUNK):
            page = await self._ancestors.page(record.id, limit=CHUNK, offset=offset)
            if any(references_in(entry.message) for entry in page):
                return True
        return False

    async def entries(self, part: Ancestor) -> list[Entry]:
        """Return the messages of a part, in reading order."""
        if not part.messages:
            return []
        before = Position(part.micros, part.place + 1)
        found: list[Entry] = []
        while older := await self._ancestors.tail(part.conversation_id, limit=CHUNK, before=before):
            found = [one for one in older if one.sequence <= part.sequence] + found
            before = older[0].position
        return found

    async def refresh(self, replaced: Entry) -> None:
        """Remove what living branches derived from a message that was replaced, and announce the change."""
        record = await self._ancestors.get(replaced.conversation_id)
        if record is None:
            return
        for branch in await self.descendants(record):
            part = part_of(record.id, branch.lineage)
            if part is None or not part.contains(*replaced.position):
                continue
            await self._remove_derived(branch.id)
            await self._rewritten(branch, _with_newer_part(record.id))

    async def _remove_derived(self, conversation_id: str) -> None:
        try:
            for kind in await self._store.document_kinds(conversation_id=conversation_id):
                if not is_derived(kind):
                    continue
                while found := await self._store.documents(kind, conversation_id=conversation_id):
                    for one in found:
                        await self._store.delete_document(kind, one.key, conversation_id=conversation_id)
        except ConversationNotFound:
            return  # removed meanwhile

    async def _rewritten(
        self,
        branch: Conversation,
        change: Callable[[Conversation], Awaitable[tuple[Lineage, Sequence[Entry]]]],
    ) -> bool:
        """Store another lineage of a branch, and messages that it takes, at the revision that was read.

        Return False for one that was removed meanwhile.
        """
        record: Conversation | None = branch
        for _ in range(ATTEMPTS):
            if record is None:
                return False
            lineage, taken = await change(record)
            revision = record.revision + 1
            await self._copy_images(taken, record.id)
            # Of the taken messages only id, time and words stay as they were; they are written now.
            entries = [replace(one, conversation_id=record.id, revision=revision) for one in taken]
            moved = record.with_(
                lineage=lineage, message_count=record.message_count + len(entries), revision=revision
            )
            try:
                await self._store.restore(moved, entries, expected_revision=record.revision)
            except RevisionConflict:
                record = await self._store.get(branch.id)
            else:
                return True
        raise StoreUnavailable(f"conversation {branch.id} changes too fast to be written to")

    async def _copy_images(self, entries: Sequence[Entry], target: str) -> None:
        if self._blobs is None:
            return
        for entry in entries:
            digests = references_in(entry.message)
            await copy_blobs(self._blobs, digests, source=entry.conversation_id, target=target)


def part_of(conversation_id: str, lineage: Iterable[Ancestor]) -> Ancestor | None:
    """Return the part that this conversation stores; None if it is not in the lineage."""
    return next((one for one in lineage if one.conversation_id == conversation_id), None)


class _Move:
    """The move of one branch's part of a conversation that is removed."""

    def __init__(
        self,
        families: Families,
        conversation_id: str,
        heir: str,
        holders: dict[int, str],
        limits: dict[str, int],
    ) -> None:
        self._families = families
        self._conversation_id = conversation_id
        self._heir = heir
        self._holders = holders
        self._limits = limits
        self._taken: list[Entry] = []
        self._limit = 0

    async def plan(self, branch: Conversation) -> tuple[Lineage, Sequence[Entry]]:
        """Return the lineage of the branch without the conversation, and the messages that it takes.

        It takes those that no other branch has taken, and continues the branches that have the others.
        """
        self._taken = []  # the plan is made again after a conflict
        part = part_of(self._conversation_id, branch.lineage)
        if part is None:
            return branch.lineage, ()
        by_holder: dict[str | None, list[Entry]] = defaultdict(list)
        holders = self._holders | await self._moved_already(branch, part)
        for entry in await self._families.entries(part):
            by_holder[holders.get(entry.sequence)].append(entry)
        self._taken, self._limit = by_holder.pop(None, []), part.sequence
        named = {one.conversation_id for one in branch.lineage}
        kept = [
            replace(one, messages=one.messages + len(by_holder[one.conversation_id]), version=one.version + 1)
            if one.conversation_id in by_holder
            else one
            for one in branch.lineage
            if one is not part
        ]
        pieces = [
            _piece(holder, entries, min(part.sequence, self._limits[holder]))
            for holder, entries in by_holder.items()
            if holder is not None and holder not in named
        ]
        if part is not branch.lineage[-1]:
            return (*pieces, *kept), self._taken
        return self._with_new_root(branch, [*kept, *pieces], part.sequence), self._taken

    async def _moved_already(self, branch: Conversation, part: Ancestor) -> dict[int, str]:
        """Return which messages of the part another conversation of the lineage has, by sequence.

        A move that was interrupted, or that has not seen this branch, has brought them there.
        """
        found: dict[int, str] = {}
        for other in branch.lineage:
            if other is not part:
                held = await self._families.entries(other)
                found |= {
                    one.sequence: other.conversation_id for one in held if one.sequence <= part.sequence
                }
        return found

    def _with_new_root(self, branch: Conversation, parts: Sequence[Ancestor], sequence: int) -> Lineage:
        """Return the parts with the oldest branch at their end: the whole family is found by its root."""
        if branch.id == self._heir:
            return tuple(parts)
        others = [one for one in parts if one.conversation_id != self._heir]
        root = part_of(self._heir, parts) or no_messages_of(self._heir, sequence)
        return (*others, root)

    def settle(self, branch_id: str) -> None:
        """Record what the branch has taken, for the next ones."""
        self._holders.update({entry.sequence: branch_id for entry in self._taken})
        self._limits[branch_id] = self._limit


def _piece(holder: str, entries: Sequence[Entry], sequence: int) -> Ancestor:
    last = entries[-1].position
    return Ancestor(
        conversation_id=holder,
        micros=last.micros,
        place=last.sequence,
        sequence=sequence,
        messages=len(entries),
    )


def _with_newer_part(
    conversation_id: str,
) -> Callable[[Conversation], Awaitable[tuple[Lineage, Sequence[Entry]]]]:
    async def change(record: Conversation) -> tuple[Lineage, Sequence[Entry]]:
        lineage = tuple(
            replace(one, version=one.version + 1) if one.conversation_id == conversation_id else one
            for one in record.lineage
        )
        return lineage, ()

    return change
