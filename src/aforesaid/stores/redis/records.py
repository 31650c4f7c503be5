"""Records of conversations: create, update, delete, count, restore."""

import secrets
from collections.abc import Sequence
from datetime import datetime

from msgspec import UNSET, msgpack

from aforesaid.contracts import Entry, Tally, check_restorable, entries_without_head
from aforesaid.errors import ConversationExists, MessageConflict
from aforesaid.model.clock import to_micros
from aforesaid.model.conversations import Changes, Conversation, expiry
from aforesaid.stores.redis import values
from aforesaid.stores.redis.conversation_index import ConversationIndex
from aforesaid.stores.redis.documents import by_kind
from aforesaid.stores.redis.owner_connection import (
    OwnerConnection,
    head_values,
    revision_conflict,
    revision_text,
)
from aforesaid.stores.redis.sessions import Sessions, binding
from aforesaid.stores.redis.turns import pack_entries
from aforesaid.stores.redis.values import moment_of


class Records:
    """One script changes a conversation; the owner's index and sessions are updated before and after it."""

    def __init__(self, connection: OwnerConnection, index: ConversationIndex, sessions: Sessions) -> None:
        self._connection = connection
        self._index = index
        self._sessions = sessions

    async def create(self, conversation: Conversation, *, session: str = "") -> str:
        """Store the record; return its birth, which distinguishes it from earlier conversations with the same
        id.
        """
        connection = self._connection
        birth = secrets.token_hex(8)
        now = connection.now()
        # The index comes first: a crash in between leaves an entry without a record, which readers remove,
        # but never a record without an entry.
        await self._index.add(conversation.id, conversation.last_activity)
        reply = await connection.run(
            "create",
            conversation.id,
            moment_of(now),
            values.server_expiry(conversation.expires_at, now=now),
            connection.keys.changes,
            conversation.id,
            session,
            msgpack.encode(values.record_fields(conversation, birth=birth)),
        )
        if reply[0] == b"exists":
            await self._index.correct(conversation.id)
            raise ConversationExists(conversation.id)
        await self._sessions.release(conversation.id, reply[1].decode(), reply[2])
        # Again, because a reader may have removed the entry before the record was there.
        await self._index.add(conversation.id, conversation.last_activity)
        return birth

    async def update(
        self, conversation_id: str, changes: Changes, expected_revision: int | None
    ) -> Conversation:
        connection = self._connection
        now = connection.now()
        status, *reply = await connection.run(
            "update",
            conversation_id,
            moment_of(now),
            revision_text(expected_revision),
            connection.keys.changes,
            conversation_id,
            _changed_expiry(changes, now),
            msgpack.encode(values.change_fields(changes, now=now)),
        )
        if status == b"conflict":
            raise revision_conflict(conversation_id, expected_revision, reply)
        return values.record(conversation_id, reply[0])

    async def delete(
        self,
        conversation_id: str,
        *,
        expired_by: datetime | None = None,
        expected_revision: int | None = None,
    ) -> Tally:
        """Remove the conversation, then its index entry and sessions; return the counts."""
        limit = "" if expired_by is None else moment_of(expired_by)
        named = (self._connection.keys.changes, conversation_id, revision_text(expected_revision))
        reply = await self._connection.run("delete", conversation_id, limit, *named)
        if reply[0] == b"conflict":
            raise revision_conflict(conversation_id, expected_revision, reply[1:])
        if reply[0] == b"unexpired":
            return Tally()
        birth, names, messages, documents = reply[1:]
        sessions = await self._index.remove(
            conversation_id, bound=binding(conversation_id, birth.decode()), names=names
        )
        return _tally(birth, messages, sessions, documents)

    async def tally(self, conversation_id: str) -> Tally:
        """Count what `delete` would remove."""
        birth, messages, documents, names = await self._connection.run("tally", conversation_id)
        sessions = await self._sessions.count_bound(names, binding(conversation_id, birth.decode()))
        return _tally(birth, messages, sessions, documents)

    async def restore(self, conversation: Conversation, entries: Sequence[Entry]) -> None:
        """Store the record and the entries exactly as given."""
        connection = self._connection
        entries, head = entries_without_head(entries)
        record, restored = check_restorable(conversation, entries)
        now = connection.now()
        packed = pack_entries(restored.values())
        await self._index.add(record.id, record.last_activity)
        status, *reply = await connection.run(
            "restore",
            record.id,
            moment_of(now),
            values.moment_text(record.expires_at),
            values.restored_server_expiry(record.expires_at, now=now),
            connection.keys.changes,
            record.id,
            secrets.token_hex(8),
            values.score_text(to_micros(record.last_activity)),
            msgpack.encode(values.public_fields(record)),
            msgpack.encode(values.absent_fields(record)),
            packed,
            *head_values(head),
            also=() if connection.clustered else (connection.keys.index,),
        )
        if status == b"conflict":
            await self._index.correct(record.id)
            raise revision_conflict(record.id, record.revision, reply)
        if status == b"taken":
            await self._index.correct(record.id)
            raise MessageConflict(record.id, reply[0].decode())
        await self._sessions.release(record.id, reply[0].decode(), reply[1])
        await self._index.correct(record.id)


def _tally(birth: bytes, messages: bytes, sessions: int, documents: Sequence[bytes]) -> Tally:
    return Tally(
        conversations=int(birth != b""),
        messages=int(messages),
        sessions=sessions,
        documents=by_kind(documents),
    )


def _changed_expiry(changes: Changes, now: datetime) -> str:
    """Return the server-side expiry after these changes; `same` if they do not concern it."""
    if changes.ttl is UNSET:
        return "same"
    return values.server_expiry(expiry(changes.ttl, now=now), now=now)
