"""The file as a whole: its threads, its owners, its sweep. Below: `pools`, `connections`."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Collection
from contextlib import ExitStack, closing
from datetime import datetime
from functools import partial

import apsw

from aforesaid._internal.deadlines import ended
from aforesaid._internal.threads import to_the_end
from aforesaid.contracts import Backend, Progress, SchemaVersion
from aforesaid.errors import AforesaidError, InvalidInput, StoreClosed
from aforesaid.model.clock import Clock, parse_moment, system_clock, to_micros
from aforesaid.model.ids import parse_name
from aforesaid.stores._sql_files import queries
from aforesaid.stores.sqlite.connections import (
    LOCK_TIMEOUT,
    PACKAGE,
    SYNCHRONOUS,
    LockWait,
    check_lock_timeout,
    connect,
    create,
    prepare,
    schema_version,
    translated,
)
from aforesaid.stores.sqlite.identity import OpenFiles
from aforesaid.stores.sqlite.index_rewrite import IndexRewrite, residue_count
from aforesaid.stores.sqlite.logs import Ends
from aforesaid.stores.sqlite.rows import names_text
from aforesaid.stores.sqlite.scrubbing import AT_ONCE_BYTES, AT_ONCE_SECONDS, PATIENT_SECONDS, Scrubber
from aforesaid.stores.sqlite.search_index import (
    REINDEX_BATCH,
    Backlog,
    Cursor,
    Indexer,
    backlog,
    index_backlog,
    index_waiting,
)
from aforesaid.stores.sqlite.snapshots import Recent
from aforesaid.stores.sqlite.store import SearchableSQLiteStore, SQLiteStore
from aforesaid.stores.sqlite.workers import ReaderPool, WorkerPool, WriterThread
from aforesaid.telemetry import describe

SQL = queries(PACKAGE)
log = logging.getLogger("aforesaid.stores.sqlite")
READERS = 4
"""Reading threads. Reads are short; more threads than this only wait for each other's interpreter."""
PURGE_BATCH = 100
OWNERS_BATCH = 500
STEPS_AT_ONCE = 64
"""Steps of rewriting the full-text index that a plain deletion waits for: 16 MB of index."""


