"""Deleted text leaves the files too: pages are overwritten, and the log beside the file is emptied.

`secure_delete` (see `connections`) overwrites what is deleted in its page. The page as it was stays in the
write-ahead log until that is written into the file and cut to nothing, which is done here. A reader of
an old state, in this process or another, keeps the log for as long as it reads; so this waits, within
bounds, and says when it could not be done. Below: `connections`. Above: `backend`.
"""

import contextlib
import threading

import apsw

from recollect.stores.sqlite.connections import translated

AT_ONCE_SECONDS = 0.2
"""How long a plain deletion waits for readers. What it cannot do, the next one, the sweep or closing does."""
PATIENT_SECONDS = 10.0
"""How long an erasure waits."""


class Scrubber:
    """Empties the log of one file. Callers who come at the same time share one go."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._turn = threading.Lock()
        self._counting = threading.Lock()
        self._asked = 0
        self._answered = 0
        self.is_clean = True
        """Whether the last go emptied the log."""

    def scrub(self, *, seconds: float) -> bool:
        """Empty the log; False when a reader holds it. Blocks: call it off the event loop."""
        with self._counting:
            self._asked += 1
            mine = self._asked
        with self._turn:
            if self._answered < mine or not self.is_clean:
                with self._counting:
                    upto = self._asked
                self.is_clean = _emptied(self._path, seconds)
                self._answered = upto
            return self.is_clean


def _emptied(path: str, seconds: float) -> bool:
    with translated(path), contextlib.closing(_existing(path)) as connection:
        connection.set_busy_timeout(int(seconds * 1000))
        try:
            busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0]
        except apsw.BusyError:
            return False
        return not busy


def _existing(path: str) -> apsw.Connection:
    """A connection that does not create the file: one that was removed must not come back empty."""
    return apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
