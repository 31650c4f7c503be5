"""From a log to its atomic groups. Below: matching, contracts, dialects. Above: `choosing`, `building`.

A group is what a window holds whole or not at all: a system message; a user message; an assistant's
step, with all its tool calls, their results and the thinking that led to them. Results stand
directly behind their calls, wherever in the log they came in. A call that nobody answered gets a
result that says so: in the window, not in the log.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct

from aforesaid.contracts import Entry, unreadable_reason
from aforesaid.dialects import only_results, openai_responses, tool_result
from aforesaid.model.contexts import Reason
from aforesaid.model.messages import Message
from aforesaid.windows.tool_pairs import Matching, Reading, Slot, first_results, match_results, read, slots_of

INTERRUPTED = "[interrupted: this call has no result]"
"""What a window says in place of a result that never came."""

IMPORTANT = "important"
EPHEMERAL = "ephemeral"

ITEMS = openai_responses.NAME
"""The dialect in which every call of an answer is a message of its own."""

_BUILT_IN_TAGS = {"user": "input", "assistant": "output", "system": "system"}
_ROLE_ALONE = {role: frozenset((tag,)) for role, tag in _BUILT_IN_TAGS.items()}
"""The tags of a message that was given none."""

Kind = Literal["system", "user", "assistant"]


class Piece(Struct, frozen=True, kw_only=True):
    """A message as a window shows it: whole, a part of one, or made for the window."""

    message: Message
    entry: Entry
    """Where it comes from. For a made result, the entry that holds the call."""
    made: bool = False
    part: Literal["whole", "rest", "results", "some results"] = "whole"
    """Of a message that brings results and a question: what it says, all its results, or some."""


class Group(Struct, frozen=True, kw_only=True):
    """Messages that a window holds together or not at all."""

    place: int
    """Its number in the log that was grouped, from zero."""
    turn: int
    """The number of its turn there; zero before the first question."""
    kind: Kind
    pieces: tuple[Piece, ...]
    tags: frozenset[str]
    """What any of its messages is tagged with."""
    has_calls: bool = False
    interrupted: tuple[str, ...] = ()
    """Ids of calls that have no result."""

    @property
    def number(self) -> int:
        """The sequence number of its first message: the same in every window, process and year."""
        return self.pieces[0].entry.sequence

    @property
    def starts_turn(self) -> bool:
        return self.kind == "user"

    @property
    def agent_name(self) -> str | None:
        """Whose step this is: results belong to the agent that called."""
        return self.pieces[0].message.agent_name

    @property
    def important(self) -> bool:
        return IMPORTANT in self.tags

    @property
    def ephemeral(self) -> bool:
        return EPHEMERAL in self.tags and not self.important


class Where(Struct, frozen=True):
    """Where a group stands: its number and its turn's."""

    place: int
    turn: int


class Dropped(Struct, frozen=True, kw_only=True):
    """A part of a message that no window may hold."""

    entry: Entry
    message: Message
    reason: Reason


class Grouping(Struct, frozen=True, kw_only=True):
    """A log, grouped."""

    groups: tuple[Group, ...]
    dropped: tuple[Dropped, ...]


def tags_of(message: Message) -> tuple[str, ...]:
    """The tags that a message was given, and the one that its role gives it."""
    built_in = _BUILT_IN_TAGS.get(message.role)
    return (*message.tags, built_in) if built_in and built_in not in message.tags else message.tags


def group_log(entries: Iterable[Entry]) -> Grouping:
    """Group entries, given in reading order."""
    given = list(entries)
    if all(map(_is_words, given)):
        return Grouping(groups=_each_alone(given), dropped=())
    readings = [read(entry) for entry in given if unreadable_reason(entry) is None]
    matching = match_results(readings)
    dropped = [_unmatched(readings[slot.index], slot, reason) for slot, reason in matching.unmatched.items()]
    dropped += [part for reading in readings if reading.result_ids for part in _repeated(reading)]
    groups: list[Group] = []
    turn = 0
    for step in _steps(readings):
        first = readings[step[0]]
        turn += first.starts_turn
        where = Where(place=len(groups), turn=turn)
        if _thinks_only(first) and _is_bare_thinking(step, readings):
            dropped += [_bare(readings[index]) for index in step]
        elif (group := _group(step, readings, matching, where)) is not None:
            groups.append(group)
        elif not first.carries_results:
            dropped.append(_bare(first))
    if len(readings) < len(given):
        dropped += [_unreadable(entry) for entry in given if unreadable_reason(entry) is not None]
    dropped.sort(key=lambda part: part.entry.position)
    return Grouping(groups=tuple(groups), dropped=tuple(dropped))


def _is_words(entry: Entry) -> bool:
    """Whether this is somebody's words and nothing else: no call, no result, nothing that needs another."""
    message = entry.message
    if type(message.content) is not str or message.extra or message.role == "tool":
        return False
    return unreadable_reason(entry) is None


def _each_alone(entries: Sequence[Entry]) -> tuple[Group, ...]:
    """The groups of a log that is words alone, as most are: every message is one."""
    groups: list[Group] = []
    turn = 0
    for place, entry in enumerate(entries):
        message = entry.message
        turn += message.role == "user"
        piece = Piece(message=message, entry=entry)
        groups.append(_single(piece, Where(place, turn), message.role))  # type: ignore[arg-type]  # not "tool"
    return tuple(groups)


