"""The index in this process keeps up with its store, whatever happens between two questions."""

from datetime import timedelta

import pytest

from aforesaid.contracts import Entry, Position
from aforesaid.model.conversations import started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.search.memory_index import OwnerIndex
from aforesaid.stores.memory import InMemoryBackend, InMemoryStore
from aforesaid.testing import FixedClock

HOUR = timedelta(hours=1)


class Interrupted(InMemoryStore):
    """A store that stores another turn before the next read of a log."""

    words: str | None = None

    async def tail(self, conversation_id: str, *, limit: int, before: Position | None = None) -> list[Entry]:
        words, self.words = self.words, None
        if words is not None:
            await self.append(conversation_id, [user(words)])
        return await super().tail(conversation_id, limit=limit, before=before)


def user(words: str) -> Message:
    return Message(role="user", content=words)


@pytest.fixture
def store(clock: FixedClock) -> Interrupted:
    return Interrupted(InMemoryBackend(clock=clock), "erin")


async def frequencies(index: OwnerIndex, store: InMemoryStore, *terms: str) -> tuple[int, ...]:
    return (await index.matches(store, terms, limit=10)).frequencies


async def test_a_history_rewritten_as_a_longer_one_is_found_from_its_start(store: Interrupted) -> None:
    index, conversation_id = OwnerIndex(), new_id()
    await store.create(started(conversation_id, now=store.now()))
    await store.append(conversation_id, [user("door")])
    assert await frequencies(index, store, "door") == (1,)
    await store.rewrite(conversation_id, [user("window"), user("lamp")])
    assert await frequencies(index, store, "door", "window", "lamp") == (0, 1, 1)


async def test_a_turn_that_comes_while_a_log_is_read_hides_no_other(store: Interrupted) -> None:
    index, conversation_id = OwnerIndex(), new_id()
    await store.create(started(conversation_id, now=store.now()))
    await store.append(conversation_id, [user("door")])
    assert await frequencies(index, store, "door") == (1,)
    await store.append(conversation_id, [user("window")])
    store.words = "lamp"
    assert await frequencies(index, store, "door", "window") == (1, 1)
    assert await frequencies(index, store, "door", "window", "lamp") == (1, 1, 1)


async def test_a_conversation_that_begins_anew_under_its_id_is_another(
    store: Interrupted, clock: FixedClock
) -> None:
    index, conversation_id = OwnerIndex(), new_id()
    for words in ("door", "window"):
        await store.create(started(conversation_id, now=store.now(), ttl=HOUR))
        await store.append(conversation_id, [user(words)])
        assert await frequencies(index, store, words) == (1,)
        clock.advance(HOUR)
        await store.purge_expired()
    assert await frequencies(index, store, "door", "window") == (0, 0)
