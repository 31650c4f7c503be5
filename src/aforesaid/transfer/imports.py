"""Import a file into a backend. The file is verified completely first, so a damaged one changes nothing.

File reads run on threads.
"""

import asyncio
import shutil
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from io import SEEK_END
from typing import BinaryIO, TypeVar

from msgspec.structs import asdict

from aforesaid._internal.scratch import open_scratch
from aforesaid.contracts import Backend, ConversationStore, Document, Entry, Position
from aforesaid.errors import StoreDamaged, StoreForeign, StoreUnavailable
from aforesaid.model.conversations import Conversation
from aforesaid.model.ids import conversation_key
from aforesaid.transfer.conversations import (
    CHUNK,
    CopyReport,
    Progress,
    ReportBuilder,
    SourceConversation,
    log_of,
    store_conversation,
)
from aforesaid.transfer.documents import CHUNK as DOCUMENTS_CHUNK
from aforesaid.transfer.documents import store_owned
from aforesaid.transfer.json_lines import (
    ConversationLine,
    Damaged,
    OwnedLine,
    Trailer,
    read_header,
    read_line,
)

T = TypeVar("T", Entry, Document)

# More bytes than the last line of an export has.
_LAST_LINE = 1_000


async def import_(file: BinaryIO, target: Backend, *, progress: Progress | None = None) -> CopyReport:
    """Store everything from an export in the target, which must be open.

    Before storing anything, raise `StoreDamaged` with the line number for a truncated or altered file, and
    `StoreForeign` for a file of another program or version. Existing data stay. Conversations changed in
    the target are not overwritten; `Conflict` names them at the end.
    """
    seekable = await asyncio.to_thread(_seekable, file)
    try:
        start = seekable.tell()
        # Two passes: the digest is in the last line, and nothing may be stored before it is checked.
        await asyncio.to_thread(verify, seekable)
        return await _store_all(seekable, start, target, ReportBuilder(progress))
    finally:
        if seekable is not file:
            await asyncio.to_thread(seekable.close)


def expected_conversations(file: BinaryIO) -> int | None:
    """Return the number of conversations that the last line of an export states, before it is verified.

    Return None for a stream, and for a file that does not end as an export does.
    """
    if not file.seekable():
        return None
    start = file.tell()
    try:
        file.seek(-min(file.seek(0, SEEK_END), _LAST_LINE), SEEK_END)
        last = read_line(file.read().splitlines(keepends=True)[-1], None)
    except (Damaged, IndexError):
        return None
    finally:
        file.seek(start)
    return last.conversations if isinstance(last, Trailer) else None


async def restore_one(
    file: BinaryIO, target: ConversationStore, *, revive: Callable[[Conversation], Conversation]
) -> Conversation:
    """Restore the only conversation of an export.

    `revive` may change its record. Sessions that are in use now are not rebound.
    """
    part = await asyncio.to_thread(_single_conversation, file)
    # In one step: a part of a conversation would look complete when this process is killed, and archiving
    # that part would replace the whole archive.
    part.chunk = sys.maxsize
    target = await target.authoritative()
    part.record = revive(part.record)
    part.sessions = [one for one in part.sessions if await target.session(one) is None]
    report = ReportBuilder(None)
    report.add(await store_conversation(part, target))
    report.finish()
    return part.record


async def has_all_entries(file: BinaryIO, store: ConversationStore) -> bool:
    """Return whether the store has every message of the only conversation of an export, in its place."""
    part = await asyncio.to_thread(_single_conversation, file)
    stored = {
        (entry.sequence, entry.message.message_id)
        async for entries in log_of(store, part.record.id)
        for entry in entries
    }
    async for entries in part.log():
        if any((entry.sequence, entry.message.message_id) not in stored for entry in entries):
            return False
    return True


def verify_one(file: BinaryIO) -> Conversation:
    """Verify the export of one conversation and return its record."""
    return _single_conversation(file).record


def _single_conversation(file: BinaryIO) -> "_FileConversation":
    found = verify(file)
    started = _part_at(file, _after_line(file, 0))
    if started is None or isinstance(started[1], _FileDocuments) or found.conversations != 1:
        raise StoreDamaged("the file must contain exactly one conversation")
    return started[1]


async def _store_all(file: BinaryIO, start: int, target: Backend, report: ReportBuilder) -> CopyReport:
    owner: str | None = None
    async for name, part in _parts(file, start):
        if name != owner:
            report.add_owner()
            store = await target.of(name).authoritative()
        owner = name
        if isinstance(part, _FileDocuments):
            report.add_documents(name, await store_owned(part.documents, store))
        else:
            part.belong_to(store.owner)
            report.add(await store_conversation(part, store))
    return report.finish()


async def renamed_ids(file: BinaryIO, owner: str) -> dict[str, str]:
    """Return the ids that named conversations of a verified file get for this owner, by their ids in it."""
    renamed: dict[str, str] = {}
    async for _, part in _parts(file, 0):
        if isinstance(part, _FileDocuments):
            async for _ in part.documents():
                pass  # the next part begins after them
        else:
            before = part.record.id
            part.belong_to(owner)
            renamed[before] = part.record.id
    return renamed


