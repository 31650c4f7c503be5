"""The JSON file store survives a kill at any instant: real processes, really killed."""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from aforesaid.stores.json_file import JsonFileBackend

CHILD = Path(__file__).parents[2] / "processes" / "json_file_writer.py"
CONVERSATION = "01952f3e-0000-7000-8000-000000000001"


def start(path: Path, first: int, *fault: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(CHILD), str(path), str(first), *fault]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def kill_after(child: subprocess.Popen[str], seconds: float) -> list[int]:
    """Kill the process when it has written for this long; returns the turns that it was promised."""
    assert child.stdout is not None
    with child:
        assert child.stdout.readline() == "ready\n"
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(timeout=seconds)
        child.kill()
        return [int(line) for line in child.stdout.read().splitlines()]


def run_into(child: subprocess.Popen[str]) -> list[int]:
    """Let the process run until it kills itself; returns the turns that it was promised."""
    output, _ = child.communicate(timeout=240)
    assert child.returncode == -signal.SIGKILL
    ready, *numbers = output.splitlines()
    assert ready == "ready"
    return [int(number) for number in numbers]


async def turns_in(path: Path) -> list[int]:
    """The turns that are there: each whole, each once, in order. Opening tidies up."""
    backend = JsonFileBackend(path)
    await backend.open()
    entries = await backend.of("erin").page(CONVERSATION, limit=1_000_000)
    record = await backend.of("erin").get(CONVERSATION)
    await backend.close()
    numbers = [entry.message.content for entry in entries[::2]]
    assert [entry.message.content for entry in entries[1::2]] == [[n, "x" * 200] for n in numbers]
    assert record is not None
    assert (record.message_count, record.revision) == (len(entries), len(numbers))
    left = {entry.name.removeprefix(path.name) for entry in path.parent.iterdir()}
    assert left <= {"", ".backup"}
    return numbers


async def survive_kills(path: Path, kills: int) -> None:
    chance = random.Random(20260301)
    present: list[int] = []
    promised = 0
    for _ in range(kills):
        first = len(present)
        acknowledged = kill_after(start(path, first), chance.uniform(0, 0.05))
        promised += len(acknowledged)
        present = await turns_in(path)
        assert present == list(range(len(present)))
        # One turn may be there whose caller was killed before it heard so.
        assert first + len(acknowledged) <= len(present) <= first + len(acknowledged) + 1
        json.loads((path.parent / f"{path.name}.backup").read_bytes())
    assert promised > 0


async def test_ten_kills_at_random_moments(tmp_path: Path) -> None:
    await survive_kills(tmp_path / "conversations.json", 10)


@pytest.mark.exhaustive
async def test_forty_kills_at_random_moments(tmp_path: Path) -> None:
    await survive_kills(tmp_path / "conversations.json", 40)


@pytest.mark.parametrize(
    ("call", "number", "survives"),
    [
        ("open", 1, False),
        ("write", 1, False),
        ("fsync", 1, False),
        ("link", 1, False),
        ("replace", 1, False),
        ("replace", 2, False),
        ("fsync", 2, True),
    ],
    ids=[
        "before the write",
        "half-way through the write",
        "before the fsync",
        "before the backup has a name",
        "before the backup is replaced",
        "before the replace",
        "before the folder's fsync",
    ],
)
async def test_a_kill_at_every_boundary(tmp_path: Path, call: str, number: int, survives: bool) -> None:
    path = tmp_path / "conversations.json"
    calls_in_a_commit = {"open": 2, "write": 1, "fsync": 2, "link": 1, "replace": 2}[call]
    # The first two turns go well; the third is the one that is cut off.
    assert run_into(start(path, 0, call, str(2 * calls_in_a_commit + number))) == [0, 1]
    assert await turns_in(path) == ([0, 1, 2] if survives else [0, 1])
    # The store goes on from there, also over what the kill left behind.
    assert run_into(start(path, 3, call, str(calls_in_a_commit + number))) == [3]
    assert (await turns_in(path))[-1] == (4 if survives else 3)
