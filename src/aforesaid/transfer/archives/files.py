"""Archive files: their format, and reading and writing them.

    folder/owner's key/conversation.archive

The first line is JSON and describes the archive without content. A compressed tar follows:
`conversation.jsonl`, in the format of an export, and `blobs/` with the images. It may be sealed.
`docs/reference/archives.md` documents the format.

These functions block; callers run them on threads.
"""

import contextlib
import hashlib
import io
import logging
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from aforesaid._internal import files
from aforesaid.errors import ArchiveNotFound, StoreDamaged, StoreForeign, StoreUnavailable
from aforesaid.telemetry import describe

log = logging.getLogger("aforesaid.archives")

VERSION = 1
SUFFIX = ".archive"
LOG = "conversation.jsonl"


class Archive(Struct, frozen=True, kw_only=True):
    """The head of an archive: its first line, without content."""

    aforesaid: str = "archive"
    version: int = VERSION
    conversation_id: str
    owner: str
    """SHA-256 of the owner's name."""
    archived_at: datetime
    last_activity: datetime
    revision: int
    messages: int
    documents: int
    blobs: int
    compression: str = "xz"
    sealed: dict[str, str] | None = None
    size: int = 0
    """Number of bytes after the first line."""
    sha256: str = ""
    """SHA-256 of these bytes."""


def unsealed_head(archive: Archive) -> Archive:
    """Return the head without the fields that sealing sets; the seal is bound to it."""
    return replace(archive, sealed=None, size=0, sha256="")


# Content


def pack(lines: bytes, pictures: Mapping[str, bytes]) -> bytes:
    """Return the compressed tar of a conversation's lines and images."""
    import lzma  # imported here: slow, and rarely needed
    import tarfile

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, data in {LOG: lines, **{f"blobs/{one}": data for one, data in pictures.items()}}.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), 0o600
            tar.addfile(member, io.BytesIO(data))
    return lzma.compress(packed.getvalue(), preset=4)


def unpack(content: bytes) -> tuple[bytes, dict[str, bytes]]:
    """Return the lines and images of a compressed tar. Raise `StoreDamaged`."""
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


def owner_in(lines: bytes) -> str | None:
    """Return the owner's name from the second line; the first describes the file."""
    try:
        return msgspec.json.decode(lines.split(b"\n", 2)[1], type=_FirstRecord).owner
    except (IndexError, msgspec.MsgspecError):
        return None


def created_at_in(lines: bytes) -> datetime:
    """Return when the conversation was created. Raise `StoreDamaged` if its record is unreadable."""
    try:
        return msgspec.json.decode(lines.split(b"\n", 2)[1], type=_FirstRecord).conversation.created_at
    except (IndexError, msgspec.MsgspecError) as error:
        raise StoreDamaged(f"the record in the archive cannot be read: {error}") from error


class _CreatedAt(Struct):
    created_at: datetime


class _FirstRecord(Struct):
    owner: str
    conversation: _CreatedAt


# Files


def owner_keys(folder: Path) -> list[str]:
    with _translate_errors("the archives cannot be listed"):
        return sorted(one.name for one in folder.iterdir() if one.is_dir()) if folder.is_dir() else []


def write(file: Path, data: bytes) -> None:
    """Write an archive atomically and durably."""
    with _translate_errors(f"the archive {file.name} cannot be written"):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.replace(file, data)
        files.sync_folder(file.parent.parent)  # which may have a new folder


def sha256_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def read(file: Path, key: str) -> tuple[Archive, bytes]:
    with _translate_errors(f"the archive {file.name} cannot be read"):
        try:
            with file.open("rb") as opened:
                archive = _parse_head(opened.readline(), file)
                payload = opened.read()
        except FileNotFoundError:
            raise ArchiveNotFound(file.name.removesuffix(SUFFIX)) from None
    if sha256_of(payload) != archive.sha256 or archive.owner != key:
        raise StoreDamaged(f"the archive {file.name} was altered or belongs to another owner")
    return archive, payload


def _parse_head(line: bytes, file: Path) -> Archive:
    try:
        archive = msgspec.json.decode(line, type=Archive)
    except msgspec.MsgspecError:
        raise StoreForeign(f"{file.name} is not an Aforesaid archive") from None
    if archive.aforesaid != "archive" or archive.version != VERSION or archive.compression != "xz":
        raise StoreForeign(f"{file.name} is an archive of an unsupported version ({archive.version})")
    return archive


def read_head(file: Path) -> Archive | None:
    with _translate_errors(f"the archive {file.name} cannot be read"):
        # One line, however large the archive is: lists read the head of every file.
        try:
            with file.open("rb") as opened:
                return _parse_head(opened.readline(), file)
        except FileNotFoundError:
            return None


def list_archives(folder: Path) -> list[Archive]:
    with _translate_errors("the archives cannot be listed"):
        if not folder.is_dir():
            return []
        files = sorted(folder.glob(f"[!.]*{SUFFIX}"))  # hidden files are drafts
    return [archive for archive in map(_head_or_none, files) if archive is not None]


def _head_or_none(file: Path) -> Archive | None:
    """Return the head; log and skip an unreadable one."""
    try:
        return read_head(file)
    except StoreForeign as error:
        log.warning("skipped an unreadable archive: %s", describe(error))
        return None


def unreadable_files(folder: Path) -> list[Path]:
    with _translate_errors("the archives cannot be listed"):
        files = sorted(folder.glob(f"[!.]*{SUFFIX}"))
    return [file for file in files if _head_or_none(file) is None]


def delete_unreadable(folder: Path) -> int:
    return sum(delete(file) for file in unreadable_files(folder))


def count_files(folder: Path, name: str) -> int:
    with _translate_errors("the archives cannot be listed"):
        return sum(1 for file in folder.glob(f"{name}{SUFFIX}") if not file.name.startswith("."))


def delete(file: Path) -> int:
    with _translate_errors(f"the archive {file.name} cannot be removed"):
        if not file.parent.is_dir():
            return 0
        existed = int(file.exists())
        # A process that was killed while writing leaves a hidden draft with the same content.
        for one in (file, *file.parent.glob(f".{file.name}.*")):
            one.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            file.parent.rmdir()  # succeeds only after the owner's last archive
            files.sync_folder(file.parent.parent)
            return existed
        files.sync_folder(file.parent)
        return existed


def remove_folder(folder: Path) -> int:
    with _translate_errors("the archives cannot be removed"):
        if not folder.is_dir():
            return 0
        count = 0
        for file in folder.iterdir():
            count += not file.name.startswith(".")
            file.unlink(missing_ok=True)
        folder.rmdir()
        files.sync_folder(folder.parent)
        return count


def delete_older(folder: Path, moment: datetime) -> int:
    if not folder.is_dir():
        return 0
    old = [
        owner / f"{archive.conversation_id}{SUFFIX}"
        for owner in folder.iterdir()
        for archive in list_archives(owner)
        if archive.last_activity < moment
    ]
    return sum(delete(file) for file in old)


def acquire(lock: files.Lock, folder: Path) -> bool:
    """Try to acquire the lock; return whether it succeeded."""
    with _translate_errors("the folder of archives cannot be used"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            lock.acquire()
        except files.Held:
            return False
        return True


@contextlib.contextmanager
def _translate_errors(what: str) -> Iterator[None]:
    """Translate `OSError` to `StoreUnavailable`."""
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(f"{what}: {error.strerror or error}") from error
