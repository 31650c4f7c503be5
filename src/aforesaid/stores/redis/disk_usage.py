"""How much memory and file the servers take. Below: `connections`. Above: `stores.weights`."""

import asyncio

from aforesaid.stores.redis.backend import RedisBackend
from aforesaid.stores.redis.connections import Server, parse_info


async def measure(backend: RedisBackend) -> dict[str, int]:
    """Bytes of the data in memory, and of the append-only files, over all servers."""
    found = await asyncio.gather(*map(_measure, backend.connections.servers()))
    return {name: sum(one[name] for one in found) for name in ("memory", "append-only file")}


async def _measure(server: Server) -> dict[str, int]:
    memory = parse_info(await server("INFO", "memory"))
    kept = parse_info(await server("INFO", "persistence"))
    # `aof_base_size` would be what the last rewrite left; the current size is what the disk holds.
    return {
        "memory": int(memory["used_memory_dataset"]),
        "append-only file": int(kept.get("aof_current_size", 0)),
    }
