"""Bodies of requests, which the server decodes, and of responses, which `documents` renders."""

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from aforesaid.dialects import DialectName
from aforesaid.model.contexts import Report
from aforesaid.model.conversations import LONGEST_CHANNEL, MOST_UNREAD, Priority, Status
from aforesaid.model.lifetimes import Step
from aforesaid.model.messages import ContentType, Role, Speech
from aforesaid.protocol.people import AncestorBody, ParticipantBody

Name = Annotated[str, Meta(min_length=1, max_length=1024, description="Any text without NUL.")]
Uuid = Annotated[str, Meta(description="A UUID.", extra_json_schema={"format": "uuid"})]
_NAMED = "The UUID of a conversation, or its name: any text of up to 1,024 characters."
ConversationId = Annotated[str, Meta(description=_NAMED)]
Moment = Annotated[datetime, Meta(tz=True, description="ISO 8601 with time zone.")]
LocalMoment = Annotated[
    datetime, Meta(description="ISO 8601. Without a time zone, in that of `timezone`, or of the server.")
]
Seconds = Annotated[float, Meta(gt=0, le=31_536_000_000, description="A duration in seconds.")]
Count = Annotated[int, Meta(ge=0, le=2**53)]
Limit = Annotated[int, Meta(ge=1, le=1000)]
Channel = Annotated[
    str,
    Meta(
        pattern=r"^[\w.-]+$",
        max_length=LONGEST_CHANNEL,
        description="`voice`, `text`, `email`, `phone` or another short word.",
    ),
]
Dialect = DialectName


