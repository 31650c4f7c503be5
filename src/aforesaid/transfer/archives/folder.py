"""The archives of all owners in a folder, and of one owner.

A file lock prevents two processes from archiving for one owner at once. The operating system releases it
when a process is killed.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

import msgspec
from msgspec.structs import replace

from aforesaid._internal.arguments import validated
from aforesaid._internal.files import Lock
from aforesaid._internal.tasks import to_the_end
from aforesaid.errors import (
    ArchiveNotFound,
    InvalidSetting,
    KeyUnavailable,
    StoreDamaged,
    StoreForeign,
    StoreUnavailable,
)
from aforesaid.model.ids import parse_uuid
from aforesaid.stores.blobs import owner_key
from aforesaid.telemetry import describe
from aforesaid.transfer.archives import files
from aforesaid.transfer.archives.files import Archive

log = logging.getLogger("aforesaid.archives")

# Maximum seconds to wait for another process that archives for the same owner.
LOCK_SECONDS = 60.0
LOCK_PAUSE = 0.01

T = TypeVar("T")


class Sealer(Protocol):
    """Encrypts archives."""

    async def seal(self, owner: str, data: bytes, *, bound: bytes) -> tuple[dict[str, str], bytes]:
        """Return the parameters for the file's head, and the data encrypted and bound to that head."""
        ...

    async def unseal(self, owner: str, parameters: Mapping[str, str], data: bytes, *, bound: bytes) -> bytes:
        """Return the decrypted data. Raise `StoreDamaged` if data, head or key do not match."""
        ...


@runtime_checkable
class RewrappingSealer(Protocol):
    """A sealer with file keys wrapped by a master key that may change."""

    async def rewrap(self, parameters: Mapping[str, str], *, bound: bytes) -> dict[str, str] | None:
        """Return new parameters with the file's key wrapped by the current master key.

        Return None if it is wrapped by that key already or by no master key. Raise `KeyUnavailable` if the
        wrapping master key is missing.
        """
        ...


@validated
class ArchiveFolder:
    """Archives of all owners of one memory, in a folder readable only by this user."""

    def __init__(self, folder: str | Path, *, sealer: Sealer | None = None) -> None:
        if not str(folder) or "://" in str(folder):
            raise InvalidSetting(f"archives must be a folder; got {folder!r}", field="archives", value=folder)
        self.folder = Path(folder)
        self.sealer = sealer

    def __fspath__(self) -> str:
        return str(self.folder)

    def of(self, owner: str) -> "OwnerArchives":
        return OwnerArchives(self.folder, owner, self.sealer)

    async def remove_copies(
        self, owner: str, conversation_id: str | None, *, until: datetime | None = None
    ) -> Mapping[str, int]:
        """Permanently remove the archives of an owner or of one conversation."""
        archives = self.of(owner)
        # `forget` takes the lock itself; a moment or a whole owner needs it around several files.
        if conversation_id is not None and until is None:
            return {"archives": await archives.forget(conversation_id)}
        async with archives.locked():
            if until is not None:
                return {"archives": await archives.delete_until(until, conversation_id)}
            return {"archives": await asyncio.to_thread(files.remove_folder, archives.folder)}

    async def owners(self) -> "list_[str | None]":
        """Return every owner with archives, including those without other data. For operators.

        Only the files contain names: None stands for an owner whose files cannot be decrypted here.
        """
        return [await self._name_of(key) for key in await asyncio.to_thread(files.owner_keys, self.folder)]

    async def _name_of(self, key: str) -> str | None:
        archives = OwnerArchives(self.folder, key, self.sealer, key=key)
        for one in await archives.list():
            with contextlib.suppress(ArchiveNotFound, KeyUnavailable, StoreDamaged, StoreForeign):
                _, content = await archives.read(one.conversation_id)
                lines, _ = await asyncio.to_thread(files.unpack, content)
                name = files.owner_in(lines)
                if name is not None and owner_key(name) == key:
                    return name
        return None

    async def rewrap(self, owner: str | None = None) -> tuple[int, int]:
        """Wrap the keys of one owner's archives, or of all, with the current master key.

        Return how many were rewrapped, and how many need another master key or are unreadable.
        """
        if not isinstance(self.sealer, RewrappingSealer):
            return 0, 0
        every = await asyncio.to_thread(files.owner_keys, self.folder)
        keys = every if owner is None else [key for key in every if key == owner_key(owner)]
        counts = [await OwnerArchives(self.folder, key, self.sealer, key=key).rewrap() for key in keys]
        return sum(done for done, _ in counts), sum(remaining for _, remaining in counts)

    async def delete_older(self, moment: datetime) -> int:
        """Remove archives of conversations last active before a moment; return how many."""
        return await asyncio.to_thread(files.delete_older, self.folder, moment)


