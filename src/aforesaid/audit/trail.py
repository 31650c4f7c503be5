"""The files of a trail: lines are appended, by many processes, and never changed. Below: `events`, `locking`.

    audit.jsonl          the lines
    audit.jsonl.000001   earlier lines, once there were too many for one file; the chain goes on across files
    audit.jsonl.head     how many there are, and the hash of the last
    audit.jsonl.lock     held by the process that writes

Whoever records an event waits until its line is written: it survives the end of the process. It survives
a power cut once it is synced: at once, within a second, or when the system likes, as `sync` says. Before
lines are written the head announces them, so that lines that a crash swallowed are missed, and noted as
missing by the next writer. Events that wait at the same time share a write.
"""

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from msgspec.structs import replace

from aforesaid._internal.arguments import validated
from aforesaid.audit.events import HEAD_BYTES, Chain, Event, Head, read_line
from aforesaid.audit.lock import locked
from aforesaid.encryption.master_keys import parse_key
from aforesaid.errors import InvalidSetting, StoreClosed, StoreDamaged, StoreUnavailable
from aforesaid.model.clock import Clock, system_clock

Sync = Literal["always", "second", "never"]
KEY_VARIABLE = "AFORESAID_AUDIT_KEY"

LARGEST_FILE = 64 * 1024 * 1024
"""Bytes in a file before the next one is begun."""
_PRIVATE = 0o600
_Waiting: TypeAlias = tuple[Event, "Future[None]"]

log = logging.getLogger("aforesaid.audit")


@validated
class AuditTrail:
    """A trail at a path. `key` signs it; `hide_owners` keeps a keyed digest in place of owners' names."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        key: bytes | None = None,
        hide_owners: bool = False,
        sync: Sync = "second",
        largest_file: int = LARGEST_FILE,
        clock: Clock = system_clock,
    ) -> None:
        if sync not in get_args(Sync):
            raise InvalidSetting.not_in("sync", sync, get_args(Sync))
        if hide_owners and key is None:
            raise InvalidSetting("hide_owners needs a key: without one a name could be guessed", field="key")
        self.path = Path(path)
        self.chain = Chain(key)
        self.clock = clock
        self._hide_owners = hide_owners
        self._sync: Sync = sync
        self._largest = largest_file
        self._waiting: list[_Waiting] = []
        self._door = threading.Lock()
        self._thread: ThreadPoolExecutor | None = None
        self._files: _Files | None = None
        self._synced = 0.0

    async def open(self) -> None:
        """Make the files, or find them; notes it when the last writer ended in the middle of a line."""
        if self._thread is not None:
            return
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="aforesaid-audit")
        try:
            await asyncio.wrap_future(self._thread.submit(self._open))
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Write what waits, sync, and let go. Closing twice is fine."""
        thread, self._thread = self._thread, None
        if thread is not None:
            await asyncio.wrap_future(thread.submit(self._close))
            await asyncio.to_thread(thread.shutdown)

    async def record(self, event: Event) -> None:
        """Write the event to the trail; it is there when this returns."""
        if self._thread is None:
            raise StoreClosed("the audit trail is not open")
        if self._hide_owners:
            event = replace(event, owner=self.chain.owner(event.owner))
        written: Future[None] = Future()
        with self._door:
            self._waiting.append((event, written))
        self._thread.submit(self._drain)
        await asyncio.shield(asyncio.wrap_future(written))  # what was done is noted, whoever is cancelled

    # On the writing thread

    def _open(self) -> None:
        with _explained(self.path):
            self._files = _Files(self.path)
            with self._files.locked():
                self._recover(self._files)

    def _close(self) -> None:
        self._drain()
        files, self._files = self._files, None
        if files is not None:
            with _explained(self.path):
                files.sync()
                files.close()

    def _drain(self) -> None:
        with self._door:
            batch, self._waiting = self._waiting, []
        if not batch:
            return
        try:
            self._write([event for event, _ in batch])
        except Exception as error:  # noqa: BLE001  whatever it is, everybody who waits must hear of it
            for _, written in batch:
                written.set_exception(error)
        else:
            for _, written in batch:
                written.set_result(None)

    def _write(self, events: Sequence[Event]) -> None:
        files = self._files
        assert files is not None
        with _explained(self.path), files.locked():
            head = self._current(files)
            files.roll(self._largest, head.count)
            lines = bytearray()
            count, last = head.count, head.hash
            for event in events:
                count += 1
                line, last = self.chain.line(event, n=count, prev=last)
                lines += line
            files.put_head(self.chain.head(replace(head, next_count=count, next_hash=last)))
            files.append(bytes(lines))
            self._settle(files, Head(count=count, hash=last, next_count=count, next_hash=last))

    def _settle(self, files: "_Files", head: Head) -> None:
        files.put_head(self.chain.head(head))
        now = time.monotonic()
        if self._sync == "always" or (self._sync == "second" and now - self._synced >= 1):
            files.sync()
            self._synced = now

    def _current(self, files: "_Files") -> Head:
        """The head; made right first when the writer before us did not come to its end."""
        head = self.chain.read_head(files.head())
        if head.next_count != head.count:
            self._recover(files)
            head = self.chain.read_head(files.head())
        return head

    def _recover(self, files: "_Files") -> None:
        text = files.head()
        if not text:
            if files.size():
                raise StoreDamaged(
                    f"the audit trail {self.path} has lost its head; see `aforesaid audit verify`"
                )
            files.put_head(self.chain.head(Head()))
            return
        head = self.chain.read_head(text)
        if head.next_count != head.count:
            self._note_missing(files, head)

    def _note_missing(self, files: "_Files", head: Head) -> None:
        """Lines were announced, and the process ended before all of them were written, or before the head
        said so."""
        count, last = files.end_of(head)
        if (count, last) != (head.next_count, head.next_hash):
            missing = head.next_count - count
            log.warning("audit trail %s: %d announced lines were never written", self.path, missing)
            event = Event(
                at=self.clock(),
                actor="aforesaid",
                source="",
                action="missing",
                outcome="failed",
                count=missing,
            )
            line, digest = self.chain.line(event, n=count + 1, prev=last)
            files.append(line)
            count, last = count + 1, digest
        files.put_head(self.chain.head(Head(count=count, hash=last, next_count=count, next_hash=last)))


