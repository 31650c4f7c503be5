"""Bound what a packed export may unpack to, before anything is written and while it is.

A small file can hold gigabytes: by deflate (up to 1,000 to 1), by entries that share their bytes, or by a
directory of millions of entries. An export of ours never does: `Packing` stores a file that would shrink too
far without compression.
"""

import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO

from aforesaid._internal.scratch import ScratchPath
from aforesaid.errors import StoreDamaged, StoreForeign, TooLarge, shown

RATIO = 100
"""How many times its packed size an export may have. Conversations shrink to a tenth, seldom further."""
ALWAYS = 32 * 1024 * 1024
"""Bytes that every export may have, however small it is packed."""
LARGEST_DIRECTORY = 32 * 1024 * 1024
"""Bytes of the directory of a packed export: some 250,000 files."""
_LOCAL_HEADER = 30
_BLOCK = 1024 * 1024


class BoundedReads:
    """A file that gives no more than `LARGEST_DIRECTORY` bytes at once.

    `zipfile` reads the directory in one piece, of the length that the file says, and the rest in small ones.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seek = file.seek
        self.tell = file.tell

    def read(self, size: int = -1) -> bytes:
        if size > LARGEST_DIRECTORY:
            raise StoreForeign(f"this is no packed export: its directory has {size:,} bytes")
        data = self._file.read(LARGEST_DIRECTORY + 1 if size < 0 else size)
        if len(data) > LARGEST_DIRECTORY:
            raise StoreForeign("this is no packed export: its directory is too large")
        return data

    def seekable(self) -> bool:
        return True


class Budget:
    """Bytes that may still be unpacked."""

    def __init__(self, entries: list[zipfile.ZipInfo], *, directory: int, largest: int | None) -> None:
        """Refuse a file whose entries say that they are too large. Raises `StoreForeign`, `TooLarge`."""
        _check_apart(entries, directory)
        packed = sum(entry.compress_size for entry in entries)
        said = sum(entry.file_size for entry in entries)
        if largest is not None and said > largest:
            raise TooLarge(f"the export unpacks to {said:,} bytes; {largest:,} are taken here", field="body")
        self._left = allowed(packed)
        if said > self._left:
            raise StoreForeign(f"this is no packed export: {packed:,} bytes unpack to {said:,}")

    def take(self, count: int) -> None:
        """Count bytes before they are written. Raises `StoreDamaged` beyond what the entries say."""
        self._left -= count
        if self._left < 0:
            raise StoreDamaged("the file unpacks to more than its directory says")


def _check_apart(entries: list[zipfile.ZipInfo], directory: int) -> None:
    """Refuse entries that overlap: each would count its bytes as its own."""
    end = 0
    for entry in sorted(entries, key=lambda entry: entry.header_offset):
        if entry.header_offset < end:
            raise StoreDamaged(f"{shown(entry.filename)} overlaps with another entry")
        end = entry.header_offset + _LOCAL_HEADER + entry.compress_size
    if end > directory:
        raise StoreDamaged("an entry overlaps with the directory")


def allowed(packed: int) -> int:
    """How many bytes so many packed ones may unpack to."""
    return ALWAYS + RATIO * packed


class Packing:
    """How the files of an export are packed, one after the other, so that it can be unpacked again."""

    def __init__(self) -> None:
        self._packed = self._plain = 0

    def compression_for(self, file: Path | ScratchPath) -> int:
        """Deflated, or as it is where that would shrink the export too far."""
        self._plain += file.size() if isinstance(file, ScratchPath) else file.stat().st_size
        if self._plain <= allowed(self._packed) or self._plain <= allowed(self._packed + deflated_size(file)):
            return zipfile.ZIP_DEFLATED
        return zipfile.ZIP_STORED

    def packed(self, entry: zipfile.ZipInfo) -> None:
        self._packed += entry.compress_size


def deflated_size(file: Path | ScratchPath) -> int:
    """Bytes of a file when deflated as `zipfile` does."""
    deflate = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION, zlib.DEFLATED, -15)
    count = 0
    with file.open("rb") as source:
        while block := source.read(_BLOCK):
            count += len(deflate.compress(block))
    return count + len(deflate.flush())
