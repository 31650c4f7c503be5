"""The timed layer: measure duration and errors of every store operation, and trace it where tracing is on.

The layer is the innermost, so it measures the store alone. It reads no argument and no result.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any

from aforesaid.contracts import (
    Backend,
    Branchable,
    ConversationStore,
    Sealable,
    Searchable,
    SnapshotReader,
    VectorSearchable,
)
from aforesaid.layers.base import BackendWrapper, StoreWrapper
from aforesaid.telemetry import Telemetry, event, telemetry, tracing
from aforesaid.telemetry.events import error_kind

log = logging.getLogger("aforesaid.stores")

TIMED_CAPABILITIES = (Searchable, VectorSearchable, Sealable, SnapshotReader, Branchable)
# `load` and `save` consist of other operations, which are timed themselves.
NOT_TIMED = ("load", "save", "authoritative")
# Every asynchronous method of the contract and of the timed capabilities, with its protocol.
TIMED_OPERATIONS: dict[str, type] = {
    name: protocol
    for protocol in (ConversationStore, *TIMED_CAPABILITIES)
    for name, _ in inspect.getmembers(protocol, inspect.iscoroutinefunction)
    if name not in NOT_TIMED
}


# Seconds from which an operation is slow.
SLOW = 1.0
# Errors that alerts count. Their series exist from the start: a rate does not see a series' first value.
ALERTING_ERRORS = ("KeyUnavailable", "Overloaded", "StoreDamaged", "StoreForeign", "StoreUnavailable")


class StoreMetrics:
    """Counters and histograms of one store."""

    def __init__(self, name: str, metrics: Telemetry) -> None:
        self.name = name
        self._metrics = metrics
        self.observe = _Observers(name, metrics)
        for operation in TIMED_OPERATIONS:
            metrics.counter("aforesaid_slow_operations_total", store=name, operation=operation)
            for error in ALERTING_ERRORS:
                metrics.counter("aforesaid_store_errors_total", store=name, operation=operation, error=error)

    def note_slow(self, operation: str, seconds: float) -> None:
        """Count and log an operation that took long."""
        self._metrics.counter("aforesaid_slow_operations_total", store=self.name, operation=operation).add()
        event(
            log,
            logging.WARNING,
            "slow_operation",
            f"{operation} took {seconds:.1f} s",
            store=self.name,
            operation=operation,
            ms=round(1000 * seconds),
        )

    def count_error(self, operation: str, error: BaseException) -> None:
        """Count the error, unless it is a cancellation."""
        if isinstance(error, Exception):
            self._metrics.counter(
                "aforesaid_store_errors_total",
                store=self.name,
                operation=operation,
                error=error_kind(error),
            ).add()


class _Observers(dict[str, Callable[[float], None]]):
    """The histogram's `observe` by operation, created at the first lookup."""

    def __init__(self, store: str, metrics: Telemetry) -> None:
        self._store = store
        self._metrics = metrics

    def __missing__(self, operation: str) -> Callable[[float], None]:
        seconds = self._metrics.histogram("aforesaid_store_seconds", store=self._store, operation=operation)
        self[operation] = seconds.observe
        return seconds.observe


class TimedBackend(BackendWrapper):
    """A backend whose stores measure every operation."""

    def __init__(self, inner: Backend, *, name: str = "store", metrics: Telemetry = telemetry) -> None:
        super().__init__(inner)
        self._metrics = StoreMetrics(name, metrics)

    def of(self, owner: str) -> "TimedStore":
        return TimedStore(self.inner.of(owner), self._metrics)


def timed(inner: Backend, *, name: str = "store", metrics: Telemetry = telemetry) -> TimedBackend:
    """Wrap a backend in the timed layer. Metrics carry the name."""
    return TimedBackend(inner, name=name, metrics=metrics)


class TimedStore(StoreWrapper):
    """One owner's store. `_add_operations` adds the methods that are timed."""

    def __init__(self, inner: ConversationStore, metrics: StoreMetrics) -> None:
        super().__init__(inner)
        self._metrics = metrics


def _add_operations() -> None:
    """Override every timed operation."""
    for name, protocol in TIMED_OPERATIONS.items():
        setattr(TimedStore, name, _operation(name, protocol))


def _operation(name: str, protocol: type) -> Callable[..., Awaitable[Any]]:
    is_optional = protocol in TIMED_CAPABILITIES

    # One function without helpers: every turn passes here.
    async def operation(self: TimedStore, *args: Any, **kwargs: Any) -> Any:
        began = perf_counter()
        try:
            target = self.inner_capability(protocol) if is_optional else self.inner
            if tracing.tracer is not None:
                with tracing.span(f"store.{name}", store=self._metrics.name):
                    return await getattr(target, name)(*args, **kwargs)
            return await getattr(target, name)(*args, **kwargs)
        except BaseException as error:
            self._metrics.count_error(name, error)
            raise
        finally:
            seconds = perf_counter() - began
            self._metrics.observe[name](seconds)
            if seconds > SLOW:
                self._metrics.note_slow(name, seconds)

    operation.__name__ = name
    return operation


_add_operations()
