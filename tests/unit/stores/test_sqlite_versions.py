"""Files that earlier schema versions wrote still open, still read, and go on being written."""

import asyncio
import runpy
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

from aforesaid.errors import StoreForeign
from aforesaid.model.conversations import Conversation, Query
from aforesaid.model.messages import Message
from aforesaid.stores._sql_files import migrations
from aforesaid.stores.sqlite import SQLiteBackend
from aforesaid.stores.sqlite.connections import PACKAGE

ROOT = Path(__file__).parents[3]
DATA = ROOT / "tests" / "data"
SAMPLES = sorted(DATA.glob("sqlite-v*.db"))
START = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)


def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts" / "sqlite_sample.py"))


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


async def test_it_reads_as_it_was_written(path: Path) -> None:
    known = script()
    backend = SQLiteBackend(str(path))
    await backend.open()
    assert [owner async for owner in backend.owners()] == ["erin", "sam \u2028 '%_"]
    erin, sam = backend.of("erin"), backend.of("sam \u2028 '%_")
    (record,) = (await erin.find(Query())).conversations
    expected = Conversation(
        id=known["KITCHEN"],
        created_at=START,
        updated_at=record.updated_at,
        channel="voice",
        client_id=known["CLIENT"],
        client_name="Lee",
        subject="Doors",
        notes="n",
        tags=("b", "a"),
        last_message_at=record.last_message_at,
        last_message_from="assistant",
        unread_count=3,
        message_count=3,
        revision=3,
    )
    assert record == expected
    assert START < record.updated_at < START + timedelta(hours=1)
    assert await erin.sessions(record.id) == ["hall", "kitchen"]
    first, second, third = await erin.page(record.id, limit=9)
    assert first.message == Message(
        role="user", content={"n": [1, 2.5, None]}, timestamp=START - timedelta(days=900)
    )
    assert (second.message.content, second.message.message_id) == ("Is the back door locked?", "m1")
    assert third.message.content == [{"type": "text", "text": "NUL \0, half a pair \ud800, 家, 😀"}]
    assert (third.message.agent_name, third.message.tags) == ("home", ("doors",))
    assert (third.message.dialect, third.message.extra) == ("anthropic", {"stop_reason": "end_turn"})
    assert third.message.tokens == {"estimate": 9}
    assert [entry.sequence for entry in (first, second, third)] == [3, 1, 2]
    (note,) = await erin.documents("note")
    assert (note.key, note.data, note.version) == ("coffee", b"black", 1)
    (derived,) = await erin.documents("vectors/x", conversation_id=record.id)
    assert (derived.key, derived.data) == ("0001", b"\0\xff")
    (left,) = await sam.page(known["PHONE"], limit=9)
    assert (left.message.content, left.message.content_type) == ("all that is left", "audio")
    assert (left.sequence, left.revision) == (21, 2)
    await backend.close()


async def test_it_goes_on(path: Path) -> None:
    known = script()
    backend = SQLiteBackend(str(path))
    await backend.open()
    store = backend.of("erin")
    again = Message(role="user", content="Is the back door locked?", message_id="m1")
    appended = await store.append(known["KITCHEN"], [again, Message(role="user", content="And now?")])
    assert [entry.sequence for entry in appended.new] == [4]
    assert [entry.sequence for entry in appended.known] == [1]
    await backend.close()


async def test_looking_at_the_version_changes_nothing(path: Path) -> None:
    before = path.read_bytes()
    version = await SQLiteBackend(str(path)).schema_version()
    assert (version.found, version.needed) == (int.from_bytes(before[60:64]), len(migrations(PACKAGE)))
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


async def test_the_version_of_a_file_in_use_is_told(path: Path) -> None:
    backend = SQLiteBackend(str(path))
    await backend.open()
    version = await backend.schema_version()
    assert version.found == version.needed
    await backend.close()


async def test_the_version_of_a_newer_file_is_told_and_of_another_program_s_is_not(tmp_path: Path) -> None:
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
    made = script()
    version = asyncio.run(made["write"](tmp_path / "again.db"))
    assert version == len(migrations(PACKAGE))
    kept = apsw.Connection(str(shutil.copy(DATA / f"sqlite-v{version}.db", tmp_path / "kept.db")))
    again = apsw.Connection(str(tmp_path / "again.db"))
    for table in ("conversations", "messages", "sessions", "documents"):
        rows = f"SELECT * FROM {table} ORDER BY 1, 2"
        assert kept.execute(rows).fetchall() == again.execute(rows).fetchall()
    kept.close()
    again.close()
