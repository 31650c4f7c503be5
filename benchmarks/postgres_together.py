"""Many turns at once, and windows, on PostgreSQL, each beside the bare driver in the same run.

    python -m benchmarks.postgres_together [--url postgresql://…] [--seconds 4] [--messages 10 1000 100000]

- 64 conversations in one process, beside the bare driver with one transaction per turn and the same pool
- four processes with 16 conversations each: processor time of a turn, client and server together
- a window of 20 messages, beside a bare SELECT of 20 rows, as the conversation grows
"""

import argparse
import asyncio
import multiprocessing
import time
from collections.abc import Awaitable, Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from psycopg_pool import AsyncConnectionPool
from tests.servers.postgres import Databases

import aforesaid
from aforesaid.model.conversations import started
from aforesaid.model.ids import new_id
from aforesaid.model.wire import encode_message
from aforesaid.stores.postgres import PostgresBackend
from benchmarks.postgres import BARE_INSERT, BARE_TABLE, TURN, named, server, timed

CONVERSATIONS, PROCESSES = 64, 4
CONNECTIONS = 10
WINDOW = 20
BARE_SELECT = b"""
SELECT at, sequence, revision, stored_at, body FROM bare
WHERE owner = %s AND conversation_id = %s ORDER BY at DESC, sequence DESC LIMIT 20
"""
Work = Callable[[], Awaitable[object]]


class Load(NamedTuple):
    """What one process did."""

    turns: int
    seconds: float
    client: float
    """Seconds of processor time."""


async def ours(url: str, number: int) -> tuple[list[Work], Callable[[], Awaitable[None]]]:
    """Return a turn for each conversation, each of an owner of its own, and how to close."""
    backend = PostgresBackend(url, max_connections=CONNECTIONS)
    await backend.open()

    async def work(owner: str) -> Work:
        store = backend.of(owner)
        record = await store.create(started(new_id(), now=store.now()))
        return lambda: store.append(record.id, [named(message) for message in TURN])

    return [await work(f"owner-{new_id()}") for _ in range(number)], backend.close


async def bare(url: str, number: int) -> tuple[list[Work], Callable[[], Awaitable[None]]]:
    """The same rows through the driver, one transaction per turn."""
    pool = AsyncConnectionPool(url, min_size=1, max_size=CONNECTIONS, open=False)
    await pool.open(wait=True)
    bodies = [encode_message(message).decode() for message in TURN]

    def work() -> Work:
        key, sequence = new_id(), iter(range(10**9))

        async def turn() -> None:
            rows = zip(TURN, bodies, strict=True)
            values = [v for m, body in rows for v in ("bench", key, next(sequence), m.role, new_id(), body)]
            async with pool.connection() as connection, connection.transaction():
                await connection.execute(BARE_INSERT, values)

        return turn

    return [work() for _ in range(number)], pool.close


SIDES = {"ours": ours, "bare": bare}


async def load(works: Sequence[Work], seconds: float) -> Load:
    """Repeat all of them at once for a time."""
    turns = 0
    begin, used = time.perf_counter(), time.process_time()

    async def repeat(work: Work) -> None:
        nonlocal turns
        while time.perf_counter() - begin < seconds:
            await work()
            turns += 1

    await asyncio.gather(*map(repeat, works))
    return Load(turns, time.perf_counter() - begin, time.process_time() - used)


async def together(url: str, seconds: float) -> None:
    rates = {}
    for side, begin in SIDES.items():
        works, close = await begin(url, CONVERSATIONS)
        await asyncio.gather(*(work() for work in works))
        done = await load(works, seconds)
        await close()
        rates[side] = done.turns / done.seconds
    one, other = rates["ours"], rates["bare"]
    print(f"{CONVERSATIONS} conversations: {one:,.0f} turns/s; bare {other:,.0f}: {one / other:.2f} x")


# Several processes


def in_a_process(url: str, side: str, number: int, seconds: float, pipe: Connection) -> None:
    asyncio.run(_in_a_process(url, side, number, seconds, pipe))


async def _in_a_process(url: str, side: str, number: int, seconds: float, pipe: Connection) -> None:
    works, close = await SIDES[side](url, number)
    await asyncio.gather(*(work() for work in works))
    pipe.send(None)
    await asyncio.to_thread(pipe.recv)
    pipe.send(await load(works, seconds))
    # The server's processes are read before they end.
    await asyncio.to_thread(pipe.recv)
    await close()


