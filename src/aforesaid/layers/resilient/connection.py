"""The connection to the wrapped store: options, retries, deadlines, circuit breaker and probes."""

import asyncio
import logging
import os
import random
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Literal, TypeVar

from msgspec import Struct

from aforesaid._internal.arguments import CheckedFields
from aforesaid._internal.tasks import promptly_within, within
from aforesaid.contracts import Backend, ServerBacked, capability
from aforesaid.errors import (
    AforesaidError,
    InvalidSetting,
    Overloaded,
    SpoolFull,
    StoreBusy,
    StoreError,
    StoreReplaced,
    StoreUnavailable,
    shown,
)
from aforesaid.layers.base import ReachedMark
from aforesaid.model.conversations import check_count
from aforesaid.telemetry import event

# A circuit breaker: after enough failures, no call reaches the store until a probe succeeds.
#
#     closed ──failures──► open ──pause over──► half open ──probe succeeded──► closed
#                            ▲                      │
#                            └──── probe failed ────┘   (the next pause is longer)
#
# The breaker decides only; it performs no I/O and never waits.


State = Literal["closed", "half_open", "open"]

# Consecutive failed attempts that open the breaker: as many as one call makes.
THRESHOLD = 3
# Seconds before the first probe, and the longest time between probes: a recovered store is in use within two
# seconds, and a small read per process does not overload a recovering one.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 1.5


class Breaker:
    """One store's breaker. It calls `on_change` after every change of state."""

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        threshold: int = THRESHOLD,
        first_pause: float = FIRST_PAUSE,
        longest_pause: float = LONGEST_PAUSE,
        on_change: Callable[[State, str], None] = lambda state, reason: None,
    ) -> None:
        self._clock = clock
        self._threshold = threshold
        self._first_pause = first_pause
        self._longest_pause = longest_pause
        self._on_change = on_change
        self._failures = 0
        self._pause = first_pause
        self._opened_at = 0.0
        self.state: State = "closed"
        self.reason = ""

    @property
    def closed(self) -> bool:
        return self.state == "closed"

    @property
    def seconds_to_probe(self) -> float:
        """Seconds until the next probe is allowed."""
        if self.state != "open":
            return 0.0
        return max(0.0, self._opened_at + self._pause - self._clock())

    def succeeded(self) -> None:
        """Reset the count of failures. While open, a late answer changes nothing: only a probe closes the
        breaker."""
        if self.state == "closed":
            self._failures = 0

    def failed(self, reason: str) -> None:
        """Count a failed attempt."""
        self._failures += 1
        # Calls that were in progress when the breaker opened still report their failures.
        if self.state == "closed" and self._failures >= self._threshold:
            self._open(reason)

    def trip(self, reason: str) -> None:
        """Open the breaker after a call that used all its attempts or all its time."""
        if self.state == "closed":
            self._open(reason)

    def begin_probe(self) -> bool:
        """Return whether the caller may probe now. It must then report success or failure."""
        if self.state != "open" or self.seconds_to_probe > 0:
            return False
        self._move("half_open", self.reason)
        return True

    def probe_succeeded(self) -> None:
        self._failures = 0
        self._pause = self._first_pause
        self._move("closed", "")

    def probe_failed(self, reason: str) -> None:
        self._pause = min(self._pause * 2, self._longest_pause)
        self._open(reason)

    def _open(self, reason: str) -> None:
        self._opened_at = self._clock()
        self._move("open", reason)

    def _move(self, state: State, reason: str) -> None:
        self.state, self.reason = state, reason
        self._on_change(state, reason)


# Options and health of the resilient layer.


Policy = Literal["fallback", "fail_closed"]
POLICIES: tuple[Policy, ...] = ("fallback", "fail_closed")

# Bytes: about 50,000 spoken turns, hours of a busy house, and little on any disk.
SPOOL_LIMIT = 64 * 1024 * 1024


