"""A cluster of three masters with replicas: slots move and masters fail under load."""

import asyncio
from pathlib import Path

import pytest

import aforesaid
from aforesaid.layers.resilient import Resilience, ResilientBackend
from tests.chaos.outages import BETWEEN, DURING, Speakers, judge_all, until_well
from tests.scale import cluster
from tests.scale.figures import Figures, report
from tests.servers import programs
from tests.servers.redis import running_cluster

SERVERS = ["Valkey", pytest.param("Redis", marks=pytest.mark.needs("redis-server"))]
# On a busy machine a healthy node may be silent for seconds.
NODE_TIMEOUT = 5000

PAUSE = 0.05


class Clients(Speakers):
    """More owners than masters, so that every node has data."""

    def start(self) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(self.speak(f"owner {number}", "kitchen")) for number in range(8)]


@pytest.mark.parametrize("kind", SERVERS)
async def test_slots_move_and_a_master_fails_under_load(tmp_path: Path, kind: str) -> None:
    binary = None if kind == "Valkey" else str(programs.redis_server())
    with running_cluster(replicas=1, timeout=NODE_TIMEOUT, binary=binary) as port:
        url = f"redis+cluster://127.0.0.1:{port}"
        memory = aforesaid.open(
            url,
            retention=aforesaid.Retention(sweep_every=None),
            layers=aforesaid.Layers(resilience=Resilience(folder=tmp_path)),
            models=aforesaid.Models(preload=False),
        )
        async with memory:
            moved, speakers = await played(memory, port)
            await judge_all(url, speakers)
            await check_across_nodes(memory, speakers)
    figures = speakers.figures
    verdict = figures.verdict
    report(
        Figures(
            scenario=f"{kind} cluster, 3 masters with replicas",
            load="8 conversations of 8 owners",
            faults=f"{moved} slots moved, 1 master killed",
            acknowledged=verdict.acknowledged,
            lost=verdict.lost,
            duplicated=verdict.doubled,
            pause=figures.slowest_turn,
        )
    )
    assert (verdict.doubled, verdict.torn, verdict.reordered) == (0, 0, 0), figures
    assert moved
    # Replication is asynchronous: what a master acknowledged in its last moment may be gone with it.
    assert verdict.lost <= len(speakers.acknowledged), figures


async def played(memory: aforesaid.Memory, port: int) -> tuple[int, Speakers]:
    layer = memory.layer(ResilientBackend)
    assert layer is not None
    speakers = Clients(memory, pause=PAUSE)
    speaking = speakers.start()
    await speakers.go_on_for(BETWEEN)
    moved = await asyncio.to_thread(cluster.reshard, port)
    await speakers.go_on_for(DURING)
    await until_well(layer)
    await asyncio.to_thread(cluster.lose_master, port)
    await speakers.go_on_for(DURING)
    await until_well(layer)
    speakers.stop()
    await asyncio.gather(*speaking)
    await until_well(layer)
    assert not layer.set_aside.value
    return moved, speakers


async def check_across_nodes(memory: aforesaid.Memory, speakers: Speakers) -> None:
    """Lists, search and erasure reach every node."""
    owners = sorted(owner for owner, _ in speakers.acknowledged)
    for owner in owners:
        manager = memory.of(owner)
        conversation = await manager.get_or_create_conversation("garden")
        await manager.add_message(conversation.id, "user", f"the roses of {owner} need water")
        assert len((await manager.list()).conversations) == 2
        found = await manager.search_history("roses")
        assert f"the roses of {owner} need water" in found[0]
        await manager.erase()
        assert not (await manager.list()).conversations
