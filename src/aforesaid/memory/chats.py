"""Chat history: store whole turns, return the last turns ready to send.

For channels with occasional messages (messengers, SMS). A key such as a phone number identifies the person.
After a pause the next message starts a new conversation. Turns that no history can contain again, because
they are too many or too old, are removed from the store.
"""

import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import dropwhile
from typing import Any

from aforesaid._internal.arguments import validated
from aforesaid._internal.bounded import BoundedDict
from aforesaid.contracts import Appended, ConversationStore
from aforesaid.dialects import REQUEST_DIALECTS, write
from aforesaid.errors import (
    AforesaidError,
    ConversationNotFound,
    InvalidInput,
    InvalidMessage,
    InvalidSetting,
    RevisionConflict,
    StoreUnavailable,
)
from aforesaid.memory.interface import ManagerProtocol
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.conversations import Changes, Channel, Conversation, Query
from aforesaid.model.ids import parse_name
from aforesaid.model.messages import Message, starts_turn, turns_of
from aforesaid.telemetry import describe
from aforesaid.windows import WindowPolicy

log = logging.getLogger("aforesaid.chats")

# Enough for a task of several steps, without much stale text.
MAX_TURNS = 10

# After half an hour a message most likely starts a new topic.
IDLE_AFTER = timedelta(minutes=30)

# How long a turn may take: one that started before the idle limit belongs to the same conversation.
LONGEST_TURN = timedelta(minutes=10)

