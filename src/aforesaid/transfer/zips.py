"""Pack an owner's folder into one zip file, for transfer between server and client. Blocks.

The contents of a zip are not trusted: unexpected names are refused, no file may exceed its size in the
manifest, the total size is limited (`Budget`), and every digest is checked before the folder is moved to
its place.

A small file can contain gigabytes: by deflate (up to 1,000 to 1), by entries that share bytes, or by a
directory of millions of entries. Our own exports never do: `Packing` stores a file uncompressed if it
would shrink too far.
"""

import shutil
import time
import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO, cast

from aforesaid._internal.scratch import ScratchFolder, ScratchPath
from aforesaid.errors import AforesaidError, StoreDamaged, StoreForeign, StoreUnavailable, TooLarge, shown
from aforesaid.transfer.folders import (
    MANIFEST,
    AnyPath,
    Folder,
    Manifest,
    begin_folder,
    check_folder,
    create_file,
    finish_folder,
    is_part_of_export,
    read_manifest,
    size_of,
)

# Maximum ratio of unpacked to packed size. Conversations usually shrink to a tenth.
RATIO = 100
# Unpacked bytes allowed regardless of the packed size.
ALWAYS = 32 * 1024 * 1024
# Maximum size of the zip directory in bytes: about 250,000 files.
LARGEST_DIRECTORY = 32 * 1024 * 1024
_LOCAL_HEADER = 30
LONGEST_MANIFEST = 64 * 1024 * 1024
_BLOCK = 1024 * 1024
_SUPPORTED = (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED)
_ENCRYPTED = 0x1
# Exceptions raised while reading a file that is damaged or not a zip.
_ZIP_ERRORS = (
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    zlib.error,
    KeyError,
    EOFError,
    RuntimeError,
    ValueError,
)


def pack_folder(folder: Folder, file: BinaryIO) -> Manifest:
    """Check the folder and write it to a file as a zip, manifest first."""
    manifest = check_folder(folder)
    try:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
            packing = Packing()
            for name in (MANIFEST, *(one.path for one in manifest.files)):
                _pack_one(packed, name, folder / name, packing.compression_for(folder / name))
                packing.packed(packed.getinfo(name))
    except OSError as error:
        raise StoreUnavailable(f"{folder} cannot be packed: {error.strerror or error}") from error
    return manifest


def _pack_one(packed: zipfile.ZipFile, name: str, path: AnyPath, compression: int) -> None:
    entry = zipfile.ZipInfo(name, time.localtime()[:6])
    entry.compress_type = compression
    entry.external_attr = 0o600 << 16
    entry.file_size = size_of(path)
    with path.open("rb") as source, packed.open(entry, "w") as target:
        shutil.copyfileobj(source, target, _BLOCK)


def unpack_folder(file: BinaryIO, folder: Folder, *, largest: int | None = None) -> Manifest:
    """Create the packed folder, completely or not at all. `largest` limits its size in bytes.

    Raise `TooLarge`, `StoreForeign` or `StoreDamaged`.
    """
    if isinstance(folder, ScratchFolder):
        _extract(file, folder, largest)
        return check_folder(folder)
    draft = begin_folder(folder)
    try:
        _extract(file, draft, largest)
        manifest = check_folder(draft)
        finish_folder(draft, folder)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return manifest


def _extract(file: BinaryIO, draft: Folder, largest: int | None) -> None:
    try:
        with zipfile.ZipFile(cast(BinaryIO, BoundedReads(file))) as packed:
            _check_entries(packed)
            budget = Budget(packed.infolist(), directory=packed.start_dir, largest=largest)
            # The manifest first: it limits the names and sizes of all other entries.
            _extract_one(packed, MANIFEST, draft, budget, longest=LONGEST_MANIFEST)
            sizes = {one.path: one.size for one in read_manifest(draft).files}
            for name in packed.namelist():
                if name != MANIFEST:
                    _check_name(name, sizes)
                    _extract_one(packed, name, draft, budget, longest=sizes[name])
    except AforesaidError:
        raise
    except OSError as error:
        raise StoreUnavailable(f"the export cannot be unpacked: {error.strerror or error}") from error
    except _ZIP_ERRORS as error:
        raise StoreForeign(f"this is not a packed export: {error}") from error