class _Files:
    """The open files of a trail."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, _PRIVATE)
        self._head = os.open(f"{path}.head", os.O_RDWR | os.O_CREAT, _PRIVATE)
        self._lines = self._open_lines()

    def _open_lines(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, _PRIVATE)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """For us alone: another process waits."""
        with locked(self._lock):
            self._follow()
            yield

    def _follow(self) -> None:
        """Another process may have begun a new file since."""
        try:
            same = os.path.samestat(os.fstat(self._lines), os.stat(self._path))
        except FileNotFoundError:
            same = False
        if not same:
            os.close(self._lines)
            self._lines = self._open_lines()

    def head(self) -> bytes:
        return os.pread(self._head, 2 * HEAD_BYTES, 0)

    def put_head(self, head: bytes) -> None:
        """In place and in one go: it has always the same length."""
        os.pwrite(self._head, head, 0)

    def size(self) -> int:
        return os.fstat(self._lines).st_size

    def append(self, lines: bytes) -> None:
        rest = memoryview(lines)
        while rest:
            rest = rest[os.write(self._lines, rest) :]

    def roll(self, largest: int, count: int) -> None:
        """Begin a new file when this one is large; the old one is named after the last line in it."""
        if self.size() >= largest:
            os.fsync(self._lines)
            os.rename(self._path, f"{self._path}.{count:012d}")
            os.close(self._lines)
            self._lines = self._open_lines()

    def end_of(self, head: Head) -> tuple[int, str]:
        """Number and hash of the last whole line, from the head on; what is left of a torn one is cut off."""
        count, last = head.count, head.hash
        whole = 0
        with open(self._path, "rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break
                whole += len(line)
                try:
                    read = read_line(line)
                except ValueError:
                    continue
                if read.n == count + 1 and read.prev == last:
                    count, last = read.n, read.hash
        if whole < self.size():
            os.ftruncate(self._lines, whole)
        return count, last

    def sync(self) -> None:
        os.fsync(self._lines)
        os.fsync(self._head)

    def close(self) -> None:
        for descriptor in (self._lines, self._head, self._lock):
            os.close(descriptor)


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn the operating system's errors into ours."""
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(f"the audit trail {path} cannot be used: {error.strerror or error}") from error


def audit_key_from_env(environ: Mapping[str, str] | None = None) -> bytes | None:
    """The key that the environment names; None when it names none."""
    environ = os.environ if environ is None else environ
    text = environ.get(KEY_VARIABLE)
    return parse_key(text, where=KEY_VARIABLE) if text else None
