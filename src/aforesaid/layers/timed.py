"""The timed layer: measure duration and errors of every store operation, and trace it where tracing is on.

The layer is the innermost, so it measures the store alone. It reads no argument and no result.
"""

import inspect
from collections.abc import Awaitable, Callable
from functools import cache
from time import perf_counter
from typing import Any

from aforesaid.contracts import (
    Backend,
    ConversationStore,
    CopyHolder,
    Migratable,
    Reindexable,
    Scrubbable,
    Searchable,
    SnapshotReader,
    VectorSearchable,
    Watchable,
)
from aforesaid.contracts.capabilities import Sealable
from aforesaid.layers._capabilities import with_capabilities_of
from aforesaid.layers.base import BackendWrapper, StoreWrapper
from aforesaid.telemetry import Telemetry, telemetry, tracing
from aforesaid.telemetry.instrumentation import error_kind

BACKEND_CAPABILITIES = (Migratable, Scrubbable, CopyHolder, Reindexable)
STORE_CAPABILITIES = (Searchable, VectorSearchable, Sealable, Watchable, SnapshotReader)
NOT_TIMED = ("load", "save", "authoritative")
"""`load` and `save` consist of other operations, which are timed themselves."""


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
        inner = self.inner.of(owner)
        capabilities = tuple(one for one in STORE_CAPABILITIES if isinstance(inner, one))
        store = timed_store_class(capabilities)(inner, self._metrics)
        return with_capabilities_of(inner, store, STORE_CAPABILITIES)


def timed(inner: Backend, *, name: str = "store", metrics: Telemetry = telemetry) -> TimedBackend:
    """Wrap a backend in the timed layer, which keeps the backend's capabilities. Metrics carry the name."""
    return with_capabilities_of(inner, TimedBackend(inner, name=name, metrics=metrics), BACKEND_CAPABILITIES)


class TimedStore(StoreWrapper):
    """One owner's store. `timed_store_class` generates its operations."""

    def __init__(self, inner: ConversationStore, metrics: StoreMetrics) -> None:
        super().__init__(inner)
        self._metrics = metrics


@cache
def timed_store_class(capabilities: tuple[type, ...]) -> type[TimedStore]:
    """Return the class for stores with these capabilities, which times every asynchronous operation."""
    operations = {
        name: _operation(name)
        for protocol in (ConversationStore, *capabilities)
        for name, _ in inspect.getmembers(protocol, inspect.iscoroutinefunction)
        if name not in NOT_TIMED
    }
    return type("TimedStore", (TimedStore,), operations)


def _operation(name: str) -> Callable[..., Awaitable[Any]]:
    # One function without helpers: every turn passes here.
    async def operation(self: TimedStore, *args: Any, **kwargs: Any) -> Any:
        began = perf_counter()
        try:
            if tracing.tracer is not None:
                with tracing.span(f"store.{name}", store=self._metrics.name):
                    return await getattr(self.inner, name)(*args, **kwargs)
            return await getattr(self.inner, name)(*args, **kwargs)
        except BaseException as error:
            self._metrics.count_error(name, error)
            raise
        finally:
            self._metrics.observe[name](perf_counter() - began)

    operation.__name__ = name
    return operation
