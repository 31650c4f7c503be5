"""The files of the spool: append-only, one set per process, protected by a lock.

    <folder>/<spool>.lock              locked by the process that writes the set
    <folder>/<spool>-00000001.spool    operations, and marks of stored ones

A set with a free lock belongs to a process that has ended; the next process adopts it. All methods block and
run on the thread of `writer`.
"""

import contextlib
import errno
import glob
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from aforesaid._internal import files
from aforesaid._internal.files import (
    PRIVATE_FILE,
    PRIVATE_FOLDER,
    Held,
    Lock,
    removed_on_error,
    sync_folder,
    write_all,
)
from aforesaid.errors import AforesaidError, SpoolFull, StoreDamaged, StoreUnavailable
from aforesaid.layers.resilient.spool.frames import (
    DONE,
    OPERATION,
    Frame,
    frame,
    numbers,
    payload_of,
    scan,
)
from aforesaid.model.ids import new_id
from aforesaid.telemetry import event

log = logging.getLogger("aforesaid.spool")

SUFFIX, DAMAGED = ".spool", ".damaged"
# Bytes after which a new file begins. A file is removed when all its operations are stored.
LARGEST_FILE = 8 * 1024 * 1024
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_OPEN = os.O_RDWR | os.O_APPEND | getattr(os, "O_BINARY", 0)
_sync = files.sync_data
_NEW = _OPEN | os.O_CREAT | os.O_EXCL


class Segment:
    """One file of a set."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor: int | None = None
        self.size = 0
        self.next_number = 0
        self.waiting: dict[int, Ref] = {}
        # Whether the file accepts only marks.
        self.sealed = False


class Ref:
    """The place of an operation's frame. The layer adds the time of acceptance."""

    __slots__ = ("at", "length", "number", "offset", "segment")

    def __init__(self, segment: Segment, number: int, offset: int, length: int) -> None:
        self.segment = segment
        self.number = number
        self.offset = offset
        self.length = length
        self.at: datetime | None = None

    @property
    def waits(self) -> bool:
        """Whether the operation is still to be stored."""
        return self.segment.waiting.get(self.number) is self


class Adopted(NamedTuple):
    """The result of an adoption: operations with their payloads, the number of damaged parts, and the error
    of a set that could not be adopted."""

    operations: list[tuple[Ref, bytes]]
    damaged: int
    failed: AforesaidError | None


