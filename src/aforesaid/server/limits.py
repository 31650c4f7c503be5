"""How often somebody may ask, and how much they may keep open. Below: errors.

There is a bucket for every caller and class of routes. It holds as many requests as a minute allows and fills
up evenly, so that a burst passes and a flood does not. Each process counts for itself: with several workers a
caller gets as many times the limit.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Literal

from aforesaid._internal.bounded import BoundedDict
from aforesaid.errors import TooManyRequests

RouteClass = Literal["read", "write", "search", "ask"]
"""What routes cost: to read, to write, to search, to ask the assistant."""

MOST_BUCKETS = 10_000


class Limits:
    """Requests a minute by class; 0 is no limit."""

    def __init__(
        self, per_minute: Mapping[RouteClass, int], *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_minute = dict(per_minute)
        self._monotonic = monotonic
        self._buckets: BoundedDict[tuple[str, str], tuple[float, float]] = BoundedDict(MOST_BUCKETS)

    def take(self, caller: str, route_class: RouteClass) -> None:
        """Count a request. Raises `TooManyRequests`, which says when the next one passes."""
        most = self._per_minute.get(route_class, 0)
        if not most:
            return
        now, key = self._monotonic(), (caller, route_class)
        left, at = self._buckets.get(key, (float(most), now))
        left = min(float(most), left + (now - at) * most / 60)
        if left < 1:
            wait = (1 - left) * 60 / most
            raise TooManyRequests(
                f"more than {most} requests a minute of the class {route_class}", retry_after=wait
            )
        self._buckets[key] = left - 1, now


class Openings:
    """What callers keep open at once: WebSockets, and answers that go on."""

    def __init__(self, per_caller: int) -> None:
        self._most = per_caller
        self._open: Counter[str] = Counter()

    def begin(self, caller: str) -> None:
        """Count one more. Raises `TooManyRequests`."""
        if self._open[caller] >= self._most:
            raise TooManyRequests("too many connections are open with this key", retry_after=1.0)
        self._open[caller] += 1

    def end(self, caller: str) -> None:
        self._open[caller] -= 1
        if not self._open[caller]:
            del self._open[caller]
