"""The least possible work: the same rows through `apsw`, called directly, with the same pragmas."""

from pathlib import Path

from aforesaid.model.clock import system_clock, to_micros
from aforesaid.model.ids import new_id
from aforesaid.stores._sql_files import queries, sql_file
from aforesaid.stores.sqlite.connections import PACKAGE, connect

SQL = queries(PACKAGE)
MOVE_RECORD = """
UPDATE conversations
SET last_message_at = ?, last_message_from = ?, unread_count = ?, message_count = ?, revision = ?,
    updated_at = ?, next_sequence = ?
WHERE pk = ?
"""


class Floor:
    """One file with our schema and the same inserts and update as a turn makes, and nothing else."""

    def __init__(self, path: Path, *, synchronous: str) -> None:
        self.db = connect(str(path), synchronous=synchronous)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute(sql_file(PACKAGE, "schema.sql"))
        self._sequences: dict[int, int] = {}

    def conversation(self) -> int:
        """A new conversation; returns its key."""
        now = to_micros(system_clock())
        values = ("floor", new_id(), "voice", "open", "normal", None, None, None, None, "[]", None)
        # The last four: name, participants, lineage, next_sequence.
        more = (None, None, 0, 0, 0, None, None, now, now, None, None, None, 1)
        self.db.execute(SQL["insert_conversation"], (*values, *more))
        key = self.db.last_insert_rowid()
        self._sequences[key] = 1
        return key

    def turn(self, key: int, bodies: tuple[str, ...]) -> None:
        """One durable turn."""
        self.db.execute("BEGIN IMMEDIATE")
        self.rows(key, bodies)
        self.db.execute("COMMIT")

    def rows(self, key: int, bodies: tuple[str, ...]) -> None:
        """The rows of a turn, inside a transaction."""
        now = to_micros(system_clock())
        sequence = self._sequences[key]
        for body in bodies:
            self.db.execute(SQL["insert_message"], (key, now, sequence, new_id(), 1, now, body))
            sequence += 1
        self._sequences[key] = sequence
        self.db.execute(MOVE_RECORD, (now, "assistant", sequence, sequence, sequence, now, sequence, key))
