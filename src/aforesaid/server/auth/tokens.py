"""JSON Web Tokens: who issued them, for whom, and the keys that sign them. Below: PyJWT. Above: the gate.

Only asymmetric signatures are taken, each with the kind of key that it belongs to: a public key can never
be passed off as a shared secret. The keys come from a JWKS, a file or a URL, and are kept; a token that
names a key which is not known has them fetched again, but not more often than the settings allow.
"""

import asyncio
import json
import logging
import time
from collections.abc import Callable
from datetime import datetime
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from msgspec import Struct

from aforesaid.errors import InvalidSetting, MissingExtra, NotAuthenticated
from aforesaid.server.auth.callers import REACHES, Caller, Reach
from aforesaid.telemetry import describe

if TYPE_CHECKING:
    from jwt import PyJWK

log = logging.getLogger("aforesaid.server.auth")

ALGORITHMS = {"RS256": "RSA", "ES256": "EC", "EdDSA": "OKP"}
"""The signatures that are taken, and the kind of key that each belongs to."""
SCOPE_PREFIX = "aforesaid:"
LARGEST_JWKS = 1_000_000
_NO_JWKS = (OSError, ValueError, TypeError, RecursionError, HTTPException)
"""What comes of reading a JWKS where there is none: nobody answers, or not with HTTP, or not with keys."""
FETCH_SECONDS = 5.0


class TokenRules(Struct, frozen=True, kw_only=True):
    """Which tokens are taken."""

    issuer: str
    audience: str
    jwks: str
    """A file or an https URL with the issuer's public keys."""
    leeway: int = 30
    """Seconds that clocks may differ."""
    refetch_after: int = 30
    """Seconds between two looks at the JWKS at least, whatever tokens name."""
    keep_for: int = 3600
    """Seconds after which the keys are looked up again in any case, so that a withdrawn one goes."""
    scope: Reach = "write"
    """What a token allows that does not say: in its claim `scope`, as `aforesaid:read` and so on."""

    def __post_init__(self) -> None:
        for field in ("issuer", "audience", "jwks"):
            if not getattr(self, field):
                raise InvalidSetting(f"jwt_{field} is needed for JSON Web Tokens", field=f"jwt_{field}")
        url = urlsplit(self.jwks)
        if url.scheme == "http" and url.hostname not in ("localhost", "127.0.0.1", "::1"):
            raise InvalidSetting("jwt_jwks must be a file or an https URL", field="jwt_jwks", value=self.jwks)


class Tokens:
    """Checks tokens by the rules."""

    def __init__(self, rules: TokenRules, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.rules = rules
        self._keys: dict[str, PyJWK] = {}
        self._fetched_at: float | None = None
        self._fetching = asyncio.Lock()
        self._monotonic = monotonic

    async def caller(self, token: str) -> tuple[Caller, datetime]:
        """Whose token this is, and until when it holds. Raises `NotAuthenticated`, for whatever reason."""
        jwt = _pyjwt()
        try:
            header = jwt.get_unverified_header(token)
            key = await self._key(header)
            claims = jwt.decode(
                token,
                key=key.key,
                algorithms=[header["alg"]],
                issuer=self.rules.issuer,
                audience=self.rules.audience,
                leeway=self.rules.leeway,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
            return self._admitted(claims)
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError, OSError) as error:
            log.debug("a token was refused: %s", type(error).__name__)
            raise NotAuthenticated from None

    def _admitted(self, claims: dict[str, Any]) -> tuple[Caller, datetime]:
        owner = claims["sub"]
        if not isinstance(owner, str) or not owner:
            raise NotAuthenticated
        until = datetime.fromtimestamp(float(claims["exp"]) + self.rules.leeway).astimezone()
        caller = Caller(
            name=f"token:{owner}",
            owners=frozenset({owner}),
            reach=self._reach(claims.get("scope")),
            owner=owner,
        )
        return caller, until

    def _reach(self, scope: object) -> Reach:
        """The furthest that the claim names, or what the rules say where it names none."""
        words = scope.split() if isinstance(scope, str) else scope if isinstance(scope, list) else []
        named = [reach for reach in REACHES if SCOPE_PREFIX + reach in words]
        return named[-1] if named else self.rules.scope

    async def _key(self, header: dict[str, Any]) -> "PyJWK":
        kind = ALGORITHMS.get(str(header.get("alg")))
        kid = str(header.get("kid", ""))
        if kind is None:
            raise NotAuthenticated
        if kid not in self._keys or self._is_older_than(self.rules.keep_for):
            await self._refetch(kid)
        key = self._keys.get(kid)
        if key is None or key.key_type != kind:
            raise NotAuthenticated
        return key

    async def _refetch(self, kid: str) -> None:
        async with self._fetching:
            known = kid in self._keys and not self._is_older_than(self.rules.keep_for)
            if known or not self._is_older_than(self.rules.refetch_after):
                return
            self._fetched_at = self._monotonic()
            try:
                document = await asyncio.to_thread(_read_jwks, self.rules.jwks)
                self._keys = _keys_of(document)
            except _NO_JWKS as error:
                # Those that are known go on to hold: an issuer that is away, or that talks nonsense, locks
                # nobody out.
                log.warning("the JWKS cannot be read: %s", describe(error))

    def _is_older_than(self, seconds: float) -> bool:
        return self._fetched_at is None or self._monotonic() - self._fetched_at >= seconds


def _read_jwks(place: str) -> Any:
    if urlsplit(place).scheme in ("http", "https"):
        request = Request(place, headers={"Accept": "application/json"})
        with urlopen(request, timeout=FETCH_SECONDS) as answer:
            return json.loads(answer.read(LARGEST_JWKS))
    return json.loads(Path(place).read_bytes())


def _keys_of(document: Any) -> "dict[str, PyJWK]":
    """The keys that we can use, by their id. Shared secrets are none of them. Raises `TypeError`.

    A list is believed, also an empty one: that is how an issuer withdraws its keys.
    """
    jwt = _pyjwt()
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise TypeError("a JWKS has a list of keys")
    keys: dict[str, PyJWK] = {}
    for each in listed:
        if (
            not isinstance(each, dict)
            or each.get("kty") not in ALGORITHMS.values()
            or each.get("use") == "enc"
        ):
            continue
        try:
            keys[str(each.get("kid", ""))] = jwt.PyJWK(each)
        except (jwt.PyJWTError, ValueError, KeyError, TypeError, NotImplementedError) as error:
            log.warning("a key of the JWKS cannot be used: %s", describe(error))
    return keys


def _pyjwt() -> Any:
    try:
        import jwt
    except ImportError:
        raise MissingExtra("JSON Web Tokens", extra="server") from None
    return jwt
