"""LayerSetup of real servers while people go on speaking. The short run; `make chaos` plays the long one."""

import asyncio
import random
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import aforesaid
from aforesaid.layers.resilient import Resilience
from aforesaid.model.conversations import started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from tests.chaos.checking import judge
from tests.chaos.outages import KINDS, run
from tests.chaos.servers import SERVERS, Server
from tests.unit.layers.conftest import LayerSetup


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    server = SERVERS[request.param]()
    server.start()
    try:
        yield server
    finally:
        server.stop()


class EachOnce(random.Random):
    """Instead of chance, one of each kind in turn."""

    def __init__(self) -> None:
        super().__init__()
        self._coming = iter(KINDS)

    def choice(self, seq: object) -> str:  # type: ignore[override]
        return next(self._coming)


@pytest.mark.slow
@pytest.mark.parametrize("server", sorted(SERVERS), indirect=True)
async def test_one_outage_of_each_kind_loses_nothing(server: Server, tmp_path: Path) -> None:
    figures = await run(server, tmp_path, outages=len(KINDS), source=EachOnce())
    assert sorted(figures.outages) == sorted(KINDS)
    assert figures.verdict.is_clean, str(figures)
    assert figures.verdict.acknowledged > 200
    assert figures.degraded_contexts
    assert not figures.set_aside


@pytest.mark.slow
@pytest.mark.parametrize("how", ["freeze", "kill"])
@pytest.mark.parametrize("server", sorted(SERVERS), indirect=True)
async def test_a_search_while_the_server_is_away_finds_what_is_known_and_says_so(
    server: Server, tmp_path: Path, how: str
) -> None:
    """It comes back within its deadline, be the server frozen, with its connections open, or gone."""
    resilience = Resilience(folder=tmp_path, read_deadline=1.5, search_deadline=1.5, write_deadline=1.5)
    async with aforesaid.open(
        server.url(server.port), layers=aforesaid.Layers(resilience=resilience)
    ) as memory:
        erin = memory.of("erin")
        conversation = await erin.get_or_create_conversation("kitchen")
        await erin.add_message(conversation.id, "user", "The key is under the flowerpot.")
        while (await erin.search("flowerpot")).degraded:  # noqa: ASYNC110 - a busy server misses the deadline
            await asyncio.sleep(0.1)
        getattr(server, how)()
        try:
            async with asyncio.timeout(120):  # without a bound of its own it would never come back
                found = await erin.search("flowerpot")
                await erin.add_message(conversation.id, "user", "No, it is under the doormat.")
                (said,) = await erin.search_history("doormat", max_results=1)
                similar = await erin.search_conversations("flowerpot")
        finally:
            server.thaw() if how == "freeze" else server.restart()
        assert found.degraded
        assert "store is unavailable: searched" in (found.note or "")
        assert "flowerpot" in found.passages[0].text
        assert "doormat" in said
        assert [one.id for one in similar] == [conversation.id]


@pytest.mark.parametrize("back", [timedelta(seconds=30), timedelta(hours=2)])
async def test_a_clock_that_jumps_loses_nothing_and_small_jumps_reorder_nothing(
    setup: LayerSetup, back: timedelta
) -> None:
    """Forth by hours, back by seconds: in order. Back by hours: what is said then has an earlier time, as
    everywhere, and reads in that order; it is there, once and whole."""
    store = setup.layer.of("erin")
    record = await store.create(started(new_id(), now=store.now(), ttl=None))
    source = random.Random(7)
    for number in range(60):
        setup.clock.advance(source.choice([timedelta(hours=3), -back, timedelta(seconds=1)]))
        if number % 15 == 5:
            setup.failing.down()
        if number % 15 == 12:
            assert await setup.back()
        turn = [Message(role="user", content=number), Message(role="assistant", content=number)]
        await store.append(record.id, turn)
    assert await setup.back()
    entries = await setup.memory.of("erin").page(record.id, limit=999)
    verdict = judge(set(range(60)), [entry.message.content for entry in entries])
    assert (verdict.lost, verdict.doubled, verdict.torn) == (0, 0, 0)
    if back < timedelta(minutes=1):
        assert not verdict.reordered
