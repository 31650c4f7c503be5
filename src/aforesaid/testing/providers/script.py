"""What a fake provider's model does next, in words that no provider owns. Below: nothing."""

from typing import Any, Literal

from msgspec import Struct

Ending = Literal["whole", "breaks", "stops"]
"""Whether a reply comes whole, its connection breaks in the middle, or it just stops without an end."""


class Called(Struct, frozen=True):
    """A call of a tool. `arguments` is an object, or text where a model garbles it."""

    id: str
    name: str
    arguments: dict[str, Any] | str = {}


class Says(Struct, frozen=True):
    """The model replies."""

    text: str = ""
    calls: tuple[Called, ...] = ()
    thinking: str = ""
    ending: Ending = "whole"
    out_of_room: bool = False
    """Whether it was cut off by its limit of tokens."""
    paused: bool = False


class Refuses(Struct, frozen=True):
    """The model will not answer."""

    words: str = ""


class Fails(Struct, frozen=True):
    """The provider answers with an error; `inside` the stream, where it began well."""

    status: int
    words: str = "something went wrong"
    kind: str = "api_error"
    retry_after: float | None = None
    inside: bool = False


class Silence(Struct, frozen=True):
    """The provider takes the request and never answers."""


class Garbage(Struct, frozen=True):
    """What comes back is no reply: a portal's page, a proxy's notice, an empty object."""

    body: str
    content_type: str = "text/html"


Act = Says | Refuses | Fails | Silence | Garbage
