"""The SQLite backend: owners, sweeps, disk usage and scrubbing of one file."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import closing
from datetime import datetime
from functools import partial
from pathlib import Path

import apsw

from aforesaid._internal.tasks import to_the_end
from aforesaid.contracts import Backend, SchemaVersion
from aforesaid.model.clock import parse_moment, to_micros
from aforesaid.model.ids import parse_name
from aforesaid.stores._sql_files import queries
from aforesaid.stores.sqlite.connections import (
    PACKAGE,
    connect,
    schema_version,
    translated,
)
from aforesaid.stores.sqlite.database import Database
from aforesaid.stores.sqlite.rows import names_text
from aforesaid.stores.sqlite.store import SearchableSQLiteStore, SQLiteStore

SQL = queries(PACKAGE)
OWNERS_BATCH = 500


class SQLiteBackend(Database, Backend):
    """One SQLite file.

    - `synchronous="full"` survives a power failure; `"normal"` survives a kill, but a power failure may lose
      the last acknowledged turns.
    - Without `search`, no index is written. An existing index still drops deleted messages, and `reindex`
      later completes it.
    """

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

    async def disk_usage(self) -> dict[str, int]:
        """Return the bytes of every table and index, and of the write-ahead log."""
        return await asyncio.to_thread(_disk_usage, self.path)

    async def scrub(self, owner: str | None) -> tuple[str, ...]:
        """Rewrite the index and empty the write-ahead log; see `scrubbing`."""
        remains: tuple[str, ...] = ()
        if not await self._rewrite_index():
            remains += (f"{self.path}: the full-text index contains deleted terms until the next sweep",)
        if not await to_the_end(self._scrubber.scrub, seconds=self.erasure_wait):
            remains += (f"{self.path}-wal is in use by a reader; the next sweep or deletion empties it",)
        return remains


def _owners_after(db: apsw.Connection, *, last: str, ignored_kinds: Collection[str]) -> list[str]:
    return [owner for (owner,) in db.execute(SQL["owners"], (last, OWNERS_BATCH, names_text(ignored_kinds)))]


def _disk_usage(path: str) -> dict[str, int]:
    with translated(path), closing(connect(path, synchronous="normal")) as connection:
        parts = {str(name): int(size) for name, size in connection.execute(SQL["disk_usage"])}
        log = Path(f"{path}-wal")
        return {**parts, "write-ahead log": log.stat().st_size if log.exists() else 0}
