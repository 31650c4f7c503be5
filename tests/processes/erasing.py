"""A process that erases, and is killed after a step."""

import asyncio
import os
import signal
from multiprocessing.connection import Connection
from pathlib import Path

from aforesaid.contracts import Reindexable
from aforesaid.retention.erasure import erase
from tests.processes.forking import processes
from tests.stored_files import NOTE, StoreFiles, live, opened


def killed_after(
    step: str, files: StoreFiles, folder: Path, scope: str, *, owner: str = "erin"
) -> tuple[str, str]:
    """Return the ids of what a process erased until it was killed: a conversation, and an archived one."""
    receiver, sender = processes.Pipe(duplex=False)
    process = processes.Process(target=_run, args=(files.url, folder, owner, scope, step, sender))
    process.start()
    sender.close()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    with receiver:
        conversation_id, archived = receiver.recv()
    process.close()
    return conversation_id, archived


def _run(url: str, folder: Path, owner: str, scope: str, last: str, ids: Connection) -> None:
    asyncio.run(_erase(url, folder, owner, scope, last, ids))


async def _erase(url: str, folder: Path, owner: str, scope: str, last: str, ids: Connection) -> None:
    def on_step(step: str) -> None:
        if step == last:
            os.kill(os.getpid(), signal.SIGKILL)

    async with opened(StoreFiles(url=url, files=list), folder) as memory:
        manager = memory.of(owner)
        archived = await live(manager)
        await manager.archive(archived)
        conversation_id = await live(manager, session="kitchen")
        one = {"owner": None, "conversation": conversation_id, "archived": archived}[scope]
        if scope != "owner":
            await manager.store.delete_document("notes", NOTE)
        if isinstance(memory.backend, Reindexable):
            await memory.backend.reindex()  # SQLite indexes a small log later
        ids.send((conversation_id, archived))
        await erase(memory.scope(owner), one, on_step=on_step)
