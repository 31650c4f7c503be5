"""An owner's folder as one file, for the way between a server and its client. Blocks. Below: folders.

Nothing in a zip leads outside its folder, and nothing is believed of it: names that no export has are
refused, no file may be longer than the manifest says, all of them together are bounded (`bounds`), and every
digest is checked before the folder stands in its place.
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
    checked_folder,
    create_file,
    finish_folder,
    is_part_of_export,
    read_manifest,
    size_of,
)

LONGEST_MANIFEST = 64 * 1024 * 1024
_BLOCK = 1024 * 1024
_OURS = (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED)
_ENCRYPTED = 0x1
_NO_EXPORT = (
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    zlib.error,
    KeyError,
    EOFError,
    RuntimeError,
    ValueError,
)
"""What reading a zip ends with that is damaged, or none."""


def pack_folder(folder: Folder, file: BinaryIO) -> Manifest:
    """Write the folder into a file as a zip, when it is a whole export; the manifest comes first."""
    manifest = checked_folder(folder)
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
    """Make the folder that was packed: all of it, or nothing. `largest`: bytes that it may have.

    Raises `TooLarge`, `StoreForeign`, `StoreDamaged`.
    """
    if isinstance(folder, ScratchFolder):
        _extract(file, folder, largest)
        return checked_folder(folder)
    draft = begin_folder(folder)
    try:
        _extract(file, draft, largest)
        manifest = checked_folder(draft)
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
    except _NO_EXPORT as error:
        raise StoreForeign(f"this is no packed export: {error}") from error


def _check_entries(packed: zipfile.ZipFile) -> None:
    """Refuse what is packed as we never do. Damaged bzip2, for one, is an OSError, as a full disk is."""
    names = set()
    for entry in packed.infolist():
        if entry.filename in names:
            raise StoreDamaged(f"the file holds {shown(entry.filename)} twice")
        if entry.compress_type not in _OURS or entry.flag_bits & _ENCRYPTED:
            raise StoreForeign(f"{shown(entry.filename)} is packed as no export is")
        names.add(entry.filename)


def _check_name(name: str, sizes: dict[str, int]) -> None:
    if not is_part_of_export(name) or name not in sizes:
        raise StoreDamaged(f"the file holds something that no export has: {shown(name)}")


def _extract_one(packed: zipfile.ZipFile, name: str, draft: Folder, budget: Budget, *, longest: int) -> None:
    with packed.open(name) as source, create_file(draft / name) as target:
        left = longest
        while block := source.read(_BLOCK):
            left -= len(block)
            if left < 0:
                raise StoreDamaged(f"{shown(name)} is longer than the manifest says")
            budget.take(len(block))
            target.write(block)
