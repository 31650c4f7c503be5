"""Questions that were asked before: the stored answer, or what is left of a turn whose process ended.

A question is known by its id. Its answer is in the log, or in the queue of turns that are not stored yet. A
turn whose process ended after a tool with effects ran is an open turn with more than its question.
"""

import logging
from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import takewhile

from aforesaid._internal.tasks import within
from aforesaid.agents.loop import Answer
from aforesaid.agents.progress import INCOMPLETE, INTERRUPTED, answer_text, settled
from aforesaid.agents.turn_order import keep_conversation
from aforesaid.contracts import Appended, Entry
from aforesaid.errors import (
    AforesaidError,
    Conflict,
    ConversationNotFound,
    InvalidSetting,
    MessageConflict,
)
from aforesaid.intake.unstored_turns import NotStored
from aforesaid.memory.interface import ManagerProtocol
from aforesaid.memory.turns import close_turn
from aforesaid.model.ids import following_id
from aforesaid.model.messages import Message, OpenTurn
from aforesaid.telemetry import describe

log = logging.getLogger("aforesaid.agents")

# Entries read at a time to find a repeated question behind a server.
PAGE = 50
# The age at which an open turn of another process counts as abandoned. Younger ones are shown to the model.
ABANDONED_AFTER = timedelta(minutes=5)
# Conversations in which no process has left a turn unfinished, as far as this process knows.
_checked: dict[tuple[int, str, str], None] = {}
_MOST_CHECKED = 10_000


async def known_answer(manager: ManagerProtocol, conversation_id: str, question: Message) -> Answer | None:
    """Return the answer to a question that was asked before; None for a new or unanswered one.

    Raises `MessageConflict` when another question has this id.
    """
    if question.message_id is None:
        return None
    queued = _queued_turn(manager, conversation_id, question.message_id)
    if queued:
        return _known(conversation_id, question, queued, None)
    entries = await stored_turn(manager, conversation_id, question.message_id)
    messages = [entry.message for entry in entries]
    if not messages:
        return None
    answer = _known(conversation_id, question, messages, None)
    if answer is None:
        return None
    await close_turn(manager, conversation_id, question.message_id)
    record = await manager.get_conversation(conversation_id)
    stored = Appended(conversation=record, new=(), known=tuple(entries))
    return _known(conversation_id, question, messages, stored)


def _known(
    conversation_id: str, question: Message, messages: Sequence[Message], stored: Appended | None
) -> Answer | None:
    if not messages[0].same_content_as(question):
        raise MessageConflict(conversation_id, str(question.message_id))
    final = messages[-1]
    if final.role != "assistant":
        return None
    return Answer(
        text=answer_text(final),
        messages=tuple(messages),
        steps=0,
        complete=not {INCOMPLETE, INTERRUPTED} & set(final.tags),
        stored=stored,
        not_stored=None
        if stored is not None
        else NotStored(error=AforesaidError("the turn is not stored yet"), queued=True),
        conversation_id=conversation_id,
        repeated=True,
    )


def _queued_turn(manager: ManagerProtocol, conversation_id: str, turn_id: str) -> Sequence[Message]:
    queued = {one.message_id: one for one in manager.unstored.messages(manager.owner, conversation_id)}
    return _in_order(queued, turn_id) if queued else ()


def _in_order(by_id: dict[str | None, Message], turn_id: str) -> Sequence[Message]:
    ids = (turn_id, *(following_id(turn_id, number) for number in range(1, len(by_id))))
    found = takewhile(lambda message: message is not None, map(by_id.get, ids))
    return [message for message in found if message is not None]


async def stored_turn(manager: ManagerProtocol, conversation_id: str, turn_id: str) -> Sequence[Entry]:
    """Return the stored entries of a turn, by the ids that derive from its question's."""
    try:
        store = manager.store
    except InvalidSetting:
        return await _stored_behind_server(manager, conversation_id, turn_id)
    try:
        found = await store.entry(conversation_id, turn_id)
    except ConversationNotFound:
        return ()
    entries: list[Entry] = []
    while found is not None and found.unreadable is None:
        entries.append(found)
        found = await store.entry(conversation_id, following_id(turn_id, len(entries)))
    return entries


