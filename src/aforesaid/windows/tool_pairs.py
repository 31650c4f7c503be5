"""Match tool results with calls.

Results arrive in parallel, between other messages, late, twice or never. Some models reuse call ids in
every turn. The rules, in this order:

1. A result answers a call of its own turn: the latest open call before it, or else, because clocks
   differ, the first open call after it. Calls of one message are answered in order.
2. A remaining result answers the latest earlier call with its id, if that is open.
3. A result that still remains is a duplicate if its call has a result, and otherwise an orphan.

No rule depends on anything before the start of the call's turn. A reader that has read back to the start
of a turn therefore matches that turn like a reader of the whole log.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from aforesaid.contracts import Entry
from aforesaid.dialects import ToolCall, meaning_of, without_results
from aforesaid.dialects.parse import Meaning
from aforesaid.model.contexts import Reason
from aforesaid.model.messages import Message


class ParsedEntry(Struct, frozen=True, kw_only=True):
    """An entry with its parsed meaning."""

    entry: Entry
    meaning: Meaning
    rest: Message | None
    """The message without its results; None when nothing else remains."""
    starts_turn: bool = False
    """Whether the message contains a question, possibly next to results."""
    result_ids: tuple[str, ...] = ()
    """The distinct call ids of its results."""
    carries_results: bool = False
    """Whether it contains results of earlier calls."""


class ToolRef(Struct, frozen=True, order=True):
    """A call or a result in the log: the index of its entry, and the call id."""

    index: int
    call_id: str
    occurrence: int = 0
    """Number of earlier uses of the id in the same message; some models use an id twice."""


class Matching(Struct, frozen=True, kw_only=True):
    """Calls with their results, and results without a call."""

    answers: dict[ToolRef, int]
    """Index of the entry with the result, by call."""
    unmatched: dict[ToolRef, Reason]
    """Results that no window may contain: duplicates and orphans."""


def parse_entry(entry: Entry) -> ParsedEntry:
    """Parse an entry."""
    message = entry.message
    role = message.role
    meaning = meaning_of(message)
    if not meaning.results:
        # A result of an unknown type is kept with its call.
        rest = None if role == "tool" and not meaning.closes else message
        return ParsedEntry(entry=entry, meaning=meaning, rest=rest, starts_turn=role == "user")
    call_ids = tuple(dict.fromkeys(result.call_id for result in meaning.results))
    carries = role in ("user", "tool")
    rest = without_results(message, set(call_ids)) if carries else message
    return ParsedEntry(
        entry=entry,
        meaning=meaning,
        rest=None if role == "tool" else rest,
        starts_turn=role == "user" and rest is not None,
        result_ids=call_ids,
        carries_results=carries,
    )


def first_results(message: Message) -> tuple[Message, list[Message]]:
    """Return the message with one result per call, and its repeated results, each as a message."""
    if not isinstance(message.content, list):
        return message, []
    call_ids_so_far = set[str]()
    blocks: list[Any] = []
    repeats: list[Message] = []
    for block in message.content:
        alone = message.with_(content=[block], tokens={})
        call_ids = {result.call_id for result in meaning_of(alone).results}
        # Some servers send a result twice in one message; providers refuse the second.
        if call_ids and call_ids <= call_ids_so_far:
            repeats.append(alone)
        else:
            blocks.append(block)
            call_ids_so_far |= call_ids
    return (message.with_(content=blocks, tokens={}), repeats) if repeats else (message, [])


def match_results(parsed_entries: Sequence[ParsedEntry]) -> Matching:
    """Find the call of every result."""
    answers: dict[ToolRef, int] = {}
    unmatched: dict[ToolRef, Reason] = {}
    late: list[ToolRef] = []
    # Most logs have no tools.
    if not any(parsed.meaning.calls or parsed.carries_results for parsed in parsed_entries):
        return Matching(answers=answers, unmatched=unmatched)
    for turn in _turns(parsed_entries):
        late += _match_within(turn, parsed_entries, answers, unmatched)
    _match_late(late, parsed_entries, answers, unmatched)
    return Matching(answers=answers, unmatched=unmatched)


def _turns(parsed_entries: Sequence[ParsedEntry]) -> Iterator[range]:
    """Yield one range of indexes per turn.

    A message with results and a question ends one turn and starts the next. Its results belong to the turn
    that it ends.
    """
    start = 0
    for index, parsed in enumerate(parsed_entries):
        if parsed.starts_turn:
            end = index + 1 if parsed.carries_results else index
            yield range(start, end)
            start = end
    yield range(start, len(parsed_entries))


def _match_within(
    turn: range,
    parsed_entries: Sequence[ParsedEntry],
    answers: dict[ToolRef, int],
    unmatched: dict[ToolRef, Reason],
) -> list[ToolRef]:
    """Match the results of one turn with its calls; return results of calls in other turns."""
    calls = defaultdict[str, list[ToolRef]](list)
    for ref in _calls(turn, parsed_entries):
        calls[ref.call_id].append(ref)
    elsewhere = []
    for result in _results(turn, parsed_entries):
        open_calls = [call for call in calls[result.call_id] if call not in answers]
        if open_calls:
            earlier = [call for call in open_calls if call.index < result.index]
            # Without an earlier call, clocks differ: the result came first.
            answers[_in_latest_message(earlier)[0] if earlier else open_calls[0]] = result.index
        elif calls[result.call_id]:
            unmatched[result] = "duplicate"
        else:
            elsewhere.append(result)
    return elsewhere


def _match_late(
    late: Sequence[ToolRef],
    parsed_entries: Sequence[ParsedEntry],
    answers: dict[ToolRef, int],
    unmatched: dict[ToolRef, Reason],
) -> None:
    calls = defaultdict[str, list[ToolRef]](list)
    for ref in _calls(range(len(parsed_entries)), parsed_entries):
        calls[ref.call_id].append(ref)
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


def _in_latest_message(calls: Sequence[ToolRef]) -> list[ToolRef]:
    return [call for call in calls if call.index == calls[-1].index]


def _calls(indexes: range, parsed_entries: Sequence[ParsedEntry]) -> Iterator[ToolRef]:
    for index in indexes:
        own = (
            parsed_entries[index].result_ids
            if parsed_entries[index].entry.message.role == "assistant"
            else ()
        )
        for ref, call in calls_of(index, parsed_entries[index]):
            # A provider's own tools have call and result in one assistant message.
            if call.id not in own:
                yield ref


def calls_of(index: int, parsed: ParsedEntry) -> Iterator[tuple[ToolRef, ToolCall]]:
    """Yield a message's calls with their references."""
    occurrences = Counter[str]()
    for call in parsed.meaning.calls:
        yield ToolRef(index, call.id, occurrences[call.id]), call
        occurrences[call.id] += 1


def _results(indexes: range, parsed_entries: Sequence[ParsedEntry]) -> Iterator[ToolRef]:
    for index in indexes:
        if parsed_entries[index].carries_results:
            for call_id in parsed_entries[index].result_ids:
                yield ToolRef(index, call_id)
