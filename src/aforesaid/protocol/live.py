"""The frames of the WebSocket: what a client may say, and what the server says. Below: values, problems.

Every text frame is one JSON object whose `type` says what it is; a binary frame is a piece of the audio
that was announced last. `docs/reference/websocket.md` describes them with examples; this module is what
both sides encode and decode with. Above: the server's live part, the client.
"""

from typing import Any, get_args

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from aforesaid.contracts import Entry, why_unreadable
from aforesaid.errors import AforesaidError, InvalidInput, shown
from aforesaid.model.conversations import Channel
from aforesaid.model.ids import parse_name
from aforesaid.model.messages import Message, Role
from aforesaid.protocol.bodies import Dialect
from aforesaid.protocol.documents import entry_document
from aforesaid.protocol.jsons import to_json
from aforesaid.protocol.problems import problem_of

SUBPROTOCOL = "aforesaid.v1"
"""What a client asks for in `Sec-WebSocket-Protocol`, and is given."""

BEARER_SUBPROTOCOL = "aforesaid.bearer."
"""A browser cannot set headers: it asks for this beside, with its key in base64url behind the dot."""

OWNER_SUBPROTOCOL = "aforesaid.owner."
"""The same for the owner, which a key of several owners must name."""

LONGEST_ID = 200
"""Characters in an id that a client gives to what it says: the answer's ids are made from it."""


class CloseCode:
    """Why a connection ended. Those from 4000 on are ours."""

    NORMAL = 1000
    """The client left."""
    BAD_FRAME = 1002
    """What came was no WebSocket."""
    NOT_TEXT = 1007
    """A text frame that is not UTF-8."""
    TOO_LARGE = 1009
    """A frame larger than the server reads at all."""
    INTERNAL = 1011
    """A mistake of ours. Or the peer did not answer the WebSocket's own pings."""
    RESTARTING = 1012
    """The server ends; answers under way were finished first. Come back, and resume."""
    TRY_LATER = 1013
    """The store is away, or the server is full: come again later."""
    NOT_AUTHENTICATED = 4401
    """No key in time, a key that does not hold, or one that has ended since."""
    NOT_ALLOWED = 4403
    """The key does not reach this owner."""
    NO_HELLO = 4408
    """The first frame was no `hello`, or did not come in time."""
    GONE = 4410
    """The peer was silent: two heartbeats went unanswered."""
    TOO_SLOW = 4413
    """The peer does not read what it asked for."""
    TOO_MANY = 4429
    """Too many frames, or too many connections with this key."""


CLOSE_CODES: dict[int, str] = {
    value: name.lower() for name, value in vars(CloseCode).items() if isinstance(value, int)
}


class Place(Struct, frozen=True, kw_only=True):
    """Where a reader stands in a conversation: hand the last one back to go on without loss or repeats."""

    revision: int
    sequence: int
    """The largest sequence that was delivered."""
    messages: int
    """How many messages the conversation had."""

    def __post_init__(self) -> None:
        if min(self.revision, self.sequence, self.messages) < 0:
            raise InvalidInput(f"a place has no negative numbers; got {shown(self)}", field="place")


class _In(Struct, frozen=True, kw_only=True, tag_field="type", forbid_unknown_fields=True):
    """What a client says. A field that does not exist is refused: a typing mistake should not be silent."""


class Hello(_In, frozen=True, kw_only=True, tag="hello"):
    """The first frame: who, and which conversation."""

    key: str | None = None
    """An API key or a JWT, where neither a header nor a subprotocol carried it."""
    owner: str | None = None
    session_id: str | None = None
    """The session; its conversation is made when it has none. Without it, one is made up."""
    conversation_id: str | None = None
    """A conversation to go on with, or, without a session, only to watch and to speak in."""
    device: str | None = None
    """Where the client is: a speaker, a browser. A new session there goes on with its conversation."""
    channel: Channel = "text"
    history: int = 20
    """How many of the latest messages come with `ready`."""
    place: Place | None = None
    """Where the client stood before its connection broke: what it has missed comes, and nothing twice."""
    name: str = ""
    """What others see when this one types."""

    def __post_init__(self) -> None:
        check_history(self.history)
        if self.session_id is not None:
            parse_name(self.session_id, field="session_id")
        if len(self.name) > LONGEST_ID:
            raise InvalidInput(f"name must have at most {LONGEST_ID} characters", field="name")


class Text(_In, frozen=True, kw_only=True, tag="text"):
    """Something said in words."""

    id: str
    """Made by the client, once for what is said: sent again with the same id, it is stored once."""
    text: str
    conversation_id: str | None = None
    """Without it, the session's."""
    answer: bool = True
    """Whether the assistant answers; else the words are only stored, and told to who watches."""

    def __post_init__(self) -> None:
        check_id(self.id)
        if not self.text.strip():
            raise InvalidInput("text must be words; got nothing", field="text", value=self.text)


