"""A process that stores turns until it gets a signal: `python -m tests.processes.terminated URL FOLDER`.

Prints a line for every turn that was acknowledged, and `drained` when it has closed.
"""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aforesaid
from aforesaid.layers.build import with_resilience
from aforesaid.layers.resilient import Resilience
from aforesaid.memory.opening import Memory
from aforesaid.stores.urls import backend_for
from tests.faults import Failing

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@asynccontextmanager
async def terminated() -> AsyncIterator[asyncio.Event]:
    """Yield an event that a termination signal sets. A second signal has its default effect."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop(number: int) -> None:
        stopping.set()
        loop.remove_signal_handler(number)

    listening = []
    for number in SIGNALS:
        with suppress(NotImplementedError, ValueError, RuntimeError):  # Windows; or not the main thread
            loop.add_signal_handler(number, stop, number)
            listening.append(number)
    try:
        yield stopping
    finally:
        for number in listening:
            loop.remove_signal_handler(number)


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
    async with memory_at(url, folder, away=away) as memory, terminated() as stopping:
        manager = memory.of("erin")
        conversation = await manager.get_or_create_conversation("kitchen")
        print("conversation", conversation.id, flush=True)

        async def speak(number: int) -> None:
            said = 0
            while not stopping.is_set():
                async with manager.turn(conversation.id) as turn:
                    turn.user(f"{number}/{said}")
                    turn.assistant(f"{number}/{said}")
                print("said", f"{number}/{said}", flush=True)
                said += 1

        await asyncio.gather(*(speak(number) for number in range(4)))
    print("drained", flush=True)


asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3] == "away"))
