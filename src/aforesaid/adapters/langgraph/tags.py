"""Tags as metadata: those of a message, and those of a run, which its checkpoints and new messages get."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig

from aforesaid.adapters.langgraph.values import TAGS, described, own_tags, tags_in
from aforesaid.model.messages import parse_tags
from aforesaid.windows.groups import tags_of as tags_with_role
from aforesaid.windows.sliding import ConversationWindow, SlidingLimits

M = TypeVar("M", bound=BaseMessage)


def tagged(message: M, *tags: str) -> M:
    """Return the message with further tags in its metadata, which no provider receives.

    `important` and `ephemeral` change the order in which `windowed` evicts.
    """
    together = parse_tags((*own_tags(message), *tags))
    metadata = {**message.response_metadata, TAGS: list(together)}
    return message.model_copy(update={"response_metadata": metadata})


def tags_of(message: BaseMessage) -> frozenset[str]:
    """Return a message's tags and the built-in one of its role: input, output or system."""
    return frozenset(tags_with_role(described(message)))


def messages_with(messages: Sequence[M], tags: Iterable[str]) -> list[M]:
    """Return the messages with any of these tags. A tool call and its results are returned together."""
    wanted = frozenset(parse_tags(tags))
    window = ConversationWindow(SlidingLimits(max_tokens=None))
    ours = [described(message, number) for number, message in enumerate(messages)]
    for one in ours:
        window.add(one, 0)
    return [message for message, one in zip(messages, ours, strict=True) if window.has_any(one, wanted)]


def tags_of_run(config: RunnableConfig) -> tuple[str, ...]:
    """Return the tags in the metadata of a run's config."""
    return tags_in(config.get("metadata") or {})


def matches(metadata: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    """Return whether a checkpoint's metadata has these values. One tag matches a list that contains it."""
    for key, value in (wanted or {}).items():
        found = metadata.get(key)
        if found != value and not (key == TAGS and isinstance(found, list) and value in found):
            return False
    return True
