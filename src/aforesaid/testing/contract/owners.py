"""Owners: no owner can read, count, change or detect another owner's data."""

import pytest

from aforesaid.contracts import Backend, ConversationStore
from aforesaid.errors import ConversationNotFound, InvalidId
from aforesaid.model.conversations import Changes, Conversation, Query
from aforesaid.model.ids import new_id
from aforesaid.testing.contract.base import Contract, new_conversation, user

HOSTILE = [
    "a",
    "a:b",
    "a:",
    ":b",
    "../x",
    "*",
    "%",
    "_",
    "{t}",
    "A",
    "а",
    "a ",
    "'",
    '"',
    "x" * 1024,
    "😀",
    "?",
    "[a]",
]


class OwnersContract(Contract):
    """Isolation between owners."""

    async def test_another_owners_conversation_looks_absent(
        self, backend: Backend, store: ConversationStore, conversation: Conversation
    ) -> None:
        await store.append(conversation.id, [user("secret", message_id="m1")])
        await store.bind("kitchen", conversation.id)
        before = await store.get(conversation.id)
        stranger = backend.of(f"stranger-{new_id()}")
        assert await stranger.get(conversation.id) is None
        assert await stranger.session("kitchen") is None
        assert (await stranger.find(Query())).conversations == ()
        assert await stranger.load(conversation.id) == []
        await stranger.delete(conversation.id)
        await stranger.unbind("kitchen")
        assert await stranger.purge_expired() == 0
        for attempt in (
            stranger.append(conversation.id, [user("intrusion", message_id="m1")]),
            stranger.rewrite(conversation.id, []),
            stranger.update(conversation.id, Changes(subject="mine now")),
            stranger.tail(conversation.id, limit=1),
            stranger.page(conversation.id, limit=1),
            stranger.bind("kitchen", conversation.id),
        ):
            with pytest.raises(ConversationNotFound) as theirs:
                await attempt
            missing = ConversationNotFound(conversation.id)
            assert str(theirs.value) == str(missing)
        assert await store.get(conversation.id) == before
        assert [entry.message.content for entry in await store.page(conversation.id, limit=5)] == ["secret"]
        assert await store.session("kitchen") == before

    async def test_two_owners_may_use_the_same_ids(
        self, backend: Backend, store: ConversationStore, conversation: Conversation
    ) -> None:
        other = backend.of(f"other-{new_id()}")
        await other.create(conversation)
        await store.append(conversation.id, [user("mine", message_id="m1")])
        await other.append(conversation.id, [user("yours", message_id="m1")])
        assert [entry.message.content for entry in await store.page(conversation.id, limit=5)] == ["mine"]
        await other.delete(conversation.id)
        assert [entry.message.content for entry in await store.page(conversation.id, limit=5)] == ["mine"]

    async def test_owner_names_are_opaque(self, backend: Backend) -> None:
        prefix = new_id()
        made = {}
        for name in HOSTILE:
            store = backend.of(f"{name}{prefix}"[-1024:])
            made[name] = await store.resume(name, new_conversation(store))
        for name in HOSTILE:
            store = backend.of(f"{name}{prefix}"[-1024:])
            page = await store.find(Query())
            assert [record.id for record in page.conversations] == [made[name].id]
            assert await store.session(name) == made[name]

    @pytest.mark.parametrize("owner", ["", "x" * 1025, "a\0b", "\udfff", None, 7, b"erin"])
    async def test_invalid_owners_are_refused(self, backend: Backend, owner: object) -> None:
        with pytest.raises(InvalidId, match="owner"):
            backend.of(owner)  # type: ignore[arg-type]

    async def test_a_backend_lists_its_owners(self, backend: Backend) -> None:
        names = {f"listed-{number}-{new_id()}" for number in range(3)}
        for name in names:
            store = backend.of(name)
            await store.create(new_conversation(store))
        backend.of(f"silent-{new_id()}")
        listed = [owner async for owner in backend.owners()]
        assert names <= set(listed)
        assert len(listed) == len(set(listed))
        assert not any(owner.startswith("silent-") for owner in listed)
