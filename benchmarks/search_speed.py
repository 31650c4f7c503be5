"""How long a question takes: one owner with a long history, and the same beside many others.

    python -m benchmarks.search_speed [--conversations 1000] [--messages 100] [--others 0] [--words]

The words are made up by frequency, as in speech without its stop words: the most frequent is in every tenth
message, most are rare. Vectors are those of five hundred such sentences with random deviations, written as
the indexer writes them, those of the other owners too: to compare them costs the same. Questions are encoded
by the real encoder.

With `--others`, a second file has the same history of the same owner and as much of each of the others; both
are open at once and are asked the same questions in turn. Before every question a product of the size of a
fifth of a hundred thousand vectors is taken, as a floor: it tells a busy machine from slow code.
"""

import argparse
import asyncio
import random
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy

import aforesaid
from aforesaid.contracts import Embedder
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.messages import Message
from aforesaid.search.encoders import UniversalEncoder
from aforesaid.search.indexing import Indexer
from benchmarks.measuring import p50

OWNER = "erin"
QUESTIONS = 200
WARM = 20
"""Questions that are not counted."""
_SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "an", "en", "or")]


class RandomVectors:
    """The encoder's name and size, with vectors made up for messages and real ones for questions."""

    TOPICS = 500
    DEVIATION = 0.5
    """The length of a deviation; all vectors have length 1."""

    def __init__(self) -> None:
        self._real = UniversalEncoder()
        self.name, self.dimension = self._real.name, self._real.dimension
        self._topics: Any = None
        self.begin()

    def begin(self) -> None:
        """Make up vectors from here on: the same as the last time, in the same order."""
        self._chance = numpy.random.default_rng(1)
        self.filling = True

    def embed(self, texts: Any) -> Any:
        if not self.filling:
            return self._real.embed(texts)
        if self._topics is None:
            speech = Speech(11)
            self._topics = self._real.embed([speech.sentence(20) for _ in range(self.TOPICS)])
        deviations = self._chance.normal(size=(len(texts), self.dimension)) / self.dimension**0.5
        chosen = self._topics[self._chance.integers(self.TOPICS, size=len(texts))]
        rows = (chosen + self.DEVIATION * deviations).astype(numpy.float32)
        return rows / numpy.linalg.norm(rows, axis=1, keepdims=True)


class Speech:
    """Sentences of words that are as frequent as words are."""

    def __init__(self, seed: int = 0) -> None:
        self._chance = random.Random(seed)
        self._words, self._weights = _vocabulary()

    def sentence(self, words: int) -> str:
        return " ".join(self._chance.choices(self._words, cum_weights=self._weights, k=words))

    def question(self) -> str:
        return self.sentence(self._chance.randint(3, 8))


@cache
def _vocabulary(words: int = 20_000) -> tuple[list[str], list[float]]:
    """Words, and how frequent each is and all before it together."""
    chance = random.Random(7)
    named = ["".join(chance.choices(_SYLLABLES, k=3)) + str(n % 7) for n in range(words)]
    return named, numpy.cumsum([1 / (rank + 30) for rank in range(words)]).tolist()


async def fill(
    manager: ConversationManager,
    speech: Speech,
    *,
    conversations: int,
    messages: int,
    embedder: Embedder | None,
) -> None:
    start = datetime(2025, 1, 1, tzinfo=UTC)
    indexer = None if embedder is None else Indexer(embedder, on_written=lambda *_: None)
    for number in range(conversations):
        conversation = await manager.get_or_create_conversation(f"s{number}")
        said = [
            Message(
                role="user" if at % 2 == 0 else "assistant",
                content=speech.sentence(12 if at % 2 == 0 else 30),
                timestamp=start + timedelta(hours=number, seconds=at),
            )
            for at in range(messages)
        ]
        await manager.store.append(conversation.id, said)
        if indexer is not None:
            await indexer.index(manager.owner, manager.store, conversation.id)


