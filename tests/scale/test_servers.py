"""Three servers behind a proxy, on one PostgreSQL."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from signal import SIGKILL

import httpx
import pytest

import aforesaid
from tests.scale.figures import Figures, report
from tests.servers.load import CLIENTS, Load, client, rolled
from tests.servers.postgres import Databases
from tests.servers.running import Process, caddy, haproxy, keys, new_key, server
from tests.servers.streams import watching
from tests.servers.waiting import LONGEST, until

PROXIES = {"caddy": caddy, "haproxy": haproxy}
TURNS = 60


@contextmanager
def servers(folder: Path, url: str, **environ: str) -> Iterator[list[Process]]:
    settings = {
        "AFORESAID_REQUIRE_KEYS": "true",
        "AFORESAID_LAME_DUCK_SECONDS": "3",
        "AFORESAID_RATE_WRITE": "0",
        "AFORESAID_RATE_READ": "0",
    }
    made = [
        server(folder, url, AFORESAID_SPOOL_FOLDER=str(folder / f"spool-{n}"), **settings | environ)
        for n in range(3)
    ]
    try:
        for each in made:
            each.start()
        yield made
    finally:
        for each in made:
            each.stop()


@pytest.mark.parametrize("proxy", PROXIES)
async def test_a_rolling_restart_loses_no_turn_and_no_stream(
    tmp_path: Path, databases: Databases, proxy: str
) -> None:
    url = databases.furnished()
    key = new_key(url, "--owner", "erin")
    # A busy machine may exceed the deadline for a check of the key.
    grace = {"AFORESAID_KEY_GRACE_SECONDS": "3600"}
    with servers(tmp_path, url, **grace) as running, PROXIES[proxy](tmp_path, addresses(running)) as address:
        load = Load(address, key)
        loading = asyncio.create_task(load.run())
        async with watching(address, key, session="load-0") as seen:
            await load.go_on_for(TURNS)
            await rolled(running)
            await load.go_on_for(TURNS)
            load.stop()
            await loading
            expected = load.said_by(0)
            await seen.until(expected)
        stored = await texts(url)
    assert not load.problems, load.problems
    assert set(load.statuses) <= {200, 201}, load.statuses
    report(
        Figures(
            scenario=f"3 servers behind {proxy}",
            load=f"{CLIENTS} clients, 1 live stream",
            faults=f"rolling restart of 3 servers, stream resumed {seen.resumed} times",
            acknowledged=len(load.stored),
            lost=len(set(load.stored) - set(stored)),
            duplicated=len(stored) - len(set(stored)),
            pause=load.pause,
        )
    )
    assert seen.texts == expected
    assert sorted(stored) == sorted(load.stored)


def addresses(running: Sequence[Process]) -> list[str]:
    return [each.address for each in running]


async def texts(url: str) -> list[str]:
    """Everything that the clients said, from the store itself."""
    found = []
    async with aforesaid.open(url, layers=aforesaid.Layers(resilience="off")) as memory:
        erin = memory.of("erin")
        for number in range(CLIENTS):
            conversation = await erin.get_or_create_conversation(f"load-{number}")
            entries = await erin.store.page(conversation.id, limit=10**6)
            found += [str(entry.message.content) for entry in entries]
    return found


async def test_any_server_knows_sessions_changes_and_revoked_keys(
    tmp_path: Path, databases: Databases
) -> None:
    url = databases.furnished()
    key = new_key(url, "--owner", "erin", "--name", "kitchen")
    with servers(tmp_path, url) as running:
        ids = [await resolved(each, key) for each in running * 2]
        assert len(set(ids)) == 1
        async with watching(running[0].address, key, session="kitchen") as seen:
            for number, each in enumerate(running):
                async with client(each.address, key) as http:
                    turn = {
                        "session_id": "kitchen",
                        "messages": [{"role": "user", "content": f"from {number}"}],
                    }
                    assert (await http.post("/v1/sessions/turns", json=turn)).status_code == 201
            await seen.until(["from 0", "from 1", "from 2"])
            running[2].stop(SIGKILL)
            assert await resolved(running[1], key) == ids[0]
        keys("revoke", key.split("_")[1], url=url)
        for each in running[:2]:
            until(lambda each=each: is_refused(each, key), "a revoked key is still accepted")  # type: ignore[misc]


async def resolved(process: Process, key: str) -> str:
    async with client(process.address, key) as http:
        answer = await http.post("/v1/conversations", json={"session_id": "kitchen"})
        return str(answer.json()["id"])


def is_refused(process: Process, key: str) -> bool:
    headers = {"Authorization": f"Bearer {key}"}
    return (
        httpx.get(f"{process.address}/v1/conversations", headers=headers, timeout=LONGEST).status_code == 401
    )
