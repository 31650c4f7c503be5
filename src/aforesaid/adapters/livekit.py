"""LiveKit Agents: keep a voice session's chat context, including what was heard of an interrupted answer."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from livekit.agents.llm import ChatContext

from aforesaid.adapters._transcripts import (
    Transcript,
    check_manager,
    message_of,
    names_of_calls,
    parts_of,
    source_of,
)
from aforesaid.memory.interface import ManagerProtocol
from aforesaid.model.messages import Message, Role, Speech

__all__ = ["AforesaidHistory"]

FRAMEWORK = "livekit"


class AforesaidHistory:
    """The chat context of one session in one owner's memory.

    history = AforesaidHistory("room-7", memory.of("kim"))
    agent = Agent(instructions="…", chat_ctx=await history.load())
    history.attach(session)      # stores every item of the session
    ...
    await history.flush()
    """

    def __init__(self, session_id: str, manager: ManagerProtocol, *, prefix: str = "livekit/") -> None:
        self.session_id = session_id
        self._transcript = Transcript(check_manager(manager), prefix + session_id)
        self._writing: asyncio.Task[None] | None = None

    async def load(self) -> ChatContext:
        """Return the stored context."""
        messages = await self._transcript.messages()
        tools = names_of_calls(messages)
        items = [item_of(message, tools) for message in messages]
        return ChatContext.from_dict({"items": items})

    async def save(self, context: ChatContext) -> None:
        """Store the items of a context that are not stored yet, in their order."""
        document = context.to_dict(exclude_image=False, exclude_audio=True, exclude_timestamp=False)
        await self._transcript.append_new([to_log(item) for item in document["items"]])

    def attach(self, session: Any) -> None:
        """Store every item that an `AgentSession` adds, in the order of its events."""

        def added(event: Any) -> None:
            item = event.item.model_dump(mode="json", exclude_none=True)
            self._writing = asyncio.ensure_future(self._after(self._writing, item))

        session.on("conversation_item_added", added)

    async def _after(self, earlier: "asyncio.Task[None] | None", item: dict[str, Any]) -> None:
        if earlier is not None:
            await asyncio.wait({earlier})
        await self._transcript.append_new([to_log(item)])

    async def flush(self) -> None:
        """Wait until all items are stored. Raise the error of the last one."""
        if self._writing is not None:
            await self._writing


def to_log(item: dict[str, Any]) -> Message:
    """Return an item as a message. LiveKit cuts an interrupted answer where the user interrupted it."""
    moment = item.get("created_at")
    more: dict[str, Any] = {"timestamp": datetime.fromtimestamp(moment, UTC)} if moment else {}
    message_id = f"lk-{item['id']}"
    if item["type"] == "function_call":
        call = {"id": item["call_id"], "name": item["name"], "arguments": item["arguments"]}
        return message_of(FRAMEWORK, "assistant", "", item, message_id=message_id, calls=[call], **more)
    if item["type"] == "function_call_output":
        return message_of(
            FRAMEWORK,
            "tool",
            str(item["output"]),
            item,
            message_id=message_id,
            answers=item["call_id"],
            is_error=bool(item.get("is_error")),
            **more,
        )
    if item["type"] != "message":
        return message_of(FRAMEWORK, "system", "", item, message_id=message_id, **more)
    roles: dict[str, Role] = {"user": "user", "assistant": "assistant"}
    text = "\n".join(part for part in item["content"] if isinstance(part, str))
    if item.get("interrupted"):
        more["speech"] = Speech(spoken=text, heard=len(text))
    role = roles.get(item["role"], "system")
    return message_of(FRAMEWORK, role, text, item, message_id=message_id, **more)


def item_of(message: Message, tools: Mapping[str, str]) -> dict[str, Any]:
    """Return the item; a redacted one, or one of another program, is made from its parts."""
    source = source_of(message, FRAMEWORK)
    if source is not None:
        return dict(source)
    text, calls, answers = parts_of(message)
    item_id = str(message.message_id).removeprefix("lk-")
    if answers:
        found = answers[0]
        more = {"output": found.text, "is_error": found.is_error, "name": tools.get(found.id, "")}
        return {"type": "function_call_output", "id": item_id, "call_id": found.id, **more}
    if calls:
        more = {"name": calls[0].name, "arguments": "{}"}
        return {"type": "function_call", "id": item_id, "call_id": calls[0].id, **more}
    return {
        "type": "message",
        "id": item_id,
        "role": "user" if message.role == "tool" else message.role,
        "content": [text],
        "interrupted": message.speech is not None and message.speech.interrupted,
    }
