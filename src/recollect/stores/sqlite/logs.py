"""The ends of logs, where turns are put: one by one, or many of them with few statements.

All of it runs on the writing thread, inside a transaction. Above: `store`, `backend`. Below: `rows`.
"""

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

import apsw

from recollect.clock import Clock, to_micros
from recollect.contracts import Appended, Entry, check_says_the_same
from recollect.conversations import Conversation, check_revision, stamp_for
from recollect.errors import ConversationNotFound
from recollect.messages import Message
from recollect.stores.sql_files import queries
from recollect.stores.sqlite import rows
from recollect.stores.sqlite.connections import PACKAGE
from recollect.wire import decode_message

SQL = queries(PACKAGE)
_VALUES = re.compile(r"(?<=VALUES )(\([?, ]+\))")

LONGEST_TURN = 16
"""Messages that are stored by one statement, and that other turns in a batch gladly wait for."""
MOST_ENDS = 10_000
"""Conversations whose end is remembered from one turn to the next: some ten megabytes."""
ROWS_AT_ONCE = 16
"""Rows in one statement: more of them spare little, and take longer to compile."""


class Turn(NamedTuple):
    """A turn that is to be put at the end of a log."""

    owner: str
    conversation_id: str
    messages: Sequence[Message]
    bodies: Sequence[str]
    expected_revision: int | None


class Ends:
    """Puts turns at the ends of logs. It remembers their records from one turn to the next, so that none need
    be read: `forget` if somebody else may have written. `wrote` is told of how many messages are stored."""

    def __init__(self, clock: Clock, *, wrote: Callable[[apsw.Connection, int], None]) -> None:
        self._clock = clock
        self._wrote = wrote
        self._rows: dict[tuple[str, str], rows.Row] = {}

    def forget(self) -> None:
        self._rows.clear()

    def log(self, db: apsw.Connection, owner: str, conversation_id: str) -> "Log":
        """The log of a conversation. Raises `ConversationNotFound`."""
        now = self._clock()
        row = self._rows.get((owner, conversation_id))
        if row is None:
            named = owner, conversation_id, to_micros(now)
            row = db.execute(SQL["get_conversation"], named).fetchone()
        log = None if row is None else Log(db, row, now)
        if log is None or log.is_over:
            raise ConversationNotFound(conversation_id)
        return log

    def put(self, db: apsw.Connection, turn: Turn) -> Appended:
        """Put a turn at the end of its log. What is known by its id is left as it is."""
        log = self.log(db, turn.owner, turn.conversation_id)
        log.put(turn.messages, turn.bodies)
        if log.new or not turn.messages:
            check_revision(turn.conversation_id, log.revision, turn.expected_revision)
        if not log.new:
            return Appended(conversation=log.record, new=(), known=tuple(log.known))
        return self.moved(db, turn.owner, log)

    def moved(self, db: apsw.Connection, owner: str, log: "Log") -> Appended:
        """Bring the record up to date with what was put, remember it, and say what was put."""
        self._wrote(db, len(log.new))
        row = log.moved()
        db.execute(SQL["extend_conversation"], rows.extension_values(row))
        self._remember(owner, row)
        return Appended(conversation=log.record, new=log.entries, known=tuple(log.known))

    def put_together(self, db: apsw.Connection, turns: Sequence[Turn]) -> list[Appended]:
        """Put turns that have nothing but new messages, all with a few statements, in which others may run.

        Raises where anything else is the case: nothing is told then, and each is put by itself.
        """
        put: list[Appended] = []
        inserted: list[Any] = []
        moved: dict[int, rows.Row] = {}
        for turn in turns:
            log = self.log(db, turn.owner, turn.conversation_id)
            check_revision(turn.conversation_id, log.revision, turn.expected_revision)
            inserted += log.placed(turn.messages, turn.bodies)
            row = log.moved()
            self._remember(turn.owner, row)
            moved[row[rows.KEY]] = row
            put.append(Appended(conversation=log.record, new=log.entries))
        extensions = [value for row in moved.values() for value in rows.extension_values(row)]
        _run_on_rows(db, "insert_new_messages", inserted, width=7)
        _run_on_rows(db, "extend_conversations", extensions, width=9)
        self._wrote(db, sum(len(turn.messages) for turn in turns))
        return put

    def _remember(self, owner: str, row: rows.Row) -> None:
        if len(self._rows) >= MOST_ENDS:
            self._rows.clear()
        self._rows[owner, row[rows.ID]] = row


