"""Snapshots, for stores that implement `SnapshotReader`: one read returns the same as separate reads.

class TestMySnapshots(SnapshotContract):
    @pytest.fixture
    async def backend(self, clock): ...
"""

from datetime import timedelta
from typing import Any

import pytest

from aforesaid.contracts import Backend, ConversationStore, SnapshotReader, capability, parse_listing
from aforesaid.errors import ConversationNotFound, InvalidId, InvalidInput
from aforesaid.model.conversations import Changes, Conversation
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.testing.clocks import FixedClock
from aforesaid.testing.contract.base import Contract, assistant, contents, new_conversation, user

KIND = "note"
NOTES = parse_listing(KIND, None, None, 3)


async def snapshot_of(
    store: ConversationStore, conversation_id: str, *, front: int = 2, tail: int = 4
) -> tuple[Any, ...]:
    """Return a snapshot as a comparable value."""
    reader = capability(store, SnapshotReader)
    assert reader is not None
    snapshot = await reader.read_snapshot(conversation_id, front=front, tail=tail, documents=NOTES)
    return snapshot.message_count, list(snapshot.front), list(snapshot.tail), list(snapshot.documents)


async def by_parts(
    store: ConversationStore, conversation_id: str, *, front: int = 2, tail: int = 4
) -> tuple[Any, ...]:
    """Return the same from separate reads."""
    record = await store.get(conversation_id)
    if record is None:
        raise ConversationNotFound(conversation_id)
    first = await store.page(conversation_id, limit=front)
    last = await store.tail(conversation_id, limit=tail)
    return record.message_count, first, last, await store.documents(KIND, limit=NOTES.limit)


async def check(store: ConversationStore, conversation_id: str) -> None:
    """Compare both at several lengths, twice, so that a cached result cannot differ."""
    for front, tail in ((2, 4), (0, 1), (3, 40), (2, 0)):
        snapshot = await snapshot_of(store, conversation_id, front=front, tail=tail)
        assert snapshot == await by_parts(store, conversation_id, front=front, tail=tail)
        assert snapshot == await snapshot_of(store, conversation_id, front=front, tail=tail)


class SnapshotContract(Contract):
    """The contract of `read_snapshot`."""

    async def test_a_snapshot_equals_separate_reads(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        assert capability(store, SnapshotReader) is not None
        await check(store, conversation.id)
        for number in range(6):
            await store.append(conversation.id, [user(f"question {number}"), assistant(f"answer {number}")])
            await check(store, conversation.id)

    async def test_a_snapshot_shows_every_change(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        await store.append(conversation.id, [user("one", message_id="m1"), user("two", message_id="m2")])
        await check(store, conversation.id)
        await store.replace(conversation.id, user("one, in other words", message_id="m1"))
        await check(store, conversation.id)
        await store.update(conversation.id, Changes(subject="lights"))
        await store.put_document(KIND, "a", b"first")
        await check(store, conversation.id)
        await store.put_document(KIND, "a", b"second")
        await store.put_document("other", "b", b"")
        await check(store, conversation.id)
        await store.delete_document(KIND, "a")
        await store.rewrite(conversation.id, [user("another beginning")])
        await check(store, conversation.id)

    async def test_a_snapshot_orders_messages_by_time(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        await store.append(conversation.id, [user(str(number)) for number in range(6)])
        await check(store, conversation.id)
        earlier = store.now() - timedelta(days=1)
        await store.append(conversation.id, [Message(role="system", content="rule", timestamp=earlier)])
        await check(store, conversation.id)

    async def test_a_snapshot_shows_each_part_of_a_restore(self, store: ConversationStore) -> None:
        elsewhere = await store.create(new_conversation(store))
        await store.append(elsewhere.id, [user(str(number)) for number in range(8)])
        record, entries = await store.get(elsewhere.id), await store.page(elsewhere.id, limit=8)
        assert record is not None
        await store.delete(elsewhere.id)
        for start in (4, 0):
            await store.restore(record, entries[start : start + 4])
            await check(store, elsewhere.id)

    async def test_a_snapshot_of_a_missing_conversation_raises(
        self, backend: Backend, clock: FixedClock, store: ConversationStore
    ) -> None:
        brief = await store.create(new_conversation(store, ttl=timedelta(hours=1)))
        await store.append(brief.id, [user("hello")])
        await check(store, brief.id)
        for nobodys, missing in ((backend.of(f"owner-{new_id()}"), brief.id), (store, new_id())):
            with pytest.raises(ConversationNotFound):
                await snapshot_of(nobodys, missing)
        clock.advance(timedelta(hours=2))
        with pytest.raises(ConversationNotFound):
            await snapshot_of(store, brief.id)

    async def test_a_snapshot_of_a_deleted_conversation_raises(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        await store.append(conversation.id, [user("hello")])
        await check(store, conversation.id)
        await store.delete(conversation.id)
        with pytest.raises(ConversationNotFound):
            await snapshot_of(store, conversation.id)

    async def test_changing_a_snapshot_does_not_affect_the_next(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        """Content can be mutable; changes by one caller must not be visible to the next."""
        await store.append(conversation.id, [user([{"type": "text", "text": "hello"}]), user("words")])
        before = contents((await by_parts(store, conversation.id))[2])
        for _ in range(2):
            *_, tail, _ = await snapshot_of(store, conversation.id)
            assert contents(tail) == before
            tail[0].message.content[0]["cache_control"] = {"type": "ephemeral"}
            tail.clear()

    async def test_invalid_snapshot_arguments_are_refused(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        with pytest.raises(InvalidInput, match="tail"):
            await snapshot_of(store, conversation.id, tail=-1)
        with pytest.raises(InvalidInput, match="front"):
            await snapshot_of(store, conversation.id, front=-1)
        with pytest.raises(InvalidId):
            await snapshot_of(store, "kitchen\0")
