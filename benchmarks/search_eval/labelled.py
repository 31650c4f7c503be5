"""Labelled conversations: what was said, what is asked, and which turns hold the answer."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from aforesaid.model.messages import Message

BETWEEN_TURNS = timedelta(seconds=30)


class Spot(Struct, frozen=True):
    """A turn: the session it is in, and which of its turns it is, from 1."""

    session: int
    turn: int


class Question(Struct, frozen=True, kw_only=True):
    text: str
    category: str
    gold: frozenset[Spot]
    asked_at: datetime | None = None
    apart: bool = False
    """Whether it is reported, but no part of the overall figure."""
    unanswerable: bool = False
    """Whether it asks about something that was never said."""


class Person(Struct, frozen=True, kw_only=True):
    """One owner: sessions of messages, and questions about them."""

    name: str
    sessions: list[list[Message]]
    questions: list[Question]


class LabelledSet(Struct, frozen=True, kw_only=True):
    name: str
    people: list[Person]

    @property
    def turns(self) -> int:
        return sum(len(session) for person in self.people for session in person.sessions)


def read_sets(folder: Path) -> list[LabelledSet]:
    """The sets in a folder: files named locomo*.json, longmemeval*.json and beam*.json."""
    sets = [LabelledSet(name="LoCoMo", people=_all(folder, "locomo*.json", locomo))]
    sets.append(LabelledSet(name="LongMemEval", people=_all(folder, "longmemeval*.json", longmemeval)))
    sets.append(LabelledSet(name="BEAM", people=_all(folder, "beam*.json", beam)))
    return [one for one in sets if one.people]


def _all(folder: Path, pattern: str, read: Any) -> list[Person]:
    return [
        replace(person, name=f"{file.stem}: {person.name}")
        for file in sorted(folder.glob(pattern))
        for person in read(json.loads(file.read_text("utf-8")))
    ]


# LoCoMo: two people, many sessions; each sample is one owner

LOCOMO_CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}


def locomo(document: list[dict[str, Any]]) -> Iterator[Person]:
    for sample in document:
        places: dict[str, Spot] = {}
        sessions = [
            [_locomo_message(turn, at, started) for at, turn in enumerate(turns)]
            for started, turns in _locomo_sessions(sample["conversation"], places)
        ]
        questions = [question for qa in sample["qa"] if (question := _locomo_question(qa, places)).gold]
        yield Person(name=str(sample["sample_id"]), sessions=sessions, questions=questions)


def _locomo_sessions(
    conversation: dict[str, Any], places: dict[str, Spot]
) -> Iterator[tuple[datetime, list[dict[str, Any]]]]:
    numbers = sorted(int(key[8:]) for key in conversation if re.fullmatch(r"session_\d+", key))
    for session, number in enumerate(numbers):
        turns = conversation[f"session_{number}"]
        places |= {turn["dia_id"]: Spot(session, at) for at, turn in enumerate(turns, 1)}
        started = datetime.strptime(conversation[f"session_{number}_date_time"], "%I:%M %p on %d %B, %Y")
        yield started.replace(tzinfo=UTC), turns


def _locomo_message(turn: dict[str, Any], at: int, started: datetime) -> Message:
    """Both are people: each a user with a name. A picture is in the log as its caption."""
    caption = turn.get("blip_caption")
    text = turn["text"] + (f" [shares {caption}]" if caption else "")
    return Message(
        role="user", content=text, timestamp=started + at * BETWEEN_TURNS, extra={"name": turn["speaker"]}
    )


def _locomo_question(qa: dict[str, Any], places: dict[str, Spot]) -> Question:
    named = (name for evidence in qa.get("evidence", ()) for name in re.split(r"[;\s]+", evidence))
    return Question(
        text=qa["question"],
        category=LOCOMO_CATEGORIES[qa["category"]],
        gold=frozenset(places[name] for name in named if name in places),
        apart=qa["category"] == 5,
        unanswerable=qa["category"] == 5,
    )


# LongMemEval: a user and an assistant; the sessions of all questions are one owner's history


def longmemeval(document: list[dict[str, Any]]) -> Iterator[Person]:
    numbers: dict[str, int] = {}
    sessions: list[list[Message]] = []
    questions = []
    for one in document:
        gold = set()
        for name, date, turns in zip(
            one["haystack_session_ids"], one["haystack_dates"], one["haystack_sessions"], strict=True
        ):
            if name not in numbers:
                numbers[name] = len(sessions)
                sessions.append(_longmemeval_session(turns, _moment(date)))
            gold |= {Spot(numbers[name], at) for at, turn in enumerate(turns, 1) if turn.get("has_answer")}
        never = "_abs" in one["question_id"]
        if gold or never:
            questions.append(
                Question(
                    text=one["question"],
                    category="abstention" if never else one["question_type"],
                    gold=frozenset(gold),
                    asked_at=_moment(one["question_date"]),
                    apart=never,
                    unanswerable=never,
                )
            )
    yield Person(name="longmemeval", sessions=sessions, questions=questions)


def _longmemeval_session(turns: list[dict[str, Any]], started: datetime) -> list[Message]:
    return [
        Message(role=turn["role"], content=turn["content"], timestamp=started + at * BETWEEN_TURNS)
        for at, turn in enumerate(turns)
    ]


def _moment(text: str) -> datetime:
    return datetime.strptime(re.sub(r" \(\w+\)", "", text), "%Y/%m/%d %H:%M").replace(tzinfo=UTC)


# BEAM: a user and an assistant that answers at length; each chat is one owner

# Questions about a whole chat, for which most of its messages are gold.
OVERVIEWS = ("summarization", "event_ordering")


def beam(document: list[dict[str, Any]]) -> Iterator[Person]:
    for chat in document:
        places: dict[int, Spot] = {}
        clock = datetime(2024, 1, 1, tzinfo=UTC)
        sessions = []
        for number, turns in enumerate(chat["sessions"]):
            messages = []
            for at, turn in enumerate(turns, 1):
                clock = _beam_day(turn) or clock + BETWEEN_TURNS
                places[turn["id"]] = Spot(number, at)
                messages.append(Message(role=turn["role"], content=turn["content"], timestamp=clock))
            sessions.append(messages)
        questions = [_beam_question(one, places) for one in chat["questions"]]
        yield Person(name=str(chat["chat"]), sessions=sessions, questions=questions)


def _beam_day(turn: dict[str, Any]) -> datetime | None:
    day = turn.get("day")
    return datetime.strptime(day, "%B-%d-%Y").replace(tzinfo=UTC) if day else None


def _beam_question(one: dict[str, Any], places: dict[int, Spot]) -> Question:
    gold = frozenset(places[source] for source in one["source_ids"] if source in places)
    return Question(
        text=one["question"],
        category=one["category"],
        gold=gold,
        apart=not gold or one["category"] in OVERVIEWS,
        unanswerable=not one["source_ids"],
    )
