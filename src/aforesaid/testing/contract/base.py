"""Fixtures and helpers of all contract modules, and a clock for tests."""

from datetime import UTC, datetime, timedelta

import pytest

from aforesaid.contracts import Backend, ConversationStore, Entry
from aforesaid.model.conversations import Conversation, started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message

# A clock for tests.


START = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)


class FixedClock:
    """A clock that changes only by `advance` and `set`."""

    def __init__(self, now: datetime = START) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def advance(self, step: timedelta) -> None:
        self.now += step

    def set(self, now: datetime) -> None:
        self.now = now


# Fixtures and helpers of all contract modules.


class Contract:
    """Fixtures: a fixed clock, the store of a new owner, and a stored conversation. Subclasses add
    `backend`.
    """

    @pytest.fixture
    def clock(self) -> FixedClock:
        return FixedClock()

    @pytest.fixture
    def store(self, backend: Backend) -> ConversationStore:
        return backend.of(f"owner-{new_id()}")

    @pytest.fixture
    async def conversation(self, store: ConversationStore) -> Conversation:
        return await store.create(new_conversation(store))


def new_conversation(
    store: ConversationStore, *, ttl: timedelta | None = timedelta(days=30), **metadata: object
) -> Conversation:
    """Return a conversation that is not stored yet."""
    return started(new_id(), now=store.now(), ttl=ttl, **metadata)


def user(content: object, **fields: object) -> Message:
    return Message(role="user", content=content, **fields)  # type: ignore[arg-type]


def assistant(content: object, **fields: object) -> Message:
    return Message(role="assistant", content=content, **fields)  # type: ignore[arg-type]


def contents(entries: list[Entry]) -> list[object]:
    return [entry.message.content for entry in entries]
