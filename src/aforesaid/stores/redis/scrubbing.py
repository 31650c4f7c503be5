"""Remove deleted text from the server's files, if the server allows it.

Deleted keys stay in the append-only file until it is rewritten, and in the snapshot until the next one. This
module starts both and waits for them.
"""

import asyncio
from collections.abc import Awaitable, Callable

from aforesaid.errors import StoreError, StoreUnavailable
from aforesaid.stores.redis.connections import Connections, Server, as_mapping, parse_info

WAIT_SECONDS = 60.0
"""How long a server may take to rewrite its files, which contain all owners' data."""
_POLL_SECONDS = 0.02

Info = dict[str, str]


async def scrub(connections: Connections) -> tuple[str, ...]:
    """Make every server rewrite its files; return what could not be done."""
    found = await asyncio.gather(*(_scrub(server, name=connections.name) for server in connections.servers()))
    return tuple(dict.fromkeys(remains for one in found for remains in one))


async def _scrub(server: Server, *, name: str) -> list[str]:
    try:
        info = await _persistence(server)
    except StoreUnavailable:
        raise
    except StoreError:
        return [f"{name} does not report what it stores on disk: rewrite its files manually"]
    remains = []
    if info.get("aof_enabled") == "1" and not await _rewrite_log(server):
        remains.append(f"{name} did not rewrite its append-only file: run BGREWRITEAOF")
    if await _takes_snapshots(server) and not await _take_snapshot(server):
        remains.append(f"{name} did not take a new snapshot: run BGSAVE")
    return remains


async def _persistence(server: Server) -> Info:
    return parse_info(await server("INFO", "persistence"))


async def _takes_snapshots(server: Server) -> bool:
    """Return whether the server takes snapshots; True if it does not allow CONFIG."""
    try:
        settings = as_mapping(await server("CONFIG", "GET", "save"))
    except StoreUnavailable:
        raise
    except StoreError:
        return True
    return bool(settings.get("save"))


async def _rewrite_log(server: Server) -> bool:
    async def idle() -> bool:
        info = await _persistence(server)
        return info.get("aof_rewrite_in_progress") == "0" and info.get("aof_rewrite_scheduled") == "0"

    if not await _run(server, "BGREWRITEAOF", idle):
        return False
    return (await _persistence(server)).get("aof_last_bgrewrite_status") == "ok"


async def _take_snapshot(server: Server) -> bool:
    async def idle() -> bool:
        return (await _persistence(server)).get("rdb_bgsave_in_progress") == "0"

    if not await _run(server, "BGSAVE", idle):
        return False
    return (await _persistence(server)).get("rdb_last_bgsave_status") == "ok"


async def _run(server: Server, command: str, idle: Callable[[], Awaitable[bool]]) -> bool:
    """Start the background command and wait for its end; return whether it started and ended in time."""

    async def started() -> bool:
        # A run that is already in progress began before the deletion, so it does not count.
        return await idle() and await _start(server, command)

    try:
        return await _poll(started) and await _poll(idle)
    except _NotPermittedError:
        return False


class _NotPermittedError(Exception):
    """The server does not execute this command for us."""


async def _start(server: Server, command: str) -> bool:
    """Return whether the command was started; False while the server runs another one in the background."""
    try:
        await server(command)
    except StoreUnavailable:
        raise
    except StoreError as error:
        # Another client started one since the server was idle, or the other kind of file is being written:
        # a server has one background child at a time.
        if "in progress" in str(error) or "right now" in str(error):
            return False
        raise _NotPermittedError from error
    return True


async def _poll(condition: Callable[[], Awaitable[bool]]) -> bool:
    """Poll until the condition is true or the time is over."""
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            while not await condition():  # noqa: ASYNC110  a server has no event to wait for
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        return False
    return True
