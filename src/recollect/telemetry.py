"""Numbers about how it is going: counters, gauges, histograms, as plain values. Below: the standard library.

    breaker = telemetry.counter("recollect_retries_total", "Attempts that were made again", store="…")
    breaker.add()
    for sample in telemetry.samples(): ...

A surface exports `samples()` to whatever is watched there. Nothing that anybody said, and no owner,
ever becomes a label. Events go to the standard `logging`, by `event`, with their data as `extra`
fields beside a sentence.
"""

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram"]

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of a histogram of times: from a commit on a fast disk to a store that hangs."""


class Sample(NamedTuple):
    """One number of one metric, now. A histogram is several: `le` buckets, then `_sum` and `_count`."""

    name: str
    kind: Kind
    help: str
    labels: Mapping[str, str]
    value: float


class Counter:
    """A number that only goes up."""

    kind: Kind = "counter"

    def __init__(self) -> None:
        self.value = 0.0

    def add(self, amount: float = 1.0) -> None:
        self.value += amount

    def numbers(self) -> Iterator[tuple[str, dict[str, str], float]]:
        yield "", {}, self.value


class Gauge:
    """A number that is looked up when it is asked for."""

    kind: Kind = "gauge"

    def __init__(self, read: Callable[[], float]) -> None:
        self.read = read

    @property
    def value(self) -> float:
        return self.read()

    def numbers(self) -> Iterator[tuple[str, dict[str, str], float]]:
        yield "", {}, self.read()


class Histogram:
    """How often something took how long."""

    kind: Kind = "histogram"

    def __init__(self, bounds: tuple[float, ...] = SECONDS) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    @property
    def value(self) -> float:
        """How many were observed."""
        return float(sum(self._counts))

    def observe(self, amount: float) -> None:
        self._counts[bisect_left(self._bounds, amount)] += 1
        self._sum += amount

    def numbers(self) -> Iterator[tuple[str, dict[str, str], float]]:
        total = 0
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            total += count
            yield "_bucket", {"le": "+Inf" if bound == float("inf") else str(bound)}, float(total)
        yield "_sum", {}, self._sum
        yield "_count", {}, float(total)


Metric = Counter | Gauge | Histogram


class Telemetry:
    """Metrics by name and labels; asking twice for the same one gives the same one."""

    def __init__(self) -> None:
        self._metrics: dict[tuple[str, frozenset[tuple[str, str]]], tuple[str, Metric]] = {}

    def counter(self, name: str, description: str, **labels: str) -> Counter:
        metric = self._kept(name, description, labels, Counter)
        assert isinstance(metric, Counter)
        return metric

    def histogram(self, name: str, description: str, **labels: str) -> Histogram:
        metric = self._kept(name, description, labels, Histogram)
        assert isinstance(metric, Histogram)
        return metric

    def gauge(self, name: str, description: str, read: Callable[[], float], **labels: str) -> Gauge:
        """A gauge is taken over by whoever asks last: a store that is opened again counts anew."""
        gauge = Gauge(read)
        self._metrics[_key(name, labels)] = description, gauge
        return gauge

    def samples(self) -> list[Sample]:
        """Every number, now."""
        return [
            Sample(name + suffix, metric.kind, description, dict(labels) | more, value)
            for (name, labels), (description, metric) in sorted(self._metrics.items(), key=_by_name)
            for suffix, more, value in metric.numbers()
        ]

    def _kept(
        self, name: str, description: str, labels: dict[str, str], make: Callable[[], Metric]
    ) -> Metric:
        return self._metrics.setdefault(_key(name, labels), (description, make()))[1]


def _key(name: str, labels: dict[str, str]) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


def _by_name(item: tuple[tuple[str, frozenset[tuple[str, str]]], Any]) -> tuple[str, list[tuple[str, str]]]:
    (name, labels), _ = item
    return name, sorted(labels)


telemetry = Telemetry()
"""This process's numbers: what layers count into unless they are handed another."""


def event(log: logging.Logger, level: int, name: str, sentence: str, **fields: object) -> None:
    """A structured log event: a sentence for people, `event` and the fields for machines."""
    log.log(level, sentence, extra={"event": name, **fields})
