"""How large the tables and indexes are. Below: `backend`. Above: `stores.weights`."""

from aforesaid.stores.postgres.backend import PostgresBackend


async def measure(backend: PostgresBackend) -> dict[str, int]:
    """Bytes of every table, what is kept beside it included, and of every index, over all partitions."""
    return {str(name): int(size) for name, size in await backend.run("weights", {})}
