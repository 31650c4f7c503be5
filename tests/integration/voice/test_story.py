"""Asked by voice in one process, gone on with by text in the next: answered with context, client linked."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aforesaid.model.ids import new_id
from tests.builders import url_for

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("store", ["sqlite", "file", "redis", "postgres"])
def test_voice_then_text_after_a_restart(store: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    url, owner = url_for(store, tmp_path, request), f"contractor-{new_id()}"
    for act in ("by_voice", "by_text"):
        played = subprocess.run(
            [sys.executable, "-m", "tests.integration.voice.story", act, url, owner],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert played.returncode == 0, played.stderr
