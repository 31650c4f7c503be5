"""Dead letters: accepted operations that the store refused on replay, or that cannot be decoded.

They stay readable until an operator removes them.

    <folder>/dead-letters.jsonl

Each line is one JSON object: the time, the reason, the owner, and the operation as in the spool.

A kill or a full disk can leave a torn letter: the beginning of a line. The next letter starts on a new
line, so a torn one never damages its neighbours. A torn letter is always redundant: its operation leaves the
spool only after the letter is durable.

All functions block; call them on a thread. All processes of a store share the file. `remove` replaces the
file; a lock file protects letters that are written at the same time.
"""

import contextlib
import json
import os
import re
from base64 import b64encode
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from aforesaid._internal import files
from aforesaid._internal.files import PRIVATE_FOLDER
from aforesaid.errors import AforesaidError
from aforesaid.layers.resilient.operations import read_header
from aforesaid.layers.resilient.spool.files import DAMAGED, SUFFIX, translate_errors
from aforesaid.layers.resilient.spool.frames import scan

NAME = "dead-letters.jsonl"
_LOCK = "dead-letters.lock"
_UNFINISHED = f"{NAME}.unfinished"
_FIELD = rb'"%b":("(?:[^"\\]|\\.)*"|null)'


class _Record(NamedTuple):
    """A letter or the torn beginning of one, as it is in the file, without the line break."""

    raw: bytes
    letter: Mapping[str, Any] | None
    """None for a torn letter."""

    def field(self, name: str) -> Any:
        """The value of a field. Raises `KeyError` where a torn letter ends before the field does."""
        if self.letter is not None:
            return self.letter.get(name)
        found = re.search(_FIELD % name.encode(), self.raw)
        if found is None:
            raise KeyError(name)
        return json.loads(found[1])


def add(folder: Path, payload: bytes, error: AforesaidError, *, now: datetime) -> None:
    """Write a letter with this payload, durably."""
    line = _letter(payload, error, now)
    with translate_errors(folder):
        folder.mkdir(parents=True, exist_ok=True, mode=PRIVATE_FOLDER)
        with files.held(folder / _LOCK):
            path = folder / NAME
            files.append(path, line + b"\n" if _ends_with_a_line(path) else b"\n" + line + b"\n")


def _ends_with_a_line(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read() == b"\n"
    except OSError:  # there is no file, or it is empty
        return True


def _letter(payload: bytes, error: AforesaidError, now: datetime) -> bytes:
    # The owner and the conversation precede the operation, so that a torn letter with part of the operation
    # still names its owner.
    header = read_header(payload)
    return msgspec.json.encode(
        {
            "set_aside_at": now,
            "accepted_at": header and header.at,
            "error": type(error).__name__,
            "reason": str(error),
            "owner": header and header.owner,
            "conversation_id": header and header.conversation_id,
            "operation": msgspec.Raw(payload) if header else _as_text(payload),
        }
    )


def _as_text(payload: bytes) -> str:
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return f"base64:{b64encode(payload).decode()}"


def count(folder: Path) -> int:
    """Return the number of whole letters."""
    return sum(record.letter is not None for record in _records(folder))


def count_torn(folder: Path) -> int:
    """Return the number of torn letters."""
    return sum(record.letter is None for record in _records(folder))


def count_unowned(folder: Path) -> int:
    """Return the number of letters without an owner; `remove` cannot find those."""
    return sum(record.letter is not None and not _owner(record) for record in _records(folder))


def _owner(record: _Record) -> str | None:
    owner = record.field("owner")
    return owner if isinstance(owner, str) else None


def remove(folder: Path, owner: str, conversation_id: str | None, until: datetime | None = None) -> int:
    """Remove an owner's letters and return their number; only one conversation's, or up to `until`, if given.

    Torn letters are removed too, unless they name another owner, conversation or time.
    """
    # Most machines have no dead letters. Then take no lock, which would create a file.
    if not _records(folder) and not (folder / _UNFINISHED).exists():
        return 0
    with translate_errors(folder), files.held(folder / _LOCK):
        with contextlib.suppress(FileNotFoundError):
            (folder / _UNFINISHED).unlink()  # left by a killed process; it contains copies of letters
        return _remove(folder, owner, conversation_id, until)


def _remove(folder: Path, owner: str, conversation_id: str | None, until: datetime | None) -> int:
    records = _records(folder)
    kept = [record.raw for record in records if not _may_be_about(record, owner, conversation_id, until)]
    if len(kept) < len(records):
        content = b"".join(raw + b"\n" for raw in kept)
        files.replace(folder / NAME, content, draft=folder / _UNFINISHED)
    return len(records) - len(kept)


def _records(folder: Path) -> list[_Record]:
    with translate_errors(folder):
        try:
            content = (folder / NAME).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return []
    return [_Record(line, _parse(line)) for line in content.split(b"\n") if line.strip(b"\0 \t\r")]


def _parse(text: bytes) -> Mapping[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _may_be_about(record: _Record, owner: str, conversation_id: str | None, until: datetime | None) -> bool:
    try:
        return (
            _owner(record) == owner
            and conversation_id in (None, record.field("conversation_id"))
            and not _is_after(record.field("accepted_at"), until)
        )
    except KeyError:
        return True  # torn before the field that names its subject


def _is_after(accepted_at: object, until: datetime | None) -> bool:
    if until is None or not isinstance(accepted_at, str):
        return False
    try:
        return datetime.fromisoformat(accepted_at) > until
    except ValueError:
        return False


# Read the state of a spool folder, without a lock and without changes.


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
        if unowned := count_unowned(folder):
            path = folder / NAME
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
        damaged=len(_damaged(folder)) + unreadable + bool(count_torn(folder)),
        dead_letters=count(folder),
    )
