"""Blobs: bytes kept beside the log, by their SHA-256. Below: ids, contracts. Above: pictures, the manager.

A picture is kept under its owner and its conversation. The same picture in two conversations is
kept twice, so that what a conversation holds can be erased with it, without asking who else has it.
A `BlobBackend` hands out one `BlobStore` per owner, as a store's backend does, and nothing on that
takes an owner. It belongs to one memory: `purge_blobs` removes what that memory has no use for.
"""

import asyncio
import contextlib
import hashlib
import os
import re
from pathlib import Path
from typing import Protocol

from aforesaid._internal.arguments import validated
from aforesaid.contracts import Backend, ConversationStore
from aforesaid.errors import InvalidInput, InvalidSetting, StoreDamaged, StoreUnavailable, shown
from aforesaid.model.ids import is_uuid, new_id, parse_name, parse_uuid

_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII).fullmatch


class BlobStore(Protocol):
    """One owner's blobs, by conversation."""

    async def put(self, conversation_id: str, sha256: str, data: bytes) -> None:
        """Keep these bytes. Kept twice they are kept once. `sha256` must be theirs."""
        ...

    async def get(self, conversation_id: str, sha256: str) -> bytes | None:
        """The bytes, or None. Raises `StoreDamaged` when they are not what was put."""
        ...

    async def list(self, conversation_id: str) -> "list_[str]":
        """The SHA-256 of each of the conversation's blobs, sorted."""
        ...

    async def delete(self, conversation_id: str) -> None:
        """Remove all of the conversation's blobs. What is not there is no error."""
        ...

    async def remove(self, conversation_id: str, sha256: str) -> None:
        """Remove one blob. What is not there is no error."""
        ...

    async def conversations(self) -> "list_[str]":
        """The conversations that have any, sorted."""
        ...


class BlobBackend(Protocol):
    """A place where blobs are kept, for all owners of one memory."""

    def of(self, owner: str) -> BlobStore:
        """The blobs of one owner."""
        ...

    async def keys(self) -> list[str]:
        """The `owner_key` of everybody who has any. Names are not kept with blobs."""
        ...

    def at(self, key: str) -> BlobStore:
        """The blobs of the owner with this key: for the sweep."""
        ...


list_ = list
"""The built-in, where the method `list` hides it."""


def owner_key(owner: str) -> str:
    """What an owner's blobs are kept under: no name in a path, and any name makes a valid one."""
    return hashlib.sha256(parse_name(owner, field="owner").encode()).hexdigest()


class InMemoryBlobs(BlobBackend):
    """Blobs in dictionaries. Nothing outlives it."""

    def __init__(self) -> None:
        self.shelves: dict[str, dict[str, dict[str, bytes]]] = {}

    def of(self, owner: str) -> "InMemoryBlobStore":
        return self.at(owner_key(owner))

    async def keys(self) -> list[str]:
        return sorted(key for key, owner_data in self.shelves.items() if owner_data)

    def at(self, key: str) -> "InMemoryBlobStore":
        return InMemoryBlobStore(self.shelves.setdefault(key, {}))


class InMemoryBlobStore(BlobStore):
    """One owner's part of `InMemoryBlobs`."""

    def __init__(self, owner_data: dict[str, dict[str, bytes]]) -> None:
        self._shelf = owner_data

    async def put(self, conversation_id: str, sha256: str, data: bytes) -> None:
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        await asyncio.to_thread(_check_bytes, sha256, data)
        self._shelf.setdefault(conversation_id, {})[sha256] = data

    async def get(self, conversation_id: str, sha256: str) -> bytes | None:
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        return self._shelf.get(conversation_id, {}).get(_digest(sha256))

    async def list(self, conversation_id: str) -> list_[str]:
        return sorted(self._shelf.get(parse_uuid(conversation_id, field="conversation_id"), {}))

    async def delete(self, conversation_id: str) -> None:
        self._shelf.pop(parse_uuid(conversation_id, field="conversation_id"), None)

    async def remove(self, conversation_id: str, sha256: str) -> None:
        held = self._shelf.get(parse_uuid(conversation_id, field="conversation_id"), {})
        held.pop(_digest(sha256), None)

    async def conversations(self) -> list_[str]:
        return sorted(self._shelf)


