"""The floor that every environment has: Python's own `sqlite3`, and a file.

It runs in the measured process, in alternation with the entrant, so each figure has a neighbour that shows
the speed of the machine at that moment. Above: jobs and adapters. Standard library only.
"""

import os
import sqlite3
from pathlib import Path


class SQLiteYardstick:
    """Two rows in one durable transaction: write-ahead log, `synchronous=FULL`, one index."""

    def __init__(self, path: Path) -> None:
        self.db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("PRAGMA synchronous = FULL")
        self.db.execute(
            "CREATE TABLE IF NOT EXISTS messages (session TEXT, sequence INTEGER, role TEXT, body TEXT,"
            " PRIMARY KEY (session, sequence)) WITHOUT ROWID"
        )

    def turn(self, session: str, question: str, answer: str) -> None:
        self.db.execute("BEGIN IMMEDIATE")
        (last,) = self.db.execute(
            "SELECT coalesce(max(sequence), 0) FROM messages WHERE session = ?", (session,)
        ).fetchone()
        self.db.execute("INSERT INTO messages VALUES (?, ?, 'user', ?)", (session, last + 1, question))
        self.db.execute("INSERT INTO messages VALUES (?, ?, 'assistant', ?)", (session, last + 2, answer))
        self.db.execute("COMMIT")

    def tail(self, session: str, limit: int) -> list[str]:
        rows = self.db.execute(
            "SELECT body FROM messages WHERE session = ? ORDER BY sequence DESC LIMIT ?", (session, limit)
        )
        return [body for (body,) in rows][::-1]

    def close(self) -> None:
        self.db.close()


class FileYardstick:
    """Two lines at the end of a file, and `fdatasync`."""

    def __init__(self, path: Path) -> None:
        self.file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_RDWR, 0o600)

    def turn(self, question: str, answer: str) -> None:
        os.write(self.file, f"{question}\n{answer}\n".encode())
        os.fdatasync(self.file)

    def close(self) -> None:
        os.close(self.file)
