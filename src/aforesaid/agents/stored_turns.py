"""Answer a turn in a conversation and store it completely or not at all.

The question is stored as an open turn before an agent is asked. It stays unanswered when the agent fails or
the process ends.

A `Specialist` is an agent with its description, tools and view of the conversation.

Views are what an agent sees of a conversation that it shares with other agents:

- `full`: all messages, as if the agent had written them.
- `narrated`: messages of other agents are quoted as theirs, without their tool calls, because this agent
  may not have those tools.
- `own`: only its own messages and the user's.

A conversation that was created for a turn is removed when all turns in it fail and none could be opened.
"""

import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import takewhile
from typing import Literal, get_args

from msgspec import field
from msgspec.structs import replace

from aforesaid._internal.arguments import CheckedFields, validated
from aforesaid._internal.tasks import within
from aforesaid.agents.loop import AgenticLoop, Answer
from aforesaid.agents.sent_requests import keep_request, sent_request
from aforesaid.agents.tools import ToolRegistry
from aforesaid.contexts import default_policy
from aforesaid.contracts import Appended, Entry, OnText
from aforesaid.dialects import meaning_of, narrate, without_results
from aforesaid.errors import (
    AforesaidError,
    ConversationNotFound,
    InvalidInput,
    MessageConflict,
    NothingToSend,
    RevisionConflict,
)
from aforesaid.intake.unstored_turns import NotStored
from aforesaid.memory.interface import ManagerProtocol
from aforesaid.memory.turns import close_turn
from aforesaid.model.contexts import Context
from aforesaid.model.conversations import Conversation
from aforesaid.model.ids import following_id
from aforesaid.model.messages import Message
from aforesaid.notes.records import Source
from aforesaid.telemetry import describe
from aforesaid.tokens import count_system, count_tools, ready
from aforesaid.windows import WindowPolicy

View = Literal["full", "narrated", "own"]


def check_view(view: str) -> None:
    if view not in get_args(View):
        raise InvalidInput.not_in("view", view, get_args(View))


def narrate_others(messages: Sequence[Message], agent_name: str) -> tuple[Message, ...]:
    """Return the messages with those of other agents quoted as text, without their tool calls and results.

    A result belongs to the last call of its id, because some servers restart their ids with each response.
    """
    visible: list[Message] = []
    theirs: dict[str, bool] = {}
    for message in messages:
        shown = narrate(message, agent_name)
        theirs |= {call.id: shown is not message for call in meaning_of(message).calls}
        if shown is message and message.role in ("user", "tool"):
            shown = _without_results_of(theirs, message)
        if shown is not None:
            visible.append(shown)
    return tuple(visible)


def _without_results_of(theirs: Mapping[str, bool], message: Message) -> Message | None:
    left_out = [result.call_id for result in meaning_of(message).results if theirs.get(result.call_id, False)]
    return without_results(message, left_out) if left_out else message


# Entries read at a time to find a repeated question.
PAGE = 50


