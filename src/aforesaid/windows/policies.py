"""Window policies: limits, filters, and what to do when the smallest window exceeds the budget."""

from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import force_setattr

from aforesaid.dialects import meaning_of, with_result_text
from aforesaid.dialects.parse import text_of
from aforesaid.errors import InvalidSetting, shown
from aforesaid.model.messages import Message, parse_tags
from aforesaid.windows.groups import Group

Oversize = Literal["error", "shorten"]


class WindowPolicy(Struct, frozen=True, kw_only=True):
    """The limits and filters of a window. All limits apply together; without limits, everything is
    included.

    Reasons for some defaults:

    - `retention_ratio` 0.75: a cut that frees a quarter of the budget at once keeps the prefix of the
      request stable for many turns, so that the provider's prompt cache hits, and keeps the window at
      least three quarters full.
    - `count_retention_ratio` 1: limits on turns and messages are exact.
    - `oversize` "shorten": an assistant should answer even when a tool returned a very long text.
    - `look_back` 16: every window reads this many groups in addition, so it covers a few turns.
    """

    max_turns: int | None = None
    """Maximum number of turns. None or 0: all."""
    max_messages: int | None = None
    """Maximum number of messages. None or 0: all. As the only limit, it gives exactly the newest messages;
    see `for_request`.
    """
    max_tokens: int | None = None
    """Token budget of the whole request, including prompt and tools. None: unlimited."""
    prompt_tokens: int = 0
    """Tokens of the system prompt, which is not in the log."""
    tools_tokens: int = 0
    """Tokens of the tool definitions."""
    notes_tokens: int | None = None
    """Token budget of the owner's notes. None: from the settings; 0: no notes. At most a quarter of
    `max_tokens`.
    """
    summary_tokens: int | None = None
    """Token budget of the summary of messages outside the window. None: from the settings; 0: no summary.
    At most a quarter of `max_tokens`.
    """
    preserve_system: bool = True
    """Whether system messages are kept when messages around them are cut."""
    for_request: bool = False
    """Make a window by `max_messages` alone a valid request: keep tool calls with their results, and preserve
    system messages in addition to the limit. Windows with other limits always are valid requests.
    """
    agent_name: str | None = None
    """Include only this agent's messages and tool calls, and the user's messages."""
    told_to: str | None = None
    """The agent that receives the window narrated: other agents' messages cost what their quoted text
    costs.
    """
    tags: tuple[str, ...] = ()
    """Include only messages with any of these tags."""
    oversize: Oversize = "shorten"
    """When the smallest possible window exceeds the budget: raise an error, or shorten its tool results.
    """
    retention_ratio: float = 0.75
    """Share of the token budget that remains in use after a cut. 1: cut as little as possible, every time.
    """
    count_retention_ratio: float = 1.0
    """The same for limits on turns and messages."""
    look_back: int = 16
    """Number of groups before the cut that are searched for important and system messages to keep.

    System messages at the start of the conversation are always found.
    """
    cache_marks: bool = False
    """Mark the stable prefix of a request for the provider's prompt cache, where the provider needs marks:
    `cache_control` for Anthropic, `cachePoint` for Bedrock. Other providers cache prefixes by themselves.
    """
    reach: int = 4096
    """Maximum number of the newest messages that are read, if there is any limit.

    A window is full long before that unless a filter excludes nearly everything.
    """

    def __post_init__(self) -> None:
        for field in ("max_turns", "max_messages"):
            _check_count(self, field)
            if getattr(self, field) == 0:
                # 0 and None both mean "no limit": one value, so that equal policies compare equal and share a
                # cache.
                force_setattr(self, field, None)
        _check_count(self, "max_tokens", least=1)
        _check_count(self, "prompt_tokens", optional=False)
        _check_count(self, "tools_tokens", optional=False)
        _check_count(self, "notes_tokens")
        _check_count(self, "summary_tokens")
        _check_count(self, "look_back", optional=False)
        _check_count(self, "reach", optional=False, least=1)
        _check_ratio(self, "retention_ratio")
        _check_ratio(self, "count_retention_ratio")
        if self.oversize not in ("error", "shorten"):
            raise InvalidSetting.not_in("oversize", self.oversize, ("error", "shorten"))
        if self.tags:
            force_setattr(self, "tags", parse_tags(self.tags))

    @property
    def has_limit(self) -> bool:
        return not (self.max_turns is None and self.max_messages is None and self.max_tokens is None)

    @property
    def has_filter(self) -> bool:
        return self.agent_name is not None or bool(self.tags)

    @property
    def is_exact(self) -> bool:
        """Whether the window is exactly the newest `max_messages` messages, each on its own."""
        other_limits = self.max_turns is not None or self.max_tokens is not None
        exact_count = self.max_messages is not None and self.count_retention_ratio >= 1
        return exact_count and not other_limits and not self.for_request

    @property
    def outside(self) -> int:
        """Tokens of the request that are not in the log."""
        return self.prompt_tokens + self.tools_tokens


