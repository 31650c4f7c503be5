"""A server that lost its data is an error, not an empty memory."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import aforesaid
from aforesaid.contracts import ConversationStore
from aforesaid.errors import ConversationNotFound, InvalidSetting, StoreReplaced
from aforesaid.layers.resilient import Resilience
from aforesaid.model.conversations import Query, started
from aforesaid.model.ids import new_id
from aforesaid.stores.redis import RedisBackend
from aforesaid.stores.redis.identity import is_empty
from tests.servers.postgres import Databases
from tests.servers.redis import client, running


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has reached nothing yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


Use = Callable[[ConversationStore, str], Awaitable[Any]]

USES: dict[str, Use] = {
    "get": lambda store, known: store.get(known),
    "find": lambda store, known: store.find(Query()),
    "tail": lambda store, known: store.tail(known, limit=2),
    "append": lambda store, known: store.append(known, []),
    "create": lambda store, known: store.create(started(new_id(), now=store.now())),
    "resume": lambda store, known: store.resume("kitchen", started(new_id(), now=store.now())),
    "session": lambda store, known: store.session("kitchen"),
    "get_document": lambda store, known: store.get_document("note", "allergy"),
    "put_document": lambda store, known: store.put_document("note", "color", b"blue"),
    "list_documents": lambda store, known: store.documents("note"),
}


@pytest.mark.parametrize("use", USES)
async def test_every_use_of_a_flushed_server_is_an_error(use: str) -> None:
    with running() as port, client(port) as admin:
        backend = RedisBackend(f"redis://127.0.0.1:{port}")
        await backend.open()
        try:
            store = backend.of("erin")
            known = await store.create(started(new_id(), now=store.now()))
            await store.put_document("note", "allergy", b"nuts")
            admin.flushall()
            for _ in range(2):  # the first use must not hide the loss from the second
                with pytest.raises(StoreReplaced, match="lost its data"):
                    await USES[use](store, known.id)
        finally:
            await backend.close()


async def test_turns_wait_in_the_spool_until_the_data_is_restored() -> None:
    with running() as port, client(port) as admin:
        async with aforesaid.open(f"redis://127.0.0.1:{port}/0") as memory:
            erin = memory.of("erin")
            async with erin.turn("kitchen") as turn:
                turn.user("the code is 7788")
            backup = {key: (admin.dump(key), max(admin.pttl(key), 0)) for key in admin.scan_iter()}
            admin.flushall()
            async with erin.turn("kitchen") as turn:
                turn.user("and the plant needs water")
            health = await memory.health()
            assert health is not None
            assert health.degraded
            assert "lost its data" in (health.reason or "")
            assert admin.keys() == []
            for key, (value, ttl) in backup.items():
                admin.restore(key, ttl, value)
        async with aforesaid.open(f"redis://127.0.0.1:{port}/0") as memory:
            stored = await memory.of("erin").messages("kitchen")
            assert [one.content for one in stored] == ["the code is 7788", "and the plant needs water"]


@pytest.mark.parametrize("kind", ["redis", "postgres"])
async def test_other_data_at_the_same_address_is_refused_at_the_start(
    kind: str, databases: Databases
) -> None:
    with running() as port, client(port) as admin:
        database = databases.new()
        url = database if kind == "postgres" else f"redis://127.0.0.1:{port}/0"
        async with aforesaid.open(url) as memory:
            await memory.of("erin").add_message("kitchen", "user", "hello")
        admin.flushall()
        if kind == "postgres":
            await drop_schema(database)
        with pytest.raises(StoreReplaced, match="AFORESAID_START_REPLACED"):
            await aforesaid.open(url)
        accepting = aforesaid.Layers(resilience=Resilience(start_replaced=True))
        async with aforesaid.open(url, layers=accepting) as memory:
            with pytest.raises(ConversationNotFound):
                await memory.of("erin").messages("kitchen")
        async with aforesaid.open(url):  # it is remembered
            pass


async def drop_schema(url: str) -> None:
    import psycopg

    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute("DROP SCHEMA aforesaid CASCADE")
        await connection.execute("DROP SCHEMA IF EXISTS api CASCADE")


async def test_a_server_that_evicts_is_refused() -> None:
    with running("--maxmemory-policy", "allkeys-lru", "--maxmemory", "100mb") as port:
        url = f"redis://127.0.0.1:{port}/0"
        with pytest.raises(InvalidSetting, match=r"allkeys-lru.*eviction=accept"):
            await aforesaid.open(url)
        async with aforesaid.open(f"{url}?eviction=accept") as memory:
            await memory.of("erin").add_message("kitchen", "user", "hello")
        with pytest.raises(InvalidSetting, match="eviction"):
            aforesaid.open(f"{url}?eviction=maybe")


@pytest.mark.parametrize(
    ("reply", "empty"),
    [
        (None, True), (0, True), (b"", True), ([], True), ([b"missing"], True), ([b"done", [], None], True),
        ([None, None], True), (1, False), (b"0", False), ([b"done", [b"x"]], False), ([b"exists"], False),
    ],
)  # fmt: skip
def test_what_counts_as_empty(reply: object, empty: bool) -> None:
    assert is_empty(reply) is empty
