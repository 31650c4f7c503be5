"""Role messages with tool calls as a field: the form that OpenAI's chat API and plain share.

An assistant message contains its text and its calls. The results follow directly, one message each.

A log is in order of time, so a message sent while a tool ran is between the call and its result. Anthropic
and OpenAI's chat API require results directly after their calls; `results_after_calls` moves them.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from aforesaid.dialects.conversion import Draft, is_native, verbatim
from aforesaid.dialects.edits import only_results, without_results
from aforesaid.dialects.parse import ToolCall, ToolResult, parts_of
from aforesaid.model.messages import Message, only_text


def results_after_calls(messages: Sequence[Message]) -> list[Message]:
    """Return the messages with each result moved directly after the assistant messages that called for it."""
    # The fast path of most requests: nothing to move.
    if all(map(has_no_tools, messages)):
        return list(messages)
    waiting = deque(messages)
    ordered: list[Message] = []
    while waiting:
        run = _take_assistants(waiting)
        call_ids = {part.id for message in run for part in parts_of(message) if isinstance(part, ToolCall)}
        ordered.extend(run)
        ordered.extend(_take_results(waiting, call_ids) if call_ids else ())
        if waiting and waiting[0].role != "assistant":
            ordered.append(waiting.popleft())
    return ordered


def has_no_tools(message: Message) -> bool:
    """Return whether the message is text, without calls or results."""
    return message.role != "tool" and only_text(message) is not None


def is_only_results(message: Message) -> bool:
    """Return whether the message contains tool results and nothing else."""
    parts = parts_of(message)
    return bool(parts) and all(isinstance(part, ToolResult) for part in parts)


def _take_assistants(waiting: deque[Message]) -> list[Message]:
    run: list[Message] = []
    while waiting and waiting[0].role == "assistant":
        run.append(waiting.popleft())
    return run


def _take_results(waiting: deque[Message], call_ids: set[str]) -> list[Message]:
    """Remove the results of these calls from the queue and return them in order."""
    answers: list[Message] = []
    while waiting and call_ids and is_only_results(waiting[0]) and _answered_ids(waiting[0], call_ids):
        call_ids = call_ids - _answered_ids(waiting[0], call_ids)
        answers.append(waiting.popleft())
    if waiting and call_ids and call_ids <= _answered_ids(waiting[0], call_ids):
        return answers  # the missing results are at the start of the next message, next to text
    return answers + _move_up(waiting, call_ids)


def _move_up(waiting: deque[Message], call_ids: set[str]) -> list[Message]:
    moved: list[Message] = []
    position = 0
    while call_ids and position < len(waiting):
        message = waiting[position]
        if _calls_again(message, call_ids):
            break
        found = _answered_ids(message, call_ids)
        if found:
            call_ids = call_ids - found
            _move_results(waiting, position, found, moved)
        else:
            position += 1
    return moved


def _move_results(waiting: deque[Message], position: int, found: set[str], moved: list[Message]) -> None:
    results, rest = only_results(waiting[position], found), without_results(waiting[position], found)
    if results is not None:
        moved.append(results)
    if rest is None:
        del waiting[position]
    else:
        waiting[position] = rest


def _answered_ids(message: Message, call_ids: set[str]) -> set[str]:
    return {part.call_id for part in parts_of(message) if isinstance(part, ToolResult)} & call_ids


def _calls_again(message: Message, call_ids: set[str]) -> bool:
    """Return whether the message reuses a call id. Later results belong to the later call."""
    return any(isinstance(part, ToolCall) and part.id in call_ids for part in parts_of(message))


Convert = Callable[[Message], Iterable[Draft]]


def write_role_messages(messages: Sequence[Message], dialect: str, convert: Convert) -> list[dict[str, Any]]:
    """Render the messages in a dialect of this form. `convert` turns a message of another dialect into
    drafts.
    """
    drafts: list[Draft] = []
    for message in results_after_calls(messages):
        if is_native(message, dialect):
            drafts.append(Draft(document=verbatim(message), converted=False))
        else:
            drafts.extend(convert(message))
    joined: list[Draft] = []
    for draft in drafts:
        _add(joined, draft)
    return [draft.document for draft in joined]


def _add(drafts: list[Draft], draft: Draft) -> None:
    if draft.document["role"] == "tool":
        drafts.insert(_index_after_results(drafts), draft)
    elif drafts and _should_merge(drafts[-1], draft):
        drafts[-1] = _merge(drafts[-1], draft)
    else:
        drafts.append(draft)


def _index_after_results(drafts: list[Draft]) -> int:
    """Return the index for the next result: before drafts that must follow all results."""
    position = len(drafts)
    while position and drafts[position - 1].trailing:
        position -= 1
    return position


def _should_merge(earlier: Draft, later: Draft) -> bool:
    """Return whether conversion has split one assistant message: text and calls, or calls and calls."""
    if not (earlier.converted or later.converted):
        return False
    if earlier.document["role"] != "assistant" or later.document["role"] != "assistant":
        return False
    return bool(earlier.document.get("tool_calls") or later.document.get("tool_calls"))


def _merge(earlier: Draft, later: Draft) -> Draft:
    first, second = earlier.document, later.document
    document = {**first, **second, "content": _merge_contents(first.get("content"), second.get("content"))}
    calls = [*_calls_of(first), *_calls_of(second)]
    return replace(earlier, document={**document, "tool_calls": calls}, converted=True)


def _merge_contents(first: Any, second: Any) -> Any:
    if not first or not second:
        return first or second or None
    return [*_as_blocks(first), *_as_blocks(second)]


def _calls_of(document: dict[str, Any]) -> list[Any]:
    calls = document.get("tool_calls")
    return calls if isinstance(calls, list) else []


def _as_blocks(content: Any) -> list[Any]:
    return list(content) if isinstance(content, list) else [{"type": "text", "text": content}]
