"""WebSocket frames.

A text frame is a JSON object with a `type`. A binary frame is a chunk of the audio that the last
`audio.start` announced. `docs/reference/websocket.md` describes the frames with examples.
"""

from typing import Any, get_args

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from aforesaid.errors import AforesaidError, InvalidInput, shown
from aforesaid.model.ids import parse_name
from aforesaid.protocol.bodies import Channel, Dialect
from aforesaid.protocol.documents import problem_of
from aforesaid.protocol.live_base import ClientFrame, Outgoing
from aforesaid.protocol.live_branches import Branches, Compare, Fork, Link, Links, Merge, Unlink
from aforesaid.protocol.live_people import (
    AskAnalytics,
    Assign,
    Notified,
    Read,
    SetParticipant,
    SetRule,
    Typing,
)

# The subprotocol that client and server agree on in `Sec-WebSocket-Protocol`.
SUBPROTOCOL = "aforesaid.v1"

# A browser cannot set headers: it offers this prefix plus its key in base64url as a second subprotocol.
BEARER_SUBPROTOCOL = "aforesaid.bearer."

# The same for the owner, which a key with several owners must name.
OWNER_SUBPROTOCOL = "aforesaid.owner."

# Characters in a client's frame id. The ids of the answer are derived from it.
LONGEST_ID = 200


class CloseCode:
    """Why a connection was closed. Codes from 4000 are specific to this protocol."""

    NORMAL = 1000
    """The client left."""
    BAD_FRAME = 1002
    """The client violated the WebSocket protocol."""
    NOT_TEXT = 1007
    """A text frame was not UTF-8."""
    TOO_LARGE = 1009
    """A frame exceeded the size that the server reads."""
    INTERNAL = 1011
    """An internal error, or the client did not answer WebSocket pings."""
    RESTARTING = 1012
    """The server is stopping, after finishing answers in progress. Reconnect and resume."""
    TRY_LATER = 1013
    """The store is unavailable or the server is full. Retry later."""
    NOT_AUTHENTICATED = 4401
    """The key is missing, invalid, or has expired."""
    NOT_ALLOWED = 4403
    """The key has no access to this owner."""
    NO_HELLO = 4408
    """The first frame was not `hello`, or came too late."""
    GONE = 4410
    """The client did not answer two heartbeats."""
    TOO_SLOW = 4413
    """The client reads too slowly."""
    TOO_MANY = 4429
    """Too many frames, or too many connections with one key."""


CLOSE_CODES: dict[int, str] = {
    value: name.lower() for name, value in vars(CloseCode).items() if isinstance(value, int)
}


class Place(Struct, frozen=True, kw_only=True):
    """A client's position in a conversation. Send the last one to resume without loss or repetition."""

    revision: int
    sequence: int
    """The largest delivered sequence."""
    messages: int
    """The number of messages in the conversation at that time."""

    def __post_init__(self) -> None:
        if min(self.revision, self.sequence, self.messages) < 0:
            raise InvalidInput(f"the numbers of a place must be 0 or more; got {shown(self)}", field="place")


class Hello(ClientFrame, frozen=True, kw_only=True, tag="hello"):
    """The first frame: authentication and choice of conversation."""

    key: str | None = None
    """An API key or JWT, unless a header or subprotocol carries it."""
    owner: str | None = None
    participant: str | None = None
    """The participant as whom the client acts. A participant's key needs none."""
    session_id: str | None = None
    """The session. Its conversation is created if it has none. Without it, the server creates a session."""
    conversation_id: str | None = None
    """The conversation to continue in the session. Without `session_id`, the one to watch and write to."""
    device: str | None = None
    """The client's device. A new session continues the device's previous conversation."""
    channel: Channel = "text"
    history: int = 20
    """The number of latest messages in `ready`."""
    place: Place | None = None
    """The last place before the connection broke. The server sends what the client missed."""
    name: str = ""
    """The name that other watchers get in `typing` and `presence`."""
    presence: bool = False
    """Whether to send `presence` frames, and to list this client in them."""
    notifications: bool = False
    """Whether to send `notifications` frames. Only a participant has notifications."""

    def __post_init__(self) -> None:
        check_history(self.history)
        if self.session_id is not None:
            parse_name(self.session_id, field="session_id")
        if len(self.name) > LONGEST_ID:
            raise InvalidInput(f"name must have at most {LONGEST_ID} characters", field="name")


