"""Form atomic groups from a log.

A window contains a group completely or not at all: a system message; a user message; an assistant's step
with all its tool calls, their results and the thinking before them. Results are moved directly after their
calls. A call without a result gets one that says so, in the window but not in the log.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import UNSET, Struct

from aforesaid.contracts import Entry, unreadable_reason
from aforesaid.dialects import meaning_of, only_results, tool_result
from aforesaid.model.contexts import Reason
from aforesaid.model.messages import Message, only_text, starts_turn
from aforesaid.windows.tool_pairs import (
    Matching,
    ParsedEntry,
    ToolRef,
    calls_of,
    first_results,
    match_results,
    parse_entry,
)

# Replaces a result that never arrived.
INTERRUPTED = "[interrupted: this call has no result]"

IMPORTANT = "important"
EPHEMERAL = "ephemeral"

# The dialect with one message per tool call.
ITEMS = "openai_responses"

_BUILT_IN_TAGS = {"user": "input", "assistant": "output", "system": "system"}
# The tags of a message without tags of its own.
_ROLE_ALONE = {role: frozenset((tag,)) for role, tag in _BUILT_IN_TAGS.items()}

Kind = Literal["system", "user", "assistant"]

Runs = list[list[int]]
"""The indexes of a step's messages: usually one run, more if the provider answered calls of its own."""


class Piece(Struct, frozen=True, kw_only=True):
    """A message in a window: whole, part of one, or synthetic."""

    message: Message
    entry: Entry
    """Its source. For a synthetic result, the entry with the call."""
    synthetic: bool = False
    part: Literal["whole", "rest", "results", "some results"] = "whole"
    """For a message with results and a question: the question, all its results, or some of them."""


class Group(Struct, frozen=True, kw_only=True):
    """Messages that a window contains together or not at all."""

    index: int
    """Index among the groups of this log, from zero."""
    turn: int
    """Number of its turn; zero before the first question."""
    kind: Kind
    pieces: tuple[Piece, ...]
    tags: frozenset[str]
    """The tags of all its messages."""
    has_calls: bool = False
    interrupted: tuple[str, ...] = ()
    """Ids of calls without a result."""
    summarizes: bool = False
    """Whether a provider's summary of earlier messages is in it, which is kept across a cut."""

    @property
    def number(self) -> int:
        """The sequence of its first message, which is the same in every window and process."""
        return self.pieces[0].entry.sequence

    @property
    def starts_turn(self) -> bool:
        return self.kind == "user"

    @property
    def agent_name(self) -> str | None:
        """The agent of this step. Results belong to the agent that called."""
        return self.pieces[0].message.agent_name

    @property
    def important(self) -> bool:
        return self.summarizes or IMPORTANT in self.tags

    @property
    def ephemeral(self) -> bool:
        return EPHEMERAL in self.tags and not self.important


class GroupPosition(Struct, frozen=True):
    """The index and turn of a group."""

    index: int
    turn: int


class Dropped(Struct, frozen=True, kw_only=True):
    """A part of a message that no window may contain."""

    entry: Entry
    message: Message
    reason: Reason


class Grouping(Struct, frozen=True, kw_only=True):
    """The groups of a log."""

    groups: tuple[Group, ...]
    dropped: tuple[Dropped, ...]


def tags_of(message: Message) -> tuple[str, ...]:
    """Return a message's tags and the built-in tag of its role."""
    built_in = _BUILT_IN_TAGS.get(message.role)
    return (*message.tags, built_in) if built_in and built_in not in message.tags else message.tags


def group_log(entries: Iterable[Entry]) -> Grouping:
    """Group entries, which must be in reading order."""
    entry_list = list(entries)
    # The fast path of most logs: without calls and results there is nothing to match.
    if all(map(_is_words, entry_list)):
        return each_alone(entry_list)
    parsed_entries = [parse_entry(entry) for entry in entry_list if unreadable_reason(entry) is None]
    matching = match_results(parsed_entries)
    dropped = [
        _unmatched(parsed_entries[ref.index], ref, reason) for ref, reason in matching.unmatched.items()
    ]
    dropped += [part for parsed in parsed_entries if parsed.result_ids for part in _repeated(parsed)]
    groups: list[Group] = []
    turn = 0
    for runs in _linked(_steps(parsed_entries), parsed_entries):
        first = parsed_entries[runs[0][0]]
        turn += first.starts_turn
        position = GroupPosition(index=len(groups), turn=turn)
        if _is_bare(runs, parsed_entries):
            dropped += [_bare(parsed_entries[index]) for run in runs for index in run]
        elif (group := _group(runs, parsed_entries, matching, position)) is not None:
            groups.append(group)
        # An empty message that carries results is not lost: its results are in the groups of their calls.
        elif not first.carries_results:
            dropped.append(_bare(first))
    if len(parsed_entries) < len(entry_list):
        dropped += [_unreadable(entry) for entry in entry_list if unreadable_reason(entry) is not None]
    # In reading order, as the report lists them.
    dropped.sort(key=lambda part: part.entry.position)
    return Grouping(groups=tuple(groups), dropped=tuple(dropped))


