"""The open file: threads, caches, and the removal of deleted text. All stores of a backend share it."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, closing
from functools import partial

import apsw

from aforesaid._internal.tasks import ended, start_background, to_the_end
from aforesaid.contracts import Progress
from aforesaid.errors import AforesaidError, InvalidInput, StoreClosed
from aforesaid.model.clock import Clock, system_clock
from aforesaid.stores.sqlite.connections import (
    LOCK_TIMEOUT,
    SYNCHRONOUS,
    LockWait,
    OpenFiles,
    check_lock_timeout,
    connect,
    create,
    prepare,
    translated,
)
from aforesaid.stores.sqlite.logs import LogAppender
from aforesaid.stores.sqlite.scrubbing import (
    DELETION_MAX_BYTES,
    DELETION_WAIT_SECONDS,
    ERASURE_WAIT_SECONDS,
    IndexRewrite,
    Scrubber,
    residue_count,
)
from aforesaid.stores.sqlite.search import (
    REINDEX_BATCH,
    Backlog,
    Cursor,
    Indexer,
    backlog,
    index_backlog,
    index_waiting,
)
from aforesaid.stores.sqlite.snapshots import SnapshotCache
from aforesaid.stores.sqlite.workers import Readers, Writer
from aforesaid.telemetry import describe

log = logging.getLogger("aforesaid.stores.sqlite")
# Reader threads. Reads are short; more threads would only wait for the interpreter lock.
READERS = 4
PURGE_BATCH = 100
# Steps of the index rewrite that a plain deletion waits for: 16 MB of index.
DELETION_MAX_STEPS = 64


class Database:
    """One open SQLite file, its reader threads and its writer thread."""

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
        # Seconds that a call waits for locks of other processes before it raises `StoreBusy`.
        self.lock_timeout = check_lock_timeout(lock_timeout)
        self.path = path
        self.clock = clock
        self._synchronous = synchronous
        self.appender = LogAppender(clock, on_stored=self.wrote)
        # The cache of snapshots, replaced by an empty one after every permanent removal.
        self.snapshots = SnapshotCache()
        self.indexer = Indexer() if search else None
        self._catching_up: asyncio.Task[None] | None = None
        self._opening = threading.Lock()
        self._scrubber = Scrubber(path)
        # Seconds that an erasure waits for readers of an old snapshot.
        self.erasure_wait = ERASURE_WAIT_SECONDS
        self._writer: Writer | None = None
        self._readers: Readers | None = None

    async def open(self) -> None:
        if self._writer is not None:
            return
        try:
            await to_the_end(self._open_once)
        except asyncio.CancelledError:
            await self.close()
            raise
        if self.indexer is not None:
            self._catching_up = start_background(self._complete_index(), name="aforesaid-index")

    def _open_once(self) -> None:
        with self._opening:
            if self._writer is None:
                self._open()

    def _open(self) -> None:
        wait = LockWait(until=time.monotonic() + self.lock_timeout)
        with translated(self.path), ExitStack() as on_failure:
            create(self.path)
            files = OpenFiles(self.path)
            first = on_failure.enter_context(
                closing(prepare(self.path, synchronous=self._synchronous, wait=wait))
            )
            self.appender.prepare(first)
            # Only the first connection migrates. The others find the current schema.
            others = [
                on_failure.enter_context(
                    closing(connect(self.path, synchronous=self._synchronous, wait=wait))
                )
                for _ in range(READERS)
            ]
            files.include_log()
            files.check()
            on_failure.pop_all()  # the worker threads close the connections from here on
        timeout = self.lock_timeout
        self._readers = Readers(self.path, others, files=files, lock_timeout=timeout)
        self._writer = Writer(
            self.path,
            first,
            files=files,
            appender=self.appender,
            background=self.indexer,
            lock_timeout=timeout,
        )
        # A killed process may have left deleted text in the write-ahead log.
        self._scrubber.scrub(seconds=0, most_bytes=0)

    async def _complete_index(self) -> None:
        """Index messages that were written without an index."""
        try:
            if done := await self.reindex():
                log.info("%s: indexed %d messages that were missing from the index", self.path, done)
        except AforesaidError as error:
            log.warning(
                "%s: the index is incomplete; indexing will be retried: %s", self.path, describe(error)
            )

    async def close(self) -> None:
        # End the task first: it submits jobs to the threads.
        catching_up, self._catching_up = self._catching_up, None
        try:
            if catching_up is not None:
                await ended(catching_up)
        finally:
            await self._close_pools()

    async def _close_pools(self) -> None:
        pools = [pool for pool in (self._readers, self._writer) if pool is not None]
        self._writer = self._readers = None
        self.snapshots = SnapshotCache()
        if pools:
            await to_the_end(_close_all, pools)
            self.appender.clear_cache()

    def wrote(self, count: int) -> None:
        """Report stored messages to the indexer."""
        if self.indexer is not None:
            self.indexer.wrote(count)

    @property
    def writer(self) -> Writer:
        if self._writer is None:
            raise StoreClosed.named(self.path)
        return self._writer

    @property
    def readers(self) -> Readers:
        if self._readers is None:
            raise StoreClosed.named(self.path)
        return self._readers

    async def purge(self, sql: str, *values: str | int) -> int:
        """Run a purge in batches; return the number of removed conversations."""
        total = 0
        # Small transactions, so that turns can be stored in between.
        while removed := await self.writer.run(lambda db: _delete(db, sql, *values, PURGE_BATCH)):
            total += removed
        # Also complete what an earlier deletion could not, because a reader held the log or the index was
        # large.
        if total or not self._scrubber.is_clean or await self.readers.run(residue_count):
            self.snapshots = SnapshotCache()
            await self._rewrite_index()
            await asyncio.to_thread(self._scrubber.scrub, seconds=DELETION_WAIT_SECONDS)
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
        """Yield the number of messages indexed by each step: first those after the last indexed message,
        then the gaps."""
        done = REINDEX_BATCH
        # A smaller batch is the last. Messages stored meanwhile are indexed when the writer is idle.
        while done == REINDEX_BATCH:
            done = await self.writer.run(partial(index_waiting, most=REINDEX_BATCH))
            yield done
        found: Backlog | None = Backlog([], Cursor())
        while found is not None:
            yield await self.writer.run(partial(index_backlog, rows=found.rows)) if found.rows else 0
            found = await self.readers.run(partial(backlog, cursor=found.next))

    async def catch_up(self) -> None:
        """Index all waiting messages."""
        while await self.writer.run(partial(index_waiting, most=REINDEX_BATCH)) == REINDEX_BATCH:
            pass

    async def _rewrite_index(self, *, most_steps: int | None = None) -> bool:
        """Remove deleted terms from the full-text index; return whether all of them are gone."""
        rewrite = IndexRewrite()
        while rewrite.advance(await self.writer.run(rewrite.step)):
            if rewrite.steps == most_steps:
                break
        return rewrite.is_done

    async def clean_after_removal(self) -> None:
        """Remove deleted text from the index and the write-ahead log, as far as that is quick.

        The next deletion, sweep or erasure completes it.
        """
        # A new object instead of clearing: a reader thread may be about to store a snapshot of the removed
        # text in the old one.
        self.snapshots = SnapshotCache()
        await self._rewrite_index(most_steps=DELETION_MAX_STEPS)
        await asyncio.to_thread(
            self._scrubber.scrub, seconds=DELETION_WAIT_SECONDS, most_bytes=DELETION_MAX_BYTES
        )


def _close_all(pools: list[Readers | Writer]) -> None:
    for pool in pools:
        pool.close()


def _delete(db: apsw.Connection, sql: str, *values: str | int) -> int:
    db.execute(sql, values)
    return db.changes()
