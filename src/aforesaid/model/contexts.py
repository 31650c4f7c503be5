"""What a model receives, and the report on how it was chosen. Below: values."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, overload

from msgspec import Struct

from aforesaid.model.messages import Message

Reason = Literal[
    "turns", "messages", "tokens", "tag", "agent", "ephemeral", "orphan", "duplicate", "unreadable"
]
"""Why a message was left out: a limit on turns, messages or tokens; a filter by tag or agent; marked
as first to go; a tool result without its call, or thinking without what it led to; a second result
of the same call; or what is stored cannot be read."""


class LeftOut(Struct, frozen=True, kw_only=True):
    """A message that was looked at and left out."""

    sequence: int
    reason: Reason
    role: str
    message_id: str | None = None
    tokens: int = 0


class TokenUse(Struct, frozen=True, kw_only=True):
    """Where the tokens of a request go."""

    prompt: int = 0
    tools: int = 0
    system: int = 0
    history: int = 0
    summary: int = 0
    notes: int = 0

    @property
    def total(self) -> int:
        return self.prompt + self.tools + self.system + self.history + self.summary + self.notes


class Report(Struct, frozen=True, kw_only=True):
    """How a context was chosen: what was left out and why, what it costs, how stable it is."""

    message_count: int = 0
    """Messages in the conversation."""
    left_out: tuple[LeftOut, ...] = ()
    """Messages that were looked at and left out."""
    not_read: int = 0
    """Older messages that did not have to be read, because the window was full before them."""
    before_window: int = 0
    """How many of the oldest messages stand before the window: up to the newest that a limit left out, or
    that was not read. Some may be shown all the same, such as important ones."""
    look_back: int = 0
    """How many groups before the cut were searched for important and system messages to keep."""
    tokens: TokenUse = TokenUse()
    max_tokens: int | None = None
    counter: str | None = None
    """The name of the token counter, where tokens were counted."""
    stable_prefix: int = 0
    """How many messages at the front stay as they are while the conversation grows to its next cut."""
    interrupted: tuple[str, ...] = ()
    """Ids of tool calls whose result never came; the context says so in its place."""
    shortened: tuple[str, ...] = ()
    """Ids of tool calls whose results were shortened to fit."""
    notes: tuple[str, ...] = ()
    """Ids of the notes that are in the context."""
    notes_left_out: tuple[str, ...] = ()
    """Ids of the notes that did not fit into their budget."""
    summarized: int = 0
    """How many of the oldest messages the summary in the context stands for. Some of them may be shown."""
    nothing_to_send: str | None = None
    """Why nobody's words are in the context, so that it is no request; None where it is one."""
    warnings: tuple[str, ...] = ()
    degraded: bool = False
    """Whether the store could not be asked, and this is the best that is known."""

    @property
    def utilization(self) -> float | None:
        """Percent of the token budget in use; None without a budget."""
        if not self.max_tokens:
            return None
        return 100.0 * self.tokens.total / self.max_tokens


class Context(Struct, frozen=True, kw_only=True):
    """The messages for a model, oldest first. Reads as a list of dicts; `report` says how it came about."""

    messages: tuple[Message, ...] = ()
    report: Report = Report()

    def __len__(self) -> int:
        return len(self.messages)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (message.to_dict() for message in self.messages)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        if isinstance(index, slice):
            return [message.to_dict() for message in self.messages[index]]
        return self.messages[index].to_dict()


Sequence.register(Context)