class Turn(_In, frozen=True, kw_only=True, tag="turn"):
    """A turn that was answered elsewhere: stored whole, or not at all, and told to who watches."""

    id: str
    """Made by the client, once for the turn. Messages without ids are known by it: sent again, it is stored
    once."""
    messages: msgspec.Raw
    """As over HTTP: in the documented form, or as a provider writes them."""
    dialect: Dialect | None = None
    conversation_id: str | None = None

    def __post_init__(self) -> None:
        check_id(self.id)


class AudioStart(_In, frozen=True, kw_only=True, tag="audio.start"):
    """Audio follows, in binary frames."""

    id: str
    media_type: str = "audio/wav"
    """`audio/wav`, or `audio/pcm` with `rate` and `channels`: 16 bits, little end first."""
    rate: int = 16_000
    channels: int = 1
    conversation_id: str | None = None

    def __post_init__(self) -> None:
        check_id(self.id)


class AudioEnd(_In, frozen=True, kw_only=True, tag="audio.end"):
    """The audio is complete: it is transcribed, stored and answered."""

    id: str


class AudioCancel(_In, frozen=True, kw_only=True, tag="audio.cancel"):
    """Forget the audio."""

    id: str


class Interrupt(_In, frozen=True, kw_only=True, tag="interrupt"):
    """Stop answering. What was heard of the answer is kept."""

    id: str | None = None
    """Which answer; without it, every one that this connection waits for. One that is complete already, and
    is only being spoken, must be named."""
    heard: int | None = None
    """How many characters of the answer were heard: of its `spoken` form where it has one. Without it, all
    that were sent."""
    conversation_id: str | None = None
    """Where; without it, in every conversation, and for one that is complete in that of the `hello`."""

    def __post_init__(self) -> None:
        if self.heard is not None and self.heard < 0:
            raise InvalidInput(f"heard must be 0 or more; got {self.heard}", field="heard", value=self.heard)


class Typing(_In, frozen=True, kw_only=True, tag="typing"):
    """Somebody types, or has stopped."""

    active: bool
    conversation_id: str | None = None


class Watch(_In, frozen=True, kw_only=True, tag="watch"):
    """Tell me what happens in this conversation."""

    conversation_id: str
    history: int = 20
    place: Place | None = None

    def __post_init__(self) -> None:
        check_history(self.history)


class Unwatch(_In, frozen=True, kw_only=True, tag="unwatch"):
    """No more of this conversation."""

    conversation_id: str


class Bye(_In, frozen=True, kw_only=True, tag="bye"):
    """The session is over: it is ended, and the connection closed. Without it the session can be resumed."""


class Ping(_In, frozen=True, kw_only=True, tag="ping"):
    """Are you there?"""

    at: float | None = None
    """Comes back in the `pong`."""


class Pong(_In, frozen=True, kw_only=True, tag="pong"):
    """I am here: the answer to a heartbeat."""

    at: float | None = None


Incoming = (
    Hello
    | Text
    | Turn
    | AudioStart
    | AudioEnd
    | AudioCancel
    | Interrupt
    | Typing
    | Watch
    | Unwatch
    | Bye
    | Ping
    | Pong
)

_decoder: msgspec.json.Decoder[Incoming] = msgspec.json.Decoder(Incoming)
LONGEST_HISTORY = 200


def read_frame(text: str | bytes) -> Incoming:
    """The frame that a client sent. Raises `InvalidInput`, in words that name the field."""
    try:
        return _decoder.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise InvalidInput(f"the frame cannot be read: {error}", field="frame") from None


def check_history(history: int) -> None:
    if not 0 <= history <= LONGEST_HISTORY:
        raise InvalidInput(
            f"history must be 0 to {LONGEST_HISTORY}; got {history}", field="history", value=history
        )


def check_id(value: str) -> None:
    parse_name(value, field="id")
    if len(value) > LONGEST_ID:
        raise InvalidInput(
            f"id must have at most {LONGEST_ID} characters; got {len(value)}", field="id", value=value
        )


# What the server says


