"""Write tests/data/<store>-v<N>.…: a small store as each kind writes it at the present version of its data.

    python -m tests.stored_samples

A sample is made once for each version and then kept as it is, so that later releases are held to reading it:
`tests/unit/stores/test_sqlite_versions.py`, `tests/integration/stores/test_versions.py`. Existing samples are
kept. Those of Redis and PostgreSQL are a dump of the keys and of the tables.
"""

import asyncio
import base64
import json
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import redis
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from aforesaid.contracts import Backend, Migratable, capability
from aforesaid.model.conversations import Changes, Conversation, Query, started
from aforesaid.model.messages import Message
from aforesaid.stores.json_file import JsonFileBackend
from aforesaid.stores.postgres import PostgresBackend
from aforesaid.stores.redis import RedisBackend
from aforesaid.stores.sqlite import SQLiteBackend
from tests.servers.postgres import Databases, PostgresServer
from tests.servers.redis import running

DATA = Path(__file__).parent / "data"
START = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
KITCHEN = "0195503a-7f10-7c3e-9d5a-2b6f0c1e4a01"
PHONE = "0195503a-7f10-7c3e-9d5a-2b6f0c1e4a02"
CLIENT = "0195503a-7f10-7c3e-9d5a-2b6f0c1e4a03"


class Clock:
    """A minute later at every look, so that the file is the same whenever it is made."""

    def __init__(self) -> None:
        self._now = START

    def __call__(self) -> datetime:
        self._now += timedelta(minutes=1)
        return self._now


async def fill(backend: Backend) -> int:
    """Fill the store; return the version of its data."""
    await backend.open()
    try:
        await _fill(backend)
        if isinstance(backend, SQLiteBackend):
            await backend.catch_up()  # at rest a slow machine would index some of it
    finally:
        await backend.close()
    return await version_of(backend)


async def version_of(backend: Backend) -> int:
    """Return the version of the stored data."""
    migratable = capability(backend, Migratable)
    assert migratable is not None
    return (await migratable.schema_version()).found


async def _fill(backend: Backend) -> None:
    erin = backend.of("erin")
    await erin.resume("kitchen", started(KITCHEN, now=START, ttl=None, channel="voice"))
    await erin.bind("hall", KITCHEN)
    await erin.append(KITCHEN, [Message(role="user", content="Is the back door locked?", message_id="m1")])
    await erin.append(
        KITCHEN,
        [
            Message(
                role="assistant",
                content=[{"type": "text", "text": "NUL \0, half a pair \ud800, 家, 😀"}],
                agent_name="home",
                tags=("doors",),
                dialect="anthropic",
                extra={"stop_reason": "end_turn"},
                tokens={"estimate": 9},
            ),
            Message(role="user", content={"n": [1, 2.5, None]}, timestamp=START - timedelta(days=900)),
        ],
    )
    changes = Changes(client_id=CLIENT, client_name="Lee", subject="Doors", notes="n", tags=("b", "a"))
    await erin.update(KITCHEN, changes)
    await erin.put_document("note", "coffee", b"black")
    await erin.put_document("vectors/x", "0001", b"\0\xff", conversation_id=KITCHEN)
    sam = backend.of("sam \u2028 '%_")
    await sam.create(started(PHONE, now=START, ttl=None, channel="phone", priority="urgent"))
    await sam.append(PHONE, [Message(role="user", content=f"message {number}") for number in range(20)])
    await sam.rewrite(PHONE, [Message(role="user", content="all that is left", content_type="audio")])


# What the samples contain


