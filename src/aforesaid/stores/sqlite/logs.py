"""Append turns to logs: all waiting turns with one statement, or one by one.

Everything here runs on the writer thread. The usual path is `LogAppender.append_all`: it reads the record of
each conversation from its cache, computes the rows of all turns, and executes one statement, whose triggers
(`append_turns.sql`) insert the messages and update the records.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

import apsw

from aforesaid._internal.bounded import BoundedDict
from aforesaid.contracts import Appended, Entry, check_head, check_not_partly_stored, check_same_content
from aforesaid.errors import ConversationNotFound
from aforesaid.model.clock import Clock, to_micros
from aforesaid.model.conversations import Conversation, check_revision, stamp_for
from aforesaid.model.messages import Message
from aforesaid.model.wire import decode_message
from aforesaid.stores._sql_files import queries, sql_file
from aforesaid.stores.sqlite import rows
from aforesaid.stores.sqlite.connections import PACKAGE

SQL = queries(PACKAGE)

# The longest turn, in messages, that shares a statement with others.
MAX_SHARED_TURN = 16
# Cached records: about ten megabytes.
MAX_CACHED = 10_000
# Row counts up to this have a statement each; larger counts are rounded up to a multiple of it.
ROW_STEP = 8
# Record columns of a message that is not the last of its turn: they leave the record unchanged.
_NO_RECORD = (None,) * 6
_MESSAGE_WIDTH = 7
_WIDTH = _MESSAGE_WIDTH + len(_NO_RECORD)


class ConcurrentWriteError(Exception):
    """Another connection has written since the cached records were read."""


class Turn(NamedTuple):
    """A turn to be appended to a log."""

    owner: str
    conversation_id: str
    messages: Sequence[Message]
    bodies: Sequence[str]
    expected_revision: int | None
    head: str | None = None
    seen: str | None = None
    """The head that the turn was sealed after."""


class Moment(NamedTuple):
    """A time as datetime and as microseconds."""

    at: datetime
    micros: int

    @classmethod
    def of(cls, at: datetime) -> "Moment":
        return cls(at, to_micros(at))


class LogAppender:
    """Append turns to logs.

    Caches the records between turns, so that they need not be read again. The cache is valid for one version
    of the file: `append_all` stores nothing if another connection has written since. Call `clear_cache`
    before any other write on this connection. `on_stored` receives the number of stored messages.
    """

    def __init__(self, clock: Clock, *, on_stored: Callable[[int], None]) -> None:
        self._clock = clock
        self._on_stored = on_stored
        self._rows: BoundedDict[tuple[str, str], rows.Row] = BoundedDict(MAX_CACHED)
        self._version: int | None = None

    @staticmethod
    def prepare(db: apsw.Connection) -> None:
        """Create the temporary view and triggers of `append_turns.sql` on the writer's connection."""
        db.execute("PRAGMA temp_store = MEMORY")  # messages must not be written to a temporary file
        db.execute(sql_file(PACKAGE, "append_turns.sql"))

    def clear_cache(self) -> None:
        self._rows.clear()
        self._version = None

    def log(
        self, db: apsw.Connection, owner: str, conversation_id: str, *, now: Moment | None = None
    ) -> "Log":
        """Return the log of a conversation. Raise `ConversationNotFound`."""
        now = now or self._now()
        row = self._rows.get((owner, conversation_id))
        if row is None:
            row = db.execute(SQL["get_conversation"], (owner, conversation_id, now.micros)).fetchone()
        if row is None or rows.is_expired(row, now.micros):
            raise ConversationNotFound(conversation_id)
        return Log(db, row, now)

    def _now(self) -> Moment:
        return Moment.of(self._clock())

    def append(self, db: apsw.Connection, turn: Turn) -> Appended:
        """Append a turn to its log, inside a transaction. Messages with known ids are not stored again."""
        log = self.log(db, turn.owner, turn.conversation_id)
        log.append(turn.messages, turn.bodies)
        check_not_partly_stored(turn.conversation_id, turn.head, new=len(log.new), known=len(log.known))
        # A turn of which every message is known is the retry of a write that succeeded: any revision is
        # right.
        if log.new or not turn.messages:
            check_revision(turn.conversation_id, log.revision, turn.expected_revision)
        if not log.new:
            return Appended(conversation=log.record, new=(), known=tuple(log.known))
        check_head(turn.conversation_id, log.revision, log.row[rows.HEAD], turn.seen)
        return self.finish(db, log, turn.head)

    def finish(self, db: apsw.Connection, log: "Log", head: str | None) -> Appended:
        """Update the record after messages were appended; return the result."""
        self._on_stored(len(log.new))
        db.execute(SQL["extend_conversation"], rows.extension_values(log.updated_row(head)))
        return Appended(conversation=log.record, new=log.entries, known=tuple(log.known))

    def append_all(
        self, db: apsw.Connection, turns: Sequence[Turn], *, before_write: Callable[[], None]
    ) -> list[Appended]:
        """Store turns of new messages with one statement, which is a transaction by itself.

        Raise if a message is known or anything else is unusual; nothing is stored then, and the caller stores
        the turns one by one. Call `before_write` right before the statement, during which the event loop can
        run.
        """
        try:
            results, values = self._rows_of(db, turns)
            statement = _padded_statement(values)
            before_write()
            before = db.total_changes()
            db.execute(statement, (*values, self._version))
        except BaseException:
            self.clear_cache()  # the cache is ahead of the file
            raise
        # Comparing fields of the record instead would not be enough: a conversation that was deleted and
        # created again may have the same id, key, revision and length.
        if db.total_changes() == before:  # the file has another version than the cached records
            self.clear_cache()
            raise ConcurrentWriteError
        self._on_stored(sum(len(turn.messages) for turn in turns))
        return results

    def _rows_of(self, db: apsw.Connection, turns: Sequence[Turn]) -> tuple[list[Appended], list[Any]]:
        """Return the results of the turns and the values of their rows."""
        # Read once after a write of another kind. The statement compares it inside its own transaction.
        if self._version is None:
            self._version = int(db.execute("PRAGMA data_version").get)
        results: list[Appended] = []
        values: list[Any] = []
        now = self._now()
        for turn in turns:
            log = self.log(db, turn.owner, turn.conversation_id, now=now)
            check_revision(turn.conversation_id, log.revision, turn.expected_revision)
            check_head(turn.conversation_id, log.revision, log.row[rows.HEAD], turn.seen)
            values += log.row_values(turn.messages, turn.bodies, turn.head)
            self._rows[turn.owner, turn.conversation_id] = log.row
            results.append(Appended(conversation=log.record, new=log.entries))
        return results, values


