"""The application: every route and what stands around them. Below: routes, auth. Above: running."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from litestar import Litestar
from litestar.exceptions import HTTPException
from litestar.plugins import PluginProtocol
from litestar.plugins.core import MsgspecDIPlugin
from litestar.types import ControllerRouterHandler, Middleware

from recollect.contracts import Transcriber
from recollect.deadlines import ended
from recollect.errors import RecollectError
from recollect.memory import Memory
from recollect.server import problems
from recollect.server.auth.callers import parse_reach
from recollect.server.auth.gate import Gate
from recollect.server.auth.keys import ApiKeys
from recollect.server.auth.tokens import TokenRules, Tokens
from recollect.server.calls import Assistant, Service
from recollect.server.connections import connection_limits_for, file_handles
from recollect.server.endpoints import Endpoint, route_handler
from recollect.server.guarding import local_only
from recollect.server.hosts import closing, hosts_for
from recollect.server.limits import Limits, Openings
from recollect.server.live.handler import live_handler
from recollect.server.live.limits import LiveLimits
from recollect.server.live.room import LiveRoom
from recollect.server.live.staff import ServerStaff, open_while_serving
from recollect.server.observing import Observing
from recollect.server.openapi import VERSION, openapi_document
from recollect.server.pages import pages
from recollect.server.routes import (
    changes,
    contexts,
    conversations,
    keeping,
    messages,
    noting,
    overview,
    people,
    searching,
    sessions,
    summarizing,
)
from recollect.server.routes.operations import operations
from recollect.settings import ServerConfig, Settings
from recollect.telemetry import telemetry
from recollect.telemetry.sharing import SharedNumbers, folder_from_environment

NOUNS = (
    conversations,
    messages,
    contexts,
    summarizing,
    sessions,
    searching,
    noting,
    people,
    keeping,
    changes,
    overview,
)

ENDPOINTS: tuple[Endpoint, ...] = tuple(each for noun in NOUNS for each in noun.routes.endpoints)
"""Every route under the prefix."""

Lifespan = Callable[[Litestar], AbstractAsyncContextManager[None]]


class Application(Litestar):
    """The framework for our own routes, which know msgspec's values alone. What else is installed that it
    could serve, for other reasons, is not loaded: some ten megabytes."""

    @staticmethod
    def _get_default_plugins(plugins: list[PluginProtocol]) -> list[PluginProtocol]:
        return [*plugins, MsgspecDIPlugin()]


def create_app(
    memory: Memory,
    settings: Settings | None = None,
    *,
    gate: Gate | None = None,
    assistant: Assistant | None = None,
    transcriber: Transcriber | None = None,
    live_limits: LiveLimits | None = None,
    open_without_keys: bool = False,
    route_handlers: Sequence[ControllerRouterHandler] = (),
    middleware: Sequence[Middleware] = (),
    lifespan: Sequence[Lifespan] = (),
) -> Litestar:
    """The server as an application, over a memory that somebody else opened and closes.

    `assistant` gives who answers for an owner, `transcriber` understands what is said by voice; without
    them, those whom the settings name. `open_without_keys`: whether a server for which no key was made
    answers programs on this machine. `app.state.service` is what its routes share, `app.state.live` what its
    WebSocket connections do.
    """
    settings = settings or Settings()
    hosts = hosts_for(settings)
    live_limits = live_limits or live_limits_for(settings.server)
    service = Service(
        memory,
        settings,
        gate=gate or gate_for(memory, settings.server, open_without_keys=open_without_keys),
        limits=limits_for(settings.server),
        openings=Openings(live_limits.connections_per_key),
        assistant=assistant or hosts.assistants.of,
        transcriber=transcriber or hosts.transcriber,
    )
    numbers = SharedNumbers(folder_from_environment())
    live = LiveRoom(
        ServerStaff(service), service.gate, live_limits, rates=service.limits, openings=service.openings
    )
    app = (Litestar if route_handlers else Application)(
        route_handlers=[
            *operations(service, numbers),
            *pages(openapi_document(ENDPOINTS)),
            *(route_handler(endpoint, service) for endpoint in ENDPOINTS),
            live_handler(live),
            *route_handlers,
        ],
        middleware=list(middleware),
        guards=[local_only(service)] if service.gate.may_be_open else [],
        lifespan=[_sharing(numbers), open_while_serving(live), closing(hosts), *lifespan],
        exception_handlers={
            HTTPException: problems.from_framework,
            RecollectError: problems.from_us,
            Exception: problems.unexpected,
        },
        request_max_body_size=settings.server.max_body_kb * 1024,
        openapi_config=None,
        logging_config=None,
    )
    app.state.service = service
    app.state.live = live
    app.asgi_handler = Observing(app.asgi_handler)
    _introduce()
    return app


def _sharing(numbers: SharedNumbers) -> Lifespan:
    """This process's numbers are there for whichever process is asked for them, while the server runs."""

    @asynccontextmanager
    async def sharing(_: Litestar) -> AsyncIterator[None]:
        writing = asyncio.create_task(numbers.keep_writing(), name="recollect-metrics")
        try:
            yield
        finally:
            await ended(writing)

    return sharing


def _introduce() -> None:
    """What a scraper should know of this process besides its numbers."""
    began = time.time()
    telemetry.gauge("recollect_build_info", "", lambda: 1.0, version=VERSION)
    telemetry.gauge("recollect_start_time_seconds", "", lambda: began)


def gate_for(memory: Memory, settings: ServerConfig, *, open_without_keys: bool) -> Gate:
    """Who is let in, by the settings and the keys in the store."""
    return Gate(
        ApiKeys(memory.backend),
        tokens_for(settings),
        open_for=settings.owner if open_without_keys and not settings.require_keys else None,
        grace=float(settings.key_grace_seconds),
    )


def tokens_for(settings: ServerConfig) -> Tokens | None:
    """JSON Web Tokens, where the settings name an issuer."""
    if not (settings.jwt_issuer or settings.jwt_jwks or settings.jwt_audience):
        return None
    rules = TokenRules(
        issuer=settings.jwt_issuer,
        audience=settings.jwt_audience,
        jwks=settings.jwt_jwks,
        leeway=settings.jwt_leeway,
        scope=parse_reach(settings.jwt_scope),
    )
    return Tokens(rules)


def live_limits_for(settings: ServerConfig) -> LiveLimits:
    """What a WebSocket connection may take, by the settings."""
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
