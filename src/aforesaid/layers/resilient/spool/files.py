"""The spool on disk: append-only files, one set for each process, and a lock that says whose they are.

    <folder>/<spool>.lock              held by the process that writes the set
    <folder>/<spool>-00000001.spool    operations, and marks of those that are in the store by now

A set whose lock is free was left by a process that is gone; the next one adopts it. Everything here
blocks and belongs to one thread, the one of `writer`. Below: the operating system, `frames`.
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

from aforesaid._internal.file_locks import Held, Lock
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
LARGEST_FILE = 8 * 1024 * 1024
"""Bytes after which a new file is begun. A file is removed when all that it holds is in the store."""
PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_OPEN = os.O_RDWR | os.O_APPEND | getattr(os, "O_BINARY", 0)
_NEW = _OPEN | os.O_CREAT | os.O_EXCL
_sync = getattr(os, "fdatasync", os.fsync)


class Segment:
    """One file of a set."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor: int | None = None
        self.size = 0
        self.next_number = 0
        self.waiting: dict[int, Ref] = {}
        self.sealed = False
        """Nothing is added to it any more but marks."""


class Ref:
    """Where the frame of an accepted operation lies, and, once the layer has set it, when it was accepted."""

    __slots__ = ("at", "framed", "number", "offset", "segment")

    def __init__(self, segment: Segment, number: int, offset: int, framed: int) -> None:
        self.segment = segment
        self.number = number
        self.offset = offset
        self.framed = framed
        self.at: datetime | None = None

    @property
    def waits(self) -> bool:
        """Whether the spool still holds the operation as one that is to be stored."""
        return self.segment.waiting.get(self.number) is self


class Adopted(NamedTuple):
    """What was taken over: where each operation lies, and its payload; how many damaged parts were set aside;
    and why something could not be taken over."""

    operations: list[tuple[Ref, bytes]]
    damaged: int
    failed: AforesaidError | None


