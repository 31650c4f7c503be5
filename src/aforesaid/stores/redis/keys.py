"""Key names. They contain hashes instead of names chosen by callers.

So no owner's name can imitate another owner's key or a hash tag of Redis Cluster. All keys of one
conversation share a hash tag and therefore a slot, so that one script can change them.
"""

import re
from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import NamedTuple

from aforesaid.errors import InvalidSetting, shown

DEFAULT_PREFIX = "aforesaid"

_PREFIX = re.compile(r"[A-Za-z0-9_.:/-]{1,100}", re.ASCII).fullmatch


class ConversationKeys(NamedTuple):
    """The keys of one conversation, in the order of KEYS in the scripts."""

    record: str
    log: str
    ids: str
    names: str
    documents: str


class OwnerKeys:
    """The keys of one owner."""

    __slots__ = ("_tag", "changes", "documents", "index", "prefix", "sessions")

    def __init__(self, prefix: str, owner: str) -> None:
        self.prefix = prefix
        self._tag = hash_name(owner)
        self.index = f"{prefix}:{{{self._tag}}}:index"
        self.sessions = f"{prefix}:{{{self._tag}}}:sessions"
        # A separate slot: large documents must not burden the server with the owner's index.
        self.documents = f"{prefix}:{{{self._tag}/documents}}:documents"
        self.changes = f"{prefix}:changes:{self._tag}"

    def of(self, conversation_id: str) -> ConversationKeys:
        stem = f"{self.prefix}:{{{self._tag}/{conversation_id}}}"
        return ConversationKeys(*(f"{stem}:{name}" for name in ConversationKeys._fields))


def owners_key(prefix: str) -> str:
    """Return the key of the set of owners, the only place with owner names."""
    return f"{prefix}:owners"


def format_key(prefix: str) -> str:
    """Return the key of the data version."""
    return f"{prefix}:format"


def hash_name(name: str) -> str:
    """Hash a name of any length to 43 safe characters."""
    return urlsafe_b64encode(sha256(name.encode()).digest()).rstrip(b"=").decode()


def parse_prefix(prefix: object) -> str:
    """Validate the prefix of all keys. Braces would change the hash tag, so few characters are allowed."""
    if not isinstance(prefix, str) or not _PREFIX(prefix):
        raise InvalidSetting(
            f"prefix must be 1 to 100 letters, digits or _.:/-; got {shown(prefix)}",
            field="prefix",
            value=prefix,
        )
    return prefix
