"""How often stores find the same: `python -m benchmarks.search_agreement [--data DIR] [--words] [URL ...]`.

The first store is the one in memory, which scores every message that has a word of the question. Beside it
stand SQLite and every URL that is given. The same histories go into each, made up ones of several sizes
(as in `search_speed`) and the labelled sets where they are, and the same questions are asked.
"""

import argparse
import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC
from pathlib import Path

from msgspec import Struct

import aforesaid
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.ids import new_id
from aforesaid.search.encoders import encoder_named
from aforesaid.search.searcher import Findings
from benchmarks.search_eval.labelled import Person, read_sets
from benchmarks.search_speed import RandomVectors, Speech, fill

RESULTS = 5
QUESTIONS = 100
SIZES = (10, 30, 100, 300, 1_000)
"""Conversations of a hundred messages."""


class Agreement(Struct, kw_only=True):
    """What two stores have in common, summed over questions."""

    asked: int = 0
    first: int = 0
    all_in_order: int = 0
    shared: float = 0.0

    def note(self, one: Findings, other: Findings) -> None:
        ours, theirs = places(one), places(other)
        self.asked += 1
        self.first += ours[:1] == theirs[:1]
        self.all_in_order += ours == theirs
        self.shared += len(set(ours) & set(theirs)) / max(len(ours), len(theirs), 1)

    def shown(self) -> str:
        of = max(self.asked, 1)
        return (
            f"{self.asked} questions: the first {self.first / of:.0%}, "
            f"all five in order {self.all_in_order / of:.0%}, of five in common {self.shared / of:.0%}"
        )


def places(found: Findings) -> list[tuple[object, ...]]:
    return [(one.said_at, one.speaker, one.text) for one in found.passages]


@asynccontextmanager
async def memories(urls: Sequence[str], embedder: object) -> AsyncIterator[dict[str, aforesaid.Memory]]:
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        named = {"memory": "memory://", "sqlite": f"sqlite:///{Path(folder) / 'agree.db'}?synchronous=normal"}
        named |= {url.partition(":")[0]: url for url in urls}
        yield {
            name: await stack.enter_async_context(
                aforesaid.open(
                    url,
                    ttl=None,
                    retention=aforesaid.Retention(sweep_every=None),
                    models=aforesaid.Models(embedder=embedder),  # type: ignore[arg-type]
                )
            )
            for name, url in named.items()
        }


async def compare(managers: dict[str, ConversationManager], questions: Sequence[str], title: str) -> None:
    first, *others = managers
    sums = {name: Agreement() for name in others}
    for question in questions:
        found = {name: await one.search(question, RESULTS, timezone=UTC) for name, one in managers.items()}
        for name, agreement in sums.items():
            agreement.note(found[first], found[name])
    for name, agreement in sums.items():
        print(f"{title}, {name}: {agreement.shown()}", flush=True)


async def made_up(urls: Sequence[str], conversations: int, *, by_words: bool) -> None:
    embedder = None if by_words else RandomVectors()
    async with memories(urls, embedder) as opened:
        managers = {name: memory.of(f"agree-{new_id()}") for name, memory in opened.items()}
        for manager in managers.values():
            if embedder is not None:
                embedder.begin()
            await fill(manager, Speech(5), conversations=conversations, messages=100, embedder=embedder)
        if embedder is not None:
            embedder.filling = False
        speech = Speech(9)
        questions = [speech.question() for _ in range(QUESTIONS)]
        await compare(managers, questions, f"made up, {conversations * 100:,} messages")


async def labelled(urls: Sequence[str], title: str, person: Person, *, by_words: bool) -> None:
    async with memories(urls, None if by_words else encoder_named("installed")) as opened:
        managers = {name: memory.of(f"agree-{new_id()}") for name, memory in opened.items()}
        for name, manager in managers.items():
            for number, messages in enumerate(person.sessions):
                conversation = await manager.get_or_create_conversation(f"session {number}")
                await manager.append(conversation.id, messages)
            if (indexer := opened[name].search_resources.indexer) is not None:
                await indexer.wait_until_idle()
        await compare(managers, [one.text for one in person.questions], f"{title}, {person.name}")


async def main() -> None:
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("urls", nargs="*", help="more stores")
    given.add_argument("--data", type=Path, help="where the labelled sets are")
    given.add_argument("--words", action="store_true", help="by words alone")
    given.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    options = given.parse_args()
    for one in read_sets(options.data) if options.data else ():
        for person in one.people:
            await labelled(options.urls, one.name, person, by_words=options.words)
    for size in options.sizes:
        await made_up(options.urls, size, by_words=options.words)


if __name__ == "__main__":
    asyncio.run(main())
