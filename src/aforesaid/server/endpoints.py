"""Routes: declaration, request parsing and error handling.

    routes = Routes("conversations")

    @routes.get("/conversations/{conversation_id}", response=ConversationBody, revised=True)
    async def get_conversation(call: Call[NoBody, NoQuery]) -> Reply: ...

Application and OpenAPI document are generated from the endpoints. Each request is authenticated, rate-
limited, parsed and handled, in this order, so that an unauthenticated request costs little and never reaches
data.
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
from aforesaid.server.auth.authenticator import Headers
from aforesaid.server.auth.callers import AccessScope, Caller
from aforesaid.server.calls import (
    Call,
    NoBody,
    NoQuery,
    Service,
    convert,
    decode_body,
    owner_of,
    source_of,
)
from aforesaid.server.limits import RouteClass
from aforesaid.server.responses import Response, StreamingResponse, mark_degraded, problem_response
from aforesaid.telemetry import describe

log = logging.getLogger("aforesaid.server")

Reply: TypeAlias = Response | StreamingResponse
Handler: TypeAlias = Callable[[Call[Any, Any]], Awaitable[Reply]]

PREFIX = "/v1"
NO_OWNER = "aforesaid.no-owner"
"""The owner of the handle that routes without an owner get. It has no data."""
JSON = "application/json"
_PARAMETER = re.compile(r"\{(\w+)\}")


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


# Litestar handlers


def route_handler(endpoint: Endpoint, service: Service) -> HTTPRouteHandler:
    """Return the endpoint as a Litestar handler."""
    handle = _request_handler(endpoint, service)
    path = _PARAMETER.sub(r"{\1:str}", endpoint.full_path)
    return HTTPRouteHandler(
        path,
        http_method=endpoint.method,  # type: ignore[arg-type]
        name=endpoint.name,
        status_code=200,  # unused: the response has its own status
        include_in_schema=False,
        # Litestar would parse the request before it calls the handler. `before_request` runs first, and a
        # response from it ends the request.
        before_request=handle,
    )(_unreachable)


async def _unreachable() -> ASGIApp:
    raise AssertionError("before_request must have returned a response")


def _request_handler(endpoint: Endpoint, service: Service) -> Callable[..., Awaitable[ASGIApp]]:
    parse = _Parser(endpoint)

    async def handle(request: Request) -> ASGIApp:  # type: ignore[type-arg]
        headers: Headers = dict(request.scope["headers"])
        try:
            caller = await service.authenticator.authenticate(headers)
            caller.check(endpoint.scope)
            owner = owner_of(caller, headers) if endpoint.needs_owner else NO_OWNER
            service.limits.take(caller.name, endpoint.route_class)
            manager = service.manager_for(caller, owner, source=source_of(request))
            call = await parse(service, request, headers, caller, manager)
            with noting_freshness() as seen:
                reply = await endpoint.handler(call)
            return mark_degraded(reply) if seen.degraded else reply
        except AccessError as error:
            action = f"{endpoint.method} {endpoint.path}"
            await service.note_refusal(action, error, source=source_of(request))
            return problem_response(error)
        except RevisionConflict as error:
            return problem_response(error, status=412 if b"if-match" in headers else 409)
        except AforesaidError as error:
            return _error_response(error, endpoint)

    return handle


def _error_response(error: AforesaidError, endpoint: Endpoint) -> Response:
    response = problem_response(error)
    if response.status >= 500:
        level = logging.WARNING if isinstance(error, StoreError) else logging.ERROR
        log.log(level, "%s %s: %s", endpoint.method, endpoint.path, describe(error))
    return response


class _Parser:
    """Parse path, query and body of a request."""

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
        """Return the path parameters from the raw path.

        Litestar decodes the path before it splits it, so an encoded slash would separate segments.
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
        return convert(given, self._endpoint.query, strict=False)

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
        return decode_body(raw, self._decoder, self._endpoint.body)


async def read_body(receive: Receive, headers: Headers, limit: int) -> bytes:
    """Read the body. Raises `TooLarge`, `Malformed`."""
    declared = headers.get(b"content-length", b"")
    if declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    pieces: list[bytes] = []
    length = 0
    while True:
        message: Any = await receive()
        if message["type"] == "http.disconnect":
            raise Malformed("the body is incomplete", field="body")
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
    return TooLarge(f"the body must have at most {limit:,} bytes", field="body")


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