class Specialist(CheckedFields, frozen=True, kw_only=True):
    """An agent with its description, tools and view."""

    loop: AgenticLoop
    description: str = ""
    """One sentence about its purpose; a `ModelRouter` chooses by it."""
    tools: ToolRegistry = field(default_factory=ToolRegistry)
    """The tools that the agent may call."""
    view: View = "full"
    policy: WindowPolicy | None = None
    """The window's limits. None uses the token budget `request_tokens` of the settings."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_view(self.view)

    @property
    def name(self) -> str:
        return self.loop.agent.name


@validated
async def answer_turn(
    manager: ManagerProtocol,
    conversation_id: str,
    specialist: Specialist,
    user_text: str | Message,
    *,
    on_text: OnText | None = None,
    is_open: bool = False,
) -> Answer:
    """Answer with the specialist's view of the conversation and store the whole turn.

    The question is durable before the agent is asked; `is_open` means that the caller has opened the turn. An
    error or cancellation before the answer leaves it unanswered and the log unchanged. An answer that cannot
    be stored is returned with the reason in `not_stored`, and its turn is queued (see `unstored`). When the
    question has an id, the ids of the other messages derive from it: repeating the question, even in another
    process, stores it once, and returns the stored answer. Raises `AgentError`, `NothingToSend`, and
    `MessageConflict` when another question has this id.
    """
    question = specialist.loop.question(user_text)
    if not is_open:
        await open_question(manager, conversation_id, question)
    policy = await _policy(manager, specialist)

    sent: list[Context] = []

    async def window(turn: Sequence[Message]) -> Sequence[Message]:
        context = await visible_context(manager, conversation_id, specialist, turn, policy=policy)
        sent[:] = [context]
        return _as_seen_by(specialist, context)

    source = Source(conversation_id=conversation_id, message_id=question.message_id)
    tools = specialist.tools.in_turn(source)
    answer = await specialist.loop.run_in(window, question, tools, on_text=on_text)
    messages = _with_derived_ids(answer.messages, user_text)
    answer = replace(answer, messages=messages, conversation_id=conversation_id)
    try:
        stored = await append_or_queue(manager, conversation_id, messages)
    except MessageConflict:
        # The question was asked before. The user gets the answer that the log contains.
        entries = await _stored_turn(manager, conversation_id, messages[0])
        if not entries:
            raise
        await close_turn(manager, conversation_id, str(question.message_id))
        return await _repeated(manager, answer, entries)
    if isinstance(stored, NotStored):
        return replace(answer, not_stored=stored)
    await _keep_request(manager, conversation_id, specialist, answer, sent, policy)
    return replace(answer, stored=stored)


async def _keep_request(
    manager: ManagerProtocol,
    conversation_id: str,
    specialist: Specialist,
    answer: Answer,
    sent: Sequence[Context],
    policy: WindowPolicy | None,
) -> None:
    final = answer.messages[-1]
    if not sent or final.message_id is None:
        return
    request = sent_request(
        sent[0],
        message_id=final.message_id,
        agent_name=final.agent_name or "",
        steps=answer.steps,
        policy=policy or specialist.policy,
        sent_at=manager.now(),
    )
    await keep_request(manager, conversation_id, request)


async def open_question(manager: ManagerProtocol, conversation_id: str, question: Message) -> None:
    """Store the question as an open turn. A store that fails does not keep the user from an answer.

    Raises `MessageConflict` when another open question has this id.
    """
    try:
        await within(manager.unstored.patience, manager.open_turn(conversation_id, [question]))
    except MessageConflict:
        raise
    except TimeoutError:
        log.warning("a question is answered before it is stored: the store did not take it in time")
    except AforesaidError as error:
        log.warning("a question is answered before it is stored: %s", describe(error))
    else:
        # The conversation has words now, so a failure of the turn must not remove it.
        _undo.pop(conversation_id, None)


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
        await close_turn(manager, conversation_id, turn_id)
    return stored


async def _stored_turn(manager: ManagerProtocol, conversation_id: str, question: Message) -> Sequence[Entry]:
    """Return the stored entries of an answered question, by their derived ids; none if there is no answer or
    if another question has this id.
    """
    if question.message_id is None:
        return ()
    start = (await manager.get_conversation(conversation_id)).message_count
    while start > 0:  # a repeated question is near the end
        start = max(0, start - PAGE)
        page = await manager.entries(conversation_id, 2 * PAGE, start)  # a turn may cross the boundary
        by_id = {entry.message.message_id: entry for entry in page if entry.unreadable is None}
        first = by_id.get(question.message_id)
        if first is not None:
            ids = (following_id(question.message_id, number) for number in range(1, len(page)))
            others = takewhile(lambda entry: entry is not None, map(by_id.get, ids))
            entries = (first, *(entry for entry in others if entry is not None))
            answered = entries[-1].message.role == "assistant"
            return entries if answered and first.message.same_content_as(question) else ()
    return ()


async def _repeated(manager: ManagerProtocol, answer: Answer, entries: Sequence[Entry]) -> Answer:
    """Return the answer with the text and messages of a turn that is stored already."""
    record = await manager.get_conversation(entries[0].conversation_id)
    return replace(
        answer,
        text=meaning_of(entries[-1].message).text,
        messages=tuple(entry.message for entry in entries),
        stored=Appended(conversation=record, new=(), known=tuple(entries)),
    )


def _with_derived_ids(messages: tuple[Message, ...], user_text: str | Message) -> tuple[Message, ...]:
    """Derive the turn's message ids from the question's id, if the caller set one."""
    if not isinstance(user_text, Message) or user_text.message_id is None:
        return messages
    question, *others = messages
    ids = (following_id(user_text.message_id, number) for number in range(1, len(messages)))
    return (question, *(other.with_(message_id=name) for other, name in zip(others, ids, strict=True)))


async def visible_messages(
    manager: ManagerProtocol,
    conversation_id: str,
    specialist: Specialist,
    turn: Sequence[Message],
    *,
    policy: WindowPolicy | None = None,
) -> Sequence[Message]:
    """Return the messages that the specialist sees, including this turn."""
    return _as_seen_by(
        specialist, await visible_context(manager, conversation_id, specialist, turn, policy=policy)
    )


def _as_seen_by(specialist: Specialist, context: Context) -> Sequence[Message]:
    if specialist.view == "narrated":
        return narrate_others(context.messages, specialist.name)
    return context.messages


async def visible_context(
    manager: ManagerProtocol,
    conversation_id: str,
    specialist: Specialist,
    turn: Sequence[Message],
    *,
    policy: WindowPolicy | None = None,
) -> Context:
    """Return the context of the specialist, including this turn. Raises `NothingToSend`."""
    own = specialist.name if specialist.view == "own" else None
    policy = policy or specialist.policy
    if specialist.view == "narrated":
        policy = policy or default_policy(manager.config, for_request=True)
        policy = replace(policy, told_to=specialist.name)
    queued = manager.unstored.messages(manager.owner, conversation_id)
    # The queue of unstored turns may store one while the context is built; then it would be in it twice.
    load = partial(manager.load_context, conversation_id, own, policy=policy, for_request=True)
    context = await load(pending=(*queued, *turn))
    if queued and _has_repeated_ids(context):  # the queue stored them while the context was built
        context = await load(pending=turn)
    if context.report.nothing_to_send is not None:
        raise NothingToSend(context.report.nothing_to_send)
    if _has_repeated_ids(context):
        return Context(messages=_without_repeated(context.messages), report=context.report)
    return context


def _without_repeated(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return each message once, at its last place: a question that is stored already is in this turn, too."""
    last = {message.message_id: message for message in messages}
    return tuple(
        message for message in messages if message.message_id is None or last[message.message_id] is message
    )


