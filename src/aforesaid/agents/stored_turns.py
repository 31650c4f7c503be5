"""Answer a turn in a conversation and store it as a whole.

The question is stored as an open turn before an agent is asked. It stays unanswered when the agent fails or
the process ends. A turn that fails after a tool with effects ran, or after words were streamed to the user,
is stored with what happened.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from aforesaid._internal.arguments import validated
from aforesaid._internal.tasks import ended, finished, within
from aforesaid.agents.clients import with_client
from aforesaid.agents.known_turns import (
    ABANDONED_AFTER,
    derived_ids,
    known_answer,
    left_unfinished,
    open_question,
    record_turn,
    settled_turn,
    unfinished_turn,
)
from aforesaid.agents.loop import Answer, as_question
from aforesaid.agents.progress import TurnProgress
from aforesaid.agents.sent_requests import keep_request, sent_request
from aforesaid.agents.turn_order import Place, place_of, running_questions
from aforesaid.agents.views import Specialist, as_seen_by, reserving_policy, visible_context
from aforesaid.analytics.usage import agent_turn
from aforesaid.contracts import Appended, OnText
from aforesaid.errors import (
    AforesaidError,
    AgentTimedOut,
    Conflict,
    ConversationNotFound,
    MessageConflict,
)
from aforesaid.intake.unstored_turns import NotStored
from aforesaid.memory.interface import ManagerProtocol
from aforesaid.memory.turns import close_turn
from aforesaid.model.contexts import Context
from aforesaid.model.conversations import Conversation
from aforesaid.model.ids import is_uuid, parse_conversation
from aforesaid.model.messages import Message
from aforesaid.notes.records import Source
from aforesaid.telemetry import describe
from aforesaid.windows import WindowPolicy

log = logging.getLogger("aforesaid.agents")
T = TypeVar("T")

# Seconds that a cancelled agent has to end. A tool that it waits for may have had effects.
CANCELLING_SECONDS = 1.0


class ArrivedTurn(NamedTuple):
    """A question with its place in the conversation."""

    question: Message
    place: Place
    known: Answer | None
    """The stored answer, if the question was asked before."""
    record: Conversation | None = None
    """The conversation, if the caller has just read it."""
    opening: "asyncio.Task[None] | None" = None
    """Stores the question."""

    async def opened(self) -> None:
        """Wait until the question is durable."""
        if self.opening is not None:
            await asyncio.shield(self.opening)


@asynccontextmanager
async def arrived_turn(
    manager: ManagerProtocol, conversation_id: str, question: Message, record: Conversation | None = None
) -> AsyncIterator[ArrivedTurn]:
    """Make a question durable and give it a place in the order of its conversation.

    A question with an id may be known: then the stored answer is returned, and nothing must run. Raises
    `MessageConflict` when another question has this id. A new question is stored while its window is read;
    await `opened` before the agent gets it.
    """
    has_id = question.message_id is not None
    question = manager.intake.completed(question)
    place = place_of(manager, conversation_id, question.message_id)
    turn = ArrivedTurn(question, place, None, record)
    try:
        if has_id:
            turn = turn._replace(known=await _known_or_opened(manager, conversation_id, question, place))
        else:
            turn = turn._replace(
                opening=asyncio.ensure_future(_open(manager, conversation_id, question, place))
            )
        yield turn
    finally:
        place.leave()
        if turn.opening is not None:
            await finished(turn.opened())


async def _open(manager: ManagerProtocol, conversation_id: str, question: Message, place: Place) -> None:
    await open_question(manager, conversation_id, question)
    place.is_durable = True


async def _known_or_opened(
    manager: ManagerProtocol, conversation_id: str, question: Message, place: Place
) -> Answer | None:
    """Return the answer to a question that was asked before; open a new one."""
    known = await _known(manager, conversation_id, question)
    if known is not None:
        return known
    if not place.is_repeat:
        try:
            await _open(manager, conversation_id, question, place)
        except MessageConflict:
            left = await unfinished_turn(manager, conversation_id, question)
            if not left:
                raise
        else:
            return None
        # Its process ended after a tool ran. The turn must not run again.
        await _append_settled(manager, conversation_id, left)
        return await _known(manager, conversation_id, question)
    await place.repeats_are_over()
    return await _known_or_opened(manager, conversation_id, question, place)


async def _known(manager: ManagerProtocol, conversation_id: str, question: Message) -> Answer | None:
    """Return the answer to a question that was asked before. A store that fails does not keep the user from
    an answer.
    """
    try:
        return await within(manager.unstored.patience, known_answer(manager, conversation_id, question))
    except (MessageConflict, ConversationNotFound):
        raise
    except (AforesaidError, TimeoutError) as error:
        log.warning("a question is answered before the log can be read: %s", describe(error))
        return None


@validated
async def answer_turn(
    manager: ManagerProtocol,
    conversation_id: str,
    specialist: Specialist,
    user_text: str | Message,
    *,
    on_text: OnText | None = None,
    deadline: float | None = None,
    progress: TurnProgress | None = None,
) -> Answer:
    """Answer with the specialist's view of the conversation and store the whole turn.

    The question is durable before the agent is asked. An error or cancellation before the answer leaves it
    unanswered and the log unchanged, unless tools with effects ran or words were streamed: such a turn is
    stored with what happened, and its last message has the tag `incomplete`.

    - `deadline`: seconds until `AgentTimedOut`.
    - `progress`: has what the turn has done; `progress.interrupt` records what the user heard of it.

    An answer that cannot be stored is returned with the reason in `not_stored`, and its turn is queued (see
    `unstored`). The ids of the messages derive from the question's. A question with a known id returns the
    stored answer and runs nothing. Raises `AgentError`, `NothingToSend`, and `MessageConflict` when another
    question has this id.
    """
    question = as_question(user_text, field="user_text")
    if not is_uuid(parse_conversation(conversation_id)):
        conversation_id = await _named_conversation(manager, conversation_id)
    async with arrived_turn(manager, conversation_id, question) as turn:
        return await run_turn(
            manager, conversation_id, specialist, turn, on_text=on_text, deadline=deadline, progress=progress
        )


async def _named_conversation(manager: ManagerProtocol, name: str) -> str:
    """Return the id of the conversation of this name; create a missing one."""
    try:
        return (await manager.get_conversation(name)).id
    except ConversationNotFound:
        return (await manager.update_metadata(name, status="open")).id


async def run_turn(
    manager: ManagerProtocol,
    conversation_id: str,
    specialist: Specialist,
    turn: ArrivedTurn,
    *,
    on_text: OnText | None = None,
    deadline: float | None = None,
    progress: TurnProgress | None = None,
) -> Answer:
    """Answer a question that has arrived and store its turn; see `answer_turn`."""
    if turn.known is not None:
        return turn.known
    specialist = await with_client(manager, conversation_id, specialist, turn.question, turn.record)
    running = _RunningTurn(
        manager, conversation_id, specialist, turn, TurnProgress() if progress is None else progress
    )
    return await running.answer(on_text, deadline)


class _RunningTurn:
    """One turn of a specialist in a conversation."""

    def __init__(
        self,
        manager: ManagerProtocol,
        conversation_id: str,
        specialist: Specialist,
        turn: ArrivedTurn,
        progress: TurnProgress,
    ) -> None:
        self._manager = manager
        self._conversation_id = conversation_id
        self._specialist = specialist
        self._question = turn.question
        self._opened = turn.opened
        self._place = turn.place
        self._progress = progress
        self._is_recorded = False
        self._policy: WindowPolicy | None = None
        self._earlier: Sequence[Message] = ()
        self._sent: Context | None = None
        progress.record = self._record

    async def answer(self, on_text: OnText | None, deadline: float | None) -> Answer:
        messages: tuple[Message, ...] | None = None
        try:
            with agent_turn(self._conversation_id) as turn:
                answer = await run_within(deadline, self._run(on_text), self._progress)
            turn.answered(answer.text)
            messages = derived_ids(answer.messages, self._turn_id)
            await self._opened()
            await self._place.is_first()
            return await self._store(replace(answer, messages=messages))
        except BaseException as error:
            await finished(self._keep(error, messages))
            raise
        finally:
            self._progress.is_over = True

    @property
    def _turn_id(self) -> str:
        return str(self._question.message_id)

    async def _run(self, on_text: OnText | None) -> Answer:
        self._policy = reserving_policy(self._manager, self._specialist)
        self._earlier = await _left_by_others(self._manager, self._conversation_id)
        source = Source(conversation_id=self._conversation_id, message_id=self._turn_id)
        tools = self._specialist.tools.in_turn(source, on_run=self._progress.tool_started)
        return await self._specialist.loop.run_in(
            self._window,
            self._question,
            tools,
            on_text=None if on_text is None else partial(self._pass_on, on_text),
            progress=self._progress,
        )

    def _pass_on(self, on_text: OnText, piece: str) -> None:
        # An agent that ignores its cancellation must not speak into the next turn.
        if not self._progress.is_over:
            on_text(piece)  # first: if it raises, nothing was heard
            self._progress.add_text(piece)

    async def _window(self, turn: Sequence[Message]) -> Sequence[Message]:
        self._sent = await visible_context(
            self._manager,
            self._conversation_id,
            self._specialist,
            turn,
            policy=self._policy,
            earlier=self._earlier,
        )
        await self._opened()
        return as_seen_by(self._specialist, self._sent)

    async def _record(self, messages: Sequence[Message]) -> None:
        self._is_recorded = True
        await record_turn(self._manager, self._conversation_id, messages)

    async def _store(self, answer: Answer) -> Answer:
        answer = replace(answer, conversation_id=self._conversation_id)
        try:
            stored = await append_or_queue(self._manager, self._conversation_id, answer.messages)
        except MessageConflict:
            # Another process answered the question first. The user gets the answer that the log contains.
            known = await known_answer(self._manager, self._conversation_id, self._question)
            if known is None:
                raise
            return known
        if isinstance(stored, NotStored):
            return replace(answer, not_stored=stored)
        if self._sent is not None:
            sent = _Sent(self._sent, self._policy, self._manager.now())
            self._manager.unstored.later(
                partial(_keep_request, self._manager, self._conversation_id, answer, sent)
            )
        return replace(answer, stored=stored)

    async def _keep(self, error: BaseException, complete: Sequence[Message] | None) -> None:
        """Store what a turn did that failed or was cancelled; nothing of one that had no effects."""
        self._progress.is_over = True
        if isinstance(error, Conflict):
            return  # another process has the turn
        if not self._progress.must_be_kept(error):
            await self._reopen()
            return
        broken = self._progress.broken_off(error, agent_name=self._specialist.name)
        messages = complete or derived_ids(broken, self._turn_id)
        if isinstance(error, Exception):
            await self._place.is_first()
        self._progress.is_kept = True
        try:
            await append_or_queue(self._manager, self._conversation_id, messages)
        except MessageConflict:
            log.info("an incomplete turn is stored already")

    async def _reopen(self) -> None:
        """Make an open turn a question again, if its calls are in it and none of them ran."""
        if self._is_recorded:
            await close_turn(self._manager, self._conversation_id, self._turn_id)
            await open_question(self._manager, self._conversation_id, self._question)


async def run_within(seconds: float | None, work: Coroutine[Any, Any, T], progress: TurnProgress) -> T:
    """Return the result of the work. Raise `AgentTimedOut` at the deadline, even if the work goes on."""
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        await _give_up(task, progress)
        raise
    if not done:
        await _give_up(task, progress)
        raise AgentTimedOut(f"no answer within {seconds:g} seconds")
    return task.result()


async def _give_up(task: "asyncio.Task[Any]", progress: TurnProgress) -> None:
    """Cancel the work and give it a moment to record what it has done."""
    progress.is_over = True
    _given_up.add(task)
    task.add_done_callback(_retrieve)
    with suppress(TimeoutError, asyncio.CancelledError):
        await within(CANCELLING_SECONDS, ended(task))


# Strong references to agents that ignore their cancellation.
_given_up: "set[asyncio.Task[Any]]" = set()


def _retrieve(task: "asyncio.Task[Any]") -> None:
    _given_up.discard(task)
    if not task.cancelled():
        task.exception()  # retrieved, so that asyncio does not log it


async def _left_by_others(manager: ManagerProtocol, conversation_id: str) -> tuple[Message, ...]:
    """Return the turns that another process has not finished, to show them to the model. Store those of
    processes that have ended.
    """
    found = await left_unfinished(manager, conversation_id, running_questions(manager, conversation_id))
    shown: list[Message] = []
    for turn in found:
        if manager.now() - turn.opened_at > ABANDONED_AFTER:
            await _append_settled(manager, conversation_id, settled_turn(turn))
        else:
            shown += settled_turn(turn)
    return tuple(shown)


async def _append_settled(
    manager: ManagerProtocol, conversation_id: str, messages: Sequence[Message]
) -> None:
    try:
        await append_or_queue(manager, conversation_id, messages)
    except MessageConflict:  # its process has stored it in the meantime
        await close_turn(manager, conversation_id, str(messages[0].message_id))


class _Sent(NamedTuple):
    """What an agent was sent, and when."""

    context: Context
    policy: WindowPolicy | None
    at: datetime


async def _keep_request(manager: ManagerProtocol, conversation_id: str, answer: Answer, sent: _Sent) -> None:
    final = answer.messages[-1]
    if final.message_id is None:
        return
    request = sent_request(
        sent.context,
        message_id=final.message_id,
        agent_name=final.agent_name or "",
        steps=answer.steps,
        policy=sent.policy,
        sent_at=sent.at,
    )
    await keep_request(manager, conversation_id, request)


async def append_or_queue(
    manager: ManagerProtocol, conversation_id: str, messages: Sequence[Message]
) -> Appended | NotStored:
    """Store a turn whose answer the user gets in any case, and close it. When storing fails, queue the turn
    and retry in the background until the memory is closed. Raises only `MessageConflict`.
    """
    stored = await manager.unstored.store(
        manager.owner, conversation_id, messages, manager.append, now=manager.now()
    )
    turn_id = messages[0].message_id
    if turn_id is not None and not isinstance(stored, NotStored):
        # Without waiting: an open turn whose question is in the log counts as closed.
        manager.unstored.later(partial(close_turn, manager, conversation_id, turn_id))
    return stored
