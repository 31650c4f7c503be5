"""One owner's keys on the server, and the scripts that use them."""

import re
from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from aforesaid.contracts import split_head
from aforesaid.errors import ConversationNotFound, InvalidSetting, RevisionConflict, shown
from aforesaid.model.clock import Clock
from aforesaid.model.conversations import is_expired
from aforesaid.stores.redis import values
from aforesaid.stores.redis.connections import Connections
from aforesaid.stores.redis.scripts import CONVERSATION_SCRIPTS, OWNER_DOCUMENT_SCRIPTS, OWNER_SCRIPTS
from aforesaid.stores.redis.values import Stored

# Key names. They contain hashes instead of names chosen by callers.
#
# So no owner's name can imitate another owner's key or a hash tag of Redis Cluster. All keys of one
# conversation share a hash tag and therefore a slot, so that one script can change them.


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

    __slots__ = ("_tag", "branches", "changed", "changes", "documents", "index", "prefix", "sessions")

    def __init__(self, prefix: str, owner: str) -> None:
        self.prefix = prefix
        self._tag = hash_name(owner)
        self.index = f"{prefix}:{{{self._tag}}}:index"
        self.sessions = f"{prefix}:{{{self._tag}}}:sessions"
        # The root of each branch. Readers remove entries without a record.
        self.branches = f"{prefix}:{{{self._tag}}}:branches"
        # The numbers of the last changes, on one server.
        self.changed = f"{prefix}:{{{self._tag}}}:changed"
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


# One owner's keys on the server, and the scripts that use them. Every part of `RedisStore` shares one.


class OwnerConnection:
    """Runs commands and scripts on one owner's keys."""

    def __init__(
        self, owner: str, *, prefix: str, clock: Clock, connections: Callable[[], Connections]
    ) -> None:
        self.owner = owner
        self.keys = OwnerKeys(prefix, owner)
        self.now = clock
        # A function, because a store may be created before its backend is opened.
        self._connections = connections

    @property
    def connections(self) -> Connections:
        return self._connections()

    @property
    def clustered(self) -> bool:
        return self.connections.clustered

    async def call(self, *command: Any) -> Any:
        """Send one command; return its reply."""
        return await self.connections.call(*command)

    async def run(self, script: str, conversation_id: str, *arguments: Any, also: Sequence[str] = ()) -> Any:
        """Run a script on a conversation's keys and on the keys in `also`. Raise `ConversationNotFound`."""
        keys = [*self.keys.of(conversation_id), *also]
        reply = await self.connections.run(CONVERSATION_SCRIPTS[script], keys, *arguments)
        if reply[0] == b"missing":
            raise ConversationNotFound(conversation_id)
        return reply

    async def change(self, script: str, conversation_id: str, *arguments: Any) -> Any:
        """Run a script that changes a conversation, with the owner's index and changes if they are on the
        same server."""
        also = () if self.clustered else (self.keys.index, self.keys.changed)
        return await self.run(script, conversation_id, *arguments, also=also)

    async def run_for_owner(self, script: str, keys: Sequence[str], *arguments: Any) -> Any:
        """Run a script on keys of the owner."""
        return await self.connections.run(OWNER_SCRIPTS[script], keys, *arguments)

    async def run_on_documents(self, script: str, *arguments: Any) -> Any:
        """Run a document script on the owner's documents."""
        return await self.connections.run(OWNER_DOCUMENT_SCRIPTS[script], [self.keys.documents], *arguments)

    async def stored(self, conversation_id: str) -> Stored | None:
        """Read a record, expired or not."""
        key = self.keys.of(conversation_id).record
        return values.stored(conversation_id, await self.call("HMGET", key, *values.FIELDS))

    async def unexpired(self, conversation_id: str) -> Stored | None:
        found = await self.stored(conversation_id)
        return None if found is None or is_expired(found.record, now=self.now()) else found


def revision_text(expected: int | None) -> str:
    """Encode an expected revision for a script."""
    return "" if expected is None else str(expected)


def head_values(carried: str | None) -> tuple[str, str]:
    """Return the script values of a carried head: the new head, and the expected one after a 1."""
    head, seen = split_head(carried)
    return head or "", "" if seen is None else f"1{seen}"


def revision_conflict(conversation_id: str, expected: int | None, reply: Sequence[bytes]) -> RevisionConflict:
    """Return the error for the reply `conflict` of a script."""
    assert expected is not None, "only a caller with an expected revision is refused"
    return RevisionConflict(conversation_id, expected=expected, actual=int(reply[0]))