class Log:
    """The log of one conversation: messages are put at its end, the record follows.

    The record and the entries are made only when somebody asks for them: most callers do not.
    """

    def __init__(self, db: apsw.Connection, row: rows.Row, now: datetime) -> None:
        self._db = db
        self._row = row
        self._now = now
        self._now_micros = to_micros(now)
        self._last_at, self._last_from = row[rows.LAST_MESSAGE]
        self._stamp, self._stamp_micros = now, self._now_micros
        if self._last_at is not None and self._last_at > self._now_micros:
            self._stamp = stamp_for(rows.moment(self._last_at), now=now)
            self._stamp_micros = to_micros(self._stamp)
        self._first_sequence: int = row[rows.NEXT_SEQUENCE]
        self.revision: int = row[rows.REVISION]
        self.new: Sequence[Message] = ()
        self.known: list[Entry] = []

    @property
    def is_over(self) -> bool:
        return rows.is_over(self._row, self._now_micros)

    def clear(self) -> None:
        """Remove everything that was said, and what was derived from it."""
        self._db.execute(SQL["delete_messages"], (self._row[rows.KEY],))
        self._db.execute(SQL["delete_documents"], (self._row[rows.KEY],))
        self._row = rows.emptied(self._row)
        self._last_at, self._last_from = None, None
        self._stamp, self._stamp_micros = self._now, self._now_micros

    def placed(self, messages: Sequence[Message], bodies: Sequence[str]) -> list[Any]:
        """The values of the rows that put these messages at the end, if all of them are new."""
        moments = self._moments(messages)
        self._follow(messages, moments)
        return self._values(messages, moments, bodies)

    def put(self, messages: Sequence[Message], bodies: Sequence[str]) -> None:
        """Store the messages at the end, without those whose id is known."""
        moments = self._moments(messages)
        if 0 < len(messages) <= LONGEST_TURN and self._put_at_once(messages, moments, bodies):
            self._follow(messages, moments)
        else:
            self._follow(*self._put_apart(messages, moments, bodies))

    def moved(self) -> rows.Row:
        """The record's row after what was put."""
        last = self._last_at, self._last_from
        self._row = rows.extended(self._row, last=last, added=len(self.new), now=self._now_micros)
        return self._row

    def record(self) -> Conversation:
        return rows.conversation(self._row)

    def entries(self) -> tuple[Entry, ...]:
        """What was new."""
        return tuple(
            Entry(
                conversation_id=self._row[rows.ID],
                sequence=sequence,
                revision=self.revision + 1,
                stored_at=self._now,
                message=message if message.timestamp else message.at(self._stamp),
            )
            for sequence, message in enumerate(self.new, self._first_sequence)
        )

    def _moments(self, messages: Sequence[Message]) -> list[int]:
        return [to_micros(m.timestamp) if m.timestamp else self._stamp_micros for m in messages]

    def _follow(self, new: Sequence[Message], moments: Sequence[int]) -> None:
        """These were new: the latest of them is the last message."""
        self.new = new
        for message, at in zip(new, moments, strict=True):
            if self._last_at is None or at >= self._last_at:
                self._last_at, self._last_from = at, message.role

    def _values(
        self, messages: Sequence[Message], moments: Sequence[int], bodies: Sequence[str]
    ) -> list[Any]:
        key, sequence, revision, now = self._row[0], self._first_sequence, self.revision + 1, self._now_micros
        values: list[Any] = []
        for message, at, body in zip(messages, moments, bodies, strict=True):
            values += (key, at, sequence, message.message_id, revision, now, body)
            sequence += 1
        return values

    def _put_at_once(
        self, messages: Sequence[Message], moments: Sequence[int], bodies: Sequence[str]
    ) -> bool:
        """All in one statement, which nearly always succeeds; whether it did."""
        insert = _on_rows("insert_new_messages", len(messages))
        try:
            self._db.execute(insert, self._values(messages, moments, bodies))
        except apsw.ConstraintError:
            return False  # an id is known: the statement has left nothing behind
        return True

    def _put_apart(
        self, messages: Sequence[Message], moments: Sequence[int], bodies: Sequence[str]
    ) -> tuple[list[Message], list[int]]:
        """One by one; those that were new, and their moments."""
        new: list[tuple[Message, int]] = []
        for message, at, body in zip(messages, moments, bodies, strict=True):
            place = self._row[0], at, self._first_sequence + len(new)
            values = (*place, message.message_id, self.revision + 1, self._now_micros, body)
            self._db.execute(SQL["insert_message"], values)
            if self._db.changes():
                new.append((message, at))
            else:
                self.known.append(self._stored(decode_message(body)))
        return [message for message, _ in new], [at for _, at in new]

    def _stored(self, message: Message) -> Entry:
        (row,) = self._db.execute(SQL["get_message"], (self._row[rows.KEY], message.message_id)).fetchall()
        entry = rows.entry(self._row[rows.ID], row)
        check_says_the_same(entry, message)
        return entry


def _run_on_rows(db: apsw.Connection, name: str, values: list[Any], *, width: int) -> None:
    """Run a statement on all the rows in the values, so many at once."""
    step = ROWS_AT_ONCE * width
    for start in range(0, len(values), step):
        some = values[start : start + step]
        db.execute(_on_rows(name, len(some) // width), some)


@cache
def _on_rows(name: str, count: int) -> str:
    """A statement on one row of values, on so many of them."""
    before, values, after = _VALUES.split(SQL[name], maxsplit=1)
    return before + ", ".join([values] * count) + after
