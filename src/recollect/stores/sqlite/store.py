"""One owner's view of the file. Decides nothing itself: the rules are in `conversations`."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import apsw

from recollect.clock import to_micros
from recollect.contracts import Appended, ConversationStore, Entry, Position
from recollect.conversations import (
    Changes,
    Conversation,
    Page,
    Query,
    applied,
    check_count,
    check_revision,
    cursor_of,
    emptied,
    extended,
    stamp_for,
)
from recollect.errors import ConversationExists, ConversationNotFound, MessageConflict
from recollect.ids import parse_name, parse_uuid
from recollect.messages import Message
from recollect.stores.sql_files import queries
from recollect.stores.sqlite import rows
from recollect.stores.sqlite.connections import PACKAGE
from recollect.wire import encode_message

if TYPE_CHECKING:
    from recollect.stores.sqlite.backend import SQLiteBackend

SQL = queries(PACKAGE)


class _Found(NamedTuple):
    """A conversation inside a transaction."""

    key: int
    next_sequence: int
    record: Conversation


class SQLiteStore(ConversationStore):
    """Reads go to the reading threads, writes to the writing one."""

    def __init__(self, backend: "SQLiteBackend", owner: str) -> None:
        self._backend = backend
        self._owner = owner

    def now(self) -> datetime:
        return self._backend.clock()

    async def create(self, conversation: Conversation) -> Conversation:
        await self._backend.writer.run(lambda db: self._create(db, conversation))
        return conversation

    async def get(self, conversation_id: str) -> Conversation | None:
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        found = await self._backend.readers.run(lambda db: self._find(db, conversation_id))
        return found.record if found else None

    async def update(
        self, conversation_id: str, changes: Changes, *, expected_revision: int | None = None
    ) -> Conversation:
        conversation_id = parse_uuid(conversation_id, field="conversation_id")

        def work(db: apsw.Connection) -> Conversation:
            found = self._require(db, conversation_id)
            check_revision(found.record, expected_revision)
            record = applied(found.record, changes, now=self.now())
            db.execute(SQL["update_conversation"], rows.metadata_values(record, found.key))
            return record

        return await self._backend.writer.run(work)

    async def find(self, query: Query) -> Page:
        values = rows.query_values(self._owner, query, self.now())
        found = await self._backend.readers.run(
            lambda db: [rows.conversation(row) for row in db.execute(SQL["find_conversations"], values)]
        )
        shown = found[: query.limit]
        more = len(found) > query.limit
        return Page(conversations=tuple(shown), next=cursor_of(shown[-1]) if more else None)

    async def delete(self, conversation_id: str) -> None:
        values = (self._owner, parse_uuid(conversation_id, field="conversation_id"))
        await self._backend.writer.run(lambda db: _run(db, "delete_conversation", values))

    async def resume(
        self, session_id: str, fresh: Conversation, *, active_since: datetime | None = None
    ) -> Conversation:
        bound = await self.session(session_id)
        if bound is not None and _still_active(bound, active_since):
            return bound  # the usual case, without waiting for the writer

        def work(db: apsw.Connection) -> Conversation:
            bound = self._find_session(db, session_id)
            if bound is not None and _still_active(bound.record, active_since):
                return bound.record
            key = self._create(db, fresh)
            db.execute(SQL["bind_session"], (self._owner, session_id, key))
            return fresh

        return await self._backend.writer.run(work)

    async def session(self, session_id: str) -> Conversation | None:
        parse_name(session_id, field="session_id")
        found = await self._backend.readers.run(lambda db: self._find_session(db, session_id))
        return found.record if found else None

    async def bind(self, session_id: str, conversation_id: str) -> None:
        parse_name(session_id, field="session_id")
        conversation_id = parse_uuid(conversation_id, field="conversation_id")

        def work(db: apsw.Connection) -> None:
            key = self._require(db, conversation_id).key
            db.execute(SQL["bind_session"], (self._owner, session_id, key))

        await self._backend.writer.run(work)

    async def unbind(self, session_id: str) -> None:
        values = (self._owner, parse_name(session_id, field="session_id"))
        await self._backend.writer.run(lambda db: _run(db, "unbind_session", values))

    async def append(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        bodies = [encode_message(message).decode() for message in messages]

        def work(db: apsw.Connection) -> Appended:
            found = self._require(db, conversation_id)
            return self._extend(db, found, messages, bodies, expected_revision)

        return await self._backend.writer.run(work)

    async def rewrite(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        bodies = [encode_message(message).decode() for message in messages]

        def work(db: apsw.Connection) -> Appended:
            found = self._require(db, conversation_id)
            check_revision(found.record, expected_revision)
            db.execute(SQL["delete_messages"], (found.key,))
            empty = found._replace(record=emptied(found.record))
            return self._extend(db, empty, messages, bodies, None, always=True)

        return await self._backend.writer.run(work)

    async def tail(self, conversation_id: str, *, limit: int, before: Position | None = None) -> list[Entry]:
        check_count(limit, field="limit", least=0)
        sql, place = (SQL["tail"], ()) if before is None else (SQL["tail_before"], tuple(before))
        newest_first = await self._entries(conversation_id, sql, (*place, limit))
        return newest_first[::-1]

    async def page(self, conversation_id: str, *, limit: int, offset: int = 0) -> list[Entry]:
        check_count(limit, field="limit", least=0)
        check_count(offset, field="offset", least=0)
        return await self._entries(conversation_id, SQL["page"], (limit, offset))

    async def purge_expired(self) -> int:
        return await self._backend.purge(SQL["purge_owner"], self._owner, to_micros(self.now()))

    async def _entries(self, conversation_id: str, sql: str, values: tuple[int, ...]) -> list[Entry]:
        conversation_id = parse_uuid(conversation_id, field="conversation_id")

        def work(db: apsw.Connection) -> list[Entry]:
            (key,) = db.execute(SQL["get_key"], self._named(conversation_id)).fetchone() or (None,)
            if key is None:
                raise ConversationNotFound(conversation_id)
            return [rows.entry(conversation_id, row) for row in db.execute(sql, (key, *values))]

        return await self._backend.readers.run(work)

    def _named(self, conversation_id: str) -> tuple[str, str, int]:
        return self._owner, conversation_id, to_micros(self.now())

    def _find(self, db: apsw.Connection, conversation_id: str) -> _Found | None:
        return _found(db.execute(SQL["get_conversation"], self._named(conversation_id)).fetchone())

    def _find_session(self, db: apsw.Connection, session_id: str) -> _Found | None:
        return _found(db.execute(SQL["get_session"], self._named(session_id)).fetchone())

    def _require(self, db: apsw.Connection, conversation_id: str) -> _Found:
        found = self._find(db, conversation_id)
        if found is None:
            raise ConversationNotFound(conversation_id)
        return found

    def _create(self, db: apsw.Connection, conversation: Conversation) -> int:
        db.execute(SQL["delete_if_expired"], self._named(conversation.id))
        try:
            db.execute(SQL["insert_conversation"], rows.conversation_values(self._owner, conversation))
        except apsw.ConstraintError:
            raise ConversationExists(conversation.id) from None
        return db.last_insert_rowid()

    def _extend(
        self,
        db: apsw.Connection,
        found: _Found,
        messages: Sequence[Message],
        bodies: Sequence[str],
        expected_revision: int | None,
        *,
        always: bool = False,
    ) -> Appended:
        """Insert what is new, move the record. `always` moves it also when nothing is new."""
        now = self.now()
        placing = _Placing(db, found, now)
        for message, body in zip(messages, bodies, strict=True):
            placing.put(message, body)
        if placing.new or not messages:
            check_revision(found.record, expected_revision)
        if not placing.new and not always:
            return Appended(conversation=found.record, new=(), known=tuple(placing.known))
        record = extended(found.record, [entry.message for entry in placing.new], now=now)
        db.execute(SQL["extend_conversation"], _extension(record, placing.next_sequence, found.key))
        return Appended(conversation=record, new=tuple(placing.new), known=tuple(placing.known))


class _Placing:
    """Puts messages in their places, one after the other, inside a transaction."""

    def __init__(self, db: apsw.Connection, found: _Found, now: datetime) -> None:
        self._db = db
        self._key = found.key
        self._record = found.record
        self._now = now
        self._stamp = stamp_for(found.record.last_message_at, now=now)
        self.next_sequence = found.next_sequence
        self.new: list[Entry] = []
        self.known: list[Entry] = []

    def put(self, message: Message, body: str) -> None:
        stamped = message if message.timestamp else message.with_(timestamp=self._stamp)
        entry = Entry(
            conversation_id=self._record.id,
            sequence=self.next_sequence,
            revision=self._record.revision + 1,
            stored_at=self._now,
            message=stamped,
        )
        if self._insert(entry, body):
            self.new.append(entry)
            self.next_sequence += 1
        else:
            self.known.append(self._stored(message))

    def _insert(self, entry: Entry, body: str) -> bool:
        micros, sequence = entry.position
        stored_at = to_micros(self._now)
        message_id = entry.message.message_id
        values = (self._key, micros, sequence, message_id, entry.revision, stored_at, body)
        self._db.execute(SQL["insert_message"], values)
        return self._db.changes() == 1

    def _stored(self, message: Message) -> Entry:
        (row,) = self._db.execute(SQL["get_message"], (self._key, message.message_id)).fetchall()
        entry = rows.entry(self._record.id, row)
        if not entry.message.says_the_same_as(message):
            raise MessageConflict(self._record.id, str(message.message_id))
        return entry


def _extension(record: Conversation, next_sequence: int, key: int) -> tuple[Any, ...]:
    return (
        rows.micros(record.last_message_at),
        record.last_message_from,
        record.unread_count,
        record.message_count,
        record.revision,
        rows.micros(record.expires_at),
        to_micros(record.updated_at),
        next_sequence,
        key,
    )


def _found(row: Sequence[Any] | None) -> _Found | None:
    return None if row is None else _Found(row[0], row[1], rows.conversation(row))


def _still_active(record: Conversation, active_since: datetime | None) -> bool:
    return active_since is None or record.last_activity >= active_since


def _run(db: apsw.Connection, name: str, values: tuple[Any, ...]) -> None:
    db.execute(SQL[name], values)
