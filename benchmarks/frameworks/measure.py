"""Measure a store by processor time: other programs on the machine do not change it."""

import asyncio
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks.frameworks.stores import TEXT, Make, Store

TURNS = 8


async def measure(make: Make, length: int) -> dict[str, float]:
    """Return the milliseconds of a turn and of a load, the bytes of a turn, and how much is stored."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with AsyncExitStack() as stack:
            store = await make(folder, stack)
            await store.add([f"{number} {TEXT}" for number in range(length)])
        # Sizes of closed files: an open store has a write-ahead log of any size.
        before, times = _bytes(folder), []
        async with AsyncExitStack() as stack:
            store = await make(folder, stack)
            for _ in range(TURNS):
                began = time.process_time()
                await store.add([TEXT, TEXT])
                times.append(time.process_time() - began)
        size = (_bytes(folder) - before) / TURNS
        async with AsyncExitStack() as stack:
            store = await make(folder, stack)
            began = time.process_time()
            stored = await store.load()
            load = time.process_time() - began
    return {"turn": min(times) * 1000, "load": load * 1000, "bytes": size, "stored": stored}


async def two_writers(make: Make) -> str:
    """Return how many of 20 turns of two writers are there afterwards, or the error that one got."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with AsyncExitStack() as stack:
            stores = [await make(folder, stack), await make(folder, stack)]
            await stores[0].add([TEXT, TEXT])
            before = await stores[0].load()
            each = before if before > 1 else 2

            async def talk(store: Store) -> int:
                done = 0
                for _ in range(10):
                    try:
                        await store.add([TEXT, TEXT])
                    except Exception:  # noqa: BLE001  # an error is the honest outcome of a conflict
                        break
                    done += 1
                return done

            accepted = sum(await asyncio.gather(*map(talk, stores)))
        async with AsyncExitStack() as stack:
            found = (await (await make(folder, stack)).load() - before) // each
    return f"{found} of {accepted} accepted"


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
