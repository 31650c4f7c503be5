"""Moving: a conversation that was read from one store is put into another as it was."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from msgspec.structs import replace

from aforesaid.contracts import Backend, ConversationStore, Entry
from aforesaid.errors import ConversationNotFound, InvalidInput, MessageConflict
from aforesaid.model.conversations import Changes, Conversation, Query
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.testing.clocks import FixedClock
from aforesaid.testing.contract.base import Contract, assistant, contents, new_conversation, user

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
    """All that can be read of a conversation, tokens included, which are no part of equality."""
    entries = await store.page(conversation_id, limit=10_000)
    return await store.get(conversation_id), entries, [one.message.tokens for one in entries]


class MovingContract(Contract):
    @pytest.fixture
    def elsewhere(self, backend: Backend) -> ConversationStore:
        return backend.of(f"elsewhere-{new_id()}")

    @pytest.fixture
    async def lived(self, store: ConversationStore, clock: FixedClock) -> Conversation:
        """A conversation to which much has happened: nothing in its record has its first value."""
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

    async def test_what_is_restored_reads_as_it_did(
        self, store: ConversationStore, elsewhere: ConversationStore, lived: Conversation, clock: FixedClock
    ) -> None:
        before = await everything(store, lived.id)
        clock.advance(HOUR)
        await elsewhere.restore(lived, await store.page(lived.id, limit=100))
        assert await everything(elsewhere, lived.id) == before
        assert await everything(store, lived.id) == before
        (listed,) = (await elsewhere.find(Query())).conversations
        assert listed == lived
        tail = await elsewhere.tail(lived.id, limit=2)
        assert tail == await store.tail(lived.id, limit=2)

    async def test_it_may_come_in_parts_in_any_order_and_twice(
        self, store: ConversationStore, elsewhere: ConversationStore, conversation: Conversation
    ) -> None:
        for number in range(7):
            await store.append(conversation.id, [user(number, message_id=f"m{number}"), assistant(number)])
        record = await store.get(conversation.id)
        assert record is not None
        entries = await store.page(record.id, limit=100)
        for first in (10, 3, 5, 0, 10):
            await elsewhere.restore(record, entries[first : first + 4])
        await elsewhere.restore(record, entries)
        assert await everything(elsewhere, record.id) == await everything(store, record.id)

    async def test_the_record_that_comes_last_holds(
        self, elsewhere: ConversationStore, lived: Conversation
    ) -> None:
        await elsewhere.restore(lived, [])
        plain = Conversation(id=lived.id, created_at=LONG_AGO, updated_at=LONG_AGO, revision=2)
        await elsewhere.restore(plain, [])
        assert await elsewhere.get(lived.id) == plain
        assert (await elsewhere.find(Query())).conversations == (plain,)
        assert (await elsewhere.find(Query(client_id=lived.client_id))).conversations == ()
        await elsewhere.restore(lived, [])
        assert await elsewhere.get(lived.id) == lived

    async def test_messages_with_a_record_are_no_part_of_it(
        self, elsewhere: ConversationStore, lived: Conversation
    ) -> None:
        await elsewhere.restore(replace(lived, messages=(user("x"),)), [])
        assert await elsewhere.get(lived.id) == lived

    async def test_a_sequence_that_is_there_is_left_as_it_is(
        self, elsewhere: ConversationStore, lived: Conversation
    ) -> None:
        await elsewhere.restore(lived, [entry(lived, 4, user("first", message_id="m1"))])
        other = entry(lived, 4, user("second", message_id="m2", timestamp=LONG_AGO + HOUR))
        await elsewhere.restore(lived, [other, entry(lived, 2, user("third"))])
        assert contents(await elsewhere.page(lived.id, limit=9)) == ["third", "first"]
        appended = await elsewhere.append(lived.id, [user("second", message_id="m2")])
        assert [one.sequence for one in appended.new] == [5]

    async def test_new_messages_go_on_after_the_largest(
        self, elsewhere: ConversationStore, lived: Conversation
    ) -> None:
        await elsewhere.restore(lived, [entry(lived, 41, user("a")), entry(lived, 7, user("b"))])
        appended = await elsewhere.append(lived.id, [user("c"), user("d")])
        assert [one.sequence for one in appended.new] == [42, 43]
        assert appended.conversation.revision == lived.revision + 1
        assert appended.conversation.message_count == lived.message_count + 2

    async def test_ids_are_known_afterwards(self, elsewhere: ConversationStore, lived: Conversation) -> None:
        await elsewhere.restore(lived, [entry(lived, 1, user("a", message_id="m1"))])
        appended = await elsewhere.append(lived.id, [user("a", message_id="m1")])
        assert appended.new == ()
        with pytest.raises(MessageConflict):
            await elsewhere.append(lived.id, [user("other", message_id="m1")])

    async def test_an_id_that_another_entry_holds_is_refused_and_nothing_is_changed(
        self, elsewhere: ConversationStore, lived: Conversation
    ) -> None:
        await elsewhere.restore(lived, [entry(lived, 1, user("a", message_id="m1"))])
        before = await everything(elsewhere, lived.id)
        changed = replace(lived, subject="another", revision=99)
        for entries in (
            [entry(lived, 2, user("b")), entry(lived, 3, user("a", message_id="m1"))],
            [entry(lived, 2, user("b", message_id="m2")), entry(lived, 3, user("b", message_id="m2"))],
        ):
            with pytest.raises(MessageConflict):
                await elsewhere.restore(changed, entries)
            assert await everything(elsewhere, lived.id) == before

    async def test_what_has_expired_is_stored_as_it_is_and_not_served(
        self, elsewhere: ConversationStore, conversation: Conversation, clock: FixedClock
    ) -> None:
        now = clock()
        over = replace(conversation, ttl=HOUR, expires_at=now - HOUR, message_count=2)
        await elsewhere.restore(over, [entry(over, 1, user("a"))])
        await elsewhere.restore(over, [entry(over, 2, user("b"))])
        assert await elsewhere.get(over.id) is None
        assert (await elsewhere.find(Query())).conversations == ()
        clock.set(now - HOUR * 2)
        assert await elsewhere.get(over.id) == over
        assert contents(await elsewhere.page(over.id, limit=9)) == ["a", "b"]
        clock.set(now)
        assert await elsewhere.purge_expired() == 1

    async def test_an_expired_conversation_lends_nothing_to_one_that_is_restored_in_its_place(
        self, elsewhere: ConversationStore, clock: FixedClock
    ) -> None:
        old = await elsewhere.resume("kitchen", new_conversation(elsewhere, ttl=HOUR))
        await elsewhere.append(old.id, [user("secret", message_id="m1")])
        clock.advance(HOUR * 2)
        alive = replace(old, expires_at=clock() + HOUR)
        await elsewhere.restore(alive, [entry(alive, 5, user("new", message_id="m1"))])
        assert contents(await elsewhere.page(old.id, limit=9)) == ["new"]
        assert await elsewhere.session("kitchen") is None
        assert await elsewhere.sessions(old.id) == []

    async def test_sessions_stay_bound_to_what_is_restored_over_them(
        self, store: ConversationStore, lived: Conversation
    ) -> None:
        await store.restore(replace(lived, subject="other"), [])
        assert await store.sessions(lived.id) == ["kitchen"]
        bound = await store.session("kitchen")
        assert bound is not None
        assert bound.subject == "other"

    async def test_others_have_nothing_of_it(
        self, store: ConversationStore, elsewhere: ConversationStore, lived: Conversation
    ) -> None:
        before = await everything(store, lived.id)
        await elsewhere.restore(replace(lived, subject="theirs"), [entry(lived, 1, user("theirs"))])
        assert await everything(store, lived.id) == before

    async def test_who_has_only_restored_conversations_is_an_owner(
        self, backend: Backend, lived: Conversation
    ) -> None:
        name = f"moved-{new_id()}"
        await backend.of(name).restore(lived, [])
        assert name in [owner async for owner in backend.owners()]

    async def test_what_could_not_have_been_stored_is_refused(
        self, elsewhere: ConversationStore, lived: Conversation
    ) -> None:
        good = entry(lived, 1, user("a"))
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
                await elsewhere.restore(lived, [entry(lived, 2, user("b")), bad])
        for record in (
            replace(lived, revision=-1),
            replace(lived, message_count=-1),
            replace(lived, created_at=naive),
            replace(lived, expires_at=naive),
        ):
            with pytest.raises(InvalidInput):
                await elsewhere.restore(record, [good])
        assert await elsewhere.get(lived.id) is None

    async def test_sessions_of_a_conversation(
        self, store: ConversationStore, elsewhere: ConversationStore, conversation: Conversation
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
            await elsewhere.sessions(conversation.id)

    async def test_sessions_of_an_expired_conversation_are_not_told(
        self, store: ConversationStore, clock: FixedClock
    ) -> None:
        record = await store.resume("kitchen", new_conversation(store, ttl=HOUR))
        clock.advance(HOUR)
        with pytest.raises(ConversationNotFound):
            await store.sessions(record.id)
