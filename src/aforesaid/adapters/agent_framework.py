"""Microsoft agent-framework: `AforesaidHistoryProvider`, which loads and stores the messages of a session."""

from collections.abc import Sequence
from typing import Any

from agent_framework import Content, HistoryProvider
from agent_framework import Message as FrameworkMessage

from aforesaid.adapters._transcripts import Transcript, check_manager, message_of, parts_of, source_of
from aforesaid.errors import InvalidInput
from aforesaid.memory.interface import ManagerProtocol
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message, Role

__all__ = ["AforesaidHistoryProvider"]

FRAMEWORK = "agent-framework"


class AforesaidHistoryProvider(HistoryProvider):
    """The history of an agent's sessions in one owner's memory.

    agent = Agent(client=client, context_providers=[AforesaidHistoryProvider(memory.of("kim"))])
    """

    def __init__(
        self,
        manager: ManagerProtocol,
        *,
        source_id: str = "aforesaid",
        prefix: str = "agent-framework/",
        **options: Any,
    ) -> None:
        super().__init__(source_id, **options)
        self.manager = check_manager(manager)
        self.prefix = prefix

    async def get_messages(
        self, session_id: str | None, *, state: dict[str, Any] | None = None, **_: Any
    ) -> list[FrameworkMessage]:
        """Return the messages of a session in order."""
        messages = await self._transcript(session_id).messages()
        return [framework_message_of(message) for message in messages]

    async def save_messages(
        self,
        session_id: str | None,
        messages: Sequence[FrameworkMessage],
        *,
        state: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Store messages as one turn. A message with a known `message_id` is stored once."""
        if messages:
            await self._transcript(session_id).append_new([to_log(message) for message in messages])

    def _transcript(self, session_id: str | None) -> Transcript:
        if not session_id:
            raise InvalidInput("the session needs an id: pass a session to the agent", field="session_id")
        return Transcript(self.manager, self.prefix + session_id)


def to_log(message: FrameworkMessage) -> Message:
    """Return a framework message as a message of the log: its text, calls and results."""
    blocks = [block for one in message.contents if (block := _block(one)) is not None]
    name = str(getattr(message.role, "value", message.role))
    roles: dict[str, Role] = {"assistant": "assistant", "system": "system"}
    source = message.to_dict()
    message_id = f"af-{message.message_id}" if message.message_id else new_id()
    stored = message_of(FRAMEWORK, roles.get(name, "user"), "", source, message_id=message_id)
    only_text = len(blocks) == 1 and blocks[0]["type"] == "text"
    return stored.with_(content=blocks[0]["text"] if only_text else blocks or "")


def framework_message_of(message: Message) -> FrameworkMessage:
    """Return the framework's message; a redacted one, or one of another program, is made from its parts."""
    source = source_of(message, FRAMEWORK)
    if source is not None:
        return FrameworkMessage.from_dict(source)
    text, calls, answers = parts_of(message)
    contents: list[Any] = [text] if text else []
    contents += [Content.from_function_call(one.id, one.name, arguments=one.arguments) for one in calls]
    contents += [Content.from_function_result(one.id, result=one.text) for one in answers]
    return FrameworkMessage(role="tool" if answers else message.role, contents=contents)


def _block(content: Any) -> dict[str, Any] | None:
    kind = getattr(content, "type", None)
    if kind == "text":
        return {"type": "text", "text": content.text} if content.text else None
    if kind == "function_call":
        arguments = content.parse_arguments() or {}
        return {"type": "tool_use", "id": content.call_id, "name": content.name, "input": arguments}
    if kind == "function_result":
        result = content.result
        text = result if isinstance(result, str) else str(result)
        return {"type": "tool_result", "tool_use_id": content.call_id, "content": text}
    return None
