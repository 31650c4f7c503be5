"""Routes: how a module of `routes/` declares them, and the call that a handler gets.

    routes = Routes("conversations")

    @routes.get("/conversations/{conversation_id}", response=ConversationBody, revised=True)
    async def get_conversation(call: Call[NoBody, NoQuery]) -> Reply: ...

The application (`requests.py`) and the OpenAPI document (`openapi.py`) are generated from the endpoints.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, Generic, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from litestar import Request
from msgspec import Meta, Struct
from msgspec.structs import force_setattr

from aforesaid.dialects import read
from aforesaid.errors import InvalidInput, shown
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.ids import following_id
from aforesaid.model.messages import Message, plain_text
from aforesaid.protocol import from_json
from aforesaid.protocol.bodies import Count, MessageInputs, RequestModel, TurnBody
from aforesaid.protocol.live import Turn
from aforesaid.server.auth.authenticator import Headers
from aforesaid.server.auth.keys import AccessScope, Caller
from aforesaid.server.limits import RouteClass
from aforesaid.server.responses import Response, StreamingResponse
from aforesaid.server.service import Service

# Decode bodies, queries and messages of requests and frames.


B = TypeVar("B")


# Documents


def decode_body(raw: bytes, decoder: "msgspec.json.Decoder[B]", kind: type[B]) -> B:
    """Decode a body. Raises `InvalidInput` with the name of the field, or `Malformed`."""
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise validation_error(error) from None
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        # `from_json` also accepts lone surrogates, and raises `Malformed` for anything else.
        return convert(from_json(raw), kind)


def convert(document: Any, kind: type[B], *, strict: bool = True) -> B:
    """Convert a document to this type. Raises `InvalidInput`."""
    try:
        return msgspec.convert(document, kind, strict=strict)
    except msgspec.ValidationError as error:
        raise validation_error(error) from None
    except RecursionError:
        raise InvalidInput("the body is nested too deeply", field="body") from None
    except UnicodeEncodeError:
        # Message content may have lone surrogates. msgspec needs UTF-8 for field names, enums and datetimes.
        raise InvalidInput(
            "the body has a lone surrogate in a field that does not accept arbitrary text", field="body"
        ) from None


def validation_error(error: msgspec.ValidationError) -> InvalidInput:
    """Return the validation error with the name of its field.

    An `InvalidInput` from a type stays as it is.
    """
    if isinstance(error.__cause__, InvalidInput):
        return error.__cause__
    words, _, place = str(error).partition(" - at `")
    field = place.removesuffix("`").removeprefix("$").lstrip(".") or "body"
    return InvalidInput(f"{field}: {words[0].lower()}{words[1:]}", field=field)


# Messages. Most turns are plain text and are decoded directly. `dialects` parses everything else and keeps it
# unchanged.


class _PlainMessage(Message, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message in the documented form without further fields."""


_PlainMessages = Annotated[list[_PlainMessage], Meta(min_length=1, max_length=1000)]


class _PlainTurn(RequestModel, frozen=True, kw_only=True):
    messages: _PlainMessages
    expected_revision: Count | None = None


_turn_decoder = msgspec.json.Decoder(_PlainTurn)
_messages_decoder = msgspec.json.Decoder(_PlainMessages)
_message_decoder = msgspec.json.Decoder(_PlainMessage)
_UNREADABLE = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)


def parse_turn(raw: bytes) -> tuple[Sequence[Message], int | None]:
    """Return the messages and the expected revision of a turn."""
    try:
        plain = _turn_decoder.decode(raw)
    except _UNREADABLE:
        plain = None
    if plain is not None and all(map(_is_plain, plain.messages)):
        return plain.messages, plain.expected_revision
    body = convert(from_json(raw), TurnBody)
    return read(list(body.messages), dialect=body.dialect), body.expected_revision


def parse_message(raw: bytes) -> Message:
    """Return the message of a request with one message."""
    try:
        plain = _message_decoder.decode(raw)
    except _UNREADABLE:
        plain = None
    if plain is not None and _is_plain(plain):
        return plain
    messages = read([convert(from_json(raw), dict[str, Any])])
    if len(messages) != 1:
        raise InvalidInput("the body must be one message; use turns for several", field="body")
    return messages[0]


def parse_frame_turn(frame: Turn) -> list[Message]:
    """Return the messages of a `turn` frame. Messages without ids get ids derived from the frame's id."""
    messages = _frame_messages(frame)
    for at, message in enumerate(messages):
        if message.message_id is None:
            # Safe on a frozen value: it is not shared yet, and the id of the frame was validated.
            force_setattr(message, "message_id", following_id(frame.id, at) if at else frame.id)
    return messages


def _frame_messages(frame: Turn) -> list[Message]:
    raw = bytes(frame.messages)
    if frame.dialect is None:
        try:
            plain = _messages_decoder.decode(raw)
        except _UNREADABLE:
            plain = None
        if plain is not None and all(map(_is_plain, plain)):
            return list(plain)
    return list(read(list(convert(from_json(raw), MessageInputs)), dialect=frame.dialect))


def _is_plain(message: Message) -> bool:
    """Return whether the message is plain text, which needs no parsing by `dialects`."""
    return plain_text(message) is not None and message.dialect == "plain" and not message.tokens


PREFIX = "/v1"
# A path parameter in a route template.
PARAMETER = re.compile(r"\{(\w+)\}")

