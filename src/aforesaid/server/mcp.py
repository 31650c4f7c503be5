"""`/mcp`: the tools of `aforesaid.mcp` over streamable HTTP, with the keys and limits of every other route.

The protocol library takes a second and many megabytes to import, so the first request loads it.
"""

import asyncio
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from litestar import Request, asgi, get
from litestar.handlers import ASGIRouteHandler, HTTPRouteHandler
from litestar.types import ASGIApp, Receive, Scope, Send
from msgspec.structs import replace

from aforesaid._internal.tasks import ended
from aforesaid.errors import AccessError, AforesaidError, MissingExtra, NotAuthenticated
from aforesaid.server.auth.authenticator import wanted_owner, wanted_participant
from aforesaid.server.auth.keys import SCOPES, Caller
from aforesaid.server.responses import Response, json_response, problem_response
from aforesaid.server.service import Service

if TYPE_CHECKING:
    from aforesaid.mcp.server import Effort
    from aforesaid.mcp.tools import Access

PATH = "/mcp"
METADATA = "/.well-known/oauth-protected-resource/mcp"

# The caller, the owner and the source address of the current request.
_caller: ContextVar[tuple[Caller, str, str]] = ContextVar("aforesaid_mcp_caller")


class McpEndpoint:
    """The protocol server of one application, started by the first request."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._starting = asyncio.Lock()
        self._app: Any = None
        self._running: asyncio.Task[None] | None = None

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Authenticate the request and pass it to the protocol server."""
        request: Request[Any, Any, Any] = Request(scope)
        try:
            caller, owner = await self._authenticate(dict(scope["headers"]))
            app = await self._started()
        except AforesaidError as error:
            response = await self._refusal(error, request)
            await response(scope, receive, send)
            return
        _caller.set((caller, owner, _source(scope)))
        # Routes of the protocol server match the whole path.
        await app({**scope, "path": PATH, "raw_path": PATH.encode(), "root_path": ""}, receive, send)

    async def _authenticate(self, headers: dict[bytes, bytes]) -> tuple[Caller, str]:
        caller = await self._service.authenticator.authenticate(headers)
        caller.check("read")
        # The participant of the request becomes the caller's: nothing else of the request is kept.
        caller = replace(caller, participant=caller.participant_for(wanted_participant(headers)))
        return caller, caller.owner_for(wanted_owner(headers))

    async def _refusal(self, error: AforesaidError, request: "Request[Any, Any, Any]") -> Response:
        if isinstance(error, AccessError):
            await self._service.note_refusal("POST /mcp", error, source=_source(request.scope))
        response = problem_response(error)
        issuer = self._service.settings.server.jwt_issuer
        if isinstance(error, NotAuthenticated) and issuer:
            where = f"{_base_url(request)}{METADATA}"
            asked = (b"www-authenticate", f'Bearer resource_metadata="{where}"'.encode())
            others = [one for one in response.headers if one[0] != asked[0]]
            response.headers = (*others, asked)
        return response

    async def _started(self) -> Any:
        async with self._starting:
            if self._app is None:
                self._app = await asyncio.to_thread(_build, self._access)
                ready = asyncio.Event()
                self._running = asyncio.create_task(_run(self._app, ready), name="aforesaid-mcp")
                await ready.wait()
            return self._app

    def _access(self, effort: "Effort") -> "Access":
        from aforesaid.mcp.tools import Access

        caller, owner, source = _caller.get()
        self._service.limits.take(caller.name, effort)
        manager = self._service.manager_for(caller, owner, source=source)
        return Access(manager=manager, scope="read" if caller.scope == "read" else "write")

    async def close(self) -> None:
        """End the protocol server."""
        if self._running is not None:
            await ended(self._running)
            self._running = None


async def _run(app: Any, ready: asyncio.Event) -> None:
    """Keep the session manager entered; one task must enter and leave it."""
    async with app.state.sessions.run():
        ready.set()
        await asyncio.Event().wait()


def _build(access: Any) -> Any:
    try:
        from mcp.server.transport_security import TransportSecuritySettings

        from aforesaid.mcp.server import create_server
    except ImportError as error:
        if (error.name or "").startswith("aforesaid"):
            raise
        raise MissingExtra("the MCP server", extra="mcp") from None
    server = create_server(access)
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        stateless_http=True,
        json_response=True,
        # Keys protect the route, and without keys the authenticator accepts local requests only.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    app.state.sessions = server.session_manager
    return app


def mcp_handlers(service: Service, endpoint: McpEndpoint) -> list[ASGIRouteHandler | HTTPRouteHandler]:
    """Return the routes: the protocol, and where its tokens come from if an issuer is configured."""

    @asgi(PATH, copy_scope=True)
    async def protocol(scope: Scope, receive: Receive, send: Send) -> None:
        await endpoint.handle(scope, receive, send)

    @get(METADATA, include_in_schema=False, opt={"public": True})
    async def metadata(request: Request) -> ASGIApp:  # type: ignore[type-arg]
        return json_response(
            {
                "resource": f"{_base_url(request)}{PATH}",
                "authorization_servers": [service.settings.server.jwt_issuer],
                "scopes_supported": list(SCOPES),
                "bearer_methods_supported": ["header"],
            }
        )

    return [protocol, *([metadata] if service.settings.server.jwt_issuer else [])]


def _base_url(request: "Request[Any, Any, Any]") -> str:
    return str(request.base_url).rstrip("/")


def _source(scope: Any) -> str:
    client = scope.get("client")
    return "" if client is None else str(client[0])
