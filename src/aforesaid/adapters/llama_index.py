"""LlamaIndex: `AforesaidChatStore`, a chat store whose messages are in the log."""

from collections.abc import Callable
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore, MessageStatus

from aforesaid.adapters._transcripts import (
    Transcript,
    check_manager,
    conversations_named,
    message_of,
    parts_of,
    source_of,
)
from aforesaid.memory.interface import ManagerProtocol
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message, Role

__all__ = ["AforesaidChatStore"]

FRAMEWORK = "llama-index"
ARCHIVED = "llama-index.archived"
_ROLES: dict[str, Role] = {
    "user": "user",
    "assistant": "assistant",
    "chatbot": "assistant",
    "model": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
    "function": "tool",
}


class AforesaidChatStore(AsyncDBChatStore):
    """A chat store over one owner's memory.

        memory = Memory.from_defaults(session_id="s1", chat_store=AforesaidChatStore(manager))

    Archived messages have a tag. They stay in the log, where search finds them.
    """

    _manager: ManagerProtocol = PrivateAttr()
    _prefix: str = PrivateAttr()

    def __init__(self, manager: ManagerProtocol, *, prefix: str = "llama-index/", **more: Any) -> None:
        super().__init__(**more)
        self._manager = check_manager(manager)
        self._prefix = prefix

    async def get_messages(
        self,
        key: str,
        status: MessageStatus | None = MessageStatus.ACTIVE,
        limit: int | None = None,
        offset: int | None = None,
    ) -> list[ChatMessage]:
        """Return messages of a key in order; of any status with `status=None`."""
        found = [one for one in await self._messages(key) if _has(one, status)][offset or 0 :]
        return [chat_message_of(one) for one in (found if limit is None else found[:limit])]

    async def count_messages(self, key: str, status: MessageStatus | None = MessageStatus.ACTIVE) -> int:
        """Return the number of messages of a key."""
        return sum(_has(one, status) for one in await self._messages(key))

    async def add_message(
        self, key: str, message: ChatMessage, status: MessageStatus = MessageStatus.ACTIVE
    ) -> None:
        """Store one message."""
        await self.add_messages(key, [message], status)

    async def add_messages(
        self, key: str, messages: list[ChatMessage], status: MessageStatus = MessageStatus.ACTIVE
    ) -> None:
        """Store messages, all of them or nothing."""
        await self._transcript(key).append([to_log(one, status) for one in messages])

    async def set_messages(
        self, key: str, messages: list[ChatMessage], status: MessageStatus = MessageStatus.ACTIVE
    ) -> None:
        """Replace all messages of a key."""
        new = [to_log(one, status) for one in messages]
        await self._transcript(key).change(lambda _: new)

    async def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Remove the message at this place, counted from 0, and return it; None where there is none."""

        def without(messages: list[Message]) -> list[Message] | None:
            return messages[:idx] + messages[idx + 1 :] if 0 <= idx < len(messages) else None

        stored = await self._transcript(key).change(without)
        return chat_message_of(stored[idx]) if 0 <= idx < len(stored) else None

    async def delete_messages(self, key: str, status: MessageStatus | None = None) -> None:
        """Remove all messages of a key with a status, or all."""
        await self._transcript(key).change(
            lambda messages: [one for one in messages if not _has(one, status)]
        )

    async def delete_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        """Remove the oldest active messages and return them."""
        return await self._take_oldest(key, n, lambda _: None)

    async def archive_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        """Archive the oldest active messages and return them."""
        return await self._take_oldest(key, n, lambda one: one.with_(tags=(*one.tags, ARCHIVED)))

    async def get_keys(self) -> list[str]:
        """Return all keys that have messages."""
        named = await conversations_named(self._manager, self._prefix)
        return [(one.name or "").removeprefix(self._prefix) for one in named if one.message_count]

    async def _take_oldest(
        self, key: str, n: int, change: Callable[[Message], Message | None]
    ) -> list[ChatMessage]:
        taken: list[Message] = []

        def changed(messages: list[Message]) -> list[Message] | None:
            active = [one for one in messages if _has(one, MessageStatus.ACTIVE)]
            taken[:] = active[:n]
            ids = {one.message_id for one in taken}
            new = [change(one) if one.message_id in ids else one for one in messages]
            return [one for one in new if one is not None] if taken else None

        await self._transcript(key).change(changed)
        return [chat_message_of(one) for one in taken]

    async def _messages(self, key: str) -> list[Message]:
        return await self._transcript(key).messages()

    def _transcript(self, key: str) -> Transcript:
        return Transcript(self._manager, self._prefix + key)

    @classmethod
    def class_name(cls) -> str:
        """Return the class name."""
        return "AforesaidChatStore"


def to_log(message: ChatMessage, status: MessageStatus) -> Message:
    """Return a chat message as a message of the log."""
    calls = [
        {"id": call.get("id"), "name": call["function"]["name"], "arguments": call["function"]["arguments"]}
        for call in message.additional_kwargs.get("tool_calls") or ()
        if isinstance(call, dict) and isinstance(call.get("id"), str) and "function" in call
    ]
    answered = message.additional_kwargs.get("tool_call_id")
    role = _ROLES.get(str(getattr(message.role, "value", message.role)), "user")
    return message_of(
        FRAMEWORK,
        "user" if role == "tool" and answered is None else role,
        message.content or "",
        message.model_dump(mode="json"),
        message_id=new_id(),
        calls=calls,
        answers=answered if role == "tool" else None,
        tags=(ARCHIVED,) if status is MessageStatus.ARCHIVED else (),
    )


def chat_message_of(message: Message) -> ChatMessage:
    """Return the chat message; a redacted one, or one of another program, is made from its parts."""
    source = source_of(message, FRAMEWORK)
    if source is not None:
        return ChatMessage.model_validate(source)
    text, calls, answers = parts_of(message)
    more: dict[str, Any] = {"tool_call_id": answers[0].id} if answers else {}
    if calls:
        more["tool_calls"] = [one.as_function() for one in calls]
    content = answers[0].text if answers else text
    return ChatMessage(role=MessageRole(message.role), content=content, additional_kwargs=more)


def _has(message: Message, status: MessageStatus | None) -> bool:
    return status is None or (ARCHIVED in message.tags) == (status is MessageStatus.ARCHIVED)
