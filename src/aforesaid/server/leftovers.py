"""Remove folders that killed exports and imports of earlier releases left in the temporary folder.

This release keeps what passes through in `aforesaid.scratch`, which leaves nothing behind.
"""

import os
import re
import shutil
import tempfile
from pathlib import Path

_LEFTOVER = re.compile(r"aforesaid-(export|import)-[0-9a-f]{16}", re.ASCII)


def remove_leftovers() -> int:
    """Remove such folders of this user; returns how many there were. Blocks."""
    found = [path for path in Path(tempfile.gettempdir()).iterdir() if _is_leftover(path)]
    for path in found:
        shutil.rmtree(path, ignore_errors=True)
    return len(found)


def _is_leftover(path: Path) -> bool:
    if not _LEFTOVER.fullmatch(path.name) or path.is_symlink() or not path.is_dir():
        return False
    return os.name == "nt" or path.stat().st_uid == os.getuid()
