"""Provider-independent replies of a fake provider."""

from typing import Any, Literal

from msgspec import Struct

Ending = Literal["whole", "breaks", "stops"]
"""Whether a reply is complete, loses its connection in the middle, or stops without an end event."""


class Called(Struct, frozen=True):
    """A tool call. `arguments` is an object, or malformed text."""

    id: str
    name: str
    arguments: dict[str, Any] | str = {}


class Says(Struct, frozen=True):
    """A reply of the model."""

    text: str = ""
    calls: tuple[Called, ...] = ()
    thinking: str = ""
    ending: Ending = "whole"
    out_of_room: bool = False
    """Whether the reply reached the token limit."""
    paused: bool = False


class Refuses(Struct, frozen=True):
    """A refusal of the model."""

    words: str = ""


class Fails(Struct, frozen=True):
    """An error of the provider; with `inside`, in the middle of a stream."""

    status: int
    words: str = "something went wrong"
    kind: str = "api_error"
    retry_after: float | None = None
    inside: bool = False


class Silence(Struct, frozen=True):
    """The provider accepts the request and never answers."""


class Garbage(Struct, frozen=True):
    """A response that is not a reply: a login page, a proxy error, an empty object."""

    body: str
    content_type: str = "text/html"


Act = Says | Refuses | Fails | Silence | Garbage