class Text(ClientFrame, frozen=True, kw_only=True, tag="text"):
    """A user message."""

    id: str
    """Chosen by the client. A frame sent again with the same id is stored once."""
    text: str
    conversation_id: str | None = None
    """Default: the conversation of the session."""
    answer: bool = True
    """Whether the assistant answers. Otherwise the message is only stored and sent to watchers."""

    def __post_init__(self) -> None:
        check_id(self.id)
        if not self.text.strip():
            raise InvalidInput("text must not be empty", field="text", value=self.text)


class Turn(ClientFrame, frozen=True, kw_only=True, tag="turn"):
    """A complete turn that the client answered. It is stored as a unit and sent to watchers."""

    id: str
    """Chosen by the client. Messages without ids derive theirs from it, so a repeated turn is stored once."""
    messages: msgspec.Raw
    """As over HTTP: `MessageBody` objects, or messages in a provider's format."""
    dialect: Dialect | None = None
    conversation_id: str | None = None

    def __post_init__(self) -> None:
        check_id(self.id)


class AudioStart(ClientFrame, frozen=True, kw_only=True, tag="audio.start"):
    """Binary frames with audio follow."""

    id: str
    media_type: str = "audio/wav"
    """`audio/wav`, or `audio/pcm` with `rate` and `channels`: 16 bits, little-endian."""
    rate: int = 16_000
    channels: int = 1
    conversation_id: str | None = None

    def __post_init__(self) -> None:
        check_id(self.id)


class AudioEnd(ClientFrame, frozen=True, kw_only=True, tag="audio.end"):
    """The audio is complete. The server transcribes, stores and answers it."""

    id: str


class AudioCancel(ClientFrame, frozen=True, kw_only=True, tag="audio.cancel"):
    """Discard the audio."""

    id: str


class Interrupt(ClientFrame, frozen=True, kw_only=True, tag="interrupt"):
    """Stop answering. The part of the answer that was heard is stored."""

    id: str | None = None
    """The answer to stop. Default: every answer that this connection waits for. An answer that is complete
    and still being spoken must be named."""
    heard: int | None = None
    """The number of heard characters of the answer, or of its `spoken` form if it has one. Default: all that
    were sent."""
    conversation_id: str | None = None
    """Default: every conversation. For a complete answer: the conversation of the `hello`."""

    def __post_init__(self) -> None:
        if self.heard is not None and self.heard < 0:
            raise InvalidInput(f"heard must be 0 or more; got {self.heard}", field="heard", value=self.heard)


class Watch(ClientFrame, frozen=True, kw_only=True, tag="watch"):
    """Watch a conversation."""

    conversation_id: str
    history: int = 20
    place: Place | None = None

    def __post_init__(self) -> None:
        check_history(self.history)


class Unwatch(ClientFrame, frozen=True, kw_only=True, tag="unwatch"):
    """Stop watching a conversation."""

    conversation_id: str


class Bye(ClientFrame, frozen=True, kw_only=True, tag="bye"):
    """End the session and close the connection. A session that was not ended can be resumed."""


class Ping(ClientFrame, frozen=True, kw_only=True, tag="ping"):
    """A request for a `pong`."""

    at: float | None = None
    """Returned in the `pong`."""


class Pong(ClientFrame, frozen=True, kw_only=True, tag="pong"):
    """The reply to a heartbeat."""

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
    | Read
    | Notified
    | Fork
    | Branches
    | Compare
    | Merge
    | Link
    | Unlink
    | Links
    | SetParticipant
    | Assign
    | SetRule
    | AskAnalytics
    | Bye
    | Ping
    | Pong
)

_decoder: msgspec.json.Decoder[Incoming] = msgspec.json.Decoder(Incoming)
LONGEST_HISTORY = 200


def read_frame(text: str | bytes) -> Incoming:
    """Decode a client frame. Raises `InvalidInput`, which names the field."""
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


# Server frames


class Ready(Outgoing, frozen=True, kw_only=True, tag="ready"):
    """The reply to `hello`."""

    owner: str
    session_id: str
    conversation: dict[str, Any]
    entries: list[Any]
    """The latest entries, as over HTTP, oldest first. Empty if `resumed`: missed entries follow in
    `messages`."""
    place: Place
    resumed: bool = False
    answering: list[str] = field(default_factory=list)
    """Ids of answers in progress for this session. Their frames continue on this connection."""
    heartbeat: float = 0.0
    """Seconds without a frame after which the server sends a `ping`; 0 means never."""


class Watching(Outgoing, frozen=True, kw_only=True, tag="watching"):
    """The reply to `watch`."""

    conversation: dict[str, Any]
    entries: list[Any]
    place: Place
    resumed: bool = False


