"""Archives: a conversation moves out of the store into a file of its own, and back, as it was.

    folder/owner's key/conversation.archive

A file is one line of JSON, which says what it is without saying what was said, and after it a
compressed tar: `conversation.jsonl`, in the form of an export, and `blobs/` with the pictures. It may be
sealed. `docs/reference/archives.md` is this form for readers. The file is on the disk, and proven, before
the conversation leaves the store; a lock keeps two from archiving for one owner at once, and the
operating system lets go of it when a process is killed. Below: blobs, moving. Above: the manager, the sweep.
"""

import asyncio
import contextlib
import hashlib
import io
import logging
import os
import time
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from aforesaid._internal.arguments import validated
from aforesaid._internal.threads import finished, to_the_end
from aforesaid.contracts import ConversationStore
from aforesaid.errors import (
    ArchiveNotFound,
    ConversationNotFound,
    InvalidSetting,
    KeyUnavailable,
    RevisionConflict,
    StoreDamaged,
    StoreForeign,
    StoreUnavailable,
)
from aforesaid.model.conversations import Conversation, expiry, is_expired
from aforesaid.model.ids import new_id, parse_uuid
from aforesaid.stores.blobs import BlobStore, owner_key
from aforesaid.telemetry import describe

if TYPE_CHECKING:
    from aforesaid._internal.file_locks import Lock

log = logging.getLogger("aforesaid.archives")

VERSION = 1
SUFFIX = ".archive"
LOG = "conversation.jsonl"
LOCK_SECONDS = 60.0
"""How long to wait for somebody else who archives for the same owner."""
LOCK_PAUSE = 0.01

T = TypeVar("T")


class Sealer(Protocol):
    """Keeps what an archive holds from everybody without the key."""

    async def seal(self, owner: str, data: bytes, *, bound: bytes) -> tuple[dict[str, str], bytes]:
        """The data sealed, bound to what the head of the file says; and how, for the head."""
        ...

    async def unseal(self, owner: str, how: Mapping[str, str], data: bytes, *, bound: bytes) -> bytes:
        """What `seal` was given. Raises `StoreDamaged` when it is not that, or the key is another."""
        ...


@runtime_checkable
class Rewrapping(Protocol):
    """A sealer whose keys a master key wraps, which may change."""

    async def rewrap(self, how: Mapping[str, str], *, bound: bytes) -> dict[str, str] | None:
        """What the head says once the current master key wraps the file's key; None when that is so already,
        or when no master key does. Raises `KeyUnavailable` without the master key that does."""
        ...


class Archive(Struct, frozen=True, kw_only=True):
    """What an archive is, without what it says: the first line of its file."""

    aforesaid: str = "archive"
    version: int = VERSION
    conversation_id: str
    owner: str
    """The SHA-256 of the owner's name."""
    archived_at: datetime
    last_activity: datetime
    revision: int
    messages: int
    documents: int
    blobs: int
    compression: str = "xz"
    sealed: dict[str, str] | None = None
    size: int = 0
    """Bytes after the first line."""
    sha256: str = ""
    """Of these bytes."""


@validated
class ArchiveFolder:
    """Archives of all owners in a folder that belongs to one memory, readable by this user alone."""

    def __init__(self, folder: str | Path, *, sealer: Sealer | None = None) -> None:
        if not str(folder) or "://" in str(folder):
            raise InvalidSetting(f"archives must be a folder; got {folder!r}", field="archives", value=folder)
        self.folder = Path(folder)
        self.sealer = sealer

    def of(self, owner: str) -> "OwnerArchives":
        return OwnerArchives(self.folder, owner, self.sealer)

    async def remove_copies(
        self, owner: str, conversation_id: str | None, *, until: datetime | None = None
    ) -> Mapping[str, int]:
        """Remove the archives of an owner, or of one conversation, for good."""
        archives = self.of(owner)
        if conversation_id is not None and until is None:
            return {"archives": await archives.forget(conversation_id)}
        async with archives.locked():
            if until is not None:
                return {"archives": await archives.delete_made(until, conversation_id)}
            return {"archives": await asyncio.to_thread(_remove_folder, archives.folder)}

    async def owners(self) -> "list_[str | None]":
        """Everybody who has archives, also those who have nothing else any more. For operators.

        A name is only inside a file: None stands for somebody whose files cannot be read here.
        """
        return [await self._name_of(key) for key in await asyncio.to_thread(_owner_keys, self.folder)]

    async def _name_of(self, key: str) -> str | None:
        archives = OwnerArchives(self.folder, key, self.sealer, key=key)
        for one in await archives.list():
            with contextlib.suppress(ArchiveNotFound, KeyUnavailable, StoreDamaged, StoreForeign):
                _, content = await archives.read(one.conversation_id)
                lines, _ = await asyncio.to_thread(unpacked, content)
                name = _owner_in(lines)
                if name is not None and owner_key(name) == key:
                    return name
        return None

    async def rewrap(self, owner: str | None = None) -> tuple[int, int]:
        """Wrap the keys of one owner's archives, or of everybody's, by the current master key.

        Returns how many were wrapped anew, and how many still need another master key or cannot be read.
        """
        if not isinstance(self.sealer, Rewrapping):
            return 0, 0
        every = await asyncio.to_thread(_owner_keys, self.folder)
        keys = every if owner is None else [key for key in every if key == owner_key(owner)]
        counts = [await OwnerArchives(self.folder, key, self.sealer, key=key).rewrap() for key in keys]
        return sum(done for done, _ in counts), sum(left for _, left in counts)

    async def delete_older(self, moment: datetime) -> int:
        """Remove archives of conversations that were last active before a moment; returns how many."""
        return await asyncio.to_thread(_delete_older, self.folder, moment)


