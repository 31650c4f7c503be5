"""A lock that one process holds and the operating system takes away when that process ends.

The lock is on a file of its own, because the document is replaced with every write. It is removed
on release, so that a folder that was only looked at stays as it was. Below: the operating system.
"""

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

if sys.platform == "win32":
    import msvcrt

    _FAR_BEHIND_THE_TEXT = 1 << 30

    def _lock(descriptor: int) -> None:
        os.lseek(descriptor, _FAR_BEHIND_THE_TEXT, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

    def _remove(path: Path) -> None:
        """An open file cannot be removed on Windows; the empty one that stays does no harm."""

else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _remove(path: Path) -> None:
        with contextlib.suppress(OSError):
            path.unlink()


LONGEST_WAIT = 5.0
"""Seconds to wait for whoever holds a lock for a moment's work."""
_PAUSE = 0.005


class Held(Exception):
    """Somebody else has the lock."""

    def __init__(self, process: str) -> None:
        super().__init__(process)
        self.process = process


class Lock:
    """Held from `acquire` to `release`, or to the end of the process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock at once or raise `Held`, with the number of the process that has it."""
        while self._descriptor is None:
            descriptor = os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600)
            try:
                self._take(descriptor)
            except BaseException:
                os.close(descriptor)
                raise
            if _is_named(descriptor, self._path):
                self._descriptor = descriptor
                _write_process_id(descriptor)
            else:
                os.close(descriptor)  # its holder let go and removed it in between: once more

    def is_held(self) -> bool:
        """Whether the lock file still has its name. Once it is removed, another process can take the lock."""
        return self._descriptor is not None and _is_named(self._descriptor, self._path)

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            if _is_named(descriptor, self._path):  # else it is the lock of another process
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
    """The lock for a moment's work, once whoever has it is through. Raises `TimeoutError` when that takes
    too long."""
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
    """For the error that somebody else will see. The lock itself does not depend on it, nor on a disk that
    has room."""
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, f"{os.getpid()}\n".encode())


def _is_named(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
