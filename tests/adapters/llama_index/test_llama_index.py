"""LlamaIndex with Aforesaid as its chat store."""

import inspect
import random
from collections.abc import Callable
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage, CompletionResponse, LLMMetadata, MessageRole
from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.llms import CustomLLM
from llama_index.core.llms.callbacks import llm_completion_callback
from llama_index.core.memory import Memory
from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore, MessageStatus
from llama_index.core.storage.chat_store.sql import SQLAlchemyChatStore

import aforesaid
from aforesaid.adapters.llama_index import AforesaidChatStore
from aforesaid.memory.interface import ManagerProtocol
from tests.adapters.checks import Adapter, AdapterChecks


class Scripted(CustomLLM):
    """A model that gives a prepared answer."""

    answer: str = ""
    before: Any = None

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name="scripted")

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **_: Any) -> CompletionResponse:
        if self.before is not None:
            self.before()
        return CompletionResponse(text=self.answer)

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **_: Any) -> Any:
        raise NotImplementedError


class LlamaAdapter(Adapter):
    before_answer: Callable[[], Any] | None = None

    def conversation(self, session: str) -> str:
        return f"llama-index/{session}"

    async def say(self, manager: ManagerProtocol, session: str, question: str, answer: str) -> None:
        memory = Memory.from_defaults(session_id=session, chat_store=AforesaidChatStore(manager))
        llm = Scripted(answer=answer, before=self.before_answer)
        engine = SimpleChatEngine.from_defaults(llm=llm, memory=memory)
        await engine.achat(question)

    async def call_tool(self, manager: ManagerProtocol, session: str) -> None:
        call = {
            "id": "c1",
            "type": "function",
            "function": {"name": "look", "arguments": '{"where": "shed"}'},
        }
        memory = Memory.from_defaults(session_id=session, chat_store=AforesaidChatStore(manager))
        await memory.aput_messages(
            [
                ChatMessage(role="user", content="What is in the shed?"),
                ChatMessage(role="assistant", content="", additional_kwargs={"tool_calls": [call]}),
                ChatMessage(role="tool", content="a rake", additional_kwargs={"tool_call_id": "c1"}),
                ChatMessage(role="assistant", content="A rake."),
            ]
        )

    async def history(self, manager: ManagerProtocol, session: str) -> list[str]:
        return [one.content or "" for one in await AforesaidChatStore(manager).get_messages(session)]


class TestChecks(AdapterChecks):
    adapter = LlamaAdapter()


def test_the_interface_is_complete() -> None:
    assert not AforesaidChatStore.__abstractmethods__
    for name, method in inspect.getmembers(AsyncDBChatStore, inspect.isfunction):
        if getattr(method, "__isabstractmethod__", False):
            ours = inspect.signature(getattr(AforesaidChatStore, name))
            assert list(ours.parameters) == list(inspect.signature(method).parameters), name


@pytest.mark.parametrize("seed", range(4))
async def test_random_operations_give_what_the_reference_gives(seed: int) -> None:
    choose = random.Random(seed)
    async with aforesaid.open("memory://") as memory:
        stores = [
            SQLAlchemyChatStore(table_name=f"t{seed}", async_database_uri="sqlite+aiosqlite:///:memory:"),
            AforesaidChatStore(memory.of("kim")),
        ]
        for step in range(40):
            key, count = choose.choice("ab"), choose.randint(1, 3)  # the reference fails on none
            action = choose.choice(["add", "add", "several", "set", "oldest", "archive", "delete", "clear"])
            outcomes = [await _act(store, action, key, count, step) for store in stores]
            assert outcomes[0] == outcomes[1], (seed, step, action)


async def _act(store: Any, action: str, key: str, count: int, step: int) -> Any:
    result: Any = None
    new = [
        ChatMessage(role=MessageRole.USER, content=f"{step}.{number}", additional_kwargs={"n": number})
        for number in range(count)
    ]
    if action == "add":
        await store.add_message(key, ChatMessage(role="assistant", content=f"{step}"))
    elif action == "several":
        await store.add_messages(key, new)
    elif action == "set":
        await store.set_messages(key, new)
    elif action == "oldest":
        result = await store.delete_oldest_messages(key, count)
    elif action == "archive":
        result = await store.archive_oldest_messages(key, count)
    elif action == "delete":
        await store.delete_messages(key, MessageStatus.ARCHIVED)
    elif action == "clear":
        await store.delete_messages(key)
    pages = [await store.get_messages(key, status, limit=3) for status in (MessageStatus.ACTIVE, None)]
    counts = [await store.count_messages(key, status) for status in (MessageStatus.ACTIVE, None)]
    return result, pages, counts, sorted(await store.get_keys())


async def test_a_message_at_a_place_is_removed_and_returned() -> None:
    async with aforesaid.open("memory://") as memory:
        store = AforesaidChatStore(memory.of("kim"))
        await store.add_messages("k", [ChatMessage(role="user", content=str(number)) for number in range(3)])
        removed = await store.delete_message("k", 1)
        assert removed is not None
        assert removed.content == "1"
        assert [one.content for one in await store.get_messages("k")] == ["0", "2"]
        assert await store.delete_message("k", 9) is None
