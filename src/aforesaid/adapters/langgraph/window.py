"""A window as state: a reducer that evicts what no longer fits. Evicted messages stay in the log."""

from collections.abc import Callable
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage
from langgraph.graph.message import add_messages

from aforesaid.errors import InvalidInput
from aforesaid.tokens import default_counter

Reducer = Callable[[Any, Any], list[BaseMessage]]


def windowed(*, max_messages: int | None = None, max_tokens: int | None = None) -> Reducer:
    """Return a reducer for a list of messages that keeps the newest ones within the limits.

        class State(TypedDict):
            messages: Annotated[list, windowed(max_messages=50)]

    System messages stay. A tool call stays with its results, and the window never starts with a result, so it
    is always a valid request. Messages that leave the state stay in the log, where search finds them.
    """
    if max_messages is None and max_tokens is None:
        raise InvalidInput("windowed needs max_messages or max_tokens", field="max_messages")
    for field, value in (("max_messages", max_messages), ("max_tokens", max_tokens)):
        if value is not None and (not isinstance(value, int) or value < 1):
            raise InvalidInput(f"{field} must be 1 or greater; got {value!r}", field=field, value=value)

    def reduce(left: Any, right: Any) -> list[BaseMessage]:
        merged = add_messages(left, right)
        messages = merged if isinstance(merged, list) else [merged]
        return _fitting([one for one in messages if isinstance(one, BaseMessage)], max_messages, max_tokens)

    return reduce


def _fitting(
    messages: list[BaseMessage], max_messages: int | None, max_tokens: int | None
) -> list[BaseMessage]:
    system = [one for one in messages if isinstance(one, SystemMessage)]
    kept: list[list[BaseMessage]] = []
    count, tokens = len(system), sum(map(_cost, system)) if max_tokens else 0
    for group in reversed(_groups([one for one in messages if not isinstance(one, SystemMessage)])):
        count += len(group)
        tokens += sum(map(_cost, group)) if max_tokens else 0
        too_many = max_messages is not None and count > max_messages
        too_long = max_tokens is not None and tokens > max_tokens
        if kept and (too_many or too_long):
            break
        kept.append(group)
    newest = [one for group in reversed(kept) for one in group]
    wanted = {id(one) for one in (*system, *newest)}
    return [one for one in messages if id(one) in wanted]


def _groups(messages: list[BaseMessage]) -> list[list[BaseMessage]]:
    """Return the messages in groups that must stay together: a tool call with all of its results."""
    groups: list[list[BaseMessage]] = []
    open_calls: set[str] = set()
    for message in messages:
        if isinstance(message, ToolMessage) and groups and message.tool_call_id in open_calls:
            groups[-1].append(message)
            open_calls.discard(message.tool_call_id)
            continue
        if isinstance(message, ToolMessage):
            continue  # its call left the window
        groups.append([message])
        calls = message.tool_calls if isinstance(message, AIMessage) else []
        open_calls = {str(call["id"]) for call in calls}
    return groups


def _cost(message: BaseMessage) -> int:
    calls = getattr(message, "tool_calls", None) or ""
    return default_counter().count_text(f"{message.text}{calls}") + 4
