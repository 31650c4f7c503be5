"""Count one conversation: from its record, events and entries to what it contributes to each day.

Pure functions. Counting continues where it stopped, so a new turn costs its own messages and not the whole
log. What concerns a conversation as a whole, such as its length, counts on the day on which it was opened;
what happens counts on the day on which it happens.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from aforesaid.analytics.measures import TOOL_TIME, Cell
from aforesaid.analytics.records import CLOSED, Event, Progress, Row, day_of, labels_of
from aforesaid.contracts import Entry
from aforesaid.contracts.entries import unreadable_reason
from aforesaid.dialects import Meaning, meaning_of
from aforesaid.model.branches import is_merged
from aforesaid.model.clock import to_micros
from aforesaid.model.conversations import Conversation
from aforesaid.model.messages import Message

# Tool calls without a result that are remembered; later ones have no time.
MOST_CALLS = 100
# The longest tool name in a count.
LONGEST_TOOL = 64


class Counted(NamedTuple):
    """The new state of a conversation, and its rows by day. Days that are not in it stay as they are."""

    progress: Progress
    rows: dict[str, Row]


def start(record: Conversation) -> Progress:
    """Return the state of a conversation of which nothing is counted."""
    opened = to_micros(record.created_at)
    progress = Progress(opened=opened)
    _cell(progress, opened).count("opened")
    return progress


def count(
    record: Conversation, progress: Progress, entries: Sequence[Entry], events: Sequence[Event]
) -> Counted:
    """Count entries and events that follow the counted ones. This changes `progress`."""
    people = {one.id for one in record.participants if one.kind == "person"}
    for step in _in_time(entries, events):
        if isinstance(step, Event):
            _count_event(progress, step)
        else:
            _count_entry(progress, step, people)
    progress.messages += len(entries)
    progress.events += len(events)
    progress.revision = record.revision
    labels = labels_of(record, progress.agent)
    rows = {day: Row(labels=labels, cell=_copied(cell)) for day, cell in progress.cells.items()}
    rows[day_of(progress.opened)].cell.add(_whole(record, progress))
    progress.days = sorted({*progress.days, *rows})
    # Other days are final: entries and events come in the order of time.
    open_days = {day_of(progress.opened), day_of(progress.micros), max(progress.cells)}
    progress.cells = {day: cell for day, cell in progress.cells.items() if day in open_days}
    return Counted(progress, rows)


def _copied(cell: Cell) -> Cell:
    copy = Cell()
    copy.add(cell)
    return copy


def _cell(progress: Progress, micros: int) -> Cell:
    return progress.cells.setdefault(day_of(micros), Cell())


def _in_time(entries: Sequence[Entry], events: Sequence[Event]) -> Iterable[Entry | Event]:
    """Return both in the order of time; the entries keep their order, an event comes after them."""
    timed = [(entry.position.micros, 0, index) for index, entry in enumerate(entries)]
    timed += [(event.at, 1, index) for index, event in enumerate(events)]
    for _, is_event, index in sorted(timed):
        yield events[index] if is_event else entries[index]


def _count_event(progress: Progress, event: Event) -> None:
    cell = _cell(progress, event.at)
    if event.kind == "merged":
        cell.count("merged")
    elif event.kind == "assigned":
        _count_assignment(progress, event, cell)
    elif event.value in CLOSED and not progress.closed:
        progress.closed = True
        progress.first_closed = progress.first_closed or event.at
        progress.last_closed = event.at
        cell.count("closed")
    elif event.value not in CLOSED and progress.closed:
        progress.closed = False
        progress.asked, progress.needs_answer, progress.needs_person = None, True, True
        cell.count("reopened")


def _count_assignment(progress: Progress, event: Event, cell: Cell) -> None:
    if event.value == progress.assignee:
        return
    if event.value is not None:
        cell.count("assigned")
        if progress.assignee is not None:
            cell.count("reassigned")
        if not progress.by_person:
            progress.assigned = event.at
    progress.assignee = event.value


def _count_entry(progress: Progress, entry: Entry, people: set[str]) -> None:
    at = entry.position.micros
    cell = _cell(progress, at)
    cell.counts["active"] = 1
    progress.first = at if progress.first is None else min(progress.first, at)
    progress.last = at if progress.last is None else max(progress.last, at)
    progress.micros, progress.sequence = entry.position
    if unreadable_reason(entry) is not None:
        cell.count("messages_unreadable")
        return
    message = entry.message
    if is_merged(message):
        return  # it counts in its branch
    progress.tokens += max(message.tokens.values(), default=0)
    meaning = meaning_of(message)
    _count_tools(progress, at, meaning, cell)
    if meaning.results and not meaning.text:
        cell.count("messages_tool")
    elif message.role == "user":
        _count_question(progress, at, message, cell)
    elif message.role == "assistant":
        _count_answer(progress, at, message, meaning, cell, by_person=message.author in people)
    else:
        cell.count(f"messages_{message.role}")


def _count_question(progress: Progress, at: int, message: Message, cell: Cell) -> None:
    cell.count("messages_in")
    if progress.waiting_since is None:
        progress.waiting_since = at
        progress.turns += 1
        cell.count("turns")
        if message.content_type == "audio" or message.speech is not None:
            cell.count("voice_turns")
    if progress.asked is None:
        progress.asked = at
    if message.speech is not None and message.speech.confidence is not None:
        cell.observe("confidence", round(100 * message.speech.confidence))


def _count_answer(
    progress: Progress, at: int, message: Message, meaning: Meaning, cell: Cell, *, by_person: bool
) -> None:
    cell.count("messages_out_person" if by_person else "messages_out_assistant")
    if message.agent_name is not None:
        progress.agent = message.agent_name
    if not meaning.text:
        return  # only tool calls: the user has no answer yet
    cell.count("answers")
    _count_heard(message, cell)
    if progress.waiting_since is not None:
        cell.observe("reply_time", _ms(at - progress.waiting_since))
        progress.waiting_since = None
    if progress.asked is not None:
        _count_first_response(progress, at, cell, by_person=by_person)
    progress.by_person |= by_person
    progress.automated |= not by_person


def _count_first_response(progress: Progress, at: int, cell: Cell, *, by_person: bool) -> None:
    assert progress.asked is not None
    waited = _ms(at - progress.asked)
    if progress.needs_answer:
        cell.observe("first_response", waited)
        progress.needs_answer = False
    if by_person and progress.needs_person:
        cell.observe("first_response_by_person", waited)
        progress.needs_person = False


def _count_heard(message: Message, cell: Cell) -> None:
    speech = message.speech
    if speech is None or speech.heard is None:
        return
    cell.count("interrupted_answers")
    if speech.spoken:
        cell.observe("heard", round(100 * speech.heard / len(speech.spoken)))


def _count_tools(progress: Progress, at: int, meaning: Meaning, cell: Cell) -> None:
    for call in meaning.calls:
        name = call.name[:LONGEST_TOOL]
        cell.count("tool_calls")
        cell.count(f"tool_calls/{name}")
        if len(progress.calls) < MOST_CALLS:
            progress.calls[call.id] = (at, name)
    for result in meaning.results:
        called = progress.calls.pop(result.call_id, None)
        if called is not None:
            cell.observe("tool_time", _ms(at - called[0]))
            cell.observe(f"{TOOL_TIME}{called[1]}", _ms(at - called[0]))
        if result.is_error:
            cell.count("tool_errors")
            if called is not None:
                cell.count(f"tool_errors/{called[1]}")


def _whole(record: Conversation, progress: Progress) -> Cell:
    """Return what concerns the conversation as a whole."""
    cell = Cell()
    if progress.messages:
        cell.observe("messages", progress.messages)
        cell.observe("turns", progress.turns)
        cell.observe("duration", _ms((progress.last or 0) - (progress.first or 0)))
    if progress.tokens:
        cell.observe("tokens", progress.tokens)
    if progress.automated or progress.by_person:
        cell.count("answered_conversations")
        if progress.automated and progress.by_person:
            cell.count("handed_over")
    if progress.assigned is not None:
        cell.observe("time_to_assignment", _ms(progress.assigned - progress.opened))
    if progress.first_closed is not None and progress.last_closed is not None:
        cell.observe("time_to_first_close", _ms(progress.first_closed - progress.opened))
        cell.observe("time_to_last_close", _ms(progress.last_closed - progress.opened))
    # A status from before events were recorded has no time, but it counts.
    if progress.closed or (not progress.events and record.status in CLOSED):
        cell.count("closed_conversations")
        if not progress.by_person:
            cell.count("closed_without_person")
    else:
        cell.count("unresolved")
    return cell


def _ms(micros: int) -> int:
    return micros // 1000
