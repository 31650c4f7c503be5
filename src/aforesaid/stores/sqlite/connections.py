"""Open connections, check that the file is ours, and migrate its schema. Detect replaced files. Translate
SQLite's errors."""

import contextlib
import math
import os
import random
import time
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import TypeAlias

import apsw

from aforesaid.contracts import SchemaVersion
from aforesaid.errors import (
    AforesaidError,
    InvalidMessage,
    InvalidSetting,
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreForeign,
    StoreReplaced,
    StoreUnavailable,
    shown,
)
from aforesaid.stores._sql_files import migrations

APPLICATION_ID = 0x41465344  # "AFSD" identifies files of this program
PACKAGE = "aforesaid.stores.sqlite"
# Seconds that one call waits for locks of other processes, all attempts together. Transactions take
# milliseconds; after seconds, an error is better than more waiting.
LOCK_TIMEOUT = 5.0

SYNCHRONOUS = ("full", "normal")


def check_lock_timeout(seconds: float) -> float:
    """Return the timeout. Raise `InvalidSetting` unless it is a finite number of seconds."""
    if not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
        raise InvalidSetting(
            f"lock_timeout must be a number of seconds, 0 or more; got {shown(seconds)}",
            field="lock_timeout",
            value=seconds,
        )
    return float(seconds)


class LockWait:
    """The busy handler of a connection: poll for a lock until a deadline.

    Without `until`, each statement may wait for `seconds`. A caller with several statements sets `until`
    (`time.monotonic`), so that their waits do not add up.
    """

    def __init__(self, seconds: float = LOCK_TIMEOUT, *, until: float | None = None) -> None:
        self._seconds = seconds
        self._statement_until = 0.0
        self.until = until

    def __call__(self, attempt: int) -> bool:
        if attempt == 0:
            self._statement_until = time.monotonic() + self._seconds
        if time.monotonic() >= (self._statement_until if self.until is None else self.until):
            return False
        # Short random pauses let many processes alternate instead of starving one.
        time.sleep(random.uniform(0.0002, 0.002) * min(attempt + 1, 5))
        return True


def connect(path: str, *, synchronous: str, wait: LockWait | None = None) -> apsw.Connection:
    """Connect to a file that `prepare` has checked."""
    connection = apsw.Connection(path)
    connection.set_busy_handler(wait or LockWait())
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute("PRAGMA foreign_keys = ON")
    # Overwrite deleted text instead of only unlinking it.
    connection.execute("PRAGMA secure_delete = ON")
    return connection


def prepare(path: str, *, synchronous: str, wait: LockWait) -> apsw.Connection:
    """Open the file, check that it is ours, and migrate the schema."""
    with translated(path):
        connection = connect(path, synchronous=synchronous, wait=wait)
        try:
            _check_ours(connection, path)
            _switch_to_wal(connection, wait)
            migrate(connection, path)
        except BaseException:
            connection.close()
            raise
    return connection


def _switch_to_wal(connection: apsw.Connection, wait: LockWait) -> None:
    """Set the journal mode. SQLite calls no busy handler for this statement, so retry it here."""
    attempts, is_set = count(), False
    while not is_set:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            is_set = True
        except apsw.BusyError:
            if not wait(next(attempts)):
                raise