def _is_words(entry: Entry) -> bool:
    """Return whether the entry is only text: no call, no result, no dependency on other messages."""
    message = entry.message
    return only_text(message) is not None and message.role != "tool" and unreadable_reason(entry) is None


def each_alone(entries: Sequence[Entry]) -> Grouping:
    """Return one group per message. For most logs, which are texts only, `group_log` gives the same."""
    groups: list[Group] = []
    unreadable: list[Dropped] = []
    turn = 0
    for entry in entries:
        if unreadable_reason(entry) is not None:
            unreadable.append(_unreadable(entry))
            continue
        message = entry.message
        kind: Kind = "system" if message.role == "system" else "assistant"  # a result belongs to its call
        if starts_turn(message):
            kind, turn = "user", turn + 1
        piece = Piece(message=message, entry=entry)
        groups.append(_single(piece, GroupPosition(len(groups), turn), kind))
    return Grouping(groups=tuple(groups), dropped=tuple(unreadable))


def _unreadable(entry: Entry) -> Dropped:
    return Dropped(entry=entry, message=entry.message, reason="unreadable")


def _steps(parsed_entries: Sequence[ParsedEntry]) -> list[list[int]]:
    """Return lists of indexes, one per step. A step is one answer of a model, possibly in several
    messages.
    """
    steps: list[list[int]] = []
    before = False
    for index, parsed in enumerate(parsed_entries):
        answers = _is_assistant(parsed)
        if before and answers and _goes_on(parsed_entries[steps[-1][0]], parsed_entries[index - 1], parsed):
            steps[-1].append(index)
        else:
            steps.append([index])
        before = answers
    return steps


def _linked(steps: list[list[int]], parsed_entries: Sequence[ParsedEntry]) -> list[Runs]:
    """Join the steps between two halves of a pair that the provider answers.

    A step that was joined has several runs: after each, the results of its calls follow.
    """
    ends = _links(parsed_entries)
    if not ends:
        return [[step] for step in steps]
    joined: list[Runs] = []
    reach = -1
    place = 0
    for step in steps:
        parsed = parsed_entries[step[0]]
        inside = step[0] <= reach
        if inside and parsed.entry.message.role in ("assistant", "tool"):
            if parsed.rest is not None:
                joined[place].append(step)
        else:
            # A system message in between follows the whole group.
            joined.append([step])
            place = place if inside else len(joined) - 1
        reach = max(reach, *(ends.get(index, -1) for index in step))
    return joined


def _links(parsed_entries: Sequence[ParsedEntry]) -> dict[int, int]:
    """Return the last entry that each entry is linked with, by index. No link crosses a question."""
    ends: dict[int, int] = {}
    openers: dict[str, int] = {}
    for index, parsed in enumerate(parsed_entries):
        if parsed.starts_turn:
            openers = {}
        openers |= dict.fromkeys(parsed.meaning.opens, index)
        for call_id in parsed.meaning.closes:
            opener = openers.get(call_id, index)
            if opener < index:
                ends[opener] = index
    return ends


def _goes_on(first: ParsedEntry, last: ParsedEntry, parsed: ParsedEntry) -> bool:
    """Return whether this assistant message continues the answer from `first` to `last`.

    In the Responses dialect every item of an answer is its own message. Thinking precedes its result, and
    parallel calls follow each other.
    """
    if first.entry.message.agent_name != parsed.entry.message.agent_name:
        return False
    if _thinks_only(last):
        return True
    if _thinks_only(parsed) or {first.entry.message.dialect, parsed.entry.message.dialect} != {ITEMS}:
        return False
    return _thinks_only(first) or bool(last.meaning.calls and parsed.meaning.calls)


def _is_assistant(parsed: ParsedEntry) -> bool:
    return parsed.entry.message.role == "assistant"


def _thinks_only(parsed: ParsedEntry) -> bool:
    meaning = parsed.meaning
    says = meaning.text or meaning.calls or meaning.results or meaning.opens or meaning.closes
    return meaning.thinking and not says


def _is_bare(runs: Runs, parsed_entries: Sequence[ParsedEntry]) -> bool:
    """Return whether the step is only thinking, or only the second half of a pair without the first.

    Providers reject both.
    """
    if runs == [[runs[0][0]]] and _is_half(parsed_entries[runs[0][0]]):
        return True
    entries = [parsed_entries[index] for run in runs for index in run]
    return all(_is_assistant(parsed) and _thinks_only(parsed) for parsed in entries)


def _is_half(parsed: ParsedEntry) -> bool:
    """Return whether the message is the second half of a pair and nothing else."""
    return parsed.entry.message.content is UNSET and bool(parsed.meaning.closes)


