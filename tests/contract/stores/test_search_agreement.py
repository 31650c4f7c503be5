"""All five stores find the same, in the same order, with the same scores."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

import aforesaid
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.search import searcher
from aforesaid.testing import FixedClock
from tests.builders import STORES, url_for
from tests.embedders import WordEncoder
from tests.integration.stores.test_postgres_extensions import with_vector
from tests.servers.postgres import Databases

NOW = datetime(2026, 3, 11, 12, tzinfo=UTC)
SUBJECTS = ("dogs and cats", "the garden", "a trip to Topeka", "Züge und Straßen", "東京の旅行")
SAID = (
    "We have a new dog and he barks at the garden fence",
    "The train to Topeka leaves at nine on Tuesday",
    "Leeks and potatoes grow in the garden",
    "Der Zug nach Zürich fährt um neun",
    "東京に行きました。猫が好きです",
    "My hound is not a puppy any more",
    "The weather forecast says rain in May",
    "Anna: I painted the fence green, Erin helped",
    "I sold the automobile in Topeka for nine hundred",
    "ok",
)
QUESTIONS = (
    "dog garden",
    "where did the train go in Topeka",
    "what did Anna paint?",
    "Zug nach Zürich",
    "東京 猫",
    "puppy",
    "weather in May",
    "nine",
    "yesterday",
    "nothing of the kind",
    "",
)


def ids() -> Iterator[str]:
    for number in range(1000):
        yield f"00000000-0000-4000-8000-{number:012d}"


async def filled(memory: aforesaid.Memory, owner: str) -> ConversationManager:
    manager = memory.of(owner)
    for number, subject in enumerate(SUBJECTS):
        conversation = await manager.get_or_create_conversation(f"s{number}")
        await manager.update_metadata(conversation.id, subject=subject)
        messages = [
            Message(
                role="user" if at % 2 == 0 else "assistant",
                content=SAID[(number * 3 + at) % len(SAID)] + " again" * (at // 4),
                timestamp=NOW - timedelta(days=9 - number, minutes=30 - at),
            )
            for at in range(8)
        ]
        await manager.append(conversation.id, messages[:5])
        await manager.append(conversation.id, messages[5:])
    return manager


async def answers(url: str, embedder: WordEncoder | None) -> list[Any]:
    source = ids()
    async with aforesaid.open(
        url,
        ttl=None,
        retention=aforesaid.Retention(sweep_every=None),
        models=aforesaid.Models(embedder=embedder),
        clock=FixedClock(NOW),
        ids=lambda: next(source),
    ) as memory:
        owner = f"agree-{'vectors' if embedder else 'words'}"
        manager = await filled(memory, owner)
        if memory.search_resources.indexer is not None:
            await memory.search_resources.indexer.wait_until_idle()
        found = [await _asked(manager, question) for question in QUESTIONS]
        for record in (await manager.list(limit=100)).conversations:
            await manager.delete_conversation(record.id)
        return found


async def _asked(manager: ConversationManager, question: str) -> Any:
    passages = (await manager.search(question, 8, explain=True, timezone=UTC)).passages
    places = [(one.conversation_id, one.sequence, round(one.score, 5), one.render()) for one in passages]
    found = await manager.search_conversations(question, timezone=UTC)
    return question, places, [(one.id, round(one.score, 5), one.excerpts) for one in found]


async def the_best_of_many(url: str) -> list[Any]:
    """More messages have the word than are candidates: which ones are is a matter of the numbers, too."""
    chance = Random(4)
    lengths = chance.sample(range(400), 400)  # no two alike: what scores alike may be cut off anywhere
    said = [
        " ".join(["lamp"] * chance.randint(1, 3) + ["door"] * chance.randint(0, 1) + ["garden"] * length)
        for length in lengths
    ]
    source = ids()
    async with aforesaid.open(
        url,
        ttl=None,
        retention=aforesaid.Retention(sweep_every=None),
        models=aforesaid.Models(embedder=None),
        clock=FixedClock(NOW),
        ids=lambda: next(source),
    ) as memory:
        manager = memory.of("agree-many")
        conversation = await manager.get_or_create_conversation("s")
        moments = (NOW - timedelta(seconds=len(said) - at) for at in range(len(said)))
        messages = [
            Message(role="user", content=text, timestamp=at) for text, at in zip(said, moments, strict=True)
        ]
        await manager.append(conversation.id, messages)
        passages = (await manager.search("lamp door", 100)).passages
        await manager.delete_conversation(conversation.id)
        return [(one.sequence, round(one.score, 5)) for one in passages]


@pytest.mark.parametrize("store", [store for store in STORES if store != "memory"])
async def test_a_store_chooses_the_same_among_many(
    store: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searcher, "BY_WORDS", 50)
    found = await the_best_of_many(url_for(store, tmp_path, request))
    assert found == await the_best_of_many("memory://")
    assert len(found) == 50


@pytest.mark.parametrize("store", [store for store in STORES if store != "memory"])
@pytest.mark.parametrize("encoder", [None, "words-1"], ids=["words", "hybrid"])
async def test_a_store_finds_what_the_store_in_memory_finds(
    store: str, encoder: str | None, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = url_for(store, tmp_path, request)
    expected = await answers("memory://", WordEncoder(encoder) if encoder else None)
    found = await answers(url, WordEncoder(encoder) if encoder else None)
    assert sum(len(places) for _, places, _ in expected) > 30
    for one, other in zip(found, expected, strict=True):
        assert one == other


@pytest.fixture(scope="module")
def vector_url(databases: Databases) -> str:
    return with_vector(databases)


async def test_a_server_with_vectors_is_asked_in_a_long_history(
    vector_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searcher, "SERVED", 10)
    encoder = WordEncoder()
    async with aforesaid.open(
        vector_url, retention=aforesaid.Retention(sweep_every=None), models=aforesaid.Models(embedder=encoder)
    ) as memory:
        erin = memory.of(f"served-{new_id()}")
        conversation = await erin.get_or_create_conversation("s")
        said = ["We have a new dog", *(f"Something else, number {number}" for number in range(20))]
        await erin.append(conversation.id, [Message(role="assistant", content=text) for text in said])
        assert memory.search_resources.indexer is not None
        await memory.search_resources.indexer.wait_until_idle()
        found = await erin.search("puppy", 5)
        assert found.by_meaning
        assert "We have a new dog" in [passage.text for passage in found.passages]
        assert not memory.search_resources._vectors
        assert not (await erin.search("puppy", 5, role="user")).passages
        await erin.delete_conversation(conversation.id)
