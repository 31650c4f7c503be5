"""Dead letters: accepted operations that the store refused on replay, and operations of an adopted spool
that this release cannot decode. They are kept, readable, and never dropped.

    <folder>/dead-letters.jsonl

Each line is one JSON object: when it was set aside, the reason, the owner, and the operation as the spool
held it. An operator reads it, repairs what can be repaired, and removes the line.

A kill or a full disk can leave a torn letter: the beginning of a line. The next letter starts on a new
line, so a torn one never damages its neighbours. Releases before this one wrote the next letter right
behind a torn one; such lines are split where a letter begins. A torn letter is always redundant: its
operation leaves the spool only after the letter is durable.

All functions block; call them on a thread. All processes of a store share the file. `forget` replaces the
file; a lock beside it protects letters that are written meanwhile.
"""

import contextlib
import json
import os
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from aforesaid._internal.file_locks import held
from aforesaid.errors import AforesaidError
from aforesaid.layers.resilient.operations import about
from aforesaid.layers.resilient.spool.files import (
    PRIVATE_FILE,
    PRIVATE_FOLDER,
    sync_folder,
    translated,
    write_all,
)

NAME = "dead-letters.jsonl"
_LOCK = "dead-letters.lock"
_UNFINISHED = f"{NAME}.unfinished"
_START = b'{"set_aside_at":'
"""The first bytes of each letter. JSON escapes quotes inside of strings, so no text contains these bytes."""
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


def keep(folder: Path, payload: bytes, error: AforesaidError, *, now: datetime) -> None:
    """Set the operation with this payload aside, durably."""
    line = _letter(payload, error, now)
    with translated(folder):
        folder.mkdir(parents=True, exist_ok=True, mode=PRIVATE_FOLDER)
        with held(folder / _LOCK):
            _append(folder / NAME, line + b"\n")
            sync_folder(folder)


def _append(path: Path, line: bytes) -> None:
    descriptor = os.open(path, os.O_CREAT | os.O_APPEND | os.O_RDWR, PRIVATE_FILE)
    try:
        size = os.fstat(descriptor).st_size
        try:
            write_all(descriptor, line if _ends_with_a_line(descriptor, size) else b"\n" + line)
            os.fsync(descriptor)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, size)
            raise
    finally:
        os.close(descriptor)


def _ends_with_a_line(descriptor: int, size: int) -> bool:
    if not size:
        return True
    os.lseek(descriptor, size - 1, os.SEEK_SET)
    return os.read(descriptor, 1) == b"\n"


def _letter(payload: bytes, error: AforesaidError, now: datetime) -> bytes:
    # The owner and the conversation come before the operation: a torn letter that holds some of the
    # operation shows whose it is.
    describe = about(payload)
    return msgspec.json.encode(
        {
            "set_aside_at": now,
            "accepted_at": describe and describe.at,
            "error": type(error).__name__,
            "reason": str(error),
            "owner": describe and describe.owner,
            "conversation_id": describe and describe.conversation_id,
            "operation": msgspec.Raw(payload) if describe else _as_text(payload),
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
    """Return the number of letters that do not show their owner; `forget` cannot find those."""
    return sum(record.letter is not None and not _owner(record) for record in _records(folder))


def _owner(record: _Record) -> str | None:
    owner = record.field("owner")
    return owner if isinstance(owner, str) else None


def forget(folder: Path, owner: str, conversation_id: str | None, until: datetime | None = None) -> int:
    """Remove an owner's letters, or those about one conversation, or those accepted until a moment; return
    how many were removed. Torn letters are removed unless they prove to be about something else."""
    if not _records(folder) and not (folder / _UNFINISHED).exists():
        return 0
    with translated(folder), held(folder / _LOCK):
        with contextlib.suppress(FileNotFoundError):
            (folder / _UNFINISHED).unlink()  # a rewrite that was killed: a copy of letters
        return _forget(folder, owner, conversation_id, until)


def _forget(folder: Path, owner: str, conversation_id: str | None, until: datetime | None) -> int:
    records = _records(folder)
    kept = [record.raw for record in records if not _may_be_about(record, owner, conversation_id, until)]
    if len(kept) < len(records):
        _rewrite(folder, kept)
    return len(records) - len(kept)


def _rewrite(folder: Path, kept: list[bytes]) -> None:
    fresh = folder / _UNFINISHED
    descriptor = os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, PRIVATE_FILE)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(raw + b"\n" for raw in kept)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, folder / NAME)
    except OSError:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise
    sync_folder(folder)


def _records(folder: Path) -> list[_Record]:
    with translated(folder):
        try:
            content = (folder / NAME).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return []
    return [record for line in content.split(b"\n") if line.strip(b"\0 \t\r") for record in _read_line(line)]


def _read_line(line: bytes) -> Iterator[_Record]:
    """The letter in a line; or, where an earlier release wrote behind a torn letter, each of those in it."""
    whole = _Record(line, _parsed(line))
    if whole.letter is not None:
        yield whole
        return
    starts = [found.start() for found in re.finditer(re.escape(_START), line)]
    edges = sorted({0, *starts, len(line)})
    for start, end in pairwise(edges):
        yield _Record(line[start:end], _parsed(line[start:end]))


def _parsed(text: bytes) -> Mapping[str, Any] | None:
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
        return True  # torn before it shows what it is about


def _is_after(accepted_at: object, until: datetime | None) -> bool:
    if until is None or not isinstance(accepted_at, str):
        return False
    try:
        return datetime.fromisoformat(accepted_at) > until
    except ValueError:
        return False
