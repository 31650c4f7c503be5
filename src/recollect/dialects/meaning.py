"""What a message means, whatever dialect it speaks. Below: messages."""

from typing import Any

from msgspec import Struct


class ToolCall(Struct, frozen=True, kw_only=True):
    """A model asks for a tool."""

    id: str
    name: str
    arguments: Any
    """The arguments as the dialect holds them: an object, or the text of one."""


class ToolResult(Struct, frozen=True, kw_only=True):
    """What a tool answered."""

    call_id: str
    content: Any
    is_error: bool = False


class Meaning(Struct, frozen=True, kw_only=True):
    """A message, read."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()
    thinking: bool = False
    """Whether it carries a model's thinking, which must stay with the calls that it led to."""
