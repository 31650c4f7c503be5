"""Notes while the store is away: made, and shown as they were last read; what was forgotten stays away."""

import asyncio
from typing import Any

import pytest

from aforesaid.agents.toolbox import owner_tools
from aforesaid.errors import StoreUnavailable
from aforesaid.memory.manager import ConversationManager
from aforesaid.notes.records import Note, NotesCache
from aforesaid.settings import ConversationConfig
from aforesaid.windows import WindowPolicy
from tests.unit.layers.conftest import LayerSetup

TEA = "I like tea"


async def furnished(setup: LayerSetup) -> tuple[ConversationManager, str]:
    erin = ConversationManager(setup.layer.of("erin"))
    record = await erin.get_or_create_conversation("kitchen")
    await erin.add_message(record.id, "user", "hello")
    return erin, record.id


def texts(notes: list[Note]) -> list[str]:
    return [note.text for note in notes]


@pytest.mark.parametrize("policy", [None, WindowPolicy(max_tokens=1000)])
async def test_a_context_has_the_notes_that_were_last_read(
    setup: LayerSetup, policy: WindowPolicy | None
) -> None:
    erin, conversation_id = await furnished(setup)
    note = await erin.remember(TEA)
    await erin.load_context(conversation_id)
    setup.failing.down()
    context = await erin.load_context(conversation_id, policy=policy)
    assert context.report.notes == (note.id,)
    assert any("last known state" in warning for warning in context.report.warnings)
    assert texts(await erin.recall("tea")) == [TEA]


async def test_a_note_can_be_made_and_is_there_when_the_store_is_back(setup: LayerSetup) -> None:
    erin, conversation_id = await furnished(setup)
    await erin.load_context(conversation_id)
    setup.failing.down()
    await erin.remember("The bedroom lights are dim")
    await erin.remember("The bedroom lights are off")
    assert len((await erin.load_context(conversation_id)).report.notes) == 1
    assert await setup.back()
    history = await erin.notes(history=True)
    assert texts(history) == ["The bedroom lights are dim", "The bedroom lights are off"]


async def test_a_model_can_make_a_note_of_an_owner_whose_notes_were_never_read(setup: LayerSetup) -> None:
    erin = ConversationManager(setup.layer.of("erin"))
    setup.failing.down()
    outcome = await owner_tools(erin).dispatch("remember", {"text": TEA})
    assert outcome.text.startswith(f"Remembered: {TEA}")
    assert await setup.back()
    assert texts(await erin.notes()) == [TEA]


async def test_what_was_forgotten_does_not_come_back(setup: LayerSetup) -> None:
    erin, conversation_id = await furnished(setup)
    await erin.remember(TEA)
    await erin.load_context(conversation_id)
    await erin.forget("I like tea")
    setup.failing.down()
    context = await erin.load_context(conversation_id)
    assert context.report.notes == ()
    with pytest.raises(StoreUnavailable):
        await erin.notes()


async def test_forgetting_is_not_accepted_while_the_store_is_away(setup: LayerSetup) -> None:
    erin, _ = await furnished(setup)
    await erin.remember(TEA)
    await erin.notes()
    setup.failing.down()
    with pytest.raises(StoreUnavailable):
        await erin.forget("I like tea")


async def test_an_agent_is_not_kept_waiting_for_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    erin = ConversationManager(config=ConversationConfig(context_deadline=1))
    record = await erin.get_or_create_conversation("kitchen")
    await erin.add_message(record.id, "user", "hello")

    async def hang(*_: Any, **__: Any) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(type(erin.store), "documents", hang)
    context = await erin.load_context(record.id, policy=WindowPolicy(max_tokens=1000))
    assert [message["content"] for message in context] == ["hello"]
    assert any("notes could not be read" in warning for warning in context.report.warnings)


async def test_what_is_known_is_bounded_and_forgets_on_request() -> None:
    async def note(text: str) -> Note:
        return await ConversationManager().remember(text)

    known = NotesCache(most=4)
    for owner in ("a", "b", "c"):
        known.keep(owner, [await note(owner)])
    assert known.of("a") is None
    known.add("b", await note("more"))
    assert len(known.of("b") or ()) == 2
    assert await known.remove_copies("b", None) == {"cached_copies": 2}
    assert known.of("b") is None
