"""Deleted text leaves the server's files too, where the server has files and lets us ask.

Keys that are gone live on in the append-only file until it is rewritten, and in a snapshot until the next
one is taken. Both are asked for here, and waited for. Below: `connections`. Above: `backend`.
"""

import asyncio
from collections.abc import Awaitable, Callable

from aforesaid.errors import StoreError, StoreUnavailable
from aforesaid.stores.redis.connections import Connections, Server, as_mapping, parse_info

WAIT_SECONDS = 60.0
"""How long a server may take to rewrite its files: they hold everybody's data, not only what was erased."""
_LOOK_EVERY = 0.02

Info = dict[str, str]


async def scrub(connections: Connections) -> tuple[str, ...]:
    """Have every server rewrite its files; returns what could not be done."""
    found = await asyncio.gather(*(_scrub(server, name=connections.name) for server in connections.servers()))
    return tuple(dict.fromkeys(remains for one in found for remains in one))


async def _scrub(server: Server, *, name: str) -> list[str]:
    try:
        info = await _persistence(server)
    except StoreUnavailable:
        raise
    except StoreError:
        return [f"{name} does not tell what it keeps on disk: rewrite its files by hand"]
    remains = []
    if info.get("aof_enabled") == "1" and not await _rewritten(server):
        remains.append(f"{name} did not rewrite its append-only file: run BGREWRITEAOF")
    if await _takes_snapshots(server) and not await _saved(server):
        remains.append(f"{name} did not take a new snapshot: run BGSAVE")
    return remains


async def _persistence(server: Server) -> Info:
    return parse_info(await server("INFO", "persistence"))


async def _takes_snapshots(server: Server) -> bool:
    """Whether there may be a snapshot. A server that does not say may have one."""
    try:
        settings = as_mapping(await server("CONFIG", "GET", "save"))
    except StoreUnavailable:
        raise
    except StoreError:
        return True
    return bool(settings.get("save"))


async def _rewritten(server: Server) -> bool:
    async def idle() -> bool:
        info = await _persistence(server)
        return info.get("aof_rewrite_in_progress") == "0" and info.get("aof_rewrite_scheduled") == "0"

    # One that is under way began before the deletion, so it does not count.
    if not await _comes_true(idle) or not await _accepted(server, "BGREWRITEAOF"):
        return False
    if not await _comes_true(idle):
        return False
    return (await _persistence(server)).get("aof_last_bgrewrite_status") == "ok"


async def _saved(server: Server) -> bool:
    async def idle() -> bool:
        return (await _persistence(server)).get("rdb_bgsave_in_progress") == "0"

    if not await _comes_true(idle) or not await _accepted(server, "BGSAVE"):
        return False
    if not await _comes_true(idle):
        return False
    return (await _persistence(server)).get("rdb_last_bgsave_status") == "ok"


async def _accepted(server: Server, command: str) -> bool:
    try:
        await server(command)
    except StoreUnavailable:
        raise
    except StoreError:  # not allowed here, or not possible now
        return False
    return True


async def _comes_true(condition: Callable[[], Awaitable[bool]]) -> bool:
    """Wait, within bounds, for the server."""
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            while not await condition():  # noqa: ASYNC110  a server has no event to wait for
                await asyncio.sleep(_LOOK_EVERY)
    except TimeoutError:
        return False
    return True
