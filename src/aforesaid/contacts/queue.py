"""A bounded queue of messages to search for client names, outside the path of answers.

A turn only enqueues its messages. A background task processes the queue after a short delay. When the
queue is full, the oldest task is dropped and counted. Failures are logged and never affect the
conversation.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from aforesaid._internal.background import Background
from aforesaid.contracts import ConversationStore
from aforesaid.errors import AforesaidError
from aforesaid.model.messages import Message
from aforesaid.telemetry import describe, telemetry

if TYPE_CHECKING:
    from aforesaid.contacts.resources import ContactResources

log = logging.getLogger("aforesaid.clients")

QUIET = 0.25
"""Seconds between a turn and its processing, so that the answer goes first."""
MOST_WAITING = 1_000
"""Maximum number of conversations in the queue."""
MOST_MESSAGES = 50
"""Maximum number of messages per conversation; the latest are kept."""
CLOSING_SECONDS = 2.0
"""Maximum seconds that closing waits for the queue."""

_dropped = telemetry.counter("aforesaid_client_notes_dropped_total")


class ConversationKey(NamedTuple):
    """A conversation of an owner."""

    owner: str
    conversation_id: str


class _PendingMessages(NamedTuple):
    store: ConversationStore
    messages: list[Message]


class IdentificationQueue:
    """The queue and its background task."""

    def __init__(
        self, resources: "ContactResources", *, quiet: float = QUIET, max_conversations: int = MOST_WAITING
    ) -> None:
        self._resources = resources
        self._quiet = quiet
        self._max_conversations = max_conversations
        self._pending: OrderedDict[ConversationKey, _PendingMessages] = OrderedDict()
        self._background = Background(self._work, lambda: bool(self._pending), name="aforesaid-clients")

    def enqueue(
        self, owner: str, store: ConversationStore, conversation_id: str, messages: Sequence[Message]
    ) -> None:
        """Enqueue the user messages, unless the owner is known to have no contacts."""
        if self._background.is_closed or self._resources.is_known_empty(owner):
            return
        user_messages = [message for message in messages if message.role == "user"]
        if not user_messages:
            return
        key = ConversationKey(owner, conversation_id)
        pending = self._pending.get(key)
        if pending is None:
            pending = self._pending[key] = _PendingMessages(store, [])
        pending.messages.extend(user_messages)
        del pending.messages[:-MOST_MESSAGES]
        if len(self._pending) > self._max_conversations:
            self._pending.popitem(last=False)
            _dropped.add()
        now = self._background.here().time()
        if self._background.is_idle:
            self._background.begin_at(lambda: now + self._quiet)

    def forget(self, owner: str, conversation_id: str | None) -> None:
        """Drop pending messages before the data of the owner or conversation are removed."""
        for key in list(self._pending):
            if key.owner == owner and conversation_id in (None, key.conversation_id):
                del self._pending[key]

    async def wait_until_idle(self) -> None:
        """Wait until the queue is empty."""
        await self._background.done()

    async def close(self) -> None:
        """Process the queue within a time limit, only for owners with contacts, then stop."""
        try:
            async with asyncio.timeout(CLOSING_SECONDS):
                await self._drop_owners_without_contacts()
                await self.wait_until_idle()
        except TimeoutError:
            log.warning("closed before all clients were identified")
        finally:
            await self._background.close()

    async def _drop_owners_without_contacts(self) -> None:
        """Ask the store which owners have contacts, so that closing builds no index for the others."""
        stores = {key.owner: pending.store for key, pending in self._pending.items()}
        for owner, store in stores.items():
            try:
                found = not store.degraded and await self._resources.has_contacts(owner, store)
            except AforesaidError as error:
                log.warning("skipped client identification on close: %s", describe(error))
                found = False
            if not found:
                self.forget(owner, None)

    async def _work(self) -> None:
        while self._pending:
            key, pending = self._pending.popitem(last=False)
            await self._process(key, pending)

    async def _process(self, key: ConversationKey, pending: _PendingMessages) -> None:
        from aforesaid.contacts.association import Association

        try:
            association = Association(pending.store, key.owner, self._resources)
            await association.link_by_messages(key.conversation_id, pending.messages)
        except AforesaidError as error:
            log.warning(
                "linking conversation %s to a client failed: %s", key.conversation_id, describe(error)
            )
        except Exception:  # the edge of a background task: other conversations must continue
            log.exception("linking conversation %s to a client failed", key.conversation_id)