class Taken:
    """Seconds of a step, one of many: on the clock, and of the processor in all threads."""

    def __init__(self) -> None:
        self.clock: list[float] = []
        self.processor: list[float] = []

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        clock, processor = perf_counter(), process_time()
        yield
        self.clock.append(perf_counter() - clock)
        self.processor.append(process_time() - processor)

    def figures(self) -> dict[str, float]:
        """Return the least, the median and the p95 of both, in seconds."""
        clock, processor = sorted(self.clock[WARM:]), sorted(self.processor[WARM:])
        return {
            "least": clock[0],
            "p50": p50(clock),
            "p95": clock[int(len(clock) * 0.95)],
            "processor": p50(processor),
            "processor_p95": processor[int(len(processor) * 0.95)],
        }

    def shown(self, name: str) -> str:
        clock, processor = (self._shown(seconds[WARM:]) for seconds in (self.clock, self.processor))
        return f"{name:24} clock: {clock}   processor: {processor}"

    def _shown(self, seconds: list[float]) -> str:
        p95 = sorted(seconds)[int(len(seconds) * 0.95)]
        return f"least {min(seconds) * 1e3:6.1f} p50 {p50(seconds) * 1e3:6.1f} p95 {p95 * 1e3:6.1f} ms"


async def ask(
    managers: Mapping[str, ConversationManager], speech: Speech, questions: int = QUESTIONS
) -> dict[str, Taken]:
    """The same questions to each, in turn, and a floor before every one."""
    taken = {name: Taken() for name in ("floor", *managers)}
    floor = numpy.random.default_rng(2).normal(size=(20_000, 512)).astype(numpy.float32)
    for number in range(questions + WARM):
        question = speech.question()
        for name in sorted(managers, reverse=number % 2 == 1):
            async with taken["floor"].one():
                numpy.vecdot(floor, floor[0])
            async with taken[name].one():
                await managers[name].search(question, 5)
    return taken


@asynccontextmanager
async def opened(path: Path, embedder: Embedder | None) -> AsyncIterator[aforesaid.Memory]:
    """A memory on this file that does nothing by itself."""
    async with aforesaid.open(
        f"sqlite:///{path}?synchronous=normal",
        ttl=None,
        retention=aforesaid.Retention(sweep_every=None),
        models=aforesaid.Models(embedder=embedder),
    ) as memory:
        yield memory


async def measure(path: Path, conversations: int, messages: int, questions: int) -> dict[str, Any]:
    """Fill this file with one owner's history and ask it, hybrid and warm, five passages each."""
    embedder = RandomVectors()
    async with opened(path, embedder) as memory:
        manager = memory.of(OWNER)
        await fill(manager, Speech(), conversations=conversations, messages=messages, embedder=embedder)
        embedder.filling = False
        taken = await ask({OWNER: manager}, Speech(), questions)
    figures = {"messages": conversations * messages, "questions": questions, **taken[OWNER].figures()}
    return {**figures, "floor": taken["floor"].figures()}


async def main() -> None:
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--conversations", type=int, default=1_000)
    given.add_argument("--messages", type=int, default=100)
    given.add_argument("--others", type=int, default=0, help="owners beside, each with as much")
    given.add_argument("--words", action="store_true", help="by words alone")
    given.add_argument("--folder", type=Path, help="for files to be asked again: those there are not filled")
    options = given.parse_args()
    embedder = None if options.words else RandomVectors()
    size = {"conversations": options.conversations, "messages": options.messages}
    files = {"alone": 0} | ({f"beside {options.others} others": options.others} if options.others else {})
    managers: dict[str, ConversationManager] = {}
    async with AsyncExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name, others in files.items():
            path = folder / f"{name}.db"
            is_new = not path.exists()
            memory = await stack.enter_async_context(opened(path, embedder))
            for owner, speech in zip((OWNER, *range(others)), map(Speech, range(others + 1)), strict=True):
                if is_new:
                    await fill(memory.of(str(owner)), speech, **size, embedder=embedder)
            managers[name] = memory.of(OWNER)
        if embedder is not None:
            embedder.filling = False
        for name, taken in (await ask(managers, Speech())).items():
            print(taken.shown(name), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