class Log:
    """The log of one conversation, for appending.

    The record and the entries are created on demand: most callers do not need them.
    """

    def __init__(self, db: apsw.Connection, row: rows.Row, now: Moment) -> None:
        self._db = db
        self.row = row
        self._now = self._stamp = now
        self._last_at, self._last_from = row[rows.LAST_MESSAGE]
        # A clock that was set back, or another machine's clock, must not reorder the conversation.
        # `stamp_for` follows the last message for up to a minute.
        if self._last_at is not None and self._last_at > now.micros:
            self._stamp = Moment.of(stamp_for(rows.moment(self._last_at), now=now.at))
        self._first_sequence: int = row[rows.NEXT_SEQUENCE]
        self.revision: int = row[rows.REVISION]
        self.new: Sequence[Message] = ()
        self.known: list[Entry] = []

    def clear(self) -> None:
        """Remove all messages and derived documents."""
        self._db.execute(SQL["delete_messages"], (self.row[rows.KEY],))
        self._db.execute(SQL["delete_documents"], (self.row[rows.KEY],))
        self.row = rows.emptied(self.row)
        self._last_at, self._last_from = None, None
        self._stamp = self._now

    def row_values(self, messages: Sequence[Message], bodies: Sequence[str], head: str | None) -> list[Any]:
        """Return the row values that append these messages, which must all be new."""
        key, sequence, now = self.row[rows.KEY], self._first_sequence, self._now.micros
        values: list[Any] = []
        for message, body in zip(messages, bodies, strict=True):
            at = self._moment_of(message)
            self._follow(message, at)
            values += (key, at, sequence, message.message_id, self.revision + 1, now, body, *_NO_RECORD)
            sequence += 1
        self.new = messages
        # The trigger updates the record with the row of the turn's last message.
        values[-len(_NO_RECORD) :] = rows.record_values(self.updated_row(head))
        return values

    def append(self, messages: Sequence[Message], bodies: Sequence[str]) -> None:
        """Append the messages with new ids."""
        new: list[Message] = []
        for message, body in zip(messages, bodies, strict=True):
            at = self._moment_of(message)
            place = self.row[rows.KEY], at, self._first_sequence + len(new)
            values = (*place, message.message_id, self.revision + 1, self._now.micros, body)
            self._db.execute(SQL["insert_message"], values)
            # The insert ignores a known id.
            if self._db.changes():
                self._follow(message, at)
                new.append(message)
            else:
                self.known.append(self._stored(decode_message(body)))
        self.new = new

    def updated_row(self, head: str | None) -> rows.Row:
        """Return the record's row, updated for the new messages."""
        last = self._last_at, self._last_from
        added, now = len(self.new), self._now.micros
        self.row = rows.extended(self.row, last=last, added=added, now=now, head=head)
        return self.row

    def record(self) -> Conversation:
        return rows.conversation(self.row)

    def entries(self) -> tuple[Entry, ...]:
        """Return the entries of the new messages."""
        return tuple(
            Entry(
                conversation_id=self.row[rows.ID],
                sequence=sequence,
                revision=self.revision + 1,
                stored_at=self._now.at,
                message=message if message.timestamp else message.at(self._stamp.at),
            )
            for sequence, message in enumerate(self.new, self._first_sequence)
        )

    def _moment_of(self, message: Message) -> int:
        return self._stamp.micros if message.timestamp is None else to_micros(message.timestamp)

    def _follow(self, message: Message, at: int) -> None:
        """Update the last message."""
        if self._last_at is None or at >= self._last_at:
            self._last_at, self._last_from = at, message.role

    def _stored(self, message: Message) -> Entry:
        (row,) = self._db.execute(SQL["get_message"], (self.row[rows.KEY], message.message_id)).fetchall()
        entry = rows.entry(self.row[rows.ID], row)
        check_same_content(entry, message)
        return entry


def _padded_statement(values: list[Any]) -> str:
    """Return the statement for these rows. Pad the values to a round number of rows, so that few different
    statements are compiled; padding rows store nothing."""
    count = len(values) // _WIDTH
    lacking = 0 if count <= ROW_STEP else -count % ROW_STEP
    values += (None,) * (lacking * _WIDTH)
    return _append_statement(count + lacking)


@cache
def _append_statement(count: int) -> str:
    row = f"({','.join('?' * _WIDTH)})"
    return SQL["append_messages"].replace("(?)", ",".join([row] * count))
