"""The ends of logs, where turns are put: all that wait by one statement, or else one by one.

All of it runs on the writing thread. Above: `store`, `backend`, `pools`. Below: `rows`, `putting.sql`.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

import apsw

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

LONGEST_TURN = 16
"""Messages that other turns in a batch gladly wait for."""
MOST_ENDS = 10_000
"""Conversations whose end is remembered from one turn to the next: some ten megabytes."""
FEW_ROWS = 8
"""Up to so many rows in a statement every number has its own; beyond, only multiples of this."""
_NO_RECORD = (None,) * 6
"""In the row of a message that is not the last of its turn: nothing moves in the record."""
_MESSAGE_WIDTH = 7
_WIDTH = _MESSAGE_WIDTH + len(_NO_RECORD)


class OthersWroteError(Exception):
    """Another connection has written since the records were read that are remembered."""


class Turn(NamedTuple):
    """A turn that is to be put at the end of a log."""

    owner: str
    conversation_id: str
    messages: Sequence[Message]
    bodies: Sequence[str]
    expected_revision: int | None
    head: str | None = None
    seen: str | None = None
    """The head that the turn goes on from."""


class Moment(NamedTuple):
    """When something is stored, in both of its forms."""

    at: datetime
    micros: int

    @classmethod
    def of(cls, at: datetime) -> "Moment":
        return cls(at, to_micros(at))


class Ends:
    """Puts turns at the ends of logs. It remembers their records from one turn to the next, so that none need
    be read, as they are in one version of the file; `put_at_once` stores nothing when another connection has
    written since. `forget` them before this one writes something else. `wrote` is told of how many messages
    are stored."""

    def __init__(self, clock: Clock, *, wrote: Callable[[int], None]) -> None:
        self._clock = clock
        self._wrote = wrote
        self._rows: dict[tuple[str, str], rows.Row] = {}
        self._version: int | None = None

    @staticmethod
    def prepare(db: apsw.Connection) -> None:
        """Make what `put_at_once` needs, for the connection that writes."""
        db.execute("PRAGMA temp_store = MEMORY")  # words that are on their way must not lie in another file
        db.execute(sql_file(PACKAGE, "putting.sql"))

    def forget(self) -> None:
        self._rows.clear()
        self._version = None

    def log(
        self, db: apsw.Connection, owner: str, conversation_id: str, *, now: Moment | None = None
    ) -> "Log":
        """The log of a conversation. Raises `ConversationNotFound`."""
        now = now or self._now()
        row = self._rows.get((owner, conversation_id))
        if row is None:
            row = db.execute(SQL["get_conversation"], (owner, conversation_id, now.micros)).fetchone()
        if row is None or rows.is_over(row, now.micros):
            raise ConversationNotFound(conversation_id)
        return Log(db, row, now)

    def _now(self) -> Moment:
        return Moment.of(self._clock())

    def put(self, db: apsw.Connection, turn: Turn) -> Appended:
        """Put a turn at the end of its log, inside a transaction. What is known by its id stays as it is."""
        log = self.log(db, turn.owner, turn.conversation_id)
        log.put(turn.messages, turn.bodies)
        check_not_partly_stored(turn.conversation_id, turn.head, new=len(log.new), known=len(log.known))
        if log.new or not turn.messages:
            check_revision(turn.conversation_id, log.revision, turn.expected_revision)
        if not log.new:
            return Appended(conversation=log.record, new=(), known=tuple(log.known))
        check_head(turn.conversation_id, log.revision, log.row[rows.HEAD], turn.seen)
        return self.moved(db, log, turn.head)

    def moved(self, db: apsw.Connection, log: "Log", head: str | None) -> Appended:
        """Bring the record up to date with what was put, and say what was put."""
        self._wrote(len(log.new))
        db.execute(SQL["extend_conversation"], rows.extension_values(log.moved(head)))
        return Appended(conversation=log.record, new=log.entries, known=tuple(log.known))

    def put_at_once(
        self, db: apsw.Connection, turns: Sequence[Turn], *, meanwhile: Callable[[], None]
    ) -> list[Appended]:
        """Put turns that have nothing but new messages: by one statement, which is a transaction by itself.

        Raises where anything else is the case: nothing is stored then, and each is to be put by itself.
        `meanwhile` happens right before the statement runs: others may run as long as it does.
        """
        try:
            put, values = self._placed(db, turns)
            self._put_rows(db, values, meanwhile)
        except BaseException:
            self.forget()  # what is remembered is ahead of the file
            raise
        self._wrote(sum(len(turn.messages) for turn in turns))
        return put

    def _put_rows(self, db: apsw.Connection, values: list[Any], meanwhile: Callable[[], None]) -> None:
        statement = _filled_up(values)
        values.append(self._version)
        meanwhile()
        before = db.total_changes()
        db.execute(statement, values)
        if db.total_changes() == before:
            raise OthersWroteError

    def _placed(self, db: apsw.Connection, turns: Sequence[Turn]) -> tuple[list[Appended], list[Any]]:
        """What there will be to say of the turns, and the values of their rows."""
        if self._version is None:
            self._version = int(db.execute("PRAGMA data_version").get)
        put: list[Appended] = []
        values: list[Any] = []
        now = self._now()
        for turn in turns:
            log = self.log(db, turn.owner, turn.conversation_id, now=now)
            check_revision(turn.conversation_id, log.revision, turn.expected_revision)
            check_head(turn.conversation_id, log.revision, log.row[rows.HEAD], turn.seen)
            values += log.placed(turn.messages, turn.bodies, turn.head)
            self._remember(turn.owner, log.row)
            put.append(Appended(conversation=log.record, new=log.entries))
        return put, values

    def _remember(self, owner: str, row: rows.Row) -> None:
        if len(self._rows) >= MOST_ENDS:
            self._rows.clear()
        self._rows[owner, row[rows.ID]] = row


class Log:
    """The log of one conversation: messages are put at its end, the record follows.

    The record and the entries are made only when somebody asks for them: most callers do not.
    """

    def __init__(self, db: apsw.Connection, row: rows.Row, now: Moment) -> None:
        self._db = db
        self.row = row
        self._now = self._stamp = now
        self._last_at, self._last_from = row[rows.LAST_MESSAGE]
        if self._last_at is not None and self._last_at > now.micros:
            self._stamp = Moment.of(stamp_for(rows.moment(self._last_at), now=now.at))
        self._first_sequence: int = row[rows.NEXT_SEQUENCE]
        self.revision: int = row[rows.REVISION]
        self.new: Sequence[Message] = ()
        self.known: list[Entry] = []

    def clear(self) -> None:
        """Remove everything that was said, and what was derived from it."""
        self._db.execute(SQL["delete_messages"], (self.row[rows.KEY],))
        self._db.execute(SQL["delete_documents"], (self.row[rows.KEY],))
        self.row = rows.emptied(self.row)
        self._last_at, self._last_from = None, None
        self._stamp = self._now

    def placed(self, messages: Sequence[Message], bodies: Sequence[str], head: str | None) -> list[Any]:
        """The values of the rows that put these messages, one or more, at the end, if all of them are new."""
        key, sequence, now = self.row[rows.KEY], self._first_sequence, self._now.micros
        values: list[Any] = []
        for message, body in zip(messages, bodies, strict=True):
            at = self._moment_of(message)
            self._follow(message, at)
            values += (key, at, sequence, message.message_id, self.revision + 1, now, body, *_NO_RECORD)
            sequence += 1
        self.new = messages
        values[-len(_NO_RECORD) :] = rows.moving_values(self.moved(head))
        return values

    def put(self, messages: Sequence[Message], bodies: Sequence[str]) -> None:
        """Store the messages at the end, without those whose id is known."""
        new: list[Message] = []
        for message, body in zip(messages, bodies, strict=True):
            at = self._moment_of(message)
            place = self.row[rows.KEY], at, self._first_sequence + len(new)
            values = (*place, message.message_id, self.revision + 1, self._now.micros, body)
            self._db.execute(SQL["insert_message"], values)
            if self._db.changes():
                self._follow(message, at)
                new.append(message)
            else:
                self.known.append(self._stored(decode_message(body)))
        self.new = new

    def moved(self, head: str | None) -> rows.Row:
        """The record's row after what was put."""
        last = self._last_at, self._last_from
        added, now = len(self.new), self._now.micros
        self.row = rows.extended(self.row, last=last, added=added, now=now, head=head)
        return self.row

    def record(self) -> Conversation:
        return rows.conversation(self.row)

    def entries(self) -> tuple[Entry, ...]:
        """What was new."""
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
        """This is new: the latest message is the last one."""
        if self._last_at is None or at >= self._last_at:
            self._last_at, self._last_from = at, message.role

    def _stored(self, message: Message) -> Entry:
        (row,) = self._db.execute(SQL["get_message"], (self.row[rows.KEY], message.message_id)).fetchall()
        entry = rows.entry(self.row[rows.ID], row)
        check_same_content(entry, message)
        return entry


def _filled_up(values: list[Any]) -> str:
    """The statement that puts these rows. It has a round number of them, so that there are few statements to
    compile: the values are filled up with rows that put nothing."""
    count = len(values) // _WIDTH
    lacking = 0 if count <= FEW_ROWS else -count % FEW_ROWS
    values += (None,) * (lacking * _WIDTH)
    return _putting(count + lacking)


@cache
def _putting(count: int) -> str:
    row = f"({','.join('?' * _WIDTH)})"
    return SQL["put_messages"].replace("(?)", ",".join([row] * count))
