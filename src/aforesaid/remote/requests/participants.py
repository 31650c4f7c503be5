"""Calls for participants, read markers and assignment. The signatures are the manager's."""

from typing import TYPE_CHECKING, Any

import msgspec

from aforesaid.memory.participants import History
from aforesaid.model.conversations import Conversation, check_count
from aforesaid.model.ids import parse_name
from aforesaid.model.notifications import MOST_NOTIFICATIONS, Notification, NotificationRule, parse_rule
from aforesaid.model.participants import (
    Participant,
    ParticipantKind,
    ParticipantRole,
    parse_participant_id,
)
from aforesaid.model.read_markers import ReadMarker
from aforesaid.model.webhooks import Webhook, parse_secret, parse_webhook_url
from aforesaid.protocol import conversation_of
from aforesaid.remote.calls import Call
from aforesaid.remote.requests.base import Calls, at_revision, conversation

if TYPE_CHECKING:
    from aforesaid.retention.receipts import Receipt


class ParticipantCalls(Calls):
    """Calls for participants, read markers and assignment."""

    def participants(self, conversation_id: str) -> Call[list[Participant]]:
        return self._call(
            "GET",
            "conversations",
            conversation(conversation_id),
            "participants",
            read=lambda document: [Participant.from_dict(one) for one in document["participants"]],
        )

    def set_participant(
        self,
        conversation_id: str,
        participant_id: str,
        *,
        name: str | None = None,
        kind: ParticipantKind | None = None,
        role: ParticipantRole | None = None,
        may_write: bool | None = None,
        history: History | None = None,
        expected_revision: int | None = None,
    ) -> Call[Participant]:
        fields = {"name": name, "kind": kind, "role": role, "may_write": may_write, "history": history}
        return self._call(
            "PUT",
            *self._participant(conversation_id, participant_id),
            body={field: value for field, value in fields.items() if value is not None},
            read=Participant.from_dict,
            **at_revision(expected_revision),
        )

    def remove_participant(
        self, conversation_id: str, participant_id: str, *, expected_revision: int | None = None
    ) -> Call[Participant]:
        return self._call(
            "DELETE",
            *self._participant(conversation_id, participant_id),
            read=Participant.from_dict,
            **at_revision(expected_revision),
        )

    def _participant(self, conversation_id: str, participant_id: str) -> tuple[str, ...]:
        return (
            "conversations",
            conversation(conversation_id),
            "participants",
            parse_participant_id(participant_id),
        )

    def mark_read_up_to(
        self,
        conversation_id: str,
        message_id: str,
        *,
        participant_id: str | None = None,
        private: bool = False,
    ) -> Call[ReadMarker]:
        body: dict[str, Any] = {"message_id": parse_name(message_id, field="message_id"), "private": private}
        if participant_id is not None:
            body["participant_id"] = parse_participant_id(participant_id)
        return self._call(
            "POST", "conversations", conversation(conversation_id), "read-markers", body=body, read=_marker
        )

    def read_markers(self, conversation_id: str) -> Call[list[ReadMarker]]:
        return self._call(
            "GET",
            "conversations",
            conversation(conversation_id),
            "read-markers",
            read=lambda document: [_marker(one) for one in document["markers"]],
        )

    def unread(self, conversation_id: str, *, participant_id: str | None = None) -> Call[int]:
        named = None if participant_id is None else parse_participant_id(participant_id)
        return self._call(
            "GET",
            "conversations",
            conversation(conversation_id),
            "unread",
            query={"participant_id": named},
            read=lambda document: int(document["unread"]),
        )

    def assign(
        self, conversation_id: str, assignee: str | None, *, expected: str | None = None
    ) -> Call[Conversation]:
        return self._call(
            "POST",
            "conversations",
            conversation(conversation_id),
            "assignment",
            body={"assignee": assignee, "expected": expected},
            read=conversation_of,
        )

    def set_notification_rule(
        self, conversation_id: str, rule: NotificationRule, *, participant_id: str | None = None
    ) -> Call[None]:
        return self._call_without_result(
            "PUT",
            "conversations",
            conversation(conversation_id),
            "notification-rule",
            body={"rule": parse_rule(rule)} | _named(participant_id),
        )

    def notification_rule(
        self, conversation_id: str, *, participant_id: str | None = None
    ) -> Call[NotificationRule]:
        return self._call(
            "GET",
            "conversations",
            conversation(conversation_id),
            "notification-rule",
            query=_named(participant_id),
            read=lambda document: parse_rule(document["rule"]),
        )

    def notifications(
        self, *, participant_id: str | None = None, limit: int = 100
    ) -> Call[list[Notification]]:
        check_count(limit, field="limit", least=1, most=MOST_NOTIFICATIONS)
        query = {"limit": limit} | _named(participant_id)
        return self._call("GET", "notifications", query=query, read=_notifications)

    def take_notifications(
        self, *, participant_id: str | None = None, limit: int = 100
    ) -> Call[list[Notification]]:
        """Not retried: the first attempt may have taken them."""
        check_count(limit, field="limit", least=1, most=MOST_NOTIFICATIONS)
        body = {"limit": limit} | _named(participant_id)
        return self._call("POST", "notifications", "take", body=body, read=_notifications, repeatable=False)

    def set_webhook(self, participant_id: str, url: str, *, secret: str | None = None) -> Call[Webhook]:
        body = {"url": parse_webhook_url(url).geturl()}
        if secret is not None:
            body["secret"] = parse_secret(secret)
        return self._call("PUT", "webhooks", parse_participant_id(participant_id), body=body, read=_webhook)

    def webhooks(self) -> Call[list[Webhook]]:
        return self._call(
            "GET", "webhooks", read=lambda document: [_webhook(one) for one in document["webhooks"]]
        )

    def delete_webhook(self, participant_id: str) -> Call[bool]:
        return self._call(
            "DELETE",
            "webhooks",
            parse_participant_id(participant_id),
            read=lambda document: bool(document["deleted"]),
        )

    def erase_participant(self, participant_id: str) -> "Call[Receipt]":
        return self._call(
            "POST", "participants", parse_participant_id(participant_id), "erase", read=_receipt
        )


def _named(participant_id: str | None) -> dict[str, Any]:
    return {} if participant_id is None else {"participant_id": parse_participant_id(participant_id)}


def _notifications(document: Any) -> list[Notification]:
    return msgspec.convert(document["notifications"], list[Notification])


def _marker(document: Any) -> ReadMarker:
    return msgspec.convert(document, ReadMarker)


def _webhook(document: Any) -> Webhook:
    return msgspec.convert(document, Webhook)


def _receipt(document: Any) -> "Receipt":
    from aforesaid.retention.receipts import Receipt

    return msgspec.convert(document, Receipt)