def verify(file: BinaryIO) -> Trailer:
    """Read an export to its end. Raise at the first invalid line."""
    with _translate_errors():
        first = file.readline()
        read_header(first)
        verifier = _Verifier(first)
        for line in iter(file.readline, b""):
            verifier.add(line)
        return verifier.finish()


class _DocumentOrder:
    """Checks that documents are sorted by kind and key."""

    def __init__(self) -> None:
        self._last: tuple[str, str, str] | None = None

    @property
    def started(self) -> bool:
        return self._last is not None

    def follows(self, owner: str, document: Document) -> bool:
        place = (owner, document.kind, document.key)
        last, self._last = self._last, place
        return last is None or last[0] != owner or last < place


class _Verifier:
    """Checks lines, counts and digest of an export."""

    def __init__(self, first: bytes) -> None:
        self._number = 1
        self._hash = sha256(first)
        self._conversation: Conversation | None = None
        self._last: Position | None = None
        self._document_order = _DocumentOrder()
        self._counts = Counter[str]()
        self._trailer: Trailer | None = None

    def add(self, line: bytes) -> None:
        if self._trailer is not None:
            raise StoreDamaged(f"the export continues after its last line {self._number}")
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
        self._hash.update(line)  # all lines before the trailer, which contains the digest
        self._count(read)

    def _count(self, read: ConversationLine | OwnedLine | Entry | Document) -> None:
        match read:
            case ConversationLine():
                self._counts["conversations"] += 1
                self._conversation, self._last, self._document_order = (
                    read.conversation,
                    None,
                    _DocumentOrder(),
                )
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
        if not self._document_order.follows(owner, document):
            raise StoreDamaged(f"line {self._number} of the export is not in the order of kinds and keys")

    def _check_order(self, position: Position) -> None:
        if self._document_order.started:
            raise StoreDamaged(f"line {self._number} of the export is an entry after a document")
        if self._last is not None and position <= self._last:
            raise StoreDamaged(f"line {self._number} of the export is not in reading order")
        self._last = position

    def _check(self, trailer: Trailer) -> None:
        names = ("conversations", "entries", "documents")
        counted, found_counts = (
            ", ".join(f"{counts[name]} {name}" for name in names)
            for counts in (asdict(trailer), self._counts)
        )
        if counted != found_counts:
            raise StoreDamaged(
                f"the export was altered: line {self._number}, its last, counts {counted}; "
                f"the file has {found_counts}"
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


async def _parts(
    file: BinaryIO, start: int
) -> AsyncIterator[tuple[str, "_FileConversation | _FileDocuments"]]:
    """Yield the parts of the file: an owner's documents, or a conversation."""
    place = await asyncio.to_thread(_after_line, file, start)
    while (started := await asyncio.to_thread(_part_at, file, place)) is not None:
        owner, part = started
        yield owner, part
        place = await part.end()


def _after_line(file: BinaryIO, place: int) -> int:
    file.seek(place)
    file.readline()
    return file.tell()


def _part_at(file: BinaryIO, place: int) -> tuple[str, "_FileConversation | _FileDocuments"] | None:
    file.seek(place)
    read = read_line(file.readline(), None)
    if isinstance(read, OwnedLine):
        return read.owner, _FileDocuments(file, place, read.owner)
    if isinstance(read, ConversationLine):
        return read.owner, _FileConversation(file, file.tell(), read)
    return None


class _FileDocuments:
    """An owner's documents in the file."""

    def __init__(self, file: BinaryIO, first: int, owner: str) -> None:
        self._file = file
        self._end = first
        self._owner = owner

    async def documents(self) -> AsyncIterator[list[Document]]:
        while chunk := await asyncio.to_thread(self._read):
            yield chunk

    async def end(self) -> int:
        """Return where the next part begins."""
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


class _FileConversation(SourceConversation):
    """A conversation in the file, from its first entry."""

    def __init__(self, file: BinaryIO, first: int, line: ConversationLine) -> None:
        self._file = file
        self._first = first
        self._log_end: int | None = None
        self._end: int | None = None
        self.record = line.conversation
        self.sessions = line.sessions
        # Entries read and stored together.
        self.chunk = CHUNK

    def belong_to(self, owner: str) -> None:
        """Derive the id of a named conversation for this owner: the same name has another id for each."""
        if self.record.name is not None:
            self.record = self.record.with_(id=conversation_key(self.record.name, owner=owner).id)

    async def log(self) -> AsyncIterator[list[Entry]]:
        place = self._first
        while True:
            entries, place = await asyncio.to_thread(self._read, place, Entry, self.chunk)
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
        """Return where the next part begins."""
        while self._end is None:
            async for _ in self.documents():
                pass
        return self._end

    def _read(self, place: int, kind: type[T], most: int) -> tuple[list[T], int]:
        """Return the lines of this kind from an offset, and where they end."""
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
    """Return the file, or a temporary copy if it is a pipe."""
    if file.seekable():
        return file
    spool = open_scratch()
    try:
        with _translate_errors():
            shutil.copyfileobj(file, spool)
            spool.seek(0)
    except BaseException:
        spool.close()
        raise
    return spool


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except StoreForeign as error:
        raise StoreForeign(f"the file cannot be imported: {error}") from None
    except OSError as error:
        raise StoreUnavailable(f"the export cannot be read: {error.strerror or error}") from error
