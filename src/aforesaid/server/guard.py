"""Refuse requests that are not local on every route of a server without keys.

The authenticator refuses them on routes that authenticate. This guard covers the others: pages, and routes
that a program adds to the application.
"""

from typing import Any

from litestar.connection import ASGIConnection
from litestar.enums import ScopeType
from litestar.handlers import BaseRouteHandler
from litestar.types import Guard

from aforesaid.errors import NotAllowed
from aforesaid.server.auth.local import check_address, check_request
from aforesaid.server.calls import Service, source_of

PUBLIC = {"public": True}
"""`opt` of routes without access control: health checks, which come through proxies."""

Connection = ASGIConnection[Any, Any, Any, Any]


def local_only(service: Service) -> Guard:
    """Return the guard of an application that accepts requests without keys."""

    async def guard(connection: Connection, handler: BaseRouteHandler) -> None:
        if not service.authenticator.may_be_open or handler.opt.get("public"):
            return
        try:
            _check(connection)
        except NotAllowed as error:
            if await service.authenticator.is_open():
                await service.note_refusal(_action(connection), error, source=source_of(connection))
                raise

    return guard


def _check(connection: Connection) -> None:
    """Check the origin. A WebSocket's headers are checked with its hello, which may contain a key."""
    if connection.scope["type"] == ScopeType.WEBSOCKET:
        check_address(connection.scope)
    else:
        check_request(connection.scope)


def _action(connection: Connection) -> str:
    """Return method and route template. The path itself may contain a search query."""
    method = connection.scope.get("method", "WS")
    return f"{method} {connection.scope.get('path_template', '')}".replace(" /v1/", " /")
