"""Build the application from routes, authentication, limits and telemetry."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from litestar import Litestar
from litestar.exceptions import HTTPException
from litestar.plugins import PluginProtocol
from litestar.plugins.core import MsgspecDIPlugin
from litestar.types import ControllerRouterHandler, Middleware

from aforesaid._internal.deadlines import ended
from aforesaid.contracts import Transcriber
from aforesaid.errors import AforesaidError
from aforesaid.memory.opening import Memory
from aforesaid.server import problems
from aforesaid.server.assistants import assistants_for, close_with_server
from aforesaid.server.auth.authenticator import Authenticator
from aforesaid.server.auth.callers import parse_scope
from aforesaid.server.auth.keys import ApiKeys
from aforesaid.server.auth.tokens import TokenRules, Tokens
from aforesaid.server.calls import Assistant, Service
from aforesaid.server.connections import connection_limits_for, file_handles
from aforesaid.server.endpoints import Endpoint, route_handler
from aforesaid.server.guard import local_only
from aforesaid.server.instrumentation import Instrumentation
from aforesaid.server.limits import ConcurrencyLimit, Limits
from aforesaid.server.live.handler import live_handler
from aforesaid.server.live.hub import Hub
from aforesaid.server.live.limits import LiveLimits
from aforesaid.server.live.services import ServerServices, open_while_serving
from aforesaid.server.openapi import VERSION, openapi_document
from aforesaid.server.pages import pages
from aforesaid.server.routes import (
    changes,
    contacts,
    contexts,
    conversations,
    messages,
    notes,
    retention,
    search,
    sessions,
    stats,
    summaries,
)
from aforesaid.server.routes.operations import operations
from aforesaid.settings import ServerConfig, Settings
from aforesaid.telemetry import telemetry
from aforesaid.telemetry.aggregation import SharedNumbers, folder_from_environment

NOUNS = (
    conversations,
    messages,
    contexts,
    summaries,
    sessions,
    search,
    notes,
    contacts,
    retention,
    changes,
    stats,
)

ENDPOINTS: tuple[Endpoint, ...] = tuple(each for noun in NOUNS for each in noun.routes.endpoints)
"""Every route under `/v1`."""

Lifespan = Callable[[Litestar], AbstractAsyncContextManager[None]]


class Application(Litestar):
    """Litestar with the msgspec plugin only.

    By default Litestar imports every supported library that is installed, which costs about 10 MB.
    """

    @staticmethod
    def _get_default_plugins(plugins: list[PluginProtocol]) -> list[PluginProtocol]:
        return [*plugins, MsgspecDIPlugin()]


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
) -> Litestar:
    """Return the server as an application. The caller opens and closes the memory.

    - `assistant` creates the assistant of an owner. Default: from the settings.
    - `transcriber` transcribes audio. Default: from the settings.
    - `open_without_keys` accepts local requests without a key until the first key is created.

    `app.state.service` is shared by all routes, `app.state.live` by all WebSocket connections.
    """
    settings = settings or Settings()
    assistants = assistants_for(settings)
    live_limits = live_limits or live_limits_for(settings.server)
    service = Service(
        memory,
        settings,
        authenticator=authenticator
        or authenticator_for(memory, settings.server, open_without_keys=open_without_keys),
        limits=limits_for(settings.server),
        concurrency=ConcurrencyLimit(live_limits.connections_per_key),
        assistant=assistant or assistants.assistants.of,
        transcriber=transcriber or assistants.transcriber,
    )
    metrics = SharedNumbers(folder_from_environment())
    live = Hub(
        ServerServices(service),
        service.authenticator,
        live_limits,
        rates=service.limits,
        concurrency=service.concurrency,
    )
    app = (Litestar if route_handlers else Application)(
        route_handlers=[
            *operations(service, metrics),
            *pages(openapi_document(ENDPOINTS)),
            *(route_handler(endpoint, service) for endpoint in ENDPOINTS),
            live_handler(live),
            *route_handlers,
        ],
        middleware=list(middleware),
        guards=[local_only(service)] if service.authenticator.may_be_open else [],
        lifespan=[
            _share_metrics(metrics),
            open_while_serving(live),
            close_with_server(assistants),
            *lifespan,
        ],
        exception_handlers={
            HTTPException: problems.from_framework,
            AforesaidError: problems.from_aforesaid,
            Exception: problems.from_unexpected,
        },
        request_max_body_size=settings.server.max_body_kb * 1024,
        openapi_config=None,
        logging_config=None,
    )
    app.state.service = service
    app.state.live = live
    app.asgi_handler = Instrumentation(app.asgi_handler)
    _register_process_gauges()
    return app


def _share_metrics(metrics: SharedNumbers) -> Lifespan:
    """Return a lifespan that shares this process's metrics with the other workers."""

    @asynccontextmanager
    async def sharing(_: Litestar) -> AsyncIterator[None]:
        writing = asyncio.create_task(metrics.keep_writing(), name="aforesaid-metrics")
        try:
            yield
        finally:
            await ended(writing)

    return sharing


def _register_process_gauges() -> None:
    """Register the gauges for version and start time."""
    began = time.time()
    telemetry.gauge("aforesaid_build_info", "", lambda: 1.0, version=VERSION)
    telemetry.gauge("aforesaid_start_time_seconds", "", lambda: began)


def authenticator_for(memory: Memory, settings: ServerConfig, *, open_without_keys: bool) -> Authenticator:
    """Return the authenticator for the settings and the keys in the store."""
    return Authenticator(
        ApiKeys(memory.backend),
        tokens_for(settings),
        open_for=settings.owner if open_without_keys and not settings.require_keys else None,
        grace=float(settings.key_grace_seconds),
    )


def tokens_for(settings: ServerConfig) -> Tokens | None:
    """Return the token verifier, or None if the settings name no issuer."""
    if not (settings.jwt_issuer or settings.jwt_jwks or settings.jwt_audience):
        return None
    rules = TokenRules(
        issuer=settings.jwt_issuer,
        audience=settings.jwt_audience,
        jwks=settings.jwt_jwks,
        leeway=settings.jwt_leeway,
        scope=parse_scope(settings.jwt_scope),
    )
    return Tokens(rules)


def live_limits_for(settings: ServerConfig) -> LiveLimits:
    """Return the WebSocket limits of the settings."""
    return LiveLimits(
        frame_bytes=settings.live_frame_kb * 1024,
        frames_per_second=float(settings.live_rate),
        burst=settings.live_rate * 4,
        connections=max(1, min(settings.live_connections, 3 * file_handles() // 10)),
        unknown_connections=connection_limits_for(settings).waiting,
        connections_per_key=settings.live_connections_per_key,
        heartbeat_seconds=float(settings.live_heartbeat),
        drain_seconds=float(settings.drain_seconds),
    )


def limits_for(settings: ServerConfig) -> Limits:
    return Limits(
        {
            "read": settings.rate_read,
            "write": settings.rate_write,
            "search": settings.rate_search,
            "ask": settings.rate_ask,
        }
    )