def _check_entries(packed: zipfile.ZipFile) -> None:
    """Refuse duplicates and unsupported compression. (Damaged bzip2 raises OSError, like a full disk.)"""
    names = set()
    for entry in packed.infolist():
        if entry.filename in names:
            raise StoreDamaged(f"the file contains {shown(entry.filename)} twice")
        if entry.compress_type not in _SUPPORTED or entry.flag_bits & _ENCRYPTED:
            raise StoreForeign(f"{shown(entry.filename)} has an unsupported compression or is encrypted")
        names.add(entry.filename)


def _check_name(name: str, sizes: dict[str, int]) -> None:
    if not is_part_of_export(name) or name not in sizes:
        raise StoreDamaged(f"the file contains an unexpected entry: {shown(name)}")


def _extract_one(
    packed: zipfile.ZipFile, name: str, draft: Folder, budget: "Budget", *, longest: int
) -> None:
    with packed.open(name) as source, create_file(draft / name) as target:
        left = longest
        # Count what is unpacked: the sizes that a zip declares may be wrong.
        while block := source.read(_BLOCK):
            left -= len(block)
            if left < 0:
                raise StoreDamaged(f"{shown(name)} is longer than the manifest declares")
            budget.take(len(block))
            target.write(block)


# Limits


class BoundedReads:
    """A file that returns at most `LARGEST_DIRECTORY` bytes per read.

    `zipfile` reads the directory in one read, with the length that the file declares, and the rest in
    small reads.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seek = file.seek
        self.tell = file.tell

    def read(self, size: int = -1) -> bytes:
        if size > LARGEST_DIRECTORY:
            raise StoreForeign(f"this is not a packed export: its directory has {size:,} bytes")
        data = self._file.read(LARGEST_DIRECTORY + 1 if size < 0 else size)
        if len(data) > LARGEST_DIRECTORY:
            raise StoreForeign("this is not a packed export: its directory is too large")
        return data

    def seekable(self) -> bool:
        return True


class Budget:
    """The number of bytes that may still be unpacked."""

    def __init__(self, entries: list[zipfile.ZipInfo], *, directory: int, largest: int | None) -> None:
        """Raise `StoreForeign` or `TooLarge` if the declared sizes exceed the limits."""
        _check_no_overlap(entries, directory)
        packed = sum(entry.compress_size for entry in entries)
        declared = sum(entry.file_size for entry in entries)
        if largest is not None and declared > largest:
            raise TooLarge(
                f"the export unpacks to {declared:,} bytes; the limit is {largest:,}", field="body"
            )
        self._left = allowed_size(packed)
        if declared > self._left:
            raise StoreForeign(f"this is not a packed export: {packed:,} bytes unpack to {declared:,}")

    def take(self, count: int) -> None:
        """Subtract bytes before they are written. Raise `StoreDamaged` if the declared size is exceeded."""
        self._left -= count
        if self._left < 0:
            raise StoreDamaged("the file unpacks to more bytes than its directory declares")


def _check_no_overlap(entries: list[zipfile.ZipInfo], directory: int) -> None:
    """Raise `StoreDamaged` for overlapping entries, which would share packed bytes."""
    end = 0
    for entry in sorted(entries, key=lambda entry: entry.header_offset):
        if entry.header_offset < end:
            raise StoreDamaged(f"{shown(entry.filename)} overlaps with another entry")
        end = entry.header_offset + _LOCAL_HEADER + entry.compress_size
    if end > directory:
        raise StoreDamaged("an entry overlaps with the directory")


def allowed_size(packed: int) -> int:
    """Return the allowed unpacked size for a packed size."""
    return ALWAYS + RATIO * packed


class Packing:
    """Chooses compression for the files of an export so that the result passes `Budget`."""

    def __init__(self) -> None:
        self._packed = self._plain = 0

    def compression_for(self, file: Path | ScratchPath) -> int:
        """Return deflate, or no compression if the file would shrink the export too far."""
        self._plain += size_of(file)
        # Deflating a file twice is slow, so measure it only where the files before do not leave enough room.
        if self._plain <= allowed_size(self._packed) or self._plain <= allowed_size(
            self._packed + deflated_size(file)
        ):
            return zipfile.ZIP_DEFLATED
        return zipfile.ZIP_STORED

    def packed(self, entry: zipfile.ZipInfo) -> None:
        self._packed += entry.compress_size


def deflated_size(file: Path | ScratchPath) -> int:
    """Return the size of a file deflated as by `zipfile`."""
    deflate = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION, zlib.DEFLATED, -15)
    count = 0
    with file.open("rb") as source:
        while block := source.read(_BLOCK):
            count += len(deflate.compress(block))
    return count + len(deflate.flush())
