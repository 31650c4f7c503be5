"""What was said and waits to be looked through for clients, off the answer path. Below: the association.

A turn only leaves a note; after a moment of quiet a task works through the notes. The queue is bounded:
when it is full the oldest note goes, and is counted. A failure is logged and never reaches the
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
    from aforesaid.contacts.shared import ContactResources

log = logging.getLogger("aforesaid.clients")

QUIET = 0.25
"""Seconds after a turn before it is looked through: the answer goes first."""
MOST_WAITING = 1_000
"""Conversations that wait."""
MOST_MESSAGES = 50
"""Messages of one conversation that wait; the latest stay."""
CLOSING_SECONDS = 2.0
"""How long closing waits for what is left."""

_dropped = telemetry.counter("aforesaid_client_notes_dropped_total")


class Auditable(NamedTuple):
    """Where something was said."""

    owner: str
    conversation_id: str


class _Said(NamedTuple):
    store: ConversationStore
    messages: list[Message]


class Waiting:
    """The queue and the task that empties it."""

    def __init__(
        self, resources: "ContactResources", *, quiet: float = QUIET, most: int = MOST_WAITING
    ) -> None:
        self._resources = resources
        self._quiet = quiet
        self._most = most
        self._notes: OrderedDict[Auditable, _Said] = OrderedDict()
        self._background = Background(self._work, lambda: bool(self._notes), name="aforesaid-clients")

    def note(
        self, owner: str, store: ConversationStore, conversation_id: str, messages: Sequence[Message]
    ) -> None:
        """This was said. Costs next to nothing, and less where the owner has no contacts."""
        if self._background.is_closed or self._resources.has_none(owner):
            return
        said = [message for message in messages if message.role == "user"]
        if not said:
            return
        noted = Auditable(owner, conversation_id)
        waiting = self._notes.get(noted)
        if waiting is None:
            waiting = self._notes[noted] = _Said(store, [])
        waiting.messages.extend(said)
        del waiting.messages[:-MOST_MESSAGES]
        if len(self._notes) > self._most:
            self._notes.popitem(last=False)
            _dropped.add()
        now = self._background.here().time()
        if self._background.is_idle:
            self._background.begin_at(lambda: now + self._quiet)

    def forget(self, owner: str, conversation_id: str | None) -> None:
        """The owner's data are going, or a conversation's: what waits of them is not looked through."""
        for noted in list(self._notes):
            if noted.owner == owner and conversation_id in (None, noted.conversation_id):
                del self._notes[noted]

    async def settled(self) -> None:
        """Wait until everything that was said has been looked through."""
        await self._background.done()

    async def close(self) -> None:
        """Finish, within a bound, for owners who have contacts; leave the rest."""
        try:
            async with asyncio.timeout(CLOSING_SECONDS):
                await self._leave_without_contacts()
                await self.settled()
        except TimeoutError:
            log.warning("closing did not wait for clients to be identified")
        finally:
            await self._background.close()

    async def _leave_without_contacts(self) -> None:
        """Who has nobody to look for is asked of the store: without contacts no index is made at the end."""
        stores = {noted.owner: said.store for noted, said in self._notes.items()}
        for owner, store in stores.items():
            try:
                some = not store.degraded and await self._resources.has_some(owner, store)
            except AforesaidError as error:
                log.warning("clients of what was said last are not looked for: %s", describe(error))
                some = False
            if not some:
                self.forget(owner, None)

    async def _work(self) -> None:
        while self._notes:
            noted, said = self._notes.popitem(last=False)
            await self._look_through(noted, said)

    async def _look_through(self, noted: Auditable, said: _Said) -> None:
        from aforesaid.contacts.association import Association

        try:
            association = Association(said.store, noted.owner, self._resources)
            await association.look_through(noted.conversation_id, said.messages)
        except AforesaidError as error:
            log.warning(
                "conversation %s is not linked to a client: %s", noted.conversation_id, describe(error)
            )
        except Exception:  # the edge of a task: nothing that goes wrong here may stop the others
            log.exception("conversation %s is not linked to a client", noted.conversation_id)
