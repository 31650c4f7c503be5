"""What is sent and what comes back, as frozen values. Below: values.

Requests are decoded into these, so that a wrong type is refused with the name of its field; the OpenAPI
document is made from them, and so is what it says about answers. What an answer holds is rendered by
`documents`; a test keeps both the same.
"""

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from aforesaid.model.contexts import Report
from aforesaid.model.conversations import MOST_UNREAD, Channel, Priority, Status
from aforesaid.model.lifetimes import Step
from aforesaid.model.messages import ContentType, Role, Speech

Name = Annotated[str, Meta(min_length=1, max_length=1024, description="Any text without NUL.")]
Uuid = Annotated[str, Meta(description="A UUID.", extra_json_schema={"format": "uuid"})]
Moment = Annotated[datetime, Meta(tz=True, description="ISO 8601, with its zone.")]
Seconds = Annotated[float, Meta(gt=0, le=31_536_000_000, description="A length of time in seconds.")]
Count = Annotated[int, Meta(ge=0, le=2**53)]
Limit = Annotated[int, Meta(ge=1, le=1000)]
Dialect = Literal["plain", "anthropic", "openai_chat", "openai_responses"]


class Sent(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request: a field that does not exist is an error, not a typing mistake that passes in silence."""


class Answered(Struct, frozen=True, kw_only=True):
    """An answer."""


Degraded = Annotated[
    bool,
    Meta(
        description="Whether the answer comes from the last known state, while the store is away or takes in "
        "what was said meanwhile: it may lack something. The header `Aforesaid-Degraded` says the same."
    ),
]


# Messages


class MessageBody(Struct, frozen=True, kw_only=True):
    """One thing that somebody said. Fields beyond these, as providers have them, are kept as they are."""

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
    """How it sounded: the confidence of a transcript; what was spoken of an answer, and heard."""


class EntryBody(Answered, frozen=True, kw_only=True):
    """A message in its place in the log."""

    conversation_id: Uuid
    sequence: int
    revision: int
    stored_at: datetime
    message: MessageBody
    tokens: dict[str, int] = {}
    """What the message costs, by the name of the counter."""
    unreadable: str | None = None


class EntriesPage(Answered, frozen=True, kw_only=True):
    """A part of the log, oldest first, and where the next part begins."""

    entries: list[EntryBody]
    next: str | None = None
    degraded: Degraded = False


GivenMessage = Annotated[
    dict[str, Any],
    Meta(
        description="A message in the documented form, or as a provider writes it.",
        examples=[{"role": "user", "content": "find me a chicken dinner"}],
        extra_json_schema={
            "anyOf": [{"$ref": "#/components/schemas/MessageBody"}, {"type": "object"}],
        },
    ),
]
GivenMessages = Annotated[list[GivenMessage], Meta(min_length=1, max_length=1000)]


class TurnBody(Sent, frozen=True, kw_only=True):
    """A turn: stored whole, or not at all."""

    messages: GivenMessages
    dialect: Dialect | None = None
    expected_revision: Count | None = None


class SessionTurnBody(Sent, frozen=True, kw_only=True):
    """A turn for a session's conversation, which is made when there is none.

    With `idle_after`, a conversation that was silent for longer is left alone, and a fresh one made.
    """

    session_id: Name
    messages: GivenMessages
    dialect: Dialect | None = None
    channel: Channel = "voice"
    tags: list[str] = []
    idle_after: Seconds | None = None


# Conversations


class ConversationBody(Answered, frozen=True, kw_only=True):
    """A conversation's record; `messages` holds those that were asked for, `message_count` them all."""

    id: Uuid
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
    messages: list[MessageBody]
    degraded: Degraded = False


class AppendedBody(Answered, frozen=True, kw_only=True):
    """What was stored: the record as it is then, and which messages were new and which were known."""

    conversation: ConversationBody
    new: list[EntryBody]
    known: list[EntryBody]
    degraded: Degraded = False


class ConversationsPage(Answered, frozen=True, kw_only=True):
    """One page of a listing, and where the next begins."""

    conversations: list[ConversationBody]
    next: str | None = None
    degraded: Degraded = False


class OpenBody(Sent, frozen=True, kw_only=True):
    """Which session's conversation is wanted; one is made when it has none."""

    session_id: Name
    client_id: Uuid | None = None
    channel: Channel = "voice"
    idle_after: Seconds | None = None


class ChangesBody(Sent, frozen=True, kw_only=True):
    """What to change; null empties a field that may be empty, and what is left out stays."""

    status: Status | UnsetType = UNSET
    priority: Priority | UnsetType = UNSET
    channel: Channel | UnsetType = UNSET
    subject: str | UnsetType | None = UNSET
    client_id: Annotated[None, Meta(description="null: with nobody in particular.")] | UnsetType = UNSET
    client_name: Annotated[None, Meta(description="null: with nobody in particular.")] | UnsetType = UNSET
    tags: list[str] | UnsetType | None = UNSET
    assigned_to: str | UnsetType | None = UNSET
    notes: str | UnsetType | None = UNSET
    unread_count: Annotated[int, Meta(ge=0, le=MOST_UNREAD)] | UnsetType = UNSET
    ttl: Seconds | UnsetType | None = UNSET


class ClientLink(Sent, frozen=True, kw_only=True):
    """The client that a conversation is with."""

    client_id: Uuid
    client_name: str


# Context


class PolicyBody(Sent, frozen=True, kw_only=True):
    """What a window may hold. All limits apply together."""

    max_turns: Count | None = None
    max_messages: Count | None = None
    max_tokens: Annotated[int, Meta(ge=1, le=2**53)] | None = None
    prompt_tokens: Count = 0
    tools_tokens: Count = 0
    notes_tokens: Count | None = None
    summary_tokens: Count | None = None
    preserve_system: bool = True
    agent_name: str | None = None
    told_to: str | None = None
    tags: list[str] = []
    oversize: Literal["error", "shorten"] = "shorten"
    retention_ratio: Annotated[float, Meta(gt=0, le=1)] = 0.75
    count_retention_ratio: Annotated[float, Meta(gt=0, le=1)] = 1.0
    look_back: Annotated[int, Meta(ge=0, le=10_000)] = 16
    reach: Annotated[int, Meta(ge=1, le=100_000)] = 4096


class FirstQuestion(Sent, frozen=True, kw_only=True):
    """Which context is wanted where nothing is stored yet."""

    policy: PolicyBody | None = None
    pending: Annotated[list[GivenMessage], Meta(max_length=1000)] = []
    counter: Annotated[str, Meta(description="What counts tokens, as a report names it.")] | None = None


class ContextQuestion(FirstQuestion, frozen=True, kw_only=True):
    """Which context is wanted."""

    agent_name: str | None = None
    dialect: Dialect | None = None


class ContextBody(Answered, frozen=True, kw_only=True):
    """What a model should see, oldest first, and how it was chosen."""

    messages: list[MessageBody]
    report: Report


class RequestBody(Answered, frozen=True, kw_only=True):
    """The context as a provider takes it."""

    messages: list[dict[str, Any]]
    system: Any = None


# Search


class HistoryQuestion(Sent, frozen=True, kw_only=True):
    """What is looked for in everything that was said."""

    query: Annotated[str, Meta(max_length=20_000)] = ""
    max_results: Annotated[int, Meta(ge=1, le=1000)] = 5
    role: Role | None = None
    date_from: Moment | None = None
    date_to: Moment | None = None
    tag: str | None = None
    channel: Channel | None = None
    max_tokens: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    explain: bool = False
    timezone: str | None = None
    snippets: bool = False


class ConversationsQuestion(Sent, frozen=True, kw_only=True):
    """Which conversations are looked for."""

    query: Annotated[str, Meta(max_length=20_000)] | None = None
    client_id: Uuid | None = None
    status: Status | None = None
    tags: list[str] = []
    date_from: Moment | None = None
    date_to: Moment | None = None
    limit: Limit | None = None
    timezone: str | None = None


# Keeping


class RulesBody(Sent, frozen=True, kw_only=True):
    """How long conversations are kept, in seconds; null keeps. `owner` left out: no default of one's own."""

    owner: Seconds | UnsetType | None = UNSET
    channels: dict[Channel, Seconds | None] = {}
    tags: dict[str, Seconds | None] = {}
    conversations: dict[str, Seconds | None] = {}


class RulesChange(RulesBody, frozen=True, kw_only=True):
    """Rules to set; `inherit` names conversations that follow the general rules again."""

    inherit: list[Uuid] = []


class LifetimeBody(Answered, frozen=True, kw_only=True):
    """How long a conversation is kept, and by which rule."""

    ttl: float | None
    step: Step
    name: str
    why: str


class Changed(Answered, frozen=True, kw_only=True):
    """How many conversations changed."""

    changed: int


class Purged(Answered, frozen=True, kw_only=True):
    """How many conversations were removed."""

    purged: int


class RedactionBody(Sent, frozen=True, kw_only=True):
    """Which message's words are taken out, and how."""

    message_id: Name
    mark: Annotated[str, Meta(min_length=1, max_length=1000)] | None = None
    scrub: bool = False


class InterruptionBody(Sent, frozen=True, kw_only=True):
    """Which answer was cut off, and how much of it was heard: characters of what was spoken, or the words."""

    message_id: Name
    heard: Annotated[int, Meta(ge=0, le=1_000_000)] | str
    spoken: str | None = None


class StatsBody(Answered, frozen=True, kw_only=True):
    """How much there is."""

    conversations: int
    messages: int
    unread: int
    status: dict[str, int]
    channel: dict[str, int]
    last_activity: datetime | None


# Sessions


class Question(Sent, frozen=True, kw_only=True):
    """What somebody asks the assistant."""

    session_id: Name
    text: Annotated[str, Meta(min_length=1, max_length=100_000)]
    content_type: ContentType = "text"
    conversation_id: Uuid | None = None


class AnswerBody(Answered, frozen=True, kw_only=True):
    """What the assistant said. When it could not answer, `text` is an apology, `agent_name` is null, and
    nothing is stored. When the answer could not be stored, `stored` is false and `problem` has the reason."""

    text: str
    conversation_id: str | None
    agent_name: str | None
    stored: bool
    queued: bool = False
    """Whether the turn is not stored yet, and is tried again in the background."""
    problem: dict[str, Any] | None = None


class OwnersBody(Answered, frozen=True, kw_only=True):
    """Whom the key reaches and who has something here."""

    owners: list[str]


class ContactSent(Sent, frozen=True, kw_only=True):
    """A new contact."""

    name: Annotated[str, Meta(min_length=1, max_length=500)]
    nicknames: list[str] = []
    company: str | None = None
    email: str | None = None
    phone: str | None = None
    notes: str | None = None
    client_id: Uuid | None = None


class ContactQuery(Sent, frozen=True, kw_only=True):
    """Contacts that are looked for: by parts of names, companies, addresses and numbers, misspelt or not."""

    query: Annotated[str, Meta(max_length=1000)] = ""
    limit: Limit = 20


class TextSaid(Sent, frozen=True, kw_only=True):
    """Something that was said, and may name a client; `by_ear`, it was heard and not read."""

    text: Annotated[str, Meta(max_length=100_000)]
    by_ear: bool = False


class ContactChanges(Sent, frozen=True, kw_only=True):
    """What to change in a contact; null empties, and what is left out stays."""

    name: Annotated[str, Meta(min_length=1, max_length=500)] | UnsetType = UNSET
    nicknames: list[str] | UnsetType | None = UNSET
    company: str | UnsetType | None = UNSET
    email: str | UnsetType | None = UNSET
    phone: str | UnsetType | None = UNSET
    notes: str | UnsetType | None = UNSET


# The server itself


class HealthBody(Answered, frozen=True, kw_only=True):
    """Whether the process is there, and that it is one of ours."""

    status: Literal["ok"]
    server: Literal["aforesaid"] = "aforesaid"


class CheckBody(Answered, frozen=True, kw_only=True):
    """One thing that was looked at."""

    about: str
    state: Literal["well", "warning", "problem"]
    found: str


class ReadyBody(Answered, frozen=True, kw_only=True):
    """Whether requests are taken and the store answers."""

    status: Literal["ready", "draining", "away"]
    degraded: bool = False
    """Whether answers come from the last known state now."""
    checks: tuple[CheckBody, ...] = ()


class ProblemBody(Struct, frozen=True, kw_only=True):
    """An error, as RFC 9457 describes it. The error's own data stand beside."""

    type: str
    title: str
    status: int
    detail: str
