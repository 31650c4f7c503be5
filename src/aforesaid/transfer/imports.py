"""A file into a backend. It is read through and proven whole first, so a damaged one changes nothing.

Below: `json_lines`, `bringing`. The file is read off the loop.
"""

import asyncio
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import BinaryIO, TypeVar

from msgspec.structs import asdict

from aforesaid._internal.scratch import open_scratch
from aforesaid.contracts import Backend, ConversationStore, Document, Entry, Position
from aforesaid.errors import StoreDamaged, StoreForeign, StoreUnavailable
from aforesaid.model.conversations import Conversation
from aforesaid.transfer.conversations import CHUNK, CopyReport, Given, Progress, Tally, bring
from aforesaid.transfer.documents import CHUNK as DOCUMENTS_CHUNK
from aforesaid.transfer.documents import bring_owned
from aforesaid.transfer.json_lines import (
    ConversationLine,
    Damaged,
    OwnedLine,
    Trailer,
    read_header,
    read_line,
)

T = TypeVar("T", Entry, Document)


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


async def restore_one(
    file: BinaryIO, target: ConversationStore, *, revive: Callable[[Conversation], Conversation]
) -> Conversation:
    """Bring the one conversation that an export holds back to where it was taken from.

    `revive` may change its record. A session that is in use by now is left to whom it leads to.
    """
    given = await asyncio.to_thread(_the_one, file)
    target = await target.authoritative()
    given.record = revive(given.record)
    given.sessions = [one for one in given.sessions if await target.session(one) is None]
    tally = Tally(None)
    tally.add(await bring(given, target))
    tally.done()
    return given.record


def verify_one(file: BinaryIO) -> Conversation:
    """Read the export of one conversation to its end; its record. Raises for one that is something else."""
    return _the_one(file).record


def _the_one(file: BinaryIO) -> "_Kept":
    found = verify(file)
    begun = _part_at(file, _after_line(file, 0))
    if begun is None or isinstance(begun[1], _Owned) or found.conversations != 1:
        raise StoreDamaged("the export of one conversation holds something else")
    return begun[1]


async def _bring_all(file: BinaryIO, start: int, target: Backend, tally: Tally) -> CopyReport:
    owner: str | None = None
    async for name, given in _parts(file, start):
        if name != owner:
            tally.owner()
            store = await target.of(name).authoritative()
        owner = name
        if isinstance(given, _Owned):
            tally.add_documents(name, await bring_owned(given.documents, store))
        else:
            tally.add(await bring(given, store))
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


class _Places:
    """The documents of one holder come in the order of their kinds and keys."""

    def __init__(self) -> None:
        self._last: tuple[str, str, str] | None = None

    @property
    def begun(self) -> bool:
        return self._last is not None

    def follows(self, owner: str, document: Document) -> bool:
        place = (owner, document.kind, document.key)
        last, self._last = self._last, place
        return last is None or last[0] != owner or last < place