def _group(
    runs: Runs, parsed_entries: Sequence[ParsedEntry], matching: Matching, position: GroupPosition
) -> Group | None:
    parsed = parsed_entries[runs[0][0]]
    if parsed.entry.message.role == "assistant":
        if runs == [[runs[0][0]]] and not parsed.meaning.calls:
            return _single(Piece(message=parsed.entry.message, entry=parsed.entry), position, "assistant")
        return _step_group(runs, parsed_entries, matching, position)
    if parsed.rest is None:
        return None
    part: Literal["rest", "whole"] = "rest" if parsed.carries_results else "whole"
    piece = Piece(message=parsed.rest, entry=parsed.entry, part=part)
    return _single(piece, position, "user" if parsed.starts_turn else "system")


def _single(piece: Piece, position: GroupPosition, kind: Kind) -> Group:
    """Return a group of one message."""
    message = piece.message
    tags = frozenset(tags_of(message)) if message.tags else _ROLE_ALONE.get(message.role, frozenset())
    return Group(
        index=position.index,
        turn=position.turn,
        kind=kind,
        pieces=(piece,),
        tags=tags,
        summarizes=kind == "assistant" and _summarizes(message),
    )


def _summarizes(message: Message) -> bool:
    """Return whether the message starts with Anthropic's summary of what came before it."""
    if not isinstance(message.content, list):
        return False
    blocks = [block for block in message.content if isinstance(block, dict)]
    return any(block.get("type") == "compaction" and block.get("content") for block in blocks)


def _step_group(
    runs: Runs, parsed_entries: Sequence[ParsedEntry], matching: Matching, position: GroupPosition
) -> Group:
    """Return an assistant's step with the results of its calls."""
    pieces: list[Piece] = []
    missing: list[str] = []
    has_calls = False
    for run in runs:
        own, results, interrupted = _run_pieces(run, parsed_entries, matching)
        pieces += [*own, *results, *interrupted]
        missing += [call_id for piece in interrupted for call_id in _answered(piece)]
        has_calls |= bool(results or interrupted)
    return Group(
        index=position.index,
        turn=position.turn,
        kind="assistant",
        pieces=tuple(pieces),
        tags=frozenset(tag for piece in pieces if not piece.synthetic for tag in tags_of(piece.message)),
        has_calls=has_calls,
        interrupted=tuple(missing),
        summarizes=any(_summarizes(piece.message) for piece in pieces),
    )


def _answered(piece: Piece) -> list[str]:
    return [result.call_id for result in meaning_of(piece.message).results]


def _run_pieces(
    run: Sequence[int], parsed_entries: Sequence[ParsedEntry], matching: Matching
) -> tuple[list[Piece], list[Piece], list[Piece]]:
    """Return the messages of a run, the results of its calls, and those of calls without a result."""
    own_pieces = [
        Piece(message=parsed_entries[index].entry.message, entry=parsed_entries[index].entry) for index in run
    ]
    results_by_entry: dict[int, list[str]] = {}
    missing: list[tuple[ParsedEntry, str, str]] = []
    for index in run:
        own = parsed_entries[index].result_ids
        for ref, call in calls_of(index, parsed_entries[index]):
            source = matching.answers.get(ref)
            if source is not None:
                results_by_entry.setdefault(source, []).append(call.id)
            elif call.id not in own:
                missing.append((parsed_entries[index], call.id, call.name))
    results = [_results_piece(parsed_entries[source], ids) for source, ids in results_by_entry.items()]
    return own_pieces, results, [_interrupted_piece(*call) for call in missing]


def _results_piece(parsed: ParsedEntry, call_ids: Sequence[str]) -> Piece:
    is_all = len(call_ids) == len(parsed.meaning.results)
    if is_all and parsed.rest is None:
        return Piece(message=parsed.entry.message, entry=parsed.entry)
    part: Literal["results", "some results"] = "results" if is_all else "some results"
    return Piece(message=_results_alone(parsed, call_ids), entry=parsed.entry, part=part)


def _interrupted_piece(parsed: ParsedEntry, call_id: str, name: str) -> Piece:
    call = parsed.entry.message
    message = tool_result(call.dialect, call_id=call_id, name=name, text=INTERRUPTED, is_error=True)
    stamped = message.with_(timestamp=call.timestamp, agent_name=call.agent_name)
    return Piece(message=stamped, entry=parsed.entry, synthetic=True)


def _results_alone(parsed: ParsedEntry, call_ids: Sequence[str]) -> Message:
    message = parsed.entry.message
    return only_results(first_results(message)[0], call_ids) or message


def _repeated(parsed: ParsedEntry) -> list[Dropped]:
    """Return repeated results of one call within one message."""
    if len(parsed.result_ids) == len(parsed.meaning.results):
        return []
    repeats = first_results(parsed.entry.message)[1]
    return [Dropped(entry=parsed.entry, message=message, reason="duplicate") for message in repeats]


def _unmatched(parsed: ParsedEntry, ref: ToolRef, reason: Reason) -> Dropped:
    return Dropped(entry=parsed.entry, message=_results_alone(parsed, [ref.call_id]), reason=reason)


def _bare(parsed: ParsedEntry) -> Dropped:
    return Dropped(entry=parsed.entry, message=parsed.entry.message, reason="orphan")
