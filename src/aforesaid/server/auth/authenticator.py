"""Authenticate requests by their headers.

Every invalid credential (missing, unknown, expired, revoked, of another issuer) gets the same response.
Verified keys are cached for `CACHE_SECONDS`, then looked up again. While the store is unavailable, the lookup
fails with `AccessUnverified`, because a key that was revoked elsewhere must not stay valid during an outage.
`grace` trades this for availability. Tokens are verified without the store.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from hashlib import sha256
from ipaddress import IPv6Address, ip_address
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

from msgspec import Struct

from aforesaid._internal.bounded import BoundedDict
from aforesaid.errors import AccessUnverified, InvalidInput, NotAllowed, NotAuthenticated, StoreUnavailable
from aforesaid.model.clock import Clock, system_clock
from aforesaid.protocol import OWNER_HEADER, PARTICIPANT_HEADER
from aforesaid.server.auth.keys import ApiKeys, Caller
from aforesaid.server.auth.tokens import Tokens, tokens_for
from aforesaid.settings import ServerConfig

# Decide whether a request to a server without keys comes from a program on this machine.
#
# A server without keys listens on loopback only. Three kinds of other requests can still reach it and are
# refused:
#
# - forwarded requests: behind a reverse proxy, tunnel or CDN every request looks local;
# - cross-site requests of a browser, by `Origin`, `Sec-Fetch-Site`, or a foreign `Host` (DNS rebinding);
# - requests from another address, if a program serves the application on a public one.
#
# A proxy that adds no header and uses HTTP/1.1 cannot be detected.


# Headers that only proxies add.
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
# Prefixes of headers that only proxies add.
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
# Values of `Sec-Fetch-Site` for requests of this server's pages or of the user.
OWN_SITE = (b"same-origin", b"none")

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


# Seconds that a verified key is cached. A revoked key stays valid for at most as long.
CACHE_SECONDS = 5.0
MAX_CACHED = 4096
LONGEST_CREDENTIAL = 16_384

Headers = Mapping[bytes, bytes]
_OWNER = OWNER_HEADER.lower().encode()
_PARTICIPANT = PARTICIPANT_HEADER.lower().encode()


class _CachedCredential(Struct, frozen=True):
    """A cached credential."""

    caller: Caller
    verified_at: float
    until: datetime | None


class Authenticator:
    """Authenticate requests.

    `open_for` is the owner of local requests without a key; None requires a key. The first API key, or a
    token issuer, permanently disables access without a key. `grace` is the time in seconds beyond
    `CACHE_SECONDS` for which cached results are used while the store is unavailable.
    """

    def __init__(
        self,
        keys: ApiKeys,
        tokens: Tokens | None = None,
        *,
        open_for: str | None = None,
        grace: float = 0.0,
        clock: Clock = system_clock,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.keys = keys
        self.tokens = tokens
        self._open_for = None if tokens is not None else open_for
        self._grace = grace
        self._clock = clock
        self._monotonic = monotonic
        self._cache: BoundedDict[bytes, _CachedCredential] = BoundedDict(MAX_CACHED)
        # When the store last had no key.
        self._open_since: float | None = None

    async def authenticate(self, headers: Headers) -> Caller:
        """Return the caller. Raises `NotAuthenticated`."""
        authorization = headers.get(b"authorization")
        if authorization is None:
            return await self._without_key(headers)
        scheme, _, credential = authorization.partition(b" ")
        if scheme.lower() != b"bearer" or not credential or len(credential) > LONGEST_CREDENTIAL:
            raise NotAuthenticated
        fingerprint = sha256(credential).digest()
        cached = self._cache.get(fingerprint)
        if cached is None or self._monotonic() - cached.verified_at >= CACHE_SECONDS:
            cached = await self._look_up(fingerprint, credential)
        if cached.until is not None and self._clock() >= cached.until:
            raise NotAuthenticated
        return cached.caller

    async def _look_up(self, fingerprint: bytes, credential: bytes) -> _CachedCredential:
        before = self._cache.pop(fingerprint, None)
        at = self._monotonic()
        try:
            caller, until = await self._verify(credential.decode("latin-1").strip())
        except StoreUnavailable as error:
            if before is None or at - before.verified_at >= CACHE_SECONDS + self._grace:
                raise AccessUnverified from error
            # A concurrent request may have stored a newer result during the lookup.
            self._cache.setdefault(fingerprint, before)
            return before
        cached = self._cache[fingerprint] = _CachedCredential(caller, at, until)
        return cached

    async def _verify(self, text: str) -> tuple[Caller, datetime | None]:
        if self.tokens is not None and text.count(".") == 2:
            return await self.tokens.caller(text)
        key = await self.keys.find(text)
        if key is None or not key.holds(self._clock()):
            raise NotAuthenticated
        return key.caller, key.expires_at

    async def _without_key(self, headers: Headers) -> Caller:
        if self._open_for is None or not await self.is_open():
            raise NotAuthenticated
        check_headers(headers)
        return Caller(name="local", owners=None, scope="admin", owner=self._open_for)

    @property
    def may_be_open(self) -> bool:
        """Whether requests without a key may be accepted. Never changes back to True."""
        return self._open_for is not None

    async def is_open(self) -> bool:
        """Return whether no key exists. The result is cached for `CACHE_SECONDS` until a key exists."""
        if self._open_for is None:
            return False
        at = self._monotonic()
        if self._open_since is not None and at - self._open_since < CACHE_SECONDS:
            return True
        try:
            has_keys = await self.keys.any()
        except StoreUnavailable as error:
            if self._open_since is None or at - self._open_since >= CACHE_SECONDS + self._grace:
                raise AccessUnverified from error
            return True
        if has_keys:
            self._open_for = None
            return False
        self._open_since = at
        return True


def wanted_owner(headers: Headers) -> str | None:
    """Return the owner that the request names, or None."""
    return _quoted(headers, _OWNER, "Aforesaid-Owner")


def wanted_participant(headers: Headers) -> str | None:
    """Return the participant as whom the request acts, or None."""
    return _quoted(headers, _PARTICIPANT, "Aforesaid-Participant")


def _quoted(headers: Headers, header: bytes, name: str) -> str | None:
    value = headers.get(header)
    if value is None:
        return None
    try:
        return unquote_to_bytes(value).decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidInput(
            f"{name} must be percent-encoded UTF-8", field=name, value=value.decode("latin-1")
        ) from None


def authenticator_for(keys: ApiKeys, settings: ServerConfig, *, open_without_keys: bool) -> Authenticator:
    """Return the authenticator of the settings."""
    return Authenticator(
        keys,
        tokens_for(settings),
        open_for=settings.owner if open_without_keys and not settings.require_keys else None,
        grace=float(settings.key_grace_seconds),
    )
