"""A store of four methods: everything that the library derives from it, and what it refuses."""

import asyncio
from typing import Any

import pytest

from aforesaid.agents import AgenticLoop, ConversationEntity, ConversationInput
from aforesaid.contracts import ConversationStore
from aforesaid.dialects import meaning_of
from aforesaid.errors import (
    AgentUnavailable,
    InvalidInput,
    InvalidSetting,
    RevisionConflict,
    StoreDamaged,
    StoreUnavailable,
)
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.conversations import Query
from aforesaid.model.messages import Message
from aforesaid.stores.histories import HistoriesStore, as_store, id_of
from tests.doubles import Scripted


class Histories:
    """A store of four methods over a dictionary; `error` fails every call."""

    def __init__(self, **histories: list[dict[str, Any]]) -> None:
        self.histories = histories
        self.saves = 0
        self.error: Exception | None = None

    async def load(self, conversation_id: str) -> list[dict[str, Any]]:
        self._check()
        history = list(self.histories.get(conversation_id, []))
        await asyncio.sleep(0)  # other tasks run, as with a store that waits for a disk
        return history

    async def save(self, conversation_id: str, history: list[dict[str, Any]]) -> None:
        self._check()
        self.saves += 1
        self.histories[conversation_id] = history

    async def delete(self, conversation_id: str) -> None:
        self._check()
        self.histories.pop(conversation_id, None)

    async def purge_expired(self) -> int:
        self._check()
        return 3

    def _check(self) -> None:
        if self.error is not None:
            raise self.error


def texts(history: list[dict[str, Any]]) -> list[str]:
    return [message["content"] for message in history]


def said(text: str, conversation_id: str = "kitchen") -> ConversationInput:
    return ConversationInput(text, conversation_id=conversation_id)


async def test_a_manager_reads_and_writes_named_conversations() -> None:
    mine = Histories(kitchen=[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}])
    manager = ConversationManager(mine)
    record = await manager.get_or_create_conversation("kitchen")
    assert (record.id, record.message_count) == (id_of("kitchen"), 2)
    await manager.add_message(record.id, "user", "and now?")
    assert texts(mine.histories["kitchen"]) == ["hi", "hello", "and now?"]
    again = ConversationManager(mine)
    assert (await again.get_or_create_conversation("kitchen")).id == record.id
    context = await again.load_context(record.id)
    assert [message["content"] for message in context] == ["hi", "hello", "and now?"]
    await again.delete_conversation(record.id)
    assert mine.histories == {}
    assert await again.purge_expired() == 3


async def test_changes_by_another_program_are_seen_and_conflict_with_an_earlier_revision() -> None:
    mine = Histories()
    store = HistoriesStore(mine)
    manager = ConversationManager(store)
    record = await manager.get_or_create_conversation("kitchen")
    record = await manager.add_message(record.id, "user", "hi")
    mine.histories["kitchen"].append({"role": "assistant", "content": "hello"})
    assert texts(await store.load(record.id)) == ["hi", "hello"]
    with pytest.raises(RevisionConflict):
        await store.append(
            record.id, [Message(role="user", content="late")], expected_revision=record.revision
        )
    assert texts(mine.histories["kitchen"]) == ["hi", "hello"]


async def test_an_error_of_the_store_becomes_ours_and_nothing_is_remembered() -> None:
    mine = Histories()
    manager = ConversationManager(mine)
    record = await manager.get_or_create_conversation("kitchen")
    await manager.add_message(record.id, "user", "one")
    mine.error = RuntimeError("secret")
    with pytest.raises(StoreUnavailable, match="RuntimeError") as raised:
        await manager.add_message(record.id, "user", "two")
    assert "secret" not in str(raised.value)
    mine.error = None
    assert [message.content for message in await manager.messages(record.id)] == ["one"]


@pytest.mark.parametrize("history", [[{"content": "no role"}], ["text"], [{"role": "user", "content": {1}}]])
async def test_a_history_that_cannot_be_read_is_reported(history: list[Any]) -> None:
    with pytest.raises(StoreDamaged):
        await ConversationManager(Histories(kitchen=history)).session("kitchen")


