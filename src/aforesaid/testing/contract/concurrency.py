"""Concurrent calls: nothing lost, nothing duplicated, no turn split, also after cancellation."""

import asyncio

import pytest

from aforesaid.contracts import Backend, ConversationStore
from aforesaid.errors import RevisionConflict, StoreClosed
from aforesaid.model.conversations import Conversation, Query
from aforesaid.testing.contract.base import Contract, assistant, new_conversation, user

WRITERS = 50


class ConcurrencyContract(Contract):
    """Concurrent writers and readers, cancellation, and closing."""

    async def test_fifty_concurrent_writers_keep_every_turn_whole(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        async def write(writer: int) -> None:
            for turn in range(4):
                key = f"{writer}/{turn}"
                await store.append(
                    conversation.id, [user(key), assistant({"for": key}), assistant([key, "done"])]
                )

        await asyncio.gather(*(write(writer) for writer in range(WRITERS)))
        entries = await store.page(conversation.id, limit=1000)
        assert [entry.sequence for entry in entries] == list(range(1, WRITERS * 4 * 3 + 1))
        turns = [entries[start : start + 3] for start in range(0, len(entries), 3)]
        keys = [turn[0].message.content for turn in turns]
        assert len(set(keys)) == WRITERS * 4
        for key, turn in zip(keys, turns, strict=True):
            assert [entry.message.content for entry in turn] == [key, {"for": key}, [key, "done"]]
            assert len({entry.revision for entry in turn}) == 1
        record = await store.get(conversation.id)
        assert record is not None
        assert (record.message_count, record.revision) == (600, 200)

    async def test_one_of_many_conditional_writers_wins(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        attempts = [store.append(conversation.id, [user(n)], expected_revision=0) for n in range(10)]
        results = await asyncio.gather(*attempts, return_exceptions=True)
        assert sum(not isinstance(result, BaseException) for result in results) == 1
        assert sum(isinstance(result, RevisionConflict) for result in results) == 9
        assert len(await store.page(conversation.id, limit=100)) == 1

    async def test_the_same_turn_from_concurrent_writers_is_stored_once(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        turn = [user("hello", message_id="m1"), assistant("hi", message_id="m2")]
        results = await asyncio.gather(*(store.append(conversation.id, turn) for _ in range(20)))
        assert sum(len(result.new) for result in results) == 2
        assert len(await store.page(conversation.id, limit=100)) == 2

    async def test_cancelled_appends_store_a_whole_turn_or_nothing(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        async def write(number: int) -> None:
            await store.append(conversation.id, [user(number), assistant(number)])

        tasks = [asyncio.create_task(write(number)) for number in range(60)]
        for step, task in enumerate(tasks):
            if step % 3 == 0:
                await asyncio.sleep(0)  # let some of them get under way
            if step % 2:
                task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        stored = [entry.message.content for entry in await store.page(conversation.id, limit=1000)]
        assert stored[::2] == stored[1::2]
        assert len(set(stored)) == len(stored) // 2
        acknowledged = {number for number, result in enumerate(results) if result is None}
        assert acknowledged <= set(stored)

    async def test_concurrent_readers_see_whole_turns(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        async def write() -> None:
            for number in range(40):
                await store.append(conversation.id, [user(number), assistant(number)])

        writing = asyncio.create_task(write())
        while not writing.done():
            await asyncio.sleep(0)  # a store that never waits would keep the writer out
            seen = [entry.message.content for entry in await store.page(conversation.id, limit=1000)]
            assert seen[::2] == seen[1::2]
        await writing

    async def test_concurrent_writes_to_many_conversations(self, store: ConversationStore) -> None:
        records = [await store.create(new_conversation(store)) for _ in range(20)]
        await asyncio.gather(
            *(store.append(record.id, [user(f"{record.id} {n}")]) for record in records for n in range(10))
        )
        for record in records:
            entries = await store.page(record.id, limit=100)
            assert len(entries) == 10
            assert all(str(entry.message.content).startswith(record.id) for entry in entries)

    async def test_a_closed_backend_refuses_calls_and_can_be_closed_again(
        self, backend: Backend, store: ConversationStore, conversation: Conversation
    ) -> None:
        await backend.close()
        await backend.close()
        with pytest.raises(StoreClosed):
            await store.append(conversation.id, [user("late")])
        with pytest.raises(StoreClosed):
            await store.find(Query())
        await backend.open()
        assert await store.get(conversation.id) == conversation

    async def test_close_during_writes_keeps_acknowledged_turns(
        self, backend: Backend, store: ConversationStore, conversation: Conversation
    ) -> None:
        async def write(number: int) -> int:
            await store.append(conversation.id, [user(number), assistant(number)])
            return number

        tasks = [asyncio.create_task(write(number)) for number in range(40)]
        await asyncio.sleep(0)  # let them get under way
        await asyncio.gather(backend.close(), backend.close())
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(result, int | StoreClosed) for result in results)
        await backend.open()
        stored = [entry.message.content for entry in await store.page(conversation.id, limit=1000)]
        assert stored[::2] == stored[1::2]
        acknowledged = {result for result in results if isinstance(result, int)}
        assert acknowledged <= set(stored)