def _unreadable(entry: Entry) -> Dropped:
    return Dropped(entry=entry, message=entry.message, reason="unreadable")


def _steps(readings: Sequence[Reading]) -> list[list[int]]:
    """Indexes of readings, together where one answer of a model spans several messages."""
    steps: list[list[int]] = []
    before = False
    for index, reading in enumerate(readings):
        answers = _is_assistant(reading)
        if before and answers and _goes_on(readings[steps[-1][0]], readings[index - 1], reading):
            steps[-1].append(index)
        else:
            steps.append([index])
        before = answers
    return steps


def _goes_on(first: Reading, last: Reading, reading: Reading) -> bool:
    """Whether this message of an assistant belongs to the answer from `first` to `last`.

    Where every item of an answer is a message of its own (the Responses dialect), thinking comes
    before what it led to, and parallel calls follow each other.
    """
    if first.entry.message.agent_name != reading.entry.message.agent_name:
        return False
    if _thinks_only(last):
        return True
    if _thinks_only(reading) or {first.entry.message.dialect, reading.entry.message.dialect} != {ITEMS}:
        return False
    return _thinks_only(first) or bool(last.meaning.calls and reading.meaning.calls)


def _is_assistant(reading: Reading) -> bool:
    return reading.entry.message.role == "assistant"


def _thinks_only(reading: Reading) -> bool:
    meaning = reading.meaning
    return meaning.thinking and not (meaning.text or meaning.calls or meaning.results)


def _is_bare_thinking(step: Sequence[int], readings: Sequence[Reading]) -> bool:
    """Thinking that led to nothing: providers refuse it without what follows from it."""
    return all(_is_assistant(readings[index]) and _thinks_only(readings[index]) for index in step)


def _group(
    step: Sequence[int], readings: Sequence[Reading], matching: Matching, where: Where
) -> Group | None:
    reading = readings[step[0]]
    if reading.entry.message.role == "assistant":
        if len(step) == 1 and not reading.meaning.calls:
            return _single(Piece(message=reading.entry.message, entry=reading.entry), where, "assistant")
        return _step_group(step, readings, matching, where)
    if reading.rest is None:
        return None
    part: Literal["rest", "whole"] = "rest" if reading.carries_results else "whole"
    piece = Piece(message=reading.rest, entry=reading.entry, part=part)
    return _single(piece, where, "user" if reading.starts_turn else "system")


def _single(piece: Piece, where: Where, kind: Kind) -> Group:
    """A group of one message."""
    message = piece.message
    tags = frozenset(tags_of(message)) if message.tags else _ROLE_ALONE[message.role]
    return Group(place=where.place, turn=where.turn, kind=kind, pieces=(piece,), tags=tags)


def _step_group(step: Sequence[int], readings: Sequence[Reading], matching: Matching, where: Where) -> Group:
    """An assistant's step, with the results of its calls."""
    said = [Piece(message=readings[index].entry.message, entry=readings[index].entry) for index in step]
    brought: dict[int, list[str]] = {}
    missing: list[tuple[Reading, str, str]] = []
    for index in step:
        own = readings[index].result_ids
        for slot, call in slots_of(index, readings[index]):
            source = matching.answers.get(slot)
            if source is not None:
                brought.setdefault(source, []).append(call.id)
            elif call.id not in own:
                missing.append((readings[index], call.id, call.name))
    from_log = [*said, *(_results_piece(readings[source], ids) for source, ids in brought.items())]
    return Group(
        place=where.place,
        turn=where.turn,
        kind="assistant",
        pieces=(*from_log, *(_interrupted_piece(*call) for call in missing)),
        tags=frozenset(tag for piece in from_log for tag in tags_of(piece.message)),
        has_calls=bool(brought or missing),
        interrupted=tuple(call_id for _, call_id, _ in missing),
    )


def _results_piece(reading: Reading, call_ids: Sequence[str]) -> Piece:
    is_all = len(call_ids) == len(reading.meaning.results)
    if is_all and reading.rest is None:
        return Piece(message=reading.entry.message, entry=reading.entry)
    part: Literal["results", "some results"] = "results" if is_all else "some results"
    return Piece(message=_results_alone(reading, call_ids), entry=reading.entry, part=part)


def _interrupted_piece(reading: Reading, call_id: str, name: str) -> Piece:
    call = reading.entry.message
    message = tool_result(call.dialect, call_id=call_id, name=name, text=INTERRUPTED, is_error=True)
    stamped = message.with_(timestamp=call.timestamp, agent_name=call.agent_name)
    return Piece(message=stamped, entry=reading.entry, made=True)


def _results_alone(reading: Reading, call_ids: Sequence[str]) -> Message:
    message = reading.entry.message
    return only_results(first_results(message)[0], call_ids) or message


def _repeated(reading: Reading) -> list[Dropped]:
    """Second results of one call within one message."""
    if len(reading.result_ids) == len(reading.meaning.results):
        return []
    repeats = first_results(reading.entry.message)[1]
    return [Dropped(entry=reading.entry, message=message, reason="duplicate") for message in repeats]


def _unmatched(reading: Reading, slot: Slot, reason: Reason) -> Dropped:
    return Dropped(entry=reading.entry, message=_results_alone(reading, [slot.call_id]), reason=reason)


def _bare(reading: Reading) -> Dropped:
    return Dropped(entry=reading.entry, message=reading.entry.message, reason="orphan")
