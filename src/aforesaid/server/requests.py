"""Handle HTTP requests: authenticate, limit, parse, call the route, convert errors to problems.

The order matters: an unauthenticated request costs little and never reaches data.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import cache
from typing import Any
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec
from litestar import Request
from litestar.exceptions import HTTPException
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp, Receive

from aforesaid._internal.freshness import noting_freshness
from aforesaid.errors import (
    AccessError,
    AforesaidError,
    InvalidId,
    InvalidInput,
    Malformed,
    Overloaded,
    RevisionConflict,
    StoreError,
    TooLarge,
)
from aforesaid.server.auth.authenticator import Headers, wanted_owner, wanted_participant
from aforesaid.server.auth.keys import Caller
from aforesaid.server.endpoints import PARAMETER, Call, Endpoint, convert, decode_body
from aforesaid.server.responses import Response, mark_degraded, problem_response
from aforesaid.server.service import Service, source_of
from aforesaid.telemetry import describe

log = logging.getLogger("aforesaid.server")

JSON = "application/json"
# The owner of the handle that routes without an owner get. It has no data.
NO_OWNER = "aforesaid.no-owner"
_Handle = Callable[[Request[Any, Any, Any]], Awaitable[ASGIApp]]


def route_handlers(endpoints: Iterable[Endpoint], service: Service) -> list[HTTPRouteHandler]:
    """Return a Litestar handler for each path: one for each endpoint takes twice as long to create."""
    by_path: dict[str, dict[str, _Handle]] = {}
    for endpoint in endpoints:
        by_path.setdefault(endpoint.full_path, {})[endpoint.method] = _request_handler(endpoint, service)
    return [_route_handler(path, by_method) for path, by_method in by_path.items()]


def _route_handler(path: str, by_method: dict[str, _Handle]) -> HTTPRouteHandler:
    by_method["OPTIONS"] = _options_handler(by_method)

    async def handle(request: Request) -> ASGIApp:  # type: ignore[type-arg]
        return await by_method[request.scope["method"]](request)

    return HTTPRouteHandler(
        PARAMETER.sub(r"{\1:str}", path),
        http_method=list(by_method),  # type: ignore[arg-type]
        status_code=200,  # unused: the response has its own status
        include_in_schema=False,
        # Litestar would parse the request before it calls the handler. `before_request` runs first, and a
        # response from it ends the request.
        before_request=handle,
    )(_unreachable)


def _options_handler(methods: Iterable[str]) -> _Handle:
    allowed = ", ".join(sorted({*methods, "OPTIONS"})).encode()

    async def handle(_: Request) -> ASGIApp:  # type: ignore[type-arg]
        return Response(status=204, headers=[(b"allow", allowed)])

    return handle


async def _unreachable() -> ASGIApp:
    raise AssertionError("before_request must have returned a response")


def _request_handler(endpoint: Endpoint, service: Service) -> _Handle:
    parse = _parser_of(endpoint)
    # A question waits for a model, not for this server.
    admission = None if endpoint.route_class == "ask" else service.admission

    async def handle(request: Request) -> ASGIApp:  # type: ignore[type-arg]
        headers: Headers = dict(request.scope["headers"])
        try:
            if admission is not None:
                admission.enter()
        except Overloaded as error:
            return problem_response(error)
        try:
            caller = await service.authenticator.authenticate(headers)
            caller.check(endpoint.scope)
            owner = caller.owner_for(wanted_owner(headers)) if endpoint.needs_owner else NO_OWNER
            # Before the body is read: a caller above its rate costs neither memory nor parsing.
            service.limits.take(caller.name, endpoint.route_class)
            participant = wanted_participant(headers)
            manager = service.manager_for(caller, owner, source=source_of(request), participant=participant)
            call = await parse(service, request, headers, caller, manager)
            # One read from the last known state marks the whole response as degraded.
            with noting_freshness() as seen:
                reply = await endpoint.handler(call)
            return mark_degraded(reply) if seen.degraded else reply
        except AccessError as error:
            action = f"{endpoint.method} {endpoint.path}"
            await service.note_refusal(action, error, source=source_of(request))
            return problem_response(error)
        except RevisionConflict as error:
            # A failed `If-Match` is 412 (RFC 9110); a stale `expected_revision` in the body is 409.
            return problem_response(error, status=412 if b"if-match" in headers else 409)
        except AforesaidError as error:
            return _error_response(error, endpoint)
        finally:
            if admission is not None:
                admission.leave()

    return handle


def _error_response(error: AforesaidError, endpoint: Endpoint) -> Response:
    response = problem_response(error)
    if response.status >= 500:
        level = logging.WARNING if isinstance(error, StoreError) else logging.ERROR
        log.log(level, "%s %s: %s", endpoint.method, endpoint.path, describe(error))
    return response


@cache
def _parser_of(endpoint: Endpoint) -> "_Parser":
    """Return the parser that all applications of a process share: preparing its decoder takes time."""
    return _Parser(endpoint)


class _Parser:
    """Parse path, query and body of a request."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        segments = [each for each in endpoint.full_path.split("/") if each]
        self._segments = len(segments)
        self._places = [(at, segment[1:-1]) for at, segment in enumerate(segments) if segment.startswith("{")]
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(endpoint.body)
        # Most requests have no query and many have no body: share one frozen value instead of decoding an
        # empty one each time.
        self._no_query = endpoint.query() if _all_optional(endpoint.query) else None
        self._no_body = endpoint.body() if _all_optional(endpoint.body) else None
        self._lists = _list_fields(endpoint.query)
        self._media = endpoint.body_media.type if endpoint.body_media else JSON
        # Clients usually send exactly this value, so comparing bytes avoids parsing the header.
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
        # An empty body needs no content type.
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
    # Refuse by the declared length before reading. A missing or wrong length is noticed while reading.
    declared = headers.get(b"content-length", b"")
    if declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    chunks: list[bytes] = []
    length = 0
    while True:
        message: Any = await receive()
        if message["type"] == "http.disconnect":
            raise Malformed("the body is incomplete", field="body")
        chunk: bytes = message["body"]
        length += len(chunk)
        if length > limit:
            raise _too_large(limit)
        # The usual body is one message; return it without a copy.
        if not message["more_body"] and not chunks:
            return chunk
        chunks.append(chunk)
        if not message["more_body"]:
            return b"".join(chunks)


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
