"""A look at a spool from outside: how much waits there, and since when. Changes nothing, needs no lock.

Below: `spool.frames`. Above: the layer, the checkup.
"""

from datetime import datetime
from pathlib import Path

from msgspec import Struct

from recollect.layers.resilient import letters
from recollect.layers.resilient.operations import about
from recollect.layers.resilient.spool.files import SUFFIX, translated
from recollect.layers.resilient.spool.frames import pending, scan


class SpoolState(Struct, frozen=True, kw_only=True):
    """What lies in a spool's folder."""

    operations: int = 0
    bytes: int = 0
    oldest: datetime | None = None
    damaged: int = 0
    """Files with parts that could not be read."""
    dead_letters: int = 0


def look(folder: Path) -> SpoolState:
    """What waits in this folder. Blocks."""
    with translated(folder):
        return _look(folder)


def damaged(folder: Path) -> list[Path]:
    """Files with parts of a spool that could not be read. Blocks."""
    with translated(folder):
        return _damaged(folder)


def pending_owners(folder: Path) -> set[str]:
    """Everybody with an operation in a spool of any process that is not marked as stored. Blocks."""
    with translated(folder):
        return {owner for path in sorted(folder.glob(f"*{SUFFIX}")) for owner in _owners_in(path)}


def _owners_in(path: Path) -> set[str]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:  # its process stored the last of it in this moment
        return set()
    waiting = pending(content, scan(content).frames)
    return {told.owner for _, one in waiting if (told := about(content[one.payload])) is not None}


def _damaged(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.damaged"))


def _look(folder: Path) -> SpoolState:
    operations, size, moments = 0, 0, list[datetime]()
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        content = path.read_bytes()
        waiting = pending(content, scan(content).frames)
        operations += len(waiting)
        size += len(content)
        moments += [told.at for _, one in waiting[:1] if (told := about(content[one.payload])) is not None]
    return SpoolState(
        operations=operations,
        bytes=size,
        oldest=min(moments, default=None),
        damaged=len(_damaged(folder)),
        dead_letters=letters.count(folder),
    )
