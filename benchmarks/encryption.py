"""The cost of encryption and of the audit trail: `python -m benchmarks.encryption`.

On SQLite, in one run: a turn of two messages and a window of the last 20 after it, through the manager. The
kinds (plain, encrypted, audited, both) alternate. The last column is the median of the ratios of each round,
in which the load of a shared machine cancels out. Cold is a window of which nothing was read before. The
clock shows how long a caller waits; the processor time of all threads is steadier on a shared machine.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from operator import truediv
from pathlib import Path
from typing import Any

import aforesaid
from aforesaid.encryption import MasterKeys
from aforesaid.layers.encrypted import EncryptedBackend, Encryption
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.stores.sqlite import SQLiteBackend
from aforesaid.stores.sqlite.snapshots import SnapshotCache
from aforesaid.windows import WindowPolicy

ROUNDS = 1000
HISTORY = 200
WINDOW = WindowPolicy(max_messages=20)
KINDS = ("plain", "encrypted", "audited", "both")

Work = Callable[[], Awaitable[object]]


def turn() -> list[Message]:
    """Return a turn of usual length."""
    return [
        Message(
            role="user",
            content="Is the kitchen window closed, and how warm is it in there? " * 2,
            message_id=new_id(),
        ),
        Message(
            role="assistant",
            content="The kitchen window is closed. It is 21.5 degrees, a little warmer than outside. " * 4,
            message_id=new_id(),
        ),
    ]


def memory_of(kind: str, folder: Path) -> aforesaid.Memory:
    encryption = Encryption(master=MasterKeys(bytes(range(32))), records=True)
    return aforesaid.open(
        f"sqlite:///{folder}/{kind}.db",
        retention=aforesaid.Retention(sweep_every=None),
        layers=aforesaid.Layers(
            encryption=encryption if kind in ("encrypted", "both") else None,
            audit=folder / f"{kind}.jsonl" if kind in ("audited", "both") else None,
        ),
        models=aforesaid.Models(embedder=None),
    )


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        memories = {kind: await memory_of(kind, Path(folder)) for kind in KINDS}
        handles = {kind: memory.of("erin") for kind, memory in memories.items()}
        ids = {kind: await filled(handle) for kind, handle in handles.items()}
        await measure("turn", {kind: _turning(handles[kind], ids[kind]) for kind in KINDS})
        reading = {kind: _reading(handles[kind], ids[kind]) for kind in KINDS}
        turning = {kind: _turning(handles[kind], ids[kind]) for kind in KINDS}
        await measure("window of 20", reading, before=turning)
        await measure("same, cold", reading, before={kind: _cooling(memories[kind]) for kind in KINDS})
        for memory in memories.values():
            await memory.close()
        for kind in KINDS[:2]:
            size = sum(file.stat().st_size for file in Path(folder).glob(f"{kind}.db*"))
            print(f"{kind:<10} {size / 1e6:6.1f} MB")


async def filled(handle: ConversationManager) -> str:
    record = await handle.get_or_create_conversation("benchmark")
    for _ in range(HISTORY // 2):
        await handle.append(record.id, turn())
    return record.id


def _turning(handle: ConversationManager, conversation_id: str) -> Work:
    return lambda: handle.append(conversation_id, turn())


def _reading(handle: ConversationManager, conversation_id: str) -> Work:
    return lambda: handle.load_context(conversation_id, policy=WINDOW)


def _cooling(memory: aforesaid.Memory) -> Work:
    """Return work that drops all caches, as in a process that has just started."""

    async def forget() -> None:
        backend: Any = memory.backend
        while backend is not None:
            if isinstance(backend, EncryptedBackend):
                backend.shared.forget_owner("erin")
            elif isinstance(backend, SQLiteBackend):
                backend.snapshots = SnapshotCache()
            backend = getattr(backend, "inner", None)

    return forget


async def measure(name: str, works: dict[str, Work], *, before: dict[str, Work] | None = None) -> None:
    """Run the kinds alternately; print the quantiles of each next to those of the plain one."""
    spent: dict[str, list[float]] = {kind: [] for kind in works}
    worked: dict[str, list[float]] = {kind: [] for kind in works}
    for number in range(ROUNDS):
        kinds = list(works)
        for kind in kinds[number % len(kinds) :] + kinds[: number % len(kinds)]:
            if before is not None:
                await before[kind]()
            begun, busy = time.perf_counter(), time.process_time()
            await works[kind]()
            spent[kind].append(time.perf_counter() - begun)
            worked[kind].append(time.process_time() - busy)
    _print(f"{name}, clock", spent)
    _print(f"{name}, processor", worked)


def _print(name: str, measured: dict[str, list[float]]) -> None:
    plain = _quantiles(measured["plain"])
    for kind, times in measured.items():
        found = _quantiles(times)
        figures = "   ".join(
            f"{label} {value * 1e6:7.0f} µs {value / beside:5.2f} x"
            for label, value, beside in zip(("p10", "p50", "p95"), found, plain, strict=True)
        )
        paired = statistics.median(map(truediv, times, measured["plain"]))
        print(f"{name:<24} {kind:<10} {figures}   by round {paired:5.2f} x")


def _quantiles(times: list[float]) -> tuple[float, float, float]:
    """Return p10, p50 and p95."""
    parts = statistics.quantiles(times, n=20)
    return parts[1], parts[9], parts[18]


if __name__ == "__main__":
    asyncio.run(main())
