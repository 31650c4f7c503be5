"""Sentences of the design documents that no property covers: what is stored, logged, counted and limited."""

import asyncio
import io
import json
import os
import sys
from typing import Any

import pytest

from aforesaid.errors import InvalidId, InvalidInput, InvalidMessage, StoreUnavailable
from aforesaid.layers.cached import cached
from aforesaid.memory.manager import ConversationManager
from aforesaid.memory.sliding import ConversationMemoryManager
from aforesaid.model.contacts import KIND as CONTACTS
from aforesaid.model.messages import Message
from aforesaid.stores.memory import InMemoryBackend
from aforesaid.telemetry import Telemetry
from aforesaid.telemetry.logs import logging_to
from tests.builders import Target
from tests.faults import Failing
from tests.processes.forking import failure_of


@pytest.mark.requirement("002-005", "002-027")
def test_a_sliding_window_without_a_store_writes_nothing_and_forgets() -> None:
    assert failure_of(_talk_without_a_store) == ""


def _talk_without_a_store() -> None:
    """Run in a process of its own: an audit hook cannot be removed."""
    written: list[str] = []

    def noting(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR):
            written.append(str(arguments[0]))
        elif event in ("sqlite3.connect", "socket.connect", "os.mkdir", "os.rename"):
            written.append(event)

    async def talk() -> None:
        memory = ConversationMemoryManager()
        sys.addaudithook(noting)
        for number in range(20):
            await memory.add_message("conv123", "user", f"message {number}")
        assert len(await memory.get_messages("conv123")) == 20
        assert await ConversationMemoryManager().get_messages("conv123") == []

    asyncio.run(talk())
    assert written == [], written


@pytest.mark.requirement("002-027")
def test_a_sliding_window_with_a_store_goes_on_after_a_restart(stored_target: Target) -> None:
    owner = "sliding"

    async def first(manager: ConversationManager) -> None:
        await ConversationMemoryManager(manager).add_message("conv123", "user", "hello")

    async def second(manager: ConversationManager) -> list[Any]:
        memory = ConversationMemoryManager(manager)
        await memory.add_message("conv123", "assistant", "hi")
        found = [message["content"] for message in await memory.get_messages("conv123")]
        await memory.reset_conversation("conv123")
        return found

    stored_target.run_as(owner, first)
    stored_target.restart()
    assert stored_target.run_as(owner, second) == ["hello", "hi"]


@pytest.mark.requirement("004-013")
def test_a_search_returns_fifty_conversations_unless_another_limit_is_given(stored_target: Target) -> None:
    async def scenario(manager: ConversationManager) -> None:
        for number in range(53):
            await manager.add_message(f"s{number}", "user", "a violin lesson")
        assert len(await manager.search_conversations("violin")) == 50
        assert len(await manager.search_conversations("violin", limit=52)) == 52
        assert len(await manager.search_conversations()) == 50

    stored_target.run(scenario)


@pytest.mark.requirement("004-040")
def test_a_refused_message_leaves_the_stored_ones(target: Target) -> None:
    async def scenario(manager: ConversationManager) -> None:
        await manager.add_message("kitchen", "user", "hello")
        wrong: Any = object()
        for refused in (
            manager.add_message("kitchen", "user", wrong),
            manager.add_message("kitchen", "robot", "hello"),  # type: ignore[arg-type]
            manager.append("kitchen", [Message(role="user", content="one"), wrong]),
        ):
            with pytest.raises(InvalidInput):
                await refused
        assert [message.content for message in await manager.messages("kitchen")] == ["hello"]

    target.run(scenario)


def events(stream: io.StringIO) -> list[dict[str, Any]]:
    """Return the lines of a log, each of which is one JSON object."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.mark.requirement("004-087")
def test_the_life_of_a_conversation_is_logged_as_json(stored_target: Target) -> None:
    stream = io.StringIO()

    async def scenario(manager: ConversationManager) -> str:
        record = await manager.add_message("kitchen", "user", "the alarm code is marzipan")
        contact = await manager.clients.add("Ann Oakley")
        await manager.associate_client(record.id, contact.id, "Ann Oakley")
        await manager.delete_conversation(record.id)
        return record.id

    with logging_to(stream, form="json", level="debug"):
        conversation_id = stored_target.run(scenario)
    life = [one for one in events(stream) if one.get("conversation_id") == conversation_id]
    names = [one["event"] for one in life if "event" in one]
    expected = ["conversation_started", "turn_stored", "client_associated", "conversation_deleted"]
    assert [name for name in names if name in expected] == expected
    assert all({"time", "level", "logger", "message"} <= one.keys() for one in life)
    assert "marzipan" not in stream.getvalue()
    assert "Oakley" not in stream.getvalue()


@pytest.mark.requirement("004-087", "004-039")
def test_failures_of_the_store_and_malformed_queries_are_logged_with_their_call() -> None:
    stream, failing = io.StringIO(), Failing(InMemoryBackend())
    wrong: Any = "secret words"

    async def fail() -> None:
        manager = ConversationManager(failing.of("erin"))
        with pytest.raises(InvalidId):
            await manager.get_conversation("secret\0words")
        with pytest.raises(InvalidInput):
            await manager.search_conversations("lamp", status=wrong)
        with pytest.raises(InvalidMessage):
            await manager.add_message("kitchen", "user", object())
        failing.down()
        with pytest.raises(StoreUnavailable):
            await manager.add_message("kitchen", "user", "secret words")

    with logging_to(stream, form="json"):
        asyncio.run(fail())
    failed = [one for one in events(stream) if one.get("event") == "call_failed"]
    assert [(one["call"], one["error"], one["level"]) for one in failed] == [
        ("get_conversation", "InvalidId", "info"),
        ("search_conversations", "InvalidInput", "info"),
        ("add_message", "InvalidMessage", "info"),
        ("append", "StoreUnavailable", "warning"),
    ]
    assert "secret" not in stream.getvalue()


@pytest.mark.requirement("004-085")
async def test_hits_and_misses_of_the_cache_are_counted() -> None:
    metrics = Telemetry()
    backend = cached(InMemoryBackend(), metrics=metrics)
    await backend.open()
    manager = ConversationManager(backend.of("erin"))
    await manager.add_message("kitchen", "user", "hello")
    for _ in range(3):
        await manager.messages("kitchen")
    await backend.close()
    counted = {
        kind: metrics.counter(f"aforesaid_cache_{kind}_total", store="store").value
        for kind in ("hits", "misses")
    }
    assert min(counted.values()) > 0, counted


class Hanging:
    """A store whose contacts cannot be read, ever."""

    def __init__(self, inner: object) -> None:
        self._inner = inner
        self.asked = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def documents(self, kind: str, **more: Any) -> Any:
        if kind != CONTACTS:
            return await self.__getattr__("documents")(kind, **more)
        self.asked.set()
        return await asyncio.Event().wait()


@pytest.mark.requirement("004-029")
async def test_a_search_for_a_client_that_hangs_delays_no_message() -> None:
    store: Any = Hanging(InMemoryBackend().of("erin"))
    manager = ConversationManager(store)
    for number in range(3):
        record = await manager.add_message("kitchen", "user", f"Ann Oakley called {number} times")
    await store.asked.wait()
    record = await manager.add_message("kitchen", "user", "and again")
    assert (record.message_count, record.client_id) == (4, None)
