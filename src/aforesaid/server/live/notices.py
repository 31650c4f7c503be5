"""Send notifications to connections of participants, each to one of them.

Every second, conversations with new activity are read for each participant that asked for notifications. A
claim keeps other connections, processes and webhooks from sending the same one. The client's answer confirms
it; without one, the claim ends and the notification is sent again, with the same id.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Protocol

from msgspec import Struct

from aforesaid.contracts import ConversationStore
from aforesaid.errors import AforesaidError, ConversationNotFound, NotFound
from aforesaid.layers.participants import ParticipantStore
from aforesaid.memory.notification_log import Claim, NotificationLog
from aforesaid.model.notifications import Notification
from aforesaid.protocol.live_base import Outgoing
from aforesaid.protocol.live_people import NotificationItem, NotificationsCleared, NotificationsNotice
from aforesaid.server.live.presence import Presences
from aforesaid.telemetry import describe, telemetry

log = logging.getLogger("aforesaid.server.live")

_delivered = telemetry.counter("aforesaid_notifications_total", how="frame")

# Seconds between reads of new notifications.
NOTICE_SECONDS = 1.0
LEASE = timedelta(seconds=30)
MOST_IN_FRAME = 100
# How far before the last read a read begins, for messages that were on their way then.
MARGIN = timedelta(minutes=1)
# Seconds after which all conversations are read again, for messages with earlier times.
WHOLE_SECONDS = 600.0


class NotifiedClient(Struct, frozen=True, kw_only=True, eq=False):
    """A connection of a participant, as the receiver of notifications."""

    owner: str
    participant: str
    store: ConversationStore
    watched: frozenset[str]
    last_active: float


class NotifiedPeer(Protocol):
    """A connection, as it is notified."""

    @property
    def notified(self) -> NotifiedClient | None: ...

    def notify(self, frame: Outgoing) -> None: ...


class _Progress:
    """How far the conversations of a participant were read, and when all of them were."""

    def __init__(self) -> None:
        self.since: datetime | None = None
        self.whole_at = float("-inf")


class Notices:
    """The notifications that connections of this process get."""

    def __init__(
        self,
        peers: Callable[[], Iterable[NotifiedPeer]],
        presences: Presences,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._peers = peers
        self._presences = presences
        self._now = now
        self._progress: dict[tuple[str, str], _Progress] = {}
        self._claims: dict[NotifiedPeer, dict[str, Claim]] = {}
        self._shown: dict[NotifiedPeer, dict[str, Notification]] = {}

    async def run(self) -> None:
        """Send notifications until cancelled."""
        while True:
            await asyncio.sleep(NOTICE_SECONDS)
            await self.send()

    async def send(self) -> None:
        """Send what is new once. A failing store delays it."""
        found: dict[tuple[str, str], list[tuple[NotifiedPeer, NotifiedClient]]] = {}
        for peer in tuple(self._peers()):
            client = peer.notified
            if client is not None:
                found.setdefault((client.owner, client.participant), []).append((peer, client))
        self._progress = {key: one for key, one in self._progress.items() if key in found}
        for key, clients in found.items():
            try:
                await self._send_to(key, clients)
            except AforesaidError as error:
                log.debug("notifications are not sent now: %s", describe(error))

    async def _send_to(
        self, key: tuple[str, str], clients: list[tuple[NotifiedPeer, NotifiedClient]]
    ) -> None:
        # The device that was used last gets the notification.
        peer, client = max(clients, key=lambda one: one[1].last_active)
        store = owner_store(client.store)
        notifications = NotificationLog(store)
        for one, _ in clients:
            await self._clear(notifications, one, client.participant)
        watched = frozenset[str]().union(*(one.watched for _, one in clients))
        progress = self._progress.setdefault(key, _Progress())
        since, began = self._since(progress), store.now()
        async for record, participant in notifications.conversations(client.participant, since=since):
            if record.id in watched or await self._presences.is_here(store, record.id, participant.id):
                continue
            claim = await notifications.claim(record, participant, limit=MOST_IN_FRAME, lease=LEASE)
            if claim is not None:
                self._send_claim(peer, claim)
        progress.since = began

    def _since(self, progress: _Progress) -> datetime | None:
        """Return the time from which conversations are read; None reads all of them."""
        now = self._now()
        if progress.since is None or now - progress.whole_at >= WHOLE_SECONDS:
            progress.whole_at = now
            return None
        # What was claimed and not confirmed is found again after the claim has ended.
        return progress.since - LEASE - MARGIN

    def _send_claim(self, peer: NotifiedPeer, claim: Claim) -> None:
        self._claims.setdefault(peer, {})[claim.conversation_id] = claim
        peer.notify(
            NotificationsNotice(
                conversation_id=claim.conversation_id,
                claim=claim.token,
                notifications=[_item(one) for one in claim.notifications],
            )
        )

    async def confirm(self, peer: NotifiedPeer, conversation_id: str, token: str) -> None:
        """Record that the client has shown what was sent with a claim. A second answer changes nothing."""
        claim = self._claims.get(peer, {}).get(conversation_id)
        client = peer.notified
        if client is None or claim is None or claim.token != token:
            raise NotFound("this connection was sent no notifications with this claim")
        if await NotificationLog(owner_store(client.store)).confirm(claim):
            _delivered.add(len(claim.notifications))
            self._shown.setdefault(peer, {})[conversation_id] = claim.notifications[-1]

    async def _clear(self, notifications: NotificationLog, peer: NotifiedPeer, participant: str) -> None:
        """Send `notifications.cleared` for conversations that the participant has read since."""
        shown = self._shown.get(peer, {})
        for conversation_id, last in tuple(shown.items()):
            try:
                cleared = await notifications.is_read(last)
            except ConversationNotFound:
                cleared = True
            if cleared:
                del shown[conversation_id]
                peer.notify(NotificationsCleared(conversation_id=conversation_id))

    def leave(self, peer: NotifiedPeer) -> None:
        """Forget a connection. What it did not confirm is sent elsewhere after the claim has ended."""
        self._claims.pop(peer, None)
        self._shown.pop(peer, None)


def owner_store(store: ConversationStore) -> ConversationStore:
    """Return the owner's store of a participant's view."""
    return store.inner if isinstance(store, ParticipantStore) else store


def _item(one: Notification) -> NotificationItem:
    return NotificationItem(
        id=one.id,
        message_id=one.message_id,
        author=one.author,
        said_at=one.said_at,
        mentioned=one.mentioned,
    )
