"""What a route is: its path, what it takes, what it answers, and who may. Below: calls, answers.

    routes = Routes("conversations")

    @routes.get("/conversations/{conversation_id}", answer=ConversationBody, revised=True)
    async def look(call: Call[NoBody, NoQuery]) -> Reply: ...

The OpenAPI document is made from these, and so is the application. A request is let in, counted, read and
answered here, in this order: what is not let in costs nothing more, and never reaches any data.
"""

import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec
from litestar import Request
from litestar.exceptions import HTTPException
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp, Receive
from msgspec import Struct

from aforesaid._internal.freshness import noting_freshness
from aforesaid.errors import (
    AccessError,
    AforesaidError,
    InvalidId,
    InvalidInput,
    Malformed,
    RevisionConflict,
    StoreError,
    TooLarge,
)
from aforesaid.server.auth.callers import Caller, Reach
from aforesaid.server.auth.gate import Headers
from aforesaid.server.calls import (
    Call,
    NoBody,
    NoQuery,
    Service,
    converted,
    decoded,
    owner_of,
    source_of,
)
from aforesaid.server.limits import RouteClass
from aforesaid.server.responses import Answer, Streamed, as_degraded, as_problem
from aforesaid.telemetry import describe

log = logging.getLogger("aforesaid.server")

Reply: TypeAlias = Answer | Streamed
Handler: TypeAlias = Callable[[Call[Any, Any]], Awaitable[Reply]]

PREFIX = "/v1"
NOBODY = "aforesaid.nobody"
"""Whose handle a route gets that is about no owner in particular: it has nothing."""
JSON = "application/json"
_PARAMETER = re.compile(r"\{(\w+)\}")


class Media(Struct, frozen=True, kw_only=True):
    """An answer or a body that is not JSON."""

    type: str
    description: str
    such_as: tuple[str, ...] = ()
    """Types that are taken, where `type` stands for several."""

    @property
    def types(self) -> tuple[str, ...]:
        return self.such_as or (self.type,)


class Endpoint(Struct, frozen=True, kw_only=True):
    """One route."""

    method: str
    path: str
    tag: str
    name: str
    summary: str
    description: str
    handler: Handler
    reach: Reach
    route_class: RouteClass
    query: type = NoQuery
    body: type = NoBody
    body_media: Media | None = None
    """Where the body is no JSON."""
    body_optional: bool = False
    raw: bool = False
    """Whether the handler reads the body itself."""
    answer: Any = None
    """What the body of a good answer is: a type, a `Media`, or None for no body."""
    status: int = 200
    revised: bool = False
    """Whether answers have an ETag, and `If-Match` is heeded on writes."""
    idempotent: bool = False
    """Whether `Idempotency-Key` is heeded."""
    errors: tuple[int, ...] = ()
    """What else it may answer, beside what every route does."""
    needs_owner: bool = True
    """Whether it is about one owner's data."""
    body_limit: int | None = None
    """Bytes, where the general limit does not fit."""

    @property
    def full_path(self) -> str:
        return PREFIX + self.path

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(_PARAMETER.findall(self.path))

    @property
    def takes_body(self) -> bool:
        return self.body is not NoBody or self.body_media is not None


