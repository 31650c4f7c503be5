"""Every store can tell where a log ends, and exchange the stored form of a message in its place."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

import aforesaid
from aforesaid.contracts import ConversationStore, LogEnd, Sealable
from aforesaid.errors import ConversationNotFound
from aforesaid.model.conversations import Changes, started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.testing import FixedClock
from tests.builders import STORES, url_for


@pytest.fixture(params=STORES)
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, clock: FixedClock
) -> AsyncIterator[ConversationStore]:
    url = url_for(request.param, tmp_path, request)
    # The encrypted layer is below the cache, so the cache needs no such reads.
    async with aforesaid.open(
        url,
        retention=aforesaid.Retention(sweep_every=None),
        layers=aforesaid.Layers(cache="off"),
        clock=clock,
    ) as memory:
        yield memory.backend.of(f"owner-{new_id()}")


async def test_a_log_ends_where_the_next_message_goes(store: ConversationStore, clock: FixedClock) -> None:
    assert isinstance(store, Sealable)
    record = await store.create(started(new_id(), now=store.now(), ttl=timedelta(hours=1)))
    assert await store.log_end(record.id) == LogEnd(0, 1, None)
    turn = [Message(role="user", content="a"), Message(role="assistant", content="b")]
    await store.append(record.id, turn)
    assert await store.log_end(record.id) == LogEnd(1, 3, clock())
    await store.update(record.id, Changes(status="closed"))
    await store.rewrite(record.id, [])
    assert await store.log_end(record.id) == LogEnd(3, 3, None)
    appended = await store.append(record.id, turn)
    assert (appended.new[0].revision, appended.new[0].sequence) == (4, 3)
    clock.advance(timedelta(hours=1))
    assert await store.log_end(record.id) is None
    assert await store.log_end(new_id()) is None


async def test_a_stored_form_is_exchanged_and_nothing_else_moves(store: ConversationStore) -> None:
    assert isinstance(store, Sealable)
    record = await store.create(started(new_id(), now=store.now()))
    turn = [Message(role="user", content=str(n), message_id=f"m{n}" if n % 2 else None) for n in range(4)]
    await store.append(record.id, turn)
    before, entries = await store.get(record.id), await store.page(record.id, limit=9)
    others = [replace(entry, message=entry.message.with_(content="other")) for entry in entries[1:3]]
    elsewhere = replace(others[0], revision=7)
    assert await store.reseal(record.id, [*others, elsewhere]) == 2
    assert await store.get(record.id) == before
    assert await store.page(record.id, limit=9) == [entries[0], *others, entries[3]]
    known = await store.append(record.id, [Message(role="user", content="other", message_id="m1")])
    assert known.known == (others[0],)
    with pytest.raises(ConversationNotFound):
        await store.reseal(new_id(), others)
