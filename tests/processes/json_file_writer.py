"""A process that writes turns into a JSON file store and says so, made to be killed.

    python json_file_writer.py PATH START [CALL KILL_AT]

Prints the number of each turn once it is acknowledged. With CALL, a function of `os` (`write`,
`fsync`, `replace`, `link`), the process kills itself at the KILL_AT-th call of it after opening:
before the call, or for `write` when half of the bytes are written.
"""

import asyncio
import itertools
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from aforesaid.model.conversations import started
from aforesaid.model.messages import Message
from aforesaid.stores.json_file import JsonFileBackend

CONVERSATION = "01952f3e-0000-7000-8000-000000000001"


def die_at(name: str, number: int) -> None:
    real: Callable[..., Any] = getattr(os, name)
    calls = itertools.count(1)

    def call(*args: Any) -> Any:
        if next(calls) == number:
            if name == "write":
                descriptor, content = args
                real(descriptor, content[: len(content) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args)

    setattr(os, name, call)


def say(text: object) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def main(path: str, start: int, fault: list[str]) -> None:
    backend = JsonFileBackend(path)
    await backend.open()
    store = backend.of("erin")
    if await store.get(CONVERSATION) is None:
        await store.create(started(CONVERSATION, now=store.now()))
    if fault:
        die_at(fault[0], int(fault[1]))
    say("ready")
    for number in itertools.count(start):
        await store.append(
            CONVERSATION,
            [Message(role="user", content=number), Message(role="assistant", content=[number, "x" * 200])],
        )
        say(number)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))
