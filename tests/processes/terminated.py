"""A process that stores turns until it is told to end: `python -m tests.processes.terminated URL FOLDER`.

Prints a line for every turn that was acknowledged, and `drained` when it has closed.
"""

import asyncio
import sys
from pathlib import Path

import aforesaid
from aforesaid._internal.shutdown import terminated
from aforesaid.layers.build import with_resilience
from aforesaid.layers.resilient import Resilience
from aforesaid.memory.opening import Memory
from aforesaid.stores.urls import backend_for
from tests.faults import Failing


def memory_at(url: str, folder: Path, *, away: bool) -> Memory:
    backend = backend_for(url)
    if not away:
        return aforesaid.open(
            url, retention=aforesaid.Retention(sweep_every=None), models=aforesaid.Models(preload=False)
        )
    failing = Failing(backend)
    failing.down()
    wanted = Resilience(folder=folder)
    return Memory(
        with_resilience(failing, url, wanted),
        retention=aforesaid.Retention(sweep_every=None),
        models=aforesaid.Models(preload=False, embedder=None),
    )


async def main(url: str, folder: Path, away: bool) -> None:
    async with memory_at(url, folder, away=away) as memory, terminated() as describe:
        manager = memory.of("erin")
        conversation = await manager.get_or_create_conversation("kitchen")
        print("conversation", conversation.id, flush=True)

        async def speak(number: int) -> None:
            said = 0
            while not describe.is_set():
                async with manager.turn(conversation.id) as turn:
                    turn.user(f"{number}/{said}")
                    turn.assistant(f"{number}/{said}")
                print("said", f"{number}/{said}", flush=True)
                said += 1

        await asyncio.gather(*(speak(number) for number in range(4)))
    print("drained", flush=True)


asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3] == "away"))
