"""Samples of the metrics over the last hour, for charts, and the alerts that they would raise.

Prometheus does both better and for longer. These are for a look at a server without it: one sample every
few seconds, in memory, from the numbers of all workers.
"""

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from msgspec import Struct

from aforesaid.protocol.bodies import ResponseModel
from aforesaid.telemetry import describe, event
from aforesaid.telemetry.exposition import SharedNumbers
from aforesaid.telemetry.metrics import SECONDS, Series
from aforesaid.telemetry.resources import read_resources, show_resources

log = logging.getLogger("aforesaid.server")

# Seconds between two samples.
EVERY = 5.0
# Samples kept: an hour.
MOST = 720
# Samples that decide about alerts: five minutes.
RECENT = 60
# Share of the file handles from which a line is logged.
FILES_RUN_OUT = 0.8
# Routes that stay open: their durations say nothing about speed.
STREAMS = ("/v1/changes", "/ws")


class HealthSample(ResponseModel, frozen=True, kw_only=True):
    """Counts since the previous sample, times of that period in seconds, and current states."""

    at: datetime
    requests: int
    errors: int
    """Requests answered with 500 or above."""
    refused: int
    """Requests answered with 401, 403 or 429."""
    turns: int
    searches: int
    p50: float | None
    p95: float | None
    p99: float | None
    store_p50: float | None
    store_p95: float | None
    store_p99: float | None
    cache_hit_rate: float | None
    """Share of reads served from the cache, 0 to 1."""
    connections: int
    """Open WebSocket connections."""
    turns_now: int
    """Answers in progress."""
    frames_waiting: int
    longest_queue: int
    spool_operations: int
    spool_share: float
    """Used share of the spool's limit, 0 to 1."""
    breaker: int
    """0 closed, 1 half open, 2 open."""
    dead_letters: int


class Alert(ResponseModel, frozen=True, kw_only=True):
    """A condition that needs attention, and what to do."""

    name: str
    severity: Literal["warning", "critical"]
    summary: str
    action: str


class HealthSeries(ResponseModel, frozen=True, kw_only=True):
    """The samples of the last hour, oldest first, and the alerts that would fire now."""

    every: float
    """Seconds between two samples."""
    uptime: float
    samples: list[HealthSample]
    alerts: list[Alert]


class _Totals(Struct, frozen=True, kw_only=True):
    """The sums of one moment."""

    counters: Counter[str]
    requests: tuple[int, ...] = ()
    stores: tuple[int, ...] = ()


