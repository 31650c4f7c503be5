"""Sessions: map a caller's name to a conversation."""

import asyncio
from datetime import timedelta

import pytest

from aforesaid.contracts import ConversationStore
from aforesaid.errors import InvalidId
from aforesaid.testing.clocks import FixedClock
from aforesaid.testing.contract.base import Contract, new_conversation, user


class SessionsContract(Contract):
    """`resume`, `session`, `bind` and `unbind`."""

    async def test_resume_returns_the_same_conversation(self, store: ConversationStore) -> None:
        first = await store.resume("kitchen", new_conversation(store))
        again = await store.resume("kitchen", new_conversation(store))
        assert again == first
        assert await store.session("kitchen") == first
        assert await store.session("bedroom") is None

    async def test_sessions_are_separate(self, store: ConversationStore) -> None:
        names = ["kitchen", "Kitchen", "kitchen ", "a:b", "{t}", "*", "../x", "😀", "x" * 1024]
        ids = [(await store.resume(name, new_conversation(store))).id for name in names]
        assert len(set(ids)) == len(names)
        for name, conversation_id in zip(names, ids, strict=True):
            bound = await store.session(name)
            assert bound is not None
            assert bound.id == conversation_id

    @pytest.mark.parametrize("name", ["", "x" * 1025, "a\0b", "\ud800"])
    async def test_invalid_session_names_are_refused(self, store: ConversationStore, name: str) -> None:
        with pytest.raises(InvalidId, match="session_id"):
            await store.resume(name, new_conversation(store))

    async def test_resume_after_the_idle_time_starts_a_new_conversation(
        self, store: ConversationStore, clock: FixedClock
    ) -> None:
        first = await store.resume("chat", new_conversation(store))
        await store.append(first.id, [user("hello")])
        clock.advance(timedelta(minutes=31))
        since = clock() - timedelta(minutes=30)
        second = await store.resume("chat", new_conversation(store), active_since=since)
        assert second.id != first.id
        assert await store.session("chat") == second
        # The old conversation still exists.
        assert len(await store.tail(first.id, limit=5)) == 1

    async def test_resume_within_the_idle_time_continues(
        self, store: ConversationStore, clock: FixedClock
    ) -> None:
        first = await store.resume("chat", new_conversation(store))
        clock.advance(timedelta(minutes=29))
        since = clock() - timedelta(minutes=30)
        again = await store.resume("chat", new_conversation(store), active_since=since)
        assert again.id == first.id

    async def test_bind_and_unbind(self, store: ConversationStore) -> None:
        one, two = [await store.create(new_conversation(store)) for _ in range(2)]
        await store.bind("kitchen", one.id)
        await store.bind("kitchen", two.id)
        await store.bind("phone", two.id)
        assert await store.session("kitchen") == two
        await store.unbind("kitchen")
        await store.unbind("kitchen")
        assert await store.session("kitchen") is None
        assert await store.session("phone") == two
        assert await store.get(one.id) == one

    async def test_concurrent_resumes_of_one_session_return_one_conversation(
        self, store: ConversationStore
    ) -> None:
        resumed = await asyncio.gather(*(store.resume("door", new_conversation(store)) for _ in range(20)))
        assert len({conversation.id for conversation in resumed}) == 1