Q = TypeVar("Q")


class NoBody(Struct, frozen=True):
    """No request body."""


class NoQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """No query parameters."""


class Call(Generic[B, Q]):
    """An authenticated request with decoded `body` and `query`. `raw` has the bytes of the body."""

    __slots__ = ("body", "caller", "headers", "manager", "path", "query", "raw", "request", "service")

    def __init__(
        self,
        service: Service,
        request: "Request[Any, Any, Any]",
        *,
        headers: Headers,
        caller: Caller,
        manager: ConversationManager,
        path: dict[str, str],
        query: Q,
        body: B,
        raw: bytes,
    ) -> None:
        self.service = service
        self.request = request
        self.headers = headers
        self.caller = caller
        self.manager = manager
        self.path = path
        self.query = query
        self.body = body
        self.raw = raw

    @property
    def conversation_id(self) -> str:
        return self.path["conversation_id"]

    @property
    def expected_revision(self) -> int | None:
        """The revision in `If-Match`."""
        return parse_etag(self.headers.get(b"if-match"), header="If-Match")

    def has_revision(self, revision: int) -> bool:
        """Return whether `If-None-Match` names this revision."""
        etags = self.headers.get(b"if-none-match")
        return etags is not None and any(
            _etag_value(etag) in (b"%d" % revision, b"*") for etag in etags.split(b",")
        )


def parse_etag(value: bytes | None, *, header: str) -> int | None:
    """Return the revision of an ETag; None if it is missing or `*`."""
    bare = None if value is None else _etag_value(value)
    if bare is None or bare == b"*":
        return None
    if not bare.isdigit() or len(bare) > 15:
        raise InvalidInput(
            f"{header} must be the ETag of an earlier response; got {shown(bare.decode('latin-1'))}",
            field=header,
            value=bare.decode("latin-1"),
        )
    return int(bare)


def _etag_value(etag: bytes) -> bytes:
    return etag.strip().removeprefix(b"W/").strip(b'"')


Reply: TypeAlias = Response | StreamingResponse
Handler: TypeAlias = Callable[[Call[Any, Any]], Awaitable[Reply]]


class Media(Struct, frozen=True, kw_only=True):
    """A response or request body that is not JSON."""

    type: str
    description: str
    examples: tuple[str, ...] = ()
    """Accepted types, if `type` is a wildcard."""

    @property
    def types(self) -> tuple[str, ...]:
        return self.examples or (self.type,)


class Endpoint(Struct, frozen=True, kw_only=True):
    """One route."""

    method: str
    path: str
    tag: str
    name: str
    summary: str
    description: str
    handler: Handler
    scope: AccessScope
    route_class: RouteClass
    query: type = NoQuery
    body: type = NoBody
    body_media: Media | None = None
    """Set if the body is not JSON."""
    body_optional: bool = False
    raw: bool = False
    """Whether the handler parses the body."""
    response: Any = None
    """The body of a successful response: a type, a `Media`, or None for no body."""
    status: int = 200
    revised: bool = False
    """Whether responses have an ETag and writes support `If-Match`."""
    idempotent: bool = False
    """Whether the route supports `Idempotency-Key`."""
    errors: tuple[int, ...] = ()
    """Error statuses in addition to those of every route."""
    needs_owner: bool = True
    """Whether the route accesses the data of one owner."""
    body_limit: int | None = None
    """Bytes; None selects the limit of the settings."""

    @property
    def full_path(self) -> str:
        return PREFIX + self.path

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(PARAMETER.findall(self.path))

    @property
    def takes_body(self) -> bool:
        return self.body is not NoBody or self.body_media is not None


class Routes:
    """The routes of one noun."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.endpoints: list[Endpoint] = []

    def get(self, path: str, **more: Any) -> Callable[[Handler], Handler]:
        return self._route("GET", path, **{"scope": "read", "route_class": "read", **more})

    def post(self, path: str, **more: Any) -> Callable[[Handler], Handler]:
        return self._route("POST", path, **more)

    def put(self, path: str, **more: Any) -> Callable[[Handler], Handler]:
        return self._route("PUT", path, **more)

    def patch(self, path: str, **more: Any) -> Callable[[Handler], Handler]:
        return self._route("PATCH", path, **more)

    def delete(self, path: str, **more: Any) -> Callable[[Handler], Handler]:
        return self._route("DELETE", path, **{"status": 204, **more})

    def _route(self, method: str, path: str, **more: Any) -> Callable[[Handler], Handler]:
        def register(handler: Handler) -> Handler:
            summary, _, description = (handler.__doc__ or "").strip().partition("\n\n")
            fields = {"scope": "write", "route_class": "write", **_types_of(handler), **more}
            self.endpoints.append(
                Endpoint(
                    method=method,
                    path=path,
                    tag=self.tag,
                    name=handler.__name__,
                    summary=" ".join(summary.split()),
                    description=" ".join(description.split()),
                    handler=handler,
                    **fields,
                )
            )
            return handler

        return register


def _types_of(handler: Handler) -> dict[str, type]:
    """Return body and query type of a handler from its annotation `Call[Body, Query]`."""
    call = get_type_hints(handler)["call"]
    assert get_origin(call) is Call, f"{handler.__name__} must take a Call[body, query]"
    body, query = get_args(call)
    return {"body": body, "query": query}
