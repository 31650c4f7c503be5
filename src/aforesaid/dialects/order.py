"""Results right after their calls: the order that Anthropic and OpenAI's chat interface insist on.

A log is in order of time, so something said while a tool was running stands between the call and
its result. Here results move up to their call; what is in order already is left alone. Below: edits.
"""

from collections import deque
from collections.abc import Sequence

from aforesaid.dialects.edits import only_results, without_results
from aforesaid.dialects.meaning import ToolCall, ToolResult
from aforesaid.dialects.parse import parts_of
from aforesaid.model.messages import Message


def results_after_calls(messages: Sequence[Message]) -> list[Message]:
    """The same messages, each result moved directly behind the run of messages that called for it."""
    waiting = deque(messages)
    ordered: list[Message] = []
    while waiting:
        run = _take_assistants(waiting)
        called = {part.id for message in run for part in parts_of(message) if isinstance(part, ToolCall)}
        ordered.extend(run)
        ordered.extend(_take_answers(waiting, called) if called else ())
        if waiting and waiting[0].role != "assistant":
            ordered.append(waiting.popleft())
    return ordered


def is_only_results(message: Message) -> bool:
    """Whether the message carries tool results and nothing else."""
    parts = parts_of(message)
    return bool(parts) and all(isinstance(part, ToolResult) for part in parts)


def _take_assistants(waiting: deque[Message]) -> list[Message]:
    run: list[Message] = []
    while waiting and waiting[0].role == "assistant":
        run.append(waiting.popleft())
    return run


def _take_answers(waiting: deque[Message], called: set[str]) -> list[Message]:
    """Remove from the front and from further back what answers these calls, and give it in order."""
    answers: list[Message] = []
    while waiting and called and is_only_results(waiting[0]) and _answered(waiting[0], called):
        called = called - _answered(waiting[0], called)
        answers.append(waiting.popleft())
    if waiting and called and called <= _answered(waiting[0], called):
        return answers  # what is missing stands at the front of the next message, beside something said
    return answers + _pulled_up(waiting, called)


def _pulled_up(waiting: deque[Message], called: set[str]) -> list[Message]:
    pulled: list[Message] = []
    position = 0
    while called and position < len(waiting):
        message = waiting[position]
        if _calls_again(message, called):
            break
        found = _answered(message, called)
        if found:
            called = called - found
            _move_results(waiting, position, found, pulled)
        else:
            position += 1
    return pulled


def _move_results(waiting: deque[Message], position: int, found: set[str], pulled: list[Message]) -> None:
    results, rest = only_results(waiting[position], found), without_results(waiting[position], found)
    if results is not None:
        pulled.append(results)
    if rest is None:
        del waiting[position]
    else:
        waiting[position] = rest


def _answered(message: Message, called: set[str]) -> set[str]:
    return {part.call_id for part in parts_of(message) if isinstance(part, ToolResult)} & called


def _calls_again(message: Message, called: set[str]) -> bool:
    """Whether an id is used a second time: from here on results belong to the later call."""
    return any(isinstance(part, ToolCall) and part.id in called for part in parts_of(message))