class HealthHistory:
    """Samples of this server, taken by a task of the application."""

    def __init__(
        self,
        numbers: SharedNumbers,
        *,
        folders: Mapping[str, Path] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`folders` must have free disk space; they are in the metrics by their labels."""
        self._numbers = numbers
        self._folders = dict(folders or {})
        self._clock = clock
        self._began = clock()
        self._before: _Totals | None = None
        self._samples: deque[HealthSample] = deque(maxlen=MOST)

    async def keep_sampling(self) -> None:
        """Take a sample every few seconds until cancelled."""
        while True:
            try:
                await self._sample_resources()
                await self.sample()
            except OSError as error:
                log.warning("metrics cannot be read: %s", describe(error))
            await asyncio.sleep(EVERY)

    async def _sample_resources(self) -> None:
        found = await asyncio.to_thread(read_resources, self._folders)
        show_resources(found)
        if found.open_files > FILES_RUN_OUT * found.open_files_limit:
            message = f"{found.open_files} of {found.open_files_limit} file handles are in use"
            event(log, logging.WARNING, "files_run_out", message, open_files=found.open_files)

    async def sample(self) -> None:
        """Take one sample."""
        totals = _totals((await self._numbers.numbers()).series)
        if self._before is not None:
            at = datetime.fromtimestamp(self._clock(), UTC)
            self._samples.append(_difference(self._before, totals, at))
        self._before = totals

    def series(self) -> HealthSeries:
        """Return what is known."""
        samples = list(self._samples)
        uptime = self._clock() - self._began
        return HealthSeries(every=EVERY, uptime=uptime, samples=samples, alerts=alerts_for(samples[-RECENT:]))


def _totals(series: Iterable[Series]) -> _Totals:
    counters: Counter[str] = Counter()
    requests, stores = Counter[int](), Counter[int]()
    for one in series:
        if one.name == "aforesaid_http_requests_total":
            counters["requests"] += int(one.value)
            counters[f"status {one.labels.get('status', '')[:1]}"] += int(one.value)
            if one.labels.get("status") in ("401", "403", "429"):
                counters["refused"] += int(one.value)
        elif one.name == "aforesaid_http_request_seconds" and one.labels.get("route") not in STREAMS:
            requests.update(dict(enumerate(one.counts)))
        elif one.name == "aforesaid_store_seconds":
            stores.update(dict(enumerate(one.counts)))
        elif one.name in _MAXIMA:
            counters[one.name] = max(counters[one.name], int(one.value))
        elif one.name in _SUMS:
            counters[one.name] += int(one.value)
    return _Totals(counters=counters, requests=_counts(requests), stores=_counts(stores))


_SUMS = frozenset(
    {
        "aforesaid_turns_total",
        "aforesaid_searches_total",
        "aforesaid_cache_hits_total",
        "aforesaid_cache_misses_total",
        "aforesaid_live_connections",
        "aforesaid_live_turns",
        "aforesaid_live_queued",
        "aforesaid_spool_operations",
        "aforesaid_spool_bytes",
        "aforesaid_spool_limit_bytes",
        "aforesaid_dead_letters_total",
    }
)
_MAXIMA = frozenset({"aforesaid_breaker_state", "aforesaid_live_queue_longest"})


def _counts(buckets: Counter[int]) -> tuple[int, ...]:
    return tuple(buckets[index] for index in range(max(buckets, default=-1) + 1))


def _difference(before: _Totals, now: _Totals, at: datetime) -> HealthSample:
    def since(name: str) -> int:
        return max(0, now.counters[name] - before.counters[name])

    def state(name: str) -> int:
        return now.counters[name]

    requests = _bucket_difference(before.requests, now.requests)
    stores = _bucket_difference(before.stores, now.stores)
    hits, misses = since("aforesaid_cache_hits_total"), since("aforesaid_cache_misses_total")
    limit = state("aforesaid_spool_limit_bytes")
    return HealthSample(
        at=at,
        requests=since("requests"),
        errors=since("status 5"),
        refused=since("refused"),
        turns=since("aforesaid_turns_total"),
        searches=since("aforesaid_searches_total"),
        p50=quantile(requests, 0.5),
        p95=quantile(requests, 0.95),
        p99=quantile(requests, 0.99),
        store_p50=quantile(stores, 0.5),
        store_p95=quantile(stores, 0.95),
        store_p99=quantile(stores, 0.99),
        cache_hit_rate=hits / (hits + misses) if hits + misses else None,
        connections=state("aforesaid_live_connections"),
        turns_now=state("aforesaid_live_turns"),
        frames_waiting=state("aforesaid_live_queued"),
        longest_queue=state("aforesaid_live_queue_longest"),
        spool_operations=state("aforesaid_spool_operations"),
        spool_share=state("aforesaid_spool_bytes") / limit if limit else 0.0,
        breaker=state("aforesaid_breaker_state"),
        dead_letters=state("aforesaid_dead_letters_total"),
    )


def _bucket_difference(before: tuple[int, ...], now: tuple[int, ...]) -> list[int]:
    # A worker that ended takes its buckets along for a moment, so a difference may be negative.
    earlier = before + (0,) * (len(now) - len(before))
    return [max(0, count - known) for count, known in zip(now, earlier, strict=False)]


def quantile(counts: Sequence[int], share: float) -> float | None:
    """Return the upper bound of the bucket that contains the quantile; None without observations."""
    total = sum(counts)
    if not total:
        return None
    wanted, seen = share * total, 0
    for index, count in enumerate(counts):
        seen += count
        if seen >= wanted:
            return SECONDS[min(index, len(SECONDS) - 1)]
    return SECONDS[-1]


# Alerts


def alerts_for(recent: Sequence[HealthSample]) -> list[Alert]:
    """Return the alerts that these samples raise, most severe first."""
    if not recent:
        return []
    return [alert for alert, fires in _ALERTS if fires(recent)]


def _error_share(recent: Sequence[HealthSample]) -> float:
    requests = sum(sample.requests for sample in recent)
    return sum(sample.errors for sample in recent) / requests if requests else 0.0


def _per_second(recent: Sequence[HealthSample], name: str) -> float:
    return float(sum(getattr(sample, name) for sample in recent)) / (EVERY * len(recent))


def _alert(name: str, severity: Literal["warning", "critical"], summary: str, action: str) -> Alert:
    return Alert(name=name, severity=severity, summary=summary, action=action)


_ALERTS: tuple[tuple[Alert, Callable[[Sequence[HealthSample]], bool]], ...] = (
    (
        _alert(
            "AforesaidRequestsFail",
            "critical",
            "More than 1 % of requests fail",
            "Read the log lines with status 500 and above; they have a request id.",
        ),
        lambda recent: _error_share(recent) > 0.01,
    ),
    (
        _alert(
            "AforesaidStoreAway",
            "critical",
            "The store does not answer",
            "Check the store's server and disk. Turns are accepted while the spool has room.",
        ),
        lambda recent: recent[-1].breaker >= 2,
    ),
    (
        _alert(
            "AforesaidSpoolFills",
            "critical",
            "The spool is more than half full",
            "Bring the store back, or raise the limit of the spool.",
        ),
        lambda recent: recent[-1].spool_share > 0.5,
    ),
    (
        _alert(
            "AforesaidDeadLetters",
            "warning",
            "The store refused spooled turns",
            "`aforesaid doctor` lists the dead letters.",
        ),
        lambda recent: recent[-1].dead_letters > recent[0].dead_letters,
    ),
    (
        _alert(
            "AforesaidRefusesCallers",
            "warning",
            "Many requests are refused",
            "A key has expired, a client guesses keys, or it exceeds its rate.",
        ),
        lambda recent: _per_second(recent, "refused") > 1,
    ),
    (
        _alert(
            "AforesaidConnectionsLag",
            "warning",
            "A WebSocket client does not read its frames",
            "The server disconnects slow clients. If there are many, check the network.",
        ),
        lambda recent: recent[-1].longest_queue > 32,
    ),
)
