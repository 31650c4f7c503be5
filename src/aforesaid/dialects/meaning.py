"""The dialect-independent meaning of a message.

A message consists of parts. `Part` lists the kinds that can be converted between dialects. Anything else
is an `Other`: kept in its own dialect and described as text in others.
"""

from typing import Any

from msgspec import Struct


def is_blank(text: str) -> bool:
    """Return whether the text is empty or only whitespace, which providers reject."""
    return not text.strip()


class Text(Struct, frozen=True):
    """A text."""

    text: str


class Image(Struct, frozen=True, kw_only=True):
    """An image: a URL, or base64 data with its media type."""

    url: str | None = None
    media_type: str | None = None
    data: str | None = None
    detail: str | None = None
    """The requested resolution, in dialects that have one."""

    @property
    def as_url(self) -> str:
        """The image as a URL. Data becomes a `data:` URL."""
        return self.url if self.url is not None else f"data:{self.media_type};base64,{self.data}"


class Thinking(Struct, frozen=True):
    """A model's thinking. It is signed or encrypted for its provider and never converted."""


class Other(Struct, frozen=True, kw_only=True):
    """Content that exists only in its own dialect."""

    kind: str
    text: str
    """The replacement in other dialects: the text inside, or the kind in brackets."""


class ToolCall(Struct, frozen=True, kw_only=True):
    """A model's call of a tool."""

    id: str
    name: str
    arguments: Any
    """The arguments as the dialect has them: an object or its JSON text."""


class ToolResult(Struct, frozen=True, kw_only=True):
    """The result of a tool call."""

    call_id: str
    content: Any
    """The result as the dialect has it: text or blocks."""
    is_error: bool = False


Part = Text | Image | Thinking | Other | ToolCall | ToolResult


class Meaning(Struct, frozen=True, kw_only=True):
    """A parsed message."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()
    thinking: bool = False
    """Whether the message contains thinking, which must stay with the calls after it."""


class Request(Struct, frozen=True, kw_only=True):
    """A request's messages for a provider.

    `messages` is the value of the provider's `messages` or `input` parameter. `system` is Anthropic's
    separate system prompt, as text or text blocks. It is None without a prompt and in all other dialects.
    """

    messages: list[dict[str, Any]]
    system: str | list[dict[str, Any]] | None = None