class SpoolFiles:
    """The set of this process, and the sets that it has adopted."""

    def __init__(self, folder: Path, *, limit: int) -> None:
        self.folder = folder
        self.limit = limit
        self.segments: list[Segment] = []
        self._id = new_id()
        self._lock: Lock | None = None
        self._adopted: dict[str, Lock] = {}
        self._segment_count = 0
        self._damaged = 0

    @property
    def size(self) -> int:
        """The total size of the files in bytes, including marks and stored operations."""
        return sum(segment.size for segment in self.segments)

    # Writing

    def append(self, payloads: Sequence[bytes]) -> list[Ref]:
        """Write the operations durably: all of them, or none and an error."""
        with translate_errors(self.folder):
            # First, because an operation in a removed file exists only as long as this process.
            self._rewrite_removed()
            self._check_limit(sum(len(frame(OPERATION, 0, payload)) for payload in payloads))
            segment = self._current()
            before, first = segment.size, segment.next_number
            framed = [frame(OPERATION, first + place, payload) for place, payload in enumerate(payloads)]
            try:
                _write(segment, b"".join(framed))
                _sync(_descriptor(segment))
                _check_linked(segment)
            except OSError:
                self._roll_back(segment, before)
                raise
        return _add_refs(segment, before, framed)

    def _rewrite_removed(self) -> None:
        """Write files again that were removed or replaced while open. Their operations are still readable
        through the descriptor, and would be lost with this process."""
        if self._lock is not None and not self._lock.is_held():
            self._lock.release()
            self._lock = None
        for segment in [one for one in self.segments if not _is_linked(one)]:
            self._lock_own_set()
            if segment.waiting:
                event(log, logging.ERROR, "spool_removed", f"{segment.path} was removed; it is written again")
                self._forget_in(segment, lambda payload: False)
            else:
                self.segments.remove(segment)
                _close(segment)

    def _check_limit(self, needed: int) -> None:
        if self.size + needed > self.limit:
            raise SpoolFull(
                f"the spool in {self.folder} holds {self.size:,} of {self.limit:,} bytes; nothing more is "
                "accepted until the store is back, or until the spool may hold more"
            )

    def _current(self) -> Segment:
        last = self.segments[-1] if self.segments else None
        if last is None or last.sealed or last.size >= LARGEST_FILE:
            last = self._new_segment()
        return last

    def _new_segment(self) -> Segment:
        self._lock_own_set()
        self._segment_count += 1
        segment = Segment(self.folder / f"{self._id}-{self._segment_count:08d}{SUFFIX}")
        segment.descriptor = os.open(segment.path, _NEW, PRIVATE_FILE)
        self.segments.append(segment)
        sync_folder(self.folder)
        return segment

    def _lock_own_set(self) -> None:
        if self._lock is None:
            self.folder.mkdir(parents=True, exist_ok=True, mode=PRIVATE_FOLDER)
            lock = Lock(self.folder / f"{self._id}.lock")
            try:
                lock.acquire()
            except Held:  # the lock file was removed, and another process has adopted the set
                self._id, self._segment_count = new_id(), 0
                lock = Lock(self.folder / f"{self._id}.lock")
                lock.acquire()
            self._lock = lock

    def _roll_back(self, segment: Segment, size: int) -> None:
        """Remove operations that were not acknowledged, and close the file for new ones."""
        # After a failed fsync the content on disk is undefined, so nothing is appended to this file any more.
        segment.sealed = True
        with contextlib.suppress(OSError):
            os.ftruncate(_descriptor(segment), size)
        segment.size = size
        if not segment.next_number:
            self._remove(segment)

    def mark_done(self, refs: Iterable[Ref]) -> None:
        """Mark the operations as stored. Without fsync, because a repeated replay is harmless."""
        by_segment: dict[int, list[Ref]] = {}
        for ref in refs:
            if ref.waits:
                by_segment.setdefault(id(ref.segment), []).append(ref)
        with translate_errors(self.folder):
            for done in by_segment.values():
                self._mark(done[0].segment, done)

    def _mark(self, segment: Segment, refs: list[Ref]) -> None:
        for ref in refs:
            segment.waiting.pop(ref.number, None)
        if segment.waiting:
            _write_mark(segment, frame(DONE, 0, numbers(ref.number for ref in refs)))
        else:
            self._remove(segment)

    def _remove(self, segment: Segment) -> None:
        self.segments.remove(segment)
        _close(segment)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(segment.path)
        name = _set_of(segment.path)
        if name in self._adopted and not self._segments_of(name):
            self._adopted.pop(name).release()

    # Reading

    def read(self, refs: Sequence[Ref]) -> list[bytes | None]:
        """Return the operations' payloads; None for one that is damaged or was set aside."""
        with translate_errors(self.folder):
            return [self._read(ref) if ref.waits else None for ref in refs]

    def _read(self, ref: Ref) -> bytes | None:
        return payload_of(_read(_descriptor(ref.segment), ref.offset, ref.length))

    def set_aside_damaged(self, refs: Iterable[Ref]) -> int:
        """Move damaged frames to a separate file; return their number."""
        with translate_errors(self.folder):
            lost = [ref for ref in refs if ref.waits and self._read(ref) is None]
            for ref in lost:
                _set_aside(ref.segment.path, _read(_descriptor(ref.segment), ref.offset, ref.length))
        self.mark_done(lost)
        return len(lost)

    # Adopting

    def adopt(self) -> Adopted:
        """Adopt the sets of ended processes. A set that cannot be read is left unchanged for the next
        call."""
        operations: list[tuple[Ref, bytes]] = []
        failed: AforesaidError | None = None
        with translate_errors(self.folder):
            names = self._other_sets()
        for name in names:
            try:
                operations += self._load_set(name) if self._lock_set(name) else []
            except OSError as error:
                self._release_set(name)
                failed = _translate(error, self.folder)
                failed.__cause__ = error
        damaged, self._damaged = self._damaged, 0
        return Adopted(operations, damaged, failed)

    def _load_set(self, name: str) -> list[tuple[Ref, bytes]]:
        paths = [
            path for path in sorted(self.folder.glob(f"{glob.escape(name)}-*{SUFFIX}")) if path.is_file()
        ]
        found = [one for path in paths if _set_of(path) == name for one in self._load(path)]
        for segment in self._segments_of(name):
            if not segment.waiting:
                self._remove(segment)
        return found

    def _segments_of(self, name: str) -> list[Segment]:
        return [segment for segment in self.segments if _set_of(segment.path) == name]

    def _release_set(self, name: str) -> None:
        for segment in self._segments_of(name):
            self.segments.remove(segment)
            _close(segment)
        lock = self._adopted.pop(name, None)
        if lock is not None:
            lock.release()

    def _other_sets(self) -> list[str]:
        if not self.folder.is_dir():
            return []
        # Find sets by their segments, not by their locks: a lock file may have been removed.
        names = {_set_of(path) for path in self.folder.glob(f"*-*{SUFFIX}") if path.is_file()}
        return sorted(names - {"", self._id} - self._adopted.keys())

    def _lock_set(self, name: str) -> bool:
        lock = Lock(self.folder / f"{name}.lock")
        try:
            lock.acquire()
        except Held:
            return False
        self._adopted[name] = lock
        for left_over in self.folder.glob(f"{glob.escape(name)}-*.unfinished"):
            left_over.unlink()
        return True

    def _load(self, path: Path) -> list[tuple[Ref, bytes]]:
        segment = Segment(path)
        try:
            segment.descriptor = os.open(path, _OPEN)
        except FileNotFoundError:
            return []  # its process was still running and has removed the file
        # At the front: the last segment is the one that this process appends to.
        self.segments.insert(0, segment)
        content = _read(segment.descriptor, 0, os.fstat(segment.descriptor).st_size)
        found = scan(content)
        self._damaged += sum(_set_aside(path, content[start:end]) for start, end in found.damaged)
        if found.end < len(content):
            _cut_torn_tail(segment.descriptor, found.end, len(content))
        segment.size, segment.sealed = found.end, True
        waiting = [(_ref(segment, one), content[one.payload]) for one in found.pending]
        segment.waiting = {ref.number: ref for ref, _ in waiting}
        segment.next_number = max((one.number + 1 for one in found.operations), default=0)
        return waiting

    # Forgetting

    def forget(self, matches: Callable[[bytes], bool]) -> list[Ref]:
        """Remove every trace of matching operations, stored or not; return those that were not stored."""
        with translate_errors(self.folder):
            return [ref for segment in list(self.segments) for ref in self._forget_in(segment, matches)]

    def _forget_in(self, segment: Segment, matches: Callable[[bytes], bool]) -> list[Ref]:
        """Replace the file with one that holds only pending operations that do not match. Damaged frames are
        set aside, because their owner is unknown."""
        self.set_aside_damaged(list(segment.waiting.values()))
        if segment not in self.segments:
            return []  # it had only damaged frames and was removed
        waiting = [(ref, self._read(ref)) for ref in segment.waiting.values()]
        kept: list[tuple[Ref, bytes]] = []
        gone: list[Ref] = []
        for ref, payload in waiting:
            # Damaged frames were set aside above, so the file changes right now.
            if payload is None:
                raise StoreDamaged(f"{segment.path} changes while it is read")
            if matches(payload):
                gone.append(ref)
            else:
                kept.append((ref, payload))
        if kept:
            self._replace(segment, kept)
        else:
            segment.waiting.clear()
            self._remove(segment)
        return gone

    def _replace(self, segment: Segment, kept: Sequence[tuple[Ref, bytes]]) -> None:
        framed = [frame(OPERATION, ref.number, payload) for ref, payload in kept]
        fresh = segment.path.with_suffix(".unfinished")
        with removed_on_error(fresh):
            descriptor = files.write_new(fresh, b"".join(framed))
            try:
                os.replace(fresh, segment.path)
                sync_folder(self.folder)
            except BaseException:
                os.close(descriptor)
                raise
        _close(segment)
        segment.descriptor, segment.size = descriptor, sum(map(len, framed))
        segment.waiting = dict(_relocated([ref for ref, _ in kept], framed))

    def close(self) -> None:
        """Close the files and release the locks. The next process adopts the operations."""
        for segment in self.segments:
            _close(segment)
        self.segments.clear()
        for lock in (*self._adopted.values(), *([self._lock] if self._lock else [])):
            lock.release()
        self._adopted.clear()
        self._lock = None


