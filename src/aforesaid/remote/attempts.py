"""One call, from the first attempt to an answer or an error: what is sent again, when, and when no more.

A generator that says what to do next and is told how it went, so that the one that waits and the one that
awaits follow the same rules. No I/O. Below: calls, answers. Above: sending.
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
from aforesaid.remote.calls import Answer, Call
from aforesaid.remote.responses import error_of

S = TypeVar("S")
T = TypeVar("T")

AGAIN = frozenset((429, 502, 503, 504))
"""Statuses after which the same may come through a little later."""
REFUSED = frozenset((429,))
"""Those of them that say that nothing was done."""


class RetryPolicy(CheckedFields, frozen=True, kw_only=True):
    """How long and how often a server is asked.

    Three more attempts within some seconds bridge a restart and a lost connection. Whoever waits longer
    waits for an outage, and wants to know.
    """

    timeout: float = 30.0
    """Seconds for one attempt: for each wait on the network."""
    connect_timeout: float = 5.0
    """Seconds to be let in."""
    attempts: int = 4
    """At most so many, the first included."""
    first_pause: float = 0.1
    """Seconds before the second attempt, half of it chance; twice as much before each further one."""
    longest_pause: float = 5.0
    """No pause is longer, and a server that asks for a longer one is not waited for."""

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
        """Seconds after this attempt. Chance, in [0, 1), keeps many clients from coming back at once."""
        whole = min(self.longest_pause, self.first_pause * 2.0 ** (attempt - 1))
        return whole * (0.5 + chance / 2)


class Failure(Struct, frozen=True, kw_only=True):
    """No answer came."""

    error: StoreError
    arrived: bool = True
    """Whether the request may have arrived."""
    again: bool = True
    """Whether another attempt could go otherwise."""


class Send(Struct, frozen=True, kw_only=True):
    """Send the call, and wait no longer than this."""

    timeout: float
    again: bool = False
    """Whether it was sent before."""


class Pause(Struct, frozen=True, kw_only=True):
    """Wait."""

    seconds: float


class Done(Struct, Generic[T], frozen=True, kw_only=True):
    """It is answered."""

    value: T


Step: TypeAlias = Send | Pause
Outcome: TypeAlias = Answer | Failure | None
Course: TypeAlias = Generator[Step, Outcome, T]
Clock: TypeAlias = Callable[[], float]


def course_of(
    call: Call[T],
    patience: RetryPolicy,
    *,
    clock: Clock = time.monotonic,
    chance: Callable[[], float] = random.random,
) -> Course[T]:
    """What to do until the call is answered. Raises what the server, or the way there, has to say."""
    until = None if call.deadline is None else clock() + call.deadline
    try:
        return (yield from _attempts(call, patience, until=until, clock=clock, chance=chance))
    except StoreError as error:
        if call.instead is None:
            raise
        return call.instead(error)
    except NotFound as error:
        if call.absent is None:
            raise
        return call.absent(error)


def advanced(course: Generator[S, Any, T], outcome: Any) -> S | Done[T]:
    """What comes next, now that this is how the last step went; None to begin, and after a pause."""
    try:
        return course.send(outcome)
    except StopIteration as end:
        return Done(value=end.value)


def _attempts(
    call: Call[T], patience: RetryPolicy, *, until: float | None, clock: Clock, chance: Callable[[], float]
) -> Course[T]:
    attempt = 0
    while True:
        attempt += 1
        outcome = yield Send(timeout=_left(patience.timeout, until, clock), again=attempt > 1)
        assert outcome is not None, "an attempt has an outcome"
        if isinstance(outcome, Answer) and 200 <= outcome.status < 300:
            return call.read(outcome)
        pause = patience.pause(attempt, chance=chance())
        if attempt >= patience.attempts or not _may_go_again(call, outcome):
            raise _error(call, outcome)
        pause = max(pause, _asked_for(outcome))
        if pause > patience.longest_pause or (until is not None and clock() + pause >= until):
            raise _error(call, outcome)
        yield Pause(seconds=pause)


def _left(timeout: float, until: float | None, clock: Clock) -> float:
    return timeout if until is None else max(0.001, min(timeout, until - clock()))


def _may_go_again(call: Call[T], outcome: Answer | Failure) -> bool:
    if isinstance(outcome, Failure):
        return outcome.again and (call.repeatable or not outcome.arrived)
    return outcome.status in (AGAIN if call.repeatable else REFUSED)


def _error(call: Call[T], outcome: Answer | Failure) -> Exception:
    if isinstance(outcome, Answer):
        return error_of(outcome)
    if call.repeatable or not outcome.arrived:
        return outcome.error
    unknown = StoreUnavailable(f"{outcome.error}; whether {call.method} {_bare(call)} was done is not known")
    unknown.__cause__ = outcome.error.__cause__
    return unknown


def _bare(call: Call[T]) -> str:
    """The path without the query, in which there may be words of somebody."""
    return call.path.partition("?")[0]


def _asked_for(outcome: Answer | Failure) -> float:
    """The seconds of `Retry-After`; 0 where there is none."""
    return retry_after(outcome) or 0.0 if isinstance(outcome, Answer) else 0.0


def retry_after(answer: Answer) -> float | None:
    """When the server wants to be asked again: seconds, or a date."""
    given = answer.headers.get("retry-after", "").strip()
    if given.isascii() and given.isdigit():
        return float(given[:9])
    try:
        moment = parsedate_to_datetime(given)
    except (ValueError, TypeError):
        return None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())