def _has_repeated_ids(context: Context) -> bool:
    ids = [message.message_id for message in context.messages if message.message_id is not None]
    return len(set(ids)) < len(ids)


async def _policy(manager: ManagerProtocol, specialist: Specialist) -> WindowPolicy | None:
    """Return the policy with the tokens of the instructions and tools reserved."""
    policy = specialist.policy
    if policy is None or policy.max_tokens is None:
        return policy
    counter, loop = manager.intake.counter, specialist.loop
    await ready(counter)
    return replace(
        policy,
        prompt_tokens=policy.prompt_tokens + count_system(counter, loop.instructions),
        tools_tokens=policy.tools_tokens
        + count_tools(counter, specialist.tools.definitions(loop.agent.dialect)),
    )


log = logging.getLogger("aforesaid.agents")

Undo = Callable[[], Awaitable[None]]
"""Undoes the creation of a conversation."""

# Running turns per conversation, in this process.
_turns: Counter[str] = Counter()
# How to remove each conversation that was created for a turn, until a turn in it is stored.
_undo: dict[str, Undo] = {}


@asynccontextmanager
async def running_turn(conversation_id: str, *, undo: Undo | None = None) -> AsyncIterator[None]:
    """Count a running turn. Pass `undo` when the conversation was created for it.

    When several turns run in a new conversation, the last one removes it, and only if all of them failed.
    """
    if undo is not None:
        _undo[conversation_id] = undo
    # Two devices may speak in a new conversation at once: the first failure must not remove it.
    _turns[conversation_id] += 1
    try:
        yield
        _undo.pop(conversation_id, None)
    finally:
        _turns[conversation_id] -= 1
        if not _turns[conversation_id]:
            del _turns[conversation_id]
            last = _undo.pop(conversation_id, None)
            if last is not None:
                await last()


async def remove_if_unchanged(manager: ManagerProtocol, record: Conversation) -> None:
    """Delete a conversation that was created for a failed turn, unless it has changed since."""
    try:
        # The revision refuses the deletion if any message arrived in the meantime.
        await manager.delete_conversation(record.id, expected_revision=record.revision)
    except (RevisionConflict, ConversationNotFound):
        return
    except AforesaidError as error:
        log.warning("an empty conversation could not be removed: %s", describe(error))