# Started turns that are remembered, for keys whose turns never end.
_MOST_STARTED = 10_000

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
    - `keep`: keep evicted and expired turns in the store until their lifetime ends, where search finds them.
      A server always keeps them.
    """

    def __init__(
        self,
        manager: ManagerProtocol | None = None,
        *,
        max_turns: int = MAX_TURNS,
        idle_after: timedelta | None = IDLE_AFTER,
        dialect: str = "anthropic",
        channel: Channel = "text",
        keep: bool = False,
    ) -> None:
        if dialect not in REQUEST_DIALECTS:
            raise InvalidInput.not_in("dialect", dialect, REQUEST_DIALECTS)
        self._manager = (manager or ConversationManager()).idling_after(idle_after)
        self._idle_after = idle_after
        self._store = None if keep else _store_of(self._manager)
        self._policy = WindowPolicy(max_turns=max_turns, notes_tokens=0, summary_tokens=0)
        self._dialect = dialect
        self._channel = channel
        # The conversation and time of the last history of each key: its turn may be saved after the limit.
        self._started: BoundedDict[str, tuple[str, datetime]] = BoundedDict(_MOST_STARTED)

    async def get_history(self, key: str) -> list[dict[str, Any]]:
        """Return the last turns as dicts, to send before the new message; empty after a pause.

        A system prompt is not included: it goes with each request.
        """
        record = await self._manager.session(parse_name(key, field="key"))
        if record is None:
            self._started.pop(key, None)
            await self._remove_idle(key)
            return []
        self._started[key] = record.id, self._manager.now()
        await self._outlast_turn(record)
        return await self._history(record.id)

    async def _outlast_turn(self, record: Conversation) -> None:
        """Keep a conversation that would expire during the turn that starts now."""
        if self._store is None or self._idle_after is None:
            return
        if self._manager.now() - record.last_activity > self._idle_after - LONGEST_TURN:
            await self._expire_after(record, self._idle_after + LONGEST_TURN)

    async def _history(self, conversation_id: str) -> list[dict[str, Any]]:
        context = await self._manager.load_context(conversation_id, policy=self._policy)
        return write(context.messages, self._dialect).messages

    async def save_turn(self, key: str, messages: Any, *, sender: str | None = None) -> Appended | None:
        """Store one turn, all of it or nothing: the question, every call and result, the answer.

        `messages` are dicts or SDK objects. History that is submitted again before the new turn is not stored
        again. A turn that started before the pause belongs to the conversation that `get_history` returned. A
        turn of the sender `system`, or under the key `system`, is not stored, and None is returned.
        """
        if SYSTEM_SENDER in (sender, key):
            log.debug("a turn of the system sender is not stored")
            return None
        turn = self._manager.intake.messages(messages)
        if not turn:
            raise InvalidMessage("a turn needs messages", field="messages")
        stored = await self._append(key, turn)
        await self._forget_old(key, stored)
        return stored

    def _running_in(self, key: str) -> str | None:
        """Return the conversation of a turn that started and may still be saved."""
        started = self._started.get(key)
        if started is None or self._manager.now() - started[1] > LONGEST_TURN:
            return None
        return started[0]

    async def _append(self, key: str, turn: list[Message]) -> Appended:
        record = await self._manager.session(parse_name(key, field="key"))
        running = self._running_in(key)
        self._started.pop(key, None)
        if record is not None and len(turns_of(turn)) > 1:
            known = self._manager.intake.messages(await self._history(record.id))
            turn = _without_history(turn, known)
        if record is None and running is not None:
            with suppress(ConversationNotFound):
                return await self._manager.append(running, turn)
        return await self._manager.append_to_session(key, turn, channel=self._channel, tags=(_label(key),))

    async def clear_history(self, key: str) -> None:
        """Remove everything stored under this key, including earlier conversations."""
        await self._manager.delete_session(key, tag=_label(key))

    async def _forget_old(self, key: str, stored: Appended) -> None:
        """Remove turns that no history contains again. The turn is stored, so a failure is only logged."""
        record = stored.conversation
        try:
            if record.message_count == len(stored.new):
                await self._remove_idle(key)
                await self._expire_when_idle(record)
            elif self._store is not None and self._policy.max_turns:
                await drop_evicted(self._manager, record.id, self._policy)
        except AforesaidError as error:
            log.warning("old turns are not removed yet: %s", describe(error))

    async def _expire_when_idle(self, record: Conversation) -> None:
        """Let the sweep remove the conversation unless it gets another turn."""
        if self._idle_after is not None:
            await self._expire_after(record, self._idle_after)

    async def _expire_after(self, record: Conversation, ttl: timedelta) -> None:
        # A store of histories has no lifetimes; without the store, a turn goes on all the same.
        with suppress(InvalidSetting, StoreUnavailable):
            if self._store is not None and record.ttl != ttl:
                await self._store.update(record.id, Changes(ttl=ttl))

    async def _remove_idle(self, key: str) -> None:
        if self._store is None or self._idle_after is None:
            return
        latest = self._manager.now() - self._idle_after
        running = self._running_in(key)
        with suppress(InvalidSetting, StoreUnavailable):  # without a list, or without a store now
            await self._manager.purge_expired()
            for record in (await self._store.find(Query(tags=(_label(key),)))).conversations:
                if record.last_activity < latest and record.id != running:
                    # At this revision: a turn that comes now keeps the conversation.
                    with suppress(RevisionConflict):
                        await self._manager.delete_conversation(record.id, expected_revision=record.revision)


def _without_history(given: list[Message], known: Sequence[Message]) -> list[Message]:
    """Return the messages after those that end the known history. A turn that is said again stays."""
    starts = [number for number, message in enumerate(given) if number and starts_turn(message)]
    for start in reversed(starts):
        before = given[:start]
        if start <= len(known) and all(map(Message.same_content_as, before, known[-start:])):
            return given[start:]
    return given


async def drop_evicted(manager: ManagerProtocol, conversation_id: str, policy: WindowPolicy) -> None:
    """Remove the messages before the window from the log. Open turns stay."""
    store = manager.store
    # Before the window: the revision refuses the rewrite if a turn arrives in between.
    record = await manager.get_conversation(conversation_id)
    window = await manager.load_context(conversation_id, policy=policy)
    # A degraded window is incomplete; rewriting the log with it would lose messages.
    if not window.messages or len(window.messages) >= record.message_count or window.report.degraded:
        return
    entries = await store.tail(conversation_id, limit=record.message_count)
    first = window.messages[0].message_id
    kept = [entry.message for entry in dropwhile(lambda one: one.message.message_id != first, entries)]
    if not kept or len(kept) == len(entries):
        return
    waiting = await manager.unanswered(conversation_id)
    try:
        await store.rewrite(conversation_id, kept, expected_revision=record.revision)
    except RevisionConflict:
        return  # a concurrent turn changed the log and removes them
    for turn in waiting:  # a rewrite removes the conversation's documents
        await manager.open_turn(conversation_id, turn.messages)


def _store_of(manager: ManagerProtocol) -> ConversationStore | None:
    # Behind a server, the server removes turns at the end of their lifetime.
    return manager.store if isinstance(manager, ConversationManager) else None


def _label(key: str) -> str:
    return LABEL + parse_name(key, field="key")
