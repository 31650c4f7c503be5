"""Deliver notifications to webhooks: each once, in order, with retries.

Every server process looks for notifications. A claim in the store decides which one sends, so two processes
never send the same notification at the same time. A failure is stored with the time of the next attempt. A
process that ends between the request and its confirmation causes a repetition with the same `webhook-id`, by
which the receiver recognizes it.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial

import msgspec

from aforesaid._internal.tasks import start_background
from aforesaid.contracts import JOURNAL, ConversationStore, Document
from aforesaid.contracts.listing import all_documents
from aforesaid.errors import AccessError, AforesaidError, InvalidInput
from aforesaid.memory.notification_log import Claim, NotificationLog
from aforesaid.memory.opening import Memory
from aforesaid.memory.webhooks import stored_webhooks
from aforesaid.model.notifications import Notification
from aforesaid.model.webhooks import WEBHOOK_OWNERS, Webhook, signature
from aforesaid.server.live.presence import Presences
from aforesaid.server.webhooks import WebhookHosts, post
from aforesaid.telemetry import describe, telemetry

log = logging.getLogger("aforesaid.server")

DELIVERY_SECONDS = 1.0
# Longer than a request can take: a connection, a handshake and an answer.
LEASE = timedelta(minutes=2)
# The pause after the first failure; it doubles up to the longest one.
FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=5), timedelta(hours=1)
# How far before the last read a read begins.
MARGIN = timedelta(minutes=5)
# Seconds after which all conversations are read again, for retries and messages with earlier times.
WHOLE_SECONDS = 60.0

# Notifications of one conversation that are sent before other conversations have their turn.
MOST_AT_ONCE = 20
# Requests at the same time. They have threads of their own: a slow receiver must not delay other work.
THREADS = 8

Post = Callable[..., int | None]

_delivered = telemetry.counter("aforesaid_notifications_total", how="webhook")
_attempts = {
    outcome: telemetry.counter("aforesaid_webhook_attempts_total", status=outcome)
    for outcome in ("accepted", "refused", "unreachable")
}


class WebhookDeliveries:
    """The deliveries of one server process."""

    def __init__(
        self, memory: Memory, hosts: WebhookHosts, presences: Presences, *, send: Post = post
    ) -> None:
        self._memory = memory
        self._hosts = hosts
        self._presences = presences
        self._send = send
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="aforesaid-webhook")
        self._since: dict[tuple[str, str], datetime] = {}
        self._whole_at = float("-inf")

    def start(self) -> list["asyncio.Task[None]"]:
        """Start delivering, if any host is allowed. Return the tasks."""
        if not self._hosts:
            return []
        return [start_background(self.run(), name="aforesaid-webhooks")]

    async def run(self) -> None:
        """Deliver until cancelled."""
        while True:
            await asyncio.sleep(DELIVERY_SECONDS)
            await self.deliver()

    async def deliver(self) -> None:
        """Deliver what is due once. A failing store delays it."""
        now = time.monotonic()
        if now - self._whole_at >= WHOLE_SECONDS:
            self._whole_at = now
            self._since.clear()
        try:
            journal = self._memory.backend.of(JOURNAL)
            owners = [one async for one in all_documents(journal, WEBHOOK_OWNERS)]
            await asyncio.gather(*(self._deliver_listed(journal, one) for one in owners))
        except AforesaidError as error:
            log.warning("notifications are not delivered now: %s", describe(error))

    async def _deliver_listed(self, journal: ConversationStore, listed: Document) -> None:
        if not await self._deliver_to(listed.data.decode("utf-8", "surrogatepass")):
            await journal.delete_document(WEBHOOK_OWNERS, listed.key, expected_version=listed.version)

    async def _deliver_to(self, owner: str) -> bool:
        """Deliver to the webhooks of an owner. Return whether there are any."""
        store = self._memory.of(owner).store
        webhooks = await stored_webhooks(store)
        await asyncio.gather(*(self._deliver_webhook(owner, one) for one in webhooks if self._allows(one)))
        return bool(webhooks)

    def _allows(self, webhook: Webhook) -> bool:
        try:
            self._hosts.check(webhook.url)
        except (AccessError, InvalidInput):
            return False  # the operator does not allow the host any more
        return True

    async def _deliver_webhook(self, owner: str, webhook: Webhook) -> None:
        store = self._memory.of(owner).store
        notifications = NotificationLog(store)
        key, began = (owner, webhook.participant_id), store.now()
        since = self._since.get(key)
        async for record, participant in notifications.conversations(webhook.participant_id, since=since):
            if await self._presences.is_here(store, record.id, participant.id):
                continue
            claim = partial(
                notifications.claim, record, participant, limit=1, lease=LEASE, respect_retries=True
            )
            # A bounded number, so that one conversation does not delay the others.
            for _ in range(MOST_AT_ONCE):
                claimed = await claim()
                if claimed is None or not await self._deliver_claim(notifications, webhook, claimed):
                    break
        self._since[key] = began - MARGIN

    async def _deliver_claim(self, notifications: NotificationLog, webhook: Webhook, claim: Claim) -> bool:
        (notification,) = claim.notifications
        body, headers = signed_request(webhook, notification, timestamp=int(time.time()))
        # A process that ends here may have sent it. The claim ends by itself; the repetition has the same id.
        send = partial(self._send, self._hosts.check(webhook.url), body, headers)
        status = await asyncio.get_running_loop().run_in_executor(self._threads, send)
        if status is not None and 200 <= status < 300:
            _attempts["accepted"].add()
            _delivered.add()
            return await notifications.confirm(claim)
        _attempts["unreachable" if status is None else "refused"].add()
        await notifications.release(claim, retry_in=pause_after(claim.attempts))
        return False


def pause_after(attempts: int) -> timedelta:
    """Return the pause before the next attempt."""
    return min(FIRST_PAUSE * (1 << min(attempts, 20)), LONGEST_PAUSE)


def signed_request(
    webhook: Webhook, notification: Notification, *, timestamp: int
) -> tuple[bytes, dict[str, str]]:
    """Return the body and the headers of a request, signed as the Standard Webhooks specification says."""
    body = msgspec.json.encode({"type": "notification", "data": notification.to_dict()})
    return body, {
        "content-type": "application/json",
        "user-agent": "aforesaid",
        "webhook-id": notification.id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signature(webhook.secret, notification.id, timestamp, body),
    }