class SQLiteBackend(Backend):
    """One file. `synchronous="full"` survives a power cut; `"normal"` survives a kill, and may lose the
    last moments of acknowledged turns when the power goes. Without `search` no index is written; one that
    is there still forgets what is deleted, and `reindex` catches up when there is one again."""

    def __init__(
        self,
        path: str,
        *,
        clock: Clock = system_clock,
        synchronous: str = "full",
        search: bool = True,
        lock_timeout: float = LOCK_TIMEOUT,
    ) -> None:
        if synchronous not in SYNCHRONOUS:
            raise InvalidInput.not_in("synchronous", synchronous, SYNCHRONOUS)
        self.lock_timeout = check_lock_timeout(lock_timeout)
        """Seconds that a call waits for the locks of other processes before it raises `StoreBusy`."""
        self.path = path
        self.clock = clock
        self._synchronous = synchronous
        self.ends = Ends(clock, wrote=self.wrote)
        self.recent = Recent()
        """What was read of late. Exchanged for an empty one whenever something goes for good."""
        self.indexer = Indexer() if search else None
        self._catching_up: asyncio.Task[None] | None = None
        self._opening = threading.Lock()
        self._scrubber = Scrubber(path)
        self.patience = PATIENT_SECONDS
        """How many seconds an erasure waits for readers of an old state."""
        self._writer: WriterThread | None = None
        self._readers: WorkerPool | None = None

    async def open(self) -> None:
        if self._writer is not None:
            return
        try:
            await to_the_end(self._open_once)
        except asyncio.CancelledError:
            await self.close()
            raise
        if self.indexer is not None:
            self._catching_up = asyncio.create_task(self._complete_index())

    def _open_once(self) -> None:
        with self._opening:
            if self._writer is None:
                self._open()

    def _open(self) -> None:
        wait = LockWait(until=time.monotonic() + self.lock_timeout)
        with translated(self.path), ExitStack() as when_it_fails:
            create(self.path)
            files = OpenFiles(self.path)
            first = when_it_fails.enter_context(
                closing(prepare(self.path, synchronous=self._synchronous, wait=wait))
            )
            self.ends.prepare(first)
            others = [
                when_it_fails.enter_context(
                    closing(connect(self.path, synchronous=self._synchronous, wait=wait))
                )
                for _ in range(READERS)
            ]
            files.include_log()
            files.check()
            when_it_fails.pop_all()  # the lanes close them from here on
        timeout = self.lock_timeout
        self._readers = ReaderPool(self.path, others, name="reader", files=files, lock_timeout=timeout)
        self._writer = WriterThread(
            self.path,
            first,
            name="writer",
            files=files,
            ends=self.ends,
            at_rest=self.indexer,
            lock_timeout=timeout,
        )
        # A process that was killed may have deleted something and not yet emptied the log of it.
        self._scrubber.scrub(seconds=0, most_bytes=0)

    async def _complete_index(self) -> None:
        """Index what was written without an index, by an earlier process or by others."""
        try:
            if done := await self.reindex():
                log.info("%s: %d messages that were not in the index are now", self.path, done)
        except AforesaidError as error:
            log.warning(
                "%s: the index lacks messages, and will be tried again: %s", self.path, describe(error)
            )

    async def close(self) -> None:
        catching_up, self._catching_up = self._catching_up, None
        try:
            if catching_up is not None:
                await ended(catching_up)
        finally:
            await self._close_pools()

    async def _close_pools(self) -> None:
        pools = [pool for pool in (self._readers, self._writer) if pool is not None]
        self._writer = self._readers = None
        self.recent = Recent()
        if pools:
            await to_the_end(_close_all, pools)
            self.ends.forget()

    def wrote(self, count: int) -> None:
        """So many messages were stored: tell whoever indexes them."""
        if self.indexer is not None:
            self.indexer.wrote(count)

    @property
    def writer(self) -> WriterThread:
        if self._writer is None:
            raise StoreClosed(f"{self.path} is not open")
        return self._writer

    @property
    def readers(self) -> WorkerPool:
        if self._readers is None:
            raise StoreClosed(f"{self.path} is not open")
        return self._readers

    async def schema_version(self) -> SchemaVersion:
        return await asyncio.to_thread(schema_version, self.path)

    def of(self, owner: str) -> SQLiteStore:
        kind = SQLiteStore if self.indexer is None else SearchableSQLiteStore
        return kind(self, parse_name(owner, field="owner"))

    async def owners(self, *, ignored_kinds: Collection[str] = ()) -> AsyncIterator[str]:
        last = ""
        while batch := await self.readers.run(partial(_owners_after, last=last, ignored_kinds=ignored_kinds)):
            for owner in batch:
                yield owner
            last = batch[-1]

    async def purge_expired(self, now: datetime | None = None) -> int:
        moment = self.clock() if now is None else parse_moment(now, field="now")
        return await self.purge(SQL["purge_everybody"], to_micros(moment))

    async def purge(self, sql: str, *values: str | int) -> int:
        """Run a purge in batches; returns how many conversations went."""
        total = 0
        while removed := await self.writer.run(lambda db: _delete(db, sql, *values, PURGE_BATCH)):
            total += removed
        if total or not self._scrubber.is_clean or await self.readers.run(residue_count):
            self.recent = Recent()
            await self._rewrite_index()
            await asyncio.to_thread(self._scrubber.scrub, seconds=AT_ONCE_SECONDS)
        return total

    async def reindex(self, progress: Progress | None = None) -> int:
        """See `contracts.Reindexed`."""
        total = 0
        async for done in self._reindexing():
            total += done
            if done and progress is not None:
                progress(total)
        return total

    async def _reindexing(self) -> AsyncIterator[int]:
        """How many messages each step has indexed: first those at the end, in order, then those between."""
        done = REINDEX_BATCH
        while done == REINDEX_BATCH:  # fewer are all; what comes meanwhile is for the next moment of rest
            done = await self.writer.run(partial(index_waiting, most=REINDEX_BATCH))
            yield done
        found: Backlog | None = Backlog([], Cursor())
        while found is not None:
            yield await self.writer.run(partial(index_backlog, rows=found.rows)) if found.rows else 0
            found = await self.readers.run(partial(backlog, cursor=found.next))

    async def catch_up(self) -> None:
        """Index all that waits."""
        while await self.writer.run(partial(index_waiting, most=REINDEX_BATCH)) == REINDEX_BATCH:
            pass

    async def _rewrite_index(self, *, most_steps: int | None = None) -> bool:
        """Have deleted terms leave the full-text index; returns whether all of them have."""
        rewrite = IndexRewrite()
        while rewrite.advance(await self.writer.run(rewrite.step)):
            if rewrite.steps == most_steps:
                break
        return rewrite.is_done

    async def forgotten(self) -> None:
        """Have deleted text leave the index and the log beside the file, as far as that takes little time.

        The next deletion, the sweep or an erasure does the rest.
        """
        self.recent = Recent()
        await self._rewrite_index(most_steps=STEPS_AT_ONCE)
        await asyncio.to_thread(self._scrubber.scrub, seconds=AT_ONCE_SECONDS, most_bytes=AT_ONCE_BYTES)

    async def scrub(self, owner: str | None) -> tuple[str, ...]:
        """Rewrite the index and empty the log beside the file; see `index_rewrite` and `scrubbing`."""
        remains: tuple[str, ...] = ()
        if not await self._rewrite_index():
            remains += (f"{self.path}: the full-text index keeps deleted terms until the next sweep",)
        if not await to_the_end(self._scrubber.scrub, seconds=self.patience):
            remains += (f"{self.path}-wal is held by a reader; it is emptied at the next sweep or deletion",)
        return remains


def _close_all(pools: list[WorkerPool]) -> None:
    for pool in pools:
        pool.close()


def _owners_after(db: apsw.Connection, *, last: str, ignored_kinds: Collection[str]) -> list[str]:
    return [owner for (owner,) in db.execute(SQL["owners"], (last, OWNERS_BATCH, names_text(ignored_kinds)))]


def _delete(db: apsw.Connection, sql: str, *values: str | int) -> int:
    db.execute(sql, values)
    return db.changes()
