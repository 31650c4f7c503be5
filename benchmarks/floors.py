"""The least possible work: the same rows through `apsw`, called directly, with the same pragmas."""

import asyncio
import queue
import threading
from collections.abc import Callable
from pathlib import Path

from recollect.clock import system_clock, to_micros
from recollect.ids import new_id
from recollect.stores.sql_files import queries, sql_file
from recollect.stores.sqlite.connections import PACKAGE, connect

SQL = queries(PACKAGE)


class Floor:
    """One file with our schema and the same inserts and update as a turn makes, and nothing else."""

    def __init__(self, path: Path, *, synchronous: str) -> None:
        self.db = connect(str(path), synchronous=synchronous)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute(sql_file(PACKAGE, "schema.sql"))
        self._sequences: dict[int, int] = {}

    def conversation(self) -> int:
        """A new conversation; returns its key."""
        now = to_micros(system_clock())
        values = ("floor", new_id(), "voice", "open", "normal", None, None, None, None, "[]", None)
        self.db.execute(SQL["insert_conversation"], (*values, None, None, 0, 0, 0, None, None, now, now))
        key = self.db.last_insert_rowid()
        self._sequences[key] = 1
        return key

    def turn(self, key: int, bodies: tuple[str, ...]) -> None:
        """One durable turn."""
        self.db.execute("BEGIN IMMEDIATE")
        self.rows(key, bodies)
        self.db.execute("COMMIT")

    def rows(self, key: int, bodies: tuple[str, ...]) -> None:
        """The rows of a turn, inside a transaction."""
        now = to_micros(system_clock())
        sequence = self._sequences[key]
        for body in bodies:
            self.db.execute(SQL["insert_message"], (key, now, sequence, new_id(), 1, now, body))
            sequence += 1
        self._sequences[key] = sequence
        self.db.execute(
            SQL["extend_conversation"],
            (now, "assistant", sequence, sequence, sequence, None, now, sequence, key),
        )


class Handover:
    """A thread that runs what it is handed, and an await for the result: the floor of an async call."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[Callable[[], None], asyncio.Future[None]] | None] = (
            queue.SimpleQueue()
        )
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    async def run(self, work: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        self._queue.put((work, done))
        await done

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()

    def _serve(self) -> None:
        while (item := self._queue.get()) is not None:
            work, done = item
            work()
            done.get_loop().call_soon_threadsafe(done.set_result, None)
