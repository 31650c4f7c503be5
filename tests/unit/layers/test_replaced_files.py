"""A SQLite file is replaced under the resilient layer: turns wait in the spool for the new file."""

import asyncio
import os
import shutil
from itertools import count
from pathlib import Path

import pytest

import aforesaid
from aforesaid.errors import StoreReplaced, StoreUnavailable
from aforesaid.layers.resilient import Resilience, ResilientBackend, resilient
from aforesaid.stores.sqlite import SQLiteBackend

SECONDS = 120
"""Far longer than anything here takes; only what hangs meets it."""


async def no_pause(seconds: float) -> None:
    await asyncio.sleep(0)


async def layered(path: Path, spool: Path) -> ResilientBackend:
    minutes = count(step=60.0)  # at every look a probe is due
    backend = resilient(
        SQLiteBackend(str(path)),
        folder=spool,
        sleep=no_pause,
        background=False,
        clock=lambda: next(minutes),
    )
    await backend.open()
    return backend


def contents(history: list[dict[str, object]]) -> list[object]:
    return [message["content"] for message in history]


def replace_by_copy(path: Path) -> None:
    """What an operator does who restores a backup."""
    copy = path.with_name("backup.db")
    shutil.copyfile(path, copy)
    os.replace(copy, path)


async def test_turns_wait_in_the_spool_for_the_next_process(tmp_path: Path) -> None:
    path, spool = tmp_path / "memory.db", tmp_path / "spool"
    memory = aforesaid.Memory(
        await layered(path, spool),
        retention=aforesaid.Retention(sweep_every=None),
        models=aforesaid.Models(preload=False, embedder=None),
    )
    await memory.start()
    erin = memory.of("erin")
    kitchen = (await erin.get_or_create_conversation("kitchen")).id
    await erin.add_message(kitchen, "user", "before")
    await memory.close()  # so that the file alone is a whole backup

    first = await layered(path, spool)
    memory = aforesaid.Memory(
        first,
        retention=aforesaid.Retention(sweep_every=None),
        models=aforesaid.Models(preload=False, embedder=None),
    )
    await memory.start()
    erin = memory.of("erin")
    await erin.load_context(kitchen)
    await asyncio.to_thread(replace_by_copy, path)
    await erin.add_message(kitchen, "user", "accepted")
    assert first.spool_depth == 1
    assert not first.reachable
    await first.recover()
    assert first.spool_depth == 1, "nothing may be replayed into a file without a name"
    await memory.close()

    second = await layered(path, spool)
    assert await second.recover()
    memory = aforesaid.Memory(
        second,
        retention=aforesaid.Retention(sweep_every=None),
        models=aforesaid.Models(preload=False, embedder=None),
    )
    history = await memory.of("erin").store.load(kitchen)
    assert contents(history) == ["before", "accepted"]
    await memory.close()


async def test_fail_closed_refuses(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    backend = resilient(
        SQLiteBackend(str(path)), folder=tmp_path / "spool", resilience=Resilience(policy="fail_closed")
    )
    memory = aforesaid.Memory(
        backend,
        retention=aforesaid.Retention(sweep_every=None),
        models=aforesaid.Models(preload=False, embedder=None),
    )
    await memory.start()
    erin = memory.of("erin")
    kitchen = (await erin.get_or_create_conversation("kitchen")).id
    await asyncio.to_thread(path.unlink)
    with pytest.raises(StoreReplaced):
        await erin.add_message(kitchen, "user", "refused")
    with pytest.raises(StoreUnavailable):
        await erin.add_message(kitchen, "user", "refused too")
    await memory.close()
