"""A look at a spool from outside: how much waits there, and since when. Changes nothing, needs no lock.

Below: `spool.frames`. Above: the layer, the checkup.
"""

from datetime import datetime
from pathlib import Path

from msgspec import Struct

from aforesaid.layers.resilient import dead_letters
from aforesaid.layers.resilient.operations import about
from aforesaid.layers.resilient.spool.files import DAMAGED, SUFFIX, translated
from aforesaid.layers.resilient.spool.frames import scan


class SpoolState(Struct, frozen=True, kw_only=True):
    """The content of a spool's folder."""

    operations: int = 0
    bytes: int = 0
    oldest: datetime | None = None
    damaged: int = 0
    """Files with parts that cannot be read, torn dead letters included."""
    dead_letters: int = 0


def look(folder: Path) -> SpoolState:
    """Return what waits in this folder. Blocks."""
    with translated(folder):
        return _look(folder)


def unknown_owners(folder: Path) -> list[str]:
    """Return a sentence for each file with content whose owner cannot be told. Blocks."""
    with translated(folder):
        found = [f"{path} is part of a spool and cannot be read: remove it" for path in _damaged(folder)]
        if unowned := dead_letters.count_unowned(folder):
            path = folder / dead_letters.NAME
            found.append(f"{path} holds {unowned} dead letters whose owner is not known: remove them")
        return found


def pending_owners(folder: Path) -> set[str]:
    """Everybody with an operation in a spool of any process that is not marked as stored. Blocks."""
    with translated(folder):
        paths = [path for path in sorted(folder.glob(f"*{SUFFIX}")) if not path.is_dir()]
        return {owner for path in paths for owner in _owners_in(path)}


def _owners_in(path: Path) -> set[str]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:  # its process stored the last of it in this moment
        return set()
    waiting = scan(content).pending
    return {describe.owner for one in waiting if (describe := about(content[one.payload])) is not None}


def _damaged(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*{DAMAGED}"))


def _look(folder: Path) -> SpoolState:
    operations, size, unreadable, moments = 0, 0, 0, list[datetime]()
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        if not path.is_file():
            continue
        content = path.read_bytes()
        found = scan(content)
        operations += len(found.pending)
        size += len(content)
        unreadable += bool(found.damaged)
        first = found.pending[:1]
        moments += [describe.at for one in first if (describe := about(content[one.payload])) is not None]
    return SpoolState(
        operations=operations,
        bytes=size,
        oldest=min(moments, default=None),
        damaged=len(_damaged(folder)) + unreadable + bool(dead_letters.count_torn(folder)),
        dead_letters=dead_letters.count(folder),
    )
