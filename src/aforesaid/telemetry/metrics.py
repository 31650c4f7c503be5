"""Every metric as data, and the counters, gauges and histograms that hold their values.

The code that counts creates a metric once and keeps it:

    retries = telemetry.counter("aforesaid_retries_total", store="…")
    retries.add()
    for sample in telemetry.samples(): ...
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from time import time
from typing import Any, Literal, NamedTuple

from aforesaid.telemetry.tracing import Request, current

# Every metric as data: name, kind, meaning, labels, buckets.
#
# Tests compare `docs/reference/metrics.md`, the alert rules and the dashboard with this list, and a metric
# of ours must be in it. Label values come from sets known when the program is written or configured: never
# an owner, an id, or content.


Kind = Literal["counter", "gauge", "histogram"]


# Upper bounds of time histograms, from ten microseconds (a read in memory) to ten seconds (a store that
# hangs). Five steps per power of ten: the error of a quantile is at most one step, a factor of 1.6.
SECONDS = (
    *(float(f"{step}e{power}") for power in range(-5, 1) for step in (1.0, 1.6, 2.5, 4.0, 6.3)),
    10.0,
)
# Upper bounds of lengths and counts: powers of two up to a million, so that a bucket is a number of bits.
LENGTHS = tuple(float(2**power) for power in range(21))


class Family(NamedTuple):
    """All series of one name."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    across: Literal["sum", "max"] = "sum"
    """How the values of several processes are combined."""


def _counter(name: str, meaning: str, *labels: str) -> Family:
    return Family(name, "counter", meaning, labels)


def _gauge(name: str, meaning: str, *labels: str, across: Literal["sum", "max"] = "sum") -> Family:
    return Family(name, "gauge", meaning, labels, across=across)


def _times(name: str, meaning: str, *labels: str) -> Family:
    return Family(name, "histogram", meaning, labels, SECONDS)


def _lengths(name: str, meaning: str, *labels: str) -> Family:
    return Family(name, "histogram", meaning, labels, LENGTHS)