class Outgoing(Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    """What the server says. Clients pass over fields and types that they do not know."""


class Ready(Outgoing, frozen=True, kw_only=True, tag="ready"):
    """The answer to `hello`: here is the conversation."""

    owner: str
    session_id: str
    conversation: dict[str, Any]
    entries: list[Any]
    """The latest messages in their places, as over HTTP, oldest first. None where `resumed`: what was missed
    follows in `messages`."""
    place: Place
    resumed: bool = False
    answering: list[str] = field(default_factory=list)
    """Ids of what is being answered for this session right now: it goes on arriving here."""
    heartbeat: float = 0.0
    """Seconds of silence after which the server sends a `ping`; 0 is never."""


class Watching(Outgoing, frozen=True, kw_only=True, tag="watching"):
    """The answer to `watch`."""

    conversation: dict[str, Any]
    entries: list[Any]
    place: Place
    resumed: bool = False


class Unwatched(Outgoing, frozen=True, kw_only=True, tag="unwatched"):
    """The answer to `unwatch`."""

    conversation_id: str


class Messages(Outgoing, frozen=True, kw_only=True, tag="messages"):
    """New messages, in the order in which they were stored, each once."""

    conversation_id: str
    entries: list[Any]
    place: Place


class Changed(Outgoing, frozen=True, kw_only=True, tag="changed"):
    """Messages that say something else now: redacted ones. They keep their places."""

    conversation_id: str
    entries: list[Any]
    place: Place


class Updated(Outgoing, frozen=True, kw_only=True, tag="conversation"):
    """The record changed: a client was linked, a status set."""

    conversation: dict[str, Any]
    place: Place


class Reset(Outgoing, frozen=True, kw_only=True, tag="reset"):
    """The log is another one: cleared, or changed further back. Drop what you have; this is what there is."""

    conversation: dict[str, Any]
    entries: list[Any]
    place: Place


class Gone(Outgoing, frozen=True, kw_only=True, tag="gone"):
    """The conversation is not there any more, and is not watched any more."""

    conversation_id: str


class Lagging(Outgoing, frozen=True, kw_only=True, tag="lagging"):
    """You read more slowly than messages come: what follows is read from the store again."""

    conversation_id: str
    behind: int
    """How many messages wait."""


class Transcript(Outgoing, frozen=True, kw_only=True, tag="transcript"):
    """What the audio says."""

    id: str
    text: str


class AnswerDelta(Outgoing, frozen=True, kw_only=True, tag="answer.delta"):
    """A piece of an answer. `offset` is where it goes, in characters: after a resume it starts at 0 again."""

    id: str
    text: str
    offset: int = 0


class AnswerDone(Outgoing, frozen=True, kw_only=True, tag="answer.done"):
    """The answer is complete, and the whole turn is stored, unless `stored` is false."""

    id: str
    conversation_id: str
    text: str
    message_ids: list[str]
    entries: list[Any]
    """The messages of the turn in their places, without those that were delivered already."""
    place: Place | None = None
    spoken: str | None = None
    """What to say aloud, where it is shorter than `text`."""
    interrupted: bool = False
    repeated: bool = False
    """Whether it was stored before: the text was sent again."""
    stored: bool = True
    """False where storing failed. The server tries again; watchers get the messages when they are stored."""


class AnswerFailed(Outgoing, frozen=True, kw_only=True, tag="answer.failed"):
    """There is no answer, and nothing of the turn is stored. The same id may be sent again."""

    id: str
    problem: dict[str, Any]
    apology: str = ""
    """What to tell the user."""


class Stored(Outgoing, frozen=True, kw_only=True, tag="stored"):
    """What was said without wanting an answer is stored, or a turn that was answered elsewhere."""

    id: str
    conversation_id: str
    entries: list[Any]
    """What was said, in its place. None of a turn that was answered elsewhere: who sent it has it."""
    message_ids: list[str] = field(default_factory=list)
    """The ids of a turn that was answered elsewhere."""
    place: Place | None = None
    repeated: bool = False


class Types(Outgoing, frozen=True, kw_only=True, tag="typing"):
    """Somebody else types, or the assistant is about to answer somebody else."""

    conversation_id: str
    role: Role
    active: bool
    name: str = ""


class HeartBeat(Outgoing, frozen=True, kw_only=True, tag="ping"):
    """Are you there? Any frame is an answer; `pong` is for those who have nothing to say."""


class PongBack(Outgoing, frozen=True, kw_only=True, tag="pong"):
    """I am here."""

    at: float | None = None


class Failed(Outgoing, frozen=True, kw_only=True, tag="error"):
    """What you sent was not done. The connection goes on, unless a close follows."""

    problem: dict[str, Any]
    """As over HTTP: `type`, `title`, `status`, `detail`, and the error's own fields."""
    id: str | None = None
    """The id of what was sent, where it had one."""


_encode = msgspec.json.Encoder().encode


def write_frame(frame: Outgoing) -> str:
    """The frame as it is sent. Half of a surrogate pair, which has no form in UTF-8, becomes a mark."""
    try:
        return _encode(frame).decode()
    except UnicodeEncodeError:
        return _encode(_marked(frame)).decode()


def _marked(frame: Outgoing) -> Outgoing:
    texts = {name: getattr(frame, name) for name in frame.__struct_fields__}
    return replace(
        frame,
        **{
            name: text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            for name, text in texts.items()
            if isinstance(text, str)
        },
    )


def write_entry(entry: Entry) -> bytes:
    """A stored message as it stands in frames: encoded once, for everybody who watches."""
    why = why_unreadable(entry)
    if why is not None:
        held = Message(role="system", content="", timestamp=entry.message.timestamp)
        entry = replace(entry, message=held, unreadable=why)
    return to_json(entry_document(entry))


def failure(error: AforesaidError, *, id: str | None = None) -> Failed:  # noqa: A002  the name in the frame
    """The frame that tells of an error."""
    return Failed(problem=problem_of(error), id=id)


INCOMING_TYPES: tuple[str, ...] = tuple(str(kind.__struct_config__.tag) for kind in get_args(Incoming))
