"""Servers whose database is behind PgBouncer in transaction mode."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from aforesaid.contracts import Backend
from aforesaid.stores.postgres import PostgresBackend
from aforesaid.testing import FixedClock, SearchContract, StoreContract
from tests.scale.figures import Figures, report
from tests.scale.pooler import pooler
from tests.servers.load import CLIENTS, Load, client
from tests.servers.postgres import Databases
from tests.servers.running import Process, new_key, server
from tests.servers.streams import watching

pytestmark = pytest.mark.needs("pgbouncer")
TURNS = 300


@pytest.fixture(scope="module")
def direct_url(databases: Databases) -> str:
    return databases.new()


@pytest.fixture(scope="module")
def pooled_url(direct_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with pooler(tmp_path_factory.mktemp("pooler"), direct_url) as url:
        yield url


class TestPooledStore(StoreContract):
    """Everything that a store does, it does through a pooler."""

    @pytest.fixture
    async def backend(self, clock: FixedClock, pooled_url: str) -> AsyncIterator[Backend]:
        backend = PostgresBackend(pooled_url, clock=clock)
        await backend.open()
        yield backend
        await backend.close()


class TestPooledSearch(SearchContract):
    @pytest.fixture
    async def backend(self, clock: FixedClock, pooled_url: str) -> AsyncIterator[Backend]:
        backend = PostgresBackend(pooled_url, clock=clock)
        await backend.open()
        yield backend
        await backend.close()


@contextmanager
def two_servers(folder: Path, url: str) -> Iterator[tuple[list[Process], str]]:
    key = new_key(url, "--owner", "erin")
    settings = {
        "AFORESAID_REQUIRE_KEYS": "true",
        # A busy machine may exceed the deadline for a check of the key.
        "AFORESAID_KEY_GRACE_SECONDS": "3600",
        "AFORESAID_RATE_WRITE": "0",
        "AFORESAID_RATE_READ": "0",
    }
    servers = [server(folder, url, AFORESAID_SPOOL_FOLDER=str(folder / str(n)), **settings) for n in range(2)]
    try:
        for each in servers:
            each.start()
        yield servers, key
    finally:
        for each in servers:
            each.stop()


@pytest.mark.parametrize("listening", ["pooled", "direct"])
async def test_turns_and_live_updates_pass_a_pooler(
    tmp_path: Path, direct_url: str, pooled_url: str, listening: str
) -> None:
    settings = conninfo_to_dict(direct_url)
    past = f"?listen_host={settings['host']}&listen_port={settings['port']}"
    url = pooled_url + (past if listening == "direct" else "")
    with two_servers(tmp_path, url) as (servers, key):
        load = Load(servers[0].address, key)
        async with watching(servers[1].address, key, session="load-0") as seen:
            before = len(seen.texts)
            running = asyncio.create_task(load.run())
            await load.go_on_for(TURNS)
            load.stop()
            await running
            expected = load.said_by(0)
            await seen.until([*seen.texts[:before], *expected])
        assert not load.problems, load.problems
        await check_delivery(servers[1], key, polled=listening == "pooled")
    received = seen.texts[before:]
    assert received == expected
    report(
        Figures(
            scenario=f"PgBouncer, transaction mode, {listening} listener",
            load=f"{CLIENTS} clients, 2 servers, live updates on the other server",
            faults="none",
            acknowledged=len(load.stored),
            lost=len(set(expected) - set(received)),
            duplicated=len(received) - len(set(received)),
            pause=load.pause,
        )
    )


async def check_delivery(process: Process, key: str, *, polled: bool) -> None:
    """Polling is visible to operators, and only where changes are polled."""
    async with client(process.address, key) as http:
        checks = {each["about"]: each for each in (await http.get("/ready")).json()["checks"]}
        assert checks["changes"]["state"] == ("warning" if polled else "well"), checks
    admin = new_key(process.command[process.command.index("--url") + 1], "--owner", "*", "--scope", "admin")
    async with client(process.address, admin) as http:
        lines = (await http.get("/metrics")).text.splitlines()
    assert f"aforesaid_changes_polled {float(polled)}" in lines
    assert ("notifications do not arrive" in process.log.read_text()) is polled
