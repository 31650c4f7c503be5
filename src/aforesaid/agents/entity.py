"""An assistant with the interface of Home Assistant's conversation entity, without depending on Home
Assistant.

`async_process(ConversationInput) -> ConversationResult`: the values have the same fields as Home Assistant's,
so an integration can pass its own values in and use the results unchanged.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Literal, Protocol, cast
from uuid import uuid4

from msgspec import Struct
from msgspec.structs import replace

from aforesaid._internal.arguments import CheckedFields, validated
from aforesaid.agents.loop import (
    AgenticLoop,
    Answer,
    HistoryLoop,
    Tools,
    TurnRunner,
    as_question,
    as_registry,
)
from aforesaid.agents.progress import TurnProgress
from aforesaid.agents.stored_turns import answer_turn, run_within
from aforesaid.agents.supervisor import DEADLINE, apology_for, check_deadline
from aforesaid.agents.turn_order import Found, remove_if_unchanged, running_turn
from aforesaid.agents.views import Specialist
from aforesaid.contracts.listing import check_complete
from aforesaid.contracts.plugins import HistoryStore
from aforesaid.errors import (
    AforesaidError,
    InvalidInput,
    InvalidSetting,
    shown,
)
from aforesaid.memory.chats import drop_evicted
from aforesaid.memory.interface import ManagerProtocol, MemoryProtocol
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.conversations import Conversation
from aforesaid.model.ids import parse_name
from aforesaid.model.messages import Message
from aforesaid.notes.records import Source
from aforesaid.stores.histories import as_store
from aforesaid.telemetry import describe
from aforesaid.windows import WindowPolicy

log = logging.getLogger("aforesaid.entity")

# Tag of all conversations of the entity. A second tag adds the conversation id.
LABEL = "conversation_entity"

# Turns sent to the model: enough for one dialogue at home.
DEFAULT_TURNS = 20


class InputContext(CheckedFields, frozen=True, kw_only=True):
    """The user behind an input, with the fields of Home Assistant's context."""

    user_id: str | None = None
    id: str | None = None
    parent_id: str | None = None


class _InputText(CheckedFields, frozen=True):
    """The field of an input that may be given by position."""

    text: str


class ConversationInput(_InputText, frozen=True, kw_only=True):
    """An input, with the fields of Home Assistant's value of this name."""

    context: InputContext = InputContext()
    conversation_id: str | None = None
    device_id: str | None = None
    language: str = "en"
    agent_id: str | None = None
    satellite_id: str | None = None
    extra_system_prompt: str | None = None


class EntityInput(Protocol):
    """The fields that the entity reads from an input."""

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
    """The spoken response, with the speech fields of Home Assistant's value of this name."""

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
    """The result of an input, with the fields of Home Assistant's value of this name."""

    response: IntentResponse
    conversation_id: str | None = None
    continue_conversation: bool = False
    stored: bool = True
    """Whether the turn is stored. False for an apology, for an input without a conversation, and when storing
    failed. In the last case the turn is queued and the speech has `{"stored": False}` in `extra_data`.
    """

    @property
    def response_text(self) -> str:
        """The spoken text."""
        return str(self.response.speech["plain"]["speech"])

    @property
    def extra(self) -> dict[str, Any]:
        """Details of the answer: the `extra_data` of the speech, empty if it has none."""
        return dict(self.response.speech["plain"]["extra_data"] or {})

    def as_dict(self) -> dict[str, Any]:
        return {
            "response": self.response.as_dict(),
            "conversation_id": self.conversation_id,
            "continue_conversation": self.continue_conversation,
        }


OwnerOf = Callable[[EntityInput], str]


def user_or_device(user_input: EntityInput) -> str:
    """Return the owner of an input: its user, else its device."""
    user_id = getattr(user_input.context, "user_id", None)
    if user_id:
        return f"user:{user_id}"
    return f"device:{user_input.device_id}" if user_input.device_id else "default"


