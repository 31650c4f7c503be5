"""API keys: made, listed, revoked, looked up. Below: the store, which keeps them. Above: the gate.

A key is `ak_<id>_<secret>`: the id finds it, the secret proves it. The secret is 256 random bits, so that
guessing is hopeless and a fast hash is enough: only a BLAKE2b digest, keyed by the id, is kept. Keys are
documents of the store's own owner (`JOURNAL`): every process on the store sees the same ones.
"""

import hmac
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from hashlib import blake2b

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from aforesaid.contracts import JOURNAL, Backend, ConversationStore, Document
from aforesaid.errors import DocumentConflict, InvalidInput, NotFound, StoreDamaged, shown
from aforesaid.model.conversations import check_span
from aforesaid.model.ids import parse_name
from aforesaid.model.messages import parse_text
from aforesaid.server.auth.callers import EVERYBODY, Caller, Reach, parse_reach

KIND = "api-key"
PREFIX = "ak"
PAGE = 100
SIBLINGS = 16
"""Keys that differ in the last hexadecimal digit of their id only."""


class ApiKey(Struct, frozen=True, kw_only=True):
    """What is kept of a key: all but its secret."""

    id: str
    name: str
    owners: tuple[str, ...]
    scope: Reach
    digest: str
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None

    def holds(self, now: datetime) -> bool:
        """Whether the key is good at this moment."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    @property
    def caller(self) -> Caller:
        everybody = EVERYBODY in self.owners
        return Caller(
            name=f"key:{self.id}",
            owners=None if everybody else frozenset(self.owners),
            reach=self.scope,
            owner=self.owners[0] if len(self.owners) == 1 and not everybody else None,
        )


class ApiKeys:
    """The keys of a store."""

    def __init__(self, backend: Backend) -> None:
        # Below the audit trail: a look at a key is no look at anybody's data, and there are many.
        self._backend: Backend = getattr(backend, "inner", backend) if hasattr(backend, "denied") else backend

    @property
    def _store(self) -> ConversationStore:
        return self._backend.of(JOURNAL)

    async def create(
        self,
        owners: Sequence[str],
        *,
        scope: Reach = "write",
        name: str = "",
        expires_in: timedelta | None = None,
    ) -> tuple[str, ApiKey]:
        """A new key: the text to hand out, which is shown this once, and what is kept of it."""
        checked = tuple(dict.fromkeys(parse_name(owner, field="owner") for owner in owners))
        if not checked or JOURNAL in checked:
            raise InvalidInput(
                f"a key needs owners, or {EVERYBODY} for all of them; got {shown(owners)}", field="owner"
            )
        check_span(expires_in, field="expires")
        key_id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        now = self._store.now()
        key = ApiKey(
            id=key_id,
            name=parse_text(name, field="name"),
            owners=checked,
            scope=parse_reach(scope),
            digest=_digest(key_id, secret),
            created_at=now,
            expires_at=None if expires_in is None else now + expires_in,
        )
        await self._store.put_document(KIND, key_id, msgspec.json.encode(key), expected_version=0)
        return f"{PREFIX}_{key_id}_{secret}", key

    async def list(self) -> "list_[ApiKey]":
        """Every key, revoked and expired ones too, the oldest first."""
        found: list_[ApiKey] = []
        after: str | None = None
        while documents := await self._store.documents(KIND, after=after, limit=PAGE):
            found += [_decoded(document.data) for document in documents]
            after = documents[-1].key
        return sorted(found, key=lambda key: (key.created_at, key.id))

    async def any(self) -> bool:
        """Whether there is a key, good or not: then nobody gets in without one."""
        return bool(await self._store.documents(KIND, limit=1))

    async def revoke(self, key_id: str) -> ApiKey:
        """Make a key worthless. Done twice, it is done once."""
        while True:
            document = await self._store.get_document(KIND, parse_name(key_id, field="id"))
            if document is None:
                raise NotFound(f"there is no key {shown(key_id)}")
            key = _decoded(document.data)
            if key.revoked_at is not None:
                return key
            revoked = replace(key, revoked_at=self._store.now())
            try:
                await self._store.put_document(
                    KIND, key.id, msgspec.json.encode(revoked), expected_version=document.version
                )
            except DocumentConflict:
                continue
            return revoked

    async def find(self, text: str) -> ApiKey | None:
        """The key that this text is, good or not any more; None when it is no key."""
        prefix, _, rest = text.partition("_")
        key_id, _, secret = rest.partition("_")
        if prefix != PREFIX or not (key_id.isascii() and key_id.isalnum()) or len(key_id) != 12:
            return None
        document = await self._stored(key_id)
        key = None if document is None else _decoded(document.data)
        kept = _UNKNOWN if key is None else key.digest
        return key if hmac.compare_digest(kept, _digest(key_id, secret)) else None

    async def _stored(self, key_id: str) -> Document | None:
        """Read a key from the store itself. Raises `StoreUnavailable` while the store is away.

        `get_document` may answer from the last known state, in which a revoked key still holds. A listing
        never does. It begins right before the key: a prefix sorts before all texts that begin with it.
        """
        listed = await self._store.documents(KIND, after=key_id[:-1], limit=SIBLINGS)
        return next((document for document in listed if document.key == key_id), None)

    def now(self) -> datetime:
        return self._store.now()


def _digest(key_id: str, secret: str) -> str:
    return blake2b(secret.encode("utf-8", "surrogatepass"), key=key_id.encode(), digest_size=32).hexdigest()


_UNKNOWN = "0" * 64
"""What an unknown key is compared with, so that it takes as long as a wrong secret."""


def _decoded(data: bytes) -> ApiKey:
    try:
        return msgspec.json.decode(data, type=ApiKey)
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"an API key cannot be read: {error}") from error


list_ = list
"""The built-in, where the method `list` hides it."""