class OwnerArchives:
    """One owner's archives. File operations run on threads."""

    def __init__(self, folder: Path, owner: str, sealer: Sealer | None, *, key: str = "") -> None:
        self.owner = owner
        self.key = key or owner_key(owner)
        self.folder = folder / self.key
        self._lock_file = folder / f".{self.key}.lock"
        self._sealer = sealer

    def file(self, conversation_id: str) -> Path:
        return self.folder / f"{parse_uuid(conversation_id, field='conversation_id')}{files.SUFFIX}"

    async def list(self) -> "list_[Archive]":
        """Return all archives, most recently active first."""
        found = await asyncio.to_thread(files.list_archives, self.folder)
        return sorted(found, key=lambda archive: archive.last_activity, reverse=True)

    async def unreadable(self) -> "list_[str]":
        """Return the names of unreadable archives."""
        return [file.stem for file in await asyncio.to_thread(files.unreadable_files, self.folder)]

    async def get(self, conversation_id: str) -> Archive | None:
        """Return an archive's head, or None."""
        return await asyncio.to_thread(files.read_head, self.file(conversation_id))

    async def count(self, conversation_id: str | None = None) -> int:
        """Return the number of archives, of all conversations or one, without opening them."""
        name = "*" if conversation_id is None else self.file(conversation_id).stem
        return await asyncio.to_thread(files.count_files, self.folder, name)

    async def put(self, archive: Archive, content: bytes) -> Archive:
        """Write an archive. On return it is on disk and verified."""
        # The seal authenticates the head: with another first line, the content does not open.
        bare = files.unsealed_head(archive)
        parameters: dict[str, str] | None = None
        payload = content
        if self._sealer is not None:
            parameters, payload = await self._sealer.seal(
                self.owner, content, bound=msgspec.json.encode(bare)
            )
        digest = await asyncio.to_thread(files.sha256_of, payload)
        whole = replace(bare, sealed=parameters, size=len(payload), sha256=digest)
        file = self.file(archive.conversation_id)
        await asyncio.to_thread(files.write, file, msgspec.json.encode(whole) + b"\n" + payload)
        # Read it back: the caller removes the conversation from the store next.
        await asyncio.to_thread(files.read, file, self.key)
        return whole

    async def read(self, conversation_id: str) -> tuple[Archive, bytes]:
        """Return an archive and its content. Raise `ArchiveNotFound`, or `StoreDamaged` if it was altered."""
        archive, payload = await asyncio.to_thread(files.read, self.file(conversation_id), self.key)
        if archive.sealed is None:
            return archive, payload
        if self._sealer is None:
            raise StoreForeign(f"the archive of {archive.conversation_id} is sealed; set a key to open it")
        bound = msgspec.json.encode(files.unsealed_head(archive))
        return archive, await self._sealer.unseal(self.owner, archive.sealed, payload, bound=bound)

    async def rewrap(self) -> tuple[int, int]:
        """Rewrap this owner's archives, like `ArchiveFolder.rewrap`. Only the first line of each file
        changes.
        """
        done = 0
        async with self.locked():
            remaining = len(await self.unreadable())
            for one in await self.list():
                try:
                    done += await self._rewrap_one(one.conversation_id)
                except (KeyUnavailable, StoreDamaged) as error:
                    log.warning(
                        "rewrapping the key of archive %s failed: %s", one.conversation_id, describe(error)
                    )
                    remaining += 1
        return done, remaining

    async def _rewrap_one(self, conversation_id: str) -> bool:
        assert isinstance(self._sealer, RewrappingSealer)
        file = self.file(conversation_id)
        archive, payload = await asyncio.to_thread(files.read, file, self.key)
        bound = msgspec.json.encode(files.unsealed_head(archive))
        parameters = (
            None if archive.sealed is None else await self._sealer.rewrap(archive.sealed, bound=bound)
        )
        if parameters is None:
            return False
        # Only the wrapped key changes. The payload, sealed with the same file key, keeps its digest.
        head = msgspec.json.encode(replace(archive, sealed=parameters))
        await asyncio.to_thread(files.write, file, head + b"\n" + payload)
        return True

    async def delete(self, conversation_id: str) -> int:
        """Remove an archive and drafts left by killed processes; return the number of archives removed."""
        return await asyncio.to_thread(files.delete, self.file(conversation_id))

    async def forget(self, conversation_id: str) -> int:
        """Remove an archive under the owner's lock, after any archiving or restoring of it."""
        async with self.locked():
            return await self.delete(conversation_id)

    async def delete_until(self, until: datetime, conversation_id: str | None = None) -> int:
        """Remove archives of conversations created or archived up to a moment; return how many."""
        removed = 0
        if conversation_id is None:
            # An unreadable head has no dates. The erasure must not leave the file behind.
            removed = await asyncio.to_thread(files.delete_unreadable, self.folder)
        for one in await self.list():
            if conversation_id not in (None, one.conversation_id):
                continue
            if one.archived_at <= until or await self._created_at(one) <= until:
                removed += await self.delete(one.conversation_id)
        return removed

    async def _created_at(self, archive: Archive) -> datetime:
        """Return when the conversation was created. An unreadable archive counts as the oldest."""
        try:
            _, content = await self.read(archive.conversation_id)
            lines, _ = await asyncio.to_thread(files.unpack, content)
            return files.created_at_in(lines)
        except (KeyUnavailable, StoreDamaged, StoreForeign):
            return datetime.min.replace(tzinfo=UTC)

    @contextlib.asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Exclude other processes on this machine from this owner's archives."""
        lock = Lock(self._lock_file)
        deadline = time.monotonic() + LOCK_SECONDS
        try:
            # Polling, because a thread that waits in `flock` cannot be cancelled. To the end, because a lock
            # acquired after a cancellation would never be released.
            while not await to_the_end(files.acquire, lock, self._lock_file.parent):
                if time.monotonic() > deadline:
                    raise StoreUnavailable(
                        f"another process has held the owner's archive lock for {LOCK_SECONDS:g} seconds"
                    )
                await asyncio.sleep(LOCK_PAUSE)
            yield
        finally:
            await to_the_end(lock.release)


def archive_folder(folder: str, key_file: str = "") -> ArchiveFolder:
    """Return the archive folder. With a key file, archives are sealed with the passphrase in it."""
    if not key_file:
        return ArchiveFolder(folder)
    from aforesaid.encryption import PassphraseSealer

    try:
        passphrase = Path(key_file).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSetting(
            f"the key file {key_file} cannot be read: {error}", field="archive_key_file"
        ) from None
    return ArchiveFolder(folder, sealer=PassphraseSealer(passphrase))


# The built-in `list`, which the method `list` shadows.
list_ = list
