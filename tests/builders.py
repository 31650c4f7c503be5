"""The memory that property tests run on, with a new owner for each example; URLs of stores; strategies."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import strategies as st

import aforesaid
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.conversations import CHANNELS, VALUE_SETS
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from tests.report import MATRIX
from tests.servers.postgres import Databases
from tests.servers.redis import patient
from tests.servers.remote import BEHIND, open_at

T = TypeVar("T")
Scenario = Callable[[ConversationManager], Awaitable[T]]


def _loop_factory(url: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the event loop that servers use, for a store behind a socket: it needs less processor time."""
    if not url.startswith(("redis:", "postgresql:")) or find_spec("uvloop") is None:
        return None
    import uvloop

    return uvloop.new_event_loop


class Target:
    """A memory that can be closed and opened again."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.runner = asyncio.Runner(loop_factory=_loop_factory(url))
        self.memory = self.runner.run(self._open())
        self._other: aforesaid.Memory | None = None

    @property
    def is_remote(self) -> bool:
        return self.url.startswith(BEHIND)

    async def _open(self) -> aforesaid.Memory:
        return await open_at(self.url, sweep_every=None, embedder=None)

    def run(self, scenario: Scenario[T]) -> T:
        """Run it for a new owner; then remove the data from a store that rewrites all data on each write."""
        owner = f"owner-{new_id()}"
        try:
            return self.run_as(owner, scenario)
        finally:
            if self.url.startswith("file:"):
                self.run_as(owner, lambda manager: manager.store.clear())

    def run_as(self, owner: str, scenario: Scenario[T]) -> T:
        return self._run_in(self.memory, owner, scenario)

    def run_elsewhere(self, owner: str, scenario: Scenario[T]) -> T:
        """Run it in another memory of the same store, as another process does.

        No other process sees memory://, and a JSON file has one process at a time: that one restarts.
        """
        if self.url.startswith(("memory:", "file:")):
            self.restart()
            return self.run_as(owner, scenario)
        if self._other is None:
            self._other = self.runner.run(self._open())
        return self._run_in(self._other, owner, scenario)

    def _run_in(self, memory: aforesaid.Memory, owner: str, scenario: Scenario[T]) -> T:
        async def run() -> T:
            return await scenario(memory.of(owner))

        return self.runner.run(run())

    def restart(self) -> None:
        """A new process as far as the store can tell. Nothing outlives memory://, so there it stays."""
        if self.url.startswith("memory:"):
            return
        self.runner.run(self.memory.close())
        self.memory = self.runner.run(self._open())

    def close(self) -> None:
        if self._other is not None:
            self.runner.run(self._other.close())
        self.runner.run(self.memory.close())
        self.runner.close()


async def forget(manager: ConversationManager) -> None:
    """Remove the owner's conversations and contacts."""
    for record in (await manager.list(limit=1000)).conversations:
        await manager.delete_conversation(record.id)
    for contact in (await manager.clients.list(limit=1000)).contacts:
        await manager.clients.remove(contact.id)


STORES = ("memory", "sqlite", "file", "redis", "postgres")
TARGETS = (*STORES, "server")
"""Where a manager's conversations can be: in a store, or behind a server, which has one."""
FEATURE_TARGETS = TARGETS if MATRIX else ("sqlite",)
"""Where the manager's features are tested: the contract proves that other stores behave as SQLite does."""
FEATURE_STORES = STORES if MATRIX else ("sqlite",)
LAYER_STORES = STORES if MATRIX else ("memory", "sqlite")
"""What layers are tested around: a store without optional capabilities, and one with all of them.

The contract of a layer runs around SQLite. Around memory, a state machine compares the layer with the model.
"""


def url_for(store: str, folder: Path, request: pytest.FixtureRequest) -> str:
    """Where this store is for a test. Servers are started when the first test asks for them.

    On Redis it is empty: who lists owners, or purges, would go through what all other tests have left.
    """
    match store:
        case "redis":
            return patient(request.getfixturevalue("one_redis_url"), prefix=f"test-{secrets.token_hex(6)}")
        case "postgres":
            return str(request.getfixturevalue("postgres_url"))
        case _:
            return local_url(store, folder)


def empty_url(store: str, folder: Path, request: pytest.FixtureRequest) -> str:
    """The same, with nothing in it but what the test puts there: on PostgreSQL a database of its own."""
    if store == "postgres":
        databases: Databases = request.getfixturevalue("databases")
        return databases.furnished()
    return url_for(store, folder, request)


def local_url(store: str, folder: Path) -> str:
    return {
        "memory": "memory://",
        "sqlite": f"sqlite:///{folder}/memory.db?synchronous=normal",
        "file": f"file://{folder}/conversations.json",
        "server": f"{BEHIND}sqlite:///{folder}/memory.db?synchronous=normal",
    }[store]


def opened(store: str, folder: Path, request: pytest.FixtureRequest) -> Iterator[Target]:
    target = Target(url_for(store, folder, request))
    yield target
    target.close()


names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12)
contents = st.text(max_size=40)
json_contents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
content_types = st.sampled_from(["text", "audio"])
roles = st.sampled_from(["user", "assistant"])
moments = st.datetimes(datetime(1990, 1, 1), datetime(2090, 1, 1), timezones=st.just(UTC))
client_ids = st.uuids().map(str)


async def add_client(manager: Any, client_id: str) -> None:
    """Add a contact with this id."""
    await manager.clients.add("A client", client_id=client_id)


tags = st.lists(names, max_size=10, unique=True)
spoken = st.lists(st.tuples(roles, contents, content_types), min_size=1, max_size=8)


def value_of(field: str) -> st.SearchStrategy[str]:
    return st.sampled_from((*CHANNELS, "sms") if field == "channel" else VALUE_SETS[field])


async def say(manager: ConversationManager, conversation_id: str, said: list[tuple[Any, str, Any]]) -> None:
    """Add the messages in one step: most properties do not depend on how many steps it takes."""
    await manager.append(
        conversation_id,
        [
            Message(role=role, content=content, content_type=content_type)
            for role, content, content_type in said
        ],
    )
