"""The hot paths, each as a step of ours and a step of its floor, on one SQLite file."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import msgspec
from benchmarks.floors import Floor
from benchmarks.search_writes import Texts
from benchmarks.turns import ANSWER, QUESTION, bodies

import recollect
from recollect.manager import ConversationManager
from recollect.messages import Message
from recollect.tokens import default_counter, ready
from tests.performance.guard import Steps

MESSAGES = 2_000
"""Of the conversation that windows and searches look at."""
WINDOW = 20


class Bench:
    """A store with a long conversation in it, open on a loop of its own, and the floor beside it."""

    def __init__(self, folder: Path, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._folder = folder
        self.floor = Floor(folder / "floor.db", synchronous="normal")
        self._key = self.floor.conversation()
        self._rows = bodies()

    async def open(self) -> None:
        url = f"sqlite:///{self._folder}/ours.db?synchronous=normal"
        self._memory = await recollect.open(url, sweep_every=None, embedder=None)
        await ready(default_counter())
        self.manager: ConversationManager = self._memory.of("erin")
        self.id = (await self.manager.get_or_create_conversation("kitchen")).id
        texts = Texts(1)
        said: list[Message] = [message for pair in texts.turns(MESSAGES // 2) for message in pair]
        for start in range(0, len(said), 500):
            await self.manager.append(self.id, said[start : start + 500])
        self._read = apsw.Connection(f"{self._folder}/ours.db")
        self._asked = self.manager.intake.messages([{"role": "user", "content": QUESTION}])

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
        """As a turn asks for it: what is being said is not stored yet, so it is chosen anew."""
        await self.manager.load_context(self.id, pending=self._asked)

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
def opened(folder: Path) -> Iterator[Bench]:
    with asyncio.Runner() as runner:
        bench = Bench(folder, runner)
        runner.run(bench.open())
        try:
            yield bench
        finally:
            runner.run(bench.close())