class RequestModel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of request bodies. Unknown fields are refused, so that misspelt names do not pass unnoticed."""


class ResponseModel(Struct, frozen=True, kw_only=True):
    """Base of response bodies."""


Degraded = Annotated[
    bool,
    Meta(
        description="Whether the response was read from the last known state because the store is "
        "unavailable or still replays the spool. It may be incomplete. The header `Aforesaid-Degraded` is "
        "set too."
    ),
]


# Messages


class MessageBody(Struct, frozen=True, kw_only=True):
    """A message. Further fields of a provider are stored unchanged."""

    role: Role
    content: Any = None
    timestamp: datetime | None = None
    content_type: ContentType = "text"
    agent_name: str | None = None
    message_id: Name | None = None
    tags: list[str] = []
    dialect: str = "plain"
    extra: dict[str, Any] = {}
    speech: Speech | None = None
    """Transcription confidence, or the part of an answer that was spoken and heard."""
    author: str | None = None
    """The id of the participant who wrote the message."""


class EntryBody(ResponseModel, frozen=True, kw_only=True):
    """A message with its place in the log."""

    conversation_id: Uuid
    sequence: int
    revision: int
    stored_at: datetime
    message: MessageBody
    tokens: dict[str, int] = {}
    """Token counts by the name of the counter."""
    unreadable: str | None = None


class EntriesPage(ResponseModel, frozen=True, kw_only=True):
    """Part of a log, oldest first, with the cursor of the next part."""

    entries: list[EntryBody]
    next: str | None = None
    degraded: Degraded = False


MessageInput = Annotated[
    dict[str, Any],
    Meta(
        description="A `MessageBody`, or a message in a provider's format.",
        examples=[{"role": "user", "content": "find me a chicken dinner"}],
        extra_json_schema={
            "anyOf": [{"$ref": "#/components/schemas/MessageBody"}, {"type": "object"}],
        },
    ),
]
MessageInputs = Annotated[list[MessageInput], Meta(min_length=1, max_length=1000)]


class TurnBody(RequestModel, frozen=True, kw_only=True):
    """A turn. Either all of its messages are stored or none."""

    messages: MessageInputs
    dialect: Dialect | None = None
    expected_revision: Count | None = None


class SessionTurnBody(RequestModel, frozen=True, kw_only=True):
    """A turn for the conversation of a session, which is created if the session has none.

    A conversation that was idle for longer than `idle_after` is replaced by a new one.
    """

    session_id: Name
    messages: MessageInputs
    dialect: Dialect | None = None
    channel: Channel = "text"
    tags: list[str] = []
    idle_after: Seconds | None = None


# Conversations


class ConversationBody(ResponseModel, frozen=True, kw_only=True):
    """The record of a conversation. `messages` has the requested messages, `message_count` counts all."""

    id: Uuid
    name: str | None
    created_at: datetime
    updated_at: datetime
    channel: Channel
    status: Status
    priority: Priority
    client_id: str | None
    client_name: str | None
    subject: str | None
    assigned_to: str | None
    tags: list[str]
    notes: str | None
    last_message_at: datetime | None
    last_message_from: Role | None
    unread_count: int
    message_count: int
    revision: int
    ttl: float | None
    expires_at: datetime | None
    participants: list[ParticipantBody]
    summary: str | None
    messages: list[MessageBody]
    lineage: list[AncestorBody]
    degraded: Degraded = False


class AppendedBody(ResponseModel, frozen=True, kw_only=True):
    """The record after storing, the new entries, and the entries that were already stored."""

    conversation: ConversationBody
    new: list[EntryBody]
    known: list[EntryBody]
    degraded: Degraded = False


class ExcerptBody(ResponseModel, frozen=True, kw_only=True):
    """A matching quotation. `marked` is `text` with each match between double asterisks."""

    speaker: str
    said_at: datetime
    text: str
    marked: str


class FoundConversation(ConversationBody, frozen=True, kw_only=True):
    """The record of a conversation that matches, with its latest messages."""

    score: float
    excerpts: list[ExcerptBody]


class ConversationsPage(ResponseModel, frozen=True, kw_only=True):
    """One page of a listing, with the cursor of the next page."""

    conversations: list[ConversationBody]
    next: str | None = None
    openings: dict[str, str] = {}
    degraded: Degraded = False


class OpenBody(RequestModel, frozen=True, kw_only=True):
    """The session whose conversation to return. A conversation is created if the session has none."""

    session_id: Name
    client_id: Uuid | None = None
    channel: Channel = "voice"
    idle_after: Seconds | None = None


class ChangesBody(RequestModel, frozen=True, kw_only=True):
    """Changes to a record. null clears a nullable field; omitted fields do not change."""

    status: Status | UnsetType = UNSET
    priority: Priority | UnsetType = UNSET
    channel: Channel | UnsetType = UNSET
    subject: str | UnsetType | None = UNSET
    client_id: Annotated[None, Meta(description="null removes the client.")] | UnsetType = UNSET
    client_name: Annotated[None, Meta(description="null removes the client.")] | UnsetType = UNSET
    tags: list[str] | UnsetType | None = UNSET
    assigned_to: str | UnsetType | None = UNSET
    notes: str | UnsetType | None = UNSET
    unread_count: Annotated[int, Meta(ge=0, le=MOST_UNREAD)] | UnsetType = UNSET
    ttl: Seconds | UnsetType | None = UNSET


class ClientLink(RequestModel, frozen=True, kw_only=True):
    """The client to link a conversation to."""

    client_id: Uuid
    client_name: str


# Context


class PolicyBody(RequestModel, frozen=True, kw_only=True):
    """The limits and filters of a window. All limits apply together."""

    max_turns: Count | None = None
    max_messages: Count | None = None
    max_tokens: Annotated[int, Meta(ge=1, le=2**53)] | None = None
    prompt_tokens: Count = 0
    tools_tokens: Count = 0
    notes_tokens: Count | None = None
    summary_tokens: Count | None = None
    preserve_system: bool = True
    for_request: bool = False
    agent_name: str | None = None
    told_to: str | None = None
    tags: list[str] = []
    oversize: Literal["error", "shorten"] = "shorten"
    retention_ratio: Annotated[float, Meta(gt=0, le=1)] = 0.75
    count_retention_ratio: Annotated[float, Meta(gt=0, le=1)] = 1.0
    look_back: Annotated[int, Meta(ge=0, le=10_000)] = 16
    cache_marks: bool = False
    reach: Annotated[int, Meta(ge=1, le=100_000)] = 4096


class FirstContextQuery(RequestModel, frozen=True, kw_only=True):
    """Parameters of the context of a conversation that does not exist yet."""

    policy: PolicyBody | None = None
    pending: Annotated[list[MessageInput], Meta(max_length=1000)] = []
    counter: Annotated[str, Meta(description="Name of the token counter, as in a report.")] | None = None


class ContextQuery(FirstContextQuery, frozen=True, kw_only=True):
    """Parameters of a context."""

    agent_name: str | None = None
    for_request: Annotated[
        bool,
        Meta(
            description="Return a valid request; without `policy`, within the token budget of the settings."
        ),
    ] = False
    dialect: Dialect | None = None


class ContextBody(ResponseModel, frozen=True, kw_only=True):
    """The messages for a model, oldest first, and the report on their selection."""

    messages: list[MessageBody]
    report: Report


class RequestBody(ResponseModel, frozen=True, kw_only=True):
    """A context in the format of a provider."""

    messages: list[dict[str, Any]]
    system: Any = None
    repaired: tuple[str, ...] = ()
    """What was changed because the provider refuses it, by kind. The log is unchanged."""


# Search


class HistoryQuery(RequestModel, frozen=True, kw_only=True):
    """A search over all messages."""

    query: Annotated[str, Meta(max_length=20_000)] = ""
    max_results: Annotated[int, Meta(ge=1, le=1000)] = 5
    role: Role | None = None
    date_from: Moment | None = None
    date_to: Moment | None = None
    tag: str | None = None
    channel: Channel | None = None
    max_tokens: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    min_relevance: Annotated[float, Meta(ge=0, le=1)] | None = None
    explain: bool = False
    timezone: str | None = None
    snippets: bool = False


class ConversationsQuery(RequestModel, frozen=True, kw_only=True):
    """A search for conversations."""

    query: Annotated[str, Meta(max_length=20_000)] | None = None
    client_id: Uuid | None = None
    status: Status | None = None
    tags: list[str] = []
    date_from: LocalMoment | None = None
    date_to: LocalMoment | None = None
    limit: Limit | None = None
    timezone: str | None = None


# Retention


class RulesBody(RequestModel, frozen=True, kw_only=True):
    """Lifetimes in seconds; null means forever. Without `owner`, the server's default applies."""

    owner: Seconds | UnsetType | None = UNSET
    channels: dict[Channel, Seconds | None] = {}
    tags: dict[str, Seconds | None] = {}
    conversations: dict[str, Seconds | None] = {}


