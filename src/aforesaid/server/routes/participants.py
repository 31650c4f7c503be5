"""Participants of a conversation, their read markers, and assignment."""

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta

from aforesaid.model.notifications import MOST_NOTIFICATIONS, NotificationRule
from aforesaid.model.participants import LONGEST_ID, Participant, ParticipantKind, ParticipantRole
from aforesaid.model.read_markers import ReadMarker
from aforesaid.protocol import conversation_document
from aforesaid.protocol.bodies import ConversationBody, Name, RequestModel, ResponseModel
from aforesaid.protocol.people import ParticipantBody
from aforesaid.retention.receipts import Receipt
from aforesaid.server.endpoints import Call, NoBody, NoQuery, Reply, Routes
from aforesaid.server.responses import json_response

routes = Routes("participants")

ParticipantId = Annotated[str, Meta(min_length=1, max_length=LONGEST_ID)]


class ParticipantsBody(ResponseModel, frozen=True, kw_only=True):
    """The participants in the order in which they joined, with those who left."""

    participants: list[ParticipantBody]


class ParticipantChange(RequestModel, frozen=True, kw_only=True):
    """The fields of a new participant, or the fields that change. A new one is a person and a member."""

    name: Annotated[str, Meta(max_length=1024)] | None = None
    kind: ParticipantKind | None = None
    role: ParticipantRole | None = None
    may_write: bool | None = None
    """Whether a guest may write."""
    history: Literal["all", "from_now"] | None = None
    """`from_now` hides the messages stored before."""


class ReadBody(RequestModel, frozen=True, kw_only=True):
    """The last message that was read. A participant's key needs no `participant_id`."""

    message_id: Name
    participant_id: ParticipantId | None = None
    private: bool = False


class MarkerBody(ResponseModel, frozen=True, kw_only=True):
    """How far a participant has read."""

    participant_id: str
    message_id: str
    micros: int
    sequence: int
    read_at: datetime
    private: bool


class MarkersBody(ResponseModel, frozen=True, kw_only=True):
    """The read markers, sorted by participant."""

    markers: list[MarkerBody]


class UnreadQuery(RequestModel, frozen=True, kw_only=True):
    """The participant. A participant's key needs none."""

    participant_id: ParticipantId | None = None


class UnreadBody(ResponseModel, frozen=True, kw_only=True):
    """The number of messages of others after the read marker, at most 1,000."""

    unread: int


class AssignmentBody(RequestModel, frozen=True, kw_only=True):
    """The new assignee, and the one that the caller knows. null means none."""

    assignee: Annotated[str, Meta(max_length=1024)] | None
    expected: Annotated[str, Meta(max_length=1024)] | None = None


class RuleBody(RequestModel, frozen=True, kw_only=True):
    """Of which messages a participant is notified. A participant's key needs no `participant_id`."""

    rule: NotificationRule
    participant_id: ParticipantId | None = None


class NotificationsQuery(RequestModel, frozen=True, kw_only=True):
    """The participant, and how many notifications. A participant's key needs no `participant_id`."""

    participant_id: ParticipantId | None = None
    limit: Annotated[int, Meta(ge=1, le=MOST_NOTIFICATIONS)] = 100


class NotificationBody(ResponseModel, frozen=True, kw_only=True):
    """A message of which a participant is to be notified. It contains no words."""

    participant_id: str
    conversation_id: str
    message_id: str | None
    sequence: int
    author: str | None
    said_at: datetime | None
    mentioned: bool


class NotificationsBody(ResponseModel, frozen=True, kw_only=True):
    """Notifications, oldest first by conversation."""

    notifications: list[NotificationBody]


@routes.get("/conversations/{conversation_id}/participants", response=ParticipantsBody, errors=(404,))
async def list_participants(call: Call[NoBody, NoQuery]) -> Reply:
    """List the participants of a conversation, with those who left."""
    found = await call.manager.participants(call.conversation_id)
    return json_response({"participants": [one.to_dict() for one in found]})


@routes.put(
    "/conversations/{conversation_id}/participants/{participant_id}",
    response=ParticipantBody,
    errors=(404, 409, 412),
)
async def set_participant(call: Call[ParticipantChange, NoQuery]) -> Reply:
    """Add a participant, or change the given fields of one."""
    body = call.body
    return _one(
        await call.manager.set_participant(
            call.conversation_id,
            call.path["participant_id"],
            name=body.name,
            kind=body.kind,
            role=body.role,
            may_write=body.may_write,
            history=body.history,
            expected_revision=call.expected_revision,
        )
    )