@validated
class ConversationEntity:
    """An assistant that remembers the last turns of each conversation.

    - `loop`: `run(user_text, chat_history=…, tools=…)` answers an input.
    - `memory`: a `Memory` with one owner per user or device (see `owner_of`), or the manager of a single
      owner. By default conversations are kept in this process.
    - `store`: in place of a memory, a store of histories with `load`, `save`, `delete` and `purge_expired`.
      It receives the ids of the inputs, and the last `max_history_turns` turns of each.
    - `max_history_turns`: turns sent to the model; 0 sends all.
    - `auto_create_conversation_id`: start a conversation for an input without an id and return its id.
      Otherwise such an input is answered without history and not stored.
    - `tools`: tools, or a function from a manager to its owner's tools.
    - `deadline`: seconds that a turn may take; None waits indefinitely.
    """

    def __init__(
        self,
        loop: AgenticLoop | TurnRunner,
        *,
        tools: Tools | Callable[[ManagerProtocol], Tools] = None,
        memory: MemoryProtocol | ManagerProtocol | None = None,
        store: HistoryStore | None = None,
        max_history_turns: int = DEFAULT_TURNS,
        auto_create_conversation_id: bool = False,
        owner_of: OwnerOf = user_or_device,
        apology: Callable[[BaseException], str] = apology_for,
        deadline: float | None = DEADLINE,
    ) -> None:
        _check_turns(max_history_turns)
        if memory is not None and store is not None:
            raise InvalidInput("pass memory or store, not both", field="store", value=store)
        self._loop = loop
        self._tools = tools
        is_memory = hasattr(memory, "of")
        self._memory = cast(MemoryProtocol, memory) if is_memory else None
        self._store = store
        derived = None if store is None else as_store(store)
        own = ConversationManager(derived, ttl=None) if memory is None else memory
        self._manager = cast(ManagerProtocol, own)
        self._clearing: set[asyncio.Task[None]] = set()
        self._trims_log = memory is None and max_history_turns > 0
        # A sent window contains the question as one more turn; a stored one does not.
        self._send_policy = WindowPolicy(max_turns=max_history_turns and max_history_turns + 1)
        self._keep_policy = WindowPolicy(max_turns=max_history_turns, notes_tokens=0, summary_tokens=0)
        self._auto_create = auto_create_conversation_id
        self._owner_of = owner_of
        self._apology = apology
        self._deadline = check_deadline(deadline, field="deadline")

    async def async_process(self, user_input: EntityInput) -> ConversationResult:
        """Answer an input. A failed turn leaves the history unchanged and returns an apology."""
        await self._cleared()
        conversation_id = user_input.conversation_id
        if conversation_id is None and self._auto_create:
            conversation_id = str(uuid4())
        try:
            answer = await self._answer(user_input, conversation_id)
        except AforesaidError as error:
            log.warning("a turn failed and was not stored: %s", describe(error))
            return self._apologize(user_input, conversation_id, error)
        except Exception as error:  # a plug-in may raise anything; the user gets an apology
            log.exception("a turn failed and was not stored")
            return self._apologize(user_input, conversation_id, error)
        return _answer_result(user_input, conversation_id, answer)

    def clear_history(self, conversation_id: str, user_input: EntityInput | None = None) -> Awaitable[None]:
        """Delete a conversation if it exists. A plain call takes effect before the next input is answered;
        await the result to wait for it.

        `user_input` selects the owner as in `async_process`; by default the conversation of this id is
        deleted for all owners. Only conversations that the entity has answered in are deleted.
        """
        return self._started(self._clear(_session(conversation_id), user_input))

    def _started(self, work: Coroutine[Any, Any, None]) -> Awaitable[None]:
        """Start the work, which the next input waits for; without an event loop, do it now."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            asyncio.run(work)
            return _Done()
        return self._keep(loop.create_task(work))

    def _keep(self, task: "asyncio.Task[None]") -> "asyncio.Task[None]":
        self._clearing.add(task)
        task.add_done_callback(self._clearing.discard)
        task.add_done_callback(_log_failure)
        return task

    async def _cleared(self) -> None:
        """Wait until the histories are deleted that plain calls of `clear_history` named."""
        here = asyncio.get_running_loop()
        tasks = [task for task in self._clearing if task.get_loop() is here]
        if tasks:
            await asyncio.wait(tasks)

    async def _clear(self, conversation_id: str, user_input: EntityInput | None) -> None:
        tag = _tag(conversation_id)
        if self._store is not None:
            await _forget_session(self._manager, conversation_id)
            return
        if user_input is not None:
            await _forget(self._manager_for(user_input), tag)
            return
        async with aclosing(self._managers()) as managers:
            async for manager in managers:
                await _forget(manager, tag)

    async def clear_all_history(self) -> None:
        """Delete all conversations that the entity has answered in."""
        async with aclosing(self._managers()) as managers:
            async for manager in managers:
                await _forget(manager, LABEL)

    async def _managers(self) -> AsyncGenerator[ManagerProtocol, None]:
        if self._memory is None:
            yield self._manager
            return
        # A list first: deleting conversations can remove an owner while the store is listing owners.
        for owner in [owner async for owner in self._memory.owners()]:
            yield self._memory.of(owner)

    def _manager_for(self, user_input: EntityInput) -> ManagerProtocol:
        return self._manager if self._memory is None else self._memory.of(self._owner_of(user_input))

    async def _answer(self, user_input: EntityInput, conversation_id: str | None) -> Answer:
        manager = self._manager_for(user_input)
        tools = as_registry(self._tools(manager) if callable(self._tools) else self._tools)
        loop = HistoryLoop(self._loop_for(user_input))
        question = as_question(user_input.text, field="user_text")
        specialist = Specialist(loop=loop, tools=tools, policy=self._send_policy)
        if conversation_id is None:
            return await self._answer_alone(manager, specialist, question)
        return await self._answer_in(manager, conversation_id, specialist, question)

    def _loop_for(self, user_input: EntityInput) -> TurnRunner:
        if not isinstance(self._loop, AgenticLoop):
            return self._loop
        return self._loop.with_instructions(getattr(user_input, "extra_system_prompt", None))

    async def _answer_in(
        self, manager: ManagerProtocol, conversation_id: str, specialist: Specialist, question: Message
    ) -> Answer:
        records: list[Conversation] = []

        async def look_up() -> Found:
            existing = await manager.session(_session(conversation_id))
            record = existing or await self._create_conversation(manager, conversation_id)
            records.append(record)
            # Another process may have created it in the meantime, with messages.
            is_new = existing is None and not record.message_count
            return Found(record.id, partial(remove_if_unchanged, manager, record) if is_new else None)

        async with running_turn(manager, conversation_id, look_up) as found:
            answer = await answer_turn(
                manager, found.conversation_id, specialist, question, deadline=self._deadline
            )
        record = records[0]
        if answer.stored is not None:
            await self._label_and_trim(manager, record, conversation_id)
        return answer

    async def _label_and_trim(
        self, manager: ManagerProtocol, record: Conversation, conversation_id: str
    ) -> None:
        """Label and trim the conversation after a stored turn. Errors are logged, because the answer must
        reach the user.
        """
        try:
            await self._label(manager, record, conversation_id)
            await self._trim(manager, record)
        except Exception as error:  # noqa: BLE001  a store may raise anything
            log.warning("a conversation could not be labelled or trimmed: %s", describe(error))

    async def _answer_alone(
        self, manager: ManagerProtocol, specialist: Specialist, question: Message
    ) -> Answer:
        """Answer without a conversation, from the owner's notes only."""

        async def window(turn: Sequence[Message]) -> Sequence[Message]:
            return (await manager.first_context(turn, policy=specialist.policy)).messages

        question = specialist.loop.question(question)
        tools = specialist.tools.in_turn(Source(message_id=question.message_id))
        work = specialist.loop.run_in(window, question, tools)
        return await run_within(self._deadline, work, TurnProgress())

    async def _trim(self, manager: ManagerProtocol, record: Conversation) -> None:
        """In the process's own memory, drop messages that no window can include again."""
        if not self._trims_log:
            return
        await drop_evicted(manager, record.id, self._keep_policy)

    async def _create_conversation(self, manager: ManagerProtocol, conversation_id: str) -> Conversation:
        """Create and label the conversation of a first turn. It must exist before the answer, so that notes
        made in the turn refer to it and are erased with it.
        """
        record = await manager.get_or_create_conversation(_session(conversation_id), channel="voice")
        return await self._label(manager, record, conversation_id)

    async def _label(
        self, manager: ManagerProtocol, record: Conversation, conversation_id: str
    ) -> Conversation:
        """Return the record with the entity's tags. Another surface may have created the conversation."""
        tag = _tag(conversation_id)
        # A store of histories has no tags: the name alone finds the conversation.
        if self._store is not None or tag in record.tags:
            return record
        current = await manager.get_conversation(record.id)
        return await manager.update_metadata(record.id, tags=(*current.tags, LABEL, tag))

    def _apologize(
        self, user_input: EntityInput, conversation_id: str | None, error: BaseException
    ) -> ConversationResult:
        apology = _result(user_input, conversation_id, self._apology(error))
        response = replace(apology.response, response_type="error", error_code="unknown")
        return replace(apology, response=response, stored=False)