def _add_refs(segment: Segment, offset: int, framed: Sequence[bytes]) -> list[Ref]:
    refs = []
    for one in framed:
        ref = Ref(segment, segment.next_number, offset, len(one))
        segment.waiting[ref.number] = ref
        segment.next_number += 1
        offset += len(one)
        refs.append(ref)
    return refs


def _relocated(refs: Sequence[Ref], framed: Sequence[bytes]) -> Iterator[tuple[int, Ref]]:
    """Yield the operations with their new offsets, by number. Numbers never change, because marks refer to
    them."""
    offset = 0
    for ref, one in zip(refs, framed, strict=True):
        ref.offset, ref.length = offset, len(one)
        offset += len(one)
        yield ref.number, ref


def _ref(segment: Segment, one: Frame) -> Ref:
    return Ref(segment, one.number, one.start, one.end - one.start)


def _cut_torn_tail(descriptor: int, end: int, size: int) -> None:
    event(log, logging.WARNING, "spool_torn_tail", "a torn tail was cut off", bytes=size - end)
    os.ftruncate(descriptor, end)


def _set_aside(path: Path, content: bytes) -> bool:
    """Append a damaged part to a separate file; return whether it was not there yet."""
    aside = path.with_suffix(DAMAGED)
    # A process may have been killed between setting the part aside and marking it.
    if aside.exists() and content in aside.read_bytes():
        return False
    event(log, logging.ERROR, "spool_damaged", f"part of the spool cannot be read; it is kept in {aside}")
    files.append(aside, content)
    return True


