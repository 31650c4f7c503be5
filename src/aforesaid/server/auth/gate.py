"""The gate: from the headers of a request to a caller, or no further. Below: keys, tokens.

Whatever is wrong with what was shown (nothing, unknown, expired, revoked, another issuer's) gives one and the
same answer. A verified key is cached for `REMEMBERED` seconds, so that a request costs a look into a dict.
After that time the store is asked again. While the store is away, the request fails with `AccessUnverified`:
a key that was revoked elsewhere must not go on working for as long as an outage lasts. `grace` trades this
for availability. Tokens are verified without the store.
"""

import time
from collections.abc import Callable, Mapping
from datetime import datetime
from hashlib import sha256
from urllib.parse import unquote_to_bytes

from msgspec import Struct

from aforesaid._internal.bounded import BoundedDict
from aforesaid.errors import AccessUnverified, InvalidInput, NotAuthenticated, StoreUnavailable
from aforesaid.model.clock import Clock, system_clock
from aforesaid.server.auth.callers import Caller
from aforesaid.server.auth.keys import ApiKeys
from aforesaid.server.auth.local import check_headers
from aforesaid.server.auth.tokens import Tokens

REMEMBERED = 5.0
"""Seconds that a key is taken to be as it was when it was looked up: so long a revoked one may still work."""
MOST_REMEMBERED = 4096
LONGEST_CREDENTIAL = 16_384

Headers = Mapping[bytes, bytes]


class _Known(Struct, frozen=True):
    """Somebody who was let in before."""

    caller: Caller
    looked_up: float
    until: datetime | None


class Gate:
    """Lets requests in.

    `open_for`: the owner for whom a server without any key is open; None where it never is. Once there is
    a key, or tokens are taken, nobody gets in without. `grace`: seconds beyond `REMEMBERED` for which the
    last answer of the store counts while the store is away.
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
        self._known: BoundedDict[bytes, _Known] = BoundedDict(MOST_REMEMBERED)
        self._open_since: float | None = None
        """When the store last said that there is no key."""

    async def admit(self, headers: Headers) -> Caller:
        """Who asks. Raises `NotAuthenticated`."""
        shown = headers.get(b"authorization")
        if shown is None:
            return await self._without_key(headers)
        scheme, _, credential = shown.partition(b" ")
        if scheme.lower() != b"bearer" or not credential or len(credential) > LONGEST_CREDENTIAL:
            raise NotAuthenticated
        fingerprint = sha256(credential).digest()
        known = self._known.get(fingerprint)
        if known is None or self._monotonic() - known.looked_up >= REMEMBERED:
            known = await self._look_up(fingerprint, credential)
        if known.until is not None and self._clock() >= known.until:
            raise NotAuthenticated
        return known.caller

    async def _look_up(self, fingerprint: bytes, credential: bytes) -> _Known:
        before = self._known.pop(fingerprint, None)
        at = self._monotonic()
        try:
            caller, until = await self._verified(credential.decode("latin-1").strip())
        except StoreUnavailable as error:
            if before is None or at - before.looked_up >= REMEMBERED + self._grace:
                raise AccessUnverified from error
            self._known.setdefault(fingerprint, before)
            return before
        known = self._known[fingerprint] = _Known(caller, at, until)
        return known

    async def _verified(self, text: str) -> tuple[Caller, datetime | None]:
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
        return Caller(name="local", owners=None, reach="admin", owner=self._open_for)

    @property
    def may_be_open(self) -> bool:
        """Whether callers without a key may get in. False is final."""
        return self._open_for is not None

    async def is_open(self) -> bool:
        """Whether there is no key. Looked up now and then: the first key that is made closes the door."""
        if self._open_for is None:
            return False
        at = self._monotonic()
        if self._open_since is not None and at - self._open_since < REMEMBERED:
            return True
        try:
            has_keys = await self.keys.any()
        except StoreUnavailable as error:
            if self._open_since is None or at - self._open_since >= REMEMBERED + self._grace:
                raise AccessUnverified from error
            return True
        if has_keys:
            self._open_for = None
            return False
        self._open_since = at
        return True


def wanted_owner(headers: Headers, header: bytes) -> str | None:
    """The owner that the request names, or None."""
    value = headers.get(header)
    if value is None:
        return None
    try:
        return unquote_to_bytes(value).decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidInput(
            "Aforesaid-Owner must be percent-encoded UTF-8",
            field="Aforesaid-Owner",
            value=value.decode("latin-1"),
        ) from None
