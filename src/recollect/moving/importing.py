"""A file into a backend. It is read through and proven whole first, so a damaged one changes nothing.

Below: `json_lines`, `bringing`. The file is read off the loop.
"""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import BinaryIO

from recollect.contracts import Backend, Entry, Position
from recollect.conversations import Conversation
from recollect.errors import StoreDamaged, StoreForeign, StoreUnavailable
from recollect.moving.bringing import CHUNK, CopyReport, Given, Progress, Tally, bring
from recollect.moving.json_lines import ConversationLine, Damaged, Trailer, read_header, read_line


async def import_(file: BinaryIO, target: Backend, *, progress: Progress | None = None) -> CopyReport:
    """Bring everything that an export holds into the target, which is open.

    Raises `StoreDamaged` with the line for a file that was cut off or altered, and `StoreForeign` for one
    of another program or version, before anything is stored. What is there already stays; a conversation
    that was written to in the target is left as it is, and told by `Conflict` at the end.
    """
    seekable = await asyncio.to_thread(_seekable, file)
    try:
        start = seekable.tell()
        await asyncio.to_thread(verify, seekable)
        return await _bring_all(seekable, start, target, Tally(progress))
    finally:
        if seekable is not file:
            await asyncio.to_thread(seekable.close)


async def _bring_all(file: BinaryIO, start: int, target: Backend, tally: Tally) -> CopyReport:
    owner = None
    async for name, given in _conversations(file, start):
        if name != owner:
            tally.owner()
        owner = name
        tally.add(await bring(given, target.of(name)))
    return tally.done()


def verify(file: BinaryIO) -> Trailer:
    """Read an export to its end. Raises for the first line that is not what it should be."""
    with _explained():
        first = file.readline()
        read_header(first)
        proof = _Proof(first)
        for line in iter(file.readline, b""):
            proof.add(line)
        return proof.finish()


class _Proof:
    """What was read so far: the number of the line, the digest, the counts."""

    def __init__(self, first: bytes) -> None:
        self._number = 1
        self._hash = sha256(first)
        self._conversation: Conversation | None = None
        self._last: Position | None = None
        self._counts = [0, 0]
        self._trailer: Trailer | None = None

    def add(self, line: bytes) -> None:
        if self._trailer is not None:
            raise StoreDamaged(f"the export goes on after its end, line {self._number}")
        self._number += 1
        if not line.endswith(b"\n"):
            raise StoreDamaged(f"the export was cut off in line {self._number}")
        try:
            read = read_line(line, self._conversation)
        except Damaged as error:
            raise StoreDamaged(f"line {self._number} of the export {error}") from error
        if isinstance(read, Trailer):
            self._check(read)
            return
        self._hash.update(line)
        if isinstance(read, Entry):
            self._check_order(read.position)
        else:
            self._conversation, self._last = read.conversation, None
        self._counts[isinstance(read, Entry)] += 1

    def _check_order(self, position: Position) -> None:
        if self._last is not None and position <= self._last:
            raise StoreDamaged(f"line {self._number} of the export is not in reading order")
        self._last = position

    def _check(self, trailer: Trailer) -> None:
        counts = [trailer.conversations, trailer.entries]
        if counts != self._counts:
            raise StoreDamaged(
                f"the export was altered: line {self._number}, its last, counts {counts[0]} conversations "
                f"and {counts[1]} entries; there are {self._counts[0]} and {self._counts[1]}"
            )
        if trailer.sha256 != self._hash.hexdigest():
            raise StoreDamaged(
                f"the export was altered: the SHA-256 in line {self._number}, its last, is not that of "
                f"lines 1 to {self._number - 1}"
            )
        self._trailer = trailer

    def finish(self) -> Trailer:
        if self._trailer is None:
            raise StoreDamaged(f"the export was cut off after line {self._number}")
        return self._trailer


async def _conversations(file: BinaryIO, start: int) -> AsyncIterator[tuple[str, "_Kept"]]:
    place = await asyncio.to_thread(_after_line, file, start)
    while (begun := await asyncio.to_thread(_conversation_at, file, place)) is not None:
        owner, given = begun
        yield owner, given
        place = await given.end()


def _after_line(file: BinaryIO, place: int) -> int:
    file.seek(place)
    file.readline()
    return file.tell()


def _conversation_at(file: BinaryIO, place: int) -> tuple[str, "_Kept"] | None:
    file.seek(place)
    read = read_line(file.readline(), None)
    if not isinstance(read, ConversationLine):
        return None
    return read.owner, _Kept(file, file.tell(), read)


class _Kept(Given):
    """A conversation in the file, from its first entry on."""

    def __init__(self, file: BinaryIO, first: int, line: ConversationLine) -> None:
        self._file = file
        self._first = first
        self._end: int | None = None
        self.record = line.conversation
        self.sessions = line.sessions

    async def log(self) -> AsyncIterator[list[Entry]]:
        place = self._first
        while True:
            entries, place = await asyncio.to_thread(self._read, place)
            if not entries:
                break
            yield entries
        self._end = place

    async def end(self) -> int:
        """Where the next one begins."""
        while self._end is None:
            async for _ in self.log():
                pass
        return self._end

    def _read(self, place: int) -> tuple[list[Entry], int]:
        """The entries from this place on, at most a chunk, and where they end."""
        entries: list[Entry] = []
        self._file.seek(place)
        while len(entries) < CHUNK:
            line = self._file.readline()
            read = read_line(line, self.record)
            if not isinstance(read, Entry):
                break
            entries.append(read)
            place += len(line)
        return entries, place

    async def has_changed(self) -> bool:
        return False


def _seekable(file: BinaryIO) -> BinaryIO:
    """The file itself, or a temporary one with what came through a pipe."""
    if file.seekable():
        return file
    with _explained():
        spool = tempfile.TemporaryFile()  # noqa: SIM115  import_ closes it
        shutil.copyfileobj(file, spool)
        spool.seek(0)
    return spool


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except StoreForeign as error:
        raise StoreForeign(f"the file cannot be imported: {error}") from None
    except OSError as error:
        raise StoreUnavailable(f"the export cannot be read: {error.strerror or error}") from error
