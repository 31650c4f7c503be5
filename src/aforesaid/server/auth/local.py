"""Decide whether a request to a server without keys comes from a program on this machine.

A server without keys listens on loopback only. Three kinds of other requests can still reach it and are
refused:

- forwarded requests: behind a reverse proxy, tunnel or CDN every request looks local;
- cross-site requests of a browser, by `Origin`, `Sec-Fetch-Site`, or a foreign `Host` (DNS rebinding);
- requests from another address, if a program serves the application on a public one.

A proxy that adds no header and uses HTTP/1.1 cannot be detected.
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
"""Headers that only proxies add."""
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
"""Prefixes of headers that only proxies add."""
OWN_SITE = (b"same-origin", b"none")
"""Values of `Sec-Fetch-Site` for requests of this server's pages or of the user."""

_PROXIED = (
    "without keys, the server refuses requests through a proxy: create a key with "
    "`aforesaid keys create --owner NAME`"
)
_FOREIGN = "without keys, the server accepts requests from this machine only"


def check_address(scope: Mapping[str, Any]) -> None:
    """Refuse a connection from another machine. A Unix socket has no address. Raises `NotAllowed`."""
    client = scope.get("client")
    if client is not None and not _is_local_name(str(client[0])):
        raise NotAllowed(_FOREIGN)


def check_request(scope: Mapping[str, Any]) -> None:
    """Refuse a request that does not come from a program on this machine. Raises `NotAllowed`."""
    if scope.get("http_version") == "1.0":
        raise NotAllowed(_PROXIED)  # the default of nginx
    check_headers({name.lower(): value for name, value in scope["headers"]})
    check_address(scope)


def check_headers(headers: Mapping[bytes, bytes]) -> None:
    """Refuse headers of proxies and other sites. Names are in lower case. Raises `NotAllowed`."""
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
    """Return whether one of these headers was added by a proxy."""
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
