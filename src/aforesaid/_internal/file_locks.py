"""A lock between processes, which the operating system releases when a process ends.

The lock has a file of its own, because the data file is replaced with every write. It is removed on release,
so that reading leaves no file behind.
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
        """Do nothing: Windows cannot remove an open file, and the empty file does no harm."""

else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _remove(path: Path) -> None:
        with contextlib.suppress(OSError):
            path.unlink()


LONGEST_WAIT = 5.0
"""Seconds to wait for a lock that is held briefly."""
_PAUSE = 0.005


class Held(Exception):
    """Another process holds the lock."""

    def __init__(self, process: str) -> None:
        super().__init__(process)
        self.process = process


class Lock:
    """A lock from `acquire` to `release`, or to the end of the process."""

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
