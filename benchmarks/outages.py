"""An outage: what a turn and a context cost while the store is away, and how new turns fare while it takes
in what was said meanwhile. The floor is the disk: the same bytes appended and synced, from a thread.

    python -m benchmarks.outages [--turns 10000] [--folder …] [--stores postgres,redis,sqlite]
"""

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.faults import Failing
from tests.servers.postgres import Databases, PostgresServer
from tests.servers.redis import running

from aforesaid.contracts import Backend
from aforesaid.layers.resilient import ResilientBackend, resilient
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.conversations import started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.stores.memory import InMemoryBackend
from aforesaid.stores.urls import backend_for
from aforesaid.telemetry import Telemetry
from benchmarks.measuring import micros, p50, p99, side_by_side

ROUNDS = 1000
CONVERSATIONS = 20


def turn() -> list[Message]:
    return [
        Message(role="user", content="Is the front door locked, and are the lights on?", message_id=new_id()),
        Message(role="assistant", content="It is locked. I switched the lights off.", message_id=new_id()),
    ]


async def accepted(folder: Path) -> None:
    """A turn into the spool, beside the bare disk."""
    failing = Failing(InMemoryBackend())
    layer = resilient(failing, folder=folder / "spool", metrics=Telemetry(), background=False)
    await layer.open()
    erin = ConversationManager(layer.of("erin"))
    record = await erin.get_or_create_conversation("kitchen")
    for _ in range(20):
        await erin.append(record.id, turn())
    await erin.load_context(record.id)
    failing.down()
    await erin.append(record.id, turn())
    size = layer.spool_bytes
    descriptor = os.open(folder / "floor", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    content = os.urandom(size)

    def write() -> None:
        os.write(descriptor, content)
        os.fdatasync(descriptor)

    store = layer.of("erin")
    times = await side_by_side(
        {
            "disk": lambda: asyncio.to_thread(write),
            "store": lambda: store.append(record.id, turn()),
            "manager": lambda: erin.append(record.id, turn()),
            "context": lambda: erin.load_context(record.id),
        },
        rounds=ROUNDS,
    )
    floor = p50(times["disk"])
    slow = micros(p99(times["disk"]))
    print(f"append + fdatasync of {size} bytes from a thread   {micros(floor)}, p99 {slow}")
    for name in ("store", "manager"):
        took = times[name]
        ratio = p50(took) / floor
        print(f"a turn accepted, by the {name:8} {micros(p50(took))}, p99 {micros(p99(took))}: {ratio:.2f} x")
    print(f"a context {micros(p50(times['context']))}, p99 {micros(p99(times['context']))}")
    await layer.close()


async def replayed(name: str, backend: Backend, folder: Path, turns: int) -> None:
    """A backlog goes to a real store, while one caller goes on speaking in a conversation of the same owner,
    and one in a conversation of another."""
    failing = Failing(backend)
    layer = resilient(failing, folder=folder / name, metrics=Telemetry(), background=False)
    await layer.open()
    store, other = layer.of("erin"), layer.of("ann")
    records = [await store.create(started(new_id(), now=store.now())) for _ in range(CONVERSATIONS)]
    theirs = await other.create(started(new_id(), now=other.now()))
    usual: list[float] = []
    for _ in range(200):
        begin = time.perf_counter()
        await store.append(records[0].id, turn())
        usual.append(time.perf_counter() - begin)
    failing.down()
    for number in range(0, turns, 50):
        await asyncio.gather(
            *(store.append(records[n % CONVERSATIONS].id, turn()) for n in range(number, number + 50))
        )
    failing.up()
    layer.breaker.probe_succeeded()
    begin = time.perf_counter()
    handing_over = asyncio.create_task(layer.recover())
    same, apart = await asyncio.gather(
        speaking(layer, "erin", records[0].id, handing_over), speaking(layer, "ann", theirs.id, handing_over)
    )
    took = time.perf_counter() - begin
    assert await handing_over
    found = [await backend.of("erin").get(record.id) for record in records]
    stored = sum(record.message_count for record in found if record is not None)
    assert stored == 2 * (200 + turns + len(same)), "every turn is there once"
    print(
        f"{name:9} {turns:,} turns replayed in {took:.1f} s ({turns / took:,.0f}/s); new turns meanwhile: "
        f"same owner {len(same):,}, p50 {micros(p50(same))}, p99 {micros(p99(same))}; "
        f"another owner {len(apart):,}, p50 {micros(p50(apart))}, p99 {micros(p99(apart))}; "
        f"usually p50 {micros(p50(usual))}, p99 {micros(p99(usual))}"
    )
    await layer.close()


async def speaking(
    layer: ResilientBackend, owner: str, conversation_id: str, until: "asyncio.Task[bool]"
) -> list[float]:
    store, times = layer.of(owner), []
    while not until.done():
        begin = time.perf_counter()
        await store.append(conversation_id, turn())
        times.append(time.perf_counter() - begin)
    return times


@asynccontextmanager
async def backends(wanted: str, folder: Path) -> AsyncIterator[dict[str, Backend]]:
    found: dict[str, Backend] = {}
    server = PostgresServer()
    names = wanted.split(",")
    try:
        if "sqlite" in names:
            found["sqlite"] = backend_for(f"sqlite:///{folder}/memory.db")
        if "postgres" in names:
            await asyncio.to_thread(server.start)
            found["postgres"] = backend_for(Databases(server.url).new())
        if "redis" in names:
            with running() as port:
                found["redis"] = backend_for(f"redis://127.0.0.1:{port}/0")
                yield found
        else:
            yield found
    finally:
        server.stop()


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=10_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--stores", default="sqlite,postgres,redis")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="aforesaid-outages-", dir=given.folder) as name:
        folder = Path(name)
        await accepted(folder)
        async with backends(given.stores, folder) as found:
            for store, backend in found.items():
                await replayed(store, backend, folder, given.turns)


if __name__ == "__main__":
    asyncio.run(main())
