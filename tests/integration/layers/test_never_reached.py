"""A store or server that this machine has never reached is an error at `open`; one that was may be away."""

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import aforesaid
from aforesaid.errors import InvalidSetting, StoreForeign, StoreUnavailable
from aforesaid.layers.build import reached_mark, resilience_in, spool_folder
from aforesaid.layers.resilient import Resilience
from aforesaid.remote import Client, Network, RemoteMemory
from aforesaid.remote.attempts import RetryPolicy
from aforesaid.settings import ResilienceConfig
from tests.integration.remote.scripted import answer, scripted
from tests.servers.ports import free_port
from tests.servers.redis import running
from tests.servers.remote import served

PASSWORD = "verysecret"
QUICK = RetryPolicy(timeout=10.0, attempts=2, first_pause=0.001)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine that has reached nothing yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def unreachable() -> list[str]:
    port = free_port()
    return [
        f"postgresql://erin:{PASSWORD}@127.0.0.1:{port}/memory",
        f"postgres://erin:{PASSWORD}@127.0.0.1:{port}/memory",
        f"redis://:{PASSWORD}@127.0.0.1:{port}/0",
        f"redis+cluster://:{PASSWORD}@127.0.0.1:{port}",
    ]


def until(is_so: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < give_up
        time.sleep(0.05)


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("number", range(4))
async def test_a_store_that_was_never_reached_is_an_error(number: int, state: Path) -> None:
    url = unreachable()[number]
    with pytest.raises(StoreUnavailable, match=r"never reached.*AFORESAID_START_UNREACHED") as refused:
        await aforesaid.open(url)
    assert PASSWORD not in str(refused.value)
    assert await asyncio.to_thread(files_below, state) == []


@pytest.mark.parametrize("number", range(4))
async def test_a_setting_starts_without_it(number: int) -> None:
    url = unreachable()[number]
    async with aforesaid.open(
        url, layers=aforesaid.Layers(resilience=Resilience(start_unreached=True))
    ) as memory:
        health = await memory.health()
        assert health is not None
        assert health.degraded


def test_the_setting_comes_from_the_environment() -> None:
    config = ResilienceConfig.from_env({"AFORESAID_START_UNREACHED": "true"})
    chosen = resilience_in(config, "redis://localhost")
    assert isinstance(chosen, Resilience)
    assert chosen.start_unreached
    assert not ResilienceConfig.from_env({}).start_unreached


async def test_a_store_that_was_reached_may_be_away(state: Path, tmp_path: Path) -> None:
    port = free_port()
    url = f"redis://:{PASSWORD}@127.0.0.1:{port}/0"
    with running("--requirepass", PASSWORD, port=port):
        async with aforesaid.open(url) as memory:
            await memory.of("erin").get_or_create_conversation("kitchen")
    marks = await asyncio.to_thread(files_below, state)
    assert [mark.suffix for mark in marks] == [".reached"]
    assert re.fullmatch("[0-9a-f]{64}", await asyncio.to_thread(marks[0].read_text))
    async with aforesaid.open(url) as memory:
        erin = memory.of("erin")
        kitchen = await erin.get_or_create_conversation("kitchen")
        await erin.add_message(kitchen.id, "user", "accepted")
        health = await memory.health()
        assert health is not None
        assert health.spool_operations


async def test_one_that_is_started_without_and_comes_later_is_remembered() -> None:
    port = free_port()
    url = f"redis://127.0.0.1:{port}/0"
    chosen = Resilience(start_unreached=True)
    mark = reached_mark(url)
    async with aforesaid.open(url, layers=aforesaid.Layers(resilience=chosen)):
        assert not await asyncio.to_thread(mark.is_set)
        with running(port=port):
            await asyncio.to_thread(until, mark.is_set)


def test_the_mark_is_that_of_the_place_and_lies_beside_its_spool(tmp_path: Path) -> None:
    url = f"postgresql://erin:{PASSWORD}@localhost/memory"
    other = "postgresql://bob@localhost/memory?sslmode=require"
    assert reached_mark(url).path == reached_mark(other).path
    assert reached_mark(url).path != reached_mark("postgresql://localhost/other").path
    assert reached_mark(url, tmp_path).path.parent == spool_folder(url, tmp_path).parent


async def test_fail_closed_and_off_give_the_stores_own_error() -> None:
    for resilience in (Resilience(policy="fail_closed"), "off"):
        choice: Any = resilience
        with pytest.raises(StoreUnavailable) as refused:
            await aforesaid.open(unreachable()[2], layers=aforesaid.Layers(resilience=choice))
        assert "never reached" not in str(refused.value)


# Servers


@pytest.fixture
def server() -> Iterator[str]:
    with served("memory://") as running_server:
        yield running_server.url


async def test_a_server_of_ours_is_recognised_and_remembered(server: str) -> None:
    async with aforesaid.connect(server) as memory:
        await memory.of("erin").get_or_create_conversation("kitchen")
    assert await asyncio.to_thread(reached_mark(server).is_set)

    def wait() -> None:
        with Client(server) as client:
            client.of("erin").get_or_create_conversation("kitchen")

    await asyncio.to_thread(wait)


@pytest.mark.parametrize(
    "said",
    [
        answer(200, "<html>welcome</html>", "text/html"),
        answer(200, '{"status": "ok"}'),
        answer(200, '{"status": "ok", "server": "other"}'),
        answer(200, "[]"),
        answer(401, '{"message": "No API key found in request"}'),
        answer(404, "not found", "text/plain"),
        answer(301, "", "text/html", location="https://elsewhere.example.org/"),
    ],
)
async def test_another_service_is_refused_at_open(said: bytes) -> None:
    async with scripted(said) as other:
        with pytest.raises(StoreForeign):
            await RemoteMemory(other.url, network=Network(retry=QUICK))

        def wait() -> None:
            with Client(other.url, network=Network(retry=QUICK)):
                pass

        with pytest.raises(StoreForeign):
            await asyncio.to_thread(wait)
        assert not await asyncio.to_thread(reached_mark(other.url).is_set)


async def test_a_server_that_was_never_reached_is_an_error() -> None:
    with pytest.raises(StoreUnavailable, match="never reached"):
        await RemoteMemory(f"http://127.0.0.1:{free_port()}", network=Network(retry=QUICK))
    network = Network(start_unreached=True)
    memory = await aforesaid.connect(f"http://127.0.0.1:{free_port()}", network=network)
    await memory.close()


async def test_a_server_that_was_reached_may_be_away() -> None:
    with served("memory://") as running_server:
        url = running_server.url
        async with aforesaid.connect(url):
            pass
    async with RemoteMemory(url, network=Network(retry=QUICK)) as memory:
        with pytest.raises(StoreUnavailable):
            await memory.of("erin").get_or_create_conversation("kitchen")


@pytest.mark.parametrize("url", ["https://abc.supabase.co", "https://abc.supabase.co/rest/v1"])
def test_supabase_is_named(url: str) -> None:
    with pytest.raises(InvalidSetting, match=r"Supabase.*postgresql://.*db\.abc\.supabase\.co"):
        aforesaid.connect(url)


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("mysql://localhost/x", "PostgreSQL"),
        ("postgresql+asyncpg://localhost/x", "postgresql:"),
        ("postgress://localhost/x", "postgres"),
        ("sqlite3:///memory.db", "sqlite:"),
        ("valkey://localhost", "redis:"),
        ("htps://memory.example.org", "https:"),
        ("mongodb+srv://localhost/x", "postgresql: or redis:"),
    ],
)
def test_a_url_that_is_not_supported_is_refused_with_a_hint(url: str, hint: str) -> None:
    with pytest.raises(InvalidSetting, match=hint):
        aforesaid.open(url)


# The command line


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://erin@127.0.0.1:9/memory",
        "redis://127.0.0.1:9/0",
        "http://127.0.0.1:9",
        "https://abc.supabase.co",
        "mysql://localhost/x",
    ],
)
def test_the_command_line_exits_with_one_line(url: str, tmp_path: Path) -> None:
    environ = {**os.environ, "AFORESAID_URL": url}
    command = [sys.executable, "-m", "aforesaid", "chat", "--owner", "erin"]
    done = subprocess.run(
        command, env=environ, cwd=tmp_path, input=b"hello\n", capture_output=True, timeout=240, check=False
    )
    assert done.returncode in (2, 4), done.stderr
    assert len(done.stderr.decode().strip().splitlines()) == 1
    assert done.stderr.startswith(b"aforesaid:")