class RulesChange(RulesBody, frozen=True, kw_only=True):
    """Rules to set. `inherit` lists conversations whose own rule is removed."""

    inherit: list[ConversationId] = []


class LifetimeBody(ResponseModel, frozen=True, kw_only=True):
    """The lifetime of a conversation and the rule it follows from."""

    ttl: float | None
    step: Step
    name: str
    why: str


class Changed(ResponseModel, frozen=True, kw_only=True):
    """The number of changed conversations."""

    changed: int


class Purged(ResponseModel, frozen=True, kw_only=True):
    """The number of removed conversations."""

    purged: int


class RedactionBody(RequestModel, frozen=True, kw_only=True):
    """The message to redact, and how."""

    message_id: Name
    mark: Annotated[str, Meta(min_length=1, max_length=1000)] | None = None
    scrub: bool = False


class InterruptionBody(RequestModel, frozen=True, kw_only=True):
    """The interrupted answer, and the part that was heard: a number of spoken characters, or the text."""

    message_id: Name
    heard: Annotated[int, Meta(ge=0, le=1_000_000)] | str
    spoken: str | None = None


class StatsBody(ResponseModel, frozen=True, kw_only=True):
    """Counts over all conversations of an owner."""

    conversations: int
    messages: int
    unread: int
    messages_per_conversation: float
    status: dict[str, int]
    channel: dict[str, int]
    last_activity: datetime | None


# Sessions


class Question(RequestModel, frozen=True, kw_only=True):
    """A question to the assistant."""

    session_id: Name
    text: Annotated[str, Meta(min_length=1, max_length=100_000)]
    content_type: ContentType = "text"
    conversation_id: ConversationId | None = None


class AnswerBody(ResponseModel, frozen=True, kw_only=True):
    """The answer of the assistant.

    If the assistant fails, `text` is an apology, `agent_name` is null, and the log does not change: the
    question stays as an open turn. If the answer cannot be stored, `stored` is false and `problem` has the
    reason.
    """

    text: str
    conversation_id: str | None
    agent_name: str | None
    stored: bool
    queued: bool = False
    """Whether the server retries storing the turn in the background."""
    problem: dict[str, Any] | None = None


class OwnersBody(ResponseModel, frozen=True, kw_only=True):
    """The owners with data that the key has access to."""

    owners: list[str]


class NewContact(RequestModel, frozen=True, kw_only=True):
    """A new contact."""

    name: Annotated[str, Meta(min_length=1, max_length=500)]
    nicknames: list[str] = []
    company: str | None = None
    email: str | None = None
    phone: str | None = None
    notes: str | None = None
    client_id: Uuid | None = None


class ContactQuery(RequestModel, frozen=True, kw_only=True):
    """A search for contacts by parts of names, companies, addresses and numbers. Tolerates misspellings."""

    query: Annotated[str, Meta(max_length=1000)] = ""
    limit: Limit = 20


class ClientText(RequestModel, frozen=True, kw_only=True):
    """A text that may name a client. `by_ear` is true for transcribed speech."""

    text: Annotated[str, Meta(max_length=100_000)]
    by_ear: bool = False


class ContactChanges(RequestModel, frozen=True, kw_only=True):
    """Changes to a contact. null clears a field; omitted fields do not change."""

    name: Annotated[str, Meta(min_length=1, max_length=500)] | UnsetType = UNSET
    nicknames: list[str] | UnsetType | None = UNSET
    company: str | UnsetType | None = UNSET
    email: str | UnsetType | None = UNSET
    phone: str | UnsetType | None = UNSET
    notes: str | UnsetType | None = UNSET


# Health


class HealthBody(ResponseModel, frozen=True, kw_only=True):
    """The process is running."""

    status: Literal["ok"]
    server: Literal["aforesaid"] = "aforesaid"


class CheckBody(ResponseModel, frozen=True, kw_only=True):
    """The result of one check."""

    about: str
    state: Literal["well", "warning", "problem"]
    found: str


class ReadyBody(ResponseModel, frozen=True, kw_only=True):
    """Whether the server accepts requests and the store is available."""

    status: Literal["ready", "draining", "away"]
    degraded: bool = False
    """Whether responses are read from the last known state."""
    checks: tuple[CheckBody, ...] = ()


class ProblemBody(Struct, frozen=True, kw_only=True):
    """An error by RFC 9457. Further members hold the data of the error."""

    type: str
    title: str
    status: int
    detail: str
