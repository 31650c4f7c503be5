"""Stored bodies, read and changed as a person with access to the file or server would."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from aforesaid.contracts import Backend
from aforesaid.stores.json_file import JsonFileBackend
from aforesaid.stores.memory import InMemoryBackend
from aforesaid.stores.postgres import PostgresBackend
from aforesaid.stores.redis import RedisBackend
from aforesaid.stores.sqlite import SQLiteBackend

Bodies = dict[int, bytes]
"""The stored form of each message of a conversation, by its sequence."""


async def read_bodies(backend: Backend, owner: str, conversation_id: str) -> Bodies:
    """What is stored of the conversation's messages."""
    found: Bodies = {}
    await edit_bodies(backend, owner, conversation_id, found.update)
    return found


async def edit_bodies(
    backend: Backend, owner: str, conversation_id: str, edit: Callable[[Bodies], object]
) -> None:
    """Change stored messages in place. A JSON file is closed, changed and opened again."""
    match backend:
        case InMemoryBackend():
            _edit_in_memory(backend, owner, conversation_id, edit)
        case JsonFileBackend():
            await backend.close()
            _edit_file(Path(backend.path), owner, conversation_id, edit)
            await backend.open()
        case SQLiteBackend():
            await _edit_sqlite(backend, owner, conversation_id, edit)
        case RedisBackend():
            await _edit_redis(backend, owner, conversation_id, edit)
        case PostgresBackend():
            await _edit_postgres(backend, owner, conversation_id, edit)
        case _:
            raise AssertionError(f"how is {backend} changed?")


def _changed(before: Bodies, edit: Callable[[Bodies], object]) -> Bodies:
    after = dict(before)
    edit(after)
    assert after.keys() == before.keys(), "rows stay; only what they say changes"
    return {sequence: body for sequence, body in after.items() if body != before[sequence]}


def _edit_in_memory(
    backend: InMemoryBackend, owner: str, conversation_id: str, edit: Callable[[Bodies], object]
) -> None:
    log = backend.data_by_owner[owner].logs[conversation_id]
    changed = _changed({encoded.position.sequence: encoded.body for encoded in log.entries}, edit)
    for at, encoded in enumerate(log.entries):
        if encoded.position.sequence in changed:
            log.entries[at] = replace(encoded, body=changed[encoded.position.sequence])
            for message_id, held in log.by_id.items():
                log.by_id[message_id] = log.entries[at] if held is encoded else held


def _edit_file(path: Path, owner: str, conversation_id: str, edit: Callable[[Bodies], object]) -> None:
    document = json.loads(path.read_bytes())
    kept = document["owners"][owner]["conversations"]
    (conversation,) = [one for one in kept if one["record"]["id"] == conversation_id]
    lines = {line["sequence"]: line for line in conversation["messages"]}
    bodies = {sequence: json.dumps(line["message"]).encode() for sequence, line in lines.items()}
    for sequence, body in _changed(bodies, edit).items():
        lines[sequence]["message"] = json.loads(body)
    path.write_bytes(json.dumps(document).encode())


async def _edit_sqlite(
    backend: SQLiteBackend, owner: str, conversation_id: str, edit: Callable[[Bodies], object]
) -> None:
    where = (
        "conversation = (SELECT pk FROM conversations WHERE owner = ? AND id = ?)",
        (owner, conversation_id),
    )
    rows: list[Any] = await backend.writer.run(
        lambda db: db.execute(
            f"SELECT sequence, CAST(body AS BLOB) FROM messages WHERE {where[0]}", where[1]
        ).fetchall()
    )
    bodies = {int(sequence): bytes(body) for sequence, body in rows}
    update = f"UPDATE messages SET body = CAST(? AS TEXT) WHERE sequence = ? AND {where[0]}"
    values = [(body, sequence, *where[1]) for sequence, body in _changed(bodies, edit).items()]
    await backend.writer.run(lambda db: list(db.executemany(update, values)))


async def _edit_redis(
    backend: RedisBackend, owner: str, conversation_id: str, edit: Callable[[Bodies], object]
) -> None:
    key = backend.of(owner)._keys.of(conversation_id).log
    members = {int(member[20:36]): member for member in await backend.connections.call("ZRANGE", key, 0, -1)}
    bodies = {sequence: member.split(b":", 3)[3] for sequence, member in members.items()}
    for sequence, body in _changed(bodies, edit).items():
        head = members[sequence].removesuffix(bodies[sequence])
        await backend.connections.call("ZREM", key, members[sequence])
        await backend.connections.call("ZADD", key, 0, head + body)


async def _edit_postgres(
    backend: PostgresBackend, owner: str, conversation_id: str, edit: Callable[[Bodies], object]
) -> None:
    async with backend.connection() as connection, connection.transaction():
        await connection.execute("SELECT set_config('aforesaid.owner', %s, true)", (owner,))
        found = await connection.execute(
            "SELECT sequence, body FROM aforesaid.messages WHERE conversation_id = %s", (conversation_id,)
        )
        bodies = {sequence: body.encode() for sequence, body in await found.fetchall()}
        for sequence, body in _changed(bodies, edit).items():
            done = await connection.execute(
                "UPDATE aforesaid.messages SET body = %s WHERE conversation_id = %s AND sequence = %s",
                (body.decode(), conversation_id, sequence),
            )
            assert done.rowcount == 1


WRONG_CHANNEL = "!!"


async def damage_record(backend: Backend, owner: str, conversation_id: str) -> None:
    """Give a stored record a channel that no caller could have given it."""
    match backend:
        case SQLiteBackend():
            where = (WRONG_CHANNEL, owner, conversation_id)
            update = "UPDATE conversations SET channel = ? WHERE owner = ? AND id = ?"
            await backend.writer.run(lambda db: list(db.execute(update, where)))
        case RedisBackend():
            key = backend.of(owner)._keys.of(conversation_id).record
            await backend.connections.call("HSET", key, "channel", WRONG_CHANNEL)
        case PostgresBackend():
            async with backend.connection() as connection, connection.transaction():
                await connection.execute("SELECT set_config('aforesaid.owner', %s, true)", (owner,))
                update = "UPDATE aforesaid.conversations SET channel = %s WHERE id = %s"
                done = await connection.execute(update, (WRONG_CHANNEL, conversation_id))
                assert done.rowcount == 1
        case _:
            raise AssertionError(f"how is {backend} changed?")
