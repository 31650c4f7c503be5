"""An owner's exported folder: written to a draft and renamed when complete; verified before it is read."""

import hashlib
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import BinaryIO, Literal

import msgspec
from msgspec import Struct

from aforesaid._internal.scratch import ScratchFolder, ScratchPath
from aforesaid._internal.tasks import opened, to_the_end
from aforesaid.contracts import Backend, ConversationStore, audit_action
from aforesaid.errors import (
    Conflict,
    InvalidSetting,
    KeyUnavailable,
    StoreDamaged,
    StoreForeign,
    StoreUnavailable,
    shown,
)
from aforesaid.model.ids import new_id
from aforesaid.telemetry import describe, events
from aforesaid.transfer.archives import OwnerArchives
from aforesaid.transfer.archives.files import Archive, pack, unpack
from aforesaid.transfer.archives.moves import finish_interrupted
from aforesaid.transfer.conversations import Progress
from aforesaid.transfer.exports import export_store
from aforesaid.transfer.html_page import page
from aforesaid.transfer.imports import import_, renamed_ids, verify_one
from aforesaid.transfer.owner_scope import OwnerScope

log = logging.getLogger("aforesaid.transfer")

Folder = Path | ScratchFolder
# A permanent folder or a temporary one on a server, and the files in them.
AnyPath = Path | ScratchPath

VERSION = 1
_BLOCK = 1 << 20
LINES = "conversations.jsonl"
PAGE = "index.html"
MANIFEST = "manifest.json"
_ID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_BLOB = re.compile(rf"(archives/)?blobs/({_ID})/([0-9a-f]{{64}})", re.ASCII)
_ARCHIVE = re.compile(rf"archives/{_ID}\.jsonl", re.ASCII)


class File(Struct, frozen=True, kw_only=True):
    """A file of the folder."""

    path: str
    size: int
    sha256: str


class Manifest(Struct, frozen=True, kw_only=True):
    """The contents of a folder."""

    aforesaid: str = "owner"
    version: int = VERSION
    owner: str
    exported_at: datetime
    counts: dict[str, int]
    files: tuple[File, ...]
    archives: tuple[Archive, ...] = ()
    unreadable: tuple[str, ...] = ()
    """Conversations with archives that are damaged or need another key; the folder does not contain them."""


# Export


async def export_owner(
    scope: OwnerScope, folder: Folder, *, progress: Callable[[int], None] | None = None
) -> Manifest:
    """Write all data of the owner into a folder that is new or empty.

    `progress` is called with the number of conversations written so far.
    """
    scope = await scope.authoritative()
    if isinstance(folder, ScratchFolder):
        manifest = await _fill(scope, folder, progress)
    else:
        manifest = await _fill_draft(scope, folder, progress)
    await audit_action(scope.store, "export", count=sum(manifest.counts.values()))
    events.conversation_changed("exported", "all data of an owner were exported")
    return manifest


async def _fill_draft(scope: OwnerScope, folder: Path, progress: Callable[[int], None] | None) -> Manifest:
    """Fill a draft folder next to the target and rename it."""
    # File operations run to their end: a thread that outlives a cancellation would write into the removed
    # draft.
    draft = await to_the_end(begin_folder, folder)
    try:
        manifest = await _fill(scope, draft, progress)
        await to_the_end(finish_folder, draft, folder)
    except BaseException:
        await to_the_end(shutil.rmtree, draft, ignore_errors=True)
        raise
    return manifest


async def _fill(scope: OwnerScope, draft: Folder, progress: Callable[[int], None] | None) -> Manifest:
    exported_at = scope.store.now()
    if scope.archives is not None:  # or the folder would contain a conversation twice
        await finish_interrupted(scope.store, scope.archives, blobs=scope.blobs)
    counts = await _write_lines(scope, draft / LINES, progress)
    counts["blobs"] = await _write_blobs(scope, draft)
    archives, unreadable = await _write_archives(scope.archives, draft)
    await to_the_end(_write_page, draft, scope.owner, exported_at)
    manifest = Manifest(
        owner=scope.owner,
        exported_at=exported_at,
        counts=counts | {"archives": len(archives)},
        files=await to_the_end(_files, draft),
        archives=archives,
        unreadable=unreadable,
    )
    document = msgspec.json.format(msgspec.json.encode(manifest), indent=2)
    await to_the_end(_write, draft / MANIFEST, document)
    return manifest


