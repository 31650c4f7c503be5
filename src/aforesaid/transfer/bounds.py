"""Limit the unpacked size of a zipped export, before and during unpacking.

A small file can contain gigabytes: by deflate (up to 1,000 to 1), by entries that share bytes, or by a
directory of millions of entries. Our own exports never do: `Packing` stores a file uncompressed if it
would shrink too far.
"""

import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO

from aforesaid._internal.scratch import ScratchPath
from aforesaid.errors import StoreDamaged, StoreForeign, TooLarge, shown

RATIO = 100
"""Maximum ratio of unpacked to packed size. Conversations usually shrink to a tenth."""
ALWAYS = 32 * 1024 * 1024
"""Unpacked bytes allowed regardless of the packed size."""
LARGEST_DIRECTORY = 32 * 1024 * 1024
"""Maximum size of the zip directory in bytes: about 250,000 files."""
_LOCAL_HEADER = 30
_BLOCK = 1024 * 1024


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
        self._plain += file.size() if isinstance(file, ScratchPath) else file.stat().st_size
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
