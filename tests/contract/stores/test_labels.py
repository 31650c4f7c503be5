"""An index of labels finds the same conversations as reading every record, without reading them."""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import psycopg
import pytest

import aforesaid
from aforesaid.contracts import Wrapper
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.conversations import Changes, Page, Query, started
from aforesaid.model.ids import new_id
from aforesaid.search import conversations
from aforesaid.search.conversations import MOST_READ
from aforesaid.search.searcher import Searcher
from tests.builders import url_for

WORDS = ("kitchen", "Kitchens", "window", "Straße", "STRASSE", "lamp", "the", "roof 12")
QUESTIONS = ("kitchen", "window lamp", "the", "strasse", "itch", "roof 12 window kitchen", "cellar")


SHARED = ("sqlite", "redis", "postgres")
"""Stores that several processes can use."""


@pytest.fixture(params=("memory", "file", *SHARED))
async def memory(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[aforesaid.Memory]:
    async with opened(url_for(request.param, tmp_path, request)) as memory:
        yield memory


@pytest.fixture
async def erin(memory: aforesaid.Memory) -> AsyncIterator[ConversationManager]:
    owner = memory.of(f"erin-{new_id()}")
    yield owner
    await owner.store.clear()


async def fill(erin: ConversationManager, count: int, choice: random.Random) -> list[str]:
    made = []
    for _ in range(count):
        record = started(new_id(), now=erin.store.now()).with_(
            subject=choice.choice((None, " ".join(choice.choices(WORDS, k=2)))),
            client_name=choice.choice((None, *WORDS)),
            status=choice.choice(("open", "closed")),
        )
        await erin.store.create(record)
        if choice.random() < 0.3:
            await erin.store.append(record.id, [aforesaid.Message(role="user", content=choice.choice(WORDS))])
        made.append(record.id)
    return made


async def found(erin: ConversationManager) -> list[list[tuple[str, float]]]:
    filters: tuple[dict[str, Any], ...] = ({}, {"status": "open"}, {"limit": 3})
    return [
        [(one.id, one.score) for one in await erin.search_conversations(question, **chosen)]
        for question in QUESTIONS
        for chosen in filters
    ]


@pytest.mark.parametrize("most_read", [0, 256])
async def test_the_index_finds_what_reading_every_record_finds(
    erin: ConversationManager, monkeypatch: pytest.MonkeyPatch, most_read: int
) -> None:
    monkeypatch.setattr(conversations, "MOST_READ", most_read)
    monkeypatch.setattr(conversations, "STEP", min(most_read, conversations.STEP))
    choice = random.Random(most_read)
    ids = await fill(erin, 40, choice)
    for _ in range(3):
        by_index = await found(erin)
        with monkeypatch.context() as patch:
            patch.setattr(Searcher, "label_matches", _no_index)
            assert by_index == await found(erin)
        changed, relabelled, gone = choice.sample(ids, 3)
        await erin.store.update(changed, Changes(subject="cellar window", client_name=None))
        await erin.store.update(relabelled, Changes(subject=None, client_name=None))
        await erin.delete_conversation(gone)
        ids.remove(gone)
        ids += await fill(erin, 3, choice)


async def _no_index(*_: object) -> None:
    return None


@pytest.mark.requirement("004-059")
async def test_a_search_reads_few_records(erin: ConversationManager, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill(erin, 60, random.Random(1))
    expected = [one.id for one in await erin.search_conversations("kitchen", limit=5)]
    store = type(innermost(erin.store))
    read: list[object] = []

    def noting(name: str) -> None:
        method = getattr(store, name)

        def noted(*arguments: Any, **named: Any) -> Any:
            read.append(arguments[1])
            return method(*arguments, **named)

        monkeypatch.setattr(store, name, noted)

    noting("find")
    noting("get")
    assert [one.id for one in await erin.search_conversations("kitchen", limit=5)] == expected
    assert len(expected) == 5
    assert len(read) <= MOST_READ
    assert not any(isinstance(one, Query) for one in read)
    await erin.search_conversations(limit=5)
    assert any(isinstance(one, Query) for one in read)


@pytest.mark.requirement("004-059")
async def test_a_search_reads_no_more_where_there_are_many_more_conversations(
    erin: ConversationManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records, labels and changes are counted when the store returns them."""
    read = 0

    def add(count: int) -> None:
        nonlocal read
        read += count

    store = type(innermost(erin.store))
    reading = [one for one in ("get", "find", "labels_since", "changes_since") if hasattr(store, one)]
    for name in reading:
        monkeypatch.setattr(store, name, counting(getattr(store, name), add))
    for _ in range(3):
        record = started(new_id(), now=erin.store.now()).with_(subject="cellar")
        await erin.store.create(record)
    reads = []
    for others in (20, 180):
        await fill(erin, others, random.Random(others))
        assert len(await erin.search_conversations("cellar")) == 3
        read = 0
        assert len(await erin.search_conversations("cellar")) == 3
        reads.append(read)
    assert reads[0] == reads[1] > 0


def counting(method: Any, add: Callable[[int], None]) -> Any:
    """Return the method of a store, which also says how much it returned."""

    async def counted(*arguments: Any, **named: Any) -> Any:
        found = await method(*arguments, **named)
        match found:
            case Page():
                add(len(found.conversations))
            case (_, changed):
                add(len(changed or ()))
            case _:
                add(found is not None)
        return found

    return counted


def innermost(store: Any) -> Any:
    while isinstance(store, Wrapper):
        store = store.inner
    return store


async def test_a_conversation_that_takes_over_an_id_is_not_found_by_the_label_before(
    erin: ConversationManager,
) -> None:
    first = started(new_id(), now=erin.store.now()).with_(subject="lamp")
    for labelled in (first, first.with_(subject="lamp of the kitchen")):
        await erin.store.create(labelled)
        assert [one.id for one in await erin.search_conversations("lamp")] == [first.id]
        # Not through the manager, which would tell the index.
        await erin.store.delete(first.id)
        await erin.store.create(first.with_(subject=None, client_name=None))
        assert await erin.search_conversations("lamp") == []
        await erin.store.delete(first.id)


async def test_the_index_of_an_owner_whose_data_was_cleared_starts_again(erin: ConversationManager) -> None:
    for said in ("lamp", "roof", "kitchen"):
        record = await erin.get_or_create_conversation("s")
        await erin.update_metadata(record.id, subject=said)
        assert [one.id for one in await erin.search_conversations(said)] == [record.id]
        await erin.store.clear()
        assert await erin.search_conversations(said) == []


@pytest.mark.parametrize("store", SHARED)
async def test_the_index_follows_what_another_process_changes(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url, owner = url_for(store, tmp_path, request), f"erin-{new_id()}"
    async with opened(url) as one, opened(url) as other:
        reader, writer = one.of(owner), other.of(owner)
        record = await writer.get_or_create_conversation("s")
        for subject in ("lamp", "roof", None, "kitchen"):
            await writer.store.update(record.id, Changes(subject=subject))
            found = {word: await reader.search_conversations(word) for word in ("lamp", "roof", "kitchen")}
            assert {word for word, records in found.items() if records} == {subject} - {None}
        await writer.store.clear()


def opened(url: str) -> AbstractAsyncContextManager[aforesaid.Memory]:
    return aforesaid.open(
        url, retention=aforesaid.Retention(sweep_every=None), models=aforesaid.Models(embedder=None)
    )


async def test_a_transaction_that_ends_late_is_not_missed(postgres_url: str) -> None:
    async with opened(postgres_url) as memory:
        erin = memory.of(f"erin-{new_id()}")
        late = await erin.get_or_create_conversation("late")
        early = await erin.get_or_create_conversation("early")
        async with await psycopg.AsyncConnection.connect(postgres_url) as connection:
            await connection.execute("SELECT aforesaid.set_owner(%s)", (erin.owner,))
            changed = await connection.execute(
                "UPDATE aforesaid.conversations SET subject = 'lamp' WHERE id = %s", (late.id,)
            )
            assert changed.rowcount == 1
            await erin.update_metadata(early.id, subject="roof")
            assert [one.id for one in await erin.search_conversations("roof")] == [early.id]
            assert await erin.search_conversations("lamp") == []
            await connection.commit()
        assert [one.id for one in await erin.search_conversations("lamp")] == [late.id]
        await erin.store.clear()
