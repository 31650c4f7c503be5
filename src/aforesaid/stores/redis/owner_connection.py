"""One owner's keys on the server, and the scripts that use them. Every part of `RedisStore` shares one."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from aforesaid.contracts import split_head
from aforesaid.errors import ConversationNotFound, RevisionConflict
from aforesaid.model.conversations import is_expired
from aforesaid.stores.redis import values
from aforesaid.stores.redis.keys import OwnerKeys
from aforesaid.stores.redis.scripts import CONVERSATION_SCRIPTS, OWNER_DOCUMENT_SCRIPTS, OWNER_SCRIPTS
from aforesaid.stores.redis.values import Stored

if TYPE_CHECKING:
    from aforesaid.stores.redis.backend import RedisBackend
    from aforesaid.stores.redis.connections import Connections


class OwnerConnection:
    """Runs commands and scripts on one owner's keys."""

    def __init__(self, backend: "RedisBackend", owner: str) -> None:
        self._backend = backend
        self.owner = owner
        self.keys = OwnerKeys(backend.prefix, owner)

    @property
    def connections(self) -> "Connections":
        # Looked up each time: a store may be created before its backend is opened.
        return self._backend.connections

    @property
    def clustered(self) -> bool:
        return self.connections.clustered

    def now(self) -> datetime:
        return self._backend.clock()

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
