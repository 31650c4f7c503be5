"""The names of keys. Names that callers choose never stand in a key: their hash does.

So no owner can write a name that looks like another owner's key, or like a hash tag of Redis Cluster.
All keys of one conversation share a hash tag, and so one slot, and so can be changed by one script.
"""

import re
from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import NamedTuple

from aforesaid.errors import InvalidSetting, shown

DEFAULT_PREFIX = "aforesaid"

_PREFIX = re.compile(r"[A-Za-z0-9_.:/-]{1,100}", re.ASCII).fullmatch


class ConversationKeys(NamedTuple):
    """What one conversation is kept in, in the order of KEYS in the scripts."""

    record: str
    log: str
    ids: str
    names: str
    documents: str


class OwnerKeys:
    """Where one owner's things are."""

    __slots__ = ("_tag", "changes", "documents", "index", "prefix", "sessions")

    def __init__(self, prefix: str, owner: str) -> None:
        self.prefix = prefix
        self._tag = hashed(owner)
        self.index = f"{prefix}:{{{self._tag}}}:index"
        self.sessions = f"{prefix}:{{{self._tag}}}:sessions"
        # A slot of their own: large data do not burden the server that holds the owner's index.
        self.documents = f"{prefix}:{{{self._tag}/documents}}:documents"
        self.changes = f"{prefix}:changes:{self._tag}"

    def of(self, conversation_id: str) -> ConversationKeys:
        stem = f"{self.prefix}:{{{self._tag}/{conversation_id}}}"
        return ConversationKeys(*(f"{stem}:{name}" for name in ConversationKeys._fields))


def owners_key(prefix: str) -> str:
    """Who has something here: the one place where owners' names are kept."""
    return f"{prefix}:owners"


def format_key(prefix: str) -> str:
    """The version of what is written here."""
    return f"{prefix}:format"


def hashed(name: str) -> str:
    """A name of any length and content as 43 harmless characters."""
    return urlsafe_b64encode(sha256(name.encode()).digest()).rstrip(b"=").decode()


def parse_prefix(prefix: object) -> str:
    """What all keys begin with: braces would move the hash tag, so few characters are allowed."""
    if not isinstance(prefix, str) or not _PREFIX(prefix):
        raise InvalidSetting(
            f"prefix must be 1 to 100 letters, digits or _.:/-; got {shown(prefix)}",
            field="prefix",
            value=prefix,
        )
    return prefix