@validated
class FolderBlobs(BlobBackend):
    """Blobs as files: `folder/owner's key/conversation/sha256`, readable by this user alone."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def of(self, owner: str) -> "FolderBlobStore":
        return self.at(owner_key(owner))

    async def keys(self) -> list[str]:
        return [name for name in await asyncio.to_thread(_names_in, self.folder) if _DIGEST(name)]

    def at(self, key: str) -> "FolderBlobStore":
        return FolderBlobStore(self.folder / _digest(key))


class FolderBlobStore(BlobStore):
    """One owner's part of `FolderBlobs`. All work on files is done off the event loop."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def put(self, conversation_id: str, sha256: str, data: bytes) -> None:
        await asyncio.to_thread(_write, self._of(conversation_id) / _digest(sha256), data)

    async def get(self, conversation_id: str, sha256: str) -> bytes | None:
        return await asyncio.to_thread(_read, self._of(conversation_id) / _digest(sha256))

    async def list(self, conversation_id: str) -> list_[str]:
        names = await asyncio.to_thread(_names_in, self._of(conversation_id))
        return [name for name in names if _DIGEST(name)]

    async def delete(self, conversation_id: str) -> None:
        await asyncio.to_thread(_remove, self._of(conversation_id))

    async def remove(self, conversation_id: str, sha256: str) -> None:
        await asyncio.to_thread(_remove_file, self._of(conversation_id) / _digest(sha256))

    async def conversations(self) -> list_[str]:
        return [name for name in await asyncio.to_thread(_names_in, self._folder) if is_uuid(name)]

    def _of(self, conversation_id: str) -> Path:
        return self._folder / parse_uuid(conversation_id, field="conversation_id")


def blobs_at(place: str | Path | BlobBackend) -> BlobBackend:
    """The blobs in a folder; a backend is taken as it is."""
    if not isinstance(place, str | Path):
        return place
    if not str(place) or "://" in str(place):
        raise InvalidSetting(
            f"blobs must be a folder or a BlobBackend; got {shown(place)}", field="blobs", value=place
        )
    return FolderBlobs(place)


# The sweep


async def purge_blobs(blobs: BlobBackend, backend: Backend) -> int:
    """Remove the blobs of conversations that are gone, whoever they belonged to; returns how many.

    Blobs are listed before owners and conversations are: what comes while this runs is left alone. Every
    owner is known before the first blob is removed.
    """
    held = {key: await blobs.at(key).conversations() for key in await blobs.keys()}
    if not held:
        return 0
    stores = {owner_key(owner): backend.of(owner) async for owner in backend.owners()}
    return sum([await _purge(blobs.at(key), kept, stores.get(key)) for key, kept in held.items()])


async def purge_blobs_of(blobs: BlobStore, store: ConversationStore) -> int:
    """The same for one owner."""
    return await _purge(blobs, await blobs.conversations(), store)


async def _purge(blobs: BlobStore, held: list[str], store: ConversationStore | None) -> int:
    gone = 0
    whole = None if store is None else await store.authoritative()
    for conversation_id in held:
        # Asked for one by one: a conversation may come back while others are removed.
        if whole is None or await whole.get(conversation_id) is None:
            await blobs.delete(conversation_id)
            gone += 1
    return gone


# Checks


def _digest(sha256: object) -> str:
    if not isinstance(sha256, str) or not _DIGEST(sha256):
        raise InvalidInput(
            f"sha256 must be 64 lower-case hexadecimal digits; got {shown(sha256)}",
            field="sha256",
            value=sha256,
        )
    return sha256


def _check_bytes(sha256: str, data: bytes) -> None:
    if hashlib.sha256(data).hexdigest() != _digest(sha256):
        raise InvalidInput(
            f"sha256 must be that of the bytes; got {shown(sha256)}", field="sha256", value=sha256
        )


# Files


def _write(file: Path, data: bytes) -> None:
    """Whole or not at all: to a file beside it, to the disk, then into its place."""
    _check_bytes(file.name, data)
    draft = file.with_name(f".{file.name}.{new_id()}")
    try:
        _make_folder(file.parent)
        try:
            _write_new(draft, data)
            draft.replace(file)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        _sync_folder(file.parent)
    except OSError as error:
        raise StoreUnavailable(f"the blob {file} cannot be written: {error}") from error


def _write_new(file: Path, data: bytes) -> None:
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
        opened.write(data)
        opened.flush()
        os.fsync(opened.fileno())


def _make_folder(folder: Path) -> None:
    """The folder and those above it, each on the disk before something is put into it."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":
        return  # folders cannot be opened there, and need not be
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _read(file: Path) -> bytes | None:
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreUnavailable(f"the blob {file} cannot be read: {error}") from error
    if hashlib.sha256(data).hexdigest() != file.name:
        raise StoreDamaged(f"the blob {file} is damaged: its content is not what its name says")
    return data


def _names_in(folder: Path) -> list[str]:
    """The names in a folder, those of drafts left out."""
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreUnavailable(f"the blobs in {folder} cannot be listed: {error}") from error


def _remove_file(file: Path) -> None:
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        raise StoreUnavailable(f"the blob {file} cannot be removed: {error}") from error


def _remove(folder: Path) -> None:
    import shutil  # slow to import, and seldom needed

    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreUnavailable(f"the blobs in {folder} cannot be removed: {error}") from error
    with contextlib.suppress(OSError):
        folder.parent.rmdir()  # the owner's last conversation; not empty otherwise