class SpoolFiles:
    """This process's set, and those that it has adopted."""

    def __init__(self, folder: Path, *, limit: int) -> None:
        self.folder = folder
        self.limit = limit
        self.segments: list[Segment] = []
        self._id = new_id()
        self._lock: Lock | None = None
        self._adopted: dict[str, Lock] = {}
        self._begun = 0
        self._damaged = 0

    @property
    def size(self) -> int:
        """The bytes that the files hold together, marks and finished operations included."""
        return sum(segment.size for segment in self.segments)

    # Writing

    def append(self, payloads: Sequence[bytes]) -> list[Ref]:
        """Keep the operations, durably. All of them, or none and an error."""
        with translated(self.folder):
            self._restore_removed()
            self._check_room(sum(len(frame(OPERATION, 0, payload)) for payload in payloads))
            segment = self._current()
            before, first = segment.size, segment.next_number
            framed = [frame(OPERATION, first + place, payload) for place, payload in enumerate(payloads)]
            try:
                _write(segment, b"".join(framed))
                _sync(_opened(segment))
                _check_name(segment)
            except OSError:
                self._take_back(segment, before)
                raise
        return _placed(segment, before, framed)

    def _restore_removed(self) -> None:
        """Write files again that were removed or replaced while they are open. What waits in them is still
        readable here, and would be lost with this process."""
        if self._lock is not None and not self._lock.is_held():
            self._lock.release()
            self._lock = None
        for segment in [one for one in self.segments if not _has_name(one)]:
            self._claim()
            if segment.waiting:
                event(log, logging.ERROR, "spool_removed", f"{segment.path} was removed; it is written again")
                self._forget_in(segment, lambda payload: False)
            else:
                self.segments.remove(segment)
                _shut(segment)

    def _check_room(self, needed: int) -> None:
        if self.size + needed > self.limit:
            raise SpoolFull(
                f"the spool in {self.folder} holds {self.size:,} of {self.limit:,} bytes; nothing more is "
                "accepted until the store is back, or until the spool may hold more"
            )

    def _current(self) -> Segment:
        last = self.segments[-1] if self.segments else None
        if last is None or last.sealed or last.size >= LARGEST_FILE:
            last = self._begin()
        return last

    def _begin(self) -> Segment:
        self._claim()
        self._begun += 1
        segment = Segment(self.folder / f"{self._id}-{self._begun:08d}{SUFFIX}")
        segment.descriptor = os.open(segment.path, _NEW, PRIVATE_FILE)
        self.segments.append(segment)
        sync_folder(self.folder)
        return segment

    def _claim(self) -> None:
        if self._lock is None:
            self.folder.mkdir(parents=True, exist_ok=True, mode=PRIVATE_FOLDER)
            lock = Lock(self.folder / f"{self._id}.lock")
            try:
                lock.acquire()
            except Held:  # the lock was removed, and another process has adopted the set
                self._id, self._begun = new_id(), 0
                lock = Lock(self.folder / f"{self._id}.lock")
                lock.acquire()
            self._lock = lock

    def _take_back(self, segment: Segment, size: int) -> None:
        """Nobody was told that it is kept. What cannot be cut off is at least not gone on with: after a
        failed sync nobody knows what the disk holds."""
        segment.sealed = True
        with contextlib.suppress(OSError):
            os.ftruncate(_opened(segment), size)
        segment.size = size
        if not segment.next_number:
            self._remove(segment)

    def mark_done(self, refs: Iterable[Ref]) -> None:
        """Note that these are in the store. Not synced: what is replayed twice is stored once."""
        by_segment: dict[int, list[Ref]] = {}
        for ref in refs:
            if ref.waits:
                by_segment.setdefault(id(ref.segment), []).append(ref)
        with translated(self.folder):
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
        _shut(segment)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(segment.path)
        name = _set_of(segment.path)
        if name in self._adopted and not self._segments_of(name):
            self._adopted.pop(name).release()

    # Reading

    def read(self, refs: Sequence[Ref]) -> list[bytes | None]:
        """Return the operations' payloads; None for one that is damaged by now, or that was set aside."""
        with translated(self.folder):
            return [self._read(ref) if ref.waits else None for ref in refs]

    def _read(self, ref: Ref) -> bytes | None:
        return payload_of(_read(_opened(ref.segment), ref.offset, ref.framed))

    def set_aside_damaged(self, refs: Iterable[Ref]) -> int:
        """Keep the frames that cannot be read in a file of their own, and go on without them; return how many
        were set aside now."""
        with translated(self.folder):
            lost = [ref for ref in refs if ref.waits and self._read(ref) is None]
            for ref in lost:
                _set_aside(ref.segment.path, _read(_opened(ref.segment), ref.offset, ref.framed))
        self.mark_done(lost)
        return len(lost)

    # Adopting

    def adopt(self) -> Adopted:
        """What processes that are gone have left behind. Whoever takes a set over has all of it, or leaves it
        as it was; one that the disk does not give now keeps no other from being taken over, and the next look
        tries it again."""
        operations: list[tuple[Ref, bytes]] = []
        failed: AforesaidError | None = None
        with translated(self.folder):
            names = self._others()
        for name in names:
            try:
                operations += self._load_set(name) if self._take_over(name) else []
            except OSError as error:
                self._let_go(name)
                failed = _ours(error, self.folder)
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

    def _let_go(self, name: str) -> None:
        for segment in self._segments_of(name):
            self.segments.remove(segment)
            _shut(segment)
        lock = self._adopted.pop(name, None)
        if lock is not None:
            lock.release()

    def _others(self) -> list[str]:
        if not self.folder.is_dir():
            return []
        names = {_set_of(path) for path in self.folder.glob(f"*-*{SUFFIX}") if path.is_file()}
        return sorted(names - {"", self._id} - self._adopted.keys())

    def _take_over(self, name: str) -> bool:
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
            return []  # its process was not gone yet, and has finished it
        self.segments.insert(0, segment)
        content = _read(segment.descriptor, 0, os.fstat(segment.descriptor).st_size)
        found = scan(content)
        self._damaged += sum(_set_aside(path, content[start:end]) for start, end in found.damaged)
        if found.end < len(content):
            _cut_off(segment.descriptor, found.end, len(content))
        segment.size, segment.sealed = found.end, True
        waiting = [(_ref(segment, one), content[one.payload]) for one in found.pending]
        segment.waiting = {ref.number: ref for ref, _ in waiting}
        segment.next_number = max((one.number + 1 for one in found.operations), default=0)
        return waiting

    # Forgetting

    def forget(self, is_meant: Callable[[bytes], bool]) -> list[Ref]:
        """Remove every trace of the operations that are meant, done or not; returns those that waited."""
        with translated(self.folder):
            return [ref for segment in list(self.segments) for ref in self._forget_in(segment, is_meant)]

    def _forget_in(self, segment: Segment, is_meant: Callable[[bytes], bool]) -> list[Ref]:
        """Replace the file with one that holds only what waits and is not meant. Frames that cannot be read
        are set aside: their owner is not known."""
        self.set_aside_damaged(list(segment.waiting.values()))
        if segment not in self.segments:
            return []  # nothing else was in it
        waiting = [(ref, self._read(ref)) for ref in segment.waiting.values()]
        kept: list[tuple[Ref, bytes]] = []
        gone: list[Ref] = []
        for ref, payload in waiting:
            if payload is None:
                raise StoreDamaged(f"{segment.path} changes while it is read")
            if is_meant(payload):
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
        with contextlib.suppress(FileNotFoundError):
            os.unlink(fresh)
        descriptor = os.open(fresh, _NEW, PRIVATE_FILE)
        try:
            write_all(descriptor, b"".join(framed))
            os.fsync(descriptor)
            os.replace(fresh, segment.path)
            sync_folder(self.folder)
        except OSError:
            os.close(descriptor)
            with contextlib.suppress(OSError):
                os.unlink(fresh)
            raise
        _shut(segment)
        segment.descriptor, segment.size = descriptor, sum(map(len, framed))
        segment.waiting = dict(_moved([ref for ref, _ in kept], framed))

    def close(self) -> None:
        """Let go of the files. What they hold is for the next process."""
        for segment in self.segments:
            _shut(segment)
        self.segments.clear()
        for lock in (*self._adopted.values(), *([self._lock] if self._lock else [])):
            lock.release()
        self._adopted.clear()
        self._lock = None


