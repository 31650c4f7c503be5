"""The observed layer: a backend around a backend, which times what goes through it. Below: telemetry.

It stands innermost, so that what it measures is the store alone: how long each operation took, how it failed,
and its span where anybody traces. It looks at no argument and no result, only at time and at the classes of
errors.
"""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from functools import cache
from time import perf_counter
from typing import Any

from recollect.contracts import (
    Backend,
    ConversationStore,
    Erasing,
    Holds,
    Migrated,
    Nearest,
    Reindexed,
    Searchable,
    Watchable,
)
from recollect.contracts.powers import Sealable
from recollect.layers.powers import with_powers_of
from recollect.telemetry import Histogram, Telemetry, telemetry, tracing
from recollect.telemetry.calls import error_kind

BACKEND_POWERS = (Migrated, Erasing, Holds, Reindexed)
STORE_POWERS = (Searchable, Nearest, Sealable, Watchable)
WRITTEN_OVER_THE_REST = ("load", "save")


class _Measures:
    """Where the numbers of one store go."""

    def __init__(self, name: str, metrics: Telemetry) -> None:
        self.name = name
        self._metrics = metrics
        self._seconds: dict[str, Histogram] = {}

    def seconds(self, operation: str) -> Histogram:
        found = self._seconds.get(operation)
        if found is None:
            found = self._metrics.histogram("recollect_store_seconds", store=self.name, operation=operation)
            self._seconds[operation] = found
        return found

    def failed(self, operation: str, error: BaseException) -> None:
        """What was cancelled has not failed."""
        if isinstance(error, Exception):
            self._metrics.counter(
                "recollect_store_errors_total",
                store=self.name,
                operation=operation,
                error=error_kind(error),
            ).add()


class ObservedBackend(Backend):
    """A backend whose every operation is timed."""

    def __init__(self, inner: Backend, *, name: str = "store", metrics: Telemetry = telemetry) -> None:
        self._inner = inner
        self._measures = _Measures(name, metrics)

    @property
    def inner(self) -> Backend:
        return self._inner

    def of(self, owner: str) -> "ObservedStore":
        inner = self._inner.of(owner)
        powers = tuple(power for power in STORE_POWERS if isinstance(inner, power))
        return with_powers_of(inner, _timing(powers)(inner, self._measures), STORE_POWERS)

    async def open(self) -> None:
        await _timed(self._measures, "open", self._inner.open)

    async def close(self) -> None:
        await self._inner.close()

    def owners(self) -> AsyncIterator[str]:
        return self._inner.owners()

    async def purge_expired(self, now: datetime | None = None) -> int:
        return int(await _timed(self._measures, "purge_expired", self._inner.purge_expired, now))


def observed(inner: Backend, *, name: str = "store", metrics: Telemetry = telemetry) -> ObservedBackend:
    """The backend, observed, with every power of what is inside. `name` is what metrics call it."""
    return with_powers_of(inner, ObservedBackend(inner, name=name, metrics=metrics), BACKEND_POWERS)


class ObservedStore(ConversationStore):
    """One owner's part. Its operations are made by `_timing`, all alike."""

    def __init__(self, inner: ConversationStore, measures: _Measures) -> None:
        self._inner = inner
        self._measures = measures

    def now(self) -> datetime:
        return self._inner.now()

    @property
    def degraded(self) -> bool:
        return self._inner.degraded


@cache
def _timing(powers: tuple[type, ...]) -> type[ObservedStore]:
    """The class for stores of these powers, with every operation that waits timed."""
    operations = {
        name: _operation(name)
        for kind in (ConversationStore, *powers)
        for name, _ in inspect.getmembers(kind, inspect.iscoroutinefunction)
        if name not in WRITTEN_OVER_THE_REST
    }
    return type("ObservedStore", (ObservedStore,), operations)


def _operation(name: str) -> Callable[..., Awaitable[Any]]:
    async def operation(self: ObservedStore, *given: Any, **named: Any) -> Any:
        return await _timed(self._measures, name, getattr(self._inner, name), *given, **named)

    operation.__name__ = name
    return operation


async def _timed(
    measures: _Measures, name: str, ask: Callable[..., Awaitable[Any]], *given: Any, **named: Any
) -> Any:
    began = perf_counter()
    try:
        if tracing.tracer is not None:
            with tracing.span(f"store.{name}", store=measures.name):
                return await ask(*given, **named)
        return await ask(*given, **named)
    except BaseException as error:
        measures.failed(name, error)
        raise
    finally:
        measures.seconds(name).observe(perf_counter() - began)