class Unwatched(Outgoing, frozen=True, kw_only=True, tag="unwatched"):
    """The reply to `unwatch`."""

    conversation_id: str


class Messages(Outgoing, frozen=True, kw_only=True, tag="messages"):
    """New entries in the order of storing, each exactly once."""

    conversation_id: str
    entries: list[Any]
    place: Place


class Changed(Outgoing, frozen=True, kw_only=True, tag="changed"):
    """Entries whose messages were redacted. Their places do not change."""

    conversation_id: str
    entries: list[Any]
    place: Place


class Updated(Outgoing, frozen=True, kw_only=True, tag="conversation"):
    """The record changed, such as its client or status."""

    conversation: dict[str, Any]
    place: Place


class Reset(Outgoing, frozen=True, kw_only=True, tag="reset"):
    """The log was cleared or rewritten. Replace the local copy by these entries."""

    conversation: dict[str, Any]
    entries: list[Any]
    place: Place


class Gone(Outgoing, frozen=True, kw_only=True, tag="gone"):
    """The conversation was deleted. It is no longer watched."""

    conversation_id: str


class Lagging(Outgoing, frozen=True, kw_only=True, tag="lagging"):
    """The client reads too slowly for the feed. The following entries are read from the store."""

    conversation_id: str
    behind: int
    """The number of waiting messages."""


class Transcript(Outgoing, frozen=True, kw_only=True, tag="transcript"):
    """The transcript of the audio."""

    id: str
    text: str


class AnswerDelta(Outgoing, frozen=True, kw_only=True, tag="answer.delta"):
    """Part of an answer. `offset` is its position in characters; it restarts at 0 after a resume."""

    id: str
    text: str
    offset: int = 0


class AnswerDone(Outgoing, frozen=True, kw_only=True, tag="answer.done"):
    """The answer is complete. The whole turn is stored, unless `stored` is false."""

    id: str
    conversation_id: str
    text: str
    message_ids: list[str]
    entries: list[Any]
    """The entries of the turn that were not delivered before."""
    place: Place | None = None
    spoken: str | None = None
    """The text to speak, if it is shorter than `text`."""
    interrupted: bool = False
    repeated: bool = False
    """Whether the turn was already stored because the client sent it again."""
    stored: bool = True
    """False if storing failed. The server retries; watchers get the entries once they are stored."""


class AnswerFailed(Outgoing, frozen=True, kw_only=True, tag="answer.failed"):
    """The assistant failed and nothing was stored. The client may send the same id again."""

    id: str
    problem: dict[str, Any]
    apology: str = ""
    """A text for the user."""


class Stored(Outgoing, frozen=True, kw_only=True, tag="stored"):
    """A `text` without answer, or a `turn`, is stored."""

    id: str
    conversation_id: str
    entries: list[Any]
    """The entry of a `text`. Empty for a `turn`, whose messages the sender has."""
    message_ids: list[str] = field(default_factory=list)
    """The message ids of a `turn`."""
    place: Place | None = None
    repeated: bool = False


class Heartbeat(Outgoing, frozen=True, kw_only=True, tag="ping"):
    """The server's heartbeat. Any frame counts as a reply."""


class PongReply(Outgoing, frozen=True, kw_only=True, tag="pong"):
    """The reply to a client's `ping`."""

    at: float | None = None


class Failed(Outgoing, frozen=True, kw_only=True, tag="error"):
    """A client frame was refused. The connection stays open unless a close follows."""

    problem: dict[str, Any]
    """As over HTTP: `type`, `title`, `status`, `detail`, and the data of the error."""
    id: str | None = None
    """The id of the refused frame, if it had one."""


_encode = msgspec.json.Encoder().encode


def write_frame(frame: Outgoing) -> str:
    """Encode a frame. Replaces lone surrogates, which UTF-8 cannot represent."""
    try:
        return _encode(frame).decode()
    except UnicodeEncodeError:
        return _encode(_without_surrogates(frame)).decode()


def _without_surrogates(frame: Outgoing) -> Outgoing:
    texts = {name: getattr(frame, name) for name in frame.__struct_fields__}
    return replace(
        frame,
        **{
            name: text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            for name, text in texts.items()
            if isinstance(text, str)
        },
    )


def failure(error: AforesaidError, *, id: str | None = None) -> Failed:  # noqa: A002  the name in the frame
    """Return the frame of an error."""
    return Failed(problem=problem_of(error), id=id)


INCOMING_TYPES: tuple[str, ...] = tuple(str(kind.__struct_config__.tag) for kind in get_args(Incoming))
