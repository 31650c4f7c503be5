"""Read the state of a spool folder, without a lock and without changes."""

from datetime import datetime
from pathlib import Path

from msgspec import Struct

from aforesaid.layers.resilient import dead_letters
from aforesaid.layers.resilient.operations import read_header
from aforesaid.layers.resilient.spool.files import DAMAGED, SUFFIX, translate_errors
from aforesaid.layers.resilient.spool.frames import scan


class SpoolState(Struct, frozen=True, kw_only=True):
    """The content of a spool's folder."""

    operations: int = 0
    bytes: int = 0
    oldest: datetime | None = None
    damaged: int = 0
    """Files with parts that cannot be read, torn dead letters included."""
    dead_letters: int = 0


def spool_state(folder: Path) -> SpoolState:
    """Return the state of the folder. Blocks."""
    with translate_errors(folder):
        return _read_state(folder)


def describe_unowned(folder: Path) -> list[str]:
    """Return a sentence for each file with content of an unknown owner. Blocks."""
    with translate_errors(folder):
        found = [f"{path} is part of a spool and cannot be read: remove it" for path in _damaged(folder)]
        if unowned := dead_letters.count_unowned(folder):
            path = folder / dead_letters.NAME
            found.append(f"{path} holds {unowned} dead letters whose owner is not known: remove them")
        return found


def pending_owners(folder: Path) -> set[str]:
    """Return the owners with an operation in any process's spool that is not marked as stored. Blocks."""
    with translate_errors(folder):
        paths = [path for path in sorted(folder.glob(f"*{SUFFIX}")) if not path.is_dir()]
        return {owner for path in paths for owner in _owners_of(path)}


def _owners_of(path: Path) -> set[str]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:  # its process has just stored the last operation and removed the file
        return set()
    waiting = scan(content).pending
    return {header.owner for one in waiting if (header := read_header(content[one.payload])) is not None}


def _damaged(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*{DAMAGED}"))


def _read_state(folder: Path) -> SpoolState:
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
        moments += [header.at for one in first if (header := read_header(content[one.payload])) is not None]
    return SpoolState(
        operations=operations,
        bytes=size,
        oldest=min(moments, default=None),
        damaged=len(_damaged(folder)) + unreadable + bool(dead_letters.count_torn(folder)),
        dead_letters=dead_letters.count(folder),
    )
