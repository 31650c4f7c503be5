"""Durable files, and locks between processes. All functions block and raise errors of the operating system.

- `replace` writes a file atomically: a draft, fsync, rename, fsync of the folder.
- `append` writes to the end of a file, with fsync.
- `Lock` is a lock with a file of its own; `locked` locks an open file.

The operating system releases every lock when its process ends.
"""

import contextlib
import os
import secrets
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

# Only the user may read conversations.
PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700

_NEW = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_APPEND | getattr(os, "O_BINARY", 0)

# Make the content of a descriptor durable, and its size, but not its times: one disk write less.
sync_data = getattr(os, "fdatasync", os.fsync)


# Writing


def replace(path: Path, content: bytes, *, draft: Path | None = None) -> None:
    """Write the file durably. At any moment the path has the complete old or the complete new content.

    `draft` is the name of the file until it is complete; by default a hidden, unique name.
    """
    # Two processes may write the same file at the same time, each with a draft of its own.
    draft = draft or path.with_name(f".{path.name}.{secrets.token_hex(16)}")
    with removed_on_error(draft):
        os.close(write_new(draft, content))
        os.replace(draft, path)
    sync_folder(path.parent)


def write_new(path: Path, content: bytes) -> int:
    """Write a new file durably and return its open descriptor. Remove a file that has the name."""
    try:
        descriptor = os.open(path, _NEW, PRIVATE_FILE)
    except FileExistsError:  # a leftover may be a hard link to other data: never write into it
        path.unlink()
        descriptor = os.open(path, _NEW, PRIVATE_FILE)
    try:
        write_all(descriptor, content)
        os.fsync(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def finish(file: BinaryIO, draft: Path, path: Path) -> None:
    """Make a file durable that was written under the name of the draft, close it and rename it."""
    file.flush()
    os.fsync(file.fileno())
    file.close()
    os.replace(draft, path)
    sync_folder(path.parent)


@contextlib.contextmanager
def removed_on_error(*drafts: Path) -> Iterator[None]:
    """Remove the drafts when the block raises. This frees the space at once: the disk may be full."""
    try:
        yield
    except BaseException:
        for draft in drafts:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)
        raise


def append(path: Path, content: bytes) -> None:
    """Append durably; create the file if it is missing. After an error, remove what was written.

    The caller holds a lock, if several processes append.
    """
    descriptor = os.open(path, os.O_CREAT | os.O_APPEND | os.O_RDWR, PRIVATE_FILE)
    try:
        size = os.fstat(descriptor).st_size
        try:
            write_all(descriptor, content)
            os.fsync(descriptor)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, size)
            raise
    finally:
        os.close(descriptor)
    sync_folder(path.parent)


def write_all(descriptor: int, content: bytes) -> None:
    """Write all bytes. `os.write` may write fewer, as on a disk that becomes full."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def link_or_copy(path: Path, second: Path) -> None:
    """Hard-link the file, which writes no data; copy it if the file system has no links."""
    try:
        os.link(path, second)
    except FileNotFoundError:
        raise
    except OSError:
        import shutil  # slow to import and rarely needed

        second.unlink(missing_ok=True)
        shutil.copyfile(path, second)
        second.chmod(PRIVATE_FILE)


def make_folder(folder: Path) -> None:
    """Create the folder and its parents, each durable before its children."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=PRIVATE_FOLDER)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Make new, renamed and removed names in the folder durable. Windows has no such call and needs none."""
    if os.name == "nt":
        return
    # Without this, a power failure may undo the rename although the content is on the disk.
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# Locking

if sys.platform == "win32":
    import msvcrt

    _FAR_BEHIND_THE_TEXT = 1 << 30

    def _lock(descriptor: int, *, wait: bool = False, shared: bool = False) -> None:
        # Windows has no shared locks here: readers exclude each other.
        os.lseek(descriptor, _FAR_BEHIND_THE_TEXT, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)

    def _unlock(descriptor: int) -> None:
        os.lseek(descriptor, _FAR_BEHIND_THE_TEXT, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

    def _remove(path: Path) -> None:
        """Do nothing: Windows cannot remove an open file, and the empty file does no harm."""

else:
    import fcntl

    def _lock(descriptor: int, *, wait: bool = False, shared: bool = False) -> None:
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        fcntl.flock(descriptor, kind if wait else kind | fcntl.LOCK_NB)

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)

    def _remove(path: Path) -> None:
        with contextlib.suppress(OSError):
            path.unlink()


@contextlib.contextmanager
def locked(descriptor: int, *, shared: bool = False) -> Iterator[None]:
    """Lock an open file; wait for its holder without a limit."""
    _lock(descriptor, wait=True, shared=shared)
    try:
        yield
    finally:
        _unlock(descriptor)


# Seconds to wait for a lock that is held briefly.
LONGEST_WAIT = 5.0
_PAUSE = 0.005


class Held(Exception):
    """Another process holds the lock."""

    def __init__(self, process: str) -> None:
        super().__init__(process)
        self.process = process


class Lock:
    """A lock from `acquire` to `release`, or to the end of the process.

    It has a file of its own, because a data file is replaced with every write. The file is removed on
    release, so that reading leaves no file behind.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Acquire the lock at once, or raise `Held` with the id of the process that holds it."""
        while self._descriptor is None:
            descriptor = os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600)
            try:
                self._take(descriptor)
            except BaseException:
                os.close(descriptor)
                raise
            # The holder may have removed the file between `open` and `flock`: then this lock protects a file
            # without a name, and the next process would lock a new one.
            if _is_named(descriptor, self._path):
                self._descriptor = descriptor
                _write_process_id(descriptor)
            else:
                os.close(descriptor)  # its holder released and removed it in between: retry

    def is_held(self) -> bool:
        """Whether the lock file still exists. Once it is removed, another process can acquire the lock."""
        return self._descriptor is not None and _is_named(self._descriptor, self._path)

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            if _is_named(descriptor, self._path):  # otherwise it is the lock of another process
                _remove(self._path)
            os.close(descriptor)

    def _take(self, descriptor: int) -> None:
        try:
            _lock(descriptor)
        except (BlockingIOError, PermissionError):
            os.lseek(descriptor, 0, os.SEEK_SET)
            raise Held(os.read(descriptor, 32).decode("ascii", "replace").strip()) from None


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the lock for a short operation. Wait for its holder; raise `TimeoutError` when that takes too
    long.
    """
    lock = Lock(path)
    _acquire_in_time(lock)
    try:
        yield
    finally:
        lock.release()


def _acquire_in_time(lock: Lock) -> None:
    give_up = time.monotonic() + LONGEST_WAIT
    while True:
        try:
            return lock.acquire()
        except Held as error:
            if time.monotonic() >= give_up:
                raise TimeoutError(f"process {error.process} holds a lock for too long") from error
            time.sleep(_PAUSE)


def _write_process_id(descriptor: int) -> None:
    """Write the process id for another process's error message. The lock does not depend on it."""
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, f"{os.getpid()}\n".encode())


def _is_named(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
