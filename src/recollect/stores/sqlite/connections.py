"""Connections to the file: opening, checking whose it is, bringing its schema up to date.

Errors of the engine are translated here, at the border, and nowhere else.
"""

import contextlib
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw

from recollect.contracts import SchemaVersion
from recollect.errors import (
    InvalidMessage,
    RecollectError,
    StoreDamaged,
    StoreError,
    StoreForeign,
    StoreUnavailable,
)
from recollect.stores.sql_files import migrations

APPLICATION_ID = 0x52434C54  # "RCLT": marks the file as ours
PACKAGE = "recollect.stores.sqlite"
BUSY_SECONDS = 60.0
"""How long to wait for another process's transaction. They take milliseconds; a minute is a hang."""

SYNCHRONOUS = ("full", "normal")


def connect(path: str, *, synchronous: str) -> apsw.Connection:
    """A connection to a file that `prepare` has seen."""
    connection = apsw.Connection(path)
    connection.set_busy_handler(patience())
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute("PRAGMA foreign_keys = ON")
    # Deleted text is overwritten, not only unlinked.
    connection.execute("PRAGMA secure_delete = ON")
    return connection


def prepare(path: str, *, synchronous: str) -> apsw.Connection:
    """Open or create the file, refuse what is not ours, and bring the schema up to date."""
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise StoreUnavailable(f"cannot open {path}: there is no folder {folder}")
    _create_private(path)
    with translated(path):
        connection = connect(path, synchronous=synchronous)
        try:
            _check_ours(connection, path)
            connection.execute("PRAGMA journal_mode = WAL")
            migrate(connection, path)
        except BaseException:
            connection.close()
            raise
    return connection


def migrate(connection: apsw.Connection, path: str) -> None:
    """Apply the migrations that the file has not seen, under a lock, each exactly once."""
    steps = migrations(PACKAGE)
    if _version(connection) == len(steps):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Asked again under the lock: another process may have been first.
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
    """Which version the file has and which it needs. Nothing is made or changed."""
    found = 0
    if Path(path).exists():
        # Without a log beside it the file is all there is, and can be read without making one.
        settled = "" if Path(f"{path}-wal").exists() else "&immutable=1"
        uri = f"{Path(path).absolute().as_uri()}?mode=ro{settled}"
        with translated(path):
            connection = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
            with contextlib.closing(connection):
                connection.set_busy_handler(patience())
                _check_program(connection, path)
                found = _version(connection)
    return SchemaVersion(found=found, needed=len(migrations(PACKAGE)))


def _check_program(connection: apsw.Connection, path: str) -> None:
    # The mark is read last: it comes together with all else, and somebody may just be making the file.
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").get
    version = _version(connection)
    marker = connection.pragma("application_id")
    if marker != APPLICATION_ID and (tables or version or marker):
        raise StoreForeign(f"{path} is the database of another program; it was left as it is")


def _check_ours(connection: apsw.Connection, path: str) -> None:
    _check_program(connection, path)
    if _version(connection) > len(migrations(PACKAGE)):
        raise StoreForeign(
            f"{path} was written by a newer release of Recollect (schema {_version(connection)}); "
            "it was left as it is"
        )


def _version(connection: apsw.Connection) -> int:
    return int(connection.pragma("user_version"))


def _create_private(path: str) -> None:
    """Conversations are nobody else's business: the file is made readable by its owner only."""
    with translated(path), contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def patience() -> Callable[[int], bool]:
    """How a connection waits for another process: a busy handler."""
    deadline = 0.0

    def wait(attempt: int) -> bool:
        nonlocal deadline
        if attempt == 0:
            deadline = time.monotonic() + BUSY_SECONDS
        # Short and uneven, so that many processes take turns instead of starving one.
        time.sleep(random.uniform(0.0002, 0.002) * min(attempt + 1, 5))
        return time.monotonic() < deadline

    return wait


@contextlib.contextmanager
def translated(path: str) -> Iterator[None]:
    """Turn the engine's errors into ours, each naming the file."""
    try:
        yield
    except (apsw.Error, OSError) as error:
        raise ours(error, path) from error


def ours(error: Exception, path: str) -> Exception:
    """One of our errors for one of the engine's, which stays its cause; any other error as it is."""
    if isinstance(error, StoreDamaged):
        return StoreDamaged(f"{path}: {error}")
    if isinstance(error, UnicodeDecodeError):
        return StoreDamaged(f"{path} holds text that is not UTF-8: {error}")
    if not isinstance(error, (apsw.Error, OSError)):
        return error
    translation = _translation(error, path)
    translation.__cause__ = error
    return translation


def _translation(error: apsw.Error | OSError, path: str) -> RecollectError:
    match error:
        case OSError():
            return StoreUnavailable(f"cannot open {path}: {error.strerror or error}")
        case apsw.NotADBError():
            return StoreDamaged(f"{path} is not a SQLite database, or is damaged; it was left as it is")
        case apsw.CorruptError():
            return StoreDamaged(f"{path} is damaged: {error}")
        case apsw.BusyError() | apsw.LockedError():
            return StoreUnavailable(f"{path} is held by another process for too long")
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