async def _write_lines(
    scope: OwnerScope, path: AnyPath, progress: Callable[[int], None] | None
) -> dict[str, int]:
    async with opened(partial(create_file, path)) as file:
        report = await export_store(scope.owner, scope.store, file, progress=progress)
    return {
        "conversations": report.conversations,
        "messages": report.entries,
        "documents": report.documents,
    }


async def _write_blobs(scope: OwnerScope, draft: Folder) -> int:
    if scope.blobs is None:
        return 0
    count = 0
    for conversation_id in await scope.blobs.conversations():
        for sha256 in await scope.blobs.list(conversation_id):
            data = await scope.blobs.get(conversation_id, sha256)
            if data is not None:
                await to_the_end(_write, draft / f"blobs/{conversation_id}/{sha256}", data)
                count += 1
    return count


async def _write_archives(
    archives: OwnerArchives | None, draft: Folder
) -> tuple[tuple[Archive, ...], tuple[str, ...]]:
    """Return the archives written, and the ids of unreadable ones."""
    if archives is None:
        return (), ()
    written: list[Archive] = []
    unreadable = await archives.unreadable()
    for one in await archives.list():
        try:
            _, content = await archives.read(one.conversation_id)
        except (KeyUnavailable, StoreDamaged, StoreForeign) as error:
            log.warning("skipped an archive in the export: %s", describe(error))
            unreadable.append(one.conversation_id)
            continue
        await _write_archive(one.conversation_id, content, draft)
        written.append(one)
    return tuple(written), tuple(sorted(unreadable))


async def _write_archive(conversation_id: str, content: bytes, draft: Folder) -> None:
    lines, images = await to_the_end(unpack, content)
    await to_the_end(_write, draft / f"archives/{conversation_id}.jsonl", lines)
    for sha256, data in images.items():
        await to_the_end(_write, draft / f"archives/blobs/{conversation_id}/{sha256}", data)


def _write_page(draft: Folder, owner: str, exported_at: datetime) -> None:
    archived = [draft / name for name in _names(draft) if _ARCHIVE.fullmatch(name)]
    with create_file(draft / PAGE) as file:
        for piece in page(owner, exported_at, _lines_of(draft / LINES), _lines_of(*archived)):
            file.write(piece.encode(errors="replace"))  # messages may contain lone surrogates


def _lines_of(*paths: AnyPath) -> Iterator[bytes]:
    """Yield the lines of exports without their headers."""
    for path in paths:
        with path.open("rb") as lines:
            lines.readline()
            yield from lines


# Import


async def import_owner(scope: OwnerScope, folder: Folder, *, progress: Progress | None = None) -> Manifest:
    """Store a folder's contents for the owner. An altered folder changes nothing.

    Conversations and archives changed here are not overwritten; after all others are stored, `Conflict`
    names them.
    """
    scope = await scope.authoritative()
    manifest = await to_the_end(check_folder, folder)
    _check_destinations(scope, manifest)
    conflicts = await _read_lines(scope.store, folder, progress)
    await _read_blobs(scope, manifest, folder)
    conflicts += await _read_archives(scope, manifest, folder)
    if conflicts:
        raise Conflict("; ".join(conflicts))
    return manifest


def _check_destinations(scope: OwnerScope, manifest: Manifest) -> None:
    """Raise `InvalidSetting` if the folder contains data without a configured destination."""
    places = {
        "archives": ("archives", manifest.archives, scope.archives, "Retention"),
        "blobs": ("pictures", _blobs_in(manifest), scope.blobs, "ImageOptions"),
    }
    for field, (name, found, place, option) in places.items():
        if found and place is None:
            raise InvalidSetting(
                f"the folder contains {name}, which need a place: set `{field}` of `{option}`",
                field=field,
            )