def passes_agent(group: Group, policy: WindowPolicy) -> bool:
    """Return whether the group is the user's or this agent's. Without an agent, every group passes."""
    return policy.agent_name is None or group.kind == "user" or group.agent_name == policy.agent_name


def passes_tags(group: Group, policy: WindowPolicy) -> bool:
    """Return whether the group has any of the tags. Without tags, every group passes."""
    return not policy.tags or not group.tags.isdisjoint(policy.tags)


def _check_count(policy: WindowPolicy, field: str, *, least: int = 0, optional: bool = True) -> None:
    value = getattr(policy, field)
    if optional and value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InvalidSetting(
            f"{field} must be a whole number, {least} or more; got {shown(value)}", field=field, value=value
        )


def _check_ratio(policy: WindowPolicy, field: str) -> None:
    value = getattr(policy, field)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value <= 1:
        raise InvalidSetting(
            f"{field} must be a number above 0 and up to 1; got {shown(value)}", field=field, value=value
        )


# Shorten tool results visibly.
#
# The last resort for a request that is too large even with only the newest step: the oldest tool results
# lose their middle, as little as necessary, with a mark in its place.


Cost = Callable[[Message], int]


class ShortenedMessages(Struct, frozen=True, kw_only=True):
    """Messages after shortening, with the call ids of the shortened results."""

    messages: tuple[Message, ...]
    call_ids: tuple[str, ...] = ()


def shorten(messages: Sequence[Message], *, cost: Cost, excess: int) -> ShortenedMessages:
    """Shorten the oldest tool results until the messages cost `excess` less or no result is left."""
    fitted = list(messages)
    call_ids: list[str] = []
    for at, message in enumerate(messages):
        for result in meaning_of(message).results if message.role in ("user", "tool") else ():
            if excess <= 0:
                break
            before = cost(fitted[at])
            shorter = _fit_result(fitted[at], result.call_id, text_of(result.content), cost, before - excess)
            # The mark itself costs tokens: a short result can become longer by shortening.
            if cost(shorter) < before:
                fitted[at] = shorter
                excess -= before - cost(shorter)
                call_ids.append(result.call_id)
    return ShortenedMessages(messages=tuple(fitted), call_ids=tuple(call_ids))


def _fit_result(message: Message, call_id: str, text: str, cost: Cost, target: int) -> Message:
    """Return the message with as much of this result's text as fits the target cost."""
    most, least = len(text), 0
    while least < most:
        # Tokens do not grow evenly with characters, so the length is found by bisection.
        length = (least + most + 1) // 2
        if cost(with_result_text(message, call_id, without_middle(text, length))) <= target:
            least = length
        else:
            most = length - 1
    return with_result_text(message, call_id, without_middle(text, least))


def without_middle(text: str, length: int) -> str:
    """Return the first and last characters of a text, `length` in total, around a mark."""
    if length >= len(text):
        return text
    head = (length + 1) // 2
    mark = f"[… {len(text) - length} characters left out …]"
    return f"{text[:head]}{mark}{text[len(text) - (length - head) :]}"
