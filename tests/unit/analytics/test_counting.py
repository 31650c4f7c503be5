"""Counts of conversations: definitions, and counting in parts."""

import math
import statistics
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from aforesaid.analytics.counting import count, start
from aforesaid.analytics.measures import Cell, distribution, total
from aforesaid.analytics.records import Event, Progress, Row, decode, encode
from aforesaid.analytics.reports import numbers_of
from aforesaid.contracts import Entry
from aforesaid.model.clock import to_micros
from aforesaid.model.conversations import Conversation, started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message, Role, Speech
from aforesaid.model.participants import Participant

MONDAY = datetime(2026, 3, 2, 9, tzinfo=UTC)


def conversation(**fields: object) -> Conversation:
    sam = Participant(id="sam", kind="person", joined_at=MONDAY)
    return started(new_id(), now=MONDAY, participants=(sam,)).with_(**fields)


def entry(sequence: int, minutes: float, role: Role, **fields: object) -> Entry:
    at = MONDAY + timedelta(minutes=minutes)
    message = Message(role=role, timestamp=at, **{"content": "words", **fields})  # type: ignore[arg-type]
    return Entry(conversation_id="c", sequence=sequence, revision=1, stored_at=at, message=message)


def event(minutes: float, kind: str, value: str | None) -> Event:
    return Event(kind=kind, at=to_micros(MONDAY + timedelta(minutes=minutes)), value=value)  # type: ignore[arg-type]


def counted(entries: list[Entry], events: list[Event] = []) -> Cell:  # noqa: B006  not changed
    record = conversation()
    return total(row.cell for row in count(record, start(record), entries, events).rows.values())


def median_minutes(cell: Cell, name: str) -> float:
    return distribution("ms", cell.histograms[name]).p50 / 60_000


def near(value: float, expected: float) -> bool:
    return math.isclose(value, expected, rel_tol=0.1)


def test_first_response_counts_from_the_first_question_and_separately_for_a_person() -> None:
    cell = counted(
        [
            entry(1, 0, "user"),
            entry(2, 3, "user"),
            entry(3, 10, "assistant"),
            entry(4, 20, "user"),
            entry(5, 60, "assistant", author="sam"),
        ]
    )
    assert near(median_minutes(cell, "first_response"), 10)
    assert near(median_minutes(cell, "first_response_by_person"), 60)
    replies = distribution("ms", cell.histograms["reply_time"])
    assert replies.count == 2
    assert near(replies.p99 / 60_000, 40)
    assert cell.counts["messages_in"] == 3
    assert cell.counts["turns"] == 2
    assert cell.counts["messages_out_person"] == 1
    assert cell.counts["handed_over"] == 1


def test_a_message_of_tool_calls_alone_is_no_answer() -> None:
    call = {"id": "t1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    cell = counted(
        [
            entry(1, 0, "user"),
            entry(2, 1, "assistant", content=None, extra={"tool_calls": [call]}, dialect="openai_chat"),
            entry(3, 2, "tool", content="rain", extra={"tool_call_id": "t1"}, dialect="openai_chat"),
            entry(4, 5, "assistant"),
        ]
    )
    assert near(median_minutes(cell, "first_response"), 5)
    assert near(median_minutes(cell, "tool_time"), 1)
    assert near(numbers_of(None, cell).tool_times["weather"].p50 / 60_000, 1)
    assert cell.counts["tool_calls/weather"] == 1
    assert cell.counts["messages_tool"] == 1


def test_closing_and_reopening() -> None:
    events = [
        event(5, "assigned", "sam"),
        event(8, "assigned", "eve"),
        event(30, "status", "resolved"),
        event(31, "status", "closed"),
        event(60, "status", "open"),
        event(90, "status", "closed"),
    ]
    cell = counted(
        [entry(1, 0, "user"), entry(2, 1, "assistant"), entry(3, 70, "user"), entry(4, 90, "assistant")],
        events,
    )
    assert (cell.counts["closed"], cell.counts["reopened"]) == (2, 1)
    assert (cell.counts["assigned"], cell.counts["reassigned"]) == (2, 1)
    assert near(median_minutes(cell, "time_to_assignment"), 8)
    assert near(median_minutes(cell, "time_to_first_close"), 30)
    assert near(median_minutes(cell, "time_to_last_close"), 90)
    # The wait after the reopening is a first response too.
    assert distribution("ms", cell.histograms["first_response"]).count == 2
    assert cell.counts["closed_without_person"] == 1
    assert "unresolved" not in cell.counts


def test_voice() -> None:
    speech = Speech(spoken="0123456789", heard=5)
    cell = counted(
        [
            entry(1, 0, "user", content_type="audio", speech=Speech(confidence=0.8)),
            entry(2, 1, "assistant", speech=speech),
        ]
    )
    assert (cell.counts["voice_turns"], cell.counts["interrupted_answers"]) == (1, 1)
    assert near(distribution("percent", cell.histograms["heard"]).p50, 50)
    assert near(distribution("percent", cell.histograms["confidence"]).p50, 80)


steps = st.lists(
    st.tuples(
        st.sampled_from(["user", "assistant", "person", "closed", "open", "assigned"]),
        st.integers(min_value=0, max_value=2000),
    ),
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(steps=steps, cut=st.integers(min_value=0, max_value=30))
def test_counting_in_parts_gives_the_same_rows(steps: list[tuple[str, int]], cut: int) -> None:
    record = conversation()
    entries: list[Entry] = []
    events: list[Event] = []
    cuts = (0, 0)
    minutes = 0
    for index, (kind, pause) in enumerate(steps):
        minutes += pause + 1
        if index == cut:
            cuts = len(entries), len(events)
        if kind in ("closed", "open"):
            events.append(event(minutes, "status", kind))
        elif kind == "assigned":
            events.append(event(minutes, "assigned", f"agent {index % 2}"))
        elif kind == "person":
            entries.append(entry(index, minutes, "assistant", author="sam"))
        else:
            entries.append(entry(index, minutes, "user" if kind == "user" else "assistant"))
    whole = count(record, start(record), entries, events)
    first = count(record, start(record), entries[: cuts[0]], events[: cuts[1]])
    stored = decode(encode(first.progress), Progress)
    second = count(record, stored, entries[cuts[0] :], events[cuts[1] :])
    assert _cells(first.rows | second.rows) == _cells(whole.rows)
    assert second.progress.days == whole.progress.days


def _cells(rows: dict[str, Row]) -> dict[str, Cell]:
    return {day: row.cell for day, row in rows.items()}


@settings(max_examples=100, deadline=None)
@given(values=st.lists(st.integers(min_value=0, max_value=10_000_000), min_size=1, max_size=200))
def test_percentiles_are_within_a_tenth(values: list[int]) -> None:
    cell = Cell()
    for value in values:
        cell.observe("reply_time", value)
    found = distribution("ms", cell.histograms["reply_time"])
    exact = statistics.median_low(values)
    assert abs(found.p50 - exact) <= 0.1 * exact + 1
    assert found.count == len(values) == sum(bucket.count for bucket in found.buckets)


@given(values=st.lists(st.integers(min_value=0, max_value=100_000_000), max_size=50))
def test_shown_buckets_are_exact(values: list[int]) -> None:
    cell = Cell()
    for value in [0, *values]:
        cell.observe("reply_time", value)
    below = 0.0
    for bucket in distribution("ms", cell.histograms["reply_time"]).buckets:
        upper = math.inf if bucket.below is None else bucket.below
        assert bucket.count == sum(below <= value < upper for value in [0, *values])
        below = upper
