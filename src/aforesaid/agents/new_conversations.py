"""Conversations that were made for a turn are taken back when it fails, unless somebody else is in them."""

import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aforesaid.errors import AforesaidError, ConversationNotFound, RevisionConflict
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.conversations import Conversation
from aforesaid.telemetry import describe

log = logging.getLogger("aforesaid.agents")

TakeBack = Callable[[], Awaitable[None]]
"""How to undo what was made for a turn."""

_turns: Counter[str] = Counter()
"""How many turns are being answered in a conversation, in this process."""
_made: dict[str, TakeBack] = {}
"""How to take back those that were made for a turn, as long as no turn in them was stored."""


@asynccontextmanager
async def answering(conversation_id: str, *, take_back: TakeBack | None = None) -> AsyncIterator[None]:
    """While a turn is being answered and stored. `take_back` where the conversation was made for it.

    Who fails leaves it to those who are still being answered: their words would have no place. The last one
    takes back what was made, if all of them failed.
    """
    if take_back is not None:
        _made[conversation_id] = take_back
    _turns[conversation_id] += 1
    try:
        yield
        _made.pop(conversation_id, None)
    finally:
        _turns[conversation_id] -= 1
        if not _turns[conversation_id]:
            del _turns[conversation_id]
            last = _made.pop(conversation_id, None)
            if last is not None:
                await last()


async def remove(manager: ConversationManager, record: Conversation) -> None:
    """Take back a conversation that was made for a turn that failed, unless somebody wrote to it."""
    try:
        await manager.delete_conversation(record.id, expected_revision=record.revision)
    except (RevisionConflict, ConversationNotFound):
        return
    except AforesaidError as error:
        log.warning("an empty conversation stays behind: %s", describe(error))
