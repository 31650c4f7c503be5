"""Remove temporary folders that killed exports and imports of earlier releases left behind.

Current exports and imports use `_internal/scratch.py`, which leaves nothing behind.
"""

import os
import re
import shutil
import tempfile
from pathlib import Path

_LEFTOVER = re.compile(r"aforesaid-(export|import)-[0-9a-f]{16}", re.ASCII)


def remove_leftovers() -> int:
    """Remove this user's leftover folders and return their number. Blocks."""
    found = [path for path in Path(tempfile.gettempdir()).iterdir() if _is_leftover(path)]
    for path in found:
        shutil.rmtree(path, ignore_errors=True)
    return len(found)


def _is_leftover(path: Path) -> bool:
    if not _LEFTOVER.fullmatch(path.name) or path.is_symlink() or not path.is_dir():
        return False
    return os.name == "nt" or path.stat().st_uid == os.getuid()
