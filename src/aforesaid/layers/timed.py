"""The timed layer: measure duration and errors of every store operation, and trace it where tracing is on.

The layer is the innermost, so it measures the store alone. It reads no argument and no result.
"""

import inspect
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any

from aforesaid.contracts import (
    Backend,
    ConversationStore,
    Sealable,
    Searchable,
    SnapshotReader,
    VectorSearchable,
)
from aforesaid.layers.base import BackendWrapper, StoreWrapper
from aforesaid.telemetry import Telemetry, telemetry, tracing
from aforesaid.telemetry.events import error_kind

TIMED_CAPABILITIES = (Searchable, VectorSearchable, Sealable, SnapshotReader)
# `load` and `save` consist of other operations, which are timed themselves.
NOT_TIMED = ("load", "save", "authoritative")


class StoreMetrics:
    """Counters and histograms of one store."""

    def __init__(self, name: str, metrics: Telemetry) -> None:
        self.name = name
        self._metrics = metrics
        self.observe = _Observers(name, metrics)

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
    """Override every asynchronous method of the contract and of the timed capabilities."""
    for protocol in (ConversationStore, *TIMED_CAPABILITIES):
        for name, _ in inspect.getmembers(protocol, inspect.iscoroutinefunction):
            if name not in NOT_TIMED:
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
            self._metrics.observe[name](perf_counter() - began)

    operation.__name__ = name
    return operation


_add_operations()
