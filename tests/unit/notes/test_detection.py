"""Preferences and facts in users' messages become notes, with their source, and can be undone."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

import aforesaid
from aforesaid.contracts import Ask, DetectedNote, OnText, Reply
from aforesaid.errors import AgentUnavailable, InvalidSetting
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.messages import Message
from aforesaid.notes.detection import DETECTED, NoteDetection
from aforesaid.notes.detectors import AgentDetector, notes_in_text
from aforesaid.notes.records import Source
from aforesaid.settings import ConversationConfig


@pytest.fixture
async def memory() -> AsyncIterator[aforesaid.Memory]:
    async with opened(detector="rules") as memory:
        yield memory


def opened(**models: Any) -> aforesaid.Memory:
    return aforesaid.open("memory://", models=aforesaid.Models(embedder=None, **models))


async def say(
    memory: aforesaid.Memory, text: object, *, message_id: str | None = None
) -> ConversationManager:
    erin = memory.of("erin")
    await erin.add_message("kitchen", "user", text, message_id=message_id)
    await memory.note_detection.wait_until_idle()
    return erin


async def texts(manager: ConversationManager) -> list[str]:
    return [note.text for note in await manager.notes()]


@pytest.mark.requirement("001-003")
async def test_a_preference_said_in_one_conversation_is_in_the_next(memory: aforesaid.Memory) -> None:
    erin = await say(memory, "Turn the lights on. I prefer the lights dim in the evening!", message_id="m1")
    (note,) = await erin.notes(tag=DETECTED)
    assert note.text == "I prefer the lights dim in the evening"
    record = await erin.get_conversation("kitchen")
    assert note.source == Source(conversation_id=record.id, message_id="m1")
    await erin.add_message("bedroom", "user", "Good evening")
    context = await erin.load_context("bedroom")
    assert "I prefer the lights dim in the evening" in str(context.messages[0].content)
    assert await memory.of("bob").notes() == []


@pytest.mark.requirement("001-003")
async def test_an_undone_note_makes_the_replaced_one_valid_again(
    memory: aforesaid.Memory,
) -> None:
    erin = memory.of("erin")
    await erin.remember("I live in Rome", subject="where I live")
    await say(memory, "By the way, I live in Paris")
    (note,) = await erin.notes()
    assert (note.text, note.tags) == ("I live in Paris", (DETECTED,))
    assert [one.text for one in await erin.forget(note.id, keep_replaced=True)] == ["I live in Paris"]
    assert await texts(erin) == ["I live in Rome"]
    await say(memory, "I live in Oslo")
    (note,) = await erin.notes()
    await erin.forget(note.id)
    assert await erin.notes(history=True) == [], "without keep_replaced, all of the subject is gone"


async def test_nothing_is_detected_by_default() -> None:
    async with aforesaid.open("memory://") as memory:
        erin = await say(memory, "I prefer tea")
        assert await erin.notes() == []
        await erin.append("kitchen", [Message(role="user", content="Remember that I prefer tea")])
    config = ConversationConfig(detect_notes="rules")
    async with aforesaid.open("memory://", config=config) as memory:
        assert await texts(await say(memory, "I prefer tea")) == ["I prefer tea"]
    with pytest.raises(InvalidSetting, match="detector"):
        aforesaid.open("memory://", models=aforesaid.Models(detector="magic"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("said", "noted"),
    [
        ("I love jazz.", "I love jazz"),
        ("I don’t like cilantro", "I don't like cilantro"),
        ("Hey, please call me Erin", "call me Erin"),
        ("I'm allergic to peanuts!", "I'm allergic to peanuts"),
        ("We are vegetarians", "We are vegetarians"),
        ("My favourite colour is green", "My favourite colour is green"),
        ("Our dog's name is Rex", "Our dog's name is Rex"),
        ("I work as a nurse", "I work as a nurse"),
        ("We have two kids", "We have two kids"),
        ("I usually get up at 6:30", "I usually get up at 6:30"),
        ("Always answer in German", "Always answer in German"),
        ("From now on, dim the lights at 9 pm", "dim the lights at 9 pm"),
        ("Remember that the spare key is with Ann", "the spare key is with Ann"),
        ("We keep the ladder in the garage", "We keep the ladder in the garage"),
        ("The heater is called Big Bertha", "The heater is called Big Bertha"),
    ],
)
def test_a_lasting_statement_is_a_note(said: str, noted: str) -> None:
    assert [note.text for note in notes_in_text(f"What is the time? Hm\n{said}\nThanks.")] == [noted]


@pytest.mark.parametrize(
    "said",
    [
        "Do I like jazz?",
        "I would like a table for two",
        "I'd prefer the window seat",
        "I like this one",
        "I like it if it rains",
        "Ann said I like jazz",
        "I am tired",
        "I work at home today",
        "My phone is dead",
        "Remember to buy milk",
        "Remember that my password is tulip",
        "My PIN is 1234",
        "Call me back later",
        "Turn on the lights",
        "I love " + "long stories " * 30,
        "",
    ],
)
def test_a_passing_or_secret_statement_is_none(said: str) -> None:
    assert list(notes_in_text(said)) == []


async def test_an_opposite_opinion_replaces_the_first(memory: aforesaid.Memory) -> None:
    await say(memory, "I like coffee")
    erin = await say(memory, "I don't like coffee")
    assert await texts(erin) == ["I don't like coffee"]
    assert len(await erin.notes(history=True)) == 2


async def test_only_new_messages_of_the_user_are_searched(memory: aforesaid.Memory) -> None:
    erin = memory.of("erin")
    await erin.add_message("kitchen", "assistant", "I love jazz")
    await say(memory, "I love jazz", message_id="m1")
    (note,) = await erin.notes()
    await erin.forget(note.id)
    await say(memory, "I love jazz", message_id="m1")
    assert await erin.notes() == [], "a message that is sent again is not searched again"


async def test_a_note_that_is_known_keeps_its_first_source(memory: aforesaid.Memory) -> None:
    await say(memory, "I love jazz", message_id="m1")
    erin = await say(memory, "I love jazz", message_id="m2")
    (note,) = await erin.notes()
    assert note.source is not None
    assert note.source.message_id == "m1"


class Slow:
    """A detector that waits until the test continues."""

    name = "slow"

    def __init__(self) -> None:
        self.asked, self.goes_on = asyncio.Event(), asyncio.Event()

    async def detect(self, message: Message) -> Sequence[DetectedNote]:
        self.asked.set()
        await self.goes_on.wait()
        return [DetectedNote(text="The code is 42")]


async def test_a_message_erased_during_detection_leaves_no_note() -> None:
    slow = Slow()
    async with opened(detector=slow) as memory:
        erin = memory.of("erin")
        await erin.add_message("kitchen", "user", "The code is 42", message_id="m1")
        await erin.add_message("hall", "user", "The code is 42")
        waiting = asyncio.create_task(memory.note_detection.wait_until_idle())
        await slow.asked.wait()
        await erin.erase("kitchen")
        await erin.erase("hall")
        slow.goes_on.set()
        await waiting
        assert await erin.notes(history=True) == []


class Failing:
    name = "failing"

    async def detect(self, message: Message) -> Sequence[DetectedNote]:
        if message.content == "first":
            raise AgentUnavailable("the model is away")
        if message.content == "second":
            raise ValueError("a mistake in an application")
        return [DetectedNote(text="  ")] if message.content == "third" else [DetectedNote(text="I love jazz")]


async def test_a_failing_detector_affects_no_conversation(caplog: pytest.LogCaptureFixture) -> None:
    async with opened(detector=Failing()) as memory:
        with caplog.at_level(logging.WARNING, logger="aforesaid.notes"):
            for text in ("first", "second", "third", "fourth"):
                erin = await say(memory, text)
        assert await texts(erin) == ["I love jazz"]
        assert (await erin.get_conversation("kitchen")).message_count == 4
    assert len([one for one in caplog.records if "no notes detected" in one.message]) == 3


class Model:
    """An agent that answers with this text."""

    name = "model"
    dialect = "plain"

    def __init__(self, answer: str) -> None:
        self.answer = answer
        self.asked: list[str] = []

    async def reply(self, ask: Ask, *, on_text: OnText | None = None) -> Reply:
        self.asked.append(str(ask.messages[0].content))
        return Reply(messages=(Message(role="assistant", content=self.answer),))

    async def close(self) -> None:
        """Nothing to release."""


@pytest.mark.requirement("001-003")
async def test_the_callers_model_detects_in_any_language() -> None:
    model = Model('```json\n[{"text": "Erin trinkt keinen Kaffee", "subject": "Kaffee"}]\n```')
    async with opened(detector=AgentDetector(model)) as memory:
        erin = await say(memory, "Kaffee ist nichts für mich")
        await say(memory, "   ")
        (note,) = await erin.notes(tag=DETECTED)
        assert (note.text, note.subject) == ("Erin trinkt keinen Kaffee", "Kaffee")
    assert model.asked == ["Kaffee ist nichts für mich"]


@pytest.mark.parametrize("answer", ["nothing", "[1]", '{"text": "x"}'])
async def test_an_answer_that_is_no_list_of_notes_is_refused(answer: str) -> None:
    with pytest.raises(AgentUnavailable, match="JSON array"):
        await AgentDetector(Model(answer)).detect(Message(role="user", content="I love jazz"))


async def test_the_queue_is_bounded_and_processed_on_close(caplog: pytest.LogCaptureFixture) -> None:
    async with opened(detector="rules") as memory:
        memory.note_detection = NoteDetection(memory.note_detection.detector, most_waiting=2)
        erin = memory.of("erin")
        for genre in ("jazz", "soul", "funk"):
            await erin.add_message("kitchen", "user", f"I love {genre}")
        await memory.note_detection.close()
        assert await texts(erin) == ["I love soul", "I love funk"]
        await say(memory, "I love rock")
        assert len(await texts(erin)) == 2, "closed"
