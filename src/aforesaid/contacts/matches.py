"""Whom a text names, as values. Below: contacts. Above: `identifying`, the service, surfaces."""

from msgspec import Struct

from aforesaid.model.contacts import Contact

CERTAIN = 0.75
"""From this confidence on a client counts as named, and a conversation is linked."""
REPORTED = 0.5
"""From this confidence on a contact is a candidate."""


class Candidate(Struct, frozen=True, kw_only=True):
    """A contact that a text may mean, how sure that is, and by which words."""

    contact: Contact
    confidence: float
    words: str


class ClientMatch(Struct, frozen=True, kw_only=True):
    """Whom a text names: one client, or candidates that somebody has to choose from."""

    client: Contact | None
    """The one client that is named; None when it could be several, or when nobody is sure enough."""
    confidence: float
    """How sure that is; without a client, how sure the best candidate is."""
    candidates: tuple[Candidate, ...]
    """Everybody who may be meant, the surest first."""

    @property
    def ambiguous(self) -> bool:
        return self.client is None


NOBODY = ClientMatch(client=None, confidence=0.0, candidates=())
"""How a surface that always answers says that nobody is named."""
