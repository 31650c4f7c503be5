"""Counters, gauges and histograms as plain values.

    retries = telemetry.counter("aforesaid_retries_total", store="…")
    retries.add()
    for sample in telemetry.samples(): ...

A surface exports `series()`. Counting happens on the event loop, so it needs no lock, and costs a tenth of a
microsecond.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from time import time
from typing import Any, NamedTuple

from aforesaid.telemetry.catalogue import CATALOGUE, LENGTHS, SECONDS, Family, Kind
from aforesaid.telemetry.tracing import Request, current

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