async def _read_lines(store: ConversationStore, folder: Folder, progress: Progress | None) -> list[str]:
    """Import the conversations; return conflict messages."""
    async with opened(lambda: (folder / LINES).open("rb")) as file:
        try:
            await import_(file, _as_backend(store), progress=progress)
        except Conflict as error:
            return [str(error)]
    return []


async def _read_blobs(scope: OwnerScope, manifest: Manifest, folder: Folder) -> None:
    """Import the images of existing conversations; a sweep would remove others as orphans."""
    blobs = _blobs_in(manifest)
    if not blobs:
        return
    async with opened(lambda: (folder / LINES).open("rb")) as lines:
        ids = await renamed_ids(lines, scope.store.owner)
    for exported_id, files in groupby(blobs, key=lambda match: match[2]):
        conversation_id = ids.get(exported_id, exported_id)
        if await scope.store.get(conversation_id) is None:
            continue  # the conversation has expired
        for match in files:
            assert scope.blobs is not None
            data = await to_the_end((folder / match[0]).read_bytes)
            await scope.blobs.put(conversation_id, match[3], data)


def _blobs_in(manifest: Manifest) -> list[re.Match[str]]:
    """Return the images of conversations that are not archived."""
    return [match for file in manifest.files if (match := _BLOB.fullmatch(file.path)) and not match[1]]


async def _read_archives(scope: OwnerScope, manifest: Manifest, folder: Folder) -> list[str]:
    """Import the archives; return conflict messages."""
    conflicting: list[str] = []
    for one in manifest.archives:
        assert scope.archives is not None
        async with scope.archives.locked():
            local = await _compare_archive(one, scope.store, scope.archives)
            if local == "behind":
                await _read_archive(scope.archives, one, manifest, folder)
            elif local == "other":
                conflicting.append(one.conversation_id)
    if not conflicting:
        return []
    return [
        f"{len(conflicting)} of {len(manifest.archives)} archives were not imported, because these "
        f"conversations differ from those in the folder: {', '.join(conflicting)}"
    ]


async def _compare_archive(
    one: Archive, store: ConversationStore, archives: OwnerArchives
) -> Literal["behind", "same", "other"]:
    """Compare the local state of a conversation with an archive of the folder."""
    live = await store.get(one.conversation_id)
    try:
        local = live or await archives.get(one.conversation_id)
    except StoreForeign:
        return "other"
    # A conversation in the store is never replaced by an archive, even if it is older.
    if local is None or (live is None and local.revision < one.revision):
        return "behind"
    return "same" if local.revision == one.revision else "other"


async def _read_archive(archives: OwnerArchives, one: Archive, manifest: Manifest, folder: Folder) -> None:
    lines = await to_the_end((folder / _archive_path(one)).read_bytes)
    images = await to_the_end(_images_of, one, manifest, folder)
    content = await to_the_end(pack, lines, images)
    await archives.put(msgspec.structs.replace(one, owner=archives.key), content)


def _archive_path(archive: Archive) -> str:
    return f"archives/{archive.conversation_id}.jsonl"


def _images_of(archive: Archive, manifest: Manifest, folder: Folder) -> dict[str, bytes]:
    found = [match for file in manifest.files if (match := _BLOB.fullmatch(file.path)) and match[1]]
    return {
        match[3]: (folder / match[0]).read_bytes() for match in found if match[2] == archive.conversation_id
    }


def check_folder(folder: Folder) -> Manifest:
    """Return the manifest if it is complete and every file matches it. Blocks."""
    manifest = read_manifest(folder)
    for file in manifest.files:
        _check_file(folder, file)
    named = {file.path for file in manifest.files}
    for path in (LINES, *map(_archive_path, manifest.archives)):
        if path not in named:
            raise StoreDamaged(f"the manifest lacks a required file: {shown(path)}")
    for archive in manifest.archives:
        _check_archive(folder, archive)
    return manifest