def migrate(connection: apsw.Connection, path: str) -> None:
    """Apply the missing migrations under a lock, each exactly once."""
    steps = migrations(PACKAGE)
    if _version(connection) == len(steps):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Check again under the lock: another process may have migrated meanwhile.
        _check_ours(connection, path)
        for number, sql in steps[_version(connection) :]:
            connection.execute(sql)
            connection.execute(f"PRAGMA user_version = {number}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def schema_version(path: str) -> SchemaVersion:
    """Return the file's schema version and the needed one. Change nothing."""
    found = 0
    if Path(path).exists():
        # Without a write-ahead log, the file is complete and can be read without creating one.
        settled = "" if Path(f"{path}-wal").exists() else "&immutable=1"
        uri = f"{Path(path).absolute().as_uri()}?mode=ro{settled}"
        with translated(path):
            connection = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
            with contextlib.closing(connection):
                connection.set_busy_handler(LockWait())
                _check_program(connection, path)
                found = _version(connection)
    return SchemaVersion(found=found, needed=len(migrations(PACKAGE)))


def _check_program(connection: apsw.Connection, path: str) -> None:
    # Read the application id last: another process may be creating the file, and the id is committed with the
    # tables.
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").get
    version = _version(connection)
    marker = connection.pragma("application_id")
    if marker != APPLICATION_ID and (tables or version or marker):
        raise StoreForeign(f"{path} is the database of another program; it was left as it is")


def _check_ours(connection: apsw.Connection, path: str) -> None:
    _check_program(connection, path)
    if _version(connection) > len(migrations(PACKAGE)):
        raise StoreForeign(
            f"{path} was written by a newer release of Aforesaid (schema {_version(connection)}); "
            "it was left as it is"
        )


def _version(connection: apsw.Connection) -> int:
    return int(connection.pragma("user_version"))


def create(path: str) -> None:
    """Create the file if it is missing, readable by its owner only."""
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise StoreUnavailable(f"cannot open {path}: there is no folder {folder}")
    with translated(path), contextlib.suppress(FileExistsError):
        os.close(os.open(os.path.realpath(path), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


Identity: TypeAlias = tuple[int, int]
"""Device and inode."""


class OpenFiles:
    """The identity of the database file, its log and its shared memory, to detect their removal.

    A process can keep writing to a deleted file, which the operating system discards when the process ends.
    So the writer thread compares device and inode of each path with those at opening, before each batch and
    again before acknowledging it. A file that is overwritten in place keeps its inode and is not detected.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        # Check the given path, to detect a changed symbolic link. SQLite opens the log next to the link's
        # target.
        self._name = os.path.abspath(path)
        self._file = os.path.realpath(path)
        self._identities = {self._name: _identity(self._name)}
        # Whether the last check failed.
        self.is_replaced = False

    def include_log(self) -> None:
        """Add the files that SQLite created next to the database."""
        for suffix in ("-wal", "-shm"):
            name = f"{self._file}{suffix}"
            identity = _identity(name)
            if identity is not None:
                self._identities[name] = identity

    def check(self) -> None:
        """Raise `StoreReplaced` unless every path still refers to the opened file."""
        self._check(self._identities.items())
        self.is_replaced = False

    def check_name(self) -> None:
        """Check the database file only, which costs a third; check all files if the last check failed."""
        if self.is_replaced:
            self.check()
        else:
            self._check([(self._name, self._identities[self._name])])

    def check_again(self) -> None:
        """Check only if the last check failed; otherwise this costs nothing."""
        if self.is_replaced:
            self.check()

    def _check(self, files: Iterable[tuple[str, Identity | None]]) -> None:
        for name, known in files:
            if _identity(name) != known:
                self.is_replaced = True
                raise StoreReplaced(
                    f"{name} was removed or replaced while {self._path} was open, and nothing was stored; "
                    "restart this process, or close the store and open it again"
                )


def _identity(name: str) -> Identity | None:
    """Return device and inode of a path; None if there is no file."""
    try:
        found = os.stat(name)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


@contextlib.contextmanager
def translated(path: str) -> Iterator[None]:
    """Translate SQLite's errors; each message names the file."""
    try:
        yield
    except (apsw.Error, OSError) as error:
        raise translate_error(error, path) from error


def translate_error(error: Exception, path: str) -> Exception:
    """Return our error for one of SQLite's, with that as its cause; return any other error unchanged."""
    if isinstance(error, StoreDamaged):
        return StoreDamaged(f"{path}: {error}")
    if isinstance(error, UnicodeDecodeError):
        return StoreDamaged(f"{path} holds text that is not UTF-8: {error}")
    if not isinstance(error, (apsw.Error, OSError)):
        return error
    translation = _translation(error, path)
    translation.__cause__ = error
    return translation


def _translation(error: apsw.Error | OSError, path: str) -> AforesaidError:
    match error:
        case OSError():
            return StoreUnavailable(f"cannot open {path}: {error.strerror or error}")
        case apsw.NotADBError():
            return StoreDamaged(f"{path} is not a SQLite database, or is damaged; it was left as it is")
        case apsw.CorruptError():
            return StoreDamaged(f"{path} is damaged: {error}")
        case apsw.BusyError() | apsw.LockedError() | apsw.ProtocolError():
            return StoreBusy(f"another process holds the lock of {path} for too long; nothing was stored")
        case (
            apsw.FullError()
            | apsw.IOError()
            | apsw.CantOpenError()
            | apsw.ReadOnlyError()
            | apsw.PermissionsError()
        ):
            return StoreUnavailable(f"{path} cannot be used: {error}")
        case apsw.TooBigError():
            return InvalidMessage("the message is larger than the store can hold", field="content")
        case _:
            return StoreError(f"{path}: {error}")
