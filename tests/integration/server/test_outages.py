"""A server whose store is away: answers from the last known state are marked, unknown data is a 503."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import aforesaid
from aforesaid._internal.freshness import noting_freshness
from aforesaid.contracts.listing import check_complete
from aforesaid.errors import StoreUnavailable
from aforesaid.memory.opening import Memory
from aforesaid.model.messages import Message
from aforesaid.protocol.documents import conversation_of
from aforesaid.server.auth.authenticator import Authenticator
from aforesaid.server.auth.keys import ApiKeys
from aforesaid.stores.memory import InMemoryBackend
from tests.integration.server.running import Running, serving_memory
from tests.unit.layers.conftest import LayerSetup

OWNERS = [f"owner {number}" for number in range(5)]
LONG = 600
HEADER = "aforesaid-degraded"


class DisconnectedServer:
    """A server with five owners, of whom it knows one, and of that one the end of a long conversation."""

    def __init__(self, setup: LayerSetup, server: Running, long: str, short: str) -> None:
        self.setup = setup
        self.server = server
        self.long = long
        self.short = short

    async def get(self, path: str) -> "tuple[int, dict[str, object], bool]":
        answer = await self.server.client.get(f"/v1{path}", headers={"aforesaid-owner": OWNERS[0]})
        return answer.status_code, answer.json(), HEADER in answer.headers


@pytest.fixture
async def away(tmp_path: Path) -> AsyncIterator[DisconnectedServer]:
    setup = LayerSetup(tmp_path / "spool")
    await setup.layer.open()
    before = Memory(
        setup.layer,
        retention=aforesaid.Retention(sweep_every=None),
        models=aforesaid.Models(preload=False, embedder=None),
    )
    for owner in OWNERS:
        record = await before.of(owner).get_or_create_conversation("kitchen")
        await before.of(owner).append(record.id, [Message(role="user", content="hello")])
    first = before.of(OWNERS[0])
    short = (await first.get_or_create_conversation("kitchen")).id
    long = (await first.get_or_create_conversation("long")).id
    await first.append(long, [Message(role="user", content=str(number)) for number in range(LONG)])
    await setup.layer.close()
    await setup.memory.open()
    setup.layer = setup.make()
    memory = Memory(
        setup.layer,
        retention=aforesaid.Retention(sweep_every=None),
        models=aforesaid.Models(preload=False, embedder=None),
    )
    await memory.start()
    keys = InMemoryBackend()
    await keys.open()
    async with serving_memory(
        memory, authenticator=Authenticator(ApiKeys(keys), open_for=OWNERS[0])
    ) as server:
        found = DisconnectedServer(setup, server, long, short)
        await memory.of(OWNERS[0]).load_context(long)
        await memory.of(OWNERS[0]).messages(short)
        await memory.of(OWNERS[0]).get_conversation(short)
        await memory.of(OWNERS[0]).load_context(short)
        setup.failing.down()
        yield found
        setup.failing.up()
    await memory.close()


async def test_a_log_that_is_not_known_is_refused(away: DisconnectedServer) -> None:
    for query in ("", "?offset=0&limit=20", "?before=latest&limit=500"):
        status, problem, _ = await away.get(f"/conversations/{away.long}/messages{query}")
        assert status == 503, problem
        assert "entries" not in problem


async def test_a_log_that_is_known_is_marked(away: DisconnectedServer) -> None:
    status, page, marked = await away.get(f"/conversations/{away.short}/messages")
    assert (status, marked, page["degraded"]) == (200, True, True)
    assert len(page["entries"]) == 1  # type: ignore[arg-type]


async def test_records_and_lists_are_marked(away: DisconnectedServer) -> None:
    for path in ("/conversations", f"/conversations/{away.short}"):
        status, document, marked = await away.get(path)
        assert (status, marked, document["degraded"]) == (200, True, True)


async def test_a_client_reads_a_marked_record(away: DisconnectedServer) -> None:
    status, document, marked = await away.get(f"/conversations/{away.short}")
    assert (status, marked) == (200, True)
    assert conversation_of(document).id == away.short


async def test_a_turn_that_is_accepted_into_the_spool_is_marked(away: DisconnectedServer) -> None:
    answer = await away.server.client.post(
        f"/v1/conversations/{away.short}/turns",
        headers={"aforesaid-owner": OWNERS[0]},
        json={"messages": [{"role": "user", "content": "in the outage"}]},
    )
    assert (answer.status_code, answer.json()["degraded"], HEADER in answer.headers) == (201, True, True)


async def test_numbers_and_owners_are_complete_or_refused(away: DisconnectedServer) -> None:
    for path in ("/stats", "/owners"):
        status, problem, _ = await away.get(path)
        assert status == 503, problem


async def test_a_server_that_catches_up_counts_everything(away: DisconnectedServer) -> None:
    client = away.server.client
    for _ in range(3):
        await client.post(
            f"/v1/conversations/{away.long}/turns",
            headers={"aforesaid-owner": OWNERS[0]},
            json={"messages": [{"role": "user", "content": "in the outage"}]},
        )
    away.setup.failing.up()
    away.setup.seconds.now += 60
    assert await away.setup.layer.connection.probe()
    status, found, marked = await away.get("/stats")
    assert (status, found["messages"], marked) == (200, LONG + 4, False)
    _, found, _ = await away.get("/owners")
    assert found["owners"] == OWNERS


async def test_an_answer_from_the_store_is_not_marked(away: DisconnectedServer) -> None:
    away.setup.failing.up()
    away.setup.seconds.now += 60
    assert await away.setup.layer.recover()
    status, page, marked = await away.get(f"/conversations/{away.long}/messages?limit=100")
    assert (status, marked, len(page["entries"])) == (200, False, 100)  # type: ignore[arg-type]


async def test_a_remote_manager_sees_the_marks(away: DisconnectedServer) -> None:
    async with aforesaid.connect(away.server.url) as remote:
        erin = remote.of(OWNERS[0])
        with noting_freshness() as seen:
            page = await erin.list()
        assert page.degraded
        assert seen.degraded
        with pytest.raises(StoreUnavailable):
            check_complete(page)
        with pytest.raises(StoreUnavailable):
            await erin.messages(away.long)
        with pytest.raises(StoreUnavailable):
            [owner async for owner in remote.owners()]
