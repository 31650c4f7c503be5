"""Notify participants of new messages, by a rule and each message once."""

from functools import cached_property
from typing import TYPE_CHECKING

from msgspec.structs import replace

from aforesaid.errors import InvalidInput, NotAllowed, NotFound, shown
from aforesaid.memory.records import Records
from aforesaid.model.conversations import check_count
from aforesaid.model.notifications import MOST_NOTIFICATIONS, Notification, NotificationRule, parse_rule
from aforesaid.model.participants import parse_participant_id, participant_in, participant_of
from aforesaid.transfer.owner_scope import OwnerScope

if TYPE_CHECKING:
    from aforesaid.memory.notification_log import NotificationLog
    from aforesaid.model.webhooks import Webhook


class Notifications:
    """The notifications of participants in one owner's conversations."""

    def __init__(self, scope: OwnerScope, records: Records) -> None:
        self._scope = scope
        self._records = records
        self._own = participant_of(scope.store)

    @cached_property
    def _log(self) -> "NotificationLog":
        from aforesaid.memory.notification_log import NotificationLog  # few programs notify

        # State is written through the owner's store: a guest, who must not write, has some too.
        store = self._scope.store
        return NotificationLog(store if self._own is None else store.inner)  # type: ignore[attr-defined]

    async def set_notification_rule(
        self, conversation_id: str, rule: NotificationRule, *, participant_id: str | None = None
    ) -> None:
        """Set of which messages of a conversation a participant is notified: `all` (the default), `mentions`
        (`@name` or `@id`), or `none`. A participant's own handle needs no `participant_id`.
        """
        rule = parse_rule(rule)
        conversation_id, participant_id = await self._place(conversation_id, participant_id)
        await self._log.change(conversation_id, participant_id, lambda state: replace(state, rule=rule))

    async def notification_rule(
        self, conversation_id: str, *, participant_id: str | None = None
    ) -> NotificationRule:
        """Return of which messages of a conversation a participant is notified."""
        conversation_id, participant_id = await self._place(conversation_id, participant_id)
        return (await self._log.state(conversation_id, participant_id)).rule

    async def notifications(
        self, *, participant_id: str | None = None, limit: int = 100
    ) -> list[Notification]:
        """Return a participant's notifications that were neither taken nor read, oldest first by
        conversation.
        """
        check_count(limit, field="limit", least=1, most=MOST_NOTIFICATIONS)
        found: list[Notification] = []
        async for record, participant in self._log.conversations(self._participant(participant_id)):
            found += (await self._log.new_in(record, participant))[: limit - len(found)]
            if len(found) == limit:
                break
        return found

    async def take_notifications(
        self, *, participant_id: str | None = None, limit: int = 100
    ) -> list[Notification]:
        """Return the same notifications and mark them as delivered: of several callers, one gets each.

        Those that a connection or a webhook delivers at this moment are not returned.
        """
        check_count(limit, field="limit", least=1, most=MOST_NOTIFICATIONS)
        taken: list[Notification] = []
        async for record, participant in self._log.conversations(self._participant(participant_id)):
            taken += await self._log.take(record, participant, limit=limit - len(taken))
            if len(taken) == limit:
                break
        return taken

    async def set_webhook(self, participant_id: str, url: str, *, secret: str | None = None) -> "Webhook":
        """Have a server send a participant's notifications to this address; return it with its secret.

        The server signs each request with the secret, and sends only to hosts that its setting
        `webhook_hosts` lists. A participant has one webhook: a second call replaces the first.
        """
        from aforesaid.memory.webhooks import set_webhook

        self._refuse_participant()
        return await set_webhook(self._scope, participant_id, url, secret=secret)

    async def webhooks(self) -> "list[Webhook]":
        """Return the webhooks without their secrets, sorted by participant."""
        from aforesaid.memory.webhooks import listed_webhooks

        self._refuse_participant()
        return await listed_webhooks(self._scope.store)

    async def delete_webhook(self, participant_id: str) -> bool:
        """Remove a participant's webhook. Return whether there was one."""
        from aforesaid.model.webhooks import WEBHOOKS

        self._refuse_participant()
        return await self._scope.store.delete_document(WEBHOOKS, parse_participant_id(participant_id))

    def _refuse_participant(self) -> None:
        if self._own is not None:
            raise NotAllowed("a participant has no access to the webhooks of the owner")

    async def _place(self, conversation_id: str, participant_id: str | None) -> tuple[str, str]:
        participant_id = self._participant(participant_id)
        record = await self._records.get_conversation(conversation_id)
        if participant_in(record.participants, participant_id) is None:
            raise NotFound(f"the conversation has no participant {shown(participant_id)}")
        return record.id, participant_id

    def _participant(self, participant_id: str | None) -> str:
        wanted = self._own if participant_id is None else parse_participant_id(participant_id)
        if wanted is None:
            raise InvalidInput("participant_id must name who is notified", field="participant_id")
        if self._own not in (None, wanted):
            raise NotAllowed("a participant has only their own notifications")
        return wanted
