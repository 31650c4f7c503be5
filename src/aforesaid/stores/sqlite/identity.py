"""Notice that the files of an open database were removed or replaced.

A process keeps writing to a file that has lost its name, and the operating system discards that file when
the process ends. So the writing thread compares the device and inode of each name with those at opening,
before a batch and again before it is acknowledged. A file that is overwritten in place keeps its inode and
is not noticed.
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
        # The name itself, so that a link that leads elsewhere is noticed; beside it, what SQLite opens:
        # the log stands next to the file that a link leads to.
        self._name = os.path.abspath(path)
        self._file = os.path.realpath(path)
        self._known = {self._name: _identity(self._name)}
        self.is_replaced = False
        """Whether the last check failed."""

    def include_log(self) -> None:
        """Remember also the files that SQLite has made beside the database."""
        for suffix in ("-wal", "-shm"):
            name = f"{self._file}{suffix}"
            identity = _identity(name)
            if identity is not None:
                self._known[name] = identity

    def check(self) -> None:
        """Raise `StoreReplaced` unless every name still has the file that was opened."""
        self._check(self._known.items())
        self.is_replaced = False

    def check_name(self) -> None:
        """Check the database file alone, which costs a third; all of them if the last check failed."""
        if self.is_replaced:
            self.check()
        else:
            self._check([(self._name, self._known[self._name])])

    def check_again(self) -> None:
        """Check only if the last check failed: free of cost otherwise."""
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
    """The device and inode of a name; None where there is no file."""
    try:
        found = os.stat(name)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino
