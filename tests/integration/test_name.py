"""The project has one name: nothing in the repository uses the earlier one."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
EARLIER = "".join(("re", "collect"))
"""Spelled in two parts, so that this file does not find itself."""


def test_no_file_or_path_uses_the_earlier_name() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False).stdout
    names = (
        listed.decode().split("\0") if listed else [str(p.relative_to(ROOT)) for p in ROOT.rglob("src/**/*")]
    )
    files = [ROOT / name for name in names if name and (ROOT / name).is_file()]
    assert len(files) > 400
    assert [str(file) for file in files if EARLIER in str(file.relative_to(ROOT)).lower()] == []
    assert [str(file) for file in files if EARLIER.encode() in file.read_bytes().lower()] == []