class Routes:
    """The routes of one noun."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.endpoints: list[Endpoint] = []

    def get(self, path: str, **more: Any) -> Callable[[Handler], Handler]:
        return self._route("GET", path, **{"reach": "read", "route_class": "read", **more})

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
            fields = {"reach": "write", "route_class": "write", **_types_of(handler), **more}
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
    """What a handler takes, as the type of its call says: `Call[Body, Query]`."""
    call = get_type_hints(handler)["call"]
    assert get_origin(call) is Call, f"{handler.__name__} must take a Call[body, query]"
    body, query = get_args(call)
    return {"body": body, "query": query}


# From an endpoint to a handler of the framework


def route_handler(endpoint: Endpoint, service: Service) -> HTTPRouteHandler:
    """The endpoint as a handler of the framework."""
    answer = _answering(endpoint, service)
    path = _PARAMETER.sub(r"{\1:str}", endpoint.full_path)
    return HTTPRouteHandler(
        path,
        http_method=endpoint.method,  # type: ignore[arg-type]
        name=endpoint.name,
        status_code=200,  # what is answered says its own
        include_in_schema=False,
        before_request=answer,
    )(_answered_before)


async def _answered_before() -> ASGIApp:
    """What the framework would call last: the answer is given before it reads a thing."""
    raise AssertionError("a request came past its answer")


def _answering(endpoint: Endpoint, service: Service) -> Callable[..., Awaitable[ASGIApp]]:
    read = _Reader(endpoint)

    async def answer(request: Request) -> ASGIApp:  # type: ignore[type-arg]
        headers: Headers = dict(request.scope["headers"])
        try:
            caller = await service.gate.admit(headers)
            caller.check(endpoint.reach)
            owner = owner_of(caller, headers) if endpoint.needs_owner else NOBODY
            service.limits.take(caller.name, endpoint.route_class)
            manager = service.manager_for(caller, owner, source=source_of(request))
            call = await read(service, request, headers, caller, manager)
            with noting_freshness() as seen:
                reply = await endpoint.handler(call)
            return as_degraded(reply) if seen.degraded else reply
        except AccessError as error:
            action = f"{endpoint.method} {endpoint.path}"
            await service.note_refusal(action, error, source=source_of(request))
            return as_problem(error)
        except RevisionConflict as error:
            return as_problem(error, status=412 if b"if-match" in headers else 409)
        except AforesaidError as error:
            return _told(error, endpoint)

    return answer


def _told(error: AforesaidError, endpoint: Endpoint) -> Answer:
    answer = as_problem(error)
    if answer.status >= 500:
        level = logging.WARNING if isinstance(error, StoreError) else logging.ERROR
        log.log(level, "%s %s: %s", endpoint.method, endpoint.path, describe(error))
    return answer


class _Reader:
    """Reads what a request says: path, query, body."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        segments = [each for each in endpoint.full_path.split("/") if each]
        self._segments = len(segments)
        self._places = [(at, segment[1:-1]) for at, segment in enumerate(segments) if segment.startswith("{")]
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(endpoint.body)
        self._no_query = endpoint.query() if _all_optional(endpoint.query) else None
        self._no_body = endpoint.body() if _all_optional(endpoint.body) else None
        self._lists = _list_fields(endpoint.query)
        self._media = endpoint.body_media.type if endpoint.body_media else JSON
        self._usual = self._media.encode()

    async def __call__(
        self,
        service: Service,
        request: "Request[Any, Any, Any]",
        headers: Headers,
        caller: Caller,
        manager: Any,
    ) -> Call[Any, Any]:
        path = self._path(request.scope["raw_path"]) if self._places else {}
        query = self._query(request.scope["query_string"])
        raw, body = b"", self._no_body
        if self._endpoint.takes_body:
            raw = await self._raw(service, request, headers)
            body = self._body(raw)
        return Call(
            service,
            request,
            headers=headers,
            caller=caller,
            manager=manager,
            path=path,
            query=query,
            body=body,
            raw=raw,
        )

    def _path(self, raw_path: bytes) -> dict[str, str]:
        """The parameters, from the path as it was sent.

        The framework takes an encoded slash for one that separates; no name of ours holds one.
        """
        segments = [each for each in raw_path.split(b"/") if each]
        if len(segments) != self._segments:
            raise HTTPException(status_code=404)
        return {name: _unquoted(segments[at], name) for at, name in self._places}

    def _query(self, query_string: bytes) -> Any:
        if not query_string and self._no_query is not None:
            return self._no_query
        given: dict[str, Any] = {}
        try:
            pairs = parse_qsl(query_string.decode("ascii"), keep_blank_values=True, errors="strict")
        except ValueError:
            raise InvalidInput("the query must be percent-encoded UTF-8", field="query") from None
        for name, value in pairs:
            if name in self._lists:
                given.setdefault(name, []).append(value)
            else:
                given[name] = value
        return converted(given, self._endpoint.query, strict=False)

    async def _raw(self, service: Service, request: "Request[Any, Any, Any]", headers: Headers) -> bytes:
        limit = self._endpoint.body_limit or service.body_limit
        raw = await read_body(request.receive, headers, limit)
        if raw and not self._fits(headers.get(b"content-type", b"")):
            raise HTTPException(status_code=415, detail=f"the body must be {self._media}")
        return raw

    def _fits(self, content_type: bytes) -> bool:
        if content_type == self._usual:
            return True
        media = content_type.partition(b";")[0].strip().lower().decode("latin-1")
        kind, _, rest = self._media.partition("/")
        return media == self._media or (rest == "*" and media.startswith(f"{kind}/"))

    def _body(self, raw: bytes) -> Any:
        if self._endpoint.raw or self._endpoint.body_media is not None:
            return None
        if not raw and self._endpoint.body_optional:
            return self._no_body
        return decoded(raw, self._decoder, self._endpoint.body)


async def read_body(receive: Receive, headers: Headers, limit: int) -> bytes:
    """The body, as long as it is no longer than that. Raises `TooLarge`, `Malformed`."""
    said = headers.get(b"content-length", b"")
    if said.isdigit() and int(said) > limit:
        raise _too_large(limit)
    pieces: list[bytes] = []
    length = 0
    while True:
        message: Any = await receive()
        if message["type"] == "http.disconnect":
            raise Malformed("the body breaks off", field="body")
        piece: bytes = message["body"]
        length += len(piece)
        if length > limit:
            raise _too_large(limit)
        if not message["more_body"] and not pieces:
            return piece
        pieces.append(piece)
        if not message["more_body"]:
            return b"".join(pieces)


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body has more than the {limit:,} bytes that are taken here", field="body")


def _unquoted(segment: bytes, name: str) -> str:
    try:
        return unquote_to_bytes(segment).decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidId(f"{name} must be percent-encoded UTF-8", field=name) from None


def _all_optional(kind: type) -> bool:
    return not any(field.required for field in msgspec.structs.fields(kind))


def _list_fields(kind: type) -> frozenset[str]:
    return frozenset(
        field.name
        for field in msgspec.structs.fields(kind)
        if isinstance(msgspec.inspect.type_info(field.type), msgspec.inspect.ListType)
    )
