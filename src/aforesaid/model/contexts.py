"""The context that a model receives, and the report on how it was chosen."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, overload

from msgspec import Struct

from aforesaid.model.messages import Message

Reason = Literal[
    "turns", "messages", "tokens", "tag", "agent", "ephemeral", "orphan", "duplicate", "unreadable"
]
"""Why a message was omitted: a limit on turns, messages or tokens; a filter by tag or agent; marked as
ephemeral; a tool result without its call, or thinking without its answer; a second result of the same call;
or an unreadable entry.
"""


class LeftOut(Struct, frozen=True, kw_only=True):
    """A message that was read and omitted."""

    sequence: int
    reason: Reason
    role: str
    message_id: str | None = None
    tokens: int = 0


class TokenUse(Struct, frozen=True, kw_only=True):
    """The tokens of a request by purpose."""

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
    """How a context was chosen: omitted messages with reasons, token use, stability."""

    message_count: int = 0
    """Messages in the conversation."""
    left_out: tuple[LeftOut, ...] = ()
    """Messages that were read and omitted."""
    not_read: int = 0
    """Older messages that were not read, because the window was full."""
    before_window: int = 0
    """How many of the oldest messages are before the window: up to the newest that a limit omitted or that
    was not read. Some may be shown anyway, such as important ones.
    """
    look_back: int = 0
    """How many groups before the cut were searched for important and system messages."""
    tokens: TokenUse = TokenUse()
    max_tokens: int | None = None
    counter: str | None = None
    """The name of the token counter, where tokens were counted."""
    stable_prefix: int = 0
    """How many leading messages stay unchanged until the next cut."""
    interrupted: tuple[str, ...] = ()
    """Ids of tool calls without a result; the context states this in place of the result."""
    shortened: tuple[str, ...] = ()
    """Ids of tool calls whose results were shortened to fit."""
    notes: tuple[str, ...] = ()
    """Ids of the notes in the context."""
    notes_left_out: tuple[str, ...] = ()
    """Ids of the notes that exceeded their budget."""
    summarized: int = 0
    """How many of the oldest messages the summary in the context covers. Some may be shown as well."""
    nothing_to_send: str | None = None
    """Why the context is not a request, because no user or assistant message is left; None where it
    is one.
    """
    warnings: tuple[str, ...] = ()
    degraded: bool = False
    """Whether the store was unavailable and this is the last known state."""

    @property
    def utilization(self) -> float | None:
        """The used percentage of the token budget; None without a budget."""
        if not self.max_tokens:
            return None
        return 100.0 * self.tokens.total / self.max_tokens


class Context(Struct, frozen=True, kw_only=True):
    """The messages for a model, oldest first, as a sequence of dicts; `report` explains the choice."""

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