async def check_content(backend: Backend) -> None:
    """Check that the open store reads as it was written."""
    assert [owner async for owner in backend.owners()] == ["erin", "sam \u2028 '%_"]
    erin, sam = backend.of("erin"), backend.of("sam \u2028 '%_")
    (record,) = (await erin.find(Query())).conversations
    expected = Conversation(
        id=KITCHEN,
        created_at=START,
        updated_at=record.updated_at,
        channel="voice",
        client_id=CLIENT,
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
    (left,) = await sam.page(PHONE, limit=9)
    assert (left.message.content, left.message.content_type) == ("all that is left", "audio")
    assert (left.sequence, left.revision) == (21, 2)


async def check_appending(backend: Backend) -> None:
    """Check that the open store recognises a known message, and continues the numbers of its log."""
    again = Message(role="user", content="Is the back door locked?", message_id="m1")
    appended = await backend.of("erin").append(KITCHEN, [again, Message(role="user", content="And now?")])
    assert [entry.sequence for entry in appended.new] == [4]
    assert [entry.sequence for entry in appended.known] == [1]


# Redis: every key as the server dumps it


def dump_redis(url: str) -> str:
    """Return all keys of a database."""
    with redis.Redis.from_url(url) as client:
        dumped = {key: client.dump(key) for key in sorted(client.keys())}
    return json.dumps({_coded(key): _coded(value) for key, value in dumped.items()}, indent=1) + "\n"


def restore_redis(url: str, sample: str) -> None:
    """Write the keys into an empty database."""
    with redis.Redis.from_url(url) as client:
        for key, value in json.loads(sample).items():
            client.restore(base64.b64decode(key), 0, base64.b64decode(value))


def _coded(octets: bytes) -> str:
    return base64.b64encode(octets).decode()


# PostgreSQL: the rows of every table, without the partitions of a partitioned one

TABLES = """
SELECT c.relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = 'aforesaid' AND c.relkind IN ('r', 'p') AND NOT c.relispartition ORDER BY c.relname
"""
# Columns that the server computes are not written.
COLUMNS = """
SELECT a.attname FROM pg_attribute AS a
WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
ORDER BY a.attnum
"""


def dump_postgres(admin_url: str, url: str) -> str:
    """Return the rows of our tables. The superuser reads them, because row-level security hides them from the
    owner of the tables."""
    with as_admin(admin_url, url) as connection:
        tables = {name: _rows(connection, name) for (name,) in connection.execute(TABLES).fetchall()}
    return json.dumps({name: rows for name, rows in tables.items() if rows["rows"]}, indent=1) + "\n"


def _rows(connection: psycopg.Connection[Any], table: str) -> dict[str, Any]:
    columns = [name for (name,) in connection.execute(COLUMNS, (f"aforesaid.{table}",)).fetchall()]
    listed = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(name)) for name in columns)
    query = sql.SQL("SELECT {} FROM {}").format(listed, sql.Identifier("aforesaid", table))
    found = sorted(connection.execute(query).fetchall(), key=repr)
    return {"columns": columns, "rows": [list(row) for row in found]}


def as_admin(admin_url: str, url: str) -> psycopg.Connection[Any]:
    """Connect to the database of the URL as the superuser."""
    return psycopg.connect(admin_url, dbname=str(conninfo_to_dict(url)["dbname"]), autocommit=True)


def restore_postgres(admin_url: str, url: str, sample: str) -> None:
    """Write the rows into the tables of the same version. No trigger runs, as in a restored backup."""
    with as_admin(admin_url, url) as connection:
        connection.execute("SET session_replication_role = replica")
        for name, table in json.loads(sample).items():
            place = sql.Identifier("aforesaid", name)
            connection.execute(sql.SQL("DELETE FROM {}").format(place))
            columns = sql.SQL(", ").join(map(sql.Identifier, table["columns"]))
            with connection.cursor().copy(sql.SQL("COPY {} ({}) FROM STDIN").format(place, columns)) as rows:
                for row in table["rows"]:
                    rows.write_row(row)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, kind in (("sqlite", SQLiteBackend), ("json", JsonFileBackend)):
            path = Path(folder) / name
            keep(name, asyncio.run(fill(kind(str(path), clock=Clock()))), path.read_bytes())
    with running() as port:
        url = f"redis://127.0.0.1:{port}/0"
        keep("redis", asyncio.run(fill(RedisBackend(url, clock=Clock()))), dump_redis(url).encode())
    server = PostgresServer()
    server.start()
    try:
        url = Databases(server.url).new()
        version = asyncio.run(fill(PostgresBackend(url, clock=Clock())))
        keep("postgres", version, dump_postgres(server.url, url).encode())
    finally:
        server.stop()


def keep(name: str, version: int, sample: bytes) -> None:
    """Write the sample of a version, unless there is one."""
    path = DATA / f"{name}-v{version}.{'db' if name == 'sqlite' else 'json'}"
    if path.exists():
        print(f"{path.name} exists and is kept")
    else:
        path.write_bytes(sample)


if __name__ == "__main__":
    main()
