"""A window as state: a reducer that evicts what no longer fits. Evicted messages stay in the log."""

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, ToolMessage
from langgraph.graph.message import add_messages

from aforesaid.adapters.langgraph.values import described
from aforesaid.errors import InvalidInput
from aforesaid.model.messages import Message
from aforesaid.tokens import costs_by, default_counter
from aforesaid.windows.sliding import ConversationWindow, SlidingLimits

Reducer = Callable[[Any, Any], list[BaseMessage]]
# The budget of a sliding window where the program names none.
MAX_TOKENS = 4000


def windowed(
    *, max_messages: int | None = None, max_tokens: int | None = None, preserve_system: bool = True
) -> Reducer:
    """Return a reducer for a list of messages that evicts the oldest ones beyond the limits.

        class State(TypedDict):
            messages: Annotated[list, windowed(max_messages=50)]

    - System messages stay, unless `preserve_system` is false; they count.
    - Messages tagged `ephemeral` go first, those tagged `important` last.
    - A tool call goes with its results, and the newest message stays.

    Messages that leave the state stay in the log, where search finds them.
    """
    if max_messages is None and max_tokens is None:
        raise InvalidInput("windowed needs max_messages or max_tokens", field="max_messages")
    for field, value in (("max_messages", max_messages), ("max_tokens", max_tokens)):
        if value is not None and (not isinstance(value, int) or value < 1):
            raise InvalidInput(f"{field} must be 1 or greater; got {value!r}", field=field, value=value)
    limits = [
        (SlidingLimits(max_tokens=budget, preserve_system=preserve_system), cost)
        for budget, cost in ((max_messages, _one), (max_tokens, _tokens))
        if budget is not None
    ]

    def reduce(left: Any, right: Any) -> list[BaseMessage]:
        merged = add_messages(left, right)
        messages = merged if isinstance(merged, list) else [merged]
        kept = list(_answering([one for one in messages if isinstance(one, BaseMessage)]))
        for limit, cost in limits:
            kept = _fitting(kept, limit, cost)
        return kept

    return reduce


def _one(_: Message) -> int:
    return 1


def _tokens(message: Message) -> int:
    return costs_by(default_counter())(message)


def _fitting(
    messages: Sequence[BaseMessage], limits: SlidingLimits, cost: Callable[[Message], int]
) -> list[BaseMessage]:
    window = ConversationWindow(limits)
    ours = [described(message, number) for number, message in enumerate(messages)]
    for one in ours:
        window.add(one, cost(one))
    return [message for message, one in zip(messages, ours, strict=True) if one in window]


def _answering(messages: Sequence[BaseMessage]) -> Iterator[BaseMessage]:
    """Yield the messages without tool results whose call left the state: providers refuse them."""
    calls: set[str] = set()
    for message in messages:
        if isinstance(message, AIMessage):
            calls |= {str(call["id"]) for call in message.tool_calls}
        if not isinstance(message, ToolMessage) or message.tool_call_id in calls:
            yield message


class WindowState(TypedDict):
    """The state of a graph: a sliding window of messages, with the budget of `SlidingWindow`."""

    messages: Annotated[list[AnyMessage], windowed(max_tokens=MAX_TOKENS)]
