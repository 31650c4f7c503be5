"""Build the application: middleware around Litestar around the routes."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import cache
from typing import Any

from litestar import Litestar
from litestar.connection import ASGIConnection
from litestar.enums import ScopeType
from litestar.exceptions import HTTPException
from litestar.handlers import BaseRouteHandler
from litestar.plugins import PluginProtocol
from litestar.plugins.core import MsgspecDIPlugin
from litestar.types import (
    ASGIApp,
    ControllerRouterHandler,
    ExceptionHandlersMap,
    Guard,
    Middleware,
    Receive,
    Scope,
    Send,
)

from aforesaid._internal.tasks import ended
from aforesaid.agents.configured import Assistants
from aforesaid.contracts import ServerBacked, Transcriber, capability
from aforesaid.errors import AforesaidError, NotAllowed
from aforesaid.memory.opening import Memory
from aforesaid.server import responses
from aforesaid.server.auth.authenticator import Authenticator, authenticator_for, check_address, check_request
from aforesaid.server.auth.keys import ApiKeys
from aforesaid.server.console_files import console_routes
from aforesaid.server.documentation import documentation
from aforesaid.server.endpoints import Endpoint
from aforesaid.server.health_series import HealthHistory
from aforesaid.server.instrumentation import Instrumentation
from aforesaid.server.limits import (
    ConcurrencyLimit,
    LiveLimits,
    admission_for,
    limits_for,
    live_limits_for,
)
from aforesaid.server.live.handler import ServerServices, live_handler
from aforesaid.server.live.hub import Hub
from aforesaid.server.mcp import McpEndpoint, mcp_handlers
from aforesaid.server.openapi import VERSION, openapi_document
from aforesaid.server.pages import RenderedDocument, pages, render
from aforesaid.server.requests import route_handlers
from aforesaid.server.routes import (
    access,
    analytics,
    audit,
    branches,
    contacts,
    contexts,
    conversations,
    documents,
    messages,
    notes,
    operations,
    participants,
    retention,
    search,
    sessions,
    webhooks,
)
from aforesaid.server.routes.operations import DeliversChanges
from aforesaid.server.service import Assistant, Service, source_of
from aforesaid.server.shared_rates import SharedRates
from aforesaid.server.webhook_deliveries import WebhookDeliveries
from aforesaid.settings import Settings
from aforesaid.telemetry import telemetry
from aforesaid.telemetry.exposition import SharedNumbers, folder_from_environment
from aforesaid.voice import transcriber_for

ROUTES = (
    conversations.routes,
    branches.routes,
    messages.routes,
    messages.open_turns,
    participants.routes,
    webhooks.routes,
    contexts.routes,
    contexts.summaries,
    sessions.routes,
    search.routes,
    analytics.routes,
    notes.routes,
    documents.routes,
    contacts.routes,
    retention.routes,
    conversations.changes,
    conversations.overview,
    access.routes,
    audit.routes,
)

# Every route under `/v1`, in the order of the documentation.
ENDPOINTS: tuple[Endpoint, ...] = tuple(endpoint for routes in ROUTES for endpoint in routes.endpoints)


Lifespan = Callable[[Litestar], AbstractAsyncContextManager[None]]
Close = Callable[[], Awaitable[None]]
Connection = ASGIConnection[Any, Any, Any, Any]


class Application:
    """The ASGI application: the framework inside `Instrumentation`, which also sees requests without a route.

    `service` is shared by all routes, `live` by all WebSocket connections.
    """

    def __init__(self, framework: Litestar, service: Service, live: Hub) -> None:
        self.framework = framework
        self.service = service
        self.live = live
        self._handle: ASGIApp = Instrumentation(
            framework,
            draining=service.draining.is_set,
            routes=[(endpoint.method, endpoint.full_path) for endpoint in ENDPOINTS],
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Routes match the path as sent: a percent-encoded slash is part of a conversation's name.
        raw_path = scope.get("raw_path") or b""
        if b"%" in raw_path:
            scope["path"] = raw_path.decode("ascii", "replace")
        await self._handle(scope, receive, send)


EXCEPTION_HANDLERS: ExceptionHandlersMap = {
    HTTPException: responses.from_framework,
    AforesaidError: responses.from_aforesaid,
    Exception: responses.from_unexpected,
}


def create_app(
    memory: Memory,
    settings: Settings | None = None,
    *,
    authenticator: Authenticator | None = None,
    assistant: Assistant | None = None,
    transcriber: Transcriber | None = None,
    live_limits: LiveLimits | None = None,
    open_without_keys: bool = False,
    route_handlers: Sequence[ControllerRouterHandler] = (),
    middleware: Sequence[Middleware] = (),
    lifespan: Sequence[Lifespan] = (),
) -> Application:
    """Return the server as an ASGI application. The caller opens and closes the memory.

    - `assistant` creates the assistant of an owner. Default: from the settings.
    - `transcriber` transcribes audio. Default: from the settings.
    - `open_without_keys` accepts local requests without a key until the first key is created.
    - `route_handlers`, `middleware` and `lifespan` are added to the Litestar application.
    """
    settings = settings or Settings()
    assistants, own_transcriber = Assistants(settings.agent), transcriber_for(settings.voice)
    live_limits = live_limits or live_limits_for(settings.server)
    metrics = SharedNumbers(folder_from_environment())
    service = Service(
        memory,
        settings,
        history=HealthHistory(metrics, folders=operations.data_folders(memory)),
        authenticator=authenticator
        or authenticator_for(ApiKeys(memory.backend), settings.server, open_without_keys=open_without_keys),
        limits=limits_for(settings.server),
        admission=admission_for(settings.server),
        concurrency=ConcurrencyLimit(live_limits.connections_per_key),
        assistant=assistant or assistants.of,
        transcriber=transcriber or own_transcriber,
    )
    live = _hub(service, live_limits)
    mcp = McpEndpoint(service)
    rates = SharedRates(service.limits, memory.backend) if _is_shared(memory) else None
    deliveries = WebhookDeliveries(memory, service.webhook_hosts, live.presences)
    closing = [mcp.close, assistants.close, *([] if own_transcriber is None else [own_transcriber.close])]
    framework = (Litestar if route_handlers else LeanLitestar)(
        route_handlers=[
            *_handlers(service, live, metrics),
            *mcp_handlers(service, mcp),
            *route_handlers,
        ],
        middleware=list(middleware),
        guards=[local_only(service)] if service.authenticator.may_be_open else [],
        lifespan=[_lifespan(live, metrics, closing, service.history, deliveries, rates), *lifespan],
        exception_handlers=EXCEPTION_HANDLERS,
        # Routes of our own read bodies themselves; this limit is for added routes.
        request_max_body_size=service.body_limit,
        openapi_config=None,
        logging_config=None,
    )
    _register_gauges(memory)
    return Application(framework, service, live)


def _hub(service: Service, limits: LiveLimits) -> Hub:
    return Hub(
        ServerServices(service),
        service.authenticator,
        limits,
        rates=service.limits,
        concurrency=service.concurrency,
    )


def _handlers(service: Service, live: Hub, metrics: SharedNumbers) -> list[ControllerRouterHandler]:
    return [
        *operations.operations(service, metrics),
        *pages(_rendered_document()),
        *documentation(service.settings.server.docs_folder),
        *console_routes(),
        *route_handlers(ENDPOINTS, service),
        live_handler(live),
    ]


@cache
def _rendered_document() -> RenderedDocument:
    """Render the document once per process: it is the same for all applications, and takes a fifth of the
    time of creating one.
    """
    return render(openapi_document(ENDPOINTS))


class LeanLitestar(Litestar):
    """Litestar with the msgspec plugin only.

    By default Litestar imports Pydantic and attrs if they are installed, which costs about 10 MB. It has no
    option to prevent that, so this overrides the method that chooses the plugins; a test notices when a new
    version no longer calls it.
    """

    @staticmethod
    def _get_default_plugins(plugins: list[PluginProtocol]) -> list[PluginProtocol]:
        return [*plugins, MsgspecDIPlugin()]


def _lifespan(
    live: Hub,
    metrics: SharedNumbers,
    closing: Sequence[Close],
    history: HealthHistory,
    deliveries: WebhookDeliveries,
    rates: SharedRates | None,
) -> Lifespan:
    """Return a lifespan that shares metrics with the other workers, and at the end closes what we opened."""

    @asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncIterator[None]:
        writing = asyncio.create_task(metrics.keep_writing(), name="aforesaid-metrics")
        # The stack calls these in reverse order: answers in progress need their assistants.
        async with AsyncExitStack() as stack:
            stack.push_async_callback(ended, writing)
            sampling = asyncio.create_task(history.keep_sampling(), name="aforesaid-health")
            stack.push_async_callback(ended, sampling)
            stack.push_async_callback(ended, *deliveries.start())
            if rates is not None:
                stack.push_async_callback(rates.close)
                stack.push_async_callback(ended, asyncio.create_task(rates.run(), name="aforesaid-rates"))
            for close in closing:
                stack.push_async_callback(close)
            stack.push_async_callback(live.close)
            stack.push_async_callback(live.drain)
            yield

    return lifespan


def _is_shared(memory: Memory) -> bool:
    """Return whether other processes may serve the same callers: other workers, or other servers."""
    return folder_from_environment() is not None or capability(memory.backend, ServerBacked) is not None


def _register_gauges(memory: Memory) -> None:
    """Register the gauges for version, start time, and polling for changes."""
    began = time.time()
    delivering = memory.layer(DeliversChanges)
    if delivering is not None:
        telemetry.gauge("aforesaid_changes_polled", "", lambda: float(delivering.changes_are_polled))
    telemetry.gauge("aforesaid_build_info", "", lambda: 1.0, version=VERSION)
    telemetry.gauge("aforesaid_start_time_seconds", "", lambda: began)


# Servers without keys


def local_only(service: Service) -> Guard:
    """Return a guard that refuses requests from elsewhere while no key exists.

    The authenticator does the same on routes that authenticate. The guard covers the others: pages, and
    routes that a program adds to the application.
    """

    async def guard(connection: Connection, handler: BaseRouteHandler) -> None:
        if not service.authenticator.may_be_open or handler.opt.get("public"):
            return
        try:
            _check_origin(connection)
        except NotAllowed as error:
            if await service.authenticator.is_open():
                await service.note_refusal(_action(connection), error, source=source_of(connection))
                raise

    return guard


def _check_origin(connection: Connection) -> None:
    # A WebSocket's headers are checked with its hello, which may contain a key.
    if connection.scope["type"] == ScopeType.WEBSOCKET:
        check_address(connection.scope)
    else:
        check_request(connection.scope)


def _action(connection: Connection) -> str:
    """Return method and route template for the audit trail. The path is the caller's text."""
    method = connection.scope.get("method", "WS")
    return f"{method} {connection.scope.get('path_template', '')}".replace(" /v1/", " /")
