"""Open the file, hold all owners' data in memory, and write once for many callers.

Reads use the published data, which equals the file's content and never changes in place. A batch of jobs
changes a draft. After the draft is durable, it is published and the callers get their results. If the write
fails, the draft is dropped and the callers get the error. So no caller sees data that could still be lost.
"""

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from aforesaid._internal.files import (
    PRIVATE_FILE,
    Held,
    Lock,
    link_or_copy,
    removed_on_error,
    sync_folder,
    write_new,
)
from aforesaid._internal.tasks import to_the_end
from aforesaid.contracts import JOURNAL, Backend, SchemaVersion
from aforesaid.errors import (
    AforesaidError,
    StoreClosed,
    StoreDamaged,
    StoreForeign,
    StoreReplaced,
    StoreUnavailable,
)
from aforesaid.model.clock import Clock, parse_moment, system_clock
from aforesaid.model.ids import parse_name
from aforesaid.stores._worker import WAIT_SECONDS, Job, Jobs, WorkerThreads, batches, deliver
from aforesaid.stores.json_file.document import (
    VERSION,
    OwnersData,
    check_depth,
    document_version,
    read_document,
    write_document,
)
from aforesaid.stores.owner_data import OwnerData
from aforesaid.stores.owner_data_store import OwnerDataStore

T = TypeVar("T")

# Jobs per write.
MAX_BATCH = 1024
# Jobs in the queue; further callers wait for a slot.
MAX_QUEUED = 4 * MAX_BATCH


class OwnerJob(Job):
    """Work on one owner's data."""

    __slots__ = ("owner",)

    def __init__(self, owner: str, work: Callable[[OwnerData], Any]) -> None:
        super().__init__(work)
        self.owner = owner


