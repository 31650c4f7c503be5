"""Words without an answer go where their conversation goes: files, archives, exports, encryption."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import aforesaid
from aforesaid import Layers, Memory
from aforesaid.encryption import generate_master_key
from aforesaid.errors import InvalidInput
from aforesaid.memory.manager import ConversationManager
from aforesaid.memory.options import Retention
from aforesaid.model.messages import Message

WORDS = "is the dungeon heated"


def asked(text: str = WORDS, message_id: str = "q1") -> Message:
    return Message(role="user", content=text, message_id=message_id)


async def waiting(manager: ConversationManager, conversation_id: str) -> list[object]:
    return [turn.messages[0].content for turn in await manager.unanswered(conversation_id)]


@asynccontextmanager
async def opened(url: str, **options: object) -> AsyncIterator[ConversationManager]:
    async with aforesaid.open(url, **options) as memory:  # type: ignore[arg-type]
        yield memory.of("erin")


async def test_a_name_without_a_conversation_gets_one(memory: Memory) -> None:
    erin = memory.of("erin")
    turn = await erin.open_turn("kitchen", [asked()])
    record = await erin.get_conversation("kitchen")
    assert (turn.conversation_id, record.name, record.message_count) == (record.id, "kitchen", 0)
    async with erin.turn("kitchen", answering=turn) as answering:
        answering.assistant("No.")
    assert [message.content for message in await erin.messages("kitchen")] == [WORDS, "No."]
    with pytest.raises(InvalidInput):
        await erin.open_turn("cellar", [])
    assert [one.name for one in (await erin.list()).conversations] == ["kitchen"]


async def test_the_words_are_encrypted(tmp_path: Path) -> None:
    url, layers = f"sqlite:///{tmp_path}/memory.db", Layers(encryption=generate_master_key())
    async with opened(url, layers=layers) as erin:
        await erin.open_turn("kitchen", [asked()])
        record = await erin.get_conversation("kitchen")
    stored = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert WORDS.encode() not in stored
    async with opened(url, layers=layers) as erin:
        assert await waiting(erin, record.id) == [WORDS]


async def test_the_words_are_exported_and_imported(tmp_path: Path) -> None:
    async with opened(f"sqlite:///{tmp_path}/first.db") as erin:
        await erin.open_turn("kitchen", [asked()])
        await erin.export(tmp_path / "export")
    async with opened(f"sqlite:///{tmp_path}/second.db") as erin:
        await erin.import_(tmp_path / "export")
        assert await waiting(erin, "kitchen") == [WORDS]


async def test_the_words_are_archived_and_restored(tmp_path: Path) -> None:
    retention = Retention(archives=tmp_path / "archives")
    async with opened(f"sqlite:///{tmp_path}/memory.db", retention=retention) as erin:
        await erin.add_message("kitchen", "user", "hello")
        await erin.open_turn("kitchen", [asked()])
        await erin.archive("kitchen")
        await erin.restore("kitchen")
        assert await waiting(erin, "kitchen") == [WORDS]


async def test_a_store_of_histories_finds_a_name_in_a_new_process() -> None:
    saved: dict[str, list[dict[str, Any]]] = {}

    class Histories:
        async def load(self, conversation_id: str) -> list[dict[str, Any]]:
            return saved.get(conversation_id, [])

        async def save(self, conversation_id: str, history: list[dict[str, Any]]) -> None:
            saved[conversation_id] = history

        async def delete(self, conversation_id: str) -> None:
            saved.pop(conversation_id, None)

        async def purge_expired(self) -> int:
            return 0

    first = ConversationManager(Histories())
    await first.add_message("kitchen", "user", "hello")
    assert list(saved) == ["kitchen"]
    later = ConversationManager(Histories())
    assert [message.content for message in await later.messages("kitchen")] == ["hello"]
    await asyncio.gather(*(later.add_message("kitchen", "user", str(number)) for number in range(3)))
    assert (await later.get_conversation("kitchen")).message_count == 4
    assert len(await ConversationManager(Histories()).load_context("kitchen")) == 4
    await ConversationManager(Histories()).delete_conversation("kitchen")
    assert saved == {}