class Resilience(CheckedFields, frozen=True, kw_only=True):
    """Options of the resilient layer. Times are in seconds."""

    policy: Policy = "fallback"
    """`fallback` spools turns and answers from the last known state; `fail_closed` refuses both."""
    folder: Path | None = None
    """The spool folder; None selects a folder for this user and store."""
    spool_limit: int = SPOOL_LIMIT
    attempts: int = 3
    read_deadline: float = 2.0
    """For all attempts of a read. Short, because an agent waits."""
    search_deadline: float = 5.0
    """For all attempts of a search, which takes longer than a read."""
    write_deadline: float = 5.0
    """For all attempts of a write, before it is spooled."""
    start_unreached: bool = False
    """Whether `open` succeeds with an unavailable store that this machine has never reached. A store that was
    reached before may always be unavailable."""
    start_replaced: bool = False
    """Whether `open` accepts a store with other data than this machine has reached before, such as a server
    that lost its files, and remembers it instead."""
    close_deadline: float = 5.0
    """For the replay when closing. The rest stays in the spool for the next process."""
    settle_deadline: float = 30.0
    """For the wait until the store has every acknowledged write, before an operation on all data."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self.spool_limit, field="spool_limit", least=0)
        check_count(self.attempts, field="attempts", least=1)
        for field in self.__struct_fields__:
            if field.endswith("_deadline") and not getattr(self, field) > 0:
                seconds = shown(getattr(self, field))
                raise InvalidSetting(f"{field} must be seconds, more than 0; got {seconds}", field=field)


# What a store behind a network gets when the caller says nothing.
DEFAULT_RESILIENCE = Resilience()


class Health(Struct, frozen=True, kw_only=True):
    """The state of the resilient layer."""

    store: str
    breaker: State
    degraded: bool
    """Whether some owner gets degraded answers now."""
    reason: str | None
    spool_operations: int
    spool_bytes: int
    spool_limit: int
    """The size limit of the spool in bytes; 0 with `fail_closed`."""
    spool_oldest_seconds: float
    dead_letters: int
    """Operations that the store refused or that cannot be decoded; an operator must inspect them."""


def why_not_writable(folder: Path) -> str | None:
    """Return the reason why the folder cannot be written; None if it can."""
    nearest = folder
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    if not nearest.is_dir():
        return f"{nearest} is not a folder"
    return None if os.access(nearest, os.W_OK | os.X_OK) else f"{nearest} cannot be written"


# The connection to the wrapped store: retries, deadlines, circuit breaker and probes.


log = logging.getLogger("aforesaid.resilient")

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[None]]

# Seconds for a read of thousands of entries, which no conversation waits for.
LONG_READ = 60.0
PROBE_OWNER, _PROBE_ID = "aforesaid probe", "00000000-0000-7000-8000-000000000000"


# Retries. No dependency: the code is short, and tests pass a `sleep` that returns at once.


def is_transient(error: AforesaidError) -> bool:
    """Whether the error may pass by itself."""
    return isinstance(error, StoreUnavailable) and not isinstance(error, SpoolFull)


def is_retryable(error: AforesaidError) -> bool:
    """Whether an immediate retry may help. It does not help an overloaded store or a store that has already
    waited for a lock."""
    return is_transient(error) and not isinstance(error, Overloaded | StoreBusy | StoreReplaced)


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """The number of attempts, and the seconds for all of them; None sets no deadline."""

    attempts: int = 3
    deadline: float | None = None
    first_pause: float = 0.05
    longest_pause: float = 1.0

    def once(self) -> "RetryPolicy":
        """Return a policy with the same deadline and a single attempt."""
        return RetryPolicy(attempts=1, deadline=self.deadline)

    def pauses(self) -> Iterator[float]:
        """Yield the pauses between attempts: exponential, with jitter against simultaneous retries."""
        ceiling = self.first_pause
        for _ in range(self.attempts - 1):
            yield random.uniform(ceiling / 2, ceiling)
            ceiling = min(ceiling * 2, self.longest_pause)


def _is_cancelled() -> bool:
    """Whether this task was cancelled. A driver may answer a cancellation with an error of its own; a retry
    would then write a turn that was meanwhile spooled, after turns that follow it."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def with_retries(
    call: Callable[[], Awaitable[T]],
    retry: RetryPolicy,
    *,
    sleep: Sleep,
    on_failure: Callable[[AforesaidError], None] = lambda error: None,
    on_retry: Callable[[], None] = lambda: None,
) -> T:
    """Return the call's answer; retry after transient errors, and pass each of them to `on_failure`."""
    pauses = retry.pauses()
    while True:
        try:
            return await call()
        except StoreUnavailable as error:
            if not is_transient(error):
                raise
            on_failure(error)
            pause = next(pauses, None)
            if pause is None or not is_retryable(error) or _is_cancelled():
                raise
        on_retry()
        await sleep(pause)


