"""Killed at any moment, the file opens and holds every acknowledged turn, whole."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

import aforesaid
from aforesaid.model.ids import new_id

WRITER = """
import asyncio, sys
import aforesaid

async def main(path, session, name):
    async with aforesaid.open(f"sqlite:///{path}", retention=aforesaid.Retention(sweep_every=None)) as memory:
        erin = memory.of("erin")
        conversation = await erin.get_or_create_conversation(session)
        async def write(task):
            number = 0
            while True:
                async with erin.turn(conversation.id) as turn:
                    key = f"{name}/{task}/{number}"
                    turn.user(key)
                    turn.assistant({"answer to": key, "padding": "x" * (number % 3000)})
                print(key, flush=True)  # only now is the turn acknowledged
                number += 1
        await asyncio.gather(*(write(task) for task in range(4)))

asyncio.run(main(*sys.argv[1:]))
"""


def killed_while_writing(path: Path, session: str, name: str, moment: float) -> set[str]:
    """The turns that were acknowledged to a writer before it was killed."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), session, name], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        first = writer.stdout.readline()  # it is writing now
        time.sleep(moment)  # the random moment is what is tested, not waited for
        writer.kill()
        # A line that the kill cut in two was never read whole by anybody.
        lines = (first + writer.stdout.read()).splitlines(keepends=True)
    return {line.strip() for line in lines if line.endswith("\n")}


async def check(path: Path, session: str, acknowledged: set[str]) -> int:
    async with aforesaid.open(f"sqlite:///{path}", retention=aforesaid.Retention(sweep_every=None)) as memory:
        erin = memory.of("erin")
        conversation = await erin.get_or_create_conversation(session)
        messages = await erin.messages(conversation.id, limit=1_000_000)
        ok = await memory.backend.writer.run(lambda db: db.pragma("integrity_check"))  # type: ignore[attr-defined]
        assert ok == "ok"
    questions = [message.content for message in messages[::2]]
    answers = [message.content["answer to"] for message in messages[1::2]]
    assert questions == answers
    assert len(set(questions)) == len(questions)
    assert acknowledged <= set(questions)
    assert conversation.message_count == len(messages)
    return len(questions)


async def kill_many(path: Path, times: int) -> None:
    for number in range(times):
        session = new_id()
        acknowledged = killed_while_writing(path, session, str(number), random.uniform(0, 0.15))
        assert acknowledged
        stored = await check(path, session, acknowledged)
        # Beyond the acknowledged turns there can be those whose acknowledgement the kill cut off.
        assert stored <= len(acknowledged) + 4


async def test_five_kills_lose_nothing(tmp_path: Path) -> None:
    await kill_many(tmp_path / "memory.db", 5)


@pytest.mark.exhaustive
async def test_a_hundred_kills_lose_nothing(tmp_path: Path) -> None:
    await kill_many(tmp_path / "memory.db", 100)
