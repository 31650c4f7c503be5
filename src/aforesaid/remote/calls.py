"""A server call as a value: the request and the function that reads the answer. No I/O.

`requests` builds a call for each method of a manager, `attempts` decides about retries, and `transport`
sends it.
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
"""Maximum characters of one URL value: half of the usual limit for a whole URL."""

Query = Mapping[str, str | float | tuple[str, ...] | None]


class Answer(Struct, frozen=True, kw_only=True):
    """An HTTP response. `file` holds the body of a download."""

    status: int
    headers: Mapping[str, str] = {}
    content: bytes = b""
    file: ScratchPath | None = None

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


class Call(Struct, Generic[T], frozen=True, kw_only=True):
    """A request and the function that reads its answer."""

    method: str
    path: str
    """The path below the server's URL, with the query."""
    read: Callable[[Answer], T]
    """Reads a successful answer."""
    headers: Mapping[str, str] = {}
    body: bytes = b""
    repeatable: bool = True
    """Whether the call is idempotent, so that it can be retried if it may have arrived."""
    deadline: float | None = None
    """Seconds for all attempts together; None applies only the client's retry policy."""
    retry_headers: Mapping[str, str] = {}
    """Headers of every retry, such as the idempotency key."""
    fallback: Callable[[StoreError], T] | None = None
    """Returns the value if the server is unavailable; None raises the error."""
    on_not_found: Callable[[NotFound], T] | None = None
    """Returns the value if the server answers NotFound; None raises the error."""
    upload: Callable[[BinaryIO], None] | None = None
    """Writes a large body to a file. Blocks."""
    download: bool = False
    """Whether to save the answer's body to a file. `read` may then block."""

    def map(self, change: Callable[[T], R]) -> "Call[R]":
        """Return the same call with its result converted."""
        read, fallback, on_not_found = self.read, self.fallback, self.on_not_found
        changed: Call[R] = replace(
            self,  # type: ignore[arg-type]  # every field that depends on T is replaced
            read=lambda answer: change(read(answer)),
            fallback=None if fallback is None else lambda error: change(fallback(error)),
            on_not_found=None if on_not_found is None else lambda error: change(on_not_found(error)),
        )
        return changed


CallSequence: TypeAlias = Generator[Call[Any], Any, T]
"""Several calls in order: the generator yields each call and receives its result."""


def path_of(*segments: str, query: Query | None = None) -> str:
    """Return the path of the quoted segments with the query. Omit None and empty values."""
    path = "".join(f"/{_quoted(segment)}" for segment in segments)
    pairs = [pair for name, value in (query or {}).items() for pair in _pairs(name, value)]
    _check_pairs(pairs)
    return f"{path}?{urlencode(pairs)}" if pairs else path


def _quoted(segment: str) -> str:
    """Quote a segment. Clients and proxies remove the segments `.` and `..`, so their dots are quoted too."""
    quoted = quote(segment, safe="")
    return quoted.replace(".", "%2E") if quoted in (".", "..") else quoted


def _check_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Raise `InvalidInput` for a value that cannot be part of a URL."""
    for name, value in pairs:
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