def server_seconds(url: str) -> float:
    """Return the processor time of the server's processes for this database."""
    with psycopg.connect(url) as connection:
        found = connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchall()
    return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for (pid,) in found) / 1e9


def processes(url: str, seconds: float) -> dict[str, float]:
    """Return the microseconds of processor time of a turn, ours and the bare driver's."""
    costs = {side: _cost(url, side, seconds) for side in SIDES}
    ratio = costs["ours"] / costs["bare"]
    print(
        f"{PROCESSES} processes with {CONVERSATIONS // PROCESSES} conversations each:"
        f" {costs['ours']:.0f} µs of processor time a turn, client and server;"
        f" bare {costs['bare']:.0f}: {ratio:.2f} x"
    )
    return costs


def _cost(url: str, side: str, seconds: float) -> float:
    """Return the microseconds of processor time of a turn."""
    context = multiprocessing.get_context("spawn")
    pipes, running = [], []
    for _ in range(PROCESSES):
        here, there = context.Pipe()
        arguments = (url, side, CONVERSATIONS // PROCESSES, seconds, there)
        process = context.Process(target=in_a_process, args=arguments)
        process.start()
        pipes.append(here)
        running.append(process)
    for pipe in pipes:
        pipe.recv()
    before = server_seconds(url)
    for pipe in pipes:
        pipe.send(None)
    loads: list[Load] = [pipe.recv() for pipe in pipes]
    used = server_seconds(url) - before + sum(one.client for one in loads)
    for pipe in pipes:
        pipe.send(None)
    for process in running:
        process.join()
    return used / sum(one.turns for one in loads) * 1e6


# Windows


async def windows(url: str, lengths: Sequence[int]) -> None:
    print(f"{'messages':>10} {'window':>10} {'the same, after a turn':>24} {'bare SELECT':>12}")
    async with (
        aforesaid.open(url) as memory,
        await psycopg.AsyncConnection.connect(url, autocommit=True) as connection,
    ):
        for length in lengths:
            await _window(memory.of("windows"), connection, url, length)


async def _window(manager: Any, connection: psycopg.AsyncConnection[Any], url: str, length: int) -> None:
    backend = PostgresBackend(url)
    await backend.open()
    store = backend.of("windows")
    record = await store.create(started(new_id(), now=store.now()))
    for begin in range(0, length, 5_000):
        await store.append(record.id, [named(TURN[n % 2]) for n in range(min(5_000, length - begin))])
    key = new_id()
    for number in range(WINDOW):
        values = ("windows", key, number, "user", new_id(), encode_message(TURN[0]).decode())
        await connection.execute(BARE_INSERT.split(b", (")[0], values)
    cursor = connection.cursor(binary=True)

    async def select() -> None:
        await cursor.execute(BARE_SELECT, ("windows", key))
        await cursor.fetchall()

    async def window() -> None:
        await manager.load_context(record.id)

    changed: list[float] = []

    async def after_a_turn() -> None:
        await store.append(record.id, [named(message) for message in TURN])
        begin = time.perf_counter()
        await window()
        changed.append((time.perf_counter() - begin) * 1000)

    await timed(30, window, select)
    same, floor = await timed(200, window, select)
    await timed(100, after_a_turn)
    after = sorted(changed)[len(changed) // 2]
    print(
        f"{length:>10} {same:>7.3f} ms {after:>21.3f} ms {floor:>9.3f} ms:"
        f" {same / floor:.2f} x, {after / floor:.2f} x"
    )
    await backend.close()


async def prepare(url: str) -> None:
    backend = PostgresBackend(url)
    await backend.open()
    await backend.close()
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(BARE_TABLE.encode())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", help="a server to use, as its superuser, instead of a private one")
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--messages", type=int, nargs="*", default=[10, 1_000, 100_000])
    given = parser.parse_args()
    with server(given.url) as admin_url:
        databases = Databases(admin_url)
        try:
            url = databases.new()
            asyncio.run(prepare(url))
            asyncio.run(together(url, given.seconds))
            processes(url, given.seconds)
            asyncio.run(windows(url, given.messages))
        finally:
            databases.drop()


if __name__ == "__main__":
    main()
