"""Remove a conversation that was created for a turn when all turns in it fail."""

import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aforesaid.errors import AforesaidError, ConversationNotFound, RevisionConflict
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.conversations import Conversation
from aforesaid.telemetry import describe

log = logging.getLogger("aforesaid.agents")

Undo = Callable[[], Awaitable[None]]
"""Undoes the creation of a conversation."""

_turns: Counter[str] = Counter()
"""Running turns per conversation, in this process."""
_undo: dict[str, Undo] = {}
"""How to remove each conversation that was created for a turn, until a turn in it is stored."""


@asynccontextmanager
async def running_turn(conversation_id: str, *, undo: Undo | None = None) -> AsyncIterator[None]:
    """Count a running turn. Pass `undo` when the conversation was created for it.

    When several turns run in a new conversation, the last one removes it, and only if all of them failed.
    """
    if undo is not None:
        _undo[conversation_id] = undo
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


async def remove_if_unchanged(manager: ConversationManager, record: Conversation) -> None:
    """Delete a conversation that was created for a failed turn, unless it has changed since."""
    try:
        await manager.delete_conversation(record.id, expected_revision=record.revision)
    except (RevisionConflict, ConversationNotFound):
        return
    except AforesaidError as error:
        log.warning("an empty conversation could not be removed: %s", describe(error))
