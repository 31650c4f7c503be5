"""Whole histories: `load` and `save`, for simple callers."""

from typing import Any

import pytest

from aforesaid.contracts import ConversationStore
from aforesaid.errors import InvalidMessage
from aforesaid.model.conversations import Conversation
from aforesaid.model.ids import new_id
from aforesaid.testing.contract.base import Contract, user


class HistoriesContract(Contract):
    """`load` and `save`."""

    async def test_save_then_load(self, store: ConversationStore) -> None:
        conversation_id = new_id()
        assert await store.load(conversation_id) == []
        history: list[dict[str, Any]] = [
            {"role": "user", "content": "hi", "mood": {"unknown": True}},
            {"role": "assistant", "content": [{"type": "text", "text": "hello"}]},
        ]
        await store.save(conversation_id, history)
        loaded = await store.load(conversation_id)
        assert [
            {key: got[key] for key in given} for given, got in zip(history, loaded, strict=True)
        ] == history
        assert all(document["timestamp"] for document in loaded)

    async def test_save_of_an_extended_history_appends_only_new_messages(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        await store.append(conversation.id, [user("first")])
        history = await store.load(conversation.id)
        history.append({"role": "assistant", "content": "second"})
        await store.save(conversation.id, history)
        entries = await store.page(conversation.id, limit=10)
        assert [(e.sequence, e.message.content) for e in entries] == [(1, "first"), (2, "second")]

    async def test_save_of_a_different_history_replaces_it(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        await store.append(conversation.id, [user("first"), user("second")])
        await store.save(conversation.id, [{"role": "user", "content": "only"}])
        assert [document["content"] for document in await store.load(conversation.id)] == ["only"]
        await store.save(conversation.id, [])
        assert await store.load(conversation.id) == []

    @pytest.mark.parametrize(
        "bad", [{"content": "no role"}, {"role": "user"}, "text", {"role": "robot", "content": ""}]
    )
    async def test_save_of_a_malformed_history_changes_nothing(
        self, store: ConversationStore, conversation: Conversation, bad: Any
    ) -> None:
        await store.append(conversation.id, [user("first")])
        with pytest.raises(ValueError, match=r"message|role"):
            await store.save(conversation.id, [{"role": "user", "content": "first"}, bad])
        assert [document["content"] for document in await store.load(conversation.id)] == ["first"]

    async def test_load_and_save_raise_aforesaid_errors(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        with pytest.raises(InvalidMessage):
            await store.save(conversation.id, [{"role": "user", "content": b"bytes"}])
