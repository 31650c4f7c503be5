"""Sizes of tables and indexes."""

from aforesaid.stores.postgres.backend import PostgresBackend


async def measure(backend: PostgresBackend) -> dict[str, int]:
    """Return the bytes of every table with its TOAST data and of every index, summed over partitions."""
    return {str(name): int(size) for name, size in await backend.run("weights", {})}
