"""Retries, pauses and deadlines of one call. No I/O.

A generator yields steps (send, pause) and receives their outcomes, so that the async and the sync sender
share the same rules.
"""

import random
import time
from collections.abc import Callable, Generator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Generic, TypeAlias, TypeVar

from msgspec import Struct

from aforesaid._internal.arguments import CheckedFields
from aforesaid.errors import InvalidSetting, NotFound, StoreError, StoreUnavailable, shown
from aforesaid.remote.calls import Answer, Call, error_of

S = TypeVar("S")
T = TypeVar("T")

# Statuses after which a repeatable call is retried.
RETRYABLE = frozenset((429, 502, 503, 504))
# Statuses that guarantee that the server did nothing; any call is retried.
NOT_PROCESSED = frozenset((429,))


class RetryPolicy(CheckedFields, frozen=True, kw_only=True):
    """Timeouts, attempts and pauses of a client.

    By default, three retries within a few seconds bridge a server restart or a lost connection. A longer
    outage raises an error.
    """

    timeout: float = 30.0
    """Seconds for each network operation of one attempt."""
    connect_timeout: float = 5.0
    """Seconds to establish a connection."""
    attempts: int = 4
    """Maximum number of attempts, including the first."""
    first_pause: float = 0.1
    """Seconds before the second attempt, half of it random; doubled for each further attempt."""
    longest_pause: float = 5.0
    """Maximum pause in seconds. If the server asks for a longer one, the call fails at once."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("timeout", "connect_timeout", "first_pause", "longest_pause"):
            value = getattr(self, field)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 86_400:
                raise InvalidSetting(
                    f"{field} must be seconds, above 0; got {shown(value)}", field=field, value=value
                )
        if type(self.attempts) is not int or self.attempts < 1:
            raise InvalidSetting(
                f"attempts must be 1 or more; got {shown(self.attempts)}",
                field="attempts",
                value=self.attempts,
            )

    def pause(self, attempt: int, *, chance: float) -> float:
        """Return the seconds to wait after an attempt. `chance` in [0, 1) is the random part."""
        whole = min(self.longest_pause, self.first_pause * 2.0 ** (attempt - 1))
        return whole * (0.5 + chance / 2)


class Failure(Struct, frozen=True, kw_only=True):
    """An attempt without an answer."""

    error: StoreError
    may_have_arrived: bool = True
    """Whether the server may have received the request."""
    retryable: bool = True
    """Whether another attempt may succeed."""


class Send(Struct, frozen=True, kw_only=True):
    """Send the call with this timeout."""

    timeout: float
    is_retry: bool = False
    """Whether this is a retry."""


class Pause(Struct, frozen=True, kw_only=True):
    """Wait before the next attempt."""

    seconds: float


class Done(Struct, Generic[T], frozen=True, kw_only=True):
    """The result of the call."""

    value: T


Step: TypeAlias = Send | Pause
Outcome: TypeAlias = Answer | Failure | None
Steps: TypeAlias = Generator[Step, Outcome, T]
Clock: TypeAlias = Callable[[], float]


def steps_of(
    call: Call[T],
    patience: RetryPolicy,
    *,
    clock: Clock = time.monotonic,
    chance: Callable[[], float] = random.random,
) -> Steps[T]:
    """Yield the steps of a call; return its value or raise the error of the last attempt."""
    # Fixed once, so that pauses and retries count against it.
    until = None if call.deadline is None else clock() + call.deadline
    try:
        return (yield from _attempts(call, patience, until=until, clock=clock, chance=chance))
    except StoreError as error:
        if call.fallback is None:
            raise
        return call.fallback(error)
    # Not a failure of the server: some calls return None for what is absent.
    except NotFound as error:
        if call.on_not_found is None:
            raise
        return call.on_not_found(error)


def advance(course: Generator[S, Any, T], outcome: Any) -> S | Done[T]:
    """Send the outcome of the last step and return the next step. Start with None."""
    try:
        return course.send(outcome)
    except StopIteration as end:
        return Done(value=end.value)


def _attempts(
    call: Call[T], patience: RetryPolicy, *, until: float | None, clock: Clock, chance: Callable[[], float]
) -> Steps[T]:
    attempt = 0
    while True:
        attempt += 1
        outcome = yield Send(timeout=_remaining(patience.timeout, until, clock), is_retry=attempt > 1)
        assert outcome is not None, "an attempt has an outcome"
        if isinstance(outcome, Answer) and 200 <= outcome.status < 300:
            return call.read(outcome)
        pause = patience.pause(attempt, chance=chance())
        if attempt >= patience.attempts or not _may_retry(call, outcome):
            raise _error(call, outcome)
        # A busy server knows better than our backoff when it is worth trying again.
        pause = max(pause, _retry_after_seconds(outcome))
        # Fail at once rather than after a pause that cannot help.
        if pause > patience.longest_pause or (until is not None and clock() + pause >= until):
            raise _error(call, outcome)
        yield Pause(seconds=pause)


def _remaining(timeout: float, until: float | None, clock: Clock) -> float:
    # A negative number of seconds is not a valid timeout.
    return timeout if until is None else max(0.001, min(timeout, until - clock()))


def _may_retry(call: Call[T], outcome: Answer | Failure) -> bool:
    if isinstance(outcome, Failure):
        # A call that is not repeatable is sent again only when it certainly never arrived.
        return outcome.retryable and (call.repeatable or not outcome.may_have_arrived)
    return outcome.status in (RETRYABLE if call.repeatable else NOT_PROCESSED)


def _error(call: Call[T], outcome: Answer | Failure) -> Exception:
    if isinstance(outcome, Answer):
        return error_of(outcome)
    if call.repeatable or not outcome.may_have_arrived:
        return outcome.error
    # The caller must learn that the write may exist, or it would repeat the write and store it twice.
    unknown = StoreUnavailable(
        f"{outcome.error}; it is unknown whether {call.method} {_path_without_query(call)} was executed"
    )
    unknown.__cause__ = outcome.error.__cause__
    return unknown


def _path_without_query(call: Call[T]) -> str:
    """Return the path without the query, which may contain user data."""
    return call.path.partition("?")[0]


def _retry_after_seconds(outcome: Answer | Failure) -> float:
    """Return the seconds of `Retry-After`, or 0."""
    return retry_after(outcome) or 0.0 if isinstance(outcome, Answer) else 0.0


def retry_after(answer: Answer) -> float | None:
    """Parse `Retry-After`, given in seconds or as a date."""
    header = answer.headers.get("retry-after", "").strip()
    if header.isascii() and header.isdigit():
        return float(header[:9])  # a longer number is beyond every limit
    try:
        moment = parsedate_to_datetime(header)
    except (ValueError, TypeError):
        return None
    # A date without a zone is GMT by the HTTP rules.
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())
