"""One owner's view of the file. The rules for records are in `model.conversations`."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, Self

import apsw

from aforesaid.contracts import (
    Appended,
    Entry,
    Label,
    LabelChanges,
    Listing,
    LogEnd,
    LogSnapshot,
    Matches,
    Position,
    Tally,
    check_head,
    check_not_partly_stored,
    check_position,
    check_restorable,
    entries_without_head,
    replaced_entry,
    replaced_id,
    replacement_message,
    same_content,
    split_head,
    without_head,
)
from aforesaid.errors import ConversationExists, ConversationNotFound, MessageConflict, MessageNotFound
from aforesaid.model.clock import parse_moment, to_micros
from aforesaid.model.conversations import (
    Changes,
    Conversation,
    Page,
    Query,
    applied,
    check_count,
    check_revision,
    cursor_of,
    end_of,
    is_expired,
)
from aforesaid.model.ids import parse_name, parse_uuid
from aforesaid.model.messages import Message
from aforesaid.model.wire import encode_message
from aforesaid.stores._arguments import frozen_in_time, last_sequence
from aforesaid.stores._snapshots import SnapshotQuery
from aforesaid.stores._sql_files import queries
from aforesaid.stores.sqlite import rows
from aforesaid.stores.sqlite.connections import PACKAGE
from aforesaid.stores.sqlite.database import Database
from aforesaid.stores.sqlite.documents import StoredDocuments
from aforesaid.stores.sqlite.logs import MAX_SHARED_TURN, Turn
from aforesaid.stores.sqlite.rows import clear_batch, tally_of_conversation, tally_of_owner
from aforesaid.stores.sqlite.search import index_again, matches, row_of, tag_of

SQL = queries(PACKAGE)

# Conversations removed in one transaction, so that turns can be stored in between.
CLEAR_BATCH = 100


class _Found(NamedTuple):
    """A conversation inside a transaction."""

    key: int
    next_sequence: int
    record: Conversation


class SQLiteStore(StoredDocuments):
    """Route reads to the reader threads and writes to the writer thread."""

    def __init__(self, database: Database, owner: str) -> None:
        super().__init__(database, owner)
        self._tag = tag_of(owner)

    async def create(self, conversation: Conversation) -> Conversation:
        await self._database.writer.run(lambda db: self._create(db, conversation))
        return conversation

    async def get(self, conversation_id: str) -> Conversation | None:
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        found = await self._database.readers.run(lambda db: self._find(db, conversation_id))
        return found.record if found else None

    async def update(
        self, conversation_id: str, changes: Changes, *, expected_revision: int | None = None
    ) -> Conversation:
        conversation_id = parse_uuid(conversation_id, field="conversation_id")

        def work(db: apsw.Connection) -> Conversation:
            found = self._require(db, conversation_id)
            check_revision(conversation_id, found.record.revision, expected_revision)
            record = applied(found.record, changes, now=self.now())
            db.execute(SQL["update_conversation"], rows.metadata_values(record, found.key))
            return record

        return await self._database.writer.run(work)

    async def find(self, query: Query) -> Page:
        values = rows.query_values(self._owner, query, self.now())
        found = await self._database.readers.run(
            lambda db: list(map(rows.conversation, db.execute(SQL["find_conversations"], values).fetchall()))
        )
        shown = found[: query.limit]
        more = len(found) > query.limit
        return Page(conversations=tuple(shown), next=cursor_of(shown[-1]) if more else None)

    async def delete(self, conversation_id: str, *, expected_revision: int | None = None) -> Tally:
        values = (self._owner, parse_uuid(conversation_id, field="conversation_id"))

        def work(db: apsw.Connection) -> Tally:
            if expected_revision is not None:
                # A missing conversation has no revision to compare: deleting it is not an error.
                row = db.execute(SQL["get_revision"], values).fetchone()
                check_revision(values[1], rows.count(row) if row else expected_revision, expected_revision)
            removed = tally_of_conversation(db, *values)
            db.execute(SQL["delete_conversation"], values)
            return removed

        removed = await self._database.writer.run(work)
        await self._database.clean_after_removal()
        return removed

    async def resume(
        self, session_id: str, fresh: Conversation, *, active_since: datetime | None = None
    ) -> Conversation:
        bound = await self.session(session_id)
        if bound is not None and _still_active(bound, active_since):
            return bound  # the usual case, without the writer

        def work(db: apsw.Connection) -> Conversation:
            bound = self._find_session(db, session_id)
            if bound is not None and _still_active(bound.record, active_since):
                return bound.record
            key = self._create(db, fresh)
            db.execute(SQL["bind_session"], (self._owner, session_id, key))
            return fresh

        return await self._database.writer.run(work)

    async def session(self, session_id: str) -> Conversation | None:
        parse_name(session_id, field="session_id")
        found = await self._database.readers.run(lambda db: self._find_session(db, session_id))
        return found.record if found else None

    async def bind(self, session_id: str, conversation_id: str) -> None:
        parse_name(session_id, field="session_id")
        conversation_id = parse_uuid(conversation_id, field="conversation_id")

        def work(db: apsw.Connection) -> None:
            key = self._require(db, conversation_id).key
            db.execute(SQL["bind_session"], (self._owner, session_id, key))

        await self._database.writer.run(work)

    async def unbind(self, session_id: str) -> None:
        values = (self._owner, parse_name(session_id, field="session_id"))
        await self._database.writer.run(lambda db: _run(db, "unbind_session", values))

    async def sessions(self, conversation_id: str) -> list[str]:
        conversation_id = parse_uuid(conversation_id, field="conversation_id")

        def work(db: apsw.Connection) -> list[str]:
            key = self._require(db, conversation_id).key
            return sorted(session_id for (session_id,) in db.execute(SQL["get_sessions"], (key,)))

        return await self._database.readers.run(work)

    async def append(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        messages, head = without_head(messages)
        bodies = [encode_message(message).decode() for message in messages]
        turn = Turn(self._owner, conversation_id, messages, bodies, expected_revision, *split_head(head))
        if 0 < len(messages) <= MAX_SHARED_TURN:
            return await self._database.writer.append(turn)
        return await self._database.writer.run(lambda db: self._database.appender.append(db, turn))

    async def rewrite(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        messages, head = without_head(messages)
        bodies = [encode_message(message).decode() for message in messages]

        def work(db: apsw.Connection) -> Appended:
            log = self._database.appender.log(db, self._owner, conversation_id)
            check_revision(conversation_id, log.revision, expected_revision)
            log.clear()
            log.append(messages, bodies)
            check_not_partly_stored(conversation_id, head, new=len(log.new), known=len(log.known))
            return self._database.appender.finish(db, log, head)

        rewritten = await self._database.writer.run(work)
        await self._database.clean_after_removal()
        return rewritten

    async def tail(self, conversation_id: str, *, limit: int, before: Position | None = None) -> list[Entry]:
        check_count(limit, field="limit", least=0)
        check_position(before)
        sql, place = (SQL["tail"], ()) if before is None else (SQL["tail_before"], tuple(before))
        newest_first = await self._entries(conversation_id, sql, (*place, limit))
        return newest_first[::-1]

    async def page(self, conversation_id: str, *, limit: int, offset: int = 0) -> list[Entry]:
        check_count(limit, field="limit", least=0)
        check_count(offset, field="offset", least=0)
        return await self._entries(conversation_id, SQL["page"], (limit, offset))

    async def read_snapshot(
        self, conversation_id: str, *, front: int, tail: int, documents: Listing
    ) -> LogSnapshot:
        check_count(front, field="front", least=0)
        check_count(tail, field="tail", least=0)
        snapshot_query = SnapshotQuery(
            self._owner, parse_uuid(conversation_id, field="conversation_id"), front, tail, documents
        )
        # The cache of this moment: a removal replaces it, and a read that began before must not fill the new
        # one.
        snapshots, now = self._database.snapshots, to_micros(self.now())

        def work(db: apsw.Connection) -> LogSnapshot:
            snapshot = snapshots.read_snapshot(db, snapshot_query, now)
            if snapshot is None:
                raise ConversationNotFound(snapshot_query.conversation_id)
            return snapshot

        return await self._database.readers.run(work)

    async def entry(self, conversation_id: str, message_id: str) -> Entry | None:
        parse_name(message_id, field="message_id")
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        return await self._database.readers.run(lambda db: self._entry(db, conversation_id, message_id))

    async def replace(
        self, conversation_id: str, message: Message, *, expected_revision: int | None = None
    ) -> Entry:
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        (message,), carried = without_head([message])
        head, seen = split_head(carried)
        encode_message(message)  # raises for a message that cannot be stored
        message_id = replaced_id(message)

        def work(db: apsw.Connection) -> Entry:
            found = self._require(db, conversation_id)
            old = self._entry(db, conversation_id, message_id)
            if old is None:
                raise MessageNotFound(conversation_id, message_id)
            entry = replaced_entry(old, replacement_message(old, message), revision=found.record.revision + 1)
            check_revision(conversation_id, found.record.revision, expected_revision)
            self._check_head(db, found.key, found.record, seen)
            self._put_in_place(db, found.key, entry, keeps_derived=same_content(old, message))
            if head is not None:
                db.execute(SQL["put_head"], (head, found.key))
            return entry

        entry = await self._database.writer.run(work)
        await self._database.clean_after_removal()
        return entry

    def _check_head(self, db: apsw.Connection, key: object, record: Conversation, seen: str | None) -> None:
        """Raise `RevisionConflict` if the log has another head than the change continues from."""
        if seen is not None:
            check_head(record.id, record.revision, db.execute(SQL["get_head"], (key,)).get, seen)

    def _put_in_place(self, db: apsw.Connection, key: int, entry: Entry, *, keeps_derived: bool) -> None:
        body = encode_message(entry.message).decode()
        db.execute(SQL["replace_message"], (entry.revision, body, key, *entry.position))
        # The trigger has removed the old words from the index.
        if self._database.indexer is not None:
            (place,) = db.execute(SQL["message_key"], (key, *entry.position)).fetchall()
            row = row_of(self._tag, key, rows.count(place), *entry.position, body)
            index_again(db, row, body)
        db.execute(SQL["touch_conversation"], (to_micros(self.now()), key))
        if not keeps_derived:
            db.execute(SQL["delete_derived"], (key,))

    async def log_end(self, conversation_id: str) -> LogEnd | None:
        values = self._named(parse_uuid(conversation_id, field="conversation_id"))
        row = await self._database.readers.run(
            lambda db: db.execute(SQL["get_conversation"], values).fetchone()
        )
        return None if row is None else rows.log_end(row)

    async def reseal(self, conversation_id: str, entries: Sequence[Entry]) -> int:
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        bodies = [(encode_message(e.message).decode(), *e.position, e.revision) for e in entries]

        def work(db: apsw.Connection) -> int:
            key = self._require(db, conversation_id).key
            exchanged = 0
            for values in bodies:
                db.execute(SQL["reseal_message"], (*values, key))
                exchanged += db.changes()
            return exchanged

        return await self._database.writer.run(work)

    async def exchange_head(self, conversation_id: str, old: str | None, new: str) -> bool:
        conversation_id = parse_uuid(conversation_id, field="conversation_id")

        def work(db: apsw.Connection) -> bool:
            db.execute(SQL["exchange_head"], (new, self._require(db, conversation_id).key, old))
            return bool(db.changes())

        return await self._database.writer.run(work)

    async def restore(
        self, conversation: Conversation, entries: Sequence[Entry], *, expected_revision: int | None = None
    ) -> None:
        entries, carried = entries_without_head(entries)
        head, seen = split_head(carried)
        record, restored = check_restorable(conversation, entries)
        placed = {entry.sequence: rows.entry_values(entry) for entry in restored.values()}

        def work(db: apsw.Connection) -> None:
            # An expired conversation that no sweep has removed yet must not block a restored one.
            if not is_expired(record, now=self.now()):
                db.execute(SQL["delete_if_expired"], self._named(record.id))
            if expected_revision is not None:
                row = db.execute(SQL["get_revision"], (self._owner, record.id)).fetchone()
                check_revision(record.id, rows.count(row) if row else -1, expected_revision)
            values = rows.conversation_values(self._owner, record)
            ((key, next_sequence),) = db.execute(SQL["restore_conversation"], values).fetchall()
            self._check_head(db, key, record, seen)
            new = rows.free_entries(db, key, next_sequence, placed)
            for sequence, (message_id, *rest) in new.items():
                db.execute(SQL["insert_message"], (key, rest[0], sequence, message_id, *rest[1:]))
                if not db.changes():
                    raise MessageConflict(record.id, str(message_id))
            self._database.wrote(len(new))
            db.execute(SQL["skip_sequences"], (max(new, default=0), key))
            if head is not None:
                db.execute(SQL["put_head"], (head, key))

        await self._database.writer.run(work)

    async def purge_expired(self) -> int:
        return await self._database.purge(SQL["purge_owner"], self._owner, to_micros(self.now()))

    async def expired(self, *, by: datetime, limit: int = 100) -> list[Conversation]:
        values = (self._owner, to_micros(parse_moment(by, field="by")))
        check_count(limit, field="limit", least=0)
        found = await self._database.readers.run(
            lambda db: list(map(rows.conversation, db.execute(SQL["expired"], values).fetchall()))
        )
        return sorted(found, key=end_of)[:limit]

    # Branches; see `contracts.Branchable`

    def including_expired(self) -> Self:
        return frozen_in_time(self)

    async def family(self, root_id: str) -> list[Conversation]:
        values = self._owner, parse_uuid(root_id, field="root_id")
        return await self._database.readers.run(
            lambda db: list(map(rows.conversation, db.execute(SQL["family"], values).fetchall()))
        )

    async def kept_expired(self) -> list[Conversation]:
        values = self._owner, to_micros(self.now())
        return await self._database.readers.run(
            lambda db: list(map(rows.conversation, db.execute(SQL["kept_expired"], values).fetchall()))
        )

    async def last_sequence(self, conversation_id: str) -> int:
        return last_sequence(conversation_id, await self.log_end(conversation_id))

    async def clear(self) -> Tally:
        clear = partial(clear_batch, owner=self._owner, limit=CLEAR_BATCH)
        removed = some = await self._database.writer.run(clear)
        while some.conversations:
            some = await self._database.writer.run(clear)
            removed += some
        await self._database.clean_after_removal()
        return removed

    async def tally(self, conversation_id: str | None = None) -> Tally:
        if conversation_id is None:
            return await self._database.readers.run(partial(tally_of_owner, owner=self._owner))
        values = (self._owner, parse_uuid(conversation_id, field="conversation_id"))
        return await self._database.readers.run(lambda db: tally_of_conversation(db, *values))

    async def _entries(self, conversation_id: str, sql: str, values: tuple[int, ...]) -> list[Entry]:
        conversation_id = parse_uuid(conversation_id, field="conversation_id")

        def work(db: apsw.Connection) -> list[Entry]:
            key = self._key(db, conversation_id)
            # Fetch all rows first: an error while decoding must not leave the query and its snapshot open.
            found = db.execute(sql, (key, *values)).fetchall()
            return [rows.entry(conversation_id, row) for row in found]

        return await self._database.readers.run(work)

    def _find(self, db: apsw.Connection, conversation_id: str) -> _Found | None:
        return _found(db.execute(SQL["get_conversation"], self._named(conversation_id)).fetchone())

    def _find_session(self, db: apsw.Connection, session_id: str) -> _Found | None:
        return _found(db.execute(SQL["get_session"], self._named(session_id)).fetchone())

    def _entry(self, db: apsw.Connection, conversation_id: str, message_id: str) -> Entry | None:
        found = self._require(db, conversation_id)
        row = db.execute(SQL["get_message"], (found.key, message_id)).fetchone()
        return None if row is None else rows.entry(conversation_id, row)

    def _require(self, db: apsw.Connection, conversation_id: str) -> _Found:
        found = self._find(db, conversation_id)
        if found is None:
            raise ConversationNotFound(conversation_id)
        return found

    def _create(self, db: apsw.Connection, conversation: Conversation) -> int:
        # An expired conversation counts as missing, so its id is free.
        db.execute(SQL["delete_if_expired"], self._named(conversation.id))
        try:
            db.execute(SQL["insert_conversation"], rows.conversation_values(self._owner, conversation))
        except apsw.ConstraintError:
            raise ConversationExists(conversation.id) from None
        return db.last_insert_rowid()


class SearchableSQLiteStore(SQLiteStore):
    """A store with an index; see `contracts.Searchable`."""

    async def labels_since(self, mark: int) -> LabelChanges:
        """See `contracts.Labelled`."""

        def work(db: apsw.Connection) -> LabelChanges:
            # The number first: a change in between is then reported again, not missed.
            (last,) = db.execute(SQL["last_label"]).fetchone() or (0,)
            found = db.execute(SQL["labels_since"], (self._owner, mark)) if last > mark else ()
            return LabelChanges(last, [Label(*row) for row in found])

        return await self._database.readers.run(work)

    async def matches(self, terms: Sequence[str], *, limit: int) -> Matches:
        check_count(limit, field="limit", least=0)
        wanted, now = tuple(terms), to_micros(self.now())

        def work(db: apsw.Connection) -> Matches | None:
            return matches(db, self._owner, self._tag, wanted, limit=limit, now=now)

        # None: too many messages wait to be analysed during the search. Index them on the writer thread
        # first.
        while (found := await self._database.readers.run(work)) is None:
            await self._database.catch_up()
        return found


def _found(row: Sequence[Any] | None) -> _Found | None:
    return None if row is None else _Found(row[0], row[1], rows.conversation(row))


def _still_active(record: Conversation, active_since: datetime | None) -> bool:
    return active_since is None or record.last_activity >= active_since


def _run(db: apsw.Connection, name: str, values: tuple[Any, ...]) -> None:
    db.execute(SQL[name], values)
