"""Processes that open the same new SQLite file in the same moment."""

import asyncio
import multiprocessing
import sys
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path

from aforesaid.errors import AforesaidError
from aforesaid.stores.sqlite import SQLiteBackend

OPENED = "opened"
SECONDS = 240
"""Far longer than anything here takes; only what hangs meets it."""


def opening_together(folder: Path, *, processes: int, rounds: int) -> list[list[str]]:
    """For each process, what became of each round."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(processes)
    pipes = [context.Pipe(duplex=False) for _ in range(processes)]
    children = [
        context.Process(target=_open_all, args=(folder, rounds, barrier, sending)) for _, sending in pipes
    ]
    for child in children:
        child.start()
    try:
        return [_answer(receiving) for receiving, _ in pipes]
    finally:
        for child in children:
            child.kill()
            child.join()


def _answer(receiving: Connection) -> list[str]:
    if not receiving.poll(SECONDS):
        return ["no answer"]
    answer: list[str] = receiving.recv()
    return answer


def _open_all(folder: Path, rounds: int, barrier: Barrier, sending: Connection) -> None:
    answers = []
    for number in range(rounds):
        barrier.wait(SECONDS)
        answers.append(asyncio.run(_open_once(str(folder / f"{number}.db"))))
    sending.send(answers)
    sys.stdout.flush()


async def _open_once(path: str) -> str:
    backend = SQLiteBackend(path)
    try:
        await backend.open()
        await backend.close()
    except AforesaidError as error:
        return str(error)
    return OPENED
