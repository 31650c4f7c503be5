"""What passes the filters is found, however deep it stands in a ranking and however long ago it was said."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import aforesaid
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.messages import Message
from aforesaid.search import conversations, searcher
from aforesaid.testing import FixedClock
from tests.embedders import WordEncoder

NOW = datetime(2026, 3, 11, 12, tzinfo=UTC)
DEEP = 120
"""Messages that match better than the one that passes: many more than the bounds of a first look, below."""


@pytest.fixture(autouse=True)
def short_first_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searcher, "BY_WORDS_FILTERED", 20)
    monkeypatch.setattr(conversations, "BY_WORDS_FILTERED", 20)
    monkeypatch.setattr(searcher, "MOST_READ", 10)
    monkeypatch.setattr("aforesaid.search.vectors.NEAREST", 10)
    monkeypatch.setattr(searcher, "BROWSED_AT_ONCE", 2)


@pytest.fixture(params=["words", "hybrid"])
async def erin(request: pytest.FixtureRequest) -> AsyncIterator[ConversationManager]:
    """One short remark about a violin from long ago, and many that say it better."""
    embedder = WordEncoder() if request.param == "hybrid" else None
    async with aforesaid.open(
        "memory://",
        ttl=None,
        retention=aforesaid.Retention(sweep_every=None),
        models=aforesaid.Models(embedder=embedder),
        clock=FixedClock(NOW),
    ) as memory:
        erin = memory.of("erin")
        for number in range(12):
            await _filled(erin, number)
        rare = await erin.get_or_create_conversation("rare", channel="email")
        await erin.update_metadata(rare.id, subject="strings", tags=["music"])
        said = "among very many other things that were for sale there I saw an old violin once"
        message = Message(role="assistant", content=said, tags=("sold",), timestamp=NOW - timedelta(days=900))
        await erin.append(rare.id, [message])
        if memory.search_resources.indexer is not None:
            await memory.search_resources.indexer.wait_until_idle()
        yield erin


async def _filled(manager: ConversationManager, number: int) -> None:
    conversation = await manager.get_or_create_conversation(f"s{number}", channel="voice")
    messages = [
        Message(
            role="user", content=f"violin lesson {at}", timestamp=NOW - timedelta(hours=number, minutes=at)
        )
        for at in range(DEEP // 12)
    ]
    await manager.append(conversation.id, messages)


@pytest.mark.parametrize(
    "filters",
    [
        {"tag": "music"},
        {"tag": "sold"},
        {"channel": "email"},
        {"role": "assistant"},
        {"date_to": NOW - timedelta(days=800)},
        {"date_from": NOW - timedelta(days=1000), "date_to": NOW - timedelta(days=800), "tag": "sold"},
    ],
    ids=str,
)
@pytest.mark.parametrize("question", ["violin", "violin lesson", ""])
async def test_the_one_message_that_passes_is_found(
    erin: ConversationManager, filters: dict[str, Any], question: str
) -> None:
    (found,) = (await erin.search(question, 3, **filters)).passages
    assert found.text.endswith("an old violin once")


@pytest.mark.parametrize(
    "filters", [{"tag": "nothing has it"}, {"channel": "phone"}, {"role": "tool"}], ids=str
)
async def test_what_nothing_passes_finds_nothing(erin: ConversationManager, filters: dict[str, Any]) -> None:
    assert (await erin.search("violin", 3, **filters)).passages == ()
    assert (await erin.search("", 3, **filters)).passages == ()


async def test_a_conversation_is_found_by_what_is_said_deep_in_a_ranking(erin: ConversationManager) -> None:
    (found,) = await erin.search_conversations("violin lesson", tags=["music"])
    assert "**violin**" in found.excerpts[0].marked
    assert len(await erin.search_conversations("violin lesson")) == 13


async def test_an_old_day_is_found_behind_many_conversations(erin: ConversationManager) -> None:
    day = (NOW - timedelta(days=900)).date().isoformat()
    (found,) = (await erin.search(day, 3, timezone=UTC)).passages
    assert found.text.endswith("an old violin once")
