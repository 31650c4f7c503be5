"""Whether the server should be sent requests, and why not. Below: the memory. Above: `/ready`.

What is told says nothing about anybody and names no place: it is open to all. A store that is away is no
reason to turn callers off where turns are accepted in its stead: every server of the house would turn them
off at once. It is one where nothing is accepted, or where the spool is full.
"""

from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from aforesaid._internal.deadlines import within
from aforesaid.contracts import JOURNAL
from aforesaid.errors import AforesaidError
from aforesaid.layers.resilient import Health
from aforesaid.memory.opening import Memory
from aforesaid.protocol.bodies import CheckBody, ReadyBody

if TYPE_CHECKING:
    from aforesaid.layers.encrypted.master_key_check import MasterKeyCheck

PROBE_SECONDS = 2.0
FULL = 0.95
"""The share of the spool's limit from which on it counts as full: what comes then may not fit."""
FILLING = 0.5

State = Literal["well", "warning", "problem"]


@runtime_checkable
class Sealed(Protocol):
    """The encrypted layer. A server that encrypts nothing does not load its module."""

    async def check_master_key(self) -> "MasterKeyCheck": ...


async def readiness(memory: Memory, *, draining: bool) -> ReadyBody:
    """Look at the store and the spool."""
    if draining:
        return ReadyBody(status="draining", checks=(_check("server", "problem", "it is about to stop"),))
    answers = await _answers(memory)
    health = await memory.health()
    checks = [_store(answers, health), *([] if health is None else [_spool(health)])]
    checks += await _master_key(memory)
    ready = all(check.state != "problem" for check in checks)
    return ReadyBody(
        status="ready" if ready else "away",
        degraded=not answers or (health is not None and health.degraded),
        checks=tuple(checks),
    )


async def _answers(memory: Memory) -> bool:
    """Whether the store answers a small question in time."""
    try:
        await within(PROBE_SECONDS, memory.backend.of(JOURNAL).get_document("ready", "probe"))
    except (AforesaidError, TimeoutError):
        return False
    return True


async def _master_key(memory: Memory) -> list[CheckBody]:
    """Whether the master key opens what is stored. Nothing is said while the store cannot be asked."""
    sealed = memory.layer(Sealed)  # type: ignore[type-abstract]
    if sealed is None:
        return []
    try:
        found = await within(PROBE_SECONDS, sealed.check_master_key())
    except (AforesaidError, TimeoutError):
        return []
    if found.is_wrong:
        return [_check("encryption", "problem", "the master key does not open what is stored")]
    if found.failed:
        return [_check("encryption", "warning", "the master key does not open the keys of some owners")]
    return [_check("encryption", "well", "the master key opens what is stored")]


def _store(answers: bool, health: Health | None) -> CheckBody:
    if answers and (health is None or not health.degraded):
        return _check("store", "well", "it answers")
    if health is not None and health.spool_limit:
        return _check("store", "warning", "it is away, or catches up; turns are accepted")
    return _check("store", "problem", "it does not answer")


def _spool(health: Health) -> CheckBody:
    if not health.spool_limit:
        return _check("spool", "well", "there is none")
    share = health.spool_bytes / health.spool_limit
    state: State = "problem" if share >= FULL else "warning" if share >= FILLING else "well"
    return _check("spool", state, f"{share:.0%} full, {health.spool_operations} operations wait")


def _check(about: str, state: State, found: str) -> CheckBody:
    return CheckBody(about=about, state=state, found=found)
