"""Chat history: whole turns in, the last turns out, ready to send. Below: the manager.

For channels in which a person writes now and then (messengers, SMS): a key, such as a phone number,
stands for the person. After a time of silence the next message starts a fresh conversation.
"""

import logging
from datetime import timedelta
from typing import Any

from aforesaid._internal.arguments import validated
from aforesaid.contracts import Appended
from aforesaid.dialects import DIALECTS, write
from aforesaid.errors import InvalidInput, InvalidMessage
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.conversations import Channel
from aforesaid.model.ids import parse_name
from aforesaid.windows import WindowPolicy

log = logging.getLogger("aforesaid.chats")

MAX_TURNS = 10
"""Enough for a task of several steps, and little that is stale."""

IDLE_AFTER = timedelta(minutes=30)
"""Whoever writes after half an hour has most likely begun something else."""

SYSTEM_SENDER = "system"
"""Who sends what is automated: reminders, reports. It is no part of a person's history."""

LABEL = "chat:"
"""Conversations of this face have a tag with their key behind this."""


@validated
class ChatHistory:
    """Histories by key, for one owner's chat channel.

    `manager` says where they are kept and whose they are (`memory.of(owner)`); without one, in this
    process. `max_turns` counts turns, from a question to its answer with all tool calls between; 0
    is all of them. `idle_after` None never starts afresh.
    """

    def __init__(
        self,
        manager: ConversationManager | None = None,
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
        """The last turns as plain dicts, to put before the new message; empty after a time of silence.

        A system prompt is no part of it: it goes with each request.
        """
        record = await self._manager.session(parse_name(key, field="key"))
        if record is None:
            return []
        context = await self._manager.load_context(record.id, policy=self._policy)
        return write(context.messages, self._dialect).messages

    async def save_turn(self, key: str, messages: Any, *, sender: str | None = None) -> Appended | None:
        """Store one turn, all of it or nothing: the question, every call and result, the answer.

        `messages` are dicts or an SDK's objects. What the sender `system` sends is not stored: None.
        """
        if sender == SYSTEM_SENDER:
            log.debug("a turn of the system sender is kept out")
            return None
        turn = self._manager.intake.messages(messages)
        if not turn:
            raise InvalidMessage("a turn needs messages", field="messages")
        return await self._manager.append_to_session(key, turn, channel=self._channel, tags=(_label(key),))

    async def clear_history(self, key: str) -> None:
        """Remove all that was said under this key, in earlier conversations too."""
        await self._manager.delete_session(key, tag=_label(key))


def _label(key: str) -> str:
    return LABEL + parse_name(key, field="key")
