"""Authenticated callers, and the API keys that identify them."""

import hmac
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Literal, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from aforesaid.contracts import JOURNAL, Auditing, Backend, ConversationStore, Document, capability
from aforesaid.contracts.listing import all_documents
from aforesaid.errors import DocumentConflict, InvalidInput, NotAllowed, NotFound, StoreDamaged, shown
from aforesaid.model.conversations import check_span
from aforesaid.model.ids import parse_name
from aforesaid.model.messages import parse_text
from aforesaid.model.participants import parse_participant_id

# Authenticated callers and their permissions.


AccessScope = Literal["read", "write", "admin"]
"""What a key permits; each scope includes the previous. `admin` adds retention, export and erasure."""
SCOPES: tuple[AccessScope, ...] = get_args(AccessScope)

# Stands for all owners of a key.
ALL_OWNERS = "*"


class Caller(Struct, frozen=True, kw_only=True):
    """An authenticated caller."""

    name: str
    """The name in the audit trail and in limits; not secret."""
    owners: frozenset[str] | None
    """The owners that the caller may access; None means all."""
    scope: AccessScope
    owner: str | None = None
    """The owner of requests that name none."""
    participant: str | None = None
    """The participant to whose conversations the caller is limited."""

    def participant_for(self, wanted: str | None) -> str | None:
        """Return the participant of a request; None for the owner. Raises `NotAllowed`."""
        if self.participant is None:
            return wanted
        if wanted not in (None, self.participant):
            raise NotAllowed("the key belongs to another participant")
        return self.participant

    def owner_for(self, wanted: str | None) -> str:
        """Return the owner of a request. Raises the same error whether or not a forbidden owner exists."""
        owner = self.owner if wanted is None else wanted
        if owner is None:
            raise InvalidInput(
                "the key is for several owners: name one in the header Aforesaid-Owner",
                field="Aforesaid-Owner",
            )
        if self.owners is not None and owner not in self.owners:
            raise NotAllowed("the key has no access to this owner")
        return owner

    def check(self, needed: AccessScope) -> None:
        """Raise `NotAllowed` unless the key has this scope."""
        if SCOPES.index(self.scope) < SCOPES.index(needed):
            raise NotAllowed(f"this needs a key with the scope {needed}; this one has {self.scope}")


def parse_scope(value: object) -> AccessScope:
    for scope in SCOPES:
        if value == scope:
            return scope
    raise InvalidInput.not_in("scope", value, SCOPES)


# Create, list, revoke and verify API keys.
#
# A key is `ak_<id>_<secret>`. The secret has 256 random bits, so a fast hash is safe: the store keeps only
# a BLAKE2b digest, keyed by the id. Keys are documents of the internal owner `JOURNAL`, which all processes
# on a store share.


KIND = "api-key"
PREFIX = "ak"
# Number of ids that differ only in the last hexadecimal digit.
SIBLINGS = 16


class ApiKey(Struct, frozen=True, kw_only=True):
    """The stored part of a key: everything except the secret."""

    id: str
    name: str
    owners: tuple[str, ...]
    scope: AccessScope
    digest: str
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    participant: str | None = None

    def holds(self, now: datetime) -> bool:
        """Return whether the key is neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    @property
    def caller(self) -> Caller:
        everybody = ALL_OWNERS in self.owners
        return Caller(
            name=f"key:{self.id}",
            owners=None if everybody else frozenset(self.owners),
            scope=self.scope,
            owner=self.owners[0] if len(self.owners) == 1 and not everybody else None,
            participant=self.participant,
        )


class ApiKeys:
    """The keys of a store."""

    def __init__(self, backend: Backend) -> None:
        # Bypass the audit layer: key lookups are frequent and read no owner's data.
        auditing = capability(backend, Auditing)
        self._backend: Backend = backend if auditing is None else auditing.inner

    @property
    def _store(self) -> ConversationStore:
        return self._backend.of(JOURNAL)

    async def create(
        self,
        owners: Sequence[str],
        *,
        scope: AccessScope = "write",
        name: str = "",
        expires_in: timedelta | None = None,
        participant: str | None = None,
    ) -> tuple[str, ApiKey]:
        """Create a key. Return its text, which is not stored, and the stored part.

        A key of a participant has access to the conversations in which they take part, and to nothing else.
        """
        checked = tuple(dict.fromkeys(parse_name(owner, field="owner") for owner in owners))
        if not checked or JOURNAL in checked:
            raise InvalidInput(
                f"a key must have owners, or {ALL_OWNERS} for all; got {shown(owners)}", field="owner"
            )
        check_span(expires_in, field="expires")
        key_id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        now = self._store.now()
        key = ApiKey(
            id=key_id,
            name=parse_text(name, field="name"),
            owners=checked,
            scope=parse_scope(scope),
            digest=_digest(key_id, secret),
            created_at=now,
            expires_at=None if expires_in is None else now + expires_in,
            participant=None
            if participant is None
            else parse_participant_id(participant, field="participant"),
        )
        await self._store.put_document(KIND, key_id, msgspec.json.encode(key), expected_version=0)
        return f"{PREFIX}_{key_id}_{secret}", key

    async def list(self) -> "list_[ApiKey]":
        """Return all keys, including revoked and expired ones, oldest first."""
        found = [_decoded(document.data) async for document in all_documents(self._store, KIND)]
        return sorted(found, key=lambda key: (key.created_at, key.id))

    async def any(self) -> bool:
        """Return whether any key exists, valid or not."""
        return bool(await self._store.documents(KIND, limit=1))

    async def revoke(self, key_id: str) -> ApiKey:
        """Revoke a key. Repeating has no effect."""
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
        """Return the key of a text, valid or not; None if the text is not a key."""
        prefix, _, rest = text.partition("_")
        key_id, _, secret = rest.partition("_")
        if prefix != PREFIX or not (key_id.isascii() and key_id.isalnum()) or len(key_id) != 12:
            return None
        document = await self._stored(key_id)
        key = None if document is None else _decoded(document.data)
        expected = _UNKNOWN if key is None else key.digest
        return key if hmac.compare_digest(expected, _digest(key_id, secret)) else None

    async def _stored(self, key_id: str) -> Document | None:
        """Read a key from the store itself. Raises `StoreUnavailable`.

        `get_document` may answer from the last known state, in which a revoked key is still valid; a listing
        never does. The listing starts directly before the key, because a prefix sorts before longer texts.
        """
        listed = await self._store.documents(KIND, after=key_id[:-1], limit=SIBLINGS)
        return next((document for document in listed if document.key == key_id), None)

    def now(self) -> datetime:
        return self._store.now()


def _digest(key_id: str, secret: str) -> str:
    return blake2b(secret.encode("utf-8", "surrogatepass"), key=key_id.encode(), digest_size=32).hexdigest()


# The digest for unknown keys, so that their verification takes as long as with a wrong secret.
_UNKNOWN = "0" * 64


def _decoded(data: bytes) -> ApiKey:
    try:
        return msgspec.json.decode(data, type=ApiKey)
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"an API key cannot be read: {error}") from error


# The built-in type, which the method `list` hides inside the class.
list_ = list
