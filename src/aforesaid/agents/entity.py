"""An assistant with the shape of Home Assistant's conversation entity, without Home Assistant.

`async_process(ConversationInput) -> ConversationResult`: the values have the fields of Home Assistant's
own, so that an integration hands its values over as they are, and reads ours as it reads its own.
Below: answering, memory. Above: the integration.
"""

import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Literal, Protocol
from uuid import uuid4

from msgspec import Struct
from msgspec.structs import replace

from aforesaid._internal.arguments import CheckedFields, validated
from aforesaid.agents.apologies import apology_for
from aforesaid.agents.loop import AgenticLoop, Answer, Tools, as_registry
from aforesaid.agents.new_conversations import answering, remove
from aforesaid.agents.stored_turns import Specialist, answer_turn
from aforesaid.contracts.listing import check_complete
from aforesaid.errors import (
    AforesaidError,
    InvalidInput,
    InvalidSetting,
    RevisionConflict,
    shown,
)
from aforesaid.memory.manager import ConversationManager
from aforesaid.memory.opening import Memory
from aforesaid.model.conversations import Conversation
from aforesaid.model.ids import parse_name
from aforesaid.model.messages import Message
from aforesaid.notes.records import Source
from aforesaid.telemetry import describe
from aforesaid.windows import WindowPolicy

log = logging.getLogger("aforesaid.entity")

LABEL = "conversation_entity"
"""Conversations of this face have this tag, and one with their id behind it."""

DEFAULT_TURNS = 20
"""Turns that are sent along: enough for what is said to an assistant at home in one go."""


class InputContext(CheckedFields, frozen=True, kw_only=True):
    """Who is behind an input, as far as Home Assistant knows."""

    user_id: str | None = None
    id: str | None = None
    parent_id: str | None = None


class ConversationInput(CheckedFields, frozen=True, kw_only=True):
    """What was said to the entity. The fields of Home Assistant's value of this name."""

    text: str
    context: InputContext = InputContext()
    conversation_id: str | None = None
    device_id: str | None = None
    language: str = "en"
    agent_id: str | None = None
    satellite_id: str | None = None
    extra_system_prompt: str | None = None


class Said(Protocol):
    """What is needed of an input: ours, or Home Assistant's own."""

    @property
    def text(self) -> str: ...
    @property
    def conversation_id(self) -> str | None: ...
    @property
    def device_id(self) -> str | None: ...
    @property
    def language(self) -> str: ...
    @property
    def context(self) -> Any: ...


ResponseType = Literal["action_done", "query_answer", "error"]


class IntentResponse(Struct, frozen=True, kw_only=True):
    """What is said back. The fields of Home Assistant's value of this name, as far as words go."""

    language: str
    speech: dict[str, dict[str, Any]]
    response_type: ResponseType = "query_answer"
    error_code: str | None = None

    def as_dict(self) -> dict[str, Any]:
        done: dict[str, Any] = {"targets": [], "success": [], "failed": []}
        data = {"code": self.error_code} if self.response_type == "error" else done
        return {
            "speech": self.speech,
            "card": {},
            "language": self.language,
            "response_type": self.response_type,
            "data": data,
        }


class ConversationResult(Struct, frozen=True, kw_only=True):
    """What comes of an input. The fields of Home Assistant's value of this name."""

    response: IntentResponse
    conversation_id: str | None = None
    continue_conversation: bool = False
    stored: bool = True
    """Whether the turn is stored. False for an apology, outside of a conversation, and where storing failed:
    then the speech has `{"stored": False}` as `extra_data`, and the turn is queued."""

    @property
    def text(self) -> str:
        """What is said, in words."""
        return str(self.response.speech["plain"]["speech"])

    def as_dict(self) -> dict[str, Any]:
        return {
            "response": self.response.as_dict(),
            "conversation_id": self.conversation_id,
            "continue_conversation": self.continue_conversation,
        }


OwnerOf = Callable[[Said], str]


def user_or_device(said: Said) -> str:
    """Whose conversation it is: the user's, or where nobody is known, the device's."""
    user_id = getattr(said.context, "user_id", None)
    if user_id:
        return f"user:{user_id}"
    return f"device:{said.device_id}" if said.device_id else "default"


