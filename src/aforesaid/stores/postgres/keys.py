"""Names as keys: what the index entries and the notifications are made of. Equal to the SQL functions
`aforesaid.key_of` and `aforesaid.tag`, which a test holds it to."""

from hashlib import sha256

LONGEST_KEY = 512
"""Bytes. An index entry of PostgreSQL has about 2,700, and has to hold two names."""
_DIGEST = "sha256/"


def key_of(name: str) -> str:
    """The name itself, or its digest when it is too long for an index, or could be taken for a digest."""
    encoded = name.encode()
    if len(encoded) <= LONGEST_KEY and not name.startswith(_DIGEST):
        return name
    return _DIGEST + sha256(encoded).hexdigest()


def name_of(key: str, full_name: str | None) -> str:
    """The name that `key_of` was given, from the key and what is kept beside a digest."""
    return key if full_name is None else full_name


class Tags:
    """Owners and conversations as notifications name them: digests with the database's own key."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def owner(self, key: str) -> str:
        return self._tag("owner", key)

    def conversation(self, conversation_id: str) -> str:
        return self._tag("conversation", conversation_id)

    def _tag(self, kind: str, name: str) -> str:
        return sha256(self._key + f"{kind} {name}".encode()).hexdigest()[:32]
