"""The assistant without a model, after a week of household talk."""

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import aforesaid
from aforesaid.agents import SupervisorAgent
from aforesaid.agents.configured import Assistants
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.messages import words_of
from aforesaid.testing import FixedClock
from tests.acceptance.household import HELD_OUT, TUNED, WEEK, Asked

MONDAY = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)


@pytest.fixture
async def erin(tmp_path: Path) -> AsyncIterator[ConversationManager]:
    clock = FixedClock(MONDAY)
    async with aforesaid.open(f"sqlite:///{tmp_path}/memory.db?synchronous=normal", clock=clock) as memory:
        erin = memory.of("erin")
        for number, day in enumerate(WEEK):
            for said in day:
                await assistant(erin).process_query(said, f"day {number}")
            clock.advance(timedelta(days=1))
        yield erin


def assistant(erin: ConversationManager) -> SupervisorAgent:
    return Assistants(timezone=UTC).of(erin)


async def judged(erin: ConversationManager, asked: Sequence[Asked]) -> dict[str, list[str]]:
    """The questions by verdict: right at first place, lower, refused, or wrong."""
    verdicts: dict[str, list[str]] = {"right": [], "lower": [], "refused": [], "wrong": []}
    for number, (question, answer) in enumerate(asked):
        said = await assistant(erin).process_query(question, f"question {number}")
        quotes = [line for line in said.splitlines() if line.startswith("- ")]
        verdicts[verdict(quotes, answer)].append(question)
    return verdicts


def verdict(quotes: Sequence[str], answer: str | None) -> str:
    if not quotes:
        return "right" if answer is None else "refused"
    hits = [answer is not None and answer.lower() in quote.lower() for quote in quotes]
    return "right" if hits[0] else "lower" if any(hits) else "wrong"


async def test_natural_questions_are_answered_at_first_place_and_none_wrongly(
    erin: ConversationManager,
) -> None:
    assert len(TUNED) + len(HELD_OUT) >= 50
    tuned, held_out = await judged(erin, TUNED), await judged(erin, HELD_OUT)
    assert tuned["wrong"] + held_out["wrong"] == []
    assert len(tuned["right"]) + len(held_out["right"]) >= 40
    assert len(held_out["right"]) >= 0.8 * len(HELD_OUT), held_out


async def test_what_happened_yesterday(erin: ConversationManager) -> None:
    said = await assistant(erin).process_query("What happened yesterday?", "today")
    assert "pancakes" in said
    assert said.index("smoke detector") < said.index("castle"), "in the order of the day"
    assert "- Yesterday you said" in said
    assert "On " not in said


async def test_everything_about_a_topic_is_deleted_after_a_confirmation(erin: ConversationManager) -> None:
    request = "Delete everything I said about the cat"
    asked = await assistant(erin).process_query(request, "today")
    assert "threw up on the carpet" in asked
    assert await assistant(erin).process_query("no, wait", "today") == "Nothing is deleted."
    assert "threw up" in await whole_log(erin)
    await assistant(erin).process_query(request, "today")
    receipt = await assistant(erin).process_query("Yes, delete it.", "today")
    assert receipt.startswith("Forgotten: 0 notes and ")
    log = await whole_log(erin)
    assert "threw up" not in log
    assert "pill every evening" not in log
    assert "pancakes" in log
    assert "I find nothing" in await assistant(erin).process_query("What did the cat do?", "later")


async def test_a_reminder_is_refused_honestly(erin: ConversationManager) -> None:
    said = await assistant(erin).process_query("Remind me tomorrow to call the vet", "today")
    assert said.startswith("I cannot remind you")


async def test_notes_about_food_answer_what_a_person_cannot_eat(erin: ConversationManager) -> None:
    await erin.remember("Erin is allergic to nuts", subject="nuts")
    await erin.remember("Erin has a lactose intolerance", subject="lactose")
    await erin.remember("The lights are dim at nine", subject="lights")
    found = [note.text for note in await erin.recall("what can I not eat?")]
    assert {"Erin is allergic to nuts", "Erin has a lactose intolerance"} <= set(found)
    assert "The lights are dim at nine" not in found


async def whole_log(erin: ConversationManager) -> str:
    records = (await erin.list()).conversations
    return "\n".join([words_of(one) for record in records for one in await erin.messages(record.id)])
