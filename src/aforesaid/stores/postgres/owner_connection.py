"""Queries as one owner. Every part of `PostgresStore` shares one `OwnerConnection`."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from aforesaid.errors import ConversationNotFound, RevisionConflict
from aforesaid.model.conversations import Conversation
from aforesaid.model.ids import parse_name, parse_uuid
from aforesaid.stores.postgres import rows
from aforesaid.stores.postgres.connections import Connection, execute_for
from aforesaid.stores.postgres.keys import key_of

if TYPE_CHECKING:
    from aforesaid.stores.postgres.backend import PostgresBackend


class OwnerConnection:
    """Runs queries as one owner, and provides the values that name the owner's rows."""

    def __init__(self, backend: "PostgresBackend", name: str) -> None:
        self._backend = backend
        self.name = name
        self.key = key_of(name)

    def now(self) -> datetime:
        return self._backend.clock()

    # Queries

    async def run(self, *steps: tuple[str, Mapping[str, Any]]) -> list[rows.Row]:
        """Run queries in one transaction and one round trip; return the rows of the last."""
        return await self._backend.run_for(self.name, *steps)

    async def run_query(self, query: str, values: Mapping[str, Any]) -> list[rows.Row]:
        """Run a query that sets the owner itself."""
        return await self._backend.run(query, values)

    def borrow(self) -> AbstractAsyncContextManager[Connection]:
        """Take a connection from the pool, for several steps."""
        return self._backend.connection()

    async def execute(self, connection: Connection, *steps: tuple[str, Mapping[str, Any]]) -> list[rows.Row]:
        """Run queries on a borrowed connection; return the rows of the last."""
        return await execute_for(connection, self.name, *steps)

    async def get(self, conversation_id: str) -> Conversation | None:
        found = await self.run(("get_conversation", self.named(conversation_id)))
        return rows.conversation(found[0]) if found else None

    async def require(self, conversation_id: str) -> Conversation:
        """Return the record. Raise `ConversationNotFound`."""
        record = await self.get(conversation_id)
        if record is None:
            raise ConversationNotFound(conversation_id)
        return record

    # Values

    @property
    def full_name(self) -> str | None:
        """The owner's name if its key is a digest."""
        return None if self.name == self.key else self.name

    def owned(self) -> dict[str, Any]:
        return {"owner": self.key, "now": self.now()}

    def named(self, conversation_id: str) -> dict[str, Any]:
        return self.owned() | {"id": parse_uuid(conversation_id, field="conversation_id")}

    def session(self, session_id: str) -> dict[str, Any]:
        key = key_of(parse_name(session_id, field="session_id"))
        return self.owned() | {"session": key, "session_name": None if key == session_id else session_id}

    def creation(self, conversation: Conversation) -> dict[str, Any]:
        return rows.conversation_values(conversation) | self.owned() | {"owner_name": self.full_name}


def revision_conflict(record: Conversation, expected: int | None) -> RevisionConflict:
    # An encrypted turn is also refused because of another head of the log, without an expected revision.
    return RevisionConflict(record.id, expected=-1 if expected is None else expected, actual=record.revision)