class _Proof:
    """What was read so far: the number of the line, the digest, the counts."""

    def __init__(self, first: bytes) -> None:
        self._number = 1
        self._hash = sha256(first)
        self._conversation: Conversation | None = None
        self._last: Position | None = None
        self._places = _Places()
        self._counts = Counter[str]()
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
        self._take(read)

    def _take(self, read: ConversationLine | OwnedLine | Entry | Document) -> None:
        match read:
            case ConversationLine():
                self._counts["conversations"] += 1
                self._conversation, self._last, self._places = read.conversation, None, _Places()
            case Entry():
                self._counts["entries"] += 1
                self._check_order(read.position)
            case OwnedLine():
                self._counts["documents"] += 1
                self._conversation = None
                self._check_document(read.document, read.owner)
            case Document():
                self._counts["documents"] += 1
                self._check_document(read)

    def _check_document(self, document: Document, owner: str = "") -> None:
        if not self._places.follows(owner, document):
            raise StoreDamaged(f"line {self._number} of the export is not in the order of kinds and keys")

    def _check_order(self, position: Position) -> None:
        if self._places.begun:
            raise StoreDamaged(f"line {self._number} of the export is an entry behind a document")
        if self._last is not None and position <= self._last:
            raise StoreDamaged(f"line {self._number} of the export is not in reading order")
        self._last = position

    def _check(self, trailer: Trailer) -> None:
        names = ("conversations", "entries", "documents")
        counted, there = (
            ", ".join(f"{counts[name]} {name}" for name in names)
            for counts in (asdict(trailer), self._counts)
        )
        if counted != there:
            raise StoreDamaged(
                f"the export was altered: line {self._number}, its last, counts {counted}; there are {there}"
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


async def _parts(file: BinaryIO, start: int) -> AsyncIterator[tuple[str, "_Kept | _Owned"]]:
    """What the file holds, part by part: an owner's documents, a conversation."""
    place = await asyncio.to_thread(_after_line, file, start)
    while (begun := await asyncio.to_thread(_part_at, file, place)) is not None:
        owner, given = begun
        yield owner, given
        place = await given.end()


def _after_line(file: BinaryIO, place: int) -> int:
    file.seek(place)
    file.readline()
    return file.tell()


def _part_at(file: BinaryIO, place: int) -> tuple[str, "_Kept | _Owned"] | None:
    file.seek(place)
    read = read_line(file.readline(), None)
    if isinstance(read, OwnedLine):
        return read.owner, _Owned(file, place, read.owner)
    if isinstance(read, ConversationLine):
        return read.owner, _Kept(file, file.tell(), read)
    return None


class _Owned:
    """An owner's documents in the file, from the first on."""

    def __init__(self, file: BinaryIO, first: int, owner: str) -> None:
        self._file = file
        self._end = first
        self._owner = owner

    async def documents(self) -> AsyncIterator[list[Document]]:
        while chunk := await asyncio.to_thread(self._read):
            yield chunk

    async def end(self) -> int:
        """Where the next part begins."""
        return self._end

    def _read(self) -> list[Document]:
        documents: list[Document] = []
        self._file.seek(self._end)
        while len(documents) < DOCUMENTS_CHUNK:
            line = self._file.readline()
            read = read_line(line, None)
            if not isinstance(read, OwnedLine) or read.owner != self._owner:
                break
            documents.append(read.document)
            self._end += len(line)
        return documents


class _Kept(Given):
    """A conversation in the file, from its first entry on."""

    def __init__(self, file: BinaryIO, first: int, line: ConversationLine) -> None:
        self._file = file
        self._first = first
        self._log_end: int | None = None
        self._end: int | None = None
        self.record = line.conversation
        self.sessions = line.sessions

    async def log(self) -> AsyncIterator[list[Entry]]:
        place = self._first
        while True:
            entries, place = await asyncio.to_thread(self._read, place, Entry, CHUNK)
            if not entries:
                break
            yield entries
        self._log_end = place

    async def documents(self) -> AsyncIterator[list[Document]]:
        place = await self._after_log()
        while True:
            documents, place = await asyncio.to_thread(self._read, place, Document, DOCUMENTS_CHUNK)
            if not documents:
                break
            yield documents
        self._end = place

    async def _after_log(self) -> int:
        while self._log_end is None:
            async for _ in self.log():
                pass
        return self._log_end

    async def end(self) -> int:
        """Where the next part begins."""
        while self._end is None:
            async for _ in self.documents():
                pass
        return self._end

    def _read(self, place: int, kind: type[T], most: int) -> tuple[list[T], int]:
        """The lines of this kind from a place on, and where they end."""
        found: list[T] = []
        self._file.seek(place)
        while len(found) < most:
            line = self._file.readline()
            read = read_line(line, self.record)
            if not isinstance(read, kind):
                break
            found.append(read)
            place += len(line)
        return found, place

    async def has_changed(self) -> bool:
        return False


def _seekable(file: BinaryIO) -> BinaryIO:
    """The file itself, or a temporary one with what came through a pipe."""
    if file.seekable():
        return file
    spool = open_scratch()
    try:
        with _explained():
            shutil.copyfileobj(file, spool)
            spool.seek(0)
    except BaseException:
        spool.close()
        raise
    return spool


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except StoreForeign as error:
        raise StoreForeign(f"the file cannot be imported: {error}") from None
    except OSError as error:
        raise StoreUnavailable(f"the export cannot be read: {error.strerror or error}") from error
