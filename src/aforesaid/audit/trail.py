"""The files of a trail: several processes append lines and never change them.

    audit.jsonl          the lines
    audit.jsonl.000001   earlier lines, after rotation; the chain continues across files
    audit.jsonl.head     the number of lines, and the hash of the last
    audit.jsonl.lock     held by the process that writes

`record` returns when the line is written: it survives the end of the process. It survives a power failure
once it is synced: at once, within a second, or by the operating system, as `sync` specifies. The head
announces lines before they are written, so that the next writer detects and records lines that a crash lost.
Concurrent events share a write.
"""

import asyncio
import contextlib
import logging
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from msgspec.structs import replace

from aforesaid._internal.arguments import validated
from aforesaid._internal.files import locked, write_all
from aforesaid.audit.chain import (
    HEAD_BYTES,
    Chain,
    Checked,
    Event,
    Head,
    Line,
    check_trail,
    read_line,
    read_trail,
)
from aforesaid.encryption import parse_key
from aforesaid.errors import InvalidSetting, StoreClosed, StoreDamaged, StoreUnavailable
from aforesaid.model.clock import Clock, system_clock

Sync = Literal["always", "second", "never"]
KEY_VARIABLE = "AFORESAID_AUDIT_KEY"

# The size in bytes at which a file is rotated.
LARGEST_FILE = 64 * 1024 * 1024
_PRIVATE = 0o600

log = logging.getLogger("aforesaid.audit")


@validated
class AuditTrail:
    """A trail at a path. `key` signs it; `hide_owners` stores a keyed digest instead of owners' names."""

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
        self._key = key
        self.clock = clock
        self._hide_owners = hide_owners
        self._sync: Sync = sync
        self._largest = largest_file
        self._queue: queue.SimpleQueue[_Queued | None] = queue.SimpleQueue()
        self._queue_lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ending: threading.Thread | None = None
        self._files: _Files | None = None
        self._known_head = b"", Head()
        self._synced = 0.0

    async def open(self) -> None:
        """Create or open the files. Record lines that the previous writer announced but did not write."""
        if self._thread is not None:
            return
        await asyncio.to_thread(self._open)
        with self._queue_lock:
            self._thread = threading.Thread(target=self._serve, name="aforesaid-audit", daemon=True)
            self._thread.start()

    async def close(self) -> None:
        """Write queued events, sync, and release the files. Closing twice is allowed."""
        with self._queue_lock:  # no event may enter the queue after the None that ends the thread
            if self._thread is not None:
                self._ending, self._thread = self._thread, None
                self._queue.put(None)
            ending = self._ending
        # Every caller waits for the thread: it writes to the files that the first of them closes.
        if ending is not None:
            await asyncio.to_thread(ending.join)
        await asyncio.to_thread(self._close)

    async def record(self, *events: Event) -> None:
        """Write the events to the trail before returning. A cancelled caller's events are still written."""
        if self._hide_owners:
            events = tuple(replace(event, owner=self.chain.owner(event.owner)) for event in events)
        loop = asyncio.get_running_loop()
        queued = _Queued(events, loop, loop.create_future())
        with self._queue_lock:
            if self._thread is None:
                raise StoreClosed("the audit trail is not open")
            self._queue.put(queued)
        await queued.written

    # On the writer thread

    async def check(self) -> Checked:
        """Verify the whole trail."""
        return await asyncio.to_thread(check_trail, self.path, key=self._key)

    async def latest(self, owner: str, limit: int, *, action: str | None = None) -> Sequence[Line]:
        """Return the last events of an owner, or those with one action, newest first, by name or
        pseudonym.
        """
        names = {owner, self.chain.owner(owner)}

        def read() -> Sequence[Line]:
            lines = (line for line in read_trail(self.path) if line.owner in names)
            return deque((line for line in lines if action in (None, line.action)), maxlen=limit)

        return tuple(reversed(await asyncio.to_thread(read)))

    def _open(self) -> None:
        with _translating_errors(self.path):
            self._files = _Files(self.path)
            with self._files.locked():
                self._recover(self._files)

    def _close(self) -> None:
        with self._queue_lock:
            files, self._files = self._files, None
        if files is not None:
            with _translating_errors(self.path):
                files.sync()
                files.close()

    def _serve(self) -> None:
        """Write all waiting events at once, until the trail is closed."""
        ended = False
        while not ended and (first := self._queue.get()) is not None:
            batch = [first]
            with contextlib.suppress(queue.Empty):
                while not ended:
                    following = self._queue.get_nowait()
                    ended = following is None
                    batch += [] if following is None else [following]
            self._write_batch(batch)

    def _write_batch(self, batch: Sequence["_Queued"]) -> None:
        error: Exception | None = None
        try:
            self._write([event for queued in batch for event in queued.events])
        except Exception as raised:  # noqa: BLE001  every waiting caller gets the error
            error = raised
        for queued in batch:
            with contextlib.suppress(RuntimeError):  # the caller's event loop was closed
                queued.loop.call_soon_threadsafe(queued.settle, error)

    def _write(self, events: Sequence[Event]) -> None:
        files = self._files
        assert files is not None
        with _translating_errors(self.path), files.locked():
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
        text = self.chain.head(head)
        files.put_head(text)
        self._known_head = text, head
        now = time.monotonic()
        if self._sync == "always" or (self._sync == "second" and now - self._synced >= 1):
            files.sync()
            self._synced = now

    def _current(self, files: "_Files") -> Head:
        """Return the head. Repair it first when the previous writer did not finish."""
        text = files.head()
        if text == self._known_head[0]:  # this process wrote it: no need to parse and verify it
            return self._known_head[1]
        head = self.chain.read_head(text)
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
            self._record_missing(files, head)

    def _record_missing(self, files: "_Files", head: Head) -> None:
        """Record announced lines that were never written because a process ended."""
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