@validated
class ConversationEntity:
    """An assistant that remembers the last turns of each conversation.

    `memory` says where they are kept: a `Memory`, in which every user or device has its own
    (`owner_of`), or a manager, for one owner; without either, in this process. `max_history_turns`
    are sent along, 0 sends all of them. `auto_create_conversation_id`: an input without an id starts
    a conversation, whose id is in the result; off, it is answered without history and not stored.
    `tools` may be a function that gives an owner's own, `search_history` for one.
    """

    def __init__(
        self,
        loop: AgenticLoop,
        *,
        tools: Tools | Callable[[ConversationManager], Tools] = None,
        memory: Memory | ConversationManager | None = None,
        max_history_turns: int = DEFAULT_TURNS,
        auto_create_conversation_id: bool = False,
        owner_of: OwnerOf = user_or_device,
        apology: Callable[[BaseException], str] = apology_for,
    ) -> None:
        _check_turns(max_history_turns)
        self._loop = loop
        self._tools = tools
        self._memory = memory if memory is not None else ConversationManager(ttl=None)
        self._may_forget = memory is None and max_history_turns > 0
        # What is sent has the question beside its history; what is kept has not.
        self._sent = WindowPolicy(max_turns=max_history_turns and max_history_turns + 1)
        self._kept = WindowPolicy(max_turns=max_history_turns, notes_tokens=0, summary_tokens=0)
        self._auto_create = auto_create_conversation_id
        self._owner_of = owner_of
        self._apology = apology

    async def async_process(self, user_input: Said) -> ConversationResult:
        """The answer. A turn that fails leaves the history as it was, and an apology is said."""
        conversation_id = user_input.conversation_id
        if conversation_id is None and self._auto_create:
            conversation_id = str(uuid4())
        try:
            answer = await self._answer(user_input, conversation_id)
        except AforesaidError as error:
            log.warning("a turn failed and was not stored: %s", describe(error))
            return self._sorry(user_input, conversation_id, error)
        except Exception as error:  # the edge: somebody is waiting to hear something
            log.exception("a turn failed and was not stored")
            return self._sorry(user_input, conversation_id, error)
        return _answered(user_input, conversation_id, answer)

    async def clear_history(self, conversation_id: str, user_input: Said | None = None) -> None:
        """Forget one conversation. What is not there is no error.

        `user_input`: of whom, as in `async_process`; without it, of everybody who has one of this id. What
        others in the same store have under this name stays, unless something was said to the entity in it.
        """
        tag = _tag(conversation_id)
        if user_input is not None:
            await _forget(self._manager_for(user_input), tag)
            return
        async with aclosing(self._managers()) as managers:
            async for manager in managers:
                await _forget(manager, tag)

    async def clear_all_history(self) -> None:
        """Forget all conversations of this face. Others in the same store stay."""
        async with aclosing(self._managers()) as managers:
            async for manager in managers:
                await _forget(manager, LABEL)

    async def _managers(self) -> AsyncGenerator[ConversationManager, None]:
        if isinstance(self._memory, ConversationManager):
            yield self._memory
            return
        for owner in [owner async for owner in self._memory.owners()]:
            yield self._memory.of(owner)

    def _manager_for(self, user_input: Said) -> ConversationManager:
        if isinstance(self._memory, ConversationManager):
            return self._memory
        return self._memory.of(self._owner_of(user_input))

    async def _answer(self, user_input: Said, conversation_id: str | None) -> Answer:
        manager = self._manager_for(user_input)
        tools = as_registry(self._tools(manager) if callable(self._tools) else self._tools)
        question = self._loop.question(user_input.text)
        loop = self._loop.instructed(getattr(user_input, "extra_system_prompt", None))
        specialist = Specialist(loop=loop, tools=tools, policy=self._sent)
        if conversation_id is None:
            return await self._answer_alone(manager, specialist, question)
        return await self._answer_in(manager, conversation_id, specialist, question)

    async def _answer_in(
        self, manager: ConversationManager, conversation_id: str, specialist: Specialist, question: Message
    ) -> Answer:
        known = await manager.session(_session(conversation_id))
        record = known or await _begun(manager, conversation_id)
        is_new = known is None and not record.message_count
        take_back = partial(remove, manager, record) if is_new else None
        async with answering(record.id, take_back=take_back):
            answer = await answer_turn(manager, record.id, specialist, question)
        if answer.stored is not None:
            await self._tidy(manager, record, conversation_id)
        return answer

    async def _tidy(self, manager: ConversationManager, record: Conversation, conversation_id: str) -> None:
        """What follows a stored turn. The answer is there: nothing that fails here may replace it."""
        try:
            await _label(manager, record, conversation_id)
            await self._bound(manager, record)
        except Exception as error:  # noqa: BLE001  the edge of any store
            log.warning("a conversation is not labelled or bounded: %s", describe(error))

    async def _answer_alone(
        self, manager: ConversationManager, specialist: Specialist, question: Message
    ) -> Answer:
        """The answer outside of any conversation: all that is known are the owner's notes."""

        async def window(turn: Sequence[Message]) -> Sequence[Message]:
            return (await manager.first_context(turn, policy=specialist.policy)).messages

        tools = specialist.tools.in_turn(Source(message_id=question.message_id))
        return await specialist.loop.run_in(window, question, tools)

    async def _bound(self, manager: ConversationManager, record: Conversation) -> None:
        """In this process's own memory, let go of what will never be sent again."""
        if not self._may_forget:
            return
        current = await manager.get_conversation(record.id)
        kept = await manager.load_context(record.id, policy=self._kept)
        if len(kept.messages) < current.message_count and not kept.report.degraded:
            try:
                await manager.store.rewrite(record.id, kept.messages, expected_revision=current.revision)
            except RevisionConflict:
                return  # another turn came in between, and does this

    def _sorry(
        self, user_input: Said, conversation_id: str | None, error: BaseException
    ) -> ConversationResult:
        sorry = _result(user_input, conversation_id, self._apology(error))
        response = replace(sorry.response, response_type="error", error_code="unknown")
        return replace(sorry, response=response, stored=False)


