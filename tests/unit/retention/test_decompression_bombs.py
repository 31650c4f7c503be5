"""A packed export that unpacks to more than it should is refused early, and leaves nothing behind."""

import io
import random
import struct
import tempfile
import zipfile
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aforesaid.errors import AforesaidError, StoreDamaged, StoreForeign, TooLarge
from aforesaid.transfer import zips
from aforesaid.transfer.folders import LINES, MANIFEST, PAGE, File, Manifest, create_file
from aforesaid.transfer.zips import pack_folder, unpack_folder
from tests.integration.server.running import serving

MB = 1024 * 1024


def manifest_of(files: dict[str, bytes | int]) -> bytes:
    """A manifest that names these files, by their content or by their length alone."""
    listed = tuple(
        File(
            path=path,
            size=content if isinstance(content, int) else len(content),
            sha256=sha256(b"" if isinstance(content, int) else content).hexdigest(),
        )
        for path, content in files.items()
    )
    made = Manifest(owner="erin", exported_at=datetime.now(UTC), counts={}, files=listed)
    return msgspec.json.encode(made)


def zeros(path: str, size: int, *, files: int = 1) -> bytes:
    """A zip whose files are zeros: a thousandth of what they unpack to."""
    names = [path if at == 0 else f"{path}{at}" for at in range(files)]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(MANIFEST, manifest_of(dict.fromkeys(names, size)))
        for name in names:
            with file.open(name, "w", force_zip64=True) as entry:
                for _ in range(size // MB):
                    entry.write(bytes(MB))
    return packed.getvalue()


class Written:
    """How many bytes were written to files below a folder."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = 0
        create = create_file

        def counting(path: Path) -> Any:
            file = create(path)
            write = file.write

            def counted(data: bytes) -> int:
                self.bytes += len(data)
                return int(write(data))

            class Counting:
                def __enter__(self) -> Any:
                    file.__enter__()
                    return self

                def __exit__(self, *error: Any) -> Any:
                    return file.__exit__(*error)

                write = staticmethod(counted)

            return Counting()

        monkeypatch.setattr(zips, "create_file", counting)


def refused(packed: bytes, folder: Path, *, largest: int | None = None) -> AforesaidError:
    with pytest.raises((StoreForeign, StoreDamaged, TooLarge)) as caught:
        unpack_folder(io.BytesIO(packed), folder / "folder", largest=largest)
    assert list(folder.iterdir()) == [], "nothing is left behind"
    return caught.value


@pytest.mark.slow
def test_two_megabytes_that_are_two_gigabytes_write_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = zeros(LINES, 2048 * MB)
    assert len(packed) < 2.5 * MB
    written = Written(monkeypatch)
    assert isinstance(refused(packed, tmp_path), StoreForeign)
    assert written.bytes == 0


@pytest.mark.slow
async def test_an_import_over_http_is_refused_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    written = Written(monkeypatch)
    async with serving() as server:
        packed = zeros(LINES, 512 * MB)
        headers = {"Content-Type": "application/zip"}
        answer = await server.client.post("/v1/import", content=packed, headers=headers)
        assert answer.status_code == 422
        assert "unpack to" in answer.json()["detail"] or answer.json()["type"].endswith("store-foreign")
    assert written.bytes == 0
    assert list(tmp_path.iterdir()) == []


def test_more_than_the_place_takes_is_too_large(tmp_path: Path) -> None:
    assert isinstance(refused(zeros(LINES, 8 * MB), tmp_path, largest=4 * MB), TooLarge)


def lying(packed: bytes, size: int) -> bytes:
    """The zip, with a directory that gives every file this length."""
    data = bytearray(packed)
    at = data.find(b"PK\x01\x02")
    while at >= 0:
        data[at + 24 : at + 28] = struct.pack("<I", size)
        at = data.find(b"PK\x01\x02", at + 4)
    return bytes(data)


def test_a_directory_that_lies_about_lengths_wins_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Written(monkeypatch)
    refused(lying(zeros(LINES, 64 * MB), 1000), tmp_path)
    assert written.bytes <= 64 * 1024


def test_entries_that_share_their_bytes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the zip bomb without nesting: one block of data, and many entries that point at it."""
    written = Written(monkeypatch)
    packed = bytearray(zeros(f"blobs/{'0' * 36}/", 20 * MB, files=4))
    first = packed.find(b"PK\x03\x04", 4)
    at = packed.find(b"PK\x01\x02")
    while at >= 0:
        if struct.unpack("<I", packed[at + 42 : at + 46])[0] > first:
            packed[at + 42 : at + 46] = struct.pack("<I", first)
        at = packed.find(b"PK\x01\x02", at + 4)
    assert isinstance(refused(bytes(packed), tmp_path), StoreDamaged)
    assert written.bytes == 0


def test_a_directory_of_very_many_entries_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zips, "LARGEST_DIRECTORY", 100_000)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        for number in range(3000):
            file.writestr(f"{number}", b"")
    made: list[int] = []
    monkeypatch.setattr(zips, "_check_entries", lambda packed: made.append(len(packed.infolist())))
    assert isinstance(refused(packed.getvalue(), tmp_path), StoreForeign)
    assert made == []