class JsonFileBackend(Backend):
    """One human-readable JSON document, for one process and small amounts of data.

    Every write replaces the whole document, so its cost grows with the amount of data: about 2 MB per write
    at 10,000 messages. Concurrent callers share a write. Use SQLite beyond a few thousand messages.
    """

    def __init__(self, path: str | os.PathLike[str], *, clock: Clock = system_clock) -> None:
        self.path = os.fspath(path)
        self.clock = clock
        self._opening = threading.Lock()
        self._file: ReplacedFile | None = None
        self._lock: Lock | None = None
        self._writer: WorkerThreads[OwnerJob] | None = None
        self._published: dict[str, OwnerData] = {}

    async def open(self) -> None:
        if self._writer is not None:
            return
        try:
            await to_the_end(self._open_once)
        except asyncio.CancelledError:
            await self.close()
            raise

    async def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            await to_the_end(self._close, writer)

    def of(self, owner: str) -> "JsonFileStore":
        return JsonFileStore(self, parse_name(owner, field="owner"))

    async def owners(self, *, ignored_kinds: Collection[str] = ()) -> AsyncIterator[str]:
        for owner, owner_data in sorted(self._data().items()):
            if owner_data.holds_anything(ignored_kinds=ignored_kinds):
                yield owner

    async def purge_expired(self, now: datetime | None = None) -> int:
        moment = self.clock() if now is None else parse_moment(now, field="now")
        purges = [
            self.write(owner, lambda owner_data: owner_data.purge_expired(now=moment))
            for owner in self._data()
        ]
        return sum(await asyncio.gather(*purges))

    async def scrub(self, owner: str | None) -> tuple[str, ...]:
        """Write document and backup now. Otherwise the backup would contain deleted data until the second
        next write."""
        await self.write(JOURNAL if owner is None else owner, OwnerData.invalidate_copies)
        return ()

    async def schema_version(self) -> SchemaVersion:
        return SchemaVersion(found=await asyncio.to_thread(self._found_version), needed=VERSION)

    def _found_version(self) -> int:
        with _translated(f"cannot read {self.path}"):
            text = ReplacedFile(Path(self.path)).read()
            return 0 if text is None else document_version(text, where=self.path)

    async def disk_usage(self) -> dict[str, int]:
        """Return the bytes of the document."""
        return {"document": await asyncio.to_thread(_size, Path(self.path))}

    def owner_data(self, owner: str) -> OwnerData:
        """Return the published data of this owner, for reading only."""
        return self._data().get(owner) or OwnerData()

    async def write(self, owner: str, work: Callable[[OwnerData], T]) -> T:
        """Run the work on this owner's data; return when the result is durable."""
        return cast(T, await self._open_writer().run(OwnerJob(owner, work)))

    def _open_writer(self) -> WorkerThreads[OwnerJob]:
        if self._writer is None:
            raise StoreClosed.named(self.path)
        return self._writer

    def _data(self) -> OwnersData:
        self._open_writer()
        return self._published

    # Opening and closing, off the event loop

    def _open_once(self) -> None:
        with self._opening:
            if self._writer is None:
                self._open()

    def _open(self) -> None:
        with _translated(f"cannot open {self.path}"):
            self._open_file()

    def _open_file(self) -> None:
        path = Path(os.path.realpath(self.path))  # replace the target of a symbolic link, not the link
        if not path.parent.is_dir():
            raise StoreUnavailable(f"cannot open {self.path}: there is no folder {path.parent}")
        if path.is_dir():
            raise StoreUnavailable(f"cannot open {self.path}: it is a folder")
        lock = Lock(path.with_name(f"{path.name}.lock"))
        with _translated(f"{self.path} cannot be opened"):
            # Lock before reading: another process could write in between.
            _acquire(lock, self.path)
            try:
                file = ReplacedFile(path)
                self._published = self._load(file)
            except BaseException:
                lock.release()
                raise
        self._file, self._lock = file, lock
        self._writer = WorkerThreads[OwnerJob](
            "the JSON file",
            self._serve,
            thread_name="json-file",
            max_queued=MAX_QUEUED,
            timeout=WAIT_SECONDS,
        )

    def _load(self, file: "ReplacedFile") -> dict[str, OwnerData]:
        text = file.read()
        if text is None:
            owners_data = self._start(file)
        else:
            owners_data = self._read(text, file)
            file.tidy()
            if document_version(text, where=self.path) < VERSION:
                file.replace(write_document(owners_data))  # the backup is the document as it was
        return owners_data

    def _start(self, file: "ReplacedFile") -> dict[str, OwnerData]:
        """Write an empty document, so that a read-only folder is detected at once."""
        if file.backup.exists():
            raise StoreDamaged(
                f"{self.path} is gone, but its backup {file.backup} is there and was left as it is. "
                f"Copy the backup to {self.path} to go on from it, or move it away to start anew."
            )
        file.tidy()
        file.replace(write_document({}))
        return {}

    def _read(self, text: bytes, file: "ReplacedFile") -> dict[str, OwnerData]:
        try:
            return read_document(text, where=self.path)
        except StoreForeign as error:
            raise StoreForeign(f"{error}; it was left as it is") from error
        except StoreDamaged as error:
            raise StoreDamaged(f"{error}. It was left as it is. {self._recovery_hint(file)}") from error

    def _recovery_hint(self, file: "ReplacedFile") -> str:
        if file.backup.exists():
            return f"The version before it is {file.backup}: copy it to {self.path} to go back to it."
        return f"There is no backup {file.backup}."

    def _close(self, writer: WorkerThreads[OwnerJob]) -> None:
        writer.close()
        if self._lock is not None:
            self._lock.release()
        self._published = {}

    # The writer thread

    def _serve(self, jobs: Jobs[OwnerJob]) -> None:
        for batch in batches(jobs, MAX_BATCH):
            wanted = [job for job in batch if not job.future.cancelled()]
            try:
                self._commit(wanted)
            except Exception as error:  # noqa: BLE001  every caller of the batch gets the error
                for job in wanted:
                    job.error = error
            deliver(wanted)

    def _commit(self, jobs: Sequence[OwnerJob]) -> None:
        # Copy on write: readers on the event loop use the published data meanwhile.
        draft = dict(self._published)
        by_owner: dict[str, list[OwnerJob]] = {}
        for job in jobs:
            by_owner.setdefault(job.owner, []).append(job)
        touched = {
            owner: _apply_jobs(theirs, self._published.get(owner, OwnerData()))
            for owner, theirs in by_owner.items()
        }
        forget = any(owner_data.removals for owner_data in touched.values())
        for owner, owner_data in touched.items():
            owner_data.removals = 0
            draft[owner] = owner_data
        draft = {owner: owner_data for owner, owner_data in draft.items() if owner_data.holds_anything()}
        # Jobs may change nothing, such as the removal of a missing document. That costs no write.
        if draft != self._published or forget:
            self._replace(draft, forget=forget)
            self._published = draft

    def _replace(self, draft: OwnersData, *, forget: bool) -> None:
        assert self._file is not None
        with _translated(f"{self.path} cannot be written, and nothing was stored"):
            self._check_files(self._file)
            try:
                self._file.replace(write_document(draft), forget=forget)
            except NotSynced:
                # The callers get an error. Make the file agree with it.
                with contextlib.suppress(OSError):
                    self._file.replace(write_document(self._published))
                raise
            # Check again: without the lock, another process may have replaced the file during this write.
            self._check_lock()

    def _check_files(self, file: "ReplacedFile") -> None:
        """Raise `StoreReplaced` rather than overwrite a document that another process or an operator
        wrote."""
        self._check_lock()
        if file.is_replaced():
            raise StoreReplaced(
                f"{self.path} was replaced or changed while it was open, and nothing was stored; "
                "restart this process, or close the store and open it again"
            )

    def _check_lock(self) -> None:
        """Raise `StoreReplaced` without the lock: another process may write the same file."""
        if self._lock is None or not self._lock.is_held():
            raise StoreReplaced(
                f"the lock of {self.path} was removed or replaced while it was open, and nothing was stored; "
                "restart this process, or close the store and open it again"
            )