CHAPTERS: dict[str, tuple[Family, ...]] = {
    "Conversations": (
        _counter("aforesaid_conversations_started_total", "Conversations started", "channel"),
        _counter(
            "aforesaid_conversations_ended_total",
            "Conversations removed: deleted (also where there was none), expired, erased, archived",
            "how",
        ),
        _counter(
            "aforesaid_conversation_events_total",
            "Events of conversations: assigned, closed, reopened, merged",
            "kind",
        ),
        _counter("aforesaid_turns_total", "Turns stored"),
        _counter("aforesaid_messages_total", "Messages stored", "role"),
        _counter("aforesaid_client_associations_total", "Conversations linked to a client"),
        _counter("aforesaid_clients_ambiguous_total", "Messages that may name several clients"),
        _counter(
            "aforesaid_client_notes_dropped_total",
            "Conversations not searched for clients because the queue was full",
        ),
        _lengths("aforesaid_message_characters", "Characters in a stored message"),
        _lengths("aforesaid_conversation_messages", "Messages in a conversation when a context is built"),
    ),
    "Contexts": (
        _lengths("aforesaid_context_messages", "Messages in a context"),
        _lengths("aforesaid_context_tokens", "Tokens in a context, where they were counted"),
        _counter(
            "aforesaid_contexts_degraded_total",
            "Contexts built from the last known state while the store was unavailable",
        ),
    ),
    "Calls": (
        _times(
            "aforesaid_call_seconds",
            "Duration of a call of the manager; one may contain another, as add_message contains append",
            "call",
        ),
        _counter(
            "aforesaid_call_errors_total",
            "Calls of the manager that raised an error; each error counts once, where it was first raised",
            "call",
            "error",
        ),
    ),
    "Search": (
        _counter(
            "aforesaid_searches_total",
            "Searches by kind: words, meaning, time, conversations, likeness",
            "by",
        ),
        _lengths("aforesaid_search_results", "Results of a search"),
        _times(
            "aforesaid_search_stage_seconds",
            "Duration of a stage of a search: candidates, reading, browsing",
            "stage",
        ),
    ),
    "Agents": (
        _times("aforesaid_agent_step_seconds", "Duration of one reply of an agent", "agent"),
        _counter("aforesaid_agent_errors_total", "Replies that failed", "agent", "error"),
        _counter("aforesaid_agent_tokens_total", "Tokens as counted by providers", "agent", "direction"),
        _counter(
            "aforesaid_unstored_turns_total",
            "Answered turns that could not be stored: queued, stored later, or lost",
            "status",
        ),
        _times("aforesaid_tool_seconds", "Duration of a tool call", "tool"),
        _counter("aforesaid_tool_errors_total", "Tool calls that failed", "tool"),
    ),
    "Stores": (
        _times("aforesaid_store_seconds", "Duration of a store operation", "store", "operation"),
        _counter(
            "aforesaid_store_errors_total",
            "Store operations that were refused or failed",
            "store",
            "operation",
            "error",
        ),
        _counter(
            "aforesaid_log_violations_total",
            "Entries of sealed logs that were changed or cannot be decrypted",
        ),
        _counter("aforesaid_unreadable_messages_total", "Reads of stored messages that cannot be decoded"),
        _counter("aforesaid_cache_hits_total", "Reads served from the cache", "store"),
        _counter("aforesaid_cache_misses_total", "Reads that were loaded", "store"),
        _gauge("aforesaid_cache_bytes", "Bytes in the cache", "store"),
        _counter(
            "aforesaid_slow_operations_total",
            "Store operations that took longer than a second",
            "store",
            "operation",
        ),
        _counter("aforesaid_retries_total", "Retries", "store"),
        _counter("aforesaid_degraded_reads_total", "Reads answered from the last known state", "store"),
        _gauge("aforesaid_breaker_state", "0 closed, 1 half open, 2 open", "store", across="max"),
        _gauge("aforesaid_known_bytes", "Bytes of the last known state", "store"),
        _counter("aforesaid_spool_accepted_total", "Operations accepted into the spool", "store"),
        _counter("aforesaid_spool_replayed_total", "Spooled operations that were replayed", "store"),
        _counter("aforesaid_dead_letters_total", "Spooled operations that the store refused", "store"),
        _counter("aforesaid_spool_damaged_total", "Damaged parts of the spool that were set aside", "store"),
        _gauge("aforesaid_spool_operations", "Operations in the spool", "store"),
        _gauge("aforesaid_spool_bytes", "Bytes in the spool", "store"),
        _gauge("aforesaid_spool_limit_bytes", "The most bytes that the spool may take", "store"),
        _gauge(
            "aforesaid_spool_oldest_seconds",
            "Age of the oldest operation in the spool",
            "store",
            across="max",
        ),
    ),
    "HTTP": (
        _counter(
            "aforesaid_http_requests_total",
            "Requests answered, by the template of their route",
            "method",
            "route",
            "status",
        ),
        _times(
            "aforesaid_http_request_seconds",
            "Duration of a request, from its first byte to the last byte of the response",
            "method",
            "route",
        ),
        _gauge("aforesaid_http_requests_in_progress", "Requests being answered"),
        _counter(
            "aforesaid_http_requests_shed_total",
            "Requests refused because they would have waited too long",
        ),
    ),
    "WebSocket": (
        _gauge("aforesaid_live_connections", "Open connections"),
        _counter("aforesaid_live_opened_total", "Opened connections"),
        _counter("aforesaid_live_closed_total", "Closed connections, by code", "code"),
        _counter("aforesaid_live_frames_total", "Frames in and out", "direction", "kind"),
        _gauge("aforesaid_live_queued", "Frames waiting to be sent, over all connections"),
        _gauge(
            "aforesaid_live_queue_longest",
            "Frames waiting on the connection with the longest queue",
            across="max",
        ),
        _gauge("aforesaid_live_feeds", "Watched conversations"),
        _gauge("aforesaid_live_turns", "Turns in progress"),
        _gauge(
            "aforesaid_changes_polled",
            "1 while changes of other processes are polled because notifications do not arrive",
            across="max",
        ),
    ),
    "Notifications": (
        _counter("aforesaid_notifications_total", "Delivered notifications, by frame or webhook", "how"),
        _counter("aforesaid_webhook_attempts_total", "Requests to webhooks, by outcome", "status"),
    ),
    "Process": (
        _gauge("aforesaid_build_info", "Always 1; the label is the release", "version", across="max"),
        _gauge("aforesaid_processes", "Server processes included in these metrics"),
        _gauge("aforesaid_start_time_seconds", "When the process started, in Unix time", across="max"),
        _gauge("aforesaid_open_files", "Open files and sockets of the process with the most", across="max"),
        _gauge("aforesaid_open_files_limit", "The most files and sockets of a process", across="max"),
        _gauge(
            "aforesaid_disk_free_bytes",
            "Free bytes on the disk of the store's file or of the spool",
            "folder",
            across="max",
        ),
        _gauge(
            "aforesaid_disk_size_bytes",
            "Size of the disk of the store's file or of the spool",
            "folder",
            across="max",
        ),
    ),
}

