"""Routes: how a module of `routes/` declares them, and the call that a handler gets.

    routes = Routes("conversations")

    @routes.get("/conversations/{conversation_id}", response=ConversationBody, revised=True)
    async def get_conversation(call: Call[NoBody, NoQuery]) -> Reply: ...

The application (`requests.py`) and the OpenAPI document (`openapi.py`) are generated from the endpoints.
"""

import re
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

from litestar import Request
from msgspec import Struct

from aforesaid.errors import InvalidInput, shown
from aforesaid.memory.manager import ConversationManager
from aforesaid.server.auth.authenticator import Headers
from aforesaid.server.auth.callers import AccessScope, Caller
from aforesaid.server.limits import RouteClass
from aforesaid.server.responses import Response, StreamingResponse
from aforesaid.server.service import Service

PREFIX = "/v1"
PARAMETER = re.compile(r"\{(\w+)\}")
"""A path parameter in a route template."""

B = TypeVar("B")
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