class OwnerArchives:
    """One owner's archives. All work on files is done off the event loop."""

    def __init__(self, folder: Path, owner: str, sealer: Sealer | None, *, key: str = "") -> None:
        self.owner = owner
        self.key = key or owner_key(owner)
        self.folder = folder / self.key
        self._lock_file = folder / f".{self.key}.lock"
        self._sealer = sealer

    def file(self, conversation_id: str) -> Path:
        return self.folder / f"{parse_uuid(conversation_id, field='conversation_id')}{SUFFIX}"

    async def list(self) -> "list_[Archive]":
        """What is archived, the most recently active first."""
        found = await asyncio.to_thread(_list, self.folder)
        return sorted(found, key=lambda archive: archive.last_activity, reverse=True)

    async def unreadable(self) -> "list_[str]":
        """The names of archives that are there, but cannot be read."""
        return [file.stem for file in await asyncio.to_thread(_unreadable, self.folder)]

    async def get(self, conversation_id: str) -> Archive | None:
        """What is known of an archive, without opening it."""
        return await asyncio.to_thread(_head, self.file(conversation_id))

    async def count(self, conversation_id: str | None = None) -> int:
        """How many archives there are, or whether there is one of this conversation, without opening any."""
        name = "*" if conversation_id is None else self.file(conversation_id).stem
        return await asyncio.to_thread(_count, self.folder, name)

    async def put(self, archive: Archive, content: bytes) -> Archive:
        """Write an archive: on the disk, under its name, and proven, when this returns."""
        bare = _bare(archive)
        how: dict[str, str] | None = None
        payload = content
        if self._sealer is not None:
            how, payload = await self._sealer.seal(self.owner, content, bound=msgspec.json.encode(bare))
        digest = await asyncio.to_thread(_sha256, payload)
        whole = replace(bare, sealed=how, size=len(payload), sha256=digest)
        file = self.file(archive.conversation_id)
        await asyncio.to_thread(_write, file, msgspec.json.encode(whole) + b"\n" + payload)
        await asyncio.to_thread(_read, file, self.key)
        return whole

    async def read(self, conversation_id: str) -> tuple[Archive, bytes]:
        """An archive and its content. Raises `ArchiveNotFound`, and `StoreDamaged` when it was altered."""
        archive, payload = await asyncio.to_thread(_read, self.file(conversation_id), self.key)
        if archive.sealed is None:
            return archive, payload
        if self._sealer is None:
            raise StoreForeign(f"the archive of {archive.conversation_id} is sealed: it needs a key")
        bound = msgspec.json.encode(_bare(archive))
        return archive, await self._sealer.unseal(self.owner, archive.sealed, payload, bound=bound)

    async def rewrap(self) -> tuple[int, int]:
        """As `ArchiveFolder.rewrap`, for this owner: of each file only the first line changes."""
        done = 0
        async with self.locked():
            left = len(await self.unreadable())
            for one in await self.list():
                try:
                    done += await self._rewrapped(one.conversation_id)
                except (KeyUnavailable, StoreDamaged) as error:
                    log.warning(
                        "the key of archive %s stays as it is: %s", one.conversation_id, describe(error)
                    )
                    left += 1
        return done, left

    async def _rewrapped(self, conversation_id: str) -> bool:
        assert isinstance(self._sealer, Rewrapping)
        file = self.file(conversation_id)
        archive, payload = await asyncio.to_thread(_read, file, self.key)
        bound = msgspec.json.encode(_bare(archive))
        how = None if archive.sealed is None else await self._sealer.rewrap(archive.sealed, bound=bound)
        if how is None:
            return False
        head = msgspec.json.encode(replace(archive, sealed=how))
        await asyncio.to_thread(_write, file, head + b"\n" + payload)
        return True

    async def delete(self, conversation_id: str) -> int:
        """Remove an archive, and what a killed process left of one; returns how many there were."""
        return await asyncio.to_thread(_delete, self.file(conversation_id))

    async def forget(self, conversation_id: str) -> int:
        """The same, after whoever is archiving or restoring it."""
        async with self.locked():
            return await self.delete(conversation_id)

    async def delete_made(self, until: datetime, conversation_id: str | None = None) -> int:
        """Remove archives of conversations, or of one, that were there at a moment; returns how many there
        were."""
        gone = await asyncio.to_thread(_delete_unreadable, self.folder) if conversation_id is None else 0
        for one in await self.list():
            if conversation_id not in (None, one.conversation_id):
                continue
            if one.archived_at <= until or await self._made_at(one) <= until:
                gone += await self.delete(one.conversation_id)
        return gone

    async def _made_at(self, archive: Archive) -> datetime:
        """When the conversation was made. What cannot be read counts as older than all that is asked for."""
        try:
            _, content = await self.read(archive.conversation_id)
            lines, _ = await asyncio.to_thread(unpacked, content)
            return msgspec.json.decode(lines.split(b"\n", 2)[1], type=_Owned).conversation.created_at
        except (IndexError, msgspec.MsgspecError, KeyUnavailable, StoreDamaged, StoreForeign):
            return datetime.min.replace(tzinfo=UTC)

    @contextlib.asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Nobody else on this machine archives, restores or removes archives of this owner meanwhile."""
        from aforesaid._internal.file_locks import Lock

        lock = Lock(self._lock_file)
        deadline = time.monotonic() + LOCK_SECONDS
        try:
            while not await to_the_end(_acquired, lock, self._lock_file.parent):
                if time.monotonic() > deadline:
                    raise StoreUnavailable("somebody else archives for this owner, for too long")
                await asyncio.sleep(LOCK_PAUSE)
            yield
        finally:
            await to_the_end(lock.release)


def archive_folder(folder: str, key_file: str = "") -> ArchiveFolder:
    """The folder of archives; with a key file, what is put there is sealed with the passphrase in it."""
    if not key_file:
        return ArchiveFolder(folder)
    from aforesaid.encryption.sealers import PassphraseSealer

    try:
        passphrase = Path(key_file).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSetting(
            f"the key file {key_file} cannot be read: {error}", field="archive_key_file"
        ) from None
    return ArchiveFolder(folder, sealer=PassphraseSealer(passphrase))


def _bare(archive: Archive) -> Archive:
    """What a seal is bound to: the head, without what the seal itself decides."""
    return replace(archive, sealed=None, size=0, sha256="")


list_ = list
"""The built-in, where the method `list` hides it."""


# Out of the store and back


async def archive(
    store: ConversationStore, archives: OwnerArchives, conversation_id: str, *, blobs: BlobStore | None = None
) -> Archive:
    """Move a conversation out of the store. Done twice, it is done once.

    Raises `RevisionConflict` when somebody writes to it meanwhile, `StoreDamaged` when not all of it can be
    read, which an archive would lose, and `StoreUnavailable` when the store does not have every acknowledged
    turn yet: it then stays where it is.
    """
    whole = await store.authoritative()
    async with archives.locked():
        record = await whole.get(conversation_id)
        if record is None:
            return await _archived_before(archives, conversation_id)
        try:
            made, content = await _packed(whole, record, archives, blobs)
        except ConversationNotFound:
            return await _archived_before(archives, conversation_id)
        # Cut short between the two it would be in both places.
        return await finished(_moved(whole, archives, record, made, content, blobs))


async def _moved(
    store: ConversationStore,
    archives: OwnerArchives,
    record: Conversation,
    made: Archive,
    content: bytes,
    blobs: BlobStore | None,
) -> Archive:
    written = await archives.put(made, content)
    try:
        await store.delete(record.id, expected_revision=record.revision)
    except RevisionConflict:
        await archives.delete(record.id)
        raise
    if blobs is not None:
        await blobs.delete(record.id)
    return written


async def _archived_before(archives: OwnerArchives, conversation_id: str) -> Archive:
    known = await archives.get(conversation_id)
    if known is None:
        raise ConversationNotFound(conversation_id)
    return known


async def restore(
    store: ConversationStore, archives: OwnerArchives, conversation_id: str, *, blobs: BlobStore | None = None
) -> Conversation:
    """Move a conversation back into the store: record, entries, documents, pictures, and the sessions that
    nobody uses by now. One whose time ran out in the archive gets its lifetime anew.
    """
    async with archives.locked():
        _, content = await archives.read(conversation_id)
        return await finished(_restored(store, archives, conversation_id, content, blobs))


async def _restored(
    store: ConversationStore,
    archives: OwnerArchives,
    conversation_id: str,
    content: bytes,
    blobs: BlobStore | None,
) -> Conversation:
    from aforesaid.transfer.imports import restore_one

    lines, pictures = await asyncio.to_thread(unpacked, content)
    record = await restore_one(io.BytesIO(lines), store, revive=lambda one: _revived(one, store.now()))
    if blobs is not None:  # behind their conversation: a sweep removes pictures that have none
        for sha256, data in pictures.items():
            await blobs.put(conversation_id, sha256, data)
    await archives.delete(conversation_id)
    return record


async def forget_copy(store: ConversationStore, archives: OwnerArchives, conversation_id: str) -> None:
    """Remove the archive of a conversation that lives in the store: what a crash, or a disk that failed,
    left of it when it was moved. It has what was said before."""
    if not await archives.count(conversation_id):
        return
    async with archives.locked():
        if await store.get(conversation_id) is not None:
            await archives.delete(conversation_id)


def _revived(record: Conversation, now: datetime) -> Conversation:
    return replace(record, expires_at=expiry(record.ttl, now=now)) if is_expired(record, now=now) else record


async def _packed(
    store: ConversationStore, record: Conversation, archives: OwnerArchives, blobs: BlobStore | None
) -> tuple[Archive, bytes]:
    from aforesaid.transfer.exports import export_one

    lines = io.BytesIO()
    report = await export_one(store, record, lines, owner=archives.owner)
    if report.unreadable:
        raise StoreDamaged(
            f"conversation {record.id} is not archived: {report.unreadable} of its {report.entries} messages "
            "cannot be read here, and an archive would lose them"
        )
    if report.entries != record.message_count:
        await _check_unchanged(store, record, report.entries)
    pictures = {} if blobs is None else await _pictures(blobs, record.id)
    content = await asyncio.to_thread(pack, lines.getvalue(), pictures)
    made = Archive(
        conversation_id=record.id,
        owner=archives.key,
        archived_at=store.now(),
        last_activity=record.last_activity,
        revision=record.revision,
        messages=report.entries,
        documents=report.documents,
        blobs=len(pictures),
    )
    return made, content


async def _check_unchanged(store: ConversationStore, record: Conversation, found: int) -> None:
    """Refuse to archive a log that is not what its record counts: it changed meanwhile, or lacks messages."""
    now = await store.get(record.id)
    if now is None:
        raise ConversationNotFound(record.id)
    if now.revision != record.revision:
        raise RevisionConflict(record.id, expected=record.revision, actual=now.revision)
    raise StoreDamaged(
        f"conversation {record.id} is not archived: its record counts {record.message_count} messages, "
        f"and {found} were read"
    )


async def _pictures(blobs: BlobStore, conversation_id: str) -> dict[str, bytes]:
    found = {sha256: await blobs.get(conversation_id, sha256) for sha256 in await blobs.list(conversation_id)}
    return {sha256: data for sha256, data in found.items() if data is not None}


# The content


def pack(lines: bytes, pictures: Mapping[str, bytes]) -> bytes:
    import lzma  # slow to import, and seldom needed
    import tarfile

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, data in {LOG: lines, **{f"blobs/{one}": data for one, data in pictures.items()}}.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), 0o600
            tar.addfile(member, io.BytesIO(data))
    return lzma.compress(packed.getvalue(), preset=4)


def unpacked(content: bytes) -> tuple[bytes, dict[str, bytes]]:
    import lzma
    import tarfile

    members: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(lzma.decompress(content))) as tar:
            for member in tar:
                opened = tar.extractfile(member)
                members[member.name] = b"" if opened is None else opened.read()
        lines = members.pop(LOG)
    except (lzma.LZMAError, tarfile.TarError, KeyError, EOFError) as error:
        raise StoreDamaged(f"the content of the archive cannot be read: {error}") from error
    return lines, {name.removeprefix("blobs/"): data for name, data in members.items()}


def _owner_in(lines: bytes) -> str | None:
    """Whose conversation it is, as its second line says; the first says what the file is."""
    try:
        return msgspec.json.decode(lines.split(b"\n", 2)[1], type=_Owned).owner
    except (IndexError, msgspec.MsgspecError):
        return None


class _Made(Struct):
    created_at: datetime


class _Owned(Struct):
    owner: str
    conversation: _Made


# Files


def _owner_keys(folder: Path) -> list[str]:
    with _explained("the archives cannot be listed"):
        return sorted(one.name for one in folder.iterdir() if one.is_dir()) if folder.is_dir() else []


def _write(file: Path, data: bytes) -> None:
    """Whole or not at all: to a file beside it, to the disk, then into its place."""
    with _explained(f"the archive {file.name} cannot be written"):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = file.with_name(f".{file.name}.{new_id()}")
        try:
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
                opened.write(data)
                opened.flush()
                os.fsync(opened.fileno())
            draft.replace(file)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        for folder in (file.parent, file.parent.parent):
            _sync(folder)


def _sync(folder: Path) -> None:
    if os.name == "nt":
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _read(file: Path, key: str) -> tuple[Archive, bytes]:
    with _explained(f"the archive {file.name} cannot be read"):
        try:
            with file.open("rb") as opened:
                archive = _parse_head(opened.readline(), file)
                payload = opened.read()
        except FileNotFoundError:
            raise ArchiveNotFound(file.name.removesuffix(SUFFIX)) from None
    if _sha256(payload) != archive.sha256 or archive.owner != key:
        raise StoreDamaged(f"the archive {file.name} was altered, or belongs to somebody else")
    return archive, payload


def _parse_head(line: bytes, file: Path) -> Archive:
    try:
        archive = msgspec.json.decode(line, type=Archive)
    except msgspec.MsgspecError:
        raise StoreForeign(f"{file.name} is no archive of Aforesaid") from None
    if archive.aforesaid != "archive" or archive.version != VERSION or archive.compression != "xz":
        raise StoreForeign(f"{file.name} is an archive of another version ({archive.version})")
    return archive


def _head(file: Path) -> Archive | None:
    with _explained(f"the archive {file.name} cannot be read"):
        try:
            with file.open("rb") as opened:
                return _parse_head(opened.readline(), file)
        except FileNotFoundError:
            return None


def _list(folder: Path) -> list[Archive]:
    with _explained("the archives cannot be listed"):
        if not folder.is_dir():
            return []
        files = sorted(folder.glob(f"[!.]*{SUFFIX}"))
    return [archive for archive in map(_head_or_none, files) if archive is not None]


def _head_or_none(file: Path) -> Archive | None:
    """What cannot be read is set aside, and said so in the log: the others can."""
    try:
        return _head(file)
    except StoreForeign as error:
        log.warning("an archive is set aside: %s", describe(error))
        return None


def _unreadable(folder: Path) -> list[Path]:
    with _explained("the archives cannot be listed"):
        files = sorted(folder.glob(f"[!.]*{SUFFIX}"))
    return [file for file in files if _head_or_none(file) is None]


def _delete_unreadable(folder: Path) -> int:
    return sum(_delete(file) for file in _unreadable(folder))


def _count(folder: Path, name: str) -> int:
    with _explained("the archives cannot be listed"):
        return sum(1 for file in folder.glob(f"{name}{SUFFIX}") if not file.name.startswith("."))


def _delete(file: Path) -> int:
    with _explained(f"the archive {file.name} cannot be removed"):
        if not file.parent.is_dir():
            return 0
        there = int(file.exists())
        for one in (file, *file.parent.glob(f".{file.name}.*")):
            one.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            file.parent.rmdir()  # the owner's last archive; not empty otherwise
            _sync(file.parent.parent)
            return there
        _sync(file.parent)
        return there


def _remove_folder(folder: Path) -> int:
    with _explained("the archives cannot be removed"):
        if not folder.is_dir():
            return 0
        count = 0
        for file in folder.iterdir():
            count += not file.name.startswith(".")
            file.unlink(missing_ok=True)
        folder.rmdir()
        _sync(folder.parent)
        return count


def _delete_older(folder: Path, moment: datetime) -> int:
    if not folder.is_dir():
        return 0
    old = [
        owner / f"{archive.conversation_id}{SUFFIX}"
        for owner in folder.iterdir()
        for archive in _list(owner)
        if archive.last_activity < moment
    ]
    return sum(_delete(file) for file in old)


def _acquired(lock: "Lock", folder: Path) -> bool:
    from aforesaid._internal.file_locks import Held

    with _explained("the folder of archives cannot be used"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            lock.acquire()
        except Held:
            return False
        return True


@contextlib.contextmanager
def _explained(what: str) -> Any:
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(f"{what}: {error.strerror or error}") from error
