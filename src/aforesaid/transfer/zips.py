"""Pack an owner's folder into one zip file, for transfer between server and client. Blocks.

The contents of a zip are not trusted: unexpected names are refused, no file may exceed its size in the
manifest, the total size is limited (`bounds`), and every digest is checked before the folder is moved to
its place.
"""

import shutil
import time
import zipfile
import zlib
from typing import BinaryIO, cast

from aforesaid._internal.scratch import ScratchFolder
from aforesaid.errors import AforesaidError, StoreDamaged, StoreForeign, StoreUnavailable, shown
from aforesaid.transfer.bounds import BoundedReads, Budget, Packing
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

LONGEST_MANIFEST = 64 * 1024 * 1024
_BLOCK = 1024 * 1024
_SUPPORTED = (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED)
_ENCRYPTED = 0x1
_ZIP_ERRORS = (
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    zlib.error,
    KeyError,
    EOFError,
    RuntimeError,
    ValueError,
)
"""Exceptions raised while reading a file that is damaged or not a zip."""


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


def _extract_one(packed: zipfile.ZipFile, name: str, draft: Folder, budget: Budget, *, longest: int) -> None:
    with packed.open(name) as source, create_file(draft / name) as target:
        left = longest
        while block := source.read(_BLOCK):
            left -= len(block)
            if left < 0:
                raise StoreDamaged(f"{shown(name)} is longer than the manifest declares")
            budget.take(len(block))
            target.write(block)
