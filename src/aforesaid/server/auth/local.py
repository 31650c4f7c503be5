"""Decide whether a request to a server without keys comes from a program on this machine.

A server without keys listens on loopback only. Three kinds of requests reach it all the same and are refused:

- forwarded ones: a reverse proxy, a tunnel or a CDN in front of the server makes every request look local;
- those that a web page of another site makes a browser send: `Origin`, `Sec-Fetch-Site`, or a foreign name in
  `Host` that an attacker made to point here;
- those from another address, where a program of its own serves the application on one.

A forwarder that adds no header and speaks HTTP/1.1 cannot be recognised.
"""

from collections.abc import Iterable, Mapping
from ipaddress import IPv6Address, ip_address
from typing import Any
from urllib.parse import urlsplit

from aforesaid.errors import NotAllowed

FORWARDED = frozenset(
    {
        b"forwarded",
        b"via",
        b"x-real-ip",
        b"x-client-ip",
        b"x-cluster-client-ip",
        b"x-originating-ip",
        b"x-remote-ip",
        b"x-remote-addr",
        b"x-proxyuser-ip",
        b"x-scheme",
        b"x-url-scheme",
        b"client-ip",
        b"true-client-ip",
        b"cdn-loop",
        b"proxy-connection",
        b"max-forwards",
        b"x-arr-log-id",
    }
)
"""Headers that only a forwarder adds."""
FORWARDED_PREFIXES = (
    b"x-forwarded",
    b"x-original-",
    b"x-proxy-",
    b"x-envoy-",
    b"x-amzn-",
    b"x-amz-cf-",
    b"x-azure-",
    b"x-appengine-",
    b"x-vercel-",
    b"x-nginx-",
    b"cf-",
    b"fastly-",
    b"fly-",
    b"tailscale-",
    b"ngrok-",
)
"""How such headers begin."""
OWN_SITE = (b"same-origin", b"none")
"""Values of `Sec-Fetch-Site` of requests that a page of this server, or the person at the browser, makes."""

_PROXIED = (
    "without keys, the server answers no request that came through a proxy: make a key with "
    "`aforesaid keys create --owner NAME`"
)
_FOREIGN = "without keys, the server answers programs on this machine only"


def check_address(scope: Mapping[str, Any]) -> None:
    """Refuse a connection from another machine. A Unix socket has no address. Raises `NotAllowed`."""
    client = scope.get("client")
    if client is not None and not _is_local_name(str(client[0])):
        raise NotAllowed(_FOREIGN)


def check_request(scope: Mapping[str, Any]) -> None:
    """Refuse a request that does not come from a program on this machine. Raises `NotAllowed`."""
    if scope.get("http_version") == "1.0":
        raise NotAllowed(_PROXIED)  # what nginx sends unless its configuration says otherwise
    check_headers({name.lower(): value for name, value in scope["headers"]})
    check_address(scope)


def check_headers(headers: Mapping[bytes, bytes]) -> None:
    """Refuse headers that no program on this machine sends. Names are in lower case. Raises `NotAllowed`."""
    if is_forwarded(headers):
        raise NotAllowed(_PROXIED)
    host = headers.get(b"host", b"localhost").decode("latin-1")
    origin = headers.get(b"origin")
    site = headers.get(b"sec-fetch-site")
    if (
        not _is_local(f"//{host}")
        or (origin is not None and not _is_local(origin.decode("latin-1")))
        or (site is not None and site.strip().lower() not in OWN_SITE)
    ):
        raise NotAllowed(_FOREIGN)


def is_forwarded(names: Iterable[bytes]) -> bool:
    """Whether one of these headers shows that a proxy forwarded the request."""
    return any(name in FORWARDED or name.startswith(FORWARDED_PREFIXES) for name in names)


def _is_local(url: str) -> bool:
    try:
        return _is_local_name(urlsplit(url).hostname or "")
    except ValueError:
        return False


def _is_local_name(name: str) -> bool:
    if name == "localhost":
        return True
    try:
        address = ip_address(name)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback
