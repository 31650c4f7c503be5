"""The PostgreSQL backend: owners, sweeps and the schema."""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from aforesaid.contracts import JOURNAL, Backend, SchemaVersion
from aforesaid.model.ids import parse_name
from aforesaid.stores.postgres.connections import Connection, translated
from aforesaid.stores.postgres.database import Database
from aforesaid.stores.postgres.rows import key_of, name_of
from aforesaid.stores.postgres.schema import schema_version, server_time
from aforesaid.stores.postgres.scrubbing import Scrubber
from aforesaid.stores.postgres.store import PostgresStore

PURGE_BATCH = 100
OWNERS_BATCH = 500


class PostgresBackend(Database, Backend):
    """One database, given by its URL or by an open pool, which the caller closes."""

    def __init__(self, url: str | None = None, **options: Any) -> None:
        super().__init__(url, **options)
        self._scrubber = Scrubber(self._own_connection, self.server)

    async def schema_version(self) -> SchemaVersion:
        with translated(self.server):
            async with await self._connect() as connection:
                return await schema_version(connection, self.server)

    async def server_time(self) -> datetime:
        with translated(self.server):
            async with await self._connect() as connection:
                return await server_time(connection)

    async def data_identity(self) -> str:
        ((identity,),) = await self.run("data_identity", {})
        return str(identity)

    async def missing_extensions(self) -> tuple[str, ...]:
        return self.abilities.missing

    def of(self, owner: str) -> PostgresStore:
        return PostgresStore(self, parse_name(owner, field="owner"))

    async def owners(self, *, ignored_kinds: Collection[str] = ()) -> AsyncIterator[str]:
        last = ""
        while batch := await self.run(
            "owners", {"last": last, "limit": OWNERS_BATCH, "ignored_kinds": [*ignored_kinds]}
        ):
            for key, full_name in batch:
                yield name_of(key, full_name)
            last = batch[-1][0]

    async def disk_usage(self) -> dict[str, int]:
        """Return the bytes of every table and index."""
        return {str(name): int(size) for name, size in await self.run("disk_usage", {})}

    async def scrub(self, owner: str | None) -> tuple[str, ...]:
        """Rewrite the tables with the owner's data and the journal, if this role may."""
        keys = None
        if owner is not None:
            key = key_of(parse_name(owner, field="owner"))
            await self.run_for(owner, ("delete_placeholder_contacts", {"owner": key}))
            keys = (key, key_of(JOURNAL))
        self._require_pool()
        with translated(self.server):
            return await self._scrubber.scrub(keys)

    @asynccontextmanager
    async def _own_connection(self) -> AsyncIterator[Connection]:
        async with await self._connect() as connection:
            yield connection

    async def purge_expired(self, now: datetime | None = None) -> int:
        values = {"now": now or self.clock(), "limit": PURGE_BATCH}
        total = 0
        while removed := (await self.run("purge_all_owners", values))[0][0]:
            total += removed
        if total:
            self.forget_snapshots()
        return total
