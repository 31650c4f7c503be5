"""What a message, an owner, a turn and a connection cost, as slopes between two sizes.

    python -m tests.scale.slopes

Bytes are those of the store after twice as many messages, less those after half of them. Processor time is
that of the client process alone. Nothing here depends on how busy the machine is, except for processor time.
"""

import asyncio
import json
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
from websockets.asyncio.client import ClientConnection, connect

import aforesaid
from tests.servers.postgres import Databases, PostgresServer
from tests.servers.redis import client, running
from tests.servers.running import server

OWNERS, TURNS, SOCKETS = 150, 4, 150
TEXT = "Could you move my appointment with Dr. Martin from Tuesday to Thursday, and tell me the time? "


@contextmanager
def stores(folder: Path) -> Iterator[dict[str, tuple[str, Callable[[], int]]]]:
    """The URL of each store, and how many bytes it uses."""
    with ExitStack() as cleanup:
        database = PostgresServer()
        cleanup.callback(database.stop)
        database.start()
        url = Databases(database.url).new()
        port = cleanup.enter_context(running())
        yield {
            "SQLite": (
                f"sqlite:///{folder}/memory.db",
                lambda: sum(file.stat().st_size for file in folder.glob("memory.db*")),
            ),
            "PostgreSQL": (url, lambda: _database_size(url)),
            "Redis": (f"redis://127.0.0.1:{port}/0", lambda: _used_memory(port)),
        }


def _database_size(url: str) -> int:
    with psycopg.connect(url) as connection:
        (size,) = connection.execute("SELECT pg_database_size(current_database())").fetchone() or (0,)
        return int(size)


def _used_memory(port: int) -> int:
    with client(port) as one:
        return int(one.info("memory")["used_memory"])


async def fill(url: str, first: int) -> float:
    """Store turns of new owners; return the processor time of a turn in milliseconds."""
    async with aforesaid.open(url, layers=aforesaid.Layers(resilience="off")) as memory:
        began = time.process_time()
        for number in range(first, first + OWNERS):
            manager = memory.of(f"owner {number}")
            conversation = await manager.get_or_create_conversation("kitchen")
            for turn in range(TURNS):
                async with manager.turn(conversation.id) as said:
                    said.user(f"{TEXT}{number} {turn}")
                    said.assistant(f"{TEXT}{turn} {number}")
        return (time.process_time() - began) / (OWNERS * TURNS) * 1000


def slope_of(url: str, size: Callable[[], int]) -> str:
    asyncio.run(fill(url, 0))
    before = size()
    processor = asyncio.run(fill(url, OWNERS))
    per_message = (size() - before) / (OWNERS * TURNS * 2)
    return (
        f"{per_message:,.0f} bytes per message of {len(TEXT)} characters, {processor:.2f} ms of CPU per turn"
    )


async def sockets(folder: Path) -> str:
    """Measure the memory of a server with idle WebSockets."""
    process = server(folder, f"sqlite:///{folder}/live.db")
    await asyncio.to_thread(process.start)
    opened: list[ClientConnection] = []
    try:
        sizes = []
        for _ in range(3):
            opened += await asyncio.gather(
                *(connected(process.address, len(opened) + n) for n in range(SOCKETS))
            )
            sizes.append(resident(process.pid))
        each = (sizes[2] - sizes[0]) / (2 * SOCKETS) / 1024
        return f"{each:,.0f} kB per WebSocket, {sizes[0] >> 20} MB with {SOCKETS}"
    finally:
        await asyncio.gather(*(each.close() for each in opened))
        await asyncio.to_thread(process.stop)


async def connected(address: str, number: int) -> ClientConnection:
    socket = await connect(f"{address.replace('http', 'ws', 1)}/ws", open_timeout=60)
    await socket.send(json.dumps({"type": "hello", "session_id": f"session {number}"}))
    await socket.recv()
    return socket


def resident(process: int) -> int:
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * resource.getpagesize()


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="aforesaid-slopes-") as name, stores(Path(name)) as found:
        for store, (url, size) in found.items():
            print(f"{store}: {slope_of(url, size)}", flush=True)
        print(f"server: {asyncio.run(sockets(Path(name)))}", flush=True)


if __name__ == "__main__":
    main()
