"""What a turn costs on PostgreSQL: beside a bare INSERT of the same rows, as a conversation grows, and
beside a design that keeps all messages in one JSONB column. All on one private server, in one run.

    python -m benchmarks.postgres [--url postgresql://…] [--turns 400]
"""

import argparse
import asyncio
import contextlib
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator

import psycopg
from psycopg.types.json import Jsonb
from tests.servers.postgres import Databases, PostgresServer

from aforesaid.model.conversations import started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.model.wire import encode_message
from aforesaid.stores.postgres import PostgresBackend
from aforesaid.stores.postgres.store import PostgresStore

LENGTHS = (10, 1_000, 100_000)
WRITERS = (1, 8, 32)
TURN = [
    Message(role="user", content="Is the front door locked, and are the lights in the hall still on?"),
    Message(role="assistant", content="The door is locked. I switched the hall lights off a minute ago."),
]
BARE_TABLE = """
CREATE TABLE bare (
    owner text, conversation_id uuid, at timestamptz, sequence bigint, role text, message_key text,
    revision bigint, stored_at timestamptz, body text, PRIMARY KEY (owner, conversation_id, at, sequence))
"""
BARE_INSERT = b"INSERT INTO bare VALUES " + b", ".join(
    [b"(%s, %s, now(), %s, %s, %s, 1, now(), %s)"] * len(TURN)
)
ONE_COLUMN_TABLE = "CREATE TABLE one_column (id uuid PRIMARY KEY, messages jsonb NOT NULL)"

Work = Callable[[], Awaitable[object]]


def named(message: Message) -> Message:
    """With an id, as every message has that came through a manager."""
    return message.with_(message_id=new_id())


async def timed(turns: int, *works: Work) -> list[float]:
    """The median milliseconds of each, taking turns so that a disturbance meets all alike."""
    samples: list[list[float]] = [[] for _ in works]
    for _ in range(turns):
        for work, took in zip(works, samples, strict=True):
            begin = time.perf_counter()
            await work()
            took.append((time.perf_counter() - begin) * 1000)
    return [statistics.median(took) for took in samples]


class Bench:
    def __init__(self, backend: PostgresBackend, connection: psycopg.AsyncConnection, turns: int) -> None:
        self.store: PostgresStore = backend.of("bench")
        self.connection = connection
        self.turns = turns
        self.bodies = [encode_message(message).decode() for message in TURN]

    async def conversation(self, length: int) -> str:
        record = await self.store.create(started(new_id(), now=self.store.now()))
        for begin in range(0, length, 5_000):
            size = min(5_000, length - begin)
            await self.store.append(record.id, [named(TURN[n % 2]) for n in range(size)])
        return record.id

    async def one_column(self, length: int) -> str:
        key, documents = new_id(), [TURN[n % 2].to_dict() for n in range(length)]
        await self.connection.execute("INSERT INTO one_column VALUES (%s, %s)", (key, Jsonb(documents)))
        return key

    def append(self, conversation_id: str) -> Work:
        return lambda: self.store.append(conversation_id, [named(message) for message in TURN])

    def bare(self) -> Work:
        key, sequence = new_id(), iter(range(10**9))

        def values() -> list[object]:
            rows = zip(TURN, self.bodies, strict=True)
            return [v for m, body in rows for v in ("bench", key, next(sequence), m.role, new_id(), body)]

        return lambda: self.connection.execute(BARE_INSERT, values())

    def bare_three_trips(self) -> Work:
        insert = self.bare()

        async def work() -> None:
            async with self.connection.transaction():
                await insert()

        return work

    def rewrite_column(self, key: str) -> Work:
        documents = Jsonb([message.to_dict() for message in TURN])
        sql = b"UPDATE one_column SET messages = messages || %s WHERE id = %s"
        return lambda: self.connection.execute(sql, (documents, key))

    async def beside_bare(self) -> None:
        works = self.append(await self.conversation(10)), self.bare(), self.bare_three_trips()
        await timed(50, *works)
        ours, bare, three = await timed(self.turns, *works)
        print(f"a turn of {len(TURN)} messages, p50: {ours:.3f} ms")
        print(f"  bare INSERT, one statement:      {bare:.3f} ms, so {ours / bare:.2f} x")
        print(f"  bare BEGIN, INSERT, COMMIT:      {three:.3f} ms, so {ours / three:.2f} x")

    async def growing(self) -> None:
        print(f"{'messages':>10} {'append p50':>12} {'tail of 20':>12} {'one JSONB column':>18}")
        for length in LENGTHS:
            conversation_id, key = await self.conversation(length), await self.one_column(length)
            tail: Work = lambda: self.store.tail(conversation_id, limit=20)  # noqa: B023, E731
            ours, read = await timed(self.turns // 2, self.append(conversation_id), tail)
            (column,) = await timed(5 if length > 10_000 else 50, self.rewrite_column(key))
            print(f"{length:>10} {ours:>9.3f} ms {read:>9.3f} ms {column:>15.3f} ms")

    async def together(self) -> None:
        for writers in WRITERS:
            ids = [await self.conversation(0) for _ in range(writers)]
            begin = time.perf_counter()
            await asyncio.gather(*(self.many(conversation_id, 800 // writers) for conversation_id in ids))
            rate = 800 // writers * writers / (time.perf_counter() - begin)
            print(f"{writers:>3} writers, each in its own conversation: {rate:,.0f} turns/s")

    async def many(self, conversation_id: str, turns: int) -> None:
        for _ in range(turns):
            await self.store.append(conversation_id, TURN)


async def run(url: str, turns: int) -> None:
    backend = PostgresBackend(url)
    await backend.open()
    connection = await psycopg.AsyncConnection.connect(url, autocommit=True)
    async with connection:
        await connection.execute(BARE_TABLE.encode())
        await connection.execute(ONE_COLUMN_TABLE.encode())
        bench = Bench(backend, connection, turns)
        await bench.beside_bare()
        await bench.growing()
        await bench.together()
    await backend.close()


@contextlib.contextmanager
def server(url: str | None) -> Iterator[str]:
    if url is not None:
        yield url
        return
    private = PostgresServer()
    try:
        private.start()
        yield private.url
    finally:
        private.stop()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", help="a server to use, as its superuser, instead of a private one")
    parser.add_argument("--turns", type=int, default=400, help="turns to take the median of")
    given = parser.parse_args()
    with server(given.url) as admin_url:
        databases = Databases(admin_url)
        try:
            asyncio.run(run(databases.new(), given.turns))
        finally:
            databases.drop()


if __name__ == "__main__":
    main()
