"""The least possible work: the engine itself, called directly. The Redis and PostgreSQL drivers are ours."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.peers.contract import WINDOW, BlockingPeer, Peer, roles
from benchmarks.peers.yardstick import FileYardstick, SQLiteYardstick


class SQLite3(BlockingPeer):
    """Python's own `sqlite3`: two rows in a durable transaction."""

    async def open(self, place: str) -> None:
        self._rows = SQLiteYardstick(Path(place) / "floor.db")

    async def append_turn(self, session: str, question: str, answer: str, *, fresh: bool = False) -> None:
        self._rows.turn(session, question, answer)

    async def grow(self, session: str, texts: Sequence[str]) -> None:
        rows = [(session, at, role, text) for at, (role, text) in enumerate(roles(texts), 1)]
        self._rows.db.execute("BEGIN")
        self._rows.db.executemany("INSERT INTO messages VALUES (?, ?, ?, ?)", rows)
        self._rows.db.execute("COMMIT")

    async def window(self, session: str, *, fresh: bool = False) -> list[str]:
        return self._rows.tail(session, WINDOW)

    async def everything(self, session: str) -> list[str]:
        return self._rows.tail(session, -1)

    async def close(self) -> None:
        self._rows.close()


class File(BlockingPeer):
    """A line for each message at the end of a file, and `fdatasync`. One file for each session."""

    async def open(self, place: str) -> None:
        self.place = Path(place)
        self._files: dict[str, FileYardstick] = {}

    async def append_turn(self, session: str, question: str, answer: str, *, fresh: bool = False) -> None:
        self._of(session).turn(question, answer)

    def _of(self, session: str) -> FileYardstick:
        if session not in self._files:
            self._files[session] = FileYardstick(self.place / f"{session}.txt")
        return self._files[session]

    async def grow(self, session: str, texts: Sequence[str]) -> None:
        self._of(session)
        (self.place / f"{session}.txt").write_text("".join(f"{text}\n" for text in texts))

    async def window(self, session: str, *, fresh: bool = False) -> list[str]:
        """The last lines, read from the end."""
        with (self.place / f"{session}.txt").open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - WINDOW * 400))
            return file.read().decode().splitlines()[-WINDOW:]

    async def everything(self, session: str) -> list[str]:
        return (self.place / f"{session}.txt").read_text().splitlines()

    async def close(self) -> None:
        for file in self._files.values():
            file.close()


class Redis(Peer):
    """`RPUSH` and `HSET` in one pipeline."""

    packages: ClassVar[Sequence[str]] = ("redis",)

    async def open(self, place: str) -> None:
        from redis.asyncio import Redis as Client

        self.client: Any = Client.from_url(place, decode_responses=True)

    async def append_turn(self, session: str, question: str, answer: str, *, fresh: bool = False) -> None:
        async with self.client.pipeline(transaction=False) as pipe:
            pipe.rpush(f"floor:{session}", question, answer)
            pipe.hset(f"floor:{session}:record", mapping={"last": "assistant", "count": 2})
            await pipe.execute()

    async def grow(self, session: str, texts: Sequence[str]) -> None:
        for start in range(0, len(texts), 5_000):
            await self.client.rpush(f"floor:{session}", *texts[start : start + 5_000])

    async def window(self, session: str, *, fresh: bool = False) -> list[str]:
        return list(await self.client.lrange(f"floor:{session}", -WINDOW, -1))

    async def everything(self, session: str) -> list[str]:
        return list(await self.client.lrange(f"floor:{session}", 0, -1))

    async def written(self) -> int:
        return int((await self.client.info("persistence")).get("aof_current_size", 0))

    async def close(self) -> None:
        await self.client.aclose()


class Postgres(Peer):
    """`BEGIN`, two rows in one `INSERT`, `COMMIT`, over a pool of connections."""

    packages: ClassVar[Sequence[str]] = ("psycopg",)
    TABLE = (
        "CREATE TABLE IF NOT EXISTS floor (session text, sequence bigint GENERATED ALWAYS AS IDENTITY,"
        " role text, body text, PRIMARY KEY (session, sequence))"
    )
    INSERT = "INSERT INTO floor (session, role, body) VALUES (%s, 'user', %s), (%s, 'assistant', %s)"
    TAIL = "SELECT body FROM floor WHERE session = %s ORDER BY sequence DESC LIMIT %s"

    async def open(self, place: str) -> None:
        import psycopg
        from psycopg_pool import AsyncConnectionPool

        self.connection: Any = await psycopg.AsyncConnection.connect(place, autocommit=True)
        await self.connection.execute(self.TABLE)
        self.pool: Any = AsyncConnectionPool(place, open=False, min_size=1, max_size=16)
        await self.pool.open()

    async def append_turn(self, session: str, question: str, answer: str, *, fresh: bool = False) -> None:
        async with self.pool.connection() as connection:
            await connection.execute(self.INSERT, (session, question, session, answer))

    async def grow(self, session: str, texts: Sequence[str]) -> None:
        async with (
            self.connection.transaction(),
            self.connection.cursor() as cursor,
            cursor.copy("COPY floor (session, role, body) FROM STDIN") as copy,
        ):
            for role, text in roles(texts):
                await copy.write_row((session, role, text))

    async def window(self, session: str, *, fresh: bool = False) -> list[str]:
        return await self._tail(session, WINDOW)

    async def everything(self, session: str) -> list[str]:
        return await self._tail(session, None)

    async def _tail(self, session: str, limit: int | None) -> list[str]:
        rows = await (await self.connection.execute(self.TAIL, (session, limit))).fetchall()
        return [body for (body,) in reversed(rows)]

    async def written(self) -> int:
        sql = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint"
        return int((await (await self.connection.execute(sql)).fetchone())[0])

    async def close(self) -> None:
        await self.pool.close()
        await self.connection.close()
