"""The parts of a manager's interface for conversations of several people, and for forgetting."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol, Self

from aforesaid.memory.branches import BranchesProtocol
from aforesaid.memory.participants import History
from aforesaid.model.conversations import Conversation
from aforesaid.model.notifications import Notification, NotificationRule
from aforesaid.model.participants import Participant, ParticipantKind, ParticipantRole
from aforesaid.model.read_markers import ReadMarker

if TYPE_CHECKING:
    from aforesaid.model.webhooks import Webhook
    from aforesaid.retention.receipts import Receipt
    from aforesaid.retention.repetitions import ForgetPreview, ForgetReceipt


class PeopleProtocol(BranchesProtocol, Protocol):
    """Participants, read markers, assignment, and forgetting."""

    def as_participant(self, participant_id: str) -> Self:
        """Return this manager as one participant uses it."""

    async def participants(self, conversation_id: str) -> list[Participant]:
        """Return the participants in the order in which they joined, with those who left."""

    async def set_participant(
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
    ) -> Participant:
        """Add a participant, or change the given fields of one. A new one is a person and a member."""

    async def remove_participant(
        self, conversation_id: str, participant_id: str, *, expected_revision: int | None = None
    ) -> Participant:
        """Take away a participant's access. Their messages and their entry stay; the role becomes `left`."""

    async def mark_read_up_to(
        self,
        conversation_id: str,
        message_id: str,
        *,
        participant_id: str | None = None,
        private: bool = False,
    ) -> ReadMarker:
        """Record that a participant has read everything up to this message; return their marker."""

    async def read_markers(self, conversation_id: str) -> list[ReadMarker]:
        """Return the read markers, sorted by participant. Only their participant sees a private one."""

    async def unread(self, conversation_id: str, *, participant_id: str | None = None) -> int:
        """Count the messages of others after a participant's read marker, at most 1,000."""

    async def assign(
        self, conversation_id: str, assignee: str | None, *, expected: str | None = None
    ) -> Conversation:
        """Assign the conversation if its assignee is `expected`; otherwise raise `AssignmentConflict`."""

    async def set_notification_rule(
        self, conversation_id: str, rule: NotificationRule, *, participant_id: str | None = None
    ) -> None:
        """Set of which messages a participant is notified: `all`, `mentions` or `none`."""

    async def notification_rule(
        self, conversation_id: str, *, participant_id: str | None = None
    ) -> NotificationRule:
        """Return of which messages of a conversation a participant is notified."""

    async def notifications(
        self, *, participant_id: str | None = None, limit: int = 100
    ) -> list[Notification]:
        """Return a participant's notifications that were neither taken nor read."""

    async def take_notifications(
        self, *, participant_id: str | None = None, limit: int = 100
    ) -> list[Notification]:
        """Return the same notifications and mark them as delivered: of several callers, one gets each."""

    async def set_webhook(self, participant_id: str, url: str, *, secret: str | None = None) -> "Webhook":
        """Have a server send a participant's notifications to this address; return it with its secret."""

    async def webhooks(self) -> "list[Webhook]":
        """Return the webhooks without their secrets, sorted by participant."""

    async def delete_webhook(self, participant_id: str) -> bool:
        """Remove a participant's webhook. Return whether there was one."""

    async def preview_forget(self, what: str) -> "ForgetPreview":
        """Return what `forget_everywhere` would remove: notes, and the messages that repeat them."""

    async def forget_everywhere(
        self, what: str, *, keep: Collection[str] = (), scrub: bool = False
    ) -> "ForgetReceipt":
        """Remove the notes that `what` names, and redact all messages that repeat them."""

    async def preview_redact(self, conversation_id: str, message_id: str) -> "ForgetPreview":
        """Return what `redact_everywhere` would remove. Raise `MessageNotFound`."""

    async def redact_everywhere(
        self, conversation_id: str, message_id: str, *, keep: Collection[str] = (), scrub: bool = False
    ) -> "ForgetReceipt":
        """Redact a message, all messages that repeat its content, and the notes that do."""

    async def erase_participant(self, participant_id: str) -> "Receipt":
        """Erase a person from all conversations of this owner: messages, name and read markers."""
