"""What a message means, whatever dialect it speaks. Below: values. Above: `reading`, the writers, windows.

A message is made of parts. `Part` names every kind that can be carried from one dialect to another;
whatever else a provider has is an `Other`, kept in its own dialect and named in the rest.
"""

from typing import Any

from msgspec import Struct


def is_blank(text: str) -> bool:
    """Return whether the text is empty or whitespace alone, which providers refuse."""
    return not text.strip()


class Text(Struct, frozen=True):
    """Words."""

    text: str


class Image(Struct, frozen=True, kw_only=True):
    """A picture: at an address, or its bytes as base64 with their media type."""

    url: str | None = None
    media_type: str | None = None
    data: str | None = None
    detail: str | None = None
    """How closely the model shall look, where the dialect says so."""

    @property
    def address(self) -> str:
        """The picture as a URL; its bytes become a `data:` URL."""
        return self.url if self.url is not None else f"data:{self.media_type};base64,{self.data}"


class Thinking(Struct, frozen=True):
    """A model's thinking. It is signed or sealed for its own provider, so it never travels."""


class Other(Struct, frozen=True, kw_only=True):
    """Something that only its own dialect has a place for."""

    kind: str
    text: str
    """What stands for it elsewhere: the words inside, or its kind in brackets."""


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
    """The answer as the dialect holds it: text, or blocks."""
    is_error: bool = False


Part = Text | Image | Thinking | Other | ToolCall | ToolResult


class Meaning(Struct, frozen=True, kw_only=True):
    """A message, read."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()
    thinking: bool = False
    """Whether it carries a model's thinking, which must stay with the calls that it led to."""


class Request(Struct, frozen=True, kw_only=True):
    """What a provider is sent.

    `messages` is the list for the provider's `messages` (or `input`) parameter. `system` is for
    Anthropic alone, where the system prompt is a parameter of its own: text, or a list of text
    blocks; None when there is none, and always None in the dialects that keep it in the list.
    """

    messages: list[dict[str, Any]]
    system: str | list[dict[str, Any]] | None = None
