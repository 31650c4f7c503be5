"""Results of client identification."""

from msgspec import Struct

from aforesaid.model.contacts import Contact

CERTAIN = 0.75
"""Confidence from which a client counts as named and a conversation is linked."""
REPORTED = 0.5
"""Confidence from which a contact is a candidate."""


class Candidate(Struct, frozen=True, kw_only=True):
    """A contact that a text may name, with a confidence and the matching words."""

    contact: Contact
    confidence: float
    words: str


class ClientMatch(Struct, frozen=True, kw_only=True):
    """The client that a text names, or candidates to choose from."""

    client: Contact | None
    """The named client; None if several are possible or none is certain enough."""
    confidence: float
    """The confidence of the client or of the best candidate."""
    candidates: tuple[Candidate, ...]
    """All possible contacts, most certain first."""

    @property
    def ambiguous(self) -> bool:
        return self.client is None


NO_MATCH = ClientMatch(client=None, confidence=0.0, candidates=())
"""Stands for "no client" in interfaces that always return a match."""
