"""Chat history: store whole turns, return the last turns ready to send.

For channels with occasional messages (messengers, SMS). A key such as a phone number identifies the person.
After a pause the next message starts a new conversation.
"""

import logging
from datetime import timedelta
from typing import Any

from aforesaid._internal.arguments import validated
from aforesaid.contracts import Appended
from aforesaid.dialects import DIALECTS, write
from aforesaid.errors import InvalidInput, InvalidMessage
from aforesaid.memory.interface import ManagerProtocol
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.conversations import Channel
from aforesaid.model.ids import parse_name
from aforesaid.windows import WindowPolicy

log = logging.getLogger("aforesaid.chats")

# Enough for a task of several steps, without much stale text.
MAX_TURNS = 10

# After half an hour a message most likely starts a new topic.
IDLE_AFTER = timedelta(minutes=30)

# The sender of automated messages (reminders, reports), which are not part of a person's history.
SYSTEM_SENDER = "system"

# The prefix of the tag that marks a key's conversations.
LABEL = "chat:"


@validated
class ChatHistory:
    """Histories by key, for one owner's chat channel.

    - `manager`: the owner's handle (`memory.of(owner)`); by default a new one that stores in memory only.
    - `max_turns`: the number of turns to return, each with all its tool calls; 0 returns all.
    - `idle_after`: the pause after which a new conversation starts; None never starts one.
    """

    def __init__(
        self,
        manager: ManagerProtocol | None = None,
        *,
        max_turns: int = MAX_TURNS,
        idle_after: timedelta | None = IDLE_AFTER,
        dialect: str = "anthropic",
        channel: Channel = "text",
    ) -> None:
        if dialect not in DIALECTS:
            raise InvalidInput.not_in("dialect", dialect, DIALECTS)
        self._manager = (manager or ConversationManager()).idling_after(idle_after)
        self._policy = WindowPolicy(max_turns=max_turns, notes_tokens=0, summary_tokens=0)
        self._dialect = dialect
        self._channel = channel

    async def get_history(self, key: str) -> list[dict[str, Any]]:
        """Return the last turns as dicts, to send before the new message; empty after a pause.

        A system prompt is not included: it goes with each request.
        """
        record = await self._manager.session(parse_name(key, field="key"))
        if record is None:
            return []
        context = await self._manager.load_context(record.id, policy=self._policy)
        return write(context.messages, self._dialect).messages

    async def save_turn(self, key: str, messages: Any, *, sender: str | None = None) -> Appended | None:
        """Store one turn, all of it or nothing: the question, every call and result, the answer.

        `messages` are dicts or SDK objects. A turn of the sender `system`, or under the key `system`, is not
        stored, and None is returned.
        """
        if SYSTEM_SENDER in (sender, key):
            log.debug("a turn of the system sender is not stored")
            return None
        turn = self._manager.intake.messages(messages)
        if not turn:
            raise InvalidMessage("a turn needs messages", field="messages")
        return await self._manager.append_to_session(key, turn, channel=self._channel, tags=(_label(key),))

    async def clear_history(self, key: str) -> None:
        """Remove everything stored under this key, including earlier conversations."""
        await self._manager.delete_session(key, tag=_label(key))


def _label(key: str) -> str:
    return LABEL + parse_name(key, field="key")
