"""A process that erases, and is killed after a step: run by `test_crashes`.

python -m tests.processes.erasing URL FOLDER OWNER CONVERSATION STEP
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from aforesaid.contracts import Reindexable
from aforesaid.retention.erasure import erase
from tests.stored_files import NOTE, Place, live, opened


async def main(url: str, folder: Path, owner: str, scope: str, last: str) -> None:
    def on_step(step: str) -> None:
        if step == last:
            os.kill(os.getpid(), signal.SIGKILL)

    async with opened(Place(url=url, files=list), folder) as memory:
        manager = memory.of(owner)
        archived = await live(manager)
        await manager.archive(archived)
        conversation_id = await live(manager, session="kitchen")
        one = {"owner": None, "conversation": conversation_id, "archived": archived}[scope]
        if scope != "owner":
            await manager.store.delete_document("notes", NOTE)
        if isinstance(memory.backend, Reindexable):
            await memory.backend.reindex()  # SQLite indexes a small log later
        print(conversation_id, archived, flush=True)
        await erase(memory.scope(owner), one, on_step=on_step)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:6]))