def _placed(segment: Segment, offset: int, framed: Sequence[bytes]) -> list[Ref]:
    refs = []
    for one in framed:
        ref = Ref(segment, segment.next_number, offset, len(one))
        segment.waiting[ref.number] = ref
        segment.next_number += 1
        offset += len(one)
        refs.append(ref)
    return refs


def _moved(refs: Sequence[Ref], framed: Sequence[bytes]) -> Iterator[tuple[int, Ref]]:
    """The operations at their new places, by number. A number never changes: a mark refers to it."""
    offset = 0
    for ref, one in zip(refs, framed, strict=True):
        ref.offset, ref.framed = offset, len(one)
        offset += len(one)
        yield ref.number, ref


def _ref(segment: Segment, one: Frame) -> Ref:
    return Ref(segment, one.number, one.start, one.end - one.start)


def _cut_off(descriptor: int, end: int, size: int) -> None:
    event(log, logging.WARNING, "spool_torn_tail", "a torn tail was cut off", bytes=size - end)
    os.ftruncate(descriptor, end)


def _set_aside(path: Path, content: bytes) -> bool:
    """Keep a part that cannot be read in a file beside the spool; return whether it was not there yet."""
    aside = path.with_suffix(DAMAGED)
    if aside.exists() and content in aside.read_bytes():
        return False
    event(log, logging.ERROR, "spool_damaged", f"part of the spool cannot be read; it is kept in {aside}")
    descriptor = os.open(aside, os.O_CREAT | os.O_APPEND | os.O_WRONLY, PRIVATE_FILE)
    try:
        write_all(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    sync_folder(path.parent)
    return True


def _has_name(segment: Segment) -> bool:
    try:
        return os.path.samestat(os.fstat(_opened(segment)), os.stat(segment.path))
    except (FileNotFoundError, NotADirectoryError):
        return False


def _check_name(segment: Segment) -> None:
    """Refuse what went into a file that has lost its name: it would be lost with this process."""
    if not _has_name(segment):
        raise FileNotFoundError(errno.ENOENT, "the file was removed while it was written", segment.path)


def _opened(segment: Segment) -> int:
    assert segment.descriptor is not None
    return segment.descriptor


def _shut(segment: Segment) -> None:
    descriptor, segment.descriptor = segment.descriptor, None
    if descriptor is not None:
        os.close(descriptor)


def _write(segment: Segment, content: bytes) -> None:
    write_all(_opened(segment), content)
    segment.size += len(content)


def write_all(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _write_mark(segment: Segment, mark: bytes) -> None:
    """Without the mark an operation is replayed once more, which is harmless; half of one is in the way."""
    try:
        _write(segment, mark)
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(_opened(segment), segment.size)


def _read(descriptor: int, offset: int, length: int) -> bytes:
    os.lseek(descriptor, offset, os.SEEK_SET)
    parts: list[bytes] = []
    while length and (part := os.read(descriptor, length)):
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def _set_of(path: Path) -> str:
    return path.name.rpartition("-")[0]


def sync_folder(folder: Path) -> None:
    """Make a new name durable. Windows has no such call and needs none."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def translated(folder: Path) -> Iterator[None]:
    """Turn the operating system's errors into ours, each naming the folder."""
    try:
        yield
    except OSError as error:
        raise _ours(error, folder) from error


def _ours(error: OSError, folder: Path) -> AforesaidError:
    if error.errno in _FULL:
        return SpoolFull(f"the spool in {folder} cannot grow: {error.strerror}")
    return StoreUnavailable(f"the spool in {folder} cannot be used: {error.strerror or error}")
