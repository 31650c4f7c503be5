"""Which tool result answers which call. Below: contracts, dialects. Above: `grouping`.

Results come in parallel, interleaved with other messages, late, twice, or never, and some models
use the same call id again in every turn. The rule, in this order:

1. A result answers a call of its own turn: the latest one before it that is still open, or else,
   because clocks differ, the first open one after it. Of calls in one message, the first comes first.
2. A result that is left over answers the latest earlier call with its id, if that is still open.
3. What is left over after that is a duplicate when its call has an answer, and an orphan otherwise.

Nothing in this rule looks past the start of the turn that a call stands in. So whoever has read
the log back to the start of some turn knows as much about that turn as one who read all of it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from aforesaid.contracts import Entry
from aforesaid.dialects import ToolCall, meaning_of, without_results
from aforesaid.dialects.meaning import Meaning
from aforesaid.model.contexts import Reason
from aforesaid.model.messages import Message


class Reading(Struct, frozen=True, kw_only=True):
    """An entry, read."""

    entry: Entry
    meaning: Meaning
    rest: Message | None
    """The message without the results that it carries; None when it carries nothing else."""
    starts_turn: bool = False
    """Whether somebody asks something here, results beside it or not."""
    result_ids: tuple[str, ...] = ()
    """The calls that it has results of, each once."""
    carries_results: bool = False
    """Whether it brings results to somebody else's calls."""


class Slot(Struct, frozen=True, order=True):
    """A call or a result in the log: the index of its reading, and the call's id."""

    index: int
    call_id: str
    use: int = 0
    """Which use of the id in its message: some models give two calls of one reply the same."""


class Matching(Struct, frozen=True, kw_only=True):
    """Calls with the results that answer them, and the results that answer nothing."""

    answers: dict[Slot, int]
    """The index of the reading that answers, by call."""
    unmatched: dict[Slot, Reason]
    """Results that no window may hold: duplicates and orphans."""


def read(entry: Entry) -> Reading:
    """The entry with its meaning."""
    message = entry.message
    role = message.role
    meaning = meaning_of(message)
    if not meaning.results:
        rest = None if role == "tool" else message
        return Reading(entry=entry, meaning=meaning, rest=rest, starts_turn=role == "user")
    call_ids = tuple(dict.fromkeys(result.call_id for result in meaning.results))
    carries = role in ("user", "tool")
    rest = without_results(message, set(call_ids)) if carries else message
    return Reading(
        entry=entry,
        meaning=meaning,
        rest=None if role == "tool" else rest,
        starts_turn=role == "user" and rest is not None,
        result_ids=call_ids,
        carries_results=carries,
    )


def first_results(message: Message) -> tuple[Message, list[Message]]:
    """The message with one result per call, and the results that it brings again, each as a message."""
    if not isinstance(message.content, list):
        return message, []
    seen = set[str]()
    kept: list[Any] = []
    repeats: list[Message] = []
    for block in message.content:
        alone = message.with_(content=[block], tokens={})
        call_ids = {result.call_id for result in meaning_of(alone).results}
        if call_ids and call_ids <= seen:
            repeats.append(alone)
        else:
            kept.append(block)
            seen |= call_ids
    return (message.with_(content=kept, tokens={}), repeats) if repeats else (message, [])


def match_results(readings: Sequence[Reading]) -> Matching:
    """Find the call of every result."""
    answers: dict[Slot, int] = {}
    unmatched: dict[Slot, Reason] = {}
    late: list[Slot] = []
    if not any(reading.meaning.calls or reading.carries_results for reading in readings):
        return Matching(answers=answers, unmatched=unmatched)
    for turn in _turns(readings):
        late += _match_within(turn, readings, answers, unmatched)
    _match_late(late, readings, answers, unmatched)
    return Matching(answers=answers, unmatched=unmatched)


def _turns(readings: Sequence[Reading]) -> Iterator[range]:
    """Index ranges, one per turn.

    A message that brings results and a question ends one turn and starts the next: for its results
    it counts as the end of the turn before.
    """
    start = 0
    for index, reading in enumerate(readings):
        if reading.starts_turn:
            end = index + 1 if reading.carries_results else index
            yield range(start, end)
            start = end
    yield range(start, len(readings))


def _match_within(
    turn: range, readings: Sequence[Reading], answers: dict[Slot, int], unmatched: dict[Slot, Reason]
) -> list[Slot]:
    """Match the results of one turn with its calls; returns those whose call is elsewhere."""
    calls = defaultdict[str, list[Slot]](list)
    for slot in _calls(turn, readings):
        calls[slot.call_id].append(slot)
    elsewhere = []
    for result in _results(turn, readings):
        open_calls = [call for call in calls[result.call_id] if call not in answers]
        if open_calls:
            earlier = [call for call in open_calls if call.index < result.index]
            answers[_in_latest_message(earlier)[0] if earlier else open_calls[0]] = result.index
        elif calls[result.call_id]:
            unmatched[result] = "duplicate"
        else:
            elsewhere.append(result)
    return elsewhere


def _match_late(
    late: Sequence[Slot], readings: Sequence[Reading], answers: dict[Slot, int], unmatched: dict[Slot, Reason]
) -> None:
    calls = defaultdict[str, list[Slot]](list)
    for slot in _calls(range(len(readings)), readings):
        calls[slot.call_id].append(slot)
    for result in late:
        earlier = [call for call in calls[result.call_id] if call.index < result.index]
        if not earlier:
            unmatched[result] = "orphan"
            continue
        open_calls = [call for call in _in_latest_message(earlier) if call not in answers]
        if open_calls:
            answers[open_calls[0]] = result.index
        else:
            unmatched[result] = "duplicate"


def _in_latest_message(calls: Sequence[Slot]) -> list[Slot]:
    return [call for call in calls if call.index == calls[-1].index]


def _calls(indexes: range, readings: Sequence[Reading]) -> Iterator[Slot]:
    for index in indexes:
        own = readings[index].result_ids if readings[index].entry.message.role == "assistant" else ()
        for slot, call in slots_of(index, readings[index]):
            if call.id not in own:
                yield slot


def slots_of(index: int, reading: Reading) -> Iterator[tuple[Slot, ToolCall]]:
    """The calls of a message, each with its place."""
    uses = Counter[str]()
    for call in reading.meaning.calls:
        yield Slot(index, call.id, uses[call.id]), call
        uses[call.id] += 1


def _results(indexes: range, readings: Sequence[Reading]) -> Iterator[Slot]:
    for index in indexes:
        if readings[index].carries_results:
            for call_id in readings[index].result_ids:
                yield Slot(index, call_id)
