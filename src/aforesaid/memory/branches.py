"""An owner's branches: fork, list, compare, merge; and links between related conversations."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Protocol, get_args

from aforesaid.contracts import ConversationStore, Entry, unreadable_reason
from aforesaid.dialects import references_in
from aforesaid.dialects.tombstones import TAG as REDACTED
from aforesaid.errors import (
    ConversationExists,
    ConversationNotFound,
    InvalidInput,
    MergeConflict,
    MessageConflict,
    StoreUnavailable,
    shown,
)
from aforesaid.model.branches import COMPARED, FROM, MERGED, Branch, Comparison, How, Merged
from aforesaid.model.conversations import Changes, Conversation, check_revision, is_expired
from aforesaid.model.ids import conversation_key, parse_name
from aforesaid.model.lineages import branch_id_for, root_of, shared_messages
from aforesaid.model.messages import Message
from aforesaid.stores.blobs import BlobStore, copy_blobs
from aforesaid.telemetry import events

if TYPE_CHECKING:
    from aforesaid.summaries.service import Summaries

# How often a fork is repeated that crosses with removals.
FORKS = 5
# The most tokens of a summary that a merge makes.
SUMMARY_TOKENS = 500


class BranchesProtocol(Protocol):
    """Branches of an owner's conversations, in this process or behind a server."""

    async def fork(
        self,
        conversation_id: str,
        *,
        at: str | None = None,
        subject: str | None = None,
        request_id: str | None = None,
    ) -> Conversation:
        """Create a branch: a conversation that continues this one by reference."""

    async def branches(self, conversation_id: str) -> list[Branch]:
        """Return the whole tree that the conversation belongs to."""

    async def compare(self, conversation_id: str, other_id: str) -> Comparison:
        """Return what only one of the two conversations contains."""

    async def merge(
        self,
        conversation_id: str,
        branch_id: str,
        *,
        how: How = "append",
        fields: Collection[str] = (),
        summary: str | None = None,
        expected_revision: int | None = None,
    ) -> Merged:
        """Bring what was said in a branch into this conversation, in one turn."""

    async def link(self, conversation_id: str, other_id: str) -> None:
        """Record that two conversations are related."""

    async def unlink(self, conversation_id: str, other_id: str) -> None:
        """Remove a link."""

    async def links(self, conversation_id: str) -> list[Conversation]:
        """Return the records of the conversations that are linked to this one."""


