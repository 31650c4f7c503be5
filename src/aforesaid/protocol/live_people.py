"""WebSocket frames for several people: typing, presence, read markers, notifications."""

from datetime import datetime
from typing import Any, Literal

from msgspec import Struct

from aforesaid.model.messages import Role
from aforesaid.model.notifications import NotificationRule
from aforesaid.model.participants import ParticipantKind, ParticipantRole
from aforesaid.protocol.live_base import ClientFrame, Outgoing
from aforesaid.protocol.people import PresentPerson


class Typing(ClientFrame, frozen=True, kw_only=True, tag="typing"):
    """The user is typing, or has stopped."""

    active: bool
    conversation_id: str | None = None


class Read(ClientFrame, frozen=True, kw_only=True, tag="read"):
    """The participant has read everything up to this message."""

    message_id: str
    conversation_id: str | None = None
    private: bool = False


class Notified(ClientFrame, frozen=True, kw_only=True, tag="notified"):
    """The client has shown the notifications of a `notifications` frame. They are not sent again."""

    conversation_id: str
    claim: str


class SetParticipant(ClientFrame, frozen=True, kw_only=True, tag="participant"):
    """Add a participant, or change the given fields of one. The role `left` takes away the access."""

    participant_id: str
    name: str | None = None
    kind: ParticipantKind | None = None
    role: ParticipantRole | None = None
    may_write: bool | None = None
    history: Literal["all", "from_now"] | None = None
    conversation_id: str | None = None
    id: str | None = None
    """Returned in an `error` frame, as in the frames below."""


class Assign(ClientFrame, frozen=True, kw_only=True, tag="assign"):
    """Assign the conversation if its assignee is `expected`."""

    assignee: str | None
    expected: str | None = None
    conversation_id: str | None = None
    id: str | None = None


class SetRule(ClientFrame, frozen=True, kw_only=True, tag="rule"):
    """Set of which messages a participant is notified."""

    rule: NotificationRule
    participant_id: str | None = None
    conversation_id: str | None = None
    id: str | None = None


class AskAnalytics(ClientFrame, frozen=True, kw_only=True, tag="analytics"):
    """Ask for the numbers of a period, by default the last 30 days."""

    date_from: str | None = None
    date_to: str | None = None
    by: Literal["day", "channel", "client", "agent"] | None = None
    channel: str | None = None
    client_id: str | None = None
    agent: str | None = None
    id: str | None = None


# Server frames


class ParticipantSet(Outgoing, frozen=True, kw_only=True, tag="participant"):
    """The reply to `participant`. Watchers get the record in `conversation`."""

    conversation_id: str
    participant: dict[str, Any]


class Assigned(Outgoing, frozen=True, kw_only=True, tag="assigned"):
    """The reply to `assign`: the record."""

    conversation: dict[str, Any]
    id: str | None = None


class RuleSet(Outgoing, frozen=True, kw_only=True, tag="rule"):
    """The reply to `rule`."""

    conversation_id: str
    rule: NotificationRule
    participant_id: str | None = None


class AnalyticsReply(Outgoing, frozen=True, kw_only=True, tag="analytics"):
    """The reply to `analytics`: the report, as over HTTP."""

    report: dict[str, Any]
    id: str | None = None


class TypingNotice(Outgoing, frozen=True, kw_only=True, tag="typing"):
    """Another user is typing, or the assistant is answering another user."""

    conversation_id: str
    role: Role
    active: bool
    name: str = ""


class Presence(Outgoing, frozen=True, kw_only=True, tag="presence"):
    """The clients that watch the conversation now and asked for presence, and the questions that are being
    answered, in all server processes.
    """

    conversation_id: str
    here: list[str]
    """One name for each client, also for this one; empty for a client without a name."""
    people: list[PresentPerson] = []
    """The same clients with their state, and participants who have left with the time of their last visit."""
    answering: list[str] = []
    """Ids of questions whose answers are on their way. They are among the open turns from now until then."""


class ReadNotice(Outgoing, frozen=True, kw_only=True, tag="read"):
    """A participant has read everything up to this message."""

    conversation_id: str
    participant_id: str
    message_id: str


class NotificationItem(Struct, frozen=True, kw_only=True):
    """A message of which the participant is notified. It contains no words."""

    id: str
    """The same in every repetition."""
    message_id: str | None
    author: str | None
    said_at: datetime | None
    mentioned: bool


class NotificationsNotice(Outgoing, frozen=True, kw_only=True, tag="notifications"):
    """Messages of others in a conversation that the participant does not watch.

    Answer with `notified` and the same claim. Without an answer within 30 seconds they are sent again.
    """

    conversation_id: str
    claim: str
    notifications: list[NotificationItem]


class NotificationsCleared(Outgoing, frozen=True, kw_only=True, tag="notifications.cleared"):
    """The participant has read the messages of which this connection was notified, here or elsewhere."""

    conversation_id: str
