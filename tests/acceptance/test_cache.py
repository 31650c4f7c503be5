"""Loaded conversations are cached by default, what changes is read again, and searches are not cached."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import aforesaid
from aforesaid.contracts import Listing, SnapshotReader, capability
from aforesaid.layers.cached import CachedBackend
from aforesaid.memory.manager import ConversationManager
from tests.builders import Target
from tests.servers.remote import open_at

BEHIND_NETWORK = ("redis:", "postgresql:")
ONE_PROCESS = ("memory:", "file:")
"""Stores that one process at a time uses."""


@asynccontextmanager
async def another_process(target: Target, owner: str) -> AsyncIterator[ConversationManager]:
    """Yield the owner's manager as another process has it."""
    if target.url.startswith(ONE_PROCESS):
        yield target.memory.of(owner)
        return
    memory = await open_at(target.url, sweep_every=None, embedder=None)
    try:
        yield memory.of(owner)
    finally:
        await memory.close()


def contents(context: aforesaid.Context) -> list[object]:
    return [message.content for message in context.messages]


async def check_messages_are_cached(manager: ConversationManager, layer: CachedBackend) -> None:
    await manager.messages("kitchen")
    misses, hits = layer.cache.misses.value, layer.cache.hits.value
    assert [message.content for message in await manager.messages("kitchen")] == ["first"]
    assert layer.cache.hits.value > hits
    assert layer.cache.misses.value - misses == 1, "only the record is read again"


async def check_the_window_is_cached(manager: ConversationManager) -> None:
    """The store reads a window in one step, and keeps what it has decoded while the record is unchanged."""
    reader = capability(manager.store, SnapshotReader)
    assert reader is not None
    conversation_id = (await manager.get_conversation("kitchen")).id
    once, again = [
        await reader.read_snapshot(conversation_id, front=0, tail=20, documents=Listing("note", None, "", 0))
        for _ in range(2)
    ]
    assert once is again


@pytest.mark.requirement("004-072", "004-073")
def test_a_loaded_conversation_is_cached_and_never_stale(stored_target: Target) -> None:
    async def scenario(manager: ConversationManager) -> None:
        layer = stored_target.memory.layer(CachedBackend)
        assert (layer is not None) == stored_target.url.startswith(BEHIND_NETWORK)
        await manager.add_message("kitchen", "user", "first")
        assert contents(await manager.load_context("kitchen")) == ["first"]
        if layer is not None:
            await check_messages_are_cached(manager, layer)
            await check_the_window_is_cached(manager)
        await manager.add_message("kitchen", "user", "second")
        assert contents(await manager.load_context("kitchen")) == ["first", "second"]
        async with another_process(stored_target, manager.owner) as elsewhere:
            await elsewhere.add_message("kitchen", "user", "third")
            await elsewhere.update_metadata("kitchen", status="closed")
            assert contents(await manager.load_context("kitchen")) == ["first", "second", "third"]
            assert (await manager.get_conversation("kitchen")).status == "closed"
            await elsewhere.delete_conversation("kitchen")
        assert contents(await manager.load_context("kitchen")) == []

    stored_target.run(scenario)


@pytest.mark.requirement("004-107")
def test_search_results_are_not_cached(stored_target: Target) -> None:
    async def scenario(manager: ConversationManager) -> None:
        await manager.add_message("kitchen", "user", "a violin lesson")
        async with another_process(stored_target, manager.owner) as elsewhere:
            assert [one.name for one in await manager.search_conversations("violin")] == ["kitchen"]
            await elsewhere.add_message("hall", "user", "the violin is in the hall")
            found = await manager.search_conversations("violin")
            assert {one.name for one in found} == {"kitchen", "hall"}
            await elsewhere.update_metadata("hall", status="closed")
            found = await manager.search_conversations("violin", status="closed")
            assert [one.name for one in found] == ["hall"]
            assert len(await manager.search_history("violin")) == 2
            await elsewhere.delete_conversation("kitchen")
        assert [one.name for one in await manager.search_conversations("violin")] == ["hall"]
        assert len(await manager.search_history("violin")) == 1

    stored_target.run(scenario)