class _Queued(NamedTuple):
    """Events that wait for the writer thread, and the future of their caller."""

    events: Sequence[Event]
    loop: asyncio.AbstractEventLoop
    written: "asyncio.Future[None]"

    def settle(self, error: Exception | None) -> None:
        """Resolve the future. Runs on the event loop."""
        if self.written.done():  # the caller was cancelled
            return
        if error is None:
            self.written.set_result(None)
        else:
            self.written.set_exception(error)


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
        """Hold the lock; other processes wait."""
        with locked(self._lock):
            self._reopen_if_rotated()
            yield

    def _reopen_if_rotated(self) -> None:
        """Reopen the file when another process has rotated it."""
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
        """Overwrite the head in one call; its length is fixed."""
        os.pwrite(self._head, head, 0)

    def size(self) -> int:
        return os.fstat(self._lines).st_size

    def append(self, lines: bytes) -> None:
        write_all(self._lines, lines)

    def roll(self, largest: int, count: int) -> None:
        """Rotate a large file; the old one is named after the number of its last line."""
        if self.size() >= largest:
            os.fsync(self._lines)
            os.rename(self._path, f"{self._path}.{count:012d}")
            os.close(self._lines)
            self._lines = self._open_lines()

    def end_of(self, head: Head) -> tuple[int, str]:
        """Return number and hash of the last complete line after the head; truncate an incomplete one."""
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
def _translating_errors(path: Path) -> Iterator[None]:
    """Translate errors of the operating system."""
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(f"the audit trail {path} cannot be used: {error.strerror or error}") from error


def audit_key_from_env(environ: Mapping[str, str] | None = None) -> bytes | None:
    """Return the key from the environment; None when there is none."""
    environ = os.environ if environ is None else environ
    text = environ.get(KEY_VARIABLE)
    return parse_key(text, where=KEY_VARIABLE) if text else None
