"""How long one search by words takes in SQLite: `python -m benchmarks.search_queries [messages] [owners]`.

Questions of five to eight words, rare and common ones, in texts whose words are as rare as in a language.
With several owners, one of them is asked who has as much as the one owner of a file beside it.
"""

import asyncio
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

from aforesaid.contracts import Searchable
from aforesaid.model.conversations import started
from aforesaid.model.ids import new_id
from aforesaid.stores.sqlite import SQLiteBackend
from benchmarks.search_writes import Texts

LIMIT = 500
"""Candidates, as many as the search of an owner asks for."""
PER_CONVERSATION = 100
RANKS = (30, 100, 300, 1_000, 3_000)
"""How common the words of a question are: about the 30th most common word, the 100th, and so on."""


def questions(count: int) -> list[list[str]]:
    chance = random.Random(7)
    return [
        [f"w{int(chance.choice(RANKS) * chance.uniform(0.5, 1.5)):x}" for _ in range(chance.randint(5, 8))]
        for _ in range(count)
    ]


async def fill(backend: SQLiteBackend, owner: str, messages: int, seed: int) -> None:
    store = backend.of(owner)
    texts = Texts(seed)
    for _ in range(messages // PER_CONVERSATION):
        record = await store.create(started(new_id(), now=store.now()))
        turn = [message for pair in texts.turns(PER_CONVERSATION // 2) for message in pair]
        await store.append(record.id, turn)


async def measure(backend: SQLiteBackend, owner: str, asked: list[list[str]]) -> list[float]:
    store = backend.of(owner)
    assert isinstance(store, Searchable)
    best = []
    for terms in asked:
        times = []
        for _ in range(5):
            begin = time.perf_counter()
            await store.matches(terms, limit=LIMIT)
            times.append(time.perf_counter() - begin)
        best.append(min(times))
    return best


def describe(name: str, seconds: list[float]) -> str:
    millis = sorted(second * 1e3 for second in seconds)
    p95 = statistics.quantiles(millis, n=20)[18]
    return f"{name}: p50 {statistics.median(millis):.1f} ms, p95 {p95:.1f} ms, most {millis[-1]:.1f} ms"


async def main(messages: int = 100_000, owners: int = 1) -> None:
    asked = questions(60)
    with tempfile.TemporaryDirectory() as folder:
        backends = {}
        for name, count in (("alone", 1), ("among others", owners)):
            if name in backends or (name == "among others" and owners == 1):
                continue
            backends[name] = SQLiteBackend(str(Path(folder) / f"{name}.db"), synchronous="normal")
            await backends[name].open()
            for number in range(count):
                await fill(backends[name], f"owner {number}", messages, number)
        results = {name: await measure(backend, "owner 0", asked) for name, backend in backends.items()}
        for name, seconds in results.items():
            print(describe(f"{messages:,} messages, {name}", seconds))
        if len(results) > 1:
            pairs = zip(results["among others"], results["alone"], strict=True)
            print(f"ratio {statistics.median(b / a for b, a in pairs):.2f}")
        for backend in backends.values():
            await backend.close()


if __name__ == "__main__":
    asyncio.run(main(*(int(argument) for argument in sys.argv[1:])))
