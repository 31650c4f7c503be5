"""LangChain: `AforesaidChatMessageHistory`.

LangChain has deprecated `BaseChatMessageHistory` since 1.6.4 and removes it in 2.0.0. New programs use
`aforesaid.adapters.langgraph`.
"""

import warnings
from collections.abc import Sequence
from typing import Any

from langchain_core.messages import BaseMessage, message_to_dict, messages_from_dict

from aforesaid._internal.portal import PORTAL
from aforesaid.adapters._transcripts import (
    Transcript,
    check_manager,
    message_of,
    open_manager,
    parts_of,
    source_of,
)
from aforesaid.memory.interface import ManagerProtocol
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message, Role

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the deprecation is in the docstring above
    from langchain_core.chat_history import BaseChatMessageHistory

__all__ = ["AforesaidChatMessageHistory", "open_manager"]

FRAMEWORK = "langchain"
_ROLES: dict[str, Role] = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool"}


class AforesaidChatMessageHistory(BaseChatMessageHistory):
    """The messages of one session in one owner's memory."""

    def __init__(self, session_id: str, manager: ManagerProtocol, *, prefix: str = "langchain/") -> None:
        self.session_id = session_id
        self._transcript = Transcript(check_manager(manager), prefix + session_id)

    @property
    def messages(self) -> list[BaseMessage]:
        """All messages in order."""
        return PORTAL.call(self.aget_messages)

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Store messages, all of them or nothing."""
        PORTAL.call(lambda: self.aadd_messages(messages))

    def clear(self) -> None:
        """Remove all messages."""
        PORTAL.call(self.aclear)

    async def aget_messages(self) -> list[BaseMessage]:
        """Return all messages in order."""
        return [langchain_message_of(message) for message in await self._transcript.messages()]

    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Store messages, all of them or nothing."""
        await self._transcript.append([to_log(message) for message in messages])

    async def aclear(self) -> None:
        """Remove all messages."""
        await self._transcript.clear()


def to_log(message: BaseMessage) -> Message:
    """Return LangChain's message as a message of the log."""
    calls: list[dict[str, Any]] = [
        {"id": call.get("id") or "", "name": call["name"], "arguments": call["args"]}
        for call in getattr(message, "tool_calls", None) or ()
    ]
    return message_of(
        FRAMEWORK,
        # Unknown kinds count as the user's words, which no provider rejects.
        _ROLES.get(message.type, "user"),
        str(message.text),
        message_to_dict(message),
        message_id=new_id(),
        calls=calls,
        answers=getattr(message, "tool_call_id", None),
    )


def langchain_message_of(message: Message) -> BaseMessage:
    """Return LangChain's message; a redacted one, or one of another program, is made from its parts."""
    source = source_of(message, FRAMEWORK)
    if source is None:
        text, calls, answers = parts_of(message)
        kinds = {"user": "human", "assistant": "ai", "system": "system", "tool": "human"}
        source = {"type": kinds[message.role], "data": {"content": text}}
        if answers:
            data = {"content": answers[0].text, "tool_call_id": answers[0].id}
            source = {"type": "tool", "data": data}
        elif calls:
            named = [{"id": one.id, "name": one.name, "args": one.arguments} for one in calls]
            source["data"] = {"content": text, "tool_calls": named}
    (restored,) = messages_from_dict([source])
    return restored