CATALOGUE: dict[str, Family] = {family.name: family for chapter in CHAPTERS.values() for family in chapter}


# Counters, gauges and histograms as plain values.
#
# A surface exports `series()`. Counting happens on the event loop, so it needs no lock, and costs a tenth
# of a microsecond.


# The most series of one name. Further ones get the labels `other`, so that memory stays bounded.
MOST_SERIES = 1000
OTHER = "other"
# The most bits of a length.
MOST_BITS = 128


class Exemplar(NamedTuple):
    """One of many observations, with its request."""

    labels: dict[str, str]
    value: float
    at: float


class Series(NamedTuple):
    """One metric with its labels and current value. For a histogram, `counts` by bucket and their sum as
    `value`.
    """

    name: str
    labels: dict[str, str]
    value: float
    counts: tuple[int, ...] = ()
    exemplars: tuple[Exemplar | None, ...] = ()


class Sample(NamedTuple):
    """One number. A histogram gives several: `le` buckets, then `_sum` and `_count`."""

    name: str
    kind: Kind
    help: str
    labels: Mapping[str, str]
    value: float
    exemplar: Exemplar | None = None


class Counter:
    """A number that only increases."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def add(self, amount: float = 1.0) -> None:
        self.value += amount

    def state(self) -> tuple[Any, ...]:
        return (self.value,)


class Gauge:
    """A number that is read on request."""

    __slots__ = ("read",)

    def __init__(self, read: Callable[[], float]) -> None:
        self.read = read

    @property
    def value(self) -> float:
        return float(self.read())

    def state(self) -> tuple[Any, ...]:
        return (self.value,)


class Histogram:
    """A distribution of durations or sizes."""

    __slots__ = ("_bounds", "_counts", "_exemplars", "_sum")

    def __init__(self, bounds: tuple[float, ...] = SECONDS) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._exemplars: list[tuple[Request, float, float] | None] = [None] * (len(bounds) + 1)
        self._sum = 0.0

    @property
    def value(self) -> float:
        """The number of observations."""
        return float(sum(self._counts))

    def observe(self, amount: float) -> None:
        bucket = bisect_left(self._bounds, amount)
        self._counts[bucket] += 1
        self._sum += amount
        # The exemplar is the last observation of its bucket; older ones are overwritten.
        request = current.get()
        if request is not None:
            self._exemplars[bucket] = request, amount, time()

    def state(self) -> tuple[Any, ...]:
        return self._sum, tuple(self._counts), tuple(map(_exemplar, self._exemplars))


def _exemplar(stored: tuple[Request, float, float] | None) -> Exemplar | None:
    """Return the exemplar. It is converted on request, because many are stored and few are read."""
    if stored is None:
        return None
    request, amount, at = stored
    return Exemplar(request.labels, amount, at)


class Lengths:
    """A distribution of whole numbers, for the most frequent measurements."""

    __slots__ = ("_counts", "_sum")

    def __init__(self) -> None:
        self._counts = [0] * MOST_BITS
        self._sum = 0

    @property
    def value(self) -> float:
        """The number of observations."""
        return float(sum(self._counts))

    def observe(self, amount: int) -> None:
        self._sum += amount
        # The bit length is the index of the power of two: cheaper than a search, on the path of every
        # message.
        self._counts[(amount - 1).bit_length() if amount > 0 else 0] += 1

    def state(self) -> tuple[Any, ...]:
        shown = len(LENGTHS)
        counts = (*self._counts[:shown], sum(self._counts[shown:]))
        return self._sum, counts, (None,) * len(counts)


Metric = Counter | Gauge | Histogram | Lengths
Key = tuple[str, tuple[tuple[str, str], ...]]


class Telemetry:
    """Metrics by name and labels; the same name and labels give the same metric."""

    def __init__(self) -> None:
        self._metrics: dict[Key, Metric] = {}
        self._families: dict[str, Family] = {}
        self._sizes: dict[str, int] = {}

    def counter(self, name: str, description: str = "", **labels: str) -> Counter:
        metric = self._metric(self._family(name, "counter", description, labels), labels, Counter)
        assert isinstance(metric, Counter)
        return metric

    def histogram(
        self, name: str, description: str = "", *, bounds: tuple[float, ...] = SECONDS, **labels: str
    ) -> Histogram:
        family = self._family(name, "histogram", description, labels, bounds)
        metric = self._metric(family, labels, lambda: Histogram(family.bounds))
        assert isinstance(metric, Histogram)
        return metric

    def lengths(self, name: str, description: str = "", **labels: str) -> Lengths:
        """Return a histogram of whole numbers."""
        family = self._family(name, "histogram", description, labels, LENGTHS)
        metric = self._metric(family, labels, Lengths)
        assert isinstance(metric, Lengths)
        return metric

    def gauge(self, name: str, description: str, read: Callable[[], float], **labels: str) -> Gauge:
        """Return a gauge. The last caller's function is used: a store that is opened again replaces it."""
        family = self._family(name, "gauge", description, labels)
        gauge = self._metric(family, labels, lambda: Gauge(read))
        assert isinstance(gauge, Gauge)
        gauge.read = read
        return gauge

    def families(self) -> dict[str, Family]:
        """Return all families, by name."""
        return dict(sorted(self._families.items()))

    def series(self) -> list[Series]:
        """Return the current value of every metric."""
        return [
            Series(name, dict(labels), *metric.state())
            for (name, labels), metric in sorted(self._metrics.items(), key=lambda item: item[0])
        ]

    def samples(self) -> list[Sample]:
        """Return every current number."""
        return list(samples_of(self.series(), self._families))

    def _family(
        self,
        name: str,
        kind: Kind,
        description: str,
        labels: Iterable[str],
        bounds: tuple[float, ...] = (),
    ) -> Family:
        """Return the family from the catalogue, or the given one: an application may count metrics of its
        own.
        """
        known = CATALOGUE.get(name) or self._families.get(name)
        family = known or Family(name, kind, description, tuple(labels), bounds)
        if family.kind != kind or set(family.labels) != set(labels):
            wanted = f"a {family.kind} with the labels {', '.join(family.labels) or 'none'}"
            raise ValueError(f"{name} is {wanted}; got a {kind} with {', '.join(labels) or 'none'}")
        self._families[name] = family
        return family

    def _metric(self, family: Family, labels: dict[str, str], make: Callable[[], Metric]) -> Metric:
        key = family.name, tuple((label, labels[label]) for label in family.labels)
        metric = self._metrics.get(key)
        if metric is not None:
            return metric
        if self._sizes.get(family.name, 0) >= MOST_SERIES:
            key = family.name, tuple((label, OTHER) for label in family.labels)
        else:
            self._sizes[family.name] = self._sizes.get(family.name, 0) + 1
        return self._metrics.setdefault(key, make())


def samples_of(series: Iterable[Series], families: Mapping[str, Family]) -> Iterator[Sample]:
    """Yield the numbers of series."""
    for one in series:
        family = families[one.name]
        if family.kind == "histogram":
            yield from _histogram_samples(one, family)
        else:
            yield Sample(one.name, family.kind, family.help, one.labels, one.value)


def _histogram_samples(one: Series, family: Family) -> Iterator[Sample]:
    total = 0
    bounds: Sequence[str] = (*map(str, family.bounds), "+Inf")
    for bound, count, exemplar in zip(bounds, one.counts, one.exemplars, strict=True):
        total += count
        labels = one.labels | {"le": bound}
        yield Sample(f"{one.name}_bucket", "histogram", family.help, labels, float(total), exemplar)
    yield Sample(f"{one.name}_sum", "histogram", family.help, one.labels, one.value)
    yield Sample(f"{one.name}_count", "histogram", family.help, one.labels, float(total))


# The metrics of this process, the default everywhere.
telemetry = Telemetry()
