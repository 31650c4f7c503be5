"""What a store does for branches: lineages, sequences, families, and ancestors that outlive their end."""

from contextlib import nullcontext
from datetime import timedelta

import pytest
from msgspec.structs import replace

from aforesaid.contracts import Backend, Branchable, ConversationStore, capability
from aforesaid.errors import ConversationNotFound, InvalidSetting, RevisionConflict
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.clock import to_micros
from aforesaid.model.conversations import Changes, Conversation, Query
from aforesaid.model.ids import new_id
from aforesaid.model.lineages import Ancestor, new_branch_id
from aforesaid.testing.contract.base import Contract, FixedClock, assistant, contents, new_conversation, user

HOUR = timedelta(hours=1)


async def branch_of(store: ConversationStore, parent: Conversation, **fields: object) -> Conversation:
    """Create a branch at the end of the parent's log, as the layer `branched` does."""
    (last,) = await store.tail(parent.id, limit=1)
    ancestor = Ancestor(
        conversation_id=parent.id,
        micros=last.position.micros,
        place=last.sequence,
        sequence=await branches_in(store).last_sequence(parent.id),
        messages=parent.message_count,
    )
    record = new_conversation(store, **fields)  # type: ignore[arg-type]
    return await store.create(record.with_(id=new_branch_id(), lineage=(ancestor, *parent.lineage)))


def branches_in(store: ConversationStore) -> Branchable:
    found = capability(store, Branchable)
    assert found is not None, f"{type(store).__name__} keeps no branches"
    return found


class BranchesContract(Contract):
    """The capability `Branchable`.

    A store without it sets `branchable = False`. Its tests then show the refusal instead of the branches.
    """

    branchable = True

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if not cls.branchable:
            for name in [name for name in dir(cls) if name.startswith("test_branches_")]:
                setattr(cls, name, None)

    async def test_a_fork_is_refused_exactly_where_the_store_has_no_branches(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        assert (capability(store, Branchable) is not None) == self.branchable
        refusal = nullcontext() if self.branchable else pytest.raises(InvalidSetting, match="no branches")
        await store.append(conversation.id, [user("one")])
        with refusal:
            await ConversationManager(store).fork(conversation.id)
        assert len((await store.find(Query())).conversations) == 1 + self.branchable

    @pytest.fixture
    async def parent(self, store: ConversationStore, conversation: Conversation) -> Conversation:
        done = await store.append(conversation.id, [user("one", message_id="m1"), assistant("two")])
        return done.conversation

    async def test_branches_keep_their_lineage(self, store: ConversationStore, parent: Conversation) -> None:
        branch = await branch_of(store, parent)
        assert await store.get(branch.id) == branch
        assert branch in (await store.find(Query())).conversations
        changed = await store.update(branch.id, Changes(subject="what if"))
        assert changed.lineage == branch.lineage
        again = await store.append(branch.id, [user("three")])
        assert again.conversation.lineage == branch.lineage
        assert (again.conversation.message_count, again.conversation.revision) == (1, 2)

    async def test_branches_continue_the_sequences_of_their_parent(
        self, store: ConversationStore, parent: Conversation
    ) -> None:
        branch = await branch_of(store, parent)
        assert await branches_in(store).last_sequence(branch.id) == 2
        (entry,) = (await store.append(branch.id, [user("three")])).new
        assert entry.sequence == 3
        assert contents(await store.page(branch.id, limit=9)) == ["three"]
        assert await branches_in(store).last_sequence(branch.id) == 3
        with pytest.raises(ConversationNotFound):
            await branches_in(store).last_sequence(new_id())

    async def test_branches_of_a_root_are_one_family(
        self, store: ConversationStore, parent: Conversation
    ) -> None:
        first = await branch_of(store, parent)
        await store.append(first.id, [user("three")])
        second = await branch_of(store, (await store.get(first.id)) or first)
        await store.create(new_conversation(store))
        family = await branches_in(store).family(parent.id)
        assert sorted(one.id for one in family) == sorted([first.id, second.id])
        assert await branches_in(store).family(new_id()) == []

    async def test_branches_keep_an_expired_ancestor(
        self, store: ConversationStore, backend: Backend, parent: Conversation, clock: FixedClock
    ) -> None:
        await store.update(parent.id, Changes(ttl=HOUR))
        branch = await branch_of(store, parent, ttl=HOUR * 3)
        clock.advance(HOUR * 2)
        assert await store.get(parent.id) is None
        assert await store.expired(by=clock(), limit=9) == []
        assert await store.purge_expired() == 0
        await backend.purge_expired()
        view = branches_in(store).including_expired()
        assert contents(await view.page(parent.id, limit=9)) == ["one", "two"]
        assert await view.get(parent.id) is not None
        assert [one.id for one in await branches_in(store).kept_expired()] == [parent.id]
        clock.advance(HOUR * 2)
        assert await branches_in(store).kept_expired() == []
        assert {one.id for one in await store.expired(by=clock(), limit=9)} == {parent.id, branch.id}
        assert [one.id for one in await branches_in(store).family(parent.id)] == [branch.id]
        assert await store.purge_expired() == 2
        assert await branches_in(store).family(parent.id) == []
        assert await view.get(parent.id) is None

    async def test_branches_take_over_the_part_of_an_ancestor(
        self, store: ConversationStore, parent: Conversation
    ) -> None:
        branch = await branch_of(store, parent)
        own = (await store.append(branch.id, [user("three")])).conversation
        moved = [replace(one, conversation_id=branch.id) for one in await store.page(parent.id, limit=9)]
        complete = own.with_(lineage=(), message_count=3, revision=own.revision + 1)
        with pytest.raises(RevisionConflict):
            await store.restore(complete, moved, expected_revision=own.revision - 1)
        assert (await store.get(branch.id)) == own
        await store.restore(complete, moved, expected_revision=own.revision)
        assert contents(await store.page(branch.id, limit=9)) == ["one", "two", "three"]
        assert (await store.get(branch.id)) == complete
        assert await branches_in(store).family(parent.id) == []
        with pytest.raises(RevisionConflict):
            await store.restore(complete.with_(id=new_id()), [], expected_revision=0)

    async def test_branches_sort_their_first_message_behind_the_parent(
        self, store: ConversationStore, parent: Conversation, clock: FixedClock
    ) -> None:
        (last,) = await store.tail(parent.id, limit=1)
        branch = await branch_of(store, parent, last_message_at=last.message.timestamp)
        clock.advance(-timedelta(seconds=30))
        (entry,) = (await store.append(branch.id, [user("three")])).new
        assert entry.position.micros == to_micros(last.message.timestamp)  # type: ignore[arg-type]
        assert entry.position > last.position
