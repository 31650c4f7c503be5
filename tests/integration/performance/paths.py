"""The hot paths, each as a step of ours and a step of its floor, on one SQLite file."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import apsw
import msgspec
from benchmarks.floors import Floor
from benchmarks.search_writes import Texts
from benchmarks.turns import ANSWER, QUESTION, bodies

import aforesaid
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.messages import Message
from aforesaid.stores.sqlite import SQLiteBackend
from aforesaid.stores.sqlite.snapshots import SnapshotCache
from aforesaid.tokens import default_counter, ready
from tests.integration.performance.guard import Engine, Steps

MESSAGES = 2_000
"""Of the conversation that windows and searches look at."""
WINDOW = 20


class Bench:
    """A store with a long conversation in it, open on a loop of its own, and the floor beside it."""

    def __init__(self, folder: Path, runner: asyncio.Runner) -> None:
        self.engine = Engine()
        self._runner = runner
        self._path = folder / "ours.db"
        self._url = f"sqlite:///{self._path}?synchronous=normal"
        self.floor = Floor(folder / "floor.db", synchronous="normal")
        self._key = self.floor.conversation()
        self._rows = bodies()

    async def open(self) -> None:
        await self._fill()
        await self._index()
        self._memory = await aforesaid.open(
            self._url, retention=aforesaid.Retention(sweep_every=None), models=aforesaid.Models(embedder=None)
        )
        await ready(default_counter())
        self.manager: ConversationManager = self._memory.of("erin")
        self.id = (await self.manager.get_or_create_conversation("kitchen")).id
        self._read = apsw.Connection(str(self._path))

    async def _fill(self) -> None:
        async with aforesaid.open(
            self._url, retention=aforesaid.Retention(sweep_every=None), models=aforesaid.Models(embedder=None)
        ) as memory:
            erin = memory.of("erin")
            kitchen = await erin.get_or_create_conversation("kitchen")
            said: list[Message] = [message for pair in Texts(1).turns(MESSAGES // 2) for message in pair]
            for start in range(0, len(said), 500):
                await erin.append(kitchen.id, said[start : start + 500])

    async def _index(self) -> None:
        """All of it is in the index before anything is measured: nothing is left to do at rest."""
        backend = SQLiteBackend(str(self._path))
        await backend.open()
        await backend.catch_up()
        await backend.close()

    async def close(self) -> None:
        self._read.close()
        self.floor.db.close()
        await self._memory.close()

    def ours(self, step: Callable[[], Awaitable[None]]) -> Steps:
        """Steps that are awaited, one after the other."""

        async def take(count: int) -> None:
            for _ in range(count):
                await step()

        return lambda count: self._runner.run(take(count))

    def bare(self, step: Callable[[], None]) -> Steps:
        """Steps on the calling thread."""

        def take(count: int) -> None:
            for _ in range(count):
                step()

        return take

    # Ours

    async def turn(self) -> None:
        async with self.manager.turn(self.id) as turn:
            turn.user(QUESTION)
            turn.assistant(ANSWER)

    async def window(self) -> None:
        """Of a conversation that was not read of late: every row is read, and the window is chosen."""
        cast(SQLiteBackend, self._memory.backend).snapshots = SnapshotCache()
        await self.manager.load_context(self.id)

    async def same_window(self) -> None:
        """Nothing was written since: it is looked up, and not chosen again."""
        await self.manager.load_context(self.id)

    async def search(self) -> None:
        await self.manager.search("w1f w64 w12c w3e8", 5)

    # The floors

    def bare_turn(self) -> None:
        self.floor.turn(self._key, self._rows)

    def bare_window(self) -> None:
        rows = self._read.execute(
            "SELECT body FROM messages WHERE conversation = 1 ORDER BY at DESC, sequence DESC LIMIT ?",
            (WINDOW,),
        )
        for (body,) in rows:
            msgspec.json.decode(body)

    bare_same_window = bare_window

    def bare_search(self) -> None:
        self._read.execute(
            "SELECT rowid, rank FROM message_terms WHERE message_terms MATCH ? ORDER BY rank LIMIT 100",
            ("w1f OR w64 OR w12c OR w3e8",),
        ).fetchall()


@contextmanager
def opened(folder: Path, *, watched: bool) -> Iterator[Bench]:
    """The bench. Watched, its engine counts, and takes time for it."""
    with asyncio.Runner() as runner:
        bench = Bench(folder, runner)
        hooks = [bench.engine.watch] if watched else []
        apsw.connection_hooks.extend(hooks)
        try:
            runner.run(bench.open())
            yield bench
        finally:
            runner.run(bench.close())
            for hook in hooks:
                apsw.connection_hooks.remove(hook)