def _is_linked(segment: Segment) -> bool:
    try:
        return os.path.samestat(os.fstat(_descriptor(segment)), os.stat(segment.path))
    except (FileNotFoundError, NotADirectoryError):
        return False


def _check_linked(segment: Segment) -> None:
    """Raise if the file was removed: its content would be lost with this process."""
    if not _is_linked(segment):
        raise FileNotFoundError(errno.ENOENT, "the file was removed while it was written", segment.path)


def _descriptor(segment: Segment) -> int:
    assert segment.descriptor is not None
    return segment.descriptor


def _close(segment: Segment) -> None:
    descriptor, segment.descriptor = segment.descriptor, None
    if descriptor is not None:
        os.close(descriptor)


def _write(segment: Segment, content: bytes) -> None:
    write_all(_descriptor(segment), content)
    segment.size += len(content)


def _write_mark(segment: Segment, mark: bytes) -> None:
    """Write the mark; on an error remove its beginning. A missing mark is harmless: the operation is replayed
    again."""
    try:
        _write(segment, mark)
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(_descriptor(segment), segment.size)


def _read(descriptor: int, offset: int, length: int) -> bytes:
    os.lseek(descriptor, offset, os.SEEK_SET)
    parts: list[bytes] = []
    while length and (part := os.read(descriptor, length)):
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def _set_of(path: Path) -> str:
    return path.name.rpartition("-")[0]


@contextlib.contextmanager
def translate_errors(folder: Path) -> Iterator[None]:
    """Convert errors of the operating system to `AforesaidError`s that name the folder."""
    try:
        yield
    except OSError as error:
        raise _translate(error, folder) from error


def _translate(error: OSError, folder: Path) -> AforesaidError:
    if error.errno in _FULL:
        return SpoolFull(f"the spool in {folder} cannot grow: {error.strerror}")
    return StoreUnavailable(f"the spool in {folder} cannot be used: {error.strerror or error}")
