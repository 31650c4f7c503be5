"""Stores of earlier versions still open, still read, and go on being written: JSON, Redis, PostgreSQL.
`tests/unit/stores/test_sqlite_versions.py` does the same for SQLite."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from aforesaid.contracts import Migratable, capability
from aforesaid.stores._sql_files import migrations
from aforesaid.stores.json_file import JsonFileBackend
from aforesaid.stores.postgres.connections import PACKAGE
from aforesaid.stores.urls import backend_for
from tests.servers.postgres import Databases
from tests.servers.redis import running
from tests.stored_samples import (
    DATA,
    check_appending,
    check_content,
    restore_postgres,
    restore_redis,
    version_of,
)

SAMPLES = sorted(path for path in DATA.glob("*-v*.json"))
SHARED = [sample for sample in SAMPLES if not sample.name.startswith("json")]


@pytest.fixture(params=SAMPLES, ids=lambda path: path.stem)
def sample(request: pytest.FixtureRequest) -> Path:
    return Path(request.param)


@pytest.fixture
def written(sample: Path) -> int:
    """The version that wrote the sample."""
    return int(sample.stem.rpartition("-v")[2])


@pytest.fixture
def url(sample: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """A store with the sample's content, at the sample's version."""
    match sample.name.partition("-")[0]:
        case "json":
            yield f"file://{shutil.copy(sample, tmp_path / 'memory.json')}"
        case "redis":
            with running() as port:
                restore_redis(f"redis://127.0.0.1:{port}/0", sample.read_text())
                yield f"redis://127.0.0.1:{port}/0"
        case _:
            yield restored(request.getfixturevalue("databases"), sample)


def restored(databases: Databases, sample: Path) -> str:
    """Return a database with the tables of the sample's version and its rows."""
    url = databases.new()
    with psycopg.connect(url, autocommit=True) as connection:
        for _, step in migrations(PACKAGE)[: int(sample.stem.rpartition("-v")[2])]:
            connection.execute(step.encode())
    restore_postgres(databases.admin_url, url, sample.read_text())
    return url


async def test_it_reads_and_continues(url: str, written: int) -> None:
    backend = backend_for(url)
    assert await version_of(backend) == written
    await backend.open()
    try:
        await check_content(backend)
        await check_appending(backend)
    finally:
        await backend.close()
    migratable = capability(backend, Migratable)
    assert migratable is not None
    version = await migratable.schema_version()
    assert version.found == version.needed


@pytest.mark.parametrize("sample", SHARED, ids=lambda path: path.stem, indirect=True)
async def test_processes_that_open_it_at_once_migrate_it_once(url: str) -> None:
    backends = [backend_for(url) for _ in range(4)]
    await asyncio.gather(*(backend.open() for backend in backends))
    try:
        for backend in backends:
            await check_content(backend)
    finally:
        for backend in backends:
            await backend.close()


async def test_the_document_before_a_migration_is_its_backup(tmp_path: Path) -> None:
    path = Path(shutil.copy(DATA / "json-v1.json", tmp_path / "memory.json"))
    before = path.read_bytes()
    backend = JsonFileBackend(path)
    await backend.open()
    await backend.close()
    assert b'"version": 2' in path.read_bytes()
    assert path.with_name("memory.json.backup").read_bytes() == before


async def test_reading_the_version_changes_nothing(tmp_path: Path) -> None:
    path = Path(shutil.copy(DATA / "json-v1.json", tmp_path / "memory.json"))
    before = path.read_bytes()
    assert await version_of(JsonFileBackend(path)) == 1
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == before
    assert await version_of(JsonFileBackend(tmp_path / "missing.json")) == 0
