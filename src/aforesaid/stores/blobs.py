"""Blobs: bytes stored outside the log under their SHA-256, such as images.

A blob belongs to an owner and a conversation. The same image in two conversations is stored twice, so that
erasing one conversation never affects the other. A `BlobBackend` returns one `BlobStore` per owner; no method
of a store takes an owner. A backend belongs to one memory: `purge_blobs` removes every blob without a
conversation in that memory.
"""

import asyncio
import contextlib
import hashlib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from aforesaid._internal import files
from aforesaid._internal.arguments import validated
from aforesaid._internal.patterns import lazy_pattern
from aforesaid.contracts import Backend, Branchable, ConversationStore, capability
from aforesaid.errors import InvalidInput, InvalidSetting, StoreDamaged, StoreUnavailable, shown
from aforesaid.model.ids import is_uuid, parse_name, parse_uuid

_DIGEST = lazy_pattern(r"[0-9a-f]{64}", re.ASCII)


class BlobStore(Protocol):
    """One owner's blobs, by conversation."""

    async def put(self, conversation_id: str, sha256: str, data: bytes) -> None:
        """Store the bytes. Storing them again has no effect. Raise `InvalidInput` when `sha256` is not
        their digest."""
        ...

    async def get(self, conversation_id: str, sha256: str) -> bytes | None:
        """Return the bytes, or None. Raise `StoreDamaged` when the stored bytes do not match the digest."""
        ...

    async def list(self, conversation_id: str) -> "list_[str]":
        """Return the SHA-256 digests of the conversation's blobs, sorted."""
        ...

    async def delete(self, conversation_id: str) -> None:
        """Remove all blobs of the conversation. Removing none is not an error."""
        ...

    async def remove(self, conversation_id: str, sha256: str) -> None:
        """Remove one blob. A missing blob is not an error."""
        ...

    async def conversations(self) -> "list_[str]":
        """Return the ids of the conversations with blobs, sorted."""
        ...


class BlobBackend(Protocol):
    """Storage for the blobs of all owners of one memory."""

    def of(self, owner: str) -> BlobStore:
        """Return the blobs of one owner."""
        ...

    async def keys(self) -> list[str]:
        """Return the `owner_key` of every owner with blobs. Owner names are not stored with blobs."""
        ...

    def at(self, key: str) -> BlobStore:
        """Return the blobs of the owner with this key, for the sweep."""
        ...


# The built-in type, which the method `list` shadows.
list_ = list


def owner_key(owner: str) -> str:
    """Return the digest that identifies an owner's blobs. It is a valid file name for any owner name."""
    return hashlib.sha256(parse_name(owner, field="owner").encode()).hexdigest()


class InMemoryBlobs(BlobBackend):
    """Blobs in dictionaries. They end with the process."""

    def __init__(self) -> None:
        self.blobs_by_owner: dict[str, dict[str, dict[str, bytes]]] = {}

    def of(self, owner: str) -> "InMemoryBlobStore":
        return self.at(owner_key(owner))

    async def keys(self) -> list[str]:
        return sorted(key for key, blobs in self.blobs_by_owner.items() if blobs)

    def at(self, key: str) -> "InMemoryBlobStore":
        return InMemoryBlobStore(self.blobs_by_owner.setdefault(key, {}))


class InMemoryBlobStore(BlobStore):
    """One owner's part of `InMemoryBlobs`."""

    def __init__(self, blobs: dict[str, dict[str, bytes]]) -> None:
        self._blobs = blobs

    async def put(self, conversation_id: str, sha256: str, data: bytes) -> None:
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        await asyncio.to_thread(_check_bytes, sha256, data)
        self._blobs.setdefault(conversation_id, {})[sha256] = data

    async def get(self, conversation_id: str, sha256: str) -> bytes | None:
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        return self._blobs.get(conversation_id, {}).get(_digest(sha256))

    async def list(self, conversation_id: str) -> list_[str]:
        return sorted(self._blobs.get(parse_uuid(conversation_id, field="conversation_id"), {}))

    async def delete(self, conversation_id: str) -> None:
        self._blobs.pop(parse_uuid(conversation_id, field="conversation_id"), None)

    async def remove(self, conversation_id: str, sha256: str) -> None:
        blobs = self._blobs.get(parse_uuid(conversation_id, field="conversation_id"), {})
        blobs.pop(_digest(sha256), None)

    async def conversations(self) -> list_[str]:
        return sorted(self._blobs)


