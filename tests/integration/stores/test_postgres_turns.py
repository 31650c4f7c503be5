"""Turns that wait in one process are stored together, and each is still stored or refused on its own."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import psycopg
import pytest

from aforesaid.errors import ConversationNotFound, MessageConflict, RevisionConflict, StoreUnavailable
from aforesaid.model.conversations import started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.stores.postgres import PostgresBackend
from aforesaid.stores.postgres.rows import Row
from aforesaid.stores.postgres.store import PostgresStore
from aforesaid.stores.postgres.turns import MOST_BATCHES
from tests.servers.postgres import Databases

TURNS = 40


class CountingBackend(PostgresBackend):
    """Counts the statements that append turns."""

    statements = 0

    async def run(self, name: str, values: Mapping[str, Any]) -> list[Row]:
        self.statements += name == "append_turns"
        return await super().run(name, values)


@pytest.fixture
async def backend(postgres_url: str) -> AsyncIterator[CountingBackend]:
    backend = CountingBackend(postgres_url)
    await backend.open()
    yield backend
    await backend.close()


async def conversation(store: PostgresStore) -> str:
    return (await store.create(started(new_id(), now=store.now()))).id


def said(text: str) -> Message:
    return Message(role="user", content=text, message_id=new_id())


async def contents(store: PostgresStore, conversation_id: str) -> list[Any]:
    return [entry.message.content for entry in await store.tail(conversation_id, limit=100)]


async def occupied(backend: CountingBackend, *turns: Any) -> list[Any]:
    """Start turns while others are under way, so that they wait and go together."""
    store = backend.of(f"busy-{new_id()}")
    others = [
        asyncio.ensure_future(store.append(await conversation(store), [said("x")]))
        for _ in range(MOST_BATCHES)
    ]
    await asyncio.sleep(0)
    found = await asyncio.gather(*turns, return_exceptions=True)
    await asyncio.gather(*others)
    return found


async def test_waiting_turns_of_many_owners_share_statements(backend: CountingBackend) -> None:
    stores = [backend.of(f"owner-{number}-{new_id()}") for number in range(TURNS)]
    ids = [await conversation(store) for store in stores]
    for turn in range(3):
        texts = [f"{turn} {number}" for number in range(TURNS)]
        stored = await asyncio.gather(
            *(
                store.append(name, [said(text), Message(role="assistant", content=text)])
                for store, name, text in zip(stores, ids, texts, strict=True)
            )
        )
        assert [one.conversation.id for one in stored] == ids
        assert [[e.message.content for e in one.new] for one in stored] == [[text, text] for text in texts]
        assert {one.conversation.revision for one in stored} == {turn + 1}
    assert backend.statements < TURNS
    for number, (store, name) in enumerate(zip(stores, ids, strict=True)):
        assert await contents(store, name) == [f"{turn} {number}" for turn in range(3) for _ in range(2)]


async def test_concurrent_turns_of_one_conversation_all_count(backend: CountingBackend) -> None:
    store = backend.of(f"one-{new_id()}")
    name = await conversation(store)
    stored = await asyncio.gather(*(store.append(name, [said(str(n))]) for n in range(TURNS)))
    assert sorted(one.new[0].sequence for one in stored) == list(range(1, TURNS + 1))
    assert sorted(await contents(store, name)) == sorted(map(str, range(TURNS)))


async def test_each_waiting_turn_is_stored_or_refused_on_its_own(backend: CountingBackend) -> None:
    ann, ben = backend.of(f"ann-{new_id()}"), backend.of(f"ben-{new_id()}")
    names = [await conversation(ann) for _ in range(4)]
    other = await conversation(ben)
    known = said("known")
    await ann.append(names[2], [known])
    found = await occupied(
        backend,
        ann.append(names[0], [said("good")]),
        ann.append(names[1], [said("late")], expected_revision=7),
        ann.append(names[2], [known]),
        ann.append(names[3], [known.with_(content="first"), known]),
        ann.append(other, [said("not mine")]),
        ann.append(new_id(), [said("missing")]),
        ben.append(other, [said("mine")]),
    )
    good, late, repeated, conflict, foreign, missing, mine = found
    assert [entry.message.content for entry in good.new] == ["good"]
    assert isinstance(late, RevisionConflict)
    assert not repeated.new
    assert [entry.message.content for entry in repeated.known] == ["known"]
    assert isinstance(conflict, MessageConflict)
    assert isinstance(foreign, ConversationNotFound)
    assert isinstance(missing, ConversationNotFound)
    assert [entry.message.content for entry in mine.new] == ["mine"]
    assert await contents(ann, names[0]) == ["good"]
    assert await contents(ann, names[1]) == []
    assert await contents(ann, names[2]) == ["known"]
    assert await contents(ben, other) == ["mine"]


async def test_a_cancelled_turn_that_waits_is_not_stored(backend: CountingBackend) -> None:
    store = backend.of(f"cancelled-{new_id()}")
    first, second = await conversation(store), await conversation(store)

    async def cancelled() -> None:
        turn = asyncio.ensure_future(store.append(first, [said("never")]))
        await asyncio.sleep(0)
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn

    await occupied(backend, cancelled(), store.append(second, [said("stored")]))
    assert await contents(store, first) == []
    assert await contents(store, second) == ["stored"]


async def test_a_lost_connection_fails_every_turn_of_its_statement(
    backend: CountingBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may be stored, so none is repeated here: their callers know the ids."""
    store = backend.of(f"lost-{new_id()}")
    names = [await conversation(store) for _ in range(3)]
    run = backend.run

    async def lose(name: str, values: Mapping[str, Any]) -> list[Row]:
        found = await run(name, values)
        if name == "append_turns" and len(values["owners"]) > 1:
            raise StoreUnavailable("lost") from psycopg.OperationalError("server closed the connection")
        return found

    monkeypatch.setattr(backend.turns, "_run", lose)
    found = await occupied(backend, *(store.append(name, [said("once")]) for name in names))
    assert [type(one) for one in found] == [StoreUnavailable] * 3
    for name in names:
        assert await contents(store, name) == ["once"]


async def test_a_batch_reads_only_its_conversations_whatever_the_statistics_say(databases: Databases) -> None:
    """The table was analysed with one row, and grows without being analysed again."""
    url = databases.furnished()
    backend = PostgresBackend(url)
    await backend.open()
    try:
        store = backend.of("stale")
        names = [await conversation(store)]
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            await connection.execute("ALTER TABLE aforesaid.conversations SET (autovacuum_enabled = off)")
            await connection.execute("ANALYZE aforesaid.conversations")
            for _ in range(12):  # the plan of the connection is made and kept
                await store.append(names[0], [said("x")])
            names += [await conversation(store) for _ in range(300)]
            before = await rows_read(connection)
            for _ in range(5):
                await asyncio.gather(*(store.append(name, [said("y")]) for name in names[:20]))
            read = await rows_read(connection) - before
        assert read < 5 * 20 * 12, read
    finally:
        await backend.close()


async def rows_read(connection: psycopg.AsyncConnection[Any]) -> int:
    await asyncio.sleep(1.2)  # sessions report their counts at most once a second
    cursor = await connection.execute(
        "SELECT coalesce(sum(idx_tup_read), 0) FROM pg_stat_user_indexes WHERE relname = 'conversations'"
    )
    row = await cursor.fetchone()
    assert row is not None
    return int(row[0])