async def _begun(manager: ConversationManager, conversation_id: str) -> Conversation:
    """A conversation for a first turn. It is there before the answer, so that notes can say where they
    were made: those of a conversation that has no id yet would outlive its erasure."""
    record = await manager.get_or_create_conversation(_session(conversation_id), channel="voice")
    return await _label(manager, record, conversation_id)


async def _label(manager: ConversationManager, record: Conversation, conversation_id: str) -> Conversation:
    """The record with the tags of this face, which may speak in a conversation that somebody else began."""
    tag = _tag(conversation_id)
    if tag in record.tags:
        return record
    current = await manager.get_conversation(record.id)
    return await manager.update_metadata(record.id, tags=(*current.tags, LABEL, tag))


async def _forget(manager: ConversationManager, tag: str) -> None:
    while found := check_complete(await manager.list(tags=(tag,))).conversations:
        for record in found:
            await manager.delete_conversation(record.id)


def _answered(user_input: Said, conversation_id: str | None, answer: Answer) -> ConversationResult:
    extra = None if answer.not_stored is None else {"stored": False, "queued": answer.not_stored.queued}
    result = _result(user_input, conversation_id, answer.text, extra)
    return replace(result, stored=answer.stored is not None)


def _result(
    user_input: Said, conversation_id: str | None, text: str, extra: dict[str, Any] | None = None
) -> ConversationResult:
    speech = {"plain": {"speech": text, "extra_data": extra}}
    response = IntentResponse(language=user_input.language, speech=speech)
    # A question back keeps the microphone open.
    goes_on = text.rstrip().endswith(("?", "？", "؟"))
    return ConversationResult(
        response=response, conversation_id=conversation_id, continue_conversation=goes_on
    )


def _session(conversation_id: str) -> str:
    if not isinstance(conversation_id, str) or not conversation_id:
        raise InvalidInput(
            f"conversation_id must be text; got {shown(conversation_id)}",
            field="conversation_id",
            value=conversation_id,
        )
    return parse_name(conversation_id, field="conversation_id")


def _tag(conversation_id: str) -> str:
    return f"{LABEL}:{_session(conversation_id)}"


def _check_turns(turns: object) -> None:
    if isinstance(turns, bool) or not isinstance(turns, int) or turns < 0:
        raise InvalidSetting(
            f"max_history_turns must be a whole number, 0 for all; got {shown(turns)}",
            field="max_history_turns",
            value=turns,
        )
