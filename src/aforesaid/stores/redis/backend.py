"""Open and check the server; list owners, purge and scrub."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from datetime import datetime
from functools import partial

from aforesaid._internal.tasks import PerLoop
from aforesaid.contracts import Backend, SchemaVersion
from aforesaid.errors import InvalidSetting, StoreClosed, StoreError, StoreForeign, StoreUnavailable, shown
from aforesaid.model.clock import Clock, from_micros, system_clock
from aforesaid.model.conversations import check_count
from aforesaid.model.ids import parse_name
from aforesaid.stores.redis.addresses import Client, Target, make_client, name_of, parse_target
from aforesaid.stores.redis.connections import (
    Bounds,
    Connections,
    Server,
    as_mapping,
    connections_of,
    parse_info,
)
from aforesaid.stores.redis.identity import DataIdentity
from aforesaid.stores.redis.owner_connection import (
    DEFAULT_PREFIX,
    OwnerConnection,
    format_key,
    owners_key,
    parse_prefix,
)
from aforesaid.stores.redis.scripts import RAISE_FORMAT
from aforesaid.stores.redis.snapshots import SnapshotMemory
from aforesaid.stores.redis.store import RedisStore

# Remove deleted text from the server's files, if the server allows it.
#
# Deleted keys stay in the append-only file until it is rewritten, and in the snapshot until the next one.
# This module starts both and waits for them.


# How long a server may take to rewrite its files, which contain all owners' data.
WAIT_SECONDS = 60.0
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


# The version of the stored data. A server with a later version is refused.
# 2: branches and participants. Data of version 1 has neither, and reads as it is; a release that knows only
# version 1 refuses version 2, because it would show a branch without the messages of its ancestors.
FORMAT = 2

OWNERS_BATCH = 100
EVICTION = ("refuse", "accept")
OLDEST_SERVER = (7, 0)

log = logging.getLogger("aforesaid.stores.redis")


class RedisBackend(Backend):
    """A server or a cluster, given by its URL or by a client of the `redis` package, which the caller closes.

    `max_connections` limits concurrent commands; `timeout` limits each command in seconds. `eviction` is
    "refuse" or "accept": whether a server may be used that deletes conversations when its memory is full.
    """

    def __init__(
        self,
        source: str | Client,
        *,
        clock: Clock = system_clock,
        prefix: str = DEFAULT_PREFIX,
        max_connections: int = 64,
        timeout: float = 10.0,
        eviction: str = "refuse",
        tls: Mapping[str, str] | None = None,
    ) -> None:
        if eviction not in EVICTION:
            raise InvalidSetting.not_in("eviction", eviction, EVICTION)
        check_count(max_connections, field="max_connections", least=1)
        if not 0 < timeout < float("inf"):
            raise InvalidSetting(
                f"timeout must be a number of seconds; got {shown(timeout)}", field="timeout", value=timeout
            )
        self.clock = clock
        self.prefix = parse_prefix(prefix)
        self._eviction = eviction
        self._source = parse_target(source) if isinstance(source, str) else source
        self._bounds = Bounds(commands=max_connections, seconds=timeout)
        self._tls = tls or {}
        self._connections: Connections | None = None
        self._opening = PerLoop(asyncio.Lock)
        self._snapshots = SnapshotMemory()

    # Opening

    async def open(self) -> None:
        async with self._opening.here():
            if self._connections is not None:
                return
            connections = self._connect()
            try:
                await self._prepare(connections)
            except BaseException:
                await connections.close()
                raise
            self._connections = connections

    def _connect(self) -> Connections:
        source = self._source
        if not isinstance(source, Target):
            return connections_of(source, name=name_of(source), bounds=self._bounds)
        make = partial(make_client, source, connections=self._bounds.commands, tls=self._tls)
        return connections_of(make(), name=source.name, bounds=self._bounds, make=make)

    async def _prepare(self, connections: Connections) -> None:
        await _check_server(connections)
        for settings in await connections.settings():
            _warn_about_persistence(connections.name, settings)
            _check_eviction(connections.name, settings, self._eviction)
        await self._migrate(connections)
        self._identity = DataIdentity(self.prefix, clustered=connections.clustered)
        await connections.identify(self._identity)

    async def _migrate(self, connections: Connections) -> None:
        if await self._found_format(connections) < FORMAT:
            await connections.run(RAISE_FORMAT, [format_key(self.prefix)], FORMAT)
        # Read again: another process may have raised it further.
        found = await self._found_format(connections)
        if found > FORMAT:
            raise self._foreign(connections, found)

    async def _found_format(self, connections: Connections) -> int:
        """Return the version of the data; 0 for an empty server."""
        found = await connections.call("GET", format_key(self.prefix))
        if found is None:
            return 0
        if not found.isdigit():
            raise self._foreign(connections, found)
        return int(found)

    def _foreign(self, connections: Connections, found: object) -> StoreForeign:
        return StoreForeign(
            f"{connections.name} has data of another program, or of a newer release of Aforesaid, "
            f"under the prefix {self.prefix!r} (format {shown(found)}); it was left as it is"
        )

    async def schema_version(self) -> SchemaVersion:
        connections = self._connect()
        try:
            return SchemaVersion(found=await self._found_format(connections), needed=FORMAT)
        finally:
            await connections.close()

    async def server_time(self) -> datetime:
        seconds, micros = await self.connections.call("TIME")
        return from_micros(int(seconds) * 1_000_000 + int(micros))

    async def missing_extensions(self) -> tuple[str, ...]:
        return ()

    async def data_identity(self) -> str:
        return self._identity.text

    async def close(self) -> None:
        connections, self._connections = self._connections, None
        if connections is not None:
            await connections.close()

    @property
    def connections(self) -> Connections:
        if self._connections is None:
            raise StoreClosed.named("the Redis store")
        return self._connections

    # Owners

    def of(self, owner: str) -> RedisStore:
        name = parse_name(owner, field="owner")
        connection = OwnerConnection(
            name, prefix=self.prefix, clock=self.clock, connections=lambda: self.connections
        )
        return RedisStore(connection, self._snapshots)

    async def owners(self, *, ignored_kinds: Collection[str] = ()) -> AsyncIterator[str]:
        async for batch in self._owner_batches():
            present = await asyncio.gather(
                *(self.of(owner).holds_anything(ignored_kinds=ignored_kinds) for owner in batch)
            )
            for owner, holds in zip(batch, present, strict=True):
                if holds:
                    yield owner

    async def purge_expired(self, now: datetime | None = None) -> int:
        moment = now or self.clock()
        removed = 0
        async for batch in self._owner_batches():
            for owner in batch:
                removed += await self.of(owner).purge(moment)
        return removed

    # Maintenance

    async def scrub(self, owner: str | None) -> tuple[str, ...]:
        """Rewrite the server's files, which contain all owners' data."""
        return await scrub(self.connections)

    async def disk_usage(self) -> dict[str, int]:
        """Return the bytes of the data in memory and of the append-only files, summed over all servers."""
        found = await asyncio.gather(*map(_disk_usage, self.connections.servers()))
        return {name: sum(one[name] for one in found) for name in ("memory", "append-only file")}

    async def _owner_batches(self) -> AsyncIterator[list[str]]:
        """Yield the registered owners in batches, in order."""
        first = "-"
        key = owners_key(self.prefix)
        while True:
            names = await self.connections.call("ZRANGEBYLEX", key, first, "+", "LIMIT", 0, OWNERS_BATCH)
            if not names:
                return
            yield [name.decode() for name in names]
            first = b"(" + names[-1]


async def _check_server(connections: Connections) -> None:
    """Raise early for a server that is part of a cluster or too old."""
    if connections.clustered:
        return
    try:
        info = parse_info(await connections.call("INFO"))
    except StoreError as error:
        # A subclass is a failure of the server; the class itself is a refusal of the command.
        if type(error) is not StoreError:
            raise
        return  # the server does not allow INFO
    if info.get("cluster_enabled") == "1":
        raise InvalidSetting(
            f"{connections.name} is part of a cluster: use redis+cluster:// in its URL", field="url"
        )
    version = info.get("redis_version", "")
    if version and tuple(int(part) for part in version.split(".")[:2]) < OLDEST_SERVER:
        raise StoreForeign(f"{connections.name} is Redis {version}; Aforesaid needs 7.0 or later")


async def _disk_usage(server: Server) -> dict[str, int]:
    memory = parse_info(await server("INFO", "memory"))
    persistence = parse_info(await server("INFO", "persistence"))
    # Not `aof_base_size`, which is the size after the last rewrite.
    return {
        "memory": int(memory["used_memory_dataset"]),
        "append-only file": int(persistence.get("aof_current_size", 0)),
    }


def _warn_about_persistence(name: str, settings: Mapping[str, str]) -> None:
    """Log a warning if the server's settings can lose conversations."""
    if not settings:
        log.info("%s does not report whether it stores data on disk.", name)
    if settings.get("appendonly") == "no" and not settings.get("save"):
        log.warning(
            "%s stores nothing on disk: conversations are lost when it stops. Set appendonly yes.", name
        )
    elif settings.get("appendonly") == "no":
        log.warning(
            "%s writes to disk only at intervals (save %s): later turns are lost when it is killed. "
            "Set appendonly yes.",
            name,
            settings.get("save"),
        )


def _check_eviction(name: str, settings: Mapping[str, str], eviction: str) -> None:
    """Raise for a server that deletes conversations when its memory is full; where that is accepted, warn."""
    policy = settings.get("maxmemory-policy", "noeviction")
    if policy == "noeviction" or settings.get("maxmemory", "0") == "0":
        return
    found = f"{name} deletes conversations when its memory is full (maxmemory-policy {policy})"
    if eviction == "refuse":
        raise InvalidSetting(
            f"{found}. Set maxmemory-policy noeviction, or accept the loss with ?eviction=accept in the URL",
            field="maxmemory-policy",
            value=policy,
        )
    log.warning("%s. Set maxmemory-policy noeviction.", found)
