"""Whole logs as stores hold them, read and replaced as a person with access to the file or server would."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from aforesaid.contracts import Backend, Position
from aforesaid.model.clock import from_micros, to_micros
from aforesaid.stores.encoded_logs import EncodedEntry
from aforesaid.stores.json_file import JsonFileBackend
from aforesaid.stores.memory import InMemoryBackend
from aforesaid.stores.postgres import PostgresBackend
from aforesaid.stores.redis import RedisBackend
from aforesaid.stores.redis.values import moment, moment_from
from aforesaid.stores.sqlite import SQLiteBackend


class Row(NamedTuple):
    """A message as it is stored. A JSON file has no `at` of its own: the body says when."""

    at: int
    sequence: int
    message_id: str | None
    revision: int
    stored_at: int
    body: bytes


class RawLog(NamedTuple):
    """The rows of a log in the order in which the store reads them, and its head."""

    rows: tuple[Row, ...]
    head: str | None

    def with_rows(self, *rows: Row) -> "RawLog":
        return RawLog(tuple(sorted(rows)), self.head)


async def read_log(backend: Backend, owner: str, conversation_id: str) -> RawLog:
    match backend:
        case InMemoryBackend():
            return _read_memory(backend, owner, conversation_id)
        case JsonFileBackend():
            return _read_file(backend, owner, conversation_id)
        case SQLiteBackend():
            return await _read_sqlite(backend, owner, conversation_id)
        case RedisBackend():
            return await _read_redis(backend, owner, conversation_id)
        case PostgresBackend():
            return await _read_postgres(backend, owner, conversation_id)
    raise AssertionError(f"how is {backend} read?")


async def write_log(backend: Backend, owner: str, conversation_id: str, log: RawLog) -> None:
    """Put this log in the place of what is there. A JSON file is closed, changed and opened again."""
    match backend:
        case InMemoryBackend():
            _write_memory(backend, owner, conversation_id, log)
        case JsonFileBackend():
            await backend.close()
            _write_file(backend, owner, conversation_id, log)
            await backend.open()
        case SQLiteBackend():
            await _write_sqlite(backend, owner, conversation_id, log)
        case RedisBackend():
            await _write_redis(backend, owner, conversation_id, log)
        case PostgresBackend():
            await _write_postgres(backend, owner, conversation_id, log)
        case _:
            raise AssertionError(f"how is {backend} changed?")


def _read_memory(backend: InMemoryBackend, owner: str, conversation_id: str) -> RawLog:
    log = backend.data_by_owner[owner].logs[conversation_id]
    ids = {id(encoded): message_id for message_id, encoded in log.by_id.items()}
    rows = [
        Row(
            *encoded.position,
            ids.get(id(encoded)),
            encoded.revision,
            to_micros(encoded.stored_at),
            encoded.body,
        )
        for encoded in log.entries
    ]
    return RawLog(tuple(rows), log.head)


def _write_memory(backend: InMemoryBackend, owner: str, conversation_id: str, raw: RawLog) -> None:
    log = backend.data_by_owner[owner].logs[conversation_id]
    encoded_entries = [
        (
            row,
            EncodedEntry(Position(row.at, row.sequence), row.revision, from_micros(row.stored_at), row.body),
        )
        for row in raw.rows
    ]
    log.entries[:] = [encoded for _, encoded in encoded_entries]
    log.by_id = {row.message_id: encoded for row, encoded in encoded_entries if row.message_id is not None}
    log.head = raw.head


def _conversation(document: Any, owner: str, conversation_id: str) -> Any:
    kept = document["owners"][owner]["conversations"]
    (conversation,) = [one for one in kept if one["record"]["id"] == conversation_id]
    return conversation


def _read_file(backend: JsonFileBackend, owner: str, conversation_id: str) -> RawLog:
    document = json.loads(Path(backend.path).read_bytes())
    conversation = _conversation(document, owner, conversation_id)
    rows = [
        Row(
            to_micros(datetime.fromisoformat(line["message"]["timestamp"])),
            line["sequence"],
            line["message"].get("message_id"),
            line["revision"],
            to_micros(datetime.fromisoformat(line["stored_at"])),
            json.dumps(line["message"]).encode(),
        )
        for line in conversation["messages"]
    ]
    return RawLog(tuple(rows), conversation.get("head"))


def _write_file(backend: JsonFileBackend, owner: str, conversation_id: str, raw: RawLog) -> None:
    path = Path(backend.path)
    document = json.loads(path.read_bytes())
    conversation = _conversation(document, owner, conversation_id)
    conversation["head"] = raw.head
    conversation["messages"] = [
        {
            "sequence": row.sequence,
            "revision": row.revision,
            "stored_at": from_micros(row.stored_at).isoformat(),
            "message": json.loads(row.body),
        }
        for row in raw.rows
    ]
    path.write_bytes(json.dumps(document).encode())


_PK = "(SELECT pk FROM conversations WHERE owner = ? AND id = ?)"


async def _read_sqlite(backend: SQLiteBackend, owner: str, conversation_id: str) -> RawLog:
    named = owner, conversation_id
    select = (
        "SELECT at, sequence, message_id, revision, stored_at, CAST(body AS BLOB) FROM messages "
        f"WHERE conversation = {_PK} ORDER BY at, sequence"
    )
    rows = await backend.writer.run(lambda db: db.execute(select, named).fetchall())
    heads = await backend.writer.run(
        lambda db: db.execute("SELECT head FROM conversations WHERE owner = ? AND id = ?", named).fetchall()
    )
    return RawLog(tuple(Row(*row) for row in rows), heads[0][0])  # type: ignore[arg-type]


async def _write_sqlite(backend: SQLiteBackend, owner: str, conversation_id: str, log: RawLog) -> None:
    named = owner, conversation_id
    insert = (
        "INSERT INTO messages (conversation, at, sequence, message_id, revision, stored_at, body) "
        f"VALUES ({_PK}, ?, ?, ?, ?, ?, CAST(? AS TEXT))"
    )

    def work(db: Any) -> None:
        db.execute(f"DELETE FROM messages WHERE conversation = {_PK}", named)
        for row in log.rows:
            db.execute(insert, (*named, *row))
        db.execute("UPDATE conversations SET head = ? WHERE owner = ? AND id = ?", (log.head, *named))

    await backend.writer.run(work)


async def _read_redis(backend: RedisBackend, owner: str, conversation_id: str) -> RawLog:
    keys = backend.of(owner)._keys.of(conversation_id)
    call = backend.connections.call
    flat = await call("HGETALL", keys.ids)
    pairs = flat.items() if isinstance(flat, dict) else zip(flat[::2], flat[1::2], strict=True)
    ids = {bytes(position): bytes(name).decode() for name, position in pairs}
    rows = []
    for member in await call("ZRANGE", keys.log, 0, -1):
        place, revision, stored_at, body = bytes(member).split(b":", 3)
        at, stored = to_micros(moment_from(place[:20])), to_micros(moment_from(stored_at))
        rows.append(Row(at, int(place[20:36]), ids.get(place), int(revision), stored, body))
    head = await call("HGET", keys.record, "head")
    return RawLog(tuple(rows), None if head is None else bytes(head).decode())


async def _write_redis(backend: RedisBackend, owner: str, conversation_id: str, log: RawLog) -> None:
    keys = backend.of(owner)._keys.of(conversation_id)
    call = backend.connections.call
    await call("DEL", keys.log, keys.ids)
    for row in log.rows:
        place = f"{moment(row.at)}{row.sequence:016d}"
        member = f"{place}:{row.revision}:{moment(row.stored_at)}:".encode() + row.body
        await call("ZADD", keys.log, 0, member)
        if row.message_id is not None:
            await call("HSET", keys.ids, row.message_id, place)
    if log.head is None:
        await call("HDEL", keys.record, "head")
    else:
        await call("HSET", keys.record, "head", log.head)


async def _read_postgres(backend: PostgresBackend, owner: str, conversation_id: str) -> RawLog:
    async with backend.connection() as connection, connection.transaction():
        await connection.execute("SELECT set_config('aforesaid.owner', %s, true)", (owner,))
        found = await connection.execute(
            "SELECT at, sequence, message_key, revision, stored_at, body FROM aforesaid.messages "
            "WHERE conversation_id = %s ORDER BY at, sequence",
            (conversation_id,),
        )
        rows = [
            Row(to_micros(at), sequence, key, revision, to_micros(stored_at), body.encode())
            for at, sequence, key, revision, stored_at, body in await found.fetchall()
        ]
        heads = await connection.execute(
            "SELECT head FROM aforesaid.conversations WHERE id = %s", (conversation_id,)
        )
        ((head,),) = await heads.fetchall()
    return RawLog(tuple(rows), head)


async def _write_postgres(backend: PostgresBackend, owner: str, conversation_id: str, log: RawLog) -> None:
    insert = (
        "INSERT INTO aforesaid.messages "
        "(owner, conversation_id, at, sequence, role, message_key, revision, stored_at, body, term_count) "
        "VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, 0)"
    )
    async with backend.connection() as connection, connection.transaction():
        await connection.execute("SELECT set_config('aforesaid.owner', %s, true)", (owner,))
        await connection.execute(
            "DELETE FROM aforesaid.messages WHERE conversation_id = %s", (conversation_id,)
        )
        for row in log.rows:
            role = json.loads(row.body)["role"]
            moments = from_micros(row.at), from_micros(row.stored_at)
            values = (moments[0], row.sequence, role, row.message_id, row.revision, moments[1])
            await connection.execute(insert, (owner, conversation_id, *values, row.body.decode()))
        await connection.execute(
            "UPDATE aforesaid.conversations SET head = %s WHERE id = %s", (log.head, conversation_id)
        )
