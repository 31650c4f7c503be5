"""A call of the server, described: what is sent, and how the answer is read. No I/O. Below: errors, protocol.

A `Call` is a value. `describing` makes one for every method of a manager, `exchanging` says what to do when
an answer does not come, and `sending` has the two that really send: one that waits, one that awaits.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, BinaryIO, Generic, TypeAlias, TypeVar
from urllib.parse import quote, urlencode

from msgspec import Struct
from msgspec.structs import replace

from aforesaid._internal.scratch import ScratchPath
from aforesaid.errors import InvalidInput, NotFound, StoreError, shown

T = TypeVar("T")
R = TypeVar("R")

LONGEST_VALUE = 32_768
"""Characters of one value in a URL: half of what HTTP clients and servers take for a whole URL."""

Query = Mapping[str, str | float | tuple[str, ...] | None]


class Answer(Struct, frozen=True, kw_only=True):
    """What came back. `file` has the body of an answer that was asked for as a file."""

    status: int
    headers: Mapping[str, str] = {}
    content: bytes = b""
    file: ScratchPath | None = None

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


class Call(Struct, Generic[T], frozen=True, kw_only=True):
    """What to ask, and what to make of the answer."""

    method: str
    path: str
    """Below the server's URL, with the query."""
    read: Callable[[Answer], T]
    """Reads an answer that is a success."""
    headers: Mapping[str, str] = {}
    body: bytes = b""
    repeatable: bool = True
    """Whether it may be sent again when nobody knows if it arrived: done twice, it is done once."""
    deadline: float | None = None
    """Seconds for all attempts together; None leaves it to the client's patience."""
    again: Mapping[str, str] = {}
    """Headers that go with every attempt but the first: by them the server knows it again."""
    instead: Callable[[StoreError], T] | None = None
    """What to give where the server cannot be asked; None raises the error."""
    absent: Callable[[NotFound], T] | None = None
    """What to give where the server says that there is no such thing; None raises the error."""
    upload: Callable[[BinaryIO], None] | None = None
    """Writes the body into a file, where it is too large to hold. Blocks."""
    download: bool = False
    """Whether the answer's body goes into a file. `read` may then block."""

    def map(self, change: Callable[[T], R]) -> "Call[R]":
        """The same call, with something else made of the answer."""
        read, instead, absent = self.read, self.instead, self.absent
        changed: Call[R] = replace(
            self,  # type: ignore[arg-type]  # all that is of T is replaced
            read=lambda answer: change(read(answer)),
            instead=None if instead is None else lambda error: change(instead(error)),
            absent=None if absent is None else lambda error: change(absent(error)),
        )
        return changed


Talk: TypeAlias = Generator[Call[Any], Any, T]
"""Several calls, one after the other: each is yielded, and what it gave comes back."""


def path_of(*segments: str, query: Query | None = None) -> str:
    """The path of these segments, each as a whole, and the query; what is None or empty is left out."""
    path = "".join(f"/{quote(segment, safe='')}" for segment in segments)
    given = [pair for name, value in (query or {}).items() for pair in _pairs(name, value)]
    _check_pairs(given)
    return f"{path}?{urlencode(given)}" if given else path


def _check_pairs(given: Sequence[tuple[str, str]]) -> None:
    """Refuse text that has no place in a URL, with the name of its parameter."""
    for name, value in given:
        try:
            size = len(quote(value))
        except UnicodeEncodeError:
            raise InvalidInput(f"{name} must be valid Unicode; got {shown(value)}", field=name) from None
        if size > LONGEST_VALUE:
            raise InvalidInput(
                f"{name} must have at most {LONGEST_VALUE:,} characters in a URL; got {size:,}", field=name
            )


def _pairs(name: str, value: str | float | tuple[str, ...] | None) -> list[tuple[str, str]]:
    match value:
        case None:
            return []
        case bool():
            return [(name, "true" if value else "false")]
        case tuple():
            return [(name, one) for one in value]
        case _:
            return [(name, str(value))]