@routes.delete(
    "/conversations/{conversation_id}/participants/{participant_id}",
    response=ParticipantBody,
    status=200,
    errors=(404, 409, 412),
)
async def remove_participant(call: Call[NoBody, NoQuery]) -> Reply:
    """Take away a participant's access. Their messages stay; the role becomes `left`."""
    return _one(
        await call.manager.remove_participant(
            call.conversation_id, call.path["participant_id"], expected_revision=call.expected_revision
        )
    )


@routes.post("/conversations/{conversation_id}/read-markers", response=MarkerBody, errors=(404,))
async def mark_read_up_to(call: Call[ReadBody, NoQuery]) -> Reply:
    """Record how far a participant has read. The marker never moves back; the revision stays."""
    body = call.body
    marker = await call.manager.mark_read_up_to(
        call.conversation_id, body.message_id, participant_id=body.participant_id, private=body.private
    )
    return json_response(_marker(marker))


@routes.get("/conversations/{conversation_id}/read-markers", response=MarkersBody, errors=(404,))
async def list_read_markers(call: Call[NoBody, NoQuery]) -> Reply:
    """List how far the participants have read. Only their participant sees a private marker."""
    found = await call.manager.read_markers(call.conversation_id)
    return json_response({"markers": [_marker(one) for one in found]})


@routes.get("/conversations/{conversation_id}/unread", response=UnreadBody, errors=(404,))
async def count_unread(call: Call[NoBody, UnreadQuery]) -> Reply:
    """Count the messages of others after a participant's read marker, at most 1,000."""
    unread = await call.manager.unread(call.conversation_id, participant_id=call.query.participant_id)
    return json_response({"unread": unread})


@routes.post("/conversations/{conversation_id}/assignment", response=ConversationBody, errors=(404, 409))
async def assign_conversation(call: Call[AssignmentBody, NoQuery]) -> Reply:
    """Assign the conversation if its assignee is `expected`; otherwise the problem names the present one."""
    record = await call.manager.assign(call.conversation_id, call.body.assignee, expected=call.body.expected)
    return json_response(conversation_document(record))


@routes.put(
    "/conversations/{conversation_id}/notification-rule", response=RuleBody, status=200, errors=(404,)
)
async def set_notification_rule(call: Call[RuleBody, NoQuery]) -> Reply:
    """Set of which messages of the conversation a participant is notified."""
    body = call.body
    await call.manager.set_notification_rule(
        call.conversation_id, body.rule, participant_id=body.participant_id
    )
    return json_response(body)


@routes.get("/conversations/{conversation_id}/notification-rule", response=RuleBody, errors=(404,))
async def get_notification_rule(call: Call[NoBody, UnreadQuery]) -> Reply:
    """Return of which messages of the conversation a participant is notified."""
    wanted = call.query.participant_id
    rule = await call.manager.notification_rule(call.conversation_id, participant_id=wanted)
    return json_response(RuleBody(rule=rule, participant_id=wanted))


@routes.get("/notifications", response=NotificationsBody)
async def list_notifications(call: Call[NoBody, NotificationsQuery]) -> Reply:
    """List a participant's notifications that were neither taken nor read."""
    found = await call.manager.notifications(participant_id=call.query.participant_id, limit=call.query.limit)
    return json_response({"notifications": found})


@routes.post("/notifications/take", response=NotificationsBody)
async def take_notifications(call: Call[NotificationsQuery, NoQuery]) -> Reply:
    """Return the notifications and mark them as delivered. Of several callers, one gets each."""
    found = await call.manager.take_notifications(
        participant_id=call.body.participant_id, limit=call.body.limit
    )
    return json_response({"notifications": found})


@routes.post("/participants/{participant_id}/erase", response=Receipt, scope="admin")
async def erase_participant(call: Call[NoBody, NoQuery]) -> Reply:
    """Erase a person from all conversations of the owner: messages, name and read markers."""
    return json_response(await call.manager.erase_participant(call.path["participant_id"]))


def _one(participant: Participant) -> Reply:
    return json_response(participant.to_dict())


def _marker(marker: ReadMarker) -> MarkerBody:
    return MarkerBody(**{name: getattr(marker, name) for name in MarkerBody.__struct_fields__})
