"""What a window may hold: the limits, the filters, and what to do when even the least does not fit.

Below: values. Above: `choosing`, `building`, `reading`. A policy is a value: it combines limits
that all apply, and says nothing about where messages are kept.
"""

from typing import Literal

from msgspec import Struct
from msgspec.structs import force_setattr

from aforesaid.errors import InvalidSetting, shown
from aforesaid.model.messages import parse_tags
from aforesaid.windows.groups import Group

Oversize = Literal["error", "shorten"]


class WindowPolicy(Struct, frozen=True, kw_only=True):
    """How a window is chosen. All limits apply together; with none, everything is in.

    Some defaults need a reason. `retention_ratio` 0.75: a cut that frees a quarter of the budget at
    once leaves the front of the request as it was for many turns, which is what a provider's prompt
    cache lives on, and still keeps the window at least three quarters full. Counts of turns and
    messages are exact unless `count_retention_ratio` asks for the same. `oversize` "shorten": an
    assistant should answer even when a tool returned a novel. `look_back` 16: every window reads
    that much more than it shows, so it is some turns, not an evening.
    """

    max_turns: int | None = None
    """The most recent turns. None or 0: all."""
    max_messages: int | None = None
    """The most recent messages. None or 0: all. Preserved system messages from before come on top."""
    max_tokens: int | None = None
    """The budget of the whole request, prompt and tools included. None: no budget."""
    prompt_tokens: int = 0
    """What the system prompt, which is not in the log, costs."""
    tools_tokens: int = 0
    """What the tool definitions cost."""
    notes_tokens: int | None = None
    """The budget of the owner's notes. None: what the settings say; 0: none. With `max_tokens` they take a
    quarter of it at most."""
    summary_tokens: int | None = None
    """The budget of a summary of what is left out, where summaries are made. None: what the settings say; 0:
    none. With `max_tokens` it takes a quarter of it at most."""
    preserve_system: bool = True
    """Whether system messages stay when what stands around them goes."""
    agent_name: str | None = None
    """Only what this agent said and called for, and what the user said."""
    told_to: str | None = None
    """The agent that will be told what others said: their words weigh what they do when they are told."""
    tags: tuple[str, ...] = ()
    """Only messages with any of these tags."""
    oversize: Oversize = "shorten"
    """When the least possible window exceeds the budget: raise, or shorten its tool results."""
    retention_ratio: float = 0.75
    """The part of the token budget that a cut leaves in use. 1: cut as little as possible, every time."""
    count_retention_ratio: float = 1.0
    """The same for limits on turns and messages."""
    look_back: int = 16
    """How many groups before the cut are searched for important and for system messages to keep.

    Besides these, system messages at the very front of the conversation are always found.
    """
    reach: int = 4096
    """How many of the newest messages are looked at, at most, where there is a limit at all.

    A window is full long before that, unless a filter passes over nearly everything.
    """

    def __post_init__(self) -> None:
        for field in ("max_turns", "max_messages"):
            _check_count(self, field)
            if getattr(self, field) == 0:
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
    def outside(self) -> int:
        """Tokens of the request that are not in the log."""
        return self.prompt_tokens + self.tools_tokens


def passes_agent(group: Group, policy: WindowPolicy) -> bool:
    """Whether the group is the user's or this agent's; without an agent, every group passes."""
    return policy.agent_name is None or group.kind == "user" or group.agent_name == policy.agent_name


def passes_tags(group: Group, policy: WindowPolicy) -> bool:
    """Whether anything in the group has any of the tags; without tags, every group passes."""
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
