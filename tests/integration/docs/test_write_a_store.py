"""The page about writing a store runs as written: its files, in a folder of their own."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FILE = re.compile(r"^```\w+ title=\"([^\"]+)\"\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_the_contract_runs_on_the_shown_store(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "write-a-store.md").read_text("utf-8")
    files = FILE.findall(page)
    assert [name for name, _ in files] == ["pyproject.toml", "conftest.py", "test_my_store.py"]
    for name, text in files:
        (tmp_path / name).write_text(text, "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-k", "TestMyStore", "test_my_store.py"],
        cwd=tmp_path,
        env={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "pytest_asyncio.plugin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
