"""Keys for names and tags for notifications. Equal to the SQL functions `aforesaid.key_of` and
`aforesaid.tag`.
"""

from hashlib import sha256

LONGEST_KEY = 512
"""Bytes. An index entry of PostgreSQL has about 2,700 and must hold two names."""
_DIGEST = "sha256/"


def key_of(name: str) -> str:
    """Return the name, or its digest if the name is too long for an index or looks like a digest."""
    # A name that looks like a digest is hashed too, so that it cannot be taken for the digest of another.
    encoded = name.encode()
    if len(encoded) <= LONGEST_KEY and not name.startswith(_DIGEST):
        return name
    return _DIGEST + sha256(encoded).hexdigest()


def name_of(key: str, full_name: str | None) -> str:
    """Return the name of a key, given the full name that is stored with a digest."""
    return key if full_name is None else full_name


class Tags:
    """Tags of owners and conversations in notifications: digests keyed with a secret of the database."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def owner(self, key: str) -> str:
        return self._tag("owner", key)

    def conversation(self, conversation_id: str) -> str:
        return self._tag("conversation", conversation_id)

    def _tag(self, kind: str, name: str) -> str:
        return sha256(self._key + f"{kind} {name}".encode()).hexdigest()[:32]
