"""Searching what is encrypted: in this process, over opened messages. The store's own index holds nothing."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import aforesaid
from aforesaid.contracts import Searchable, capability
from aforesaid.encryption import MasterKeys
from aforesaid.layers.encrypted import EncryptedBackend, Encryption
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.ids import new_id
from tests.builders import LAYER_STORES, empty_url
from tests.encrypted_stores import MASTER

SAID = (
    ("kitchen", "where did I put the spare keys?", "The spare keys are in the blue drawer."),
    ("garden", "when were the roses watered?", "The roses were watered on Monday."),
)


@pytest.fixture(params=LAYER_STORES)
async def erin(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ConversationManager]:
    async with aforesaid.open(
        empty_url(request.param, tmp_path, request),
        retention=aforesaid.Retention(sweep_every=None),
        layers=aforesaid.Layers(
            encryption=Encryption(master=MasterKeys(MASTER), records=True), resilience="off"
        ),
        models=aforesaid.Models(embedder=None),
    ) as memory:
        owner = f"owner-{new_id()}"
        manager = memory.of(owner)
        for session, question, answer in SAID:
            record = await manager.get_or_create_conversation(session)
            await manager.update_metadata(record.id, subject=f"about the {session}", tags=[session])
            await manager.add_message(record.id, "user", question)
            await manager.add_message(record.id, "assistant", answer)
        yield manager
        assert isinstance(memory.backend, EncryptedBackend)
        inner = memory.backend.inner.of(owner)
        index = capability(inner, Searchable)
        if index is not None:
            found = await index.matches(["key", "drawer", "rose"], limit=9)
            assert (found.found, found.messages, found.terms) == ((), 0, 0)
        await manager.store.clear()


async def test_words_are_found_and_cited(erin: ConversationManager) -> None:
    (first, *_) = await erin.search_history("spare keys drawer")
    assert "blue drawer" in first
    assert await erin.search_history("submarine") == []


async def test_what_is_said_later_is_found_too(erin: ConversationManager) -> None:
    assert await erin.search_history("submarine") == []
    record = await erin.get_or_create_conversation("bath")
    await erin.add_message(record.id, "user", "the toy submarine is in the bath")
    assert "submarine" in (await erin.search_history("submarine"))[0]


async def test_conversations_are_found_by_content_subject_and_tag(erin: ConversationManager) -> None:
    (found,) = await erin.search_conversations("roses")
    assert found.subject == "about the garden"
    (found,) = await erin.search_conversations("kitchen", tags=["kitchen"])
    assert found.subject == "about the kitchen"
    assert await erin.search_conversations("roses", tags=["kitchen"]) == []
