"""Every question of a set, through the public door: a memory on SQLite, a manager, `search`."""

import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter

from msgspec import Struct
from msgspec.structs import replace

import aforesaid
from aforesaid.contracts import Embedder
from aforesaid.memory.manager import ConversationManager
from aforesaid.search.ranking import WEIGHTS, Weights
from aforesaid.search.vectors import installed_encoder
from benchmarks.search_eval.figures import Figures, judged
from benchmarks.search_eval.labelled import LabelledSet, Person, Question, Spot

_NOTHING = Weights(words=0.0, meaning=0.0, speaker=0.0, date=0.0, conversation=0.0, previous=0.0, person=1.0)


class Method(Struct, frozen=True, kw_only=True):
    """A way to search."""

    name: str
    weights: Weights
    encoder: bool = True


METHODS = (
    Method(name="words", weights=replace(_NOTHING, words=1.0), encoder=False),
    Method(name="meaning", weights=replace(_NOTHING, meaning=1.0)),
    Method(name="words, in context", weights=WEIGHTS, encoder=False),
    Method(name="hybrid (the default)", weights=WEIGHTS),
)


class Answered(Struct, frozen=True, kw_only=True):
    person: str
    question: Question
    figures: Figures


class Clock:
    """The time at which a question is asked."""

    def __init__(self) -> None:
        self.now = datetime.now(UTC)

    def __call__(self) -> datetime:
        return self.now


class Asking:
    """A set in a store, ready to be asked."""

    def __init__(self, memory: aforesaid.Memory, clock: Clock, people: list[Person]) -> None:
        self._memory = memory
        self._clock = clock
        self._people = people
        self._sessions: dict[str, dict[str, int]] = {}

    async def fill(self) -> None:
        for person in self._people:
            manager = self._memory.of(person.name)
            numbers = self._sessions[person.name] = {}
            for number, messages in enumerate(person.sessions):
                conversation = await manager.get_or_create_conversation(f"session {number}", channel="text")
                await manager.append(conversation.id, messages)
                numbers[conversation.id] = number
        if self._memory.search_resources.indexer is not None:
            await self._memory.search_resources.indexer.wait_until_idle()

    async def answers(self, weights: Weights, people: Sequence[Person] | None = None) -> list[Answered]:
        """Every question, or those of some people."""
        return [
            Answered(
                person=person.name, question=question, figures=await self._ask(person, question, weights)
            )
            for person in people or self._people
            for question in person.questions
        ]

    async def _ask(self, person: Person, question: Question, weights: Weights) -> Figures:
        manager: ConversationManager = self._memory.of(person.name)
        manager.searcher.weights = weights
        self._clock.now = question.asked_at or datetime.now(UTC)
        started = perf_counter()
        findings = await manager.search(question.text, 10, timezone=UTC)
        seconds = perf_counter() - started
        numbers = self._sessions[person.name]
        found = [Spot(numbers[one.conversation_id], one.sequence) for one in findings.passages]
        return judged(found, frozenset(question.gold), seconds)


@asynccontextmanager
async def asking(labelled: LabelledSet, embedder: Embedder | None) -> AsyncIterator[Asking]:
    """The set in a fresh store, with vectors when there is an encoder."""
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'eval.db'}"
        async with aforesaid.open(
            url,
            ttl=None,
            retention=aforesaid.Retention(sweep_every=None),
            models=aforesaid.Models(embedder=embedder),
            clock=clock,
        ) as memory:
            ready = Asking(memory, clock, labelled.people)
            await ready.fill()
            yield ready


async def answers_by_method(labelled: LabelledSet) -> dict[str, list[Answered]]:
    """Every question by every method that this installation has."""
    found: dict[str, list[Answered]] = {}
    encoder = installed_encoder()
    for embedder in (None, encoder) if encoder else (None,):
        async with asking(labelled, embedder) as ready:
            for method in METHODS:
                if method.encoder == (embedder is not None):
                    found[method.name] = await ready.answers(method.weights)
    return {method.name: found[method.name] for method in METHODS if method.name in found}
