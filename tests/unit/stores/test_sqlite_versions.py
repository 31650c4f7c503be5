"""Files that earlier schema versions wrote still open, still read, and go on being written."""

import asyncio
import shutil
from pathlib import Path

import apsw
import pytest

from aforesaid.errors import StoreForeign
from aforesaid.stores._sql_files import migrations
from aforesaid.stores.sqlite import SQLiteBackend
from aforesaid.stores.sqlite.connections import PACKAGE
from tests.stored_samples import DATA, Clock, check_appending, check_content, fill

SAMPLES = sorted(DATA.glob("sqlite-v*.db"))


@pytest.fixture(params=SAMPLES, ids=lambda path: path.stem)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copy(request.param, tmp_path / "memory.db"))


def test_there_is_a_small_sample_of_every_version() -> None:
    versions = [f"sqlite-v{number}.db" for number, _ in migrations(PACKAGE)]
    assert [sample.name for sample in SAMPLES] == versions
    for sample in SAMPLES:
        assert sample.stat().st_size < 100_000
        with sample.open("rb") as file:
            assert int.from_bytes(file.read(64)[60:64]) == int(sample.stem.removeprefix("sqlite-v"))


async def test_it_reads_and_continues(path: Path) -> None:
    backend = SQLiteBackend(str(path))
    await backend.open()
    await check_content(backend)
    await check_appending(backend)
    await backend.close()


async def test_looking_at_the_version_changes_nothing(path: Path) -> None:
    before = path.read_bytes()
    version = await SQLiteBackend(str(path)).schema_version()
    assert (version.found, version.needed) == (int.from_bytes(before[60:64]), len(migrations(PACKAGE)))
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


async def test_the_version_of_a_file_in_use_is_reported(path: Path) -> None:
    backend = SQLiteBackend(str(path))
    await backend.open()
    version = await backend.schema_version()
    assert version.found == version.needed
    await backend.close()


async def test_the_version_of_a_newer_file_is_reported_and_of_another_program_s_is_not(
    tmp_path: Path,
) -> None:
    path = tmp_path / "memory.db"
    version = await SQLiteBackend(str(path)).schema_version()
    assert version.found == 0
    assert not path.exists()
    backend = SQLiteBackend(str(path))
    await backend.open()
    await backend.writer.run(lambda db: db.pragma("user_version", 99))
    await backend.close()
    assert (await backend.schema_version()).found == 99
    other = tmp_path / "other.db"
    connection = apsw.Connection(str(other))
    connection.execute("CREATE TABLE bookmarks (url TEXT)")
    connection.close()
    with pytest.raises(StoreForeign, match="another program"):
        await SQLiteBackend(str(other)).schema_version()


def test_the_sample_can_be_made_again(tmp_path: Path) -> None:
    version = asyncio.run(fill(SQLiteBackend(str(tmp_path / "again.db"), clock=Clock())))
    assert version == len(migrations(PACKAGE))
    kept = apsw.Connection(str(shutil.copy(DATA / f"sqlite-v{version}.db", tmp_path / "kept.db")))
    again = apsw.Connection(str(tmp_path / "again.db"))
    for table in ("conversations", "messages", "sessions", "documents"):
        rows = f"SELECT * FROM {table} ORDER BY 1, 2"
        assert kept.execute(rows).fetchall() == again.execute(rows).fetchall()
    kept.close()
    again.close()
