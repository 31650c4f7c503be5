"""Restoring a conversation in another store, and snapshots that return the same as separate reads."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from msgspec.structs import replace

from aforesaid.contracts import Backend, ConversationStore, Entry, SnapshotReader, capability, parse_listing
from aforesaid.errors import ConversationNotFound, InvalidId, InvalidInput, MessageConflict
from aforesaid.model.conversations import Changes, Conversation, Query
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.testing.contract.base import Contract, FixedClock, assistant, contents, new_conversation, user

# Restoring: a conversation read from one store is written to another unchanged.


HOUR = timedelta(hours=1)
LONG_AGO = datetime(1990, 5, 4, 3, 2, 1, 1, tzinfo=UTC)


def entry(record: Conversation, sequence: int, message: Message, *, revision: int = 1) -> Entry:
    return Entry(
        conversation_id=record.id,
        sequence=sequence,
        revision=revision,
        stored_at=LONG_AGO,
        message=message if message.timestamp else message.with_(timestamp=LONG_AGO),
    )


async def everything(store: ConversationStore, conversation_id: str) -> tuple[object, ...]:
    """Return everything that can be read of a conversation, including tokens, which equality ignores."""
    entries = await store.page(conversation_id, limit=10_000)
    return await store.get(conversation_id), entries, [one.message.tokens for one in entries]


class RestoringContract(Contract):
    """`restore` and `sessions`."""

    @pytest.fixture
    def other_store(self, backend: Backend) -> ConversationStore:
        return backend.of(f"elsewhere-{new_id()}")

    @pytest.fixture
    async def original(self, store: ConversationStore, clock: FixedClock) -> Conversation:
        """A conversation with a history: no field of its record has its initial value."""
        record = await store.resume("kitchen", new_conversation(store, channel="text", tags=("b", "a")))
        clock.advance(HOUR)
        await store.append(record.id, [user("to be replaced", message_id="m0")])
        await store.rewrite(record.id, [user("hello", message_id="m1", tokens={"estimate": 3})])
        clock.advance(HOUR)
        await store.append(
            record.id,
            [
                assistant([{"type": "text", "text": "\ud800 and \0"}], tags=("x",), extra={"n": 1.5}),
                user("earlier", timestamp=LONG_AGO.astimezone(timezone(HOUR)), message_id="m3"),
            ],
        )
        changes = Changes(
            client_id=new_id(), client_name="Sam", subject="Leeks", notes="n", status="closed", ttl=HOUR * 9
        )
        await store.update(record.id, changes)
        moved = await store.get(record.id)
        assert moved is not None
        return moved

    async def test_a_restored_conversation_reads_back_equal(
        self,
        store: ConversationStore,
        other_store: ConversationStore,
        original: Conversation,
        clock: FixedClock,
    ) -> None:
        before = await everything(store, original.id)
        clock.advance(HOUR)
        await other_store.restore(original, await store.page(original.id, limit=100))
        assert await everything(other_store, original.id) == before
        assert await everything(store, original.id) == before
        (listed,) = (await other_store.find(Query())).conversations
        assert listed == original
        tail = await other_store.tail(original.id, limit=2)
        assert tail == await store.tail(original.id, limit=2)

    async def test_restore_accepts_parts_in_any_order_and_repeatedly(
        self, store: ConversationStore, other_store: ConversationStore, conversation: Conversation
    ) -> None:
        for number in range(7):
            await store.append(conversation.id, [user(number, message_id=f"m{number}"), assistant(number)])
        record = await store.get(conversation.id)
        assert record is not None
        entries = await store.page(record.id, limit=100)
        for first in (10, 3, 5, 0, 10):
            await other_store.restore(record, entries[first : first + 4])
        await other_store.restore(record, entries)
        assert await everything(other_store, record.id) == await everything(store, record.id)

    async def test_restore_keeps_the_last_record(
        self, other_store: ConversationStore, original: Conversation
    ) -> None:
        await other_store.restore(original, [])
        plain = Conversation(id=original.id, created_at=LONG_AGO, updated_at=LONG_AGO, revision=2)
        await other_store.restore(plain, [])
        assert await other_store.get(original.id) == plain
        assert (await other_store.find(Query())).conversations == (plain,)
        assert (await other_store.find(Query(client_id=original.client_id))).conversations == ()
        await other_store.restore(original, [])
        assert await other_store.get(original.id) == original

    async def test_restore_ignores_messages_in_the_record(
        self, other_store: ConversationStore, original: Conversation
    ) -> None:
        await other_store.restore(original.with_(messages=(user("x"),)), [])
        assert await other_store.get(original.id) == original

    async def test_restore_does_not_overwrite_an_existing_sequence(
        self, other_store: ConversationStore, original: Conversation
    ) -> None:
        await other_store.restore(original, [entry(original, 4, user("first", message_id="m1"))])
        other = entry(original, 4, user("second", message_id="m2", timestamp=LONG_AGO + HOUR))
        await other_store.restore(original, [other, entry(original, 2, user("third"))])
        assert contents(await other_store.page(original.id, limit=9)) == ["third", "first"]
        appended = await other_store.append(original.id, [user("second", message_id="m2")])
        assert [one.sequence for one in appended.new] == [5]

    async def test_append_after_restore_continues_the_highest_sequence(
        self, other_store: ConversationStore, original: Conversation
    ) -> None:
        await other_store.restore(original, [entry(original, 41, user("a")), entry(original, 7, user("b"))])
        appended = await other_store.append(original.id, [user("c"), user("d")])
        assert [one.sequence for one in appended.new] == [42, 43]
        assert appended.conversation.revision == original.revision + 1
        assert appended.conversation.message_count == original.message_count + 2

    async def test_restored_message_ids_are_idempotency_keys(
        self, other_store: ConversationStore, original: Conversation
    ) -> None:
        await other_store.restore(original, [entry(original, 1, user("a", message_id="m1"))])
        appended = await other_store.append(original.id, [user("a", message_id="m1")])
        assert appended.new == ()
        with pytest.raises(MessageConflict):
            await other_store.append(original.id, [user("other", message_id="m1")])

    async def test_restore_refuses_an_id_of_another_entry_and_changes_nothing(
        self, other_store: ConversationStore, original: Conversation
    ) -> None:
        await other_store.restore(original, [entry(original, 1, user("a", message_id="m1"))])
        before = await everything(other_store, original.id)
        changed = original.with_(subject="another", revision=99)
        for entries in (
            [entry(original, 2, user("b")), entry(original, 3, user("a", message_id="m1"))],
            [entry(original, 2, user("b", message_id="m2")), entry(original, 3, user("b", message_id="m2"))],
        ):
            with pytest.raises(MessageConflict):
                await other_store.restore(changed, entries)
            assert await everything(other_store, original.id) == before

    async def test_restore_of_an_expired_conversation_is_stored_but_not_returned(
        self, other_store: ConversationStore, conversation: Conversation, clock: FixedClock
    ) -> None:
        now = clock()
        over = conversation.with_(ttl=HOUR, expires_at=now - HOUR, message_count=2)
        await other_store.restore(over, [entry(over, 1, user("a"))])
        await other_store.restore(over, [entry(over, 2, user("b"))])
        assert await other_store.get(over.id) is None
        assert (await other_store.find(Query())).conversations == ()
        clock.set(now - HOUR * 2)
        assert await other_store.get(over.id) == over
        assert contents(await other_store.page(over.id, limit=9)) == ["a", "b"]
        clock.set(now)
        assert await other_store.purge_expired() == 1

    async def test_restore_over_an_expired_conversation_starts_empty(
        self, other_store: ConversationStore, clock: FixedClock
    ) -> None:
        old = await other_store.resume("kitchen", new_conversation(other_store, ttl=HOUR))
        await other_store.append(old.id, [user("secret", message_id="m1")])
        clock.advance(HOUR * 2)
        alive = old.with_(expires_at=clock() + HOUR)
        await other_store.restore(alive, [entry(alive, 5, user("new", message_id="m1"))])
        assert contents(await other_store.page(old.id, limit=9)) == ["new"]
        assert await other_store.session("kitchen") is None
        assert await other_store.sessions(old.id) == []

    async def test_restore_keeps_bound_sessions(
        self, store: ConversationStore, original: Conversation
    ) -> None:
        await store.restore(original.with_(subject="other"), [])
        assert await store.sessions(original.id) == ["kitchen"]
        bound = await store.session("kitchen")
        assert bound is not None
        assert bound.subject == "other"

    async def test_restore_is_isolated_by_owner(
        self, store: ConversationStore, other_store: ConversationStore, original: Conversation
    ) -> None:
        before = await everything(store, original.id)
        await other_store.restore(original.with_(subject="theirs"), [entry(original, 1, user("theirs"))])
        assert await everything(store, original.id) == before

    async def test_an_owner_with_only_restored_conversations_is_listed(
        self, backend: Backend, original: Conversation
    ) -> None:
        name = f"moved-{new_id()}"
        await backend.of(name).restore(original, [])
        assert name in [owner async for owner in backend.owners()]

    async def test_restore_refuses_invalid_conversations(
        self, other_store: ConversationStore, original: Conversation
    ) -> None:
        good = entry(original, 1, user("a"))
        naive = datetime(2026, 1, 1)
        for bad in (
            replace(good, conversation_id=new_id()),
            replace(good, sequence=0),
            replace(good, sequence=2**54),
            replace(good, revision=-1),
            replace(good, stored_at=naive),
            replace(good, message=user("no time")),
            replace(good, message=good.message.with_(content={1: "keys are text"})),
        ):
            with pytest.raises(InvalidInput):
                await other_store.restore(original, [entry(original, 2, user("b")), bad])
        for record in (
            original.with_(revision=-1),
            original.with_(message_count=-1),
            original.with_(created_at=naive),
            original.with_(expires_at=naive),
        ):
            with pytest.raises(InvalidInput):
                await other_store.restore(record, [good])
        assert await other_store.get(original.id) is None

    async def test_sessions_of_a_conversation(
        self, store: ConversationStore, other_store: ConversationStore, conversation: Conversation
    ) -> None:
        long = "ä" * 1024
        other = await store.create(new_conversation(store))
        assert await store.sessions(conversation.id) == []
        for session_id in ("kitchen", long, "sha256/x", "phone"):
            await store.bind(session_id, conversation.id)
        await store.bind("phone", other.id)
        await store.bind("gone", conversation.id)
        await store.unbind("gone")
        assert await store.sessions(conversation.id) == sorted(["kitchen", long, "sha256/x"])
        assert await store.sessions(other.id) == ["phone"]
        with pytest.raises(ConversationNotFound):
            await other_store.sessions(conversation.id)

    async def test_sessions_of_an_expired_conversation_are_not_returned(
        self, store: ConversationStore, clock: FixedClock
    ) -> None:
        record = await store.resume("kitchen", new_conversation(store, ttl=HOUR))
        clock.advance(HOUR)
        with pytest.raises(ConversationNotFound):
            await store.sessions(record.id)


# Snapshots, for stores that implement `SnapshotReader`: one read returns the same as separate reads.
#


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
