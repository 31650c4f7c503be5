"""Pipecat: keep a pipeline's `LLMContext`, including what was heard of an interrupted answer."""

import asyncio
import copy
from typing import Any

from pipecat.processors.aggregators.llm_context import LLMContext, LLMSpecificMessage

from aforesaid.adapters._transcripts import Transcript, check_manager, message_of, source_of
from aforesaid.memory.interface import ManagerProtocol
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message, Role, Speech

__all__ = ["AforesaidHistory"]

FRAMEWORK = "pipecat"


class AforesaidHistory:
    """The context of one session in one owner's memory.

    history = AforesaidHistory("call-7", memory.of("kim"))
    context = LLMContext(await history.load())
    aggregators = LLMContextAggregatorPair(context)
    history.attach(aggregators.assistant(), context)     # stores after every turn
    """

    def __init__(self, session_id: str, manager: ManagerProtocol, *, prefix: str = "pipecat/") -> None:
        self.session_id = session_id
        self._transcript = Transcript(check_manager(manager), prefix + session_id)
        self._stored = 0
        # Pipecat calls each handler in a task of its own, so turns could overtake each other.
        self._saving = asyncio.Lock()

    async def load(self) -> list[Any]:
        """Return the stored messages for a new context."""
        messages = [context_message_of(message) for message in await self._transcript.messages()]
        self._stored = len(messages)
        return messages

    async def save(self, context: LLMContext, *, interrupted: bool = False) -> None:
        """Store the messages that the context has gained. `interrupted` marks the last answer as cut."""
        # As they are now: the pipeline goes on while an earlier turn is being stored.
        messages = copy.deepcopy(context.get_messages())
        async with self._saving:
            if len(messages) < self._stored:
                # The program replaced its messages: the log keeps the earlier ones.
                self._stored = 0
            new = [to_log(message) for message in messages[self._stored :]]
            if interrupted:
                new = _with_interruption(new)
            await self._transcript.append(new)
            self._stored = len(messages)

    def attach(self, assistant: Any, context: LLMContext) -> None:
        """Store the context whenever the assistant's turn ends. An interrupted one has the words heard."""

        @assistant.event_handler("on_assistant_turn_stopped")
        async def stopped(_: Any, message: Any) -> None:
            await self.save(context, interrupted=bool(getattr(message, "interrupted", False)))


def to_log(message: Any) -> Message:
    """Return a context message as a message of the log."""
    if isinstance(message, LLMSpecificMessage):
        source = {"llm": message.llm, "message": message.message}
        return message_of(FRAMEWORK, "system", "", source, message_id=new_id())
    roles: dict[str, Role] = {"user": "user", "assistant": "assistant", "tool": "tool"}
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"text": content or ""}]
    calls = [
        {"id": call["id"], "name": call["function"]["name"], "arguments": call["function"]["arguments"]}
        for call in message.get("tool_calls") or ()
    ]
    return message_of(
        FRAMEWORK,
        roles.get(message["role"], "system"),
        "\n".join(str(part["text"]) for part in parts if isinstance(part, dict) and part.get("text")),
        {"message": message},
        message_id=new_id(),
        calls=calls,
        answers=message.get("tool_call_id"),
    )


def context_message_of(message: Message) -> Any:
    """Return the context message; one of another program is made from its text."""
    source = source_of(message, FRAMEWORK)
    if source is None:
        role = message.role if message.role in ("user", "assistant", "system") else "user"
        return {"role": role, "content": str(message.content)}
    if "llm" in source:
        return LLMSpecificMessage(llm=source["llm"], message=source["message"])
    return source["message"]


def _with_interruption(messages: list[Message]) -> list[Message]:
    """Mark the last answer as heard up to its end: Pipecat keeps the words that were spoken."""
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        if message.role == "assistant" and isinstance(message.content, str) and message.content:
            heard = Speech(spoken=message.content, heard=len(message.content))
            return [*messages[:place], message.with_(speech=heard), *messages[place + 1 :]]
    return messages