def _check_archive(folder: Folder, archive: Archive) -> None:
    path = _archive_path(archive)
    try:
        with (folder / path).open("rb") as file:
            record = verify_one(file)
    except (StoreDamaged, StoreForeign) as error:
        raise StoreDamaged(f"{path} is not an archived conversation: {error}") from error
    if (record.id, record.revision) != (archive.conversation_id, archive.revision):
        raise StoreDamaged(f"{path} does not match the conversation in the manifest")


def read_manifest(folder: Folder) -> Manifest:
    """Return the manifest of a folder. Blocks."""
    try:
        manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    except OSError as error:
        raise StoreUnavailable(f"{folder} is not an exported folder: {error.strerror or error}") from error
    except msgspec.MsgspecError as error:
        raise StoreForeign(f"{folder / MANIFEST} is not the manifest of an export: {error}") from error
    if manifest.aforesaid != "owner" or manifest.version != VERSION:
        raise StoreForeign(f"{folder} is an export of an unsupported version ({manifest.version})")
    return manifest


def _check_file(folder: Folder, file: File) -> None:
    if not is_part_of_export(file.path):
        raise StoreDamaged(f"the manifest names an unexpected file: {shown(file.path)}")
    try:
        digest = _digest(folder / file.path)
    except OSError as error:
        raise StoreDamaged(f"{file.path} cannot be read: {error.strerror or error}") from error
    blob = _BLOB.fullmatch(file.path)
    # The name of an image is its digest too: messages refer to it by that name.
    if digest != file.sha256 or (blob and digest != blob[3]):
        raise StoreDamaged(f"{file.path} was altered: its SHA-256 does not match")


def is_part_of_export(path: str) -> bool:
    """Return whether an export may contain this path. It protects against paths outside the folder."""
    return path in (LINES, PAGE) or bool(_BLOB.fullmatch(path) or _ARCHIVE.fullmatch(path))


class _OneStore:
    """A backend that returns one store for every owner, because the name in the folder is ignored."""

    def __init__(self, store: ConversationStore) -> None:
        self._store = store

    def of(self, owner: str) -> ConversationStore:
        return self._store


def _as_backend(store: ConversationStore) -> Backend:
    return _OneStore(store)  # type: ignore[return-value]  # an import only uses `of`


# Files


def begin_folder(folder: Path) -> Path:
    """Create a draft folder next to the target; `finish_folder` renames it. Blocks."""
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InvalidSetting(
                f"{folder} already exists; an export needs a new or empty folder", field="folder"
            )
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = folder.with_name(f".{folder.name}.{new_id()}")
        draft.mkdir(mode=0o700)
    except OSError as error:
        raise StoreUnavailable(f"{folder} cannot be written: {error.strerror or error}") from error
    return draft


def finish_folder(draft: Path, folder: Path) -> None:
    """Rename the draft to the target. Blocks."""
    try:
        if folder.exists():
            folder.rmdir()
        draft.rename(folder)
    except OSError as error:
        raise StoreUnavailable(f"{folder} cannot be written: {error.strerror or error}") from error


def create_file(path: AnyPath) -> BinaryIO:
    """Create a file readable only by this user. Blocks."""
    if isinstance(path, ScratchPath):
        return path.create()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Set the mode at creation: a later chmod would leave the file readable for a moment.
        return os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb")
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be written: {error.strerror or error}") from error


def _write(path: AnyPath, data: bytes) -> None:
    with create_file(path) as file:
        try:
            file.write(data)
        except OSError as error:
            raise StoreUnavailable(f"{path} cannot be written: {error.strerror or error}") from error


def _files(draft: Folder) -> tuple[File, ...]:
    return tuple(
        File(path=name, size=size_of(draft / name), sha256=_digest(draft / name)) for name in _names(draft)
    )


def _names(draft: Folder) -> list[str]:
    if isinstance(draft, ScratchFolder):
        return draft.names()
    return sorted(path.relative_to(draft).as_posix() for path in draft.rglob("*") if path.is_file())


def size_of(path: AnyPath) -> int:
    """Return the size of a file in bytes. Blocks."""
    return path.size() if isinstance(path, ScratchPath) else path.stat().st_size


def _digest(path: AnyPath) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
