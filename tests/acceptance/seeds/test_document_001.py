"""The proposal for persistent context, as printed."""

from typing import Any, Protocol

import pytest

from aforesaid.compat import AgenticLoop, ChatterboxConversationEntity, ConversationInput, ConversationStore
from aforesaid.dialects import meaning_of
from aforesaid.memory.manager import ConversationManager
from tests.acceptance.seeds.printed import parameters, printed, run
from tests.builders import Target
from tests.doubles import Scripted


@pytest.mark.requirement("001-012")
async def test_search_history_has_the_printed_signature() -> None:
    names = await run(f"def {printed('001-01').strip()}: ...")
    ours, theirs = parameters(ConversationManager.search_history), parameters(names["search_history"])
    assert [name for name, _ in ours[1:3]] == [name for name, _ in theirs]
    assert ours[2] == theirs[1]


@pytest.mark.requirement("001-012", "001-015")
def test_search_history_returns_texts(target: Target) -> None:
    async def scenario(manager: ConversationManager) -> None:
        record = await manager.get_or_create_conversation("s")
        await manager.add_message(record.id, "user", "What is the weather in Topeka?")
        (found,) = await manager.search_history("Topeka", max_results=5)
        assert isinstance(found, str)
        assert "What is the weather in Topeka?" in found

    target.run(scenario)


@pytest.mark.requirement("001-019")
async def test_the_store_protocol_has_the_printed_methods() -> None:
    store = (await run(printed("001-02"), Protocol=Protocol))["ConversationStore"]
    methods = [name for name in vars(store) if not name.startswith("_")]
    assert methods == ["load", "save", "delete", "purge_expired"]
    for name in methods:
        assert parameters(getattr(ConversationStore, name)) == parameters(getattr(store, name))


class MyStore:
    """A store with the printed methods and nothing else."""

    def __init__(self) -> None:
        self.histories: dict[str, list[dict[str, Any]]] = {}

    async def load(self, conversation_id: str) -> list[dict[str, Any]]:
        return list(self.histories.get(conversation_id, []))

    async def save(self, conversation_id: str, history: list[dict[str, Any]]) -> None:
        self.histories[conversation_id] = history

    async def delete(self, conversation_id: str) -> None:
        self.histories.pop(conversation_id, None)

    async def purge_expired(self) -> int:
        return 0


@pytest.mark.requirement("001-020", "001-021")
async def test_an_entity_accepts_a_store_of_four_methods() -> None:
    store = MyStore()
    entity = ChatterboxConversationEntity(AgenticLoop(Scripted("hello")), store=store)
    await entity.async_process(ConversationInput("hi", conversation_id="kitchen"))
    assert list(store.histories) == ["kitchen"]
    stored = [(message["role"], message["content"]) for message in store.histories["kitchen"]]
    assert stored == [("user", "hi"), ("assistant", "hello")]
    agent = Scripted("again")
    later = ChatterboxConversationEntity(AgenticLoop(agent), store=store)
    await later.async_process(ConversationInput("and now?", conversation_id="kitchen"))
    assert [meaning_of(message).text for message in agent.asked[0].messages] == ["hi", "hello", "and now?"]
    await later.clear_history("kitchen")
    assert store.histories == {}
