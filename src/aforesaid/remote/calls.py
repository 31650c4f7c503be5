"""A server call as a value: the request, and the conversion of the answer to a value or an error. No I/O."""

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, BinaryIO, Generic, TypeAlias, TypeVar
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from aforesaid._internal.freshness import note_degraded
from aforesaid._internal.scratch import ScratchPath
from aforesaid.errors import (
    AforesaidError,
    InvalidInput,
    NotFound,
    StoreDamaged,
    StoreError,
    StoreForeign,
    StoreUnavailable,
    TooManyRequests,
    shown,
)
from aforesaid.protocol import DEGRADED, PROBLEM_JSON, from_json
from aforesaid.protocol import error_of as error_of_problem

# A server call as a value: the request and the function that reads the answer. No I/O.
#
# `requests` builds a call for each method of a manager, `attempts` decides about retries, and `transport`
# sends it.


T = TypeVar("T")
R = TypeVar("R")

# Maximum characters of one URL value: half of the usual limit for a whole URL.
LONGEST_VALUE = 32_768

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
            # The quoted size counts: a letter outside ASCII takes up to twelve characters in a
            # URL.
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
        # Before the numbers: a bool is an int, and `str` would give `True`.
        case bool():
            return [(name, "true" if value else "false")]
        case tuple():
            return [(name, one) for one in value]
        case _:
            return [(name, str(value))]


# Convert an answer to a value or an `AforesaidError`. No I/O.
#
# Answers are validated: a proxy's page, a server of another release or a truncated answer raises an error.


JSON = "application/json"
EVENT_STREAM = "text/event-stream"
# Statuses that a proxy sends with its own page while the server is unavailable.
PROXY_STATUSES = frozenset((408, 429, 500, 502, 503, 504))


def reader(read: Callable[[Any], T]) -> Callable[[Answer], T]:
    """Return a function that converts an answer's JSON; wrong JSON raises `StoreForeign`."""

    def read_answer(answer: Answer) -> T:
        document = document_of(answer)
        if DEGRADED in answer.headers:
            note_degraded("the server answers from the last known state")
        try:
            return read(document)
        except (
            KeyError,
            TypeError,
            AttributeError,
            InvalidInput,
            StoreDamaged,
            msgspec.MsgspecError,
        ) as error:
            raise StoreForeign(
                f"unexpected answer; the server may be another release ({shown_error(error)})"
            ) from error

    return read_answer


def document_of(answer: Answer) -> Any:
    """Return the JSON of an answer."""
    # A proxy answers with status 200 and a login page, which must not count as an empty result.
    if answer.media_type != JSON:
        raise _foreign(answer)
    try:
        return from_json(answer.content)
    except InvalidInput as error:
        raise StoreUnavailable("the server's answer is truncated or invalid JSON") from error


def expect_empty(answer: Answer) -> None:
    """Check that an answer is empty; a page comes from another service."""
    if answer.content:
        raise _foreign(answer)


def error_of(answer: Answer) -> AforesaidError:
    """Return the error of an answer, the same that a local manager would raise."""
    if answer.media_type == PROBLEM_JSON:
        problem = _problem(answer)
        # A missing route would otherwise look like a missing conversation.
        if problem is not None and not _is_unknown_route(problem, answer):
            return _with_retry_after(error_of_problem(problem, status=answer.status), answer)
    if answer.status in PROXY_STATUSES:
        return (
            _with_retry_after(error_of_problem({}, status=answer.status), answer)
            if answer.status == 429
            else _unavailable(answer)
        )
    return _foreign(answer)


def _is_unknown_route(problem: Mapping[str, Any], answer: Answer) -> bool:
    """Return whether the server lacks this route, because it is another release."""
    return answer.status in (404, 405) and problem.get("type", "about:blank") == "about:blank"


def _problem(answer: Answer) -> Mapping[str, Any] | None:
    try:
        document = from_json(answer.content)
    except InvalidInput:
        return None
    return document if isinstance(document, dict) else None


def _with_retry_after(error: AforesaidError, answer: Answer) -> AforesaidError:
    """Add the seconds of the Retry-After header to a `TooManyRequests`."""
    header = answer.headers.get("retry-after", "")
    if isinstance(error, TooManyRequests):
        from_body = getattr(error, "retry_after", None)
        error.retry_after = float(header[:9]) if from_body is None and header.isdigit() else from_body
    return error


def _unavailable(answer: Answer) -> AforesaidError:
    return StoreUnavailable(f"the server or a proxy answered with status {answer.status}")


def _foreign(answer: Answer) -> AforesaidError:
    if 300 <= answer.status < 400:
        where = shown(answer.headers.get("location", ""))
        return StoreForeign(
            f"the server redirects to {where} (status {answer.status}): open that URL instead"
        )
    what = answer.media_type or "nothing"
    return StoreForeign(
        f"the answer with status {answer.status} and type {what} is not from Aforesaid: "
        "check the URL and the release of the server"
    )


def shown_error(error: Exception) -> str:
    """Return an error's type and message, shortened because it may quote the answer."""
    return f"{type(error).__name__}: {shown(str(error))}"


class Events:
    """An incremental parser of server-sent events: text in chunks becomes the data of complete events.

    The server's first comment sets `begun`.
    """

    def __init__(self, content_type: str) -> None:
        if content_type.partition(";")[0].strip().lower() != EVENT_STREAM:
            raise StoreForeign(f"the server must answer with events; got {content_type or 'no content type'}")
        self.begun = False
        self._rest = ""
        self._data: list[str] = []
        self._complete: list[str] = []

    def feed(self, text: str) -> None:
        """Parse a chunk of text, which may end inside a line."""
        self.begun = True
        # The last part has no line end yet; it is completed by the next chunk.
        *lines, self._rest = (self._rest + text).replace("\r\n", "\n").split("\n")
        for line in lines:
            self._line(line)

    def take(self) -> list[str]:
        """Return and remove the complete events, in order."""
        complete, self._complete = self._complete, []
        return complete

    def _line(self, line: str) -> None:
        if line.startswith("data:"):
            self._data.append(line.removeprefix("data:").removeprefix(" "))
        elif not line and self._data:
            self._complete.append("\n".join(self._data))
            self._data = []
