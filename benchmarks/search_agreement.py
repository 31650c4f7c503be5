"""How often stores find the same: `python -m benchmarks.search_agreement [--sizes 100 300] [--words]`.

The first store is the one in memory, which scores every message that contains a word of the question. Beside
it are SQLite, Redis and PostgreSQL. The same history goes into each, made up as in `search_speed`, and the
same questions are asked. `make eval` does the same with the labelled sets as one history.
"""

import argparse
import asyncio
import random
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import Struct
from tests.servers.postgres import Databases
from tests.servers.redis import running

import aforesaid
from aforesaid.contracts import Embedder
from aforesaid.memory.manager import ConversationManager
from aforesaid.search.searcher import Findings
from benchmarks.postgres import server
from benchmarks.search_eval.labelled import LabelledSet
from benchmarks.search_speed import RandomVectors, Speech, fill

RESULTS = 10
QUESTIONS = 250
SIZES = (100, 300)
"""Conversations of a hundred messages."""
STORES = ("SQLite", "Redis", "PostgreSQL")
"""Compared with the store in memory."""
ASKED_AT = datetime(2026, 1, 1, tzinfo=UTC)


class Agreement(Struct, kw_only=True):
    """What a store has in common with the one in memory, summed over questions."""

    asked: int = 0
    first: int = 0
    all_in_order: int = 0
    shared: float = 0.0

    def note(self, one: Findings, other: Findings) -> None:
        ours, theirs = places(one), places(other)
        self.asked += 1
        self.first += ours[:1] == theirs[:1]
        self.all_in_order += ours == theirs
        longest = max(len(ours), len(theirs))
        self.shared += len(set(ours) & set(theirs)) / longest if longest else 1.0

    def shares(self) -> dict[str, float]:
        """Return the shares of questions with the same first result, with the same ten, and of the ten."""
        asked = max(self.asked, 1)
        return {
            "asked": self.asked,
            "first": self.first / asked,
            "all_in_order": self.all_in_order / asked,
            "shared": self.shared / asked,
        }


def places(found: Findings) -> list[tuple[object, ...]]:
    """Return the messages of the results; ids of conversations differ between stores."""
    return [(one.said_at, one.speaker, one.text, one.sequence) for one in found.passages]


@asynccontextmanager
async def memories(embedder: Embedder | None) -> AsyncIterator[dict[str, aforesaid.Memory]]:
    """An empty memory on every store, with servers of their own."""
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        port = stack.enter_context(running())
        postgres = stack.enter_context(server(None))
        urls = {
            "memory": "memory://",
            "SQLite": f"sqlite:///{Path(folder) / 'agree.db'}?synchronous=normal",
            "Redis": f"redis://127.0.0.1:{port}/0?timeout=120",
            "PostgreSQL": Databases(postgres).new(),
        }
        yield {
            name: await stack.enter_async_context(
                aforesaid.open(
                    url,
                    ttl=None,
                    retention=aforesaid.Retention(sweep_every=None),
                    layers=aforesaid.Layers(resilience="off"),
                    models=aforesaid.Models(embedder=embedder),
                    clock=lambda: ASKED_AT,
                )
            )
            for name, url in urls.items()
        }


async def compared(
    managers: Mapping[str, ConversationManager], questions: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Return what each store has in common with the one in memory."""
    sums = {name: Agreement() for name in STORES}
    for question in questions:
        found = {name: await one.search(question, RESULTS, timezone=UTC) for name, one in managers.items()}
        for name, agreement in sums.items():
            agreement.note(found["memory"], found[name])
    return {name: agreement.shares() for name, agreement in sums.items()}


async def made_up(conversations: int, questions: int, *, by_words: bool) -> dict[str, dict[str, float]]:
    """Compare the stores on a history of made-up sentences."""
    embedder = None if by_words else RandomVectors()
    async with memories(embedder) as opened:
        managers = {name: memory.of("erin") for name, memory in opened.items()}
        for manager in managers.values():
            if embedder is not None:
                embedder.begin()
            await fill(manager, Speech(5), conversations=conversations, messages=100, embedder=embedder)
        if embedder is not None:
            embedder.filling = False
        speech = Speech(9)
        return await compared(managers, [speech.question() for _ in range(questions)])


async def pooled(
    sets: Sequence[LabelledSet], embedder: Embedder | None, questions: int = QUESTIONS
) -> dict[str, dict[str, float]]:
    """Compare the stores on all sets as the history of one owner, with some of their questions."""
    people = [person for one in sets for person in one.people]
    sessions = [messages for person in people for messages in person.sessions]
    asked = [question.text for person in people for question in person.questions]
    chosen = random.Random(1).sample(asked, min(questions, len(asked)))
    async with memories(embedder) as opened:
        managers = {name: memory.of("erin") for name, memory in opened.items()}
        for name, manager in managers.items():
            for number, messages in enumerate(sessions):
                conversation = await manager.get_or_create_conversation(f"session {number}")
                await manager.append(conversation.id, messages)
            if (indexer := opened[name].search_resources.indexer) is not None:
                await indexer.wait_until_idle()
        return await compared(managers, chosen)


def rows(title: str, found: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """Return the rows of a table, one for each store."""
    return [
        [title, name, f"{one['first']:.1%}", f"{one['all_in_order']:.1%}", f"{one['shared']:.1%}"]
        for name, one in found.items()
    ]


HEAD = ["history", "store", "the same first result", "the same ten in the same order", "of the ten in common"]


async def main() -> None:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--words", action="store_true", help="by words alone")
    given.add_argument("--questions", type=int, default=QUESTIONS)
    given.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    options = given.parse_args()
    for size in options.sizes:
        found = await made_up(size, options.questions, by_words=options.words)
        for row in rows(f"{size * 100:,} messages", found):
            print(" | ".join(row), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
