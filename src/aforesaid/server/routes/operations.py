"""Health, readiness and metrics.

Health and readiness need no key, so their responses have no owner data, paths or hosts. Metrics need a key
for all owners, because they show the activity of all of them.
"""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from litestar import Request, get
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from aforesaid._internal.tasks import within
from aforesaid.contracts import JOURNAL, FileBacked, capability
from aforesaid.errors import AccessError, AforesaidError, NotAllowed
from aforesaid.layers.resilient import Health, ResilientBackend
from aforesaid.memory.opening import Memory
from aforesaid.protocol.bodies import CheckBody, HealthBody, ReadyBody
from aforesaid.server.responses import Response, json_response, problem_response
from aforesaid.server.service import Service, source_of
from aforesaid.telemetry.exposition import SharedNumbers, exposition, form_for
from aforesaid.telemetry.resources import Disk, disk_of

if TYPE_CHECKING:
    from aforesaid.layers.encrypted.keyring import MasterKeyCheck

# `opt` of routes without access control: health checks, which come through proxies.
PUBLIC = {"public": True}
PROBE_SECONDS = 2.0
# The share of the spool's limit from which it counts as full.
FULL = 0.95
FILLING = 0.5

State = Literal["well", "warning", "problem"]


def operations(service: Service, numbers: SharedNumbers) -> list[HTTPRouteHandler]:
    """Return the routes without the `/v1` prefix."""

    @get("/health", include_in_schema=False, opt=PUBLIC)
    async def health() -> ASGIApp:
        return json_response(HealthBody(status="ok"))

    @get("/ready", include_in_schema=False, opt=PUBLIC)
    async def ready() -> ASGIApp:
        found = await readiness(service.memory, draining=service.draining.is_set())
        return json_response(found, status=200 if found.status == "ready" else 503)

    @get("/metrics", include_in_schema=False)
    async def metrics(request: Request) -> ASGIApp:  # type: ignore[type-arg]
        headers = dict(request.scope["headers"])
        try:
            await _check_all_owners(service, headers)
        except AccessError as error:
            await service.note_refusal("GET /metrics", error, source=source_of(request))
            return problem_response(error)
        except AforesaidError as error:
            return problem_response(error)
        return await _metrics_response(numbers, headers.get(b"accept", b"").decode("latin-1"))

    return [health, ready, metrics]


async def _check_all_owners(service: Service, headers: Any) -> None:
    caller = await service.authenticator.authenticate(headers)
    if caller.owners is not None:
        raise NotAllowed("metrics need a key for all owners")


async def _metrics_response(numbers: SharedNumbers, accept: str) -> Response:
    form = form_for(accept)
    found = await numbers.numbers()
    text = exposition(found.series, form, found.families)
    return Response(text.encode(), media=form.encode())


# Readiness


@runtime_checkable
class ChecksMasterKey(Protocol):
    """The encrypted layer. A protocol avoids importing its module on servers without encryption."""

    async def check_master_key(self) -> "MasterKeyCheck": ...


async def readiness(memory: Memory, *, draining: bool) -> ReadyBody:
    """Decide whether the server should get requests: check store, spool, master key and disks.

    A server with an unavailable store is ready while its spool accepts turns; otherwise all servers of a
    deployment would become unready at once.
    """
    if draining:
        return ReadyBody(status="draining", checks=(_check("server", "problem", "stopping"),))
    available = await _is_store_available(memory)
    health = await memory.health()
    checks = [_store(available, health), *([] if health is None else [_spool(health)])]
    checks += await _master_key(memory)
    checks += await _changes(memory)
    checks += await asyncio.to_thread(_disks, memory)
    ready = all(check.state != "problem" for check in checks)
    return ReadyBody(
        status="ready" if ready else "away",
        degraded=not available or (health is not None and health.degraded),
        checks=tuple(checks),
    )


async def _is_store_available(memory: Memory) -> bool:
    """Return whether the store answers a small read in time."""
    try:
        await within(PROBE_SECONDS, memory.backend.of(JOURNAL).get_document("ready", "probe"))
    except (AforesaidError, TimeoutError):
        return False
    return True


async def _master_key(memory: Memory) -> list[CheckBody]:
    """Check the master key against stored keys. Skip the check while the store is unavailable."""
    layer = memory.layer(ChecksMasterKey)
    if layer is None:
        return []
    try:
        found = await within(PROBE_SECONDS, layer.check_master_key())
    except (AforesaidError, TimeoutError):
        return []
    if found.is_wrong:
        return [_check("encryption", "problem", "the master key cannot decrypt stored data")]
    if found.failed:
        return [_check("encryption", "warning", "the master key cannot decrypt the data keys of some owners")]
    return [_check("encryption", "well", "the master key decrypts stored data")]


@runtime_checkable
class DeliversChanges(Protocol):
    """A backend that receives changes of other processes in one of two ways."""

    @property
    def changes_are_polled(self) -> bool: ...

    async def change_delivery(self) -> Literal["notifications", "polling"]: ...


async def _changes(memory: Memory) -> list[CheckBody]:
    """Check whether changes of other processes arrive by notifications. Skip it while the store fails."""
    backend = memory.layer(DeliversChanges)
    if backend is None:
        return []
    try:
        delivery = await within(PROBE_SECONDS, backend.change_delivery())
    except (AforesaidError, TimeoutError):
        return []
    if delivery == "polling":
        return [_check("changes", "warning", "polled: notifications of the database do not arrive")]
    return [_check("changes", "well", "by notifications")]


def data_folders(memory: Memory) -> dict[str, Path]:
    """Return the folders that must have free space: that of the store's file, and the spool."""
    folders: dict[str, Path] = {}
    file = capability(memory.backend, FileBacked)
    if file is not None:
        folders["store"] = Path(file.path).parent
    layer = memory.layer(ResilientBackend)
    if layer is not None and layer.resilience.policy == "fallback":
        folders["spool"] = layer.folder
    return folders


def _disks(memory: Memory) -> list[CheckBody]:
    return [_disk(name, disk_of(folder)) for name, folder in data_folders(memory).items()]


def _disk(name: str, disk: Disk) -> CheckBody:
    # The path stays out of the response, which needs no key.
    return _check(f"disk ({name})", disk.state, f"{disk.free / 1024**3:,.1f} GB free")


def _store(available: bool, health: Health | None) -> CheckBody:
    if available and (health is None or not health.degraded):
        return _check("store", "well", "available")
    if health is not None and health.spool_limit:
        return _check("store", "warning", "unavailable or replaying; the spool accepts turns")
    return _check("store", "problem", "unavailable")


def _spool(health: Health) -> CheckBody:
    if not health.spool_limit:
        return _check("spool", "well", "not configured")
    share = health.spool_bytes / health.spool_limit
    state: State = "problem" if share >= FULL else "warning" if share >= FILLING else "well"
    return _check("spool", state, f"{share:.0%} full, {health.spool_operations} operations waiting")


def _check(about: str, state: State, found: str) -> CheckBody:
    return CheckBody(about=about, state=state, found=found)
