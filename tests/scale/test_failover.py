"""A PostgreSQL primary fails under load, and its standby takes over."""

import asyncio
import os
from collections import Counter
from itertools import cycle, islice
from pathlib import Path

import pytest

import aforesaid
from aforesaid.layers.resilient import Resilience, ResilientBackend
from aforesaid.model.conversations import started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.stores.urls import backend_for
from tests.chaos.outages import BETWEEN, CONVERSATIONS, DURING, OWNERS, Speakers, judge_all, until_well
from tests.scale.figures import Figures, report
from tests.scale.replicas import FAULTS, Replicas, replicas

PAUSE = 0.05
FAILOVERS = int(os.environ.get("AFORESAID_FAILOVERS", "6"))


async def played(pair: Replicas, folder: Path, faults: list[str]) -> Speakers:
    """Let people speak while one primary after the other fails."""
    resilience = Resilience(folder=folder)
    memory = aforesaid.open(
        pair.url,
        retention=aforesaid.Retention(sweep_every=None),
        layers=aforesaid.Layers(resilience=resilience),
        models=aforesaid.Models(preload=False),
    )
    async with memory:
        layer = memory.layer(ResilientBackend)
        assert layer is not None
        speakers = Speakers(memory, pause=PAUSE)
        speaking = speakers.start()
        await speakers.go_on_for(BETWEEN)
        for fault in faults:
            await failed_over(pair, fault, speakers)
            await until_well(layer)
            await speakers.go_on_for(BETWEEN)
        speakers.stop()
        await asyncio.gather(*speaking)
        await until_well(layer)
        assert not layer.set_aside.value
    await judge_all(pair.url, speakers)
    return speakers


async def failed_over(pair: Replicas, fault: str, speakers: Speakers) -> None:
    loop = asyncio.get_running_loop()

    def meanwhile() -> None:
        asyncio.run_coroutine_threadsafe(speakers.go_on_for(DURING), loop).result()

    await asyncio.to_thread(FAULTS[fault], pair, meanwhile)
    await asyncio.to_thread(pair.repair)


def reported(mode: str, faults: list[str], speakers: Speakers) -> Figures:
    verdict = speakers.figures.verdict
    counted = ", ".join(f"{count} {name}" for name, count in Counter(faults).items())
    figures = Figures(
        scenario=f"PostgreSQL, {mode} standby",
        load=f"{len(OWNERS) * CONVERSATIONS} conversations",
        faults=f"{len(faults)} failovers ({counted})",
        acknowledged=verdict.acknowledged,
        lost=verdict.lost,
        duplicated=verdict.doubled,
        pause=speakers.figures.slowest_turn,
    )
    report(figures)
    return figures


async def test_a_synchronous_standby_loses_no_acknowledged_turn(tmp_path: Path) -> None:
    faults = list(islice(cycle(FAULTS), FAILOVERS))
    with replicas(synchronous=True) as pair:
        speakers = await played(pair, tmp_path, faults)
    reported("synchronous", faults, speakers)
    assert speakers.figures.verdict.is_clean, speakers.figures


async def test_an_asynchronous_standby_loses_only_what_it_had_not_received(tmp_path: Path) -> None:
    faults = list(islice(cycle(FAULTS), FAILOVERS // 2))
    with replicas(synchronous=False) as pair:
        speakers = await played(pair, tmp_path, faults)
    verdict = speakers.figures.verdict
    figures = reported("asynchronous", faults, speakers)
    assert (verdict.doubled, verdict.torn, verdict.reordered) == (0, 0, 0), figures
    # While the standby is away, each of these turns is acknowledged by the primary alone.
    assert verdict.lost >= DURING * faults.count("lag"), figures


@pytest.mark.parametrize("copies", [1, 2])
async def test_a_repeated_turn_is_not_acknowledged_before_the_standby_has_it(copies: int) -> None:
    """A commit whose wait for the standby is cancelled stays on the primary, where its retry finds it."""
    turn = [Message(role="user", content="hello", message_id="one")] * copies
    with replicas(synchronous=True) as pair:
        backend = backend_for(pair.url)
        await backend.open()
        store = backend.of("ann")
        conversation = await store.create(started(new_id(), now=store.now()))
        await asyncio.to_thread(pair.standby.interrupt)
        for _ in range(2):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(store.append(conversation.id, turn), 2)
        await asyncio.to_thread(pair.standby.resume)
        assert len((await store.append(conversation.id, turn)).known) == copies
        await backend.close()