async def _stored_behind_server(
    manager: ManagerProtocol, conversation_id: str, turn_id: str
) -> Sequence[Entry]:
    """Search the log from its end: a server has no lookup by id, and a repeated question is near the end."""
    start = (await manager.get_conversation(conversation_id)).message_count
    while start > 0:
        start = max(0, start - PAGE)
        page = await manager.entries(conversation_id, 2 * PAGE, start)  # a turn may cross the boundary
        by_id = {entry.message.message_id: entry for entry in page if entry.unreadable is None}
        if turn_id in by_id:
            messages = _in_order({name: entry.message for name, entry in by_id.items()}, turn_id)
            return [by_id[message.message_id] for message in messages]
    return ()


# Open turns


async def open_question(manager: ManagerProtocol, conversation_id: str, question: Message) -> None:
    """Store the question as an open turn. A store that fails does not keep the user from an answer.

    Raises `MessageConflict` when another open question has this id, or a turn with effects.
    """
    await _open(manager, conversation_id, [question])


async def record_turn(manager: ManagerProtocol, conversation_id: str, messages: Sequence[Message]) -> None:
    """Make a turn durable as it is now, before and after a tool with effects.

    Raises `Conflict` when another process answers the same question: only the first one may run its tools.
    """
    opened = await _open(manager, conversation_id, messages)
    if opened is not None and opened.messages[-1].message_id != messages[-1].message_id:
        raise Conflict("another process answers this question")


async def _open(
    manager: ManagerProtocol, conversation_id: str, messages: Sequence[Message]
) -> OpenTurn | None:
    try:
        opened = await within(manager.unstored.patience, manager.open_turn(conversation_id, messages))
    except MessageConflict:
        raise
    except TimeoutError:
        log.warning("a turn continues before it is stored: the store did not take it in time")
    except AforesaidError as error:
        log.warning("a turn continues before it is stored: %s", describe(error))
    else:
        # The conversation has words now, so a failure of the turn must not remove it.
        keep_conversation(conversation_id)
        return opened
    return None


async def unfinished_turn(
    manager: ManagerProtocol, conversation_id: str, question: Message
) -> Sequence[Message]:
    """Return what is left of a turn with this question whose process ended after it had effects, as a turn
    that can be stored; empty if there is none.
    """
    for turn in await manager.unanswered(conversation_id):
        if turn.id == question.message_id and has_effects(turn):
            if not turn.messages[0].same_content_as(question):
                raise MessageConflict(conversation_id, turn.id)
            return settled_turn(turn)
    return ()


def has_effects(turn: OpenTurn) -> bool:
    """Return whether an open turn is more than a question: its tools may have run."""
    return len(turn.messages) > 1 and any(message.role == "assistant" for message in turn.messages)


def settled_turn(turn: OpenTurn) -> Sequence[Message]:
    """Return the messages to store for an open turn whose process ended."""
    return derived_ids(settled(turn.messages), turn.id)


async def left_unfinished(
    manager: ManagerProtocol, conversation_id: str, running: Iterable[str]
) -> Sequence[OpenTurn]:
    """Return the open turns with effects that this process does not run. The first turn of a conversation
    in this process reads them; later ones only while there are any.
    """
    key = id(manager.unstored), manager.owner, conversation_id
    if key in _checked:
        return ()
    try:
        open_turns = await within(manager.unstored.patience, manager.unanswered(conversation_id))
    except (AforesaidError, TimeoutError) as error:
        log.info("turns that a process left unfinished cannot be read: %s", describe(error))
        return ()
    here = set(running)
    found = [turn for turn in open_turns if has_effects(turn) and turn.id not in here]
    if not found:
        _checked[key] = None
        if len(_checked) > _MOST_CHECKED:
            del _checked[next(iter(_checked))]
    return found


def derived_ids(messages: Sequence[Message], turn_id: str) -> tuple[Message, ...]:
    """Return the messages of a turn with ids that derive from the question's id."""
    question, *others = messages
    ids = (following_id(turn_id, number) for number in range(1, len(messages)))
    return (question, *(other.with_(message_id=name) for other, name in zip(others, ids, strict=True)))
