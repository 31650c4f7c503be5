"""Sizes of tables and indexes in the file."""

import asyncio
import contextlib
import os

from aforesaid.stores._sql_files import queries
from aforesaid.stores.sqlite.backend import SQLiteBackend
from aforesaid.stores.sqlite.connections import PACKAGE, connect, translated


async def measure(backend: SQLiteBackend) -> dict[str, int]:
    """Return the bytes of every table and index, and of the write-ahead log."""
    return await asyncio.to_thread(_measure, backend.path)


def _measure(path: str) -> dict[str, int]:
    with translated(path), contextlib.closing(connect(path, synchronous="normal")) as connection:
        parts = {str(name): int(size) for name, size in connection.execute(queries(PACKAGE)["weights"])}
        log = f"{path}-wal"
        return {**parts, "write-ahead log": os.path.getsize(log) if os.path.exists(log) else 0}
