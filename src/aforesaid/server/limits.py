"""Rate limits and concurrency limits per caller.

Each caller has a token bucket per route class, which holds the requests of one minute and refills evenly.
Each process has its own buckets, so the effective limit grows with the number of workers.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Literal

from aforesaid._internal.bounded import BoundedDict
from aforesaid.errors import TooManyRequests

RouteClass = Literal["read", "write", "search", "ask"]
"""The rate limit that applies to a route."""

MOST_BUCKETS = 10_000


class Limits:
    """Requests per minute by route class; 0 means no limit."""

    def __init__(
        self, per_minute: Mapping[RouteClass, int], *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_minute = dict(per_minute)
        self._monotonic = monotonic
        self._buckets: BoundedDict[tuple[str, str], tuple[float, float]] = BoundedDict(MOST_BUCKETS)

    def take(self, caller: str, route_class: RouteClass) -> None:
        """Count a request. Raises `TooManyRequests` with the time until the next request is accepted."""
        most = self._per_minute.get(route_class, 0)
        if not most:
            return
        now, key = self._monotonic(), (caller, route_class)
        left, at = self._buckets.get(key, (float(most), now))
        left = min(float(most), left + (now - at) * most / 60)
        if left < 1:
            wait = (1 - left) * 60 / most
            raise TooManyRequests(
                f"more than {most} requests per minute of the class {route_class}", retry_after=wait
            )
        self._buckets[key] = left - 1, now


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
        if not self._open[caller]:
            del self._open[caller]
