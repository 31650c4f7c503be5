"""Processes killed at write boundaries; a disk that is full; a folder that cannot be written. The short run.

`make chaos` plays the long one. Each runs in a process of its own, because it forks.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.chaos.checking import Verdict, judge

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PATH": "", "TMPDIR": tempfile.gettempdir()},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_random_kills_lose_nothing() -> None:
    shown = run("tests.chaos.kills", "--kills", "40")
    assert "together 40" in shown
    assert "lost 0, doubled 0, torn 0, reordered 0" in shown
    checked = re.search(r"checked ([\d,]+)", shown)
    assert checked
    assert int(checked[1].replace(",", "")) > 1000


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "file", "spool", "replay"])
def test_every_call_that_changes_the_disk_is_a_boundary_and_one_kill_at_each_kind_is_survived(
    kind: str,
) -> None:
    """The list of boundaries is what one life really does; the first of each name is hit, at each moment."""
    shown = run("tests.chaos.kills", "--first-of-each", kind)
    assert "lost 0, doubled 0, torn 0, reordered 0" in shown
    names = {"sqlite": "sqlite.write", "file": "os.replace", "spool": "os.fdatasync", "replay": "os.unlink"}
    assert names[kind] in shown


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "file", "spool"])
@pytest.mark.parametrize("trouble", ["full", "limited", "read-only", "forbidden"])
def test_a_disk_in_trouble_refuses_in_our_words_and_loses_nothing(kind: str, trouble: str) -> None:
    shown = run("tests.chaos.disks", kind, trouble)
    assert "refused" in shown
    assert "lost 0, doubled 0, torn 0, reordered 0" in shown


@pytest.mark.parametrize(
    ("acknowledged", "contents", "expected"),
    [
        ({0, 1}, [0, 0, 1, 1, 2, 2], Verdict(acknowledged=2, stored=3)),
        ({0, 1}, [0, 0], Verdict(acknowledged=2, stored=1, lost=1)),
        ({0, 1}, [0, 0, 1, 1, 1, 1], Verdict(acknowledged=2, stored=3, doubled=1, reordered=1)),
        ({0, 1}, [1, 1, 0, 0], Verdict(acknowledged=2, stored=2, reordered=1)),
        ({0, 1}, [0, 0, 1], Verdict(acknowledged=2, stored=2, torn=1)),
    ],
)
def test_the_checker_sees_what_is_wrong(
    acknowledged: set[int], contents: list[int], expected: Verdict
) -> None:
    assert judge(acknowledged, contents) == expected


@pytest.mark.slow
def test_operations_that_need_all_data_survive_kills() -> None:
    shown = run("tests.chaos.killed_operations", "--kills", "16", "--stores", "sqlite,file")
    assert "kills {'sqlite': 8}" in shown
    assert "kills {'file': 8}" in shown
    assert shown.count("wrong 0 []") == 2
