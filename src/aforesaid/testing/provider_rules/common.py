"""Rules that several providers share."""

import json
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

Messages = Sequence[dict[str, Any]]


class Call(NamedTuple):
    """A tool call with its place in the request."""

    id: Any
    place: str


def shape_problems(messages: Any) -> Iterator[str]:
    """Check the shape that every provider requires: a non-empty list of objects."""
    if not isinstance(messages, (list, tuple)):
        yield "the messages are not a list"
    elif not messages:
        yield "there are no messages"
    else:
        strange = [at for at, message in enumerate(messages) if not isinstance(message, dict)]
        yield from (f"message {at} is not an object" for at in strange)


def role_problems(messages: Messages, roles: Collection[str]) -> Iterator[str]:
    for at, message in enumerate(messages):
        if message.get("role") not in roles:
            yield f"message {at} has the role {message.get('role')!r}"


def blocks_in(content: Any) -> list[dict[str, Any]]:
    """Return the blocks of list content. Invalid blocks are reported elsewhere."""
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def block_problems(content: Any, place: str, kinds: Collection[str] | None) -> Iterator[str]:
    """Check that content is text or a list of typed blocks of these kinds; None allows any."""
    if isinstance(content, str):
        return
    if not isinstance(content, list) or not content:
        yield f"{place} has content that is neither text nor a list of blocks: {content!r:.60}"
        return
    for block in content:
        kind = block.get("type") if isinstance(block, dict) else None
        if not isinstance(kind, str):
            yield f"{place} has a block without a type: {block!r:.60}"
        elif kinds is not None and kind not in kinds:
            yield f"{place} must not hold a {kind} block"


def names_of_tools(tools: Any) -> list[Any]:
    """Return the names of the functions in tool definitions of any provider."""
    names = list[Any]()
    for tool in blocks_in(tools):
        nested = tool.get("functionDeclarations", tool.get("function_declarations"))
        inner = next((tool[key] for key in ("function", "toolSpec") if key in tool), tool)
        names += [each.get("name") for each in (blocks_in(nested) if nested else [inner])]
    return names


def is_blank(text: Any) -> bool:
    return not isinstance(text, str) or not text.strip()


def id_problems(calls: Sequence[Call], *, max_length: int | None = None) -> Iterator[str]:
    """Check that each call has an id and that ids are unique."""
    used_ids: set[str] = set()
    for call in calls:
        if not isinstance(call.id, str) or not call.id:
            yield f"{call.place} has a tool call without an id"
            continue
        if call.id in used_ids:
            yield f"{call.place} uses the tool call id {call.id!r} again"
        if max_length is not None and len(call.id) > max_length:
            yield f"{call.place} has a tool call id of more than {max_length} characters"
        used_ids.add(call.id)


def arguments_problems(arguments: Any, place: str) -> Iterator[str]:
    """Check that a call's arguments are JSON text or empty."""
    if not isinstance(arguments, str):
        yield f"{place} has arguments that are not text"
    elif arguments.strip() and not _is_json(arguments):
        yield f"{place} has arguments that are not JSON"


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def thread_problems(messages: Messages) -> Iterator[str]:
    """Check that tool messages directly after an assistant message answer each of its calls once."""
    open_calls: list[Any] = []
    answered: list[Any] = []
    for at, message in enumerate(messages):
        if message.get("role") == "tool":
            yield from _answer_problems(message.get("tool_call_id"), open_calls, answered, f"message {at}")
            continue
        yield from _open_problems(open_calls, f"message {at}")
        calls = message.get("tool_calls") if message.get("role") == "assistant" else None
        open_calls = [call.get("id") for call in blocks_in(calls)]
        answered = []
    yield from _open_problems(open_calls, "the end")


def _answer_problems(call_id: Any, open_calls: list[Any], answered: list[Any], place: str) -> Iterator[str]:
    if call_id in open_calls:
        open_calls.remove(call_id)
        answered.append(call_id)
    elif call_id in answered:
        yield f"{place} answers the tool call {call_id!r} a second time"
    else:
        yield f"{place} answers the tool call {call_id!r}, which the message before did not make"


def _open_problems(open_calls: list[Any], place: str) -> Iterator[str]:
    yield from (f"the tool call {call_id!r} has no result before {place}" for call_id in open_calls)
