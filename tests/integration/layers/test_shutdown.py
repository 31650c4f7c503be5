"""SIGTERM: a process stores what it has acknowledged, and exits cleanly."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from aforesaid.layers.build import with_resilience
from aforesaid.layers.resilient import Resilience, ResilientBackend
from aforesaid.stores.urls import backend_for

ROOT = Path(__file__).parents[3]
TURNS = 40


def told_to_end(url: str, folder: Path, *, away: bool) -> tuple[str, set[str]]:
    """Run the child, end it after some turns; returns the conversation and what it acknowledged."""
    command = [sys.executable, "-m", "tests.processes.terminated", url, str(folder)]
    process = subprocess.Popen(
        [*command, "away" if away else "well"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "HOME": str(folder), "PATH": ""},
    )
    assert process.stdout is not None
    lines = [process.stdout.readline().strip() for _ in range(TURNS)]
    process.send_signal(signal.SIGTERM)
    rest, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    lines += rest.split("\n")
    assert "drained" in lines, errors
    conversation_id = next(line.split()[1] for line in lines if line.startswith("conversation"))
    return conversation_id, {line.split()[1] for line in lines if line.startswith("said")}


def check(stored: list[str], acknowledged: set[str]) -> None:
    assert len(acknowledged) >= TURNS - 1
    assert stored[::2] == stored[1::2], "whole"
    assert len(set(stored)) == len(stored) // 2, "once"
    assert acknowledged <= set(stored), "present"


@pytest.mark.parametrize("url", ["sqlite:///{}/memory.db", "file://{}/memory.json"])
async def test_an_embedded_store_is_closed_with_every_acknowledged_turn_in_it(
    url: str, tmp_path: Path
) -> None:
    url = url.format(tmp_path)
    conversation_id, acknowledged = told_to_end(url, tmp_path, away=False)
    backend = backend_for(url)
    await backend.open()
    entries = await backend.of("erin").page(conversation_id, limit=99_999)
    check([entry.message.content for entry in entries], acknowledged)
    await backend.close()


async def test_with_the_store_away_the_next_process_finds_them_in_the_spool(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    conversation_id, acknowledged = told_to_end(url, tmp_path, away=True)
    backend = with_resilience(backend_for(url), url, Resilience(folder=tmp_path))
    assert isinstance(backend, ResilientBackend)
    await backend.open()
    assert await backend.recover()
    entries = await backend.of("erin").page(conversation_id, limit=99_999)
    check([entry.message.content for entry in entries], acknowledged)
    await backend.close()
