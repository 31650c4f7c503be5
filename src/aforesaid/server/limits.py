"""Limits: rates and concurrency of callers, resources of connections, and how they follow from the settings.

Each process has its own counters; `shared_rates.py` exchanges those of callers between processes.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Literal

from msgspec import Struct

from aforesaid._internal.bounded import BoundedDict
from aforesaid.errors import InvalidSetting, Overloaded, TooManyRequests, shown
from aforesaid.settings import ServerConfig
from aforesaid.telemetry import telemetry
from aforesaid.telemetry.resources import MAX_FILES, open_files_limit

Monotonic = Callable[[], float]
"""A monotonic clock in seconds."""


# Callers


RouteClass = Literal["read", "write", "search", "ask"]
"""The rate limit that applies to a route."""

MOST_BUCKETS = 10_000
# Callers, by class, whose counts are shared with other processes: the latest ones.
MOST_SHARED = 1_000


class Limits:
    """Requests per minute by route class; 0 means no limit.

    Each caller has a token bucket per route class, which holds the requests of one minute and refills evenly.
    """

    def __init__(
        self, per_minute: Mapping[RouteClass, int], *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_minute = dict(per_minute)
        self._monotonic = monotonic
        self._buckets: BoundedDict[tuple[str, RouteClass], tuple[float, float]] = BoundedDict(MOST_BUCKETS)
        self._accepted: BoundedDict[tuple[str, RouteClass], int] = BoundedDict(MOST_SHARED)

    def take(self, caller: str, route_class: RouteClass) -> None:
        """Count a request. Raises `TooManyRequests` with the time until the next request is accepted."""
        most = self._per_minute.get(route_class, 0)
        if not most:
            return
        key = caller, route_class
        left, now = self._left(key, most)
        if left < 1:
            # A refusal leaves the bucket unchanged: the refill counts from the last accepted request.
            wait = (1 - left) * 60 / most
            raise TooManyRequests(
                f"more than {most} requests per minute of the class {route_class}", retry_after=wait
            )
        self._buckets[key] = left - 1, now
        self._accepted[key] = self._accepted.get(key, 0) + 1

    def accepted(self) -> dict[tuple[str, RouteClass], int]:
        """Return how many requests were accepted since the start, for the latest callers."""
        return dict(self._accepted.items())

    def forget_accepted(self) -> None:
        """Count accepted requests from zero."""
        self._accepted.clear()

    def charge(self, caller: str, route_class: RouteClass, requests: int) -> None:
        """Count requests that another process has accepted. A debt is at most the requests of a minute."""
        most = self._per_minute.get(route_class, 0)
        if most:
            left, now = self._left((caller, route_class), most)
            self._buckets[caller, route_class] = max(-float(most), left - requests), now

    def _left(self, key: tuple[str, RouteClass], most: int) -> tuple[float, float]:
        """Return what the bucket holds now, and the time."""
        now = self._monotonic()
        left, at = self._buckets.get(key, (float(most), now))
        return min(float(most), left + (now - at) * most / 60), now


class ConcurrencyLimit:
    """Limit the open WebSockets and event streams of each caller."""

    def __init__(self, per_caller: int) -> None:
        self._most = per_caller
        self._open: Counter[str] = Counter()

    def acquire(self, caller: str) -> None:
        """Count one connection. Raises `TooManyRequests`."""
        if self._open[caller] >= self._most:
            raise TooManyRequests("too many open connections with this key", retry_after=1.0)
        self._open[caller] += 1

    def release(self, caller: str) -> None:
        self._open[caller] -= 1
        # Drop zero counts, or the counter would grow with every caller that ever connected.
        if not self._open[caller]:
            del self._open[caller]


# Requests in progress that are always accepted, and requests per second assumed before any was measured.
LEAST_IN_PROGRESS, ASSUMED_RATE = 64, 500.0
# Seconds over which the rate of answers is measured.
RATE_SECONDS = 0.25


class Admission:
    """Refuse requests that could not be answered in time.

    By Little's law a new request waits for the requests in progress divided by the rate of answers. The rate
    is measured while the server is busy: an idle server's rate says nothing about what it can do.
    """

    def __init__(
        self, queue_seconds: float, *, most: int = MAX_FILES, monotonic: Monotonic = time.monotonic
    ) -> None:
        self._queue_seconds = queue_seconds
        self._most = most
        self._monotonic = monotonic
        self._rate = ASSUMED_RATE
        self._answered = 0
        self._since: float | None = None
        self.in_progress = 0
        self.refused = telemetry.counter("aforesaid_http_requests_shed_total")

    def enter(self) -> None:
        """Count a request. Raises `Overloaded` if it would wait too long."""
        if self.in_progress >= LEAST_IN_PROGRESS:
            self._measure()
            if self._queue_seconds and self.in_progress >= self._limit():
                self.refused.add()
                raise Overloaded(
                    f"the server is busy: {self.in_progress} requests are waiting, more than it answers in "
                    f"{self._queue_seconds:g} s; try again later"
                )
        self.in_progress += 1

    def leave(self) -> None:
        """Count an answer."""
        self.in_progress -= 1
        self._answered += 1
        if self.in_progress < LEAST_IN_PROGRESS:
            self._since = None

    def _limit(self) -> float:
        return min(float(self._most), max(LEAST_IN_PROGRESS, self._rate * self._queue_seconds))

    def _measure(self) -> None:
        now = self._monotonic()
        if self._since is None:
            self._since, self._answered = now, 0
        elif now - self._since >= RATE_SECONDS:
            self._rate = (self._rate + self._answered / (now - self._since)) / 2
            self._since, self._answered = now, 0


def admission_for(settings: ServerConfig) -> Admission:
    """Return the admission of the settings. Requests in progress get at most 30 % of the file handles."""
    return Admission(float(settings.queue_seconds), most=max(LEAST_IN_PROGRESS, 3 * open_files_limit() // 10))


def limits_for(settings: ServerConfig) -> Limits:
    """Return the rate limits of the settings."""
    return Limits(
        {
            "read": settings.rate_read,
            "write": settings.rate_write,
            "search": settings.rate_search,
            "ask": settings.rate_ask,
        }
    )


# Connections


class ConnectionLimits(Struct, frozen=True, kw_only=True):
    """Limits of connections."""

    request_seconds: float = 10.0
    keep_alive_seconds: float = 75.0
    stall_seconds: float = 60.0
    waiting: int = 1000
    head_bytes: int = 64 * 1024


def connection_limits_for(settings: ServerConfig) -> ConnectionLimits:
    """Return the limits of the settings.

    Each of five states, including WebSockets before their hello, gets at most a tenth of the file handles.
    The rest is for requests in progress and the store.
    """
    return ConnectionLimits(
        request_seconds=float(settings.request_seconds),
        keep_alive_seconds=float(settings.keep_alive_seconds),
        waiting=max(1, min(settings.waiting_connections, open_files_limit() // 10)),
    )


class LiveLimits(Struct, frozen=True, kw_only=True):
    """Limits of WebSocket connections. The defaults suit conversations between people."""

    frame_bytes: int = 256 * 1024
    """Size of a text frame. A larger frame is refused and the connection stays open."""
    audio_frame_bytes: int = 1024 * 1024
    """Size of an audio frame: about 30 seconds at 16 kHz."""
    audio_bytes: int = 16 * 1024 * 1024
    """Size of one utterance: about eight minutes at 16 kHz."""
    frames_per_second: float = 50.0
    """Sustained rate; audio frames of 20 ms have this rate."""
    burst: int = 200
    """Frames in a burst."""
    refused_frames: int = 1000
    """Frames above the rate that get an error before the connection is closed."""
    connections: int = 10_000
    """Open connections per process."""
    unknown_connections: int = 1000
    """Open connections per process before their hello; one more closes the oldest."""
    connections_per_key: int = 200
    """Open connections per process and key: enough for a household or a backend with several workers."""
    turns_waiting: int = 8
    """Turns in progress per connection."""
    watches: int = 64
    """Watched conversations per connection."""
    replies_waiting: int = 64
    """Replies in the outbox. While it is full, the server reads no frames of the connection."""
    hello_seconds: float = 10.0
    """Time until the hello."""
    heartbeat_seconds: float = 20.0
    """Idle time until a heartbeat; after twice the time the connection is closed. 0 disables heartbeats."""
    stall_seconds: float = 30.0
    """Time that a client may leave a frame unread before it is disconnected."""
    recheck_seconds: float = 5.0
    """Interval of key checks. A revoked key closes its connections within this time."""
    poll_seconds: float = 0.25
    """Polling interval for stores that cannot report changes."""
    watched_poll_seconds: float = 15.0
    """Polling interval for stores that report changes, in case a report is lost."""
    drain_seconds: float = 10.0
    """Time for answers in progress when the server stops."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value < 0 or (value == 0 and name not in ("heartbeat_seconds", "drain_seconds")):
                raise InvalidSetting(
                    f"{name} must be more than 0; got {shown(value)}", field=name, value=value
                )


def live_limits_for(settings: ServerConfig) -> LiveLimits:
    """Return the WebSocket limits of the settings."""
    return LiveLimits(
        frame_bytes=settings.live_frame_kb * 1024,
        frames_per_second=float(settings.live_rate),
        burst=settings.live_rate * 4,
        # WebSockets get at most 30 % of the file handles. `connection_limits_for` has the other shares.
        connections=max(1, min(settings.live_connections, 3 * open_files_limit() // 10)),
        unknown_connections=connection_limits_for(settings).waiting,
        connections_per_key=settings.live_connections_per_key,
        heartbeat_seconds=float(settings.live_heartbeat),
        drain_seconds=float(settings.drain_seconds),
    )


class RateLimiter:
    """A token bucket."""

    def __init__(self, rate: float, burst: int, now: Monotonic) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._left = float(burst)
        self._now = now
        self._at = now()

    def take(self) -> None:
        """Take one token. Raises `TooManyRequests` with the time until the next token."""
        now = self._now()
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left < 1:
            wait = (1 - self._left) / self._rate
            raise TooManyRequests("too many frames", retry_after=round(wait, 3))
        self._left -= 1
