"""Refuse requests from elsewhere on every route of a server without keys, also on routes that need no key.

The gate refuses them too, where a route asks it. This guard covers the rest: pages, and routes that a program
adds to the application. A new route is covered without doing anything for it.
"""

from typing import Any

from litestar.connection import ASGIConnection
from litestar.enums import ScopeType
from litestar.handlers import BaseRouteHandler
from litestar.types import Guard

from aforesaid.errors import NotAllowed
from aforesaid.server.auth.local import check_address, check_request
from aforesaid.server.calls import Service, source_of

ANSWERS_EVERYBODY = {"answers_everybody": True}
"""`opt` of routes that answer whoever asks: health checks, which come through proxies."""

Connection = ASGIConnection[Any, Any, Any, Any]


def local_only(service: Service) -> Guard:
    """The guard of an application that may be open without keys."""

    async def guard(connection: Connection, handler: BaseRouteHandler) -> None:
        if not service.gate.may_be_open or handler.opt.get("answers_everybody"):
            return
        try:
            _check(connection)
        except NotAllowed as error:
            if await service.gate.is_open():
                await service.note_refusal(_action(connection), error, source=source_of(connection))
                raise

    return guard


def _check(connection: Connection) -> None:
    """The headers of a WebSocket are checked with its hello, which can bring a key."""
    if connection.scope["type"] == ScopeType.WEBSOCKET:
        check_address(connection.scope)
    else:
        check_request(connection.scope)


def _action(connection: Connection) -> str:
    """The method and the template of the route: a path may hold what somebody looks for."""
    method = connection.scope.get("method", "WS")
    return f"{method} {connection.scope.get('path_template', '')}".replace(" /v1/", " /")