class JsonFileStore(OwnerDataStore):
    """One owner's store. Reads come from the published data; writes wait for the disk."""

    def __init__(self, backend: JsonFileBackend, owner: str) -> None:
        self._backend = backend
        self._owner = owner

    @property
    def owner(self) -> str:
        return self._owner

    def now(self) -> datetime:
        return self._backend.clock()

    def _data(self) -> OwnerData:
        return self._backend.owner_data(self._owner)

    async def _write(self, work: Callable[[OwnerData], T]) -> T:
        return await self._backend.write(self._owner, work)

    def _check_bodies(self, bodies: Iterable[bytes]) -> None:
        check_depth(bodies)


def _apply_jobs(jobs: Sequence[OwnerJob], published: OwnerData) -> OwnerData:
    """Apply the jobs to a copy of the data. A failing job does not affect the others."""
    owner_data = published.copy()
    done: list[OwnerJob] = []
    for job in jobs:
        try:
            job.result = job.work(owner_data)
            done.append(job)
        except AforesaidError as error:  # `OwnerData` validates before it changes anything
            job.error = error
        except Exception as error:  # noqa: BLE001  the job may have changed the data: start over without it
            job.error = error
            owner_data = published.copy()
            for one in done:
                one.result = one.work(owner_data)
    return owner_data


def _acquire(lock: Lock, path: str) -> None:
    try:
        lock.acquire()
    except Held as holder:
        raise StoreUnavailable(
            f"{path} is in use by another process (pid {holder.process or 'unknown'}). End that process, "
            "give each process a file of its own, or use sqlite:, which several processes can share."
        ) from None


@contextlib.contextmanager
def _translated(what: str) -> Iterator[None]:
    """Translate operating system errors."""
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(f"{what}: {error.strerror or error}") from error


# The file


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
    """A file that is replaced as a whole by one process at a time.

    At any moment the path has either the complete old document or the complete new one. Next to it are the
    previous version (`.backup`) and, during a write, the new one (`.unfinished`).
    """

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
                # The previous version contains deleted text and must not become the backup.
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


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
