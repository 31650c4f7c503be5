"""Records: create, read, update, list, delete; sessions; lifetimes."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from aforesaid.contracts import Backend, ConversationStore
from aforesaid.errors import (
    ConversationExists,
    ConversationNotFound,
    InvalidId,
    InvalidInput,
    RevisionConflict,
)
from aforesaid.model.conversations import (
    CHANNELS,
    MOST_UNREAD,
    VALUE_SETS,
    Changes,
    Conversation,
    Query,
    started,
)
from aforesaid.model.ids import new_id
from aforesaid.testing.contract.base import Contract, FixedClock, new_conversation, user

# Records: create, read, update, list, delete; sessions: map a name of the caller to a conversation.


CLIENT = "0190f3c8-0000-7000-8000-000000000001"


async def listed(store: ConversationStore, **filters: object) -> list[str]:
    page = await store.find(Query(**filters))  # type: ignore[arg-type]
    return [record.id for record in page.conversations]


class RecordsContract(Contract):
    """`create`, `get`, `update`, `find` and `delete`."""

    async def test_a_new_record_reads_back_equal(self, store: ConversationStore) -> None:
        record = new_conversation(
            store,
            channel="email",
            status="pending",
            priority="urgent",
            client_id=CLIENT,
            client_name="Zoë Łukasz 漢字",
            subject='quotes " and \\ and 😀',
            assigned_to="sam",
            tags=("a", "ü b", '"'),
            notes="line\nline",
        )
        assert await store.create(record) == record
        assert await store.get(record.id) == record

    async def test_every_allowed_value_is_stored(self, store: ConversationStore) -> None:
        channels = (*CHANNELS, "sms", "Matrix.room-1", "微信")
        for field, values in {**VALUE_SETS, "channel": channels}.items():
            for value in values:
                metadata: dict[str, Any] = {field: value}
                record = await store.create(new_conversation(store, **metadata))
                stored = await store.get(record.id)
                assert stored is not None
                assert stored[field] == value

    async def test_create_refuses_a_used_id(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        with pytest.raises(ConversationExists):
            await store.create(conversation)

    async def test_a_missing_conversation_is_none_or_raises(self, store: ConversationStore) -> None:
        missing = new_id()
        assert await store.get(missing) is None
        with pytest.raises(ConversationNotFound):
            await store.update(missing, Changes(subject="x"))
        with pytest.raises(ConversationNotFound):
            await store.append(missing, [user("hello")])
        with pytest.raises(ConversationNotFound):
            await store.rewrite(missing, [])
        with pytest.raises(ConversationNotFound):
            await store.tail(missing, limit=1)
        with pytest.raises(ConversationNotFound):
            await store.page(missing, limit=1)
        with pytest.raises(ConversationNotFound):
            await store.bind("session", missing)

    @pytest.mark.parametrize("malformed", ["", "\0", "\ud800", "x" * 1025])
    async def test_malformed_ids_are_refused(self, store: ConversationStore, malformed: str) -> None:
        with pytest.raises(InvalidId, match="conversation_id"):
            await store.get(malformed)
        with pytest.raises(InvalidId, match="conversation_id"):
            await store.append(malformed, [user("hello")])
        with pytest.raises(InvalidId, match="conversation_id"):
            await store.delete(malformed)

    async def test_ids_ignore_case_and_notation(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        assert await store.get(conversation.id.upper()) == conversation

    async def test_update_changes_only_the_given_fields(
        self, store: ConversationStore, conversation: Conversation, clock: FixedClock
    ) -> None:
        clock.advance(timedelta(seconds=5))
        changed = await store.update(
            conversation.id, Changes(status="resolved", tags=("x", "y"), client_id=CLIENT, client_name="Ann")
        )
        expected = conversation.with_(
            status="resolved",
            tags=("x", "y"),
            client_id=CLIENT,
            client_name="Ann",
            updated_at=clock(),
            revision=conversation.revision + 1,
        )
        assert changed == expected
        assert await store.get(conversation.id) == expected

    async def test_update_can_clear_a_field(self, store: ConversationStore) -> None:
        record = await store.create(new_conversation(store, subject="old", tags=("a",)))
        changed = await store.update(record.id, Changes(subject=None, tags=()))
        assert (changed.subject, changed.tags) == (None, ())
        assert await store.get(record.id) == changed

    async def test_update_checks_the_expected_revision(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        await store.update(conversation.id, Changes(subject="first"), expected_revision=0)
        with pytest.raises(RevisionConflict) as caught:
            await store.update(conversation.id, Changes(subject="second"), expected_revision=0)
        assert (caught.value.expected, caught.value.actual) == (0, 1)
        stored = await store.get(conversation.id)
        assert stored is not None
        assert stored.subject == "first"

    async def test_find_orders_by_last_activity(self, store: ConversationStore, clock: FixedClock) -> None:
        ids = []
        for _ in range(3):
            ids.append((await store.create(new_conversation(store))).id)
            clock.advance(timedelta(seconds=1))
        await store.append(ids[0], [user("hello again")])
        assert await listed(store) == [ids[0], ids[2], ids[1]]

    async def test_pages_cover_everything_once(self, store: ConversationStore, clock: FixedClock) -> None:
        ids = set()
        for number in range(23):
            ids.add((await store.create(new_conversation(store))).id)
            clock.advance(timedelta(seconds=number % 2))  # some at the same moment
        seen: list[str] = []
        after = None
        while True:
            page = await store.find(Query(limit=5, after=after))
            seen += [record.id for record in page.conversations]
            after = page.next
            if after is None:
                break
            assert len(page.conversations) == 5
        assert len(seen) == 23
        assert set(seen) == ids

    async def test_a_full_last_page_has_no_next(self, store: ConversationStore) -> None:
        for _ in range(4):
            await store.create(new_conversation(store))
        first = await store.find(Query(limit=2))
        second = await store.find(Query(limit=2, after=first.next))
        assert first.next is not None
        assert len(second.conversations) == 2
        assert second.next is None

    async def test_every_filter_applies(self, store: ConversationStore, clock: FixedClock) -> None:
        begin = clock()
        wanted = await store.create(
            new_conversation(
                store,
                client_id=CLIENT,
                channel="phone",
                status="pending",
                priority="high",
                assigned_to="sam",
                tags=("roof", "paint"),
            )
        )
        clock.advance(timedelta(hours=1))
        other = await store.create(new_conversation(store, tags=("garden",)))
        assert await listed(store) == [other.id, wanted.id]
        filters: list[dict[str, object]] = [
            {"client_id": CLIENT},
            {"channel": "phone"},
            {"status": "pending"},
            {"priority": "high"},
            {"assigned_to": "sam"},
            {"tags": ("paint", "nothing")},
            {"date_to": begin},
            {"date_from": begin, "date_to": begin + timedelta(minutes=59)},
        ]
        for one in filters:
            assert await listed(store, **one) == [wanted.id], one
        assert await listed(store, status="pending", channel="voice") == []
        assert await listed(store, date_from=clock()) == [other.id]

    async def test_unread_count_can_be_set_and_grows_with_messages(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        await store.update(conversation.id, Changes(unread_count=MOST_UNREAD))
        await store.append(conversation.id, [user("one more")])
        stored = await store.get(conversation.id)
        assert stored is not None
        assert stored.unread_count == MOST_UNREAD + 1
        await store.restore(stored, await store.page(conversation.id, limit=9))
        for nonsense in (-1, MOST_UNREAD + 1, 2**53, True, "many"):
            with pytest.raises(InvalidInput, match="unread_count"):
                Changes(unread_count=nonsense)  # type: ignore[arg-type]

    async def test_invalid_queries_are_refused(self, store: ConversationStore) -> None:
        with pytest.raises(InvalidInput, match="status"):
            await store.find(Query(status="lost"))  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="limit"):
            await store.find(Query(limit=0))
        for nonsense in ("somewhere", "1:2", f"{10**30}:{new_id()}"):
            with pytest.raises(InvalidInput, match="after"):
                await store.find(Query(after=nonsense))

    async def test_delete_removes_everything_and_is_idempotent(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        await store.append(conversation.id, [user("hello", message_id="m1")])
        await store.bind("kitchen", conversation.id)
        await store.delete(conversation.id)
        await store.delete(conversation.id)
        assert await store.get(conversation.id) is None
        assert await store.session("kitchen") is None
        assert await listed(store) == []
        # The id is free again, and the old log is gone.
        again = await store.create(conversation)
        assert await store.page(again.id, limit=10) == []
        stored = await store.append(again.id, [user("other words", message_id="m1")])
        assert len(stored.new) == 1

    async def test_delete_keeps_other_conversations(self, store: ConversationStore) -> None:
        kept, gone = [await store.create(new_conversation(store)) for _ in range(2)]
        await store.append(kept.id, [user("stay")])
        await store.delete(gone.id)
        assert await listed(store) == [kept.id]
        assert len(await store.tail(kept.id, limit=10)) == 1


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


# Lifetimes: expired conversations are never returned, and `purge_expired` removes them.


HOUR = timedelta(hours=1)


class LifetimesContract(Contract):
    """Expiry and purging."""

    async def test_expired_data_is_never_returned_even_before_a_purge(
        self, store: ConversationStore, clock: FixedClock
    ) -> None:
        record = await store.resume("kitchen", new_conversation(store, ttl=HOUR))
        await store.append(record.id, [user("secret")])
        clock.advance(HOUR)
        assert await store.get(record.id) is None
        assert await store.session("kitchen") is None
        assert (await store.find(Query())).conversations == ()
        assert await store.load(record.id) == []
        for read in (store.tail(record.id, limit=1), store.page(record.id, limit=1)):
            with pytest.raises(ConversationNotFound):
                await read
        with pytest.raises(ConversationNotFound):
            await store.append(record.id, [user("more")])
        with pytest.raises(ConversationNotFound):
            await store.update(record.id, Changes(subject="x"))

    async def test_every_turn_renews_the_lifetime(self, store: ConversationStore, clock: FixedClock) -> None:
        record = await store.create(new_conversation(store, ttl=HOUR))
        for _ in range(3):
            clock.advance(timedelta(minutes=50))
            await store.append(record.id, [user("still here")])
        assert len(await store.tail(record.id, limit=10)) == 3

    async def test_old_timestamps_do_not_shorten_the_lifetime(
        self, store: ConversationStore, clock: FixedClock
    ) -> None:
        record = await store.create(new_conversation(store, ttl=HOUR))
        old = clock() - timedelta(days=900)
        appended = await store.append(record.id, [user("from an old archive", timestamp=old)])
        assert appended.conversation.expires_at == clock() + HOUR

    async def test_a_lifetime_can_be_changed_and_removed(
        self, store: ConversationStore, clock: FixedClock
    ) -> None:
        record = await store.create(new_conversation(store, ttl=HOUR))
        longer = await store.update(record.id, Changes(ttl=HOUR * 2))
        assert longer.expires_at == clock() + HOUR * 2
        forever = await store.update(record.id, Changes(ttl=None))
        assert forever.expires_at is None
        clock.advance(timedelta(days=9999))
        assert await store.get(record.id) == forever

    @pytest.mark.parametrize("ttl", [timedelta(0), timedelta(-1), timedelta.max, 3600, "1h"])
    async def test_invalid_lifetimes_are_refused(self, store: ConversationStore, ttl: Any) -> None:
        record = await store.create(new_conversation(store))
        with pytest.raises(InvalidInput, match="ttl"):
            await store.update(record.id, Changes(ttl=ttl))

    async def test_purge_removes_and_counts_expired_conversations(
        self, store: ConversationStore, clock: FixedClock
    ) -> None:
        short = [await store.create(new_conversation(store, ttl=HOUR)) for _ in range(3)]
        kept = await store.create(new_conversation(store, ttl=HOUR * 3))
        forever = await store.create(new_conversation(store, ttl=None))
        assert await store.purge_expired() == 0
        clock.advance(HOUR)
        assert await store.purge_expired() == 3
        assert await store.purge_expired() == 0
        left = {record.id for record in (await store.find(Query())).conversations}
        assert left == {kept.id, forever.id}
        assert await store.get(short[0].id) is None

    async def test_a_store_purges_only_its_owner(
        self, backend: Backend, store: ConversationStore, clock: FixedClock
    ) -> None:
        other = backend.of("another owner of the purge")
        await store.create(new_conversation(store, ttl=HOUR))
        await other.create(new_conversation(other, ttl=HOUR))
        clock.advance(HOUR)
        assert await store.purge_expired() == 1
        assert await other.purge_expired() == 1

    async def test_a_backend_purges_all_owners(
        self, backend: Backend, store: ConversationStore, clock: FixedClock
    ) -> None:
        other = backend.of("yet another owner of the purge")
        await store.create(new_conversation(store, ttl=HOUR))
        await other.create(new_conversation(other, ttl=HOUR))
        assert await backend.purge_expired(clock() + HOUR) >= 2
        assert await store.purge_expired() == 0

    async def test_a_session_of_an_expired_conversation_starts_a_new_one(
        self, store: ConversationStore, clock: FixedClock
    ) -> None:
        first = await store.resume("kitchen", new_conversation(store, ttl=HOUR))
        clock.advance(HOUR)
        second = await store.resume("kitchen", new_conversation(store, ttl=HOUR))
        assert second.id != first.id
        assert await store.session("kitchen") == second

    async def test_the_id_of_an_expired_conversation_can_be_reused(
        self, store: ConversationStore, clock: FixedClock
    ) -> None:
        record = await store.resume("kitchen", new_conversation(store, ttl=HOUR))
        await store.append(record.id, [user("secret", message_id="m1")])
        clock.advance(HOUR)
        await store.create(started(record.id, now=clock()))
        assert await store.page(record.id, limit=10) == []
        assert await store.session("kitchen") is None
