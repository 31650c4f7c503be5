"""Listing all records while others are written: each record is listed once."""

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from aforesaid.contracts import listing
from aforesaid.contracts.listing import all_records
from aforesaid.memory.records import poll
from aforesaid.model.conversations import Page, Query, started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.stores.memory import InMemoryBackend, InMemoryStore
from aforesaid.testing import FixedClock

PAGE = 4


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "PAGE", PAGE)


class Busy(InMemoryStore):
    """A store that appends to the named conversations after each of the next reads."""

    def __init__(self) -> None:
        self.clock = FixedClock()
        super().__init__(InMemoryBackend(clock=self.clock), "erin")
        self.spoken_in: Iterator[list[str]] = iter(())
        self.looks = 0

    async def filled(self, count: int) -> list[str]:
        """So many conversations, the oldest first."""
        made = [started(new_id(), now=self.now()) for _ in range(count)]
        for record in made:
            await self.create(record)
            await self.speak(record.id)
        return [record.id for record in made]

    async def speak(self, conversation_id: str) -> None:
        self.clock.advance(timedelta(seconds=1))
        await self.append(conversation_id, [Message(role="user", content="hello")])

    async def find(self, query: Query) -> Page:
        page = await super().find(query)
        self.looks += 1
        for conversation_id in next(self.spoken_in, []):
            await self.speak(conversation_id)
        return page


async def listed(store: Busy) -> list[str]:
    return [record.id async for record in all_records(store)]


@pytest.mark.parametrize("count", [0, 1, PAGE, PAGE + 1, 3 * PAGE])
async def test_at_rest_every_record_comes_once_the_latest_first(count: int) -> None:
    store = Busy()
    made = await store.filled(count)
    assert await listed(store) == made[::-1]


async def test_what_one_page_shows_is_not_looked_at_twice() -> None:
    store = Busy()
    await store.filled(PAGE)
    await listed(store)
    assert store.looks == 1


MOVES: dict[str, Callable[[list[str]], list[list[str]]]] = {
    "the oldest": lambda made: [made[:1]],
    "one that was told of": lambda made: [made[-1:]],
    "more than a page": lambda made: [made[: PAGE + 2]],
    "others while the front is looked at again": lambda made: [made[:6], [], made[6:8], made[8:9]],
    "the same ones, again and again": lambda made: [made[:1]] * 6,
}


@pytest.mark.parametrize("moves", MOVES.values(), ids=MOVES)
async def test_a_conversation_that_moves_to_the_front_meanwhile_is_listed_once(
    moves: Callable[[list[str]], list[list[str]]],
) -> None:
    store = Busy()
    made = await store.filled(3 * PAGE)
    store.spoken_in = iter(moves(made))
    assert sorted(await listed(store)) == sorted(made)


async def test_conversations_of_one_moment_come_once_and_come_to_an_end() -> None:
    store = Busy()
    made = [started(new_id(), now=store.now()) for _ in range(3 * PAGE)]
    for record in made:
        await store.create(record)
    assert sorted(await listed(store)) == sorted(record.id for record in made)


async def test_a_watch_does_not_take_a_conversation_that_moves_for_a_deleted_one() -> None:
    store = Busy()
    made = await store.filled(3 * PAGE)
    async with poll(store) as changes:
        store.spoken_in = iter([made[:1]])
        change = await anext(changes)
    assert (change.conversation_id, change.revision) == (made[0], 2)