@validated
class FolderBlobs(BlobBackend):
    """Blobs as files `folder/owner key/conversation/sha256`, readable by this user only."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def of(self, owner: str) -> "FolderBlobStore":
        return self.at(owner_key(owner))

    async def keys(self) -> list[str]:
        return [name for name in await asyncio.to_thread(_names_in, self.folder) if _DIGEST.fullmatch(name)]

    def at(self, key: str) -> "FolderBlobStore":
        return FolderBlobStore(self.folder / _digest(key))


class FolderBlobStore(BlobStore):
    """One owner's part of `FolderBlobs`. File operations run on threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def put(self, conversation_id: str, sha256: str, data: bytes) -> None:
        await asyncio.to_thread(_write, self._of(conversation_id) / _digest(sha256), data)

    async def get(self, conversation_id: str, sha256: str) -> bytes | None:
        return await asyncio.to_thread(_read, self._of(conversation_id) / _digest(sha256))

    async def list(self, conversation_id: str) -> list_[str]:
        names = await asyncio.to_thread(_names_in, self._of(conversation_id))
        return [name for name in names if _DIGEST.fullmatch(name)]

    async def delete(self, conversation_id: str) -> None:
        await asyncio.to_thread(_remove, self._of(conversation_id))

    async def remove(self, conversation_id: str, sha256: str) -> None:
        await asyncio.to_thread(_remove_file, self._of(conversation_id) / _digest(sha256))

    async def conversations(self) -> list_[str]:
        return [name for name in await asyncio.to_thread(_names_in, self._folder) if is_uuid(name)]

    def _of(self, conversation_id: str) -> Path:
        return self._folder / parse_uuid(conversation_id, field="conversation_id")


def blobs_at(place: str | Path | BlobBackend) -> BlobBackend:
    """Return the blobs in a folder. Return a backend unchanged."""
    if not isinstance(place, str | Path):
        return place
    if not str(place) or "://" in str(place):
        raise InvalidSetting(
            f"blobs must be a folder or a BlobBackend; got {shown(place)}", field="blobs", value=place
        )
    return FolderBlobs(place)


async def copy_blobs(blobs: BlobStore, digests: Iterable[str], *, source: str, target: str) -> None:
    """Copy blobs of one conversation to another. Missing ones are left out."""
    for digest in digests:
        data = await blobs.get(source, digest)
        if data is not None:
            await blobs.put(target, digest, data)


# The sweep


async def purge_blobs(blobs: BlobBackend, backend: Backend) -> int:
    """Remove the blobs of missing conversations, for all owners; return the number of conversations.

    List blobs before owners and conversations, so that blobs written meanwhile are not removed. List all
    owners before removing the first blob.
    """
    conversations = {key: await blobs.at(key).conversations() for key in await blobs.keys()}
    if not conversations:
        return 0
    # The blobs' folders have digests as names, so match them with the owners of the store.
    stores = {owner_key(owner): backend.of(owner) async for owner in backend.owners()}
    return sum([await _purge(blobs.at(key), ids, stores.get(key)) for key, ids in conversations.items()])


async def purge_blobs_of(blobs: BlobStore, store: ConversationStore) -> int:
    """Remove one owner's blobs of missing conversations; return the number of conversations."""
    return await _purge(blobs, await blobs.conversations(), store)


async def _purge(blobs: BlobStore, conversation_ids: list[str], store: ConversationStore | None) -> int:
    removed = 0
    stored = None if store is None else await store.authoritative()
    branches = None if stored is None else capability(stored, Branchable)
    if branches is not None:
        stored = branches.including_expired()  # branches may show images of an expired conversation
    for conversation_id in conversation_ids:
        # Check each conversation right before its removal: it may be restored while others are removed.
        if stored is None or await stored.get(conversation_id) is None:
            await blobs.delete(conversation_id)
            removed += 1
    return removed


# Checks


def _digest(sha256: object) -> str:
    if not isinstance(sha256, str) or not _DIGEST.fullmatch(sha256):
        raise InvalidInput(
            f"sha256 must be 64 lower-case hexadecimal digits; got {shown(sha256)}",
            field="sha256",
            value=sha256,
        )
    return sha256


def _check_bytes(sha256: str, data: bytes) -> None:
    if hashlib.sha256(data).hexdigest() != _digest(sha256):
        raise InvalidInput(
            f"sha256 must be the digest of the data; got {shown(sha256)}", field="sha256", value=sha256
        )


# Files


def _write(file: Path, data: bytes) -> None:
    _check_bytes(file.name, data)
    try:
        files.make_folder(file.parent)
        files.replace(file, data)
    except OSError as error:
        raise StoreUnavailable(f"the blob {file} cannot be written: {error}") from error


def _read(file: Path) -> bytes | None:
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreUnavailable(f"the blob {file} cannot be read: {error}") from error
    if hashlib.sha256(data).hexdigest() != file.name:
        raise StoreDamaged(f"the blob {file} is damaged: its content does not match its digest")
    return data


def _names_in(folder: Path) -> list[str]:
    """Return the names in a folder, without drafts."""
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
    import shutil  # slow to import and rarely needed

    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreUnavailable(f"the blobs in {folder} cannot be removed: {error}") from error
    with contextlib.suppress(OSError):
        folder.parent.rmdir()  # removes the owner's folder if this was the last conversation; fails otherwise
