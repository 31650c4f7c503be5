"""Who a request comes from, and how far they reach. Pure. Below: errors."""

from typing import Literal, get_args

from msgspec import Struct

from aforesaid.errors import InvalidInput, NotAllowed

Reach = Literal["read", "write", "admin"]
"""What a key allows: to read; to write, too; to decide how long things are kept, to export and to erase."""
REACHES: tuple[Reach, ...] = get_args(Reach)

EVERYBODY = "*"
"""In the place of owners: all of them."""


class Caller(Struct, frozen=True, kw_only=True):
    """Somebody who was let in."""

    name: str
    """As the audit trail and the limits know them; no secret."""
    owners: frozenset[str] | None
    """Whose data they may touch; None is everybody's."""
    reach: Reach
    owner: str | None = None
    """Whose data it is about when the request does not say."""

    def owner_for(self, wanted: str | None) -> str:
        """Whose data the request is about. One out of reach is refused, there or not, in the same words."""
        owner = self.owner if wanted is None else wanted
        if owner is None:
            raise InvalidInput(
                "the key reaches several owners: name one in the header Aforesaid-Owner",
                field="Aforesaid-Owner",
            )
        if self.owners is not None and owner not in self.owners:
            raise NotAllowed("the key does not reach this owner")
        return owner

    def check(self, needed: Reach) -> None:
        """Refuse what the key does not allow."""
        if REACHES.index(self.reach) < REACHES.index(needed):
            raise NotAllowed(f"this needs a key with the scope {needed}; this one has {self.reach}")


def parse_reach(value: object) -> Reach:
    for reach in REACHES:
        if value == reach:
            return reach
    raise InvalidInput.not_in("scope", value, REACHES)
