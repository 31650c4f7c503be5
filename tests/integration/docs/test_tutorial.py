"""Every step of the tutorial, in order, each in a process of its own, as a reader types it."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
STEP = re.compile(r"^```(?:python title=\"([^\"]+)\"|(sh))\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NOT_HERE = ("python3 -m venv", ". venv/bin/activate", "pip install")
"""Commands of the first step: the environment of the tests has the package."""


def run(*command: str, folder: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        input="",
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def dateless(text: str) -> str:
    """Leave out dates, times and the space between them, where a line may be broken."""
    text = re.sub(r" +$", "", text, flags=re.MULTILINE)
    text = re.sub(r"\[\w+ \d+ \w+ \d{4}, [\d:]{8} \([^)]+\)", "[DAY", text)
    return re.sub(r"\d{4}-\d\d-\d\d(\s+\d\d:\d\d)?", "DAY", text)


def test_every_step_works(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
    printed: dict[str, str] = {}
    for file, _, text in STEP.findall(page):
        if file:
            (tmp_path / file).write_text(text, "utf-8")
            printed[file] = run(file, folder=tmp_path)
            continue
        for line in text.splitlines():
            if not line.startswith(NOT_HERE):
                assert line.startswith("aforesaid "), line
                printed[line.split()[1]] = run("-m", *shlex.split(line), folder=tmp_path)
    assert printed["yesterday.py"] == "2 messages stored\n"
    assert "kitchen" in printed["conversations"]
    assert "I planted leeks and carrots behind the shed." in printed["show"]
    # The second process finds what the first was given.
    assert "I planted leeks and carrots behind the shed." in printed["today.py"]
    assert "- Erin is allergic to nuts." in printed["today.py"]
    assert "user: What can I cook with it?" in printed["today.py"]
    assert printed["model.py"] == "Carrot cake without nuts.\n"
    assert printed["forget.py"].endswith("\n[]\n")


def test_the_shown_output_is_what_the_step_prints(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
    shown = re.findall(r"^```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    printed = []
    for file, _, text in STEP.findall(page):
        if file:
            (tmp_path / file).write_text(text, "utf-8")
            printed.append(run(file, folder=tmp_path))
        else:
            last = shlex.split(text.splitlines()[-1])
            printed += [run("-m", *last, folder=tmp_path)] if last[0] == "aforesaid" else []
    # Dates, and the name of the day, differ.
    assert [dateless(one) for one in shown] == [dateless(one) for one in printed[: len(shown)]]
