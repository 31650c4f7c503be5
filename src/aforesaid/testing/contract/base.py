"""Fixtures and helpers of all contract modules."""

from datetime import timedelta

import pytest

from aforesaid.contracts import Backend, ConversationStore, Entry
from aforesaid.model.conversations import Conversation, started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.testing.clocks import FixedClock


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