@pytest.mark.parametrize(
    "name",
    ["../outside", "/outside", "a/../../outside", "folder.zip", "messages.jsonl/x", "C:\\x", "blobs/../x"],
)
def test_names_that_no_export_has_are_refused(tmp_path: Path, name: str) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        file.writestr(MANIFEST, manifest_of({name: b"x"}))
        file.writestr(name, b"x")
    (tmp_path / "place").mkdir()
    refused(packed.getvalue(), tmp_path / "place")
    assert [each.name for each in tmp_path.iterdir()] == ["place"]


def test_a_zip_inside_a_zip_is_a_file(tmp_path: Path) -> None:
    """Nothing unpacks what is inside: it is no part of an export."""
    inner = zeros(LINES, 64 * MB)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        file.writestr(MANIFEST, manifest_of({"inner.zip": inner}))
        file.writestr("inner.zip", inner)
    refused(packed.getvalue(), tmp_path)


def folder_of(place: Path, files: dict[str, bytes]) -> Path:
    place.mkdir()
    for path, content in files.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_bytes(content)
    (place / MANIFEST).write_bytes(manifest_of(dict(files)))
    return place


@pytest.mark.parametrize("seed", range(8))
def test_whatever_was_packed_can_be_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Also what shrinks a thousandfold, in few files or in many: the bounds are kept when packing."""
    monkeypatch.setattr(zips, "ALWAYS", 64 * 1024)
    chance = random.Random(seed)
    files = {LINES: bytes(chance.randrange(2 * MB)), PAGE: chance.randbytes(chance.randrange(2000))}
    for number in range(chance.randrange(30)):
        content = bytes([number]) * chance.randrange(300_000)
        if chance.random() < 0.3:
            content = chance.randbytes(chance.randrange(30_000))
        files[f"archives/{number:08d}-0000-4000-8000-000000000000.jsonl"] = content
    source = folder_of(tmp_path / "source", files)
    packed = io.BytesIO()
    manifest = pack_folder(source, packed)
    packed.seek(0)
    assert unpack_folder(packed, tmp_path / "target") == manifest
    for path, content in files.items():
        assert (tmp_path / "target" / path).read_bytes() == content


@pytest.mark.parametrize("seed", range(3))
def test_no_flipped_bits_write_more_than_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(zips, "ALWAYS", 100_000)
    monkeypatch.setattr(zips, "RATIO", 2)
    written = Written(monkeypatch)
    chance = random.Random(seed)
    sound = io.BytesIO()
    pack_folder(folder_of(tmp_path / "source", {LINES: bytes(90_000), PAGE: b"page" * 500}), sound)
    for number in range(150):
        data = bytearray(sound.getvalue())
        for _ in range(chance.randrange(1, 6)):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        written.bytes = 0
        place = tmp_path / str(number)
        place.mkdir()
        try:
            unpack_folder(io.BytesIO(bytes(data)), place / "folder")
        except AforesaidError:
            assert list(place.iterdir()) == []
        assert written.bytes <= 100_000 + 2 * len(data)
