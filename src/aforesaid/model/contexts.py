"""The context that a model receives, and the report on how it was chosen."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Literal

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


_NO_REPORT = Report()


class Context(list[dict[str, Any]]):
    """The messages for a model, oldest first, as a list of dicts; `report` explains the choice.

    It is a list, because `json.dumps` and provider SDKs accept no other sequence. The list contains the
    messages themselves until it is first read, and dicts from then on: most callers use only `messages`.
    Changes to the list belong to the caller; `messages` and `report` stay as loaded.
    """

    __slots__ = ("_is_rendered", "messages", "report")

    messages: tuple[Message, ...]
    report: Report

    def __init__(self, *, messages: tuple[Message, ...] = (), report: Report = _NO_REPORT) -> None:
        super().__init__(messages)  # type: ignore[arg-type]  # rendered on the first read
        self.messages = messages
        self.report = report
        self._is_rendered = not messages

    def with_report(self, report: Report) -> "Context":
        """Return the loaded messages with another report."""
        return Context(messages=self.messages, report=report)

    def _render(self) -> None:
        if not self._is_rendered:
            self._is_rendered = True
            super().__setitem__(slice(None), [message.to_dict() for message in self.messages])

    def __add__(self, other: Any) -> Any:
        self._render()
        return super().__add__(list(other)) if isinstance(other, list) else NotImplemented

    def __radd__(self, other: Any) -> Any:
        return [*other, *self] if isinstance(other, list) else NotImplemented

    def __reduce__(self) -> Any:
        return _context, (self.messages, self.report, list(self))


def _context(messages: tuple[Message, ...], report: Report, items: list[dict[str, Any]]) -> Context:
    context = Context(messages=messages, report=report)
    context[:] = items
    return context


def _after_rendering(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def rendering(self: Context, *args: Any, **kwargs: Any) -> Any:
        self._render()
        return method(self, *args, **kwargs)

    return rendering


# Not among them: `__len__`, which is the same, and comparisons, because a message equals its dict.
for _name in (
    *("__getitem__", "__iter__", "__reversed__", "__mul__", "__rmul__", "__repr__", "copy"),
    *("__setitem__", "__delitem__", "__iadd__", "__imul__", "append", "extend", "insert"),
    *("pop", "remove", "clear", "sort", "reverse"),
):
    setattr(Context, _name, _after_rendering(getattr(list, _name)))