class StoreConnection:
    """Calls to one store. `on_change` runs after every change of the breaker, `on_retry` before every
    retry."""

    def __init__(
        self,
        inner: Backend,
        *,
        name: str,
        resilience: Resilience,
        reached: ReachedMark | None,
        clock: Callable[[], float],
        sleep: Sleep,
        on_change: Callable[[], None],
        on_retry: Callable[[], None],
    ) -> None:
        self._inner = inner
        self._name = name
        self._resilience = resilience
        self._reached = reached
        self._sleep = sleep
        self._on_change = on_change
        self._on_retry = on_retry
        self._is_open = False
        # Calls that exceeded their deadline and have not ended yet.
        self._abandoned: set[asyncio.Task[Any]] = set()
        self.breaker = Breaker(clock=clock, on_change=self._breaker_changed)
        # The last error of an unavailable store: the cause of errors that callers get meanwhile.
        self.cause: StoreUnavailable | None = None
        attempts = resilience.attempts
        self.read_retry = RetryPolicy(attempts=attempts, deadline=resilience.read_deadline, longest_pause=0.2)
        self.long_read_retry = RetryPolicy(attempts=attempts, deadline=LONG_READ)
        self.search_retry = RetryPolicy(
            attempts=attempts, deadline=resilience.search_deadline, longest_pause=0.2
        )
        self.write_retry = RetryPolicy(attempts=attempts, deadline=resilience.write_deadline, first_pause=0.1)

    @property
    def reachable(self) -> bool:
        """Whether calls go to the store."""
        return self._is_open and self.breaker.closed

    # Opening and closing

    async def open(self, *, fails_closed: bool) -> None:
        """Open the store.

        A store that was reached before may be unavailable. One that was never reached most likely has a
        mistyped URL, and turns would stay in the spool forever.
        """
        required = not fails_closed and not await self._may_be_unavailable()
        try:
            if required:
                await with_retries(self._open_inner, self.write_retry, sleep=self._sleep)
            else:
                await self._open_inner()
        except StoreUnavailable as error:
            if fails_closed or isinstance(error, StoreReplaced):
                raise
            if required:
                raise StoreUnavailable(
                    f"{self._name} was never reached from this machine, so its URL may be wrong: {error}. "
                    "To start without it, set AFORESAID_START_UNREACHED=true or `Resilience.start_unreached`"
                ) from error
            self._trip(error)

    async def _may_be_unavailable(self) -> bool:
        if self._reached is None or self._resilience.start_unreached:
            return True
        return await asyncio.to_thread(self._reached.is_set)

    async def _open_inner(self) -> None:
        await self._inner.open()
        if self._reached is not None:
            await self._recognize(self._reached)
        self._is_open = True

    async def _recognize(self, reached: ReachedMark) -> None:
        """Remember that the store was reached. Raise `StoreReplaced` if it had other data before."""
        server = capability(self._inner, ServerBacked)
        identity = "" if server is None else await server.data_identity()
        before = await asyncio.to_thread(reached.identity)
        if identity and before not in ("", identity) and not self._resilience.start_replaced:
            await self._inner.close()
            raise StoreReplaced(
                f"{self._name} has other data than before: its data was deleted, or the address leads to "
                "another server. Restore the data, or accept the store as it is with "
                "AFORESAID_START_REPLACED=true or `Resilience.start_replaced`"
            )
        await asyncio.to_thread(reached.set, identity)

    async def finish(self) -> None:
        """Make no more calls, and wait for abandoned ones to end."""
        self._is_open = False
        if self._abandoned:
            await asyncio.wait(set(self._abandoned), timeout=self._resilience.close_deadline)

    def follow_loop(self) -> None:
        """Forget the tasks of an event loop that has ended."""
        self._abandoned = set()

    # Calls

    async def attempt(
        self, call: Callable[[], Awaitable[T]], retry: RetryPolicy, *, is_prompt: bool = False
    ) -> T:
        """Return the store's answer. A call that exceeds the deadline of its retry policy has failed.

        A call that ends as soon as it is cancelled is `is_prompt`: it needs no task of its own.
        """
        attempts = with_retries(
            call, retry, sleep=self._sleep, on_failure=self._attempt_failed, on_retry=self._on_retry
        )
        try:
            if is_prompt:
                answer = await promptly_within(retry.deadline, attempts)
            else:
                # It does not wait for a driver that is slow to cancel; the call ends by itself.
                answer = await within(retry.deadline, attempts, left=self._abandoned)
        except TimeoutError as error:
            late = StoreUnavailable(f"{self._name} did not answer within {retry.deadline:g} s")
            self._trip(late)
            raise late from error
        except StoreUnavailable as error:
            if is_transient(error):
                self._trip(error)
            raise
        # A refusal, such as a conflict, is an answer: the store is available.
        except AforesaidError:
            self.breaker.succeeded()
            raise
        self.breaker.succeeded()
        return answer

    def _trip(self, error: StoreUnavailable) -> None:
        self.breaker.trip(str(error))
        if not self.breaker.closed:
            self.cause = error

    def _attempt_failed(self, error: AforesaidError) -> None:
        self.breaker.failed(str(error))

    def _breaker_changed(self, state: State, reason: str) -> None:
        if state == "closed":
            self.cause = None
        level = logging.INFO if state == "half_open" else logging.WARNING
        sentence = f"{self._name}: the breaker is {state.replace('_', ' ')}"
        event(log, level, f"breaker_{state}", sentence, store=self._name, reason=reason)
        self._on_change()

    # Probes

    async def probe(self) -> bool:
        """Call the store if a probe is due; return whether the breaker is closed."""
        if self.breaker.closed:
            # `begin_probe` needs an open breaker.
            self.breaker.trip("it was not opened yet")
        if not self.breaker.begin_probe():
            return False
        try:
            await within(self._resilience.write_deadline, self._ping(), left=self._abandoned)
        except TimeoutError:
            self.breaker.probe_failed("it does not answer")
        except StoreError as error:
            self.breaker.probe_failed(str(error))
        except BaseException:
            self.breaker.probe_failed("the probe was cancelled")
            raise
        else:
            self.breaker.probe_succeeded()
        return self.breaker.closed

    async def _ping(self) -> None:
        if not self._is_open:
            await self._open_inner()
        await self._inner.of(PROBE_OWNER).get(_PROBE_ID)