class Branches:
    """One owner's branches."""

    def __init__(
        self, store: ConversationStore, summaries: "Summaries", blobs: BlobStore | None = None
    ) -> None:
        self._store = store
        self._blobs = blobs
        self._summaries = summaries

    async def fork(
        self,
        conversation_id: str,
        *,
        at: str | None = None,
        subject: str | None = None,
        request_id: str | None = None,
    ) -> Conversation:
        """Create a branch: a conversation that continues this one by reference, without copying messages.

        `at` is the id of a message. A branch at an answer or a tool result shares everything up to the end of
        that step. A branch at a question shares everything before it, so that it can be asked differently.
        Without `at` the branch shares all messages. A repeated `request_id` returns the first branch.
        """
        if request_id is not None:
            parse_name(request_id, field="request_id")
            existing = await self._store.get(branch_id_for(conversation_id, request_id))
            if existing is not None:
                return existing
        if at is not None:
            parse_name(at, field="at")
        from aforesaid.layers.branched import moving
        from aforesaid.memory.forks import branches_of

        store, _ = branches_of(self._store)
        for _ in range(FORKS):
            async with moving(store.inner):  # no part of a lineage moves while a branch is made of it
                branch = await self._forked(conversation_id, at, subject, request_id)
            if branch is not None:
                sources = dict.fromkeys([conversation_id, *(one.conversation_id for one in branch.lineage)])
                await self._summaries.inherit(branch.id, sources)
                events.conversation_changed("conversation_branched", "a conversation was branched", branch.id)
                return branch
        raise StoreUnavailable(f"conversation {conversation_id} changes too fast to be branched")

    async def _forked(
        self, conversation_id: str, at: str | None, subject: str | None, request_id: str | None
    ) -> Conversation | None:
        """Create a branch; return None if what it shares was removed meanwhile."""
        from aforesaid.layers.branched import stored_itself
        from aforesaid.memory.forks import branch_record, fork_point, keeps_its_part

        parent, point = await fork_point(self._store, conversation_id, at)
        record = branch_record(parent, point, self._store, subject=subject, request=request_id)
        try:
            branch = await self._store.create(record)
        except ConversationExists:
            # The same request, sent twice at once.
            there = await self._store.get(record.id) if request_id is not None else None
            if there is None:
                raise
            return there
        if await keeps_its_part(self._store, branch):
            return branch
        await stored_itself(self._store).delete(branch.id)
        return None

    async def branches(self, conversation_id: str) -> list[Branch]:
        """Return the whole tree that the conversation belongs to: the root first, then by creation."""
        from aforesaid.memory.forks import branches_of

        store, branches = branches_of(self._store)
        record = await self._require(conversation_id)
        root_id = root_of(record.id, record.lineage)
        now = store.now()
        members = [one for one in await branches.family(root_id) if not is_expired(one, now=now)]
        root = await store.inner.get(root_id)
        if root is not None:
            members.append(root)
        members.sort(key=lambda one: (bool(one.lineage), one.created_at, one.id))
        return [_node(one) for one in members]

    async def compare(self, conversation_id: str, other_id: str) -> Comparison:
        """Return what only one of the two conversations contains. The shared messages are not read."""
        from aforesaid.memory.forks import branches_of
        from aforesaid.memory.merging import difference, related

        here, there = await self._pair(conversation_id, other_id)
        store, _ = branches_of(self._store)
        only_here = await difference(store, here, there)
        only_there = await difference(store, there, here)
        return Comparison(
            ancestor_id=related(here, there),
            shared=here.message_count + shared_messages(here.lineage) - len(only_here),
            only_here=tuple(entry.message for entry in only_here),
            only_there=tuple(entry.message for entry in only_there),
            differences=_differences(here, there),
        )

    async def merge(
        self,
        conversation_id: str,
        branch_id: str,
        *,
        how: How = "append",
        fields: Collection[str] = (),
        summary: str | None = None,
        expected_revision: int | None = None,
    ) -> Merged:
        """Bring what was said in a branch into this conversation, in one turn. The branch stays as it is.

        - `append`: the messages follow at the end, with the present time.
        - `interleave`: the messages keep their times; whole turns stand between whole turns.
        - `summary`: one message with the text in `summary`, or with one made by the memory's summarizer.
        - `adopt`: the messages keep their times, and nothing may have been said here since the fork.

        A message that is here already is not stored again, so a repeated merge brings only what is new. Raise
        `MessageConflict` for an id with other words, and `MergeConflict` where `adopt` is impossible; then
        nothing is stored. `fields` are those of the record to take from the branch.
        """
        from aforesaid.memory.forks import branches_of
        from aforesaid.memory.merging import difference

        if how not in get_args(How):
            raise InvalidInput.not_in("how", how, get_args(How))
        for field in fields:
            if field not in COMPARED:
                raise InvalidInput.not_in("fields", field, COMPARED)
        here, there = await self._pair(conversation_id, branch_id, field="branch_id")
        check_revision(here.id, here.revision, expected_revision)
        store, _ = branches_of(self._store)
        found = await difference(store, there, here)
        new, known, left_out = await self._new(here.id, found)
        if new and how == "adopt" and (ahead := await difference(store, here, there)):
            await self._check_adoptable(here, there, ahead)
        if how == "summary":
            new = await self._not_summarized(here, there, found, new)
        messages = await self._messages(how, here, there, new, summary)
        if messages:
            await self._copy_images(new, here.id)
            await store.append(here.id, messages, expected_revision=here.revision)
        if fields:
            values = {field: getattr(there, field) for field in fields}
            await store.update(here.id, Changes(**values))
        record = await store.get(here.id)
        if record is None:
            raise ConversationNotFound(here.id)
        if messages or fields:  # a repeated merge changes nothing
            from aforesaid.analytics.events import record_merge

            await record_merge(self._store, here.id)
            events.conversation_changed("conversation_merged", "a branch was merged", here.id)
        return Merged(
            conversation=record,
            added=len(messages),
            known=known,
            left_out=left_out,
            differences=_differences(record, there),
        )

    async def _copy_images(self, new: Sequence[Entry], target: str) -> None:
        if self._blobs is None:
            return
        for entry in new:
            digests = references_in(entry.message)
            await copy_blobs(self._blobs, digests, source=entry.conversation_id, target=target)

    async def _new(self, conversation_id: str, found: Sequence[Entry]) -> tuple[list[Entry], int, int]:
        """Return the messages that the conversation lacks, how many it has, and how many have no words."""
        new: list[Entry] = []
        known = left_out = 0
        for entry in found:
            message_id = entry.message.message_id
            if unreadable_reason(entry) is not None or REDACTED in entry.message.tags:
                left_out += 1
                continue
            held = None if message_id is None else await self._store.entry(conversation_id, message_id)
            if held is None:
                new.append(entry)
            elif REDACTED in held.message.tags or held.message.same_content_as(entry.message):
                known += 1
            else:
                raise MessageConflict(conversation_id, str(message_id))
        return new, known, left_out

    async def _check_adoptable(self, here: Conversation, there: Conversation, ahead: Sequence[Entry]) -> None:
        """Raise `MergeConflict` unless the branch has everything that was said here."""
        for entry in ahead:
            held = await self._store.entry(there.id, entry.message.message_id or "-")
            if held is None:
                raise MergeConflict(here.id, there.id, ahead=len(ahead))

    async def _messages(
        self, how: How, here: Conversation, there: Conversation, new: Sequence[Entry], summary: str | None
    ) -> list[Message]:
        if not new:
            return []
        if how == "summary":
            return await self._summary(here, there, new, summary)
        if how == "append":
            messages = [entry.message.with_(timestamp=None) for entry in new]
        elif how == "adopt":
            messages = [entry.message for entry in new]
        else:
            from aforesaid.memory.forks import branches_of
            from aforesaid.memory.merging import difference, placed_between

            store, _ = branches_of(self._store)
            messages = placed_between(new, await difference(store, here, there))
        return [_marked(message, there.id) for message in messages]

    async def _summary(
        self, here: Conversation, there: Conversation, new: Sequence[Entry], given: str | None
    ) -> list[Message]:
        from aforesaid.memory.merging import summary_id

        text = given
        if text is None:
            messages = [entry.message for entry in new]
            text = await self._summaries.summarizer().summarize("", messages, max_tokens=SUMMARY_TOKENS)
        heading = f"Summary of {len(new):,} messages of the branch {shown(there.subject or there.id)}:"
        words = f"{heading}\n{text}"
        message_id = summary_id(there.id, max(entry.sequence for entry in new))
        return [_marked(Message(role="system", content=words, message_id=message_id), there.id)]

    async def _not_summarized(
        self, here: Conversation, there: Conversation, found: Sequence[Entry], new: Sequence[Entry]
    ) -> list[Entry]:
        """Return the new messages that no earlier summary stands for. One stands for all up to a sequence."""
        from aforesaid.memory.merging import summary_id

        for sequence in sorted((entry.sequence for entry in found), reverse=True):
            if await self._store.entry(here.id, summary_id(there.id, sequence)) is not None:
                return [entry for entry in new if entry.sequence > sequence]
        return list(new)

    # Links between related conversations

    async def link(self, conversation_id: str, other_id: str) -> None:
        """Record that two conversations are related. Linking twice has no further effect."""
        from aforesaid.layers.branched.links import LINKS, link_keys

        here, there = await self._pair(conversation_id, other_id)
        if here.id == there.id:
            raise InvalidInput("a conversation cannot be linked to itself", field="other_id", value=other_id)
        for key in link_keys(here.id, there.id):
            await self._store.put_document(LINKS, key, b"1")

    async def unlink(self, conversation_id: str, other_id: str) -> None:
        """Remove a link. A missing one is not an error."""
        from aforesaid.layers.branched.links import LINKS, link_keys

        here, there = self._key(conversation_id), self._key(other_id, field="other_id")
        for key in link_keys(here, there):
            await self._store.delete_document(LINKS, key)

    async def links(self, conversation_id: str) -> list[Conversation]:
        """Return the records of the conversations that are linked to this one, the latest first."""
        from aforesaid.layers.branched.links import linked_to

        record = await self._require(conversation_id)
        found: list[Conversation] = []
        for other_id in await linked_to(self._store, record.id):
            other = await self._store.get(other_id)
            if other is not None:
                found.append(other)
        return sorted(found, key=lambda one: (one.last_activity, one.id), reverse=True)

    def _key(self, conversation_id: str, *, field: str = "conversation_id") -> str:
        return conversation_key(conversation_id, owner=self._store.owner, field=field).id

    async def _pair(
        self, conversation_id: str, other_id: str, *, field: str = "other_id"
    ) -> tuple[Conversation, Conversation]:
        self._key(other_id, field=field)
        return await self._require(conversation_id), await self._require(other_id)

    async def _require(self, conversation_id: str) -> Conversation:
        """Return the record with the counts of its own part."""
        from aforesaid.memory.forks import branches_of

        store, _ = branches_of(self._store)
        record = await store.inner.get(self._key(conversation_id))
        if record is None:
            raise ConversationNotFound(conversation_id)
        return record


def _marked(message: Message, branch_id: str) -> Message:
    tags = dict.fromkeys([*message.tags, MERGED, f"{FROM}{branch_id}"])
    return message.with_(tags=tuple(tags))


def _differences(here: Conversation, there: Conversation) -> dict[str, tuple[Any, Any]]:
    return {
        field: (mine, theirs)
        for field in COMPARED
        if (mine := getattr(here, field)) != (theirs := getattr(there, field))
    }


def _node(record: Conversation) -> Branch:
    return Branch(
        conversation_id=record.id,
        parent_id=record.lineage[0].conversation_id if record.lineage else None,
        subject=record.subject,
        own_messages=record.message_count,
        shared_messages=shared_messages(record.lineage),
        created_at=record.created_at,
        last_activity=record.last_activity,
    )
