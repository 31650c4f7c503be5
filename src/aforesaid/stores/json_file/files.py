"""The file on disk: read, and replaced as a whole. Below: the operating system.

Whatever happens, and whenever, the name holds the old document or the new one, whole. Beside it
are the version before (`.backup`) and, for moments only, what is being written (`.unfinished`).
Errors are the operating system's own; `backend` translates them.
"""

import contextlib
import os
import shutil
from pathlib import Path
from typing import NamedTuple

PRIVATE = 0o600
"""Conversations are nobody else's business."""


_NEW = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0)


class Version(NamedTuple):
    """Which file has the name, and in which state: what a write by anybody else changes."""

    device: int
    inode: int
    size: int
    modified: int

    @classmethod
    def of(cls, found: os.stat_result) -> "Version":
        return cls(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


class NotSynced(OSError):
    """The new document has its name, but the folder may not remember that after a power cut."""


class ReplacedFile:
    """A file that is only ever replaced. One process at a time; see `locks`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.backup = path.with_name(f"{path.name}.backup")
        self._known: Version | None = None
        self._unfinished = path.with_name(f"{path.name}.unfinished")
        self._unfinished_backup = path.with_name(f"{path.name}.backup.unfinished")

    def read(self) -> bytes | None:
        """What the file holds; None when there is none."""
        try:
            with self.path.open("rb") as file:
                self._known = Version.of(os.fstat(file.fileno()))
                return file.read()
        except FileNotFoundError:
            return None

    def is_replaced(self) -> bool:
        """Whether the name has another document than the one that was read or written last. A missing file
        is none: the next write restores all of it."""
        try:
            return Version.of(self.path.stat()) != self._known
        except FileNotFoundError:
            return False

    def tidy(self) -> None:
        """Remove what a killed process left behind, and let nobody else read the rest."""
        for left_over in (self._unfinished, self._unfinished_backup):
            left_over.unlink(missing_ok=True)
        for kept in (self.path, self.backup):
            if kept.exists():
                kept.chmod(PRIVATE)

    def replace(self, document: bytes, *, forget: bool = False) -> None:
        """Put the document in the place of the old one, durably. The old one becomes the backup.

        With `forget` the backup becomes the new document as well: what was deleted must not live
        on beside the file. When this raises, the file holds the old document, unless it is
        `NotSynced`.
        """
        try:
            version = _write(self._unfinished, document)
            if forget:
                _write(self._unfinished_backup, document)
                os.replace(self._unfinished_backup, self.backup)
            else:
                self._back_up()
            os.replace(self._unfinished, self.path)
            self._known = version
        except OSError:
            self._drop_unfinished()
            raise
        try:
            _sync_folder(self.path.parent)
        except OSError as error:
            raise NotSynced(*error.args) from error

    def _back_up(self) -> None:
        with contextlib.suppress(FileNotFoundError):  # the first version follows none
            _second_name(self.path, self._unfinished_backup)
            os.replace(self._unfinished_backup, self.backup)

    def _drop_unfinished(self) -> None:
        """Give the space back at once: the disk may be full."""
        for unfinished in (self._unfinished, self._unfinished_backup):
            with contextlib.suppress(OSError):
                unfinished.unlink(missing_ok=True)


# A busy event loop can hold up each of these calls by some milliseconds, since the thread has to wait
# for the interpreter after each. So the usual path makes as few as it can.


def _write(path: Path, content: bytes) -> Version:
    """Write a new file with this content; it is on the disk when this returns."""
    try:
        descriptor = os.open(path, _NEW, PRIVATE)
    except FileExistsError:  # left over, and perhaps another name of the document: never to be written into
        path.unlink()
        descriptor = os.open(path, _NEW, PRIVATE)
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
        return Version.of(os.fstat(descriptor))
    finally:
        os.close(descriptor)


def _second_name(path: Path, second: Path) -> None:
    """Give the file a second name, which costs no writing; copy it where a file system has no links."""
    try:
        os.link(path, second)
    except FileNotFoundError:
        raise
    except OSError:
        second.unlink(missing_ok=True)
        shutil.copyfile(path, second)
        second.chmod(PRIVATE)


def _sync_folder(folder: Path) -> None:
    """Make the new name durable. Windows has no such call and needs none."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
