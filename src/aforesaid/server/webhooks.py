"""Send signed requests to webhooks, only to hosts that the operator allows.

A target is refused unless a setting lists its host. The name is resolved once, each address is checked, and
the connection goes to that address: a name that points to an internal address later gains nothing. Redirects
are not followed, and proxies of the environment are not used.
"""

import http.client
import ipaddress
import logging
import socket
import ssl
from collections.abc import Iterable
from functools import cache
from urllib.parse import SplitResult

from aforesaid.errors import NotAllowed
from aforesaid.model.webhooks import is_loopback, parse_webhook_url
from aforesaid.telemetry import describe

log = logging.getLogger("aforesaid.server")

# Seconds for connecting, and for each read of an answer.
TIMEOUT_SECONDS = 10.0
_PORTS = {"https": 443, "http": 80}


class WebhookHosts:
    """The hosts to which notifications may be sent."""

    def __init__(self, hosts: str) -> None:
        self._allowed = frozenset(one.strip().lower() for one in hosts.split(",") if one.strip())

    def __bool__(self) -> bool:
        return bool(self._allowed)

    def check(self, url: str) -> SplitResult:
        """Return the parts of an allowed address. Raise `NotAllowed`, or `InvalidInput` for no valid one."""
        parts = parse_webhook_url(url)
        host, port = (parts.hostname or "").lower(), parts.port or _PORTS[parts.scheme]
        shown = f"[{host}]" if ":" in host else host
        if not {f"{shown}:{port}"} & self._allowed and not (
            shown in self._allowed and port == _PORTS[parts.scheme]
        ):
            raise NotAllowed(f"the server sends no webhooks to {shown}:{port}; see the setting webhook_hosts")
        return parts


def post(parts: SplitResult, body: bytes, headers: dict[str, str]) -> int | None:
    """Send a request; return the status of the answer, or None if there is none. This blocks."""
    host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
    try:
        connection.sock = _connected(host, port, secure=parts.scheme == "https")
        connection.request("POST", path, body, headers)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException, ValueError) as error:
        log.info("the webhook at %s:%d cannot be reached: %s", host, port, describe(error))
        return None
    finally:
        connection.close()


def _connected(host: str, port: int, *, secure: bool) -> socket.socket:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    address = checked_address(host, [str(one[4][0]) for one in found])
    plain = socket.create_connection((address, port), timeout=TIMEOUT_SECONDS)
    if not secure:
        return plain
    try:
        return _tls().wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise


def checked_address(host: str, addresses: Iterable[str]) -> str:
    """Return the address to connect to. A name must not lead to an internal address.

    The operator may list an internal address itself, or `localhost`.
    """
    found = list(addresses)
    if not found:
        raise OSError("the name has no address")
    if not _is_literal(host) and not is_loopback(host):
        for address in found:
            if not ipaddress.ip_address(address.partition("%")[0]).is_global:
                raise OSError("the name leads to an internal address")
    return found[0]


def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()
