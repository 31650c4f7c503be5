"""The observed layer is a store, and times what goes through it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import aforesaid
from aforesaid.contracts import (
    Backend,
    Migratable,
    Searchable,
    SnapshotReader,
    VectorSearchable,
    Watchable,
    capability,
)
from aforesaid.errors import ConversationNotFound
from aforesaid.layers.timed import timed
from aforesaid.model.conversations import started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.stores.memory import InMemoryBackend
from aforesaid.telemetry import Telemetry
from aforesaid.testing import FixedClock, StoreContract
from tests.builders import FEATURE_STORES, STORES
from tests.encrypted_stores import inner_for


class TestObservedStore(StoreContract):
    @pytest.fixture(params=FEATURE_STORES)
    async def backend(
        self, request: pytest.FixtureRequest, clock: FixedClock, tmp_path: Path
    ) -> AsyncIterator[Backend]:
        backend = timed(inner_for(request.param, tmp_path, request, clock), metrics=Telemetry())
        await backend.open()
        yield backend
        await backend.close()


def numbers(metrics: Telemetry, name: str) -> dict[tuple[str, ...], float]:
    """Values by label values."""
    return {tuple(one.labels.values()): one.value for one in metrics.samples() if one.name == name}


@pytest.mark.parametrize("store", STORES)
async def test_every_store_keeps_its_powers(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    inner = inner_for(store, tmp_path, request, FixedClock())
    outer = timed(inner, metrics=Telemetry())
    assert (capability(outer, Migratable) is None) == (capability(inner, Migratable) is None)
    for power in (Searchable, VectorSearchable, Watchable, SnapshotReader):
        assert (capability(outer.of("erin"), power) is None) == (capability(inner.of("erin"), power) is None)


async def test_operations_are_timed_and_errors_are_counted_by_their_class() -> None:
    metrics = Telemetry()
    backend = timed(InMemoryBackend(), name="memory://", metrics=metrics)
    await backend.open()
    store = backend.of("erin")
    record = await store.create(started(new_id(), now=store.now()))
    await store.append(record.id, [Message(role="user", content="hello")])
    with pytest.raises(ConversationNotFound):
        await store.append(new_id(), [Message(role="user", content="hello")])
    assert numbers(metrics, "aforesaid_store_seconds_count")["memory://", "append"] == 2
    errors = numbers(metrics, "aforesaid_store_errors_total")
    assert {labels: count for labels, count in errors.items() if count} == {
        ("memory://", "append", "ConversationNotFound"): 1
    }
    # Series that alerts count exist before the first error.
    assert errors["memory://", "append", "StoreUnavailable"] == 0


async def test_a_memory_is_observed_where_that_is_asked_for() -> None:
    async with aforesaid.open("memory://", layers=aforesaid.Layers(timed=True)) as memory:
        await memory.of("erin").get_or_create_conversation("kitchen")
        assert type(memory.backend).__name__ == "TimedBackend"
