"""Dead letters: what was accepted and the store refused when it was back, or what an adopted spool holds
that this release does not understand. Kept, readable, never dropped.

    <folder>/dead-letters.jsonl

One JSON object a line: when it was set aside, why, whose it is, and the operation as the spool held
it. An operator reads it, puts right what can be put right, and removes the line. Blocking; `keep`
and `forget` are run on a thread. All processes of a store share the file, and forgetting writes it
anew: a lock beside it keeps what is set aside meanwhile from being lost.
"""

import contextlib
import json
import os
from datetime import datetime
from pathlib import Path

import msgspec

from recollect.errors import RecollectError
from recollect.layers.resilient.operations import about
from recollect.layers.resilient.spool.files import PRIVATE_FILE, PRIVATE_FOLDER, translated, write_all
from recollect.stores.locks import held

NAME = "dead-letters.jsonl"
_LOCK = "dead-letters.lock"


def keep(folder: Path, payload: bytes, error: RecollectError, *, now: datetime) -> None:
    """Set the operation with this payload aside, durably."""
    line = _letter(payload, error, now)
    with translated(folder):
        folder.mkdir(parents=True, exist_ok=True, mode=PRIVATE_FOLDER)
        with held(folder / _LOCK):
            _append(folder / NAME, line + b"\n")


def _append(path: Path, line: bytes) -> None:
    descriptor = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, PRIVATE_FILE)
    try:
        write_all(descriptor, line)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _letter(payload: bytes, error: RecollectError, now: datetime) -> bytes:
    told = about(payload)
    return msgspec.json.encode(
        {
            "set_aside_at": now,
            "accepted_at": told and told.at,
            "error": type(error).__name__,
            "reason": str(error),
            "owner": told and told.owner,
            "conversation_id": told and told.conversation_id,
            "operation": msgspec.Raw(payload) if told else payload.decode(errors="replace"),
        }
    )


def count(folder: Path) -> int:
    """How many there are."""
    with translated(folder):
        return len(_lines(folder))


def forget(folder: Path, owner: str, conversation_id: str | None, until: datetime | None = None) -> int:
    """Remove an owner's letters, or those about one conversation, or accepted until some moment; returns how
    many went."""
    if not count(folder):
        return 0
    with translated(folder), held(folder / _LOCK):
        return _forget(folder, owner, conversation_id, until)


def _forget(folder: Path, owner: str, conversation_id: str | None, until: datetime | None) -> int:
    lines = _lines(folder)
    kept = [line for line in lines if not _is_about(line, owner, conversation_id, until)]
    if len(kept) < len(lines):
        fresh = folder / f"{NAME}.unfinished"
        with contextlib.suppress(FileNotFoundError):
            fresh.unlink()
        descriptor = os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, PRIVATE_FILE)
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(kept)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, folder / NAME)
    return len(lines) - len(kept)


def _lines(folder: Path) -> list[bytes]:
    try:
        return (folder / NAME).read_bytes().splitlines(keepends=True)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_about(line: bytes, owner: str, conversation_id: str | None, until: datetime | None) -> bool:
    try:
        letter = json.loads(line)
        since = until is not None and datetime.fromisoformat(letter["accepted_at"]) > until
    except (ValueError, KeyError, TypeError):
        return False
    return (
        letter.get("owner") == owner
        and conversation_id in (None, letter.get("conversation_id"))
        and not since
    )
