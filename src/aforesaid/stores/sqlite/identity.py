"""Detect that the files of an open database were removed or replaced.

A process can keep writing to a deleted file, which the operating system discards when the process ends. So
the writer thread compares device and inode of each path with those at opening, before each batch and again
before acknowledging it. A file that is overwritten in place keeps its inode and is not detected.
"""

import os
from collections.abc import Iterable
from typing import TypeAlias

from aforesaid.errors import StoreReplaced

Identity: TypeAlias = tuple[int, int]
"""Device and inode."""


class OpenFiles:
    """The identity of the database file, its log and its shared memory."""

    def __init__(self, path: str) -> None:
        self._path = path
        # Check the given path, to detect a changed symbolic link. SQLite opens the log next to the link's
        # target.
        self._name = os.path.abspath(path)
        self._file = os.path.realpath(path)
        self._identities = {self._name: _identity(self._name)}
        self.is_replaced = False
        """Whether the last check failed."""

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
