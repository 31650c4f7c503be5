"""Pipecat: keep a pipeline's `LLMContext`, including what was heard of an interrupted answer."""

import asyncio
import copy
from collections import Counter
from typing import Any

import msgspec
from pipecat.processors.aggregators.llm_context import LLMContext, LLMSpecificMessage

from aforesaid.adapters._transcripts import Transcript, check_manager, message_of, parts_of, source_of
from aforesaid.memory.interface import ManagerProtocol
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message, Role, Speech

__all__ = ["AforesaidHistory"]

FRAMEWORK = "pipecat"
INSTRUCTIONS = ("system", "developer")
# Pipecat's result of a tool that is still running.
IN_PROGRESS = "IN_PROGRESS"


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
        self._stored = _Stored()
        # Pipecat calls each handler in a task of its own, so turns could overtake each other.
        self._saving = asyncio.Lock()

    async def load(self) -> list[Any]:
        """Return the stored messages for a new context."""
        messages = [context_message_of(message) for message in await self._transcript.messages()]
        self._stored = _Stored()
        self._stored.take_new(messages)
        return messages

    async def save(self, context: LLMContext, *, interrupted: bool = False) -> None:
        """Store the messages that the context has gained. `interrupted` marks the last answer as cut.

        - A call is stored together with its result, when the tool has finished.
        - Messages that the program removes from the context, or replaces by a summary, stay in the log.
        - An instruction that every run of the program adds is stored once.
        """
        # As they are now: the pipeline goes on while an earlier turn is being stored.
        taken = self._stored.take_new(_finished(context.get_messages()))
        try:
            new = [to_log(copy.deepcopy(message)) for message in taken]
            async with self._saving:
                await self._transcript.append(_with_interruption(new) if interrupted else new)
        except BaseException:
            self._stored.give_back(taken)
            raise

    def attach(self, assistant: Any, context: LLMContext) -> None:
        """Store the context whenever the assistant's turn ends. An interrupted one has the words heard."""

        @assistant.event_handler("on_assistant_turn_stopped")
        async def stopped(_: Any, message: Any) -> None:
            await self.save(context, interrupted=bool(getattr(message, "interrupted", False)))


class _Stored:
    """Which messages of the context are in the log: the objects themselves, because words may be repeated."""

    def __init__(self) -> None:
        # A message with the number of its places: a program may add one object twice.
        self._known: dict[int, tuple[Any, int]] = {}
        self._instructions: set[bytes] = set()

    def take_new(self, messages: list[Any]) -> list[Any]:
        """Return the messages that are not known, which are known from now on."""
        new: list[Any] = []
        places: Counter[int] = Counter()
        for message in messages:
            places[id(message)] += 1
            _, known = self._known.get(id(message), (message, 0))
            if places[id(message)] <= known:
                continue
            self._known[id(message)] = (message, known + 1)
            if not self._is_known_instruction(message):
                new.append(message)
        return new

    def give_back(self, messages: list[Any]) -> None:
        """Take these messages as new again: they could not be stored."""
        for message in messages:
            self._known.pop(id(message), None)

    def _is_known_instruction(self, message: Any) -> bool:
        if isinstance(message, LLMSpecificMessage) or message["role"] not in INSTRUCTIONS:
            return False
        words = msgspec.json.encode(message.get("content"))
        known = words in self._instructions
        self._instructions.add(words)
        return known


def _finished(messages: list[Any]) -> list[Any]:
    """Return the messages before the first call whose tool is running: Pipecat exchanges its result later."""
    running = {
        message["tool_call_id"]
        for message in messages
        if not isinstance(message, LLMSpecificMessage)
        and message["role"] == "tool"
        and message.get("content") == IN_PROGRESS
    }
    for place, message in enumerate(messages if running else ()):
        calls = () if isinstance(message, LLMSpecificMessage) else message.get("tool_calls") or ()
        if any(call["id"] in running for call in calls):
            return messages[:place]
    return messages


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
    """Return the context message; a redacted one, or one of another program, is made from its parts."""
    source = source_of(message, FRAMEWORK)
    if source is None:
        text, calls, answers = parts_of(message)
        if answers:
            return {"role": "tool", "tool_call_id": answers[0].id, "content": answers[0].text}
        made: dict[str, Any] = {"role": message.role, "content": text}
        return {**made, "tool_calls": [one.as_function() for one in calls]} if calls else made
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
