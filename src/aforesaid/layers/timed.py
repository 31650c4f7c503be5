"""The observed layer: a backend around a backend, which times what goes through it. Below: telemetry.

It stands innermost, so that what it measures is the store alone: how long each operation took, how it failed,
and its span where anybody traces. It looks at no argument and no result, only at time and at the classes of
errors.
"""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from datetime import datetime
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
from aforesaid.layers._capabilities import around, with_capabilities_of
from aforesaid.telemetry import Telemetry, telemetry, tracing
from aforesaid.telemetry.instrumentation import error_kind

BACKEND_POWERS = (Migratable, Scrubbable, CopyHolder, Reindexable)
STORE_POWERS = (Searchable, VectorSearchable, Sealable, Watchable, SnapshotReader)
WRITTEN_OVER_THE_REST = ("load", "save")
NOT_TIMED = (*WRITTEN_OVER_THE_REST, "authoritative")


class _Measures:
    """Where the numbers of one store go."""

    def __init__(self, name: str, metrics: Telemetry) -> None:
        self.name = name
        self._metrics = metrics
        self.observe = _Observers(name, metrics)

    def failed(self, operation: str, error: BaseException) -> None:
        """What was cancelled has not failed."""
        if isinstance(error, Exception):
            self._metrics.counter(
                "aforesaid_store_errors_total",
                store=self.name,
                operation=operation,
                error=error_kind(error),
            ).add()


class _Observers(dict[str, Callable[[float], None]]):
    """By operation, what takes its seconds; made when it is first asked for."""

    def __init__(self, store: str, metrics: Telemetry) -> None:
        self._store = store
        self._metrics = metrics

    def __missing__(self, operation: str) -> Callable[[float], None]:
        seconds = self._metrics.histogram("aforesaid_store_seconds", store=self._store, operation=operation)
        self[operation] = seconds.observe
        return seconds.observe


class TimedBackend(Backend):
    """A backend whose every operation is timed."""

    def __init__(self, inner: Backend, *, name: str = "store", metrics: Telemetry = telemetry) -> None:
        self._inner = inner
        self._measures = _Measures(name, metrics)

    @property
    def inner(self) -> Backend:
        return self._inner

    def of(self, owner: str) -> "TimedStore":
        inner = self._inner.of(owner)
        powers = tuple(power for power in STORE_POWERS if isinstance(inner, power))
        return with_capabilities_of(inner, _timing(powers)(inner, self._measures), STORE_POWERS)

    async def open(self) -> None:
        await self._inner.open()

    async def close(self) -> None:
        await self._inner.close()

    def owners(self, *, ignored_kinds: Collection[str] = ()) -> AsyncIterator[str]:
        return self._inner.owners(ignored_kinds=ignored_kinds)

    async def purge_expired(self, now: datetime | None = None) -> int:
        return await self._inner.purge_expired(now)


def observed(inner: Backend, *, name: str = "store", metrics: Telemetry = telemetry) -> TimedBackend:
    """The backend, observed, with every power of what is inside. `name` is what metrics call it."""
    return with_capabilities_of(inner, TimedBackend(inner, name=name, metrics=metrics), BACKEND_POWERS)


class TimedStore(ConversationStore):
    """One owner's part. Its operations are made by `_timing`, all alike."""

    def __init__(self, inner: ConversationStore, measures: _Measures) -> None:
        self._inner = inner
        self._measures = measures

    def now(self) -> datetime:
        return self._inner.now()

    @property
    def degraded(self) -> bool:
        return self._inner.degraded

    async def authoritative(self) -> "TimedStore":
        return around(self, await self._inner.authoritative())


@cache
def _timing(powers: tuple[type, ...]) -> type[TimedStore]:
    """The class for stores of these powers, with every operation that waits timed."""
    operations = {
        name: _operation(name)
        for kind in (ConversationStore, *powers)
        for name, _ in inspect.getmembers(kind, inspect.iscoroutinefunction)
        if name not in NOT_TIMED
    }
    return type("TimedStore", (TimedStore,), operations)


def _operation(name: str) -> Callable[..., Awaitable[Any]]:
    """One operation, timed. In one piece: every turn comes through here."""

    async def operation(self: TimedStore, *given: Any, **named: Any) -> Any:
        began = perf_counter()
        try:
            if tracing.tracer is not None:
                with tracing.span(f"store.{name}", store=self._measures.name):
                    return await getattr(self._inner, name)(*given, **named)
            return await getattr(self._inner, name)(*given, **named)
        except BaseException as error:
            self._measures.failed(name, error)
            raise
        finally:
            self._measures.observe[name](perf_counter() - began)

    operation.__name__ = name
    return operation
