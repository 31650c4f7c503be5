"""Memory and file sizes of the servers."""

import asyncio

from aforesaid.stores.redis.backend import RedisBackend
from aforesaid.stores.redis.connections import Server, parse_info


async def measure(backend: RedisBackend) -> dict[str, int]:
    """Return the bytes of the data in memory and of the append-only files, summed over all servers."""
    found = await asyncio.gather(*map(_measure, backend.connections.servers()))
    return {name: sum(one[name] for one in found) for name in ("memory", "append-only file")}


async def _measure(server: Server) -> dict[str, int]:
    memory = parse_info(await server("INFO", "memory"))
    kept = parse_info(await server("INFO", "persistence"))
    # Not `aof_base_size`, which is the size after the last rewrite.
    return {
        "memory": int(memory["used_memory_dataset"]),
        "append-only file": int(kept.get("aof_current_size", 0)),
    }
