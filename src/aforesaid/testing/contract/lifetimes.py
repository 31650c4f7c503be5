"""Lifetimes: expired conversations are never returned, and `purge_expired` removes them."""

from datetime import timedelta
from typing import Any

import pytest

from aforesaid.contracts import Backend, ConversationStore
from aforesaid.errors import ConversationNotFound, InvalidInput
from aforesaid.model.conversations import Changes, Query, started
from aforesaid.testing.clocks import FixedClock
from aforesaid.testing.contract.base import Contract, new_conversation, user

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