async def test_operations_without_a_place_in_a_history_are_refused() -> None:
    mine = Histories()
    manager = ConversationManager(mine)
    record = await manager.get_or_create_conversation("kitchen")
    store: ConversationStore = manager.store
    for call in (
        manager.update_metadata(record.id, subject="Lights"),
        manager.remember("The lights are dim at nine."),
        manager.list(),
        store.find(Query()),
        store.clear(),
        store.tally(),
        store.bind("another name", record.id),
    ):
        with pytest.raises(InvalidSetting, match="load, save, delete and purge_expired"):
            await call
    assert mine.histories == {}


def test_an_object_without_the_methods_is_refused() -> None:
    with pytest.raises(InvalidInput, match="purge_expired"):
        as_store(object())
    with pytest.raises(InvalidInput, match="not both"):
        ConversationEntity(AgenticLoop(Scripted()), memory=ConversationManager(), store=Histories())


async def test_concurrent_turns_are_all_saved() -> None:
    mine = Histories()
    manager = ConversationManager(mine)
    record = await manager.get_or_create_conversation("kitchen")
    await asyncio.gather(*(manager.add_message(record.id, "user", str(one)) for one in range(20)))
    assert sorted(map(int, texts(mine.histories["kitchen"]))) == list(range(20))


async def test_a_failed_turn_saves_nothing_and_the_history_is_truncated() -> None:
    mine = Histories()
    agent = Scripted(AgentUnavailable("down"), "one", "two", "three")
    entity = ConversationEntity(AgenticLoop(agent), store=mine, max_history_turns=2)
    assert not (await entity.async_process(said("lost"))).stored
    assert (mine.histories, mine.saves) == ({}, 0)
    for question in ("1", "2", "3"):
        assert (await entity.async_process(said(question))).stored
    assert texts(mine.histories["kitchen"]) == ["2", "two", "3", "three"]
    with pytest.raises(InvalidSetting):
        await entity.clear_all_history()
    await entity.clear_history("kitchen")
    assert mine.histories == {}


class Foreign:
    """A loop of another project."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []

    async def run(self, user_text: str, chat_history: Any, tools: Any) -> str:
        self.asked.append((user_text, chat_history))
        return f"answer to {user_text}"


@pytest.mark.requirement("000-004")
async def test_the_entity_passes_the_history_to_the_run_method_of_any_loop() -> None:
    loop = Foreign()
    entity = ConversationEntity(loop)
    assert (await entity.async_process(said("one"))).response_text == "answer to one"
    await entity.async_process(said("two"))
    history = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "answer to one"}]
    assert loop.asked == [("one", []), ("two", history)]


@pytest.mark.requirement("000-004")
async def test_the_entity_calls_the_run_method_of_our_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []
    loop = AgenticLoop(Scripted("one", "two"))
    run = loop.run

    async def recorded(user_text: Any, *, chat_history: Any, **more: Any) -> Any:
        seen.append([meaning_of(message).text for message in chat_history])
        return await run(user_text, chat_history=chat_history, **more)

    monkeypatch.setattr(loop, "run", recorded)
    entity = ConversationEntity(loop)
    await entity.async_process(said("1"))
    await entity.async_process(said("2"))
    assert seen == [[], ["1", "one"]]


@pytest.mark.requirement("000-017", "001-011")
async def test_a_plain_call_of_clear_history_takes_effect_before_the_next_input() -> None:
    agent = Scripted("one", "two")
    entity = ConversationEntity(AgenticLoop(agent))
    await entity.async_process(said("1"))
    entity.clear_history("kitchen")
    await entity.async_process(said("2"))
    assert [meaning_of(message).text for message in agent.asked[1].messages] == ["2"]


@pytest.mark.requirement("000-017")
def test_clear_history_works_without_an_event_loop() -> None:
    mine = Histories()
    entity = ConversationEntity(AgenticLoop(Scripted("one")), store=mine)
    asyncio.run(_process(entity))
    assert texts(mine.histories["kitchen"]) == ["1", "one"]
    entity.clear_history("kitchen")
    assert mine.histories == {}


async def _process(entity: ConversationEntity) -> None:
    await entity.async_process(said("1"))


async def test_a_plain_call_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    mine = Histories()
    entity = ConversationEntity(AgenticLoop(Scripted("one")), store=mine)
    await entity.async_process(said("1"))
    mine.error = RuntimeError("down")
    with pytest.raises(StoreUnavailable):
        await entity.clear_history("kitchen")
    assert "could not be deleted" in caplog.text