def _log_failure(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.warning("a history could not be deleted: %s", describe(error))


class _Done:
    """An awaitable without anything left to wait for."""

    def __await__(self) -> Generator[Any, Any, None]:
        return
        yield


async def _forget_session(manager: ManagerProtocol, conversation_id: str) -> None:
    record = await manager.session(conversation_id)
    if record is not None:
        await manager.delete_conversation(record.id)


async def _forget(manager: ManagerProtocol, tag: str) -> None:
    # Deleting changes later pages, so every round reads the first page again.
    while found := check_complete(await manager.list(tags=(tag,))).conversations:
        for record in found:
            await manager.delete_conversation(record.id)


def _answer_result(
    user_input: EntityInput, conversation_id: str | None, answer: Answer
) -> ConversationResult:
    extra = None if answer.not_stored is None else {"stored": False, "queued": answer.not_stored.queued}
    result = _result(user_input, conversation_id, answer.text, extra)
    return replace(result, stored=answer.stored is not None)


def _result(
    user_input: EntityInput, conversation_id: str | None, text: str, extra: dict[str, Any] | None = None
) -> ConversationResult:
    speech = {"plain": {"speech": text, "extra_data": extra}}
    response = IntentResponse(language=user_input.language, speech=speech)
    # Home Assistant keeps the microphone open after a question.
    expects_reply = text.rstrip().endswith(("?", "？", "؟"))
    return ConversationResult(
        response=response, conversation_id=conversation_id, continue_conversation=expects_reply
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
