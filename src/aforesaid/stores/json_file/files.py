"""Read and atomically replace the file.

At any moment the path holds either the complete old document or the complete new one. Next to it are the
previous version (`.backup`) and, during a write, the new one (`.unfinished`). This module raises operating
system errors; `backend` translates them.
"""

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

from aforesaid._internal.files import PRIVATE_FILE, link_or_copy, removed_on_error, sync_folder, write_new


class Version(NamedTuple):
    """Identity and state of a file. A write by another process changes it."""

    device: int
    inode: int
    size: int
    modified: int

    @classmethod
    def of(cls, found: os.stat_result) -> "Version":
        return cls(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


class NotSynced(OSError):
    """The file was replaced, but the rename may be lost in a power failure."""


class ReplacedFile:
    """A file that is replaced as a whole. One process at a time; see `_internal.files.Lock`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.backup = path.with_name(f"{path.name}.backup")
        self._last_version: Version | None = None
        self._unfinished = path.with_name(f"{path.name}.unfinished")
        self._unfinished_backup = path.with_name(f"{path.name}.backup.unfinished")

    def read(self) -> bytes | None:
        """Return the content; None if there is no file."""
        try:
            with self.path.open("rb") as file:
                self._last_version = Version.of(os.fstat(file.fileno()))
                return file.read()
        except FileNotFoundError:
            return None

    def is_replaced(self) -> bool:
        """Return whether the file differs from the version last read or written. A missing file does not
        count: the next write restores all of it."""
        try:
            return Version.of(self.path.stat()) != self._last_version
        except FileNotFoundError:
            return False

    def tidy(self) -> None:
        """Remove leftovers of a killed process and restrict permissions."""
        for left_over in (self._unfinished, self._unfinished_backup):
            left_over.unlink(missing_ok=True)
        for file in (self.path, self.backup):
            if file.exists():
                file.chmod(PRIVATE_FILE)

    def replace(self, document: bytes, *, forget: bool = False) -> None:
        """Replace the document durably. The old document becomes the backup.

        With `forget`, the backup gets the new document too, because the old one contains deleted data. When
        this raises anything but `NotSynced`, the file holds the old document.
        """
        # Each system call can take milliseconds longer under load, because the thread must reacquire the
        # interpreter lock. So the usual path makes few calls.
        with removed_on_error(self._unfinished, self._unfinished_backup):
            version = _write(self._unfinished, document)
            if forget:
                _write(self._unfinished_backup, document)
                os.replace(self._unfinished_backup, self.backup)
            else:
                self._back_up()
            os.replace(self._unfinished, self.path)
            self._last_version = version
        try:
            sync_folder(self.path.parent)
        except OSError as error:
            raise NotSynced(*error.args) from error

    def _back_up(self) -> None:
        with contextlib.suppress(FileNotFoundError):  # there is no previous version yet
            link_or_copy(self.path, self._unfinished_backup)
            os.replace(self._unfinished_backup, self.backup)


def _write(path: Path, content: bytes) -> Version:
    descriptor = write_new(path, content)
    try:
        return Version.of(os.fstat(descriptor))
    finally:
        os.close(descriptor)
