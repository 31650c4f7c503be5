"""Searching through the layers: by words and by meaning, whatever stands around the store."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import aforesaid
from aforesaid.contracts import Searchable, capability
from aforesaid.encryption import MasterKeys
from aforesaid.layers.cached import Cache
from aforesaid.layers.encrypted import Encryption
from aforesaid.layers.resilient import Resilience
from aforesaid.memory.manager import ConversationManager
from tests.embedders import WordEncoder
from tests.encrypted_stores import MASTER
from tests.servers.remote import open_at

LAYERS = ("encryption", "cache", "resilience", "audit")


def layers(chosen: str, folder: Path) -> dict[str, Any]:
    known = {
        "encryption": Encryption(master=MasterKeys(MASTER), records=True),
        "cache": Cache(),
        "resilience": Resilience(folder=folder),
        "audit": folder / "audit.jsonl",
    }
    return known if chosen == "all" else {chosen: known[chosen]}


@pytest.fixture(params=[*LAYERS, "all"])
async def memory(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[aforesaid.Memory]:
    options = layers(request.param, tmp_path)
    url = f"sqlite:///{tmp_path}/m.db"
    async with open_at(url, sweep_every=None, embedder=WordEncoder(), **options) as memory:
        yield memory


@pytest.fixture
async def erin(memory: aforesaid.Memory) -> ConversationManager:
    for owner, said in (("erin", "We have a new dog"), ("sam", "My dog is a secret")):
        manager = memory.of(owner)
        record = await manager.get_or_create_conversation("s", channel="voice")
        await manager.update_metadata(record.id, subject="at home", tags=["pets"])
        await manager.add_message(record.id, "user", said)
        await manager.add_message(record.id, "assistant", "The tap is leaking")
    await settled(memory)
    return memory.of("erin")


async def settled(memory: aforesaid.Memory) -> None:
    assert memory.search_resources.indexer is not None
    await memory.search_resources.indexer.wait_until_idle()


async def texts(manager: ConversationManager, query: str, **filters: Any) -> list[str]:
    return [passage.text for passage in (await manager.search(query, 1, **filters)).passages]


async def test_words_and_meaning_are_found_with_and_without_filters(erin: ConversationManager) -> None:
    assert await texts(erin, "dog") == ["We have a new dog"]
    assert await texts(erin, "puppy") == ["We have a new dog"]
    assert await texts(erin, "leaking", tag="pets", channel="voice") == ["The tap is leaking"]
    assert await texts(erin, "", role="user") == ["We have a new dog"]
    (found,) = await erin.search_conversations("dog", tags=["pets"])
    assert (found.subject, found.excerpts[0].marked) == ("at home", "We have a new **dog**")


async def test_what_is_said_later_is_found_and_what_is_gone_is_not(
    memory: aforesaid.Memory, erin: ConversationManager
) -> None:
    await texts(erin, "dog")
    record = await erin.get_or_create_conversation("later")
    await erin.add_message(record.id, "user", "I sold my car")
    await settled(memory)
    assert await texts(erin, "automobile") == ["I sold my car"]
    await erin.delete_conversation(record.id)
    assert "I sold my car" not in await texts(erin, "automobile car")


async def test_an_index_in_the_store_is_used_where_words_may_stand_in_it(
    memory: aforesaid.Memory, erin: ConversationManager, request: pytest.FixtureRequest
) -> None:
    sealed = request.node.callspec.params["memory"] in ("encryption", "all")
    assert (capability(erin.store, Searchable) is None) == sealed
    assert bool(memory.search_resources._indexes) is False
    await texts(erin, "dog")
    assert bool(memory.search_resources._indexes) == sealed
