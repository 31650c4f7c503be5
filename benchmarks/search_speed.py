"""How long a question takes: one owner with a long history, and the same beside many others.

    python -m benchmarks.search_speed [--conversations 1000] [--messages 100] [--others 0] [--words]

The words are made up by frequency, as in speech without its stop words: the most frequent is in every tenth
message, most are rare. Vectors are random
directions written as the indexer writes them, since to compare them costs the same.
"""

import argparse
import asyncio
import random
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy

import recollect
from benchmarks.measuring import p50
from recollect.contracts import Embedder
from recollect.manager import ConversationManager
from recollect.messages import Message
from recollect.search.encoders import UniversalEncoder
from recollect.search.indexing import Indexer

QUESTIONS = 200
_SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "an", "en", "or")]


class RandomVectors:
    """The encoder's name and size, with directions made up for messages and real ones for questions."""

    def __init__(self) -> None:
        self._real = UniversalEncoder()
        self.name, self.dimension = self._real.name, self._real.dimension
        self._chance = numpy.random.default_rng(1)
        self.filling = True

    def embed(self, texts: Any) -> Any:
        if not self.filling:
            return self._real.embed(texts)
        rows = self._chance.normal(size=(len(texts), self.dimension)).astype(numpy.float32) + 0.5
        return rows / numpy.linalg.norm(rows, axis=1, keepdims=True)


class Speech:
    """Sentences of words that are as frequent as words are."""

    def __init__(self, words: int = 20_000) -> None:
        self._chance = random.Random(7)
        self._words = ["".join(self._chance.choices(_SYLLABLES, k=3)) + str(n % 7) for n in range(words)]
        self._weights = numpy.cumsum([1 / (rank + 30) for rank in range(words)]).tolist()

    def sentence(self, words: int) -> str:
        return " ".join(self._chance.choices(self._words, cum_weights=self._weights, k=words))

    def question(self) -> str:
        return self.sentence(self._chance.randint(3, 8))


async def fill(
    manager: ConversationManager,
    speech: Speech,
    *,
    conversations: int,
    messages: int,
    embedder: Embedder | None,
) -> None:
    start = datetime(2025, 1, 1, tzinfo=UTC)
    indexer = None if embedder is None else Indexer(embedder, written=lambda *_: None)
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
            await indexer.index("erin", manager.store, conversation.id)


async def ask(manager: ConversationManager, speech: Speech, *, warm: int = 20) -> list[float]:
    times = []
    for number in range(QUESTIONS + warm):
        question = speech.question()
        begin = perf_counter()
        await manager.search(question, 5)
        if number >= warm:
            times.append(perf_counter() - begin)
    return times


def shown(name: str, seconds: list[float]) -> str:
    p95 = sorted(seconds)[int(len(seconds) * 0.95)]
    return (
        f"{name:30} least {min(seconds) * 1e3:6.1f} ms   median {p50(seconds) * 1e3:6.1f} ms   "
        f"p95 {p95 * 1e3:6.1f} ms"
    )


async def main() -> None:
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--conversations", type=int, default=1_000)
    given.add_argument("--messages", type=int, default=100)
    given.add_argument("--others", type=int, default=0, help="owners beside, each with as much")
    given.add_argument("--words", action="store_true", help="by words alone")
    options = given.parse_args()
    embedder = None if options.words else RandomVectors()
    size = {"conversations": options.conversations, "messages": options.messages}
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'speed.db'}?synchronous=normal"
        async with recollect.open(url, ttl=None, sweep_every=None, embedder=embedder) as memory:
            speech, erin = Speech(), memory.of("erin")
            await fill(erin, speech, **size, embedder=embedder)
            if embedder is not None:
                embedder.filling = False
            await erin.search("the first reads everything")
            begin = process_time()
            print(shown("alone", await ask(erin, speech)), flush=True)
            print(f"processor time of a question: {(process_time() - begin) / (QUESTIONS + 20) * 1e3:.1f} ms")
            for other in range(options.others):
                await fill(memory.of(f"other {other}"), speech, **size, embedder=None)
            if options.others:
                print(shown(f"beside {options.others} others", await ask(erin, speech)), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
