"""Authenticated callers and their permissions."""

from typing import Literal, get_args

from msgspec import Struct

from aforesaid.errors import InvalidInput, NotAllowed

AccessScope = Literal["read", "write", "admin"]
"""What a key permits; each scope includes the previous. `admin` adds retention, export and erasure."""
SCOPES: tuple[AccessScope, ...] = get_args(AccessScope)

ALL_OWNERS = "*"
"""Stands for all owners of a key."""


class Caller(Struct, frozen=True, kw_only=True):
    """An authenticated caller."""

    name: str
    """The name in the audit trail and in limits; not secret."""
    owners: frozenset[str] | None
    """The owners that the caller may access; None means all."""
    scope: AccessScope
    owner: str | None = None
    """The owner of requests that name none."""

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
