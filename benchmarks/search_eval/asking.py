"""Every question of a set, through the public door: a memory on SQLite, a manager, `search`."""

import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter

from msgspec import Struct

import aforesaid
from aforesaid.contracts import Embedder, Matches
from aforesaid.memory.manager import ConversationManager
from aforesaid.search.passages import Passage
from aforesaid.search.queries import analyze_question, lookup_terms
from aforesaid.search.ranking import AnalyzedQuestion, Key, Similarities, Weights
from aforesaid.search.relevance import MIN_RELEVANCE
from aforesaid.search.searcher import BY_WORDS
from benchmarks.search_eval.figures import Figures, judged
from benchmarks.search_eval.labelled import LabelledSet, Person, Question, Spot
from benchmarks.search_eval.simple import SimpleIndex


class Method(Struct, frozen=True, kw_only=True):
    """A way to search with our ranking."""

    name: str
    weights: Weights | None = None
    """None for the default."""
    by_meaning: bool = True


HYBRID = "hybrid (the default)"
WORDS = (
    Method(name="BM25", weights=Weights(words=1.0), by_meaning=False),
    Method(name="words, in context", by_meaning=False),
)
MEANING = (Method(name="meaning", weights=Weights(meaning=1.0)), Method(name=HYBRID))


class Answered(Struct, frozen=True, kw_only=True):
    person: str
    question: Question
    figures: Figures
    best: float = 0.0
    """The relevance of the first result."""
    recall_above_floor: float = 0.0
    """Recall@10 of the results that are relevant enough."""


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

    def questions(self) -> list[tuple[Person, Question]]:
        return [(person, question) for person in self._people for question in person.questions]

    def spot(self, person: Person, key: Key) -> Spot:
        """Return the place of a message in the set."""
        conversation_id, sequence = key
        return Spot(self._sessions[person.name][conversation_id], sequence)

    async def candidates(
        self, person: Person, question: Question
    ) -> tuple[AnalyzedQuestion, Matches, Similarities | None]:
        """Return what a question is ranked by."""
        searcher = self._memory.of(person.name).searcher
        now = question.asked_at or datetime.now(UTC)
        analyzed = analyze_question(question.text, now=now, zone=UTC)
        matches = await searcher.matches(lookup_terms(analyzed), limit=BY_WORDS)
        return analyzed, matches, await searcher.similarities(question.text)

    async def answers(self, weights: Weights | None) -> list[Answered]:
        """Return the answers to every question."""
        return [
            await self._ask(person, question, weights)
            for person in self._people
            for question in person.questions
        ]

    async def passages(self, person: Person, question: Question) -> Sequence[Passage]:
        """Return the first ten results, however relevant."""
        return await self._search(person, question, None)

    async def best_relevance(self, person: Person, question: Question) -> float:
        """Return the relevance of the first result; 0 without results."""
        found = await self._search(person, question, None)
        return max((one.relevance for one in found), default=0.0)

    async def _ask(self, person: Person, question: Question, weights: Weights | None) -> Answered:
        started = perf_counter()
        passages = await self._search(person, question, weights)
        seconds = perf_counter() - started
        numbers = self._sessions[person.name]
        found = [Spot(numbers[one.conversation_id], one.sequence) for one in passages]
        above = found[: sum(one.relevance >= MIN_RELEVANCE for one in passages)]
        gold = frozenset(question.gold)
        return Answered(
            person=person.name,
            question=question,
            figures=judged(found, gold, seconds),
            best=max((one.relevance for one in passages), default=0.0),
            recall_above_floor=judged(above, gold, seconds).recall_10,
        )

    async def _search(self, person: Person, question: Question, weights: Weights | None) -> Sequence[Passage]:
        manager: ConversationManager = self._memory.of(person.name)
        manager.searcher.weights = weights
        self._clock.now = question.asked_at or datetime.now(UTC)
        return (await manager.search(question.text, 10, timezone=UTC, min_relevance=0)).passages


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


def simple_answers(labelled: LabelledSet, *, bonuses: bool) -> list[Answered]:
    """Return the answers of FTS5."""
    answers = []
    for person in labelled.people:
        index = SimpleIndex(person)
        for question in person.questions:
            started = perf_counter()
            found = index.search(question.text, bonuses=bonuses)
            figures = judged(found, frozenset(question.gold), perf_counter() - started)
            answers.append(Answered(person=person.name, question=question, figures=figures))
    return answers
