"""Verify JSON Web Tokens.

Only asymmetric algorithms are accepted, each with its key type, so that a public key cannot be used as a
shared secret. The signing keys come from a JWKS file or URL and are cached. A token with an unknown key id
triggers a refetch, at most every `refetch_after` seconds.
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

from aforesaid.errors import InvalidInput, InvalidSetting, MissingExtra, NotAuthenticated
from aforesaid.model.participants import parse_participant_id
from aforesaid.server.auth.keys import SCOPES, AccessScope, Caller, parse_scope
from aforesaid.settings import ServerConfig
from aforesaid.telemetry import describe

if TYPE_CHECKING:
    from jwt import PyJWK

log = logging.getLogger("aforesaid.server.auth")

# Accepted algorithms and their key types.
ALGORITHMS = {"RS256": "RSA", "ES256": "EC", "EdDSA": "OKP"}
SCOPE_PREFIX = "aforesaid:"
LARGEST_JWKS = 1_000_000
# Errors of reading a JWKS: no connection, no HTTP, or no keys.
_NO_JWKS = (OSError, ValueError, TypeError, RecursionError, HTTPException)
FETCH_SECONDS = 5.0


class TokenRules(Struct, frozen=True, kw_only=True):
    """The accepted tokens."""

    issuer: str
    audience: str
    jwks: str
    """File or https URL of the issuer's public keys."""
    leeway: int = 30
    """Tolerated clock difference in seconds."""
    refetch_after: int = 30
    """Minimum seconds between two fetches of the JWKS."""
    keep_for: int = 3600
    """Maximum age of the cached keys in seconds, after which withdrawn keys are dropped."""
    scope: AccessScope = "write"
    """The scope of tokens whose claim `scope` has no `aforesaid:read`, `aforesaid:write` or
    `aforesaid:admin`."""

    def __post_init__(self) -> None:
        for field in ("issuer", "audience", "jwks"):
            if not getattr(self, field):
                raise InvalidSetting(f"jwt_{field} is required for JSON Web Tokens", field=f"jwt_{field}")
        url = urlsplit(self.jwks)
        if url.scheme == "http" and url.hostname not in ("localhost", "127.0.0.1", "::1"):
            raise InvalidSetting("jwt_jwks must be a file or an https URL", field="jwt_jwks", value=self.jwks)


class Tokens:
    """Verify tokens by the rules."""

    def __init__(self, rules: TokenRules, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.rules = rules
        self._keys: dict[str, PyJWK] = {}
        self._fetched_at: float | None = None
        self._fetching = asyncio.Lock()
        self._monotonic = monotonic

    async def caller(self, token: str) -> tuple[Caller, datetime]:
        """Return caller and expiry of a token. Raises `NotAuthenticated` for every failure."""
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
            log.debug("token refused: %s", type(error).__name__)
            raise NotAuthenticated from None

    def _admitted(self, claims: dict[str, Any]) -> tuple[Caller, datetime]:
        owner = claims["sub"]
        if not isinstance(owner, str) or not owner:
            raise NotAuthenticated
        until = datetime.fromtimestamp(float(claims["exp"]) + self.rules.leeway).astimezone()
        caller = Caller(
            name=f"token:{owner}",
            owners=frozenset({owner}),
            scope=self._scope(claims.get("scope")),
            owner=owner,
            participant=_participant(claims.get("participant")),
        )
        return caller, until

    def _scope(self, claim: object) -> AccessScope:
        """Return the highest scope in the claim, else the default of the rules."""
        words = claim.split() if isinstance(claim, str) else claim if isinstance(claim, list) else []
        named = [scope for scope in SCOPES if SCOPE_PREFIX + scope in words]
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
            # Set before the fetch, so that a failing issuer is asked no more often than a working one.
            self._fetched_at = self._monotonic()
            try:
                document = await asyncio.to_thread(_read_jwks, self.rules.jwks)
                self._keys = _keys_of(document)
            except _NO_JWKS as error:
                # Keep the cached keys: an issuer that is down must not lock callers out.
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
    """Return the usable keys by id, without shared secrets. Raises `TypeError`.

    An empty list is valid: an issuer withdraws its keys with it.
    """
    jwt = _pyjwt()
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise TypeError("a JWKS must have a list of keys")
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


def _participant(claim: object) -> str | None:
    """Return the participant that a token is limited to. An unusable claim grants nothing."""
    if claim is None:
        return None
    try:
        return parse_participant_id(claim)
    except InvalidInput:
        raise NotAuthenticated from None
