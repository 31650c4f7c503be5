"""An index of labels finds the same conversations as reading every record, without reading them."""

import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import aforesaid
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.conversations import Changes, Page, Query, started
from aforesaid.model.ids import new_id
from aforesaid.search import conversations
from aforesaid.search.searcher import Searcher
from aforesaid.stores.sqlite.store import SQLiteStore

WORDS = ("kitchen", "Kitchens", "window", "Straße", "STRASSE", "lamp", "the", "roof 12")
QUESTIONS = ("kitchen", "window lamp", "the", "strasse", "itch", "roof 12 window kitchen", "cellar")


@pytest.fixture
async def erin(tmp_path: Path) -> AsyncIterator[ConversationManager]:
    async with aforesaid.open(
        f"sqlite:///{tmp_path}/memory.db",
        retention=aforesaid.Retention(sweep_every=None),
        models=aforesaid.Models(embedder=None),
    ) as memory:
        yield memory.of("erin")


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


async def test_a_search_lists_no_records(erin: ConversationManager, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill(erin, 60, random.Random(1))
    listed: list[Query] = []
    find = SQLiteStore.find

    async def noted(store: SQLiteStore, query: Query) -> Page:
        listed.append(query)
        return await find(store, query)

    monkeypatch.setattr(SQLiteStore, "find", noted)
    assert await erin.search_conversations("kitchen", limit=5)
    assert listed == []
    assert await erin.search_conversations(limit=5)
    assert len(listed) == 1
