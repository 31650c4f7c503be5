"""Processes, sockets, and the way down: `aforesaid serve` as it is started and stopped."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

import aforesaid
from aforesaid.cli.app import app
from aforesaid.errors import InvalidSetting, StoreUnavailable
from aforesaid.server.process import bind_socket, check_keys, check_workers, is_loopback
from aforesaid.settings import ServerConfig
from tests.integration.server.running import serving
from tests.servers.ports import free_port
from tests.servers.waiting import LONGEST, listens, until

ROOT = Path(__file__).parents[3]


@contextmanager
def started(folder: Path, *arguments: str, **environ: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`aforesaid serve` as a process of its own, and where it listens."""
    port = free_port()
    clean = {name: value for name, value in os.environ.items() if not name.startswith("AFORESAID_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "aforesaid", "serve", "--port", str(port), *arguments],
        cwd=folder,
        env=clean | {"PYTHONPATH": str(ROOT / "src"), **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        address = f"http://127.0.0.1:{port}"
        _wait_for(address, process)
        yield process, address
    finally:
        process.kill()
        process.communicate()


def _wait_for(address: str, process: "subprocess.Popen[str]") -> None:
    def is_ready() -> bool:
        if process.poll() is not None:
            out, err = process.communicate()
            raise AssertionError(f"it ended: {out}{err}")
        with suppress(httpx.TransportError):
            return listens(address) and httpx.get(f"{address}/ready", timeout=LONGEST).status_code == 200
        return False

    until(is_ready, "it did not start")


def stopped(process: "subprocess.Popen[str]", kind: signal.Signals) -> str:
    process.send_signal(kind)
    out, err = process.communicate(timeout=LONGEST)
    assert process.returncode == 0, err
    return out


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_it_says_where_to_go_and_stops_cleanly(tmp_path: Path, kind: signal.Signals) -> None:
    with started(tmp_path, "--url", "sqlite:///memory.db") as (process, address):
        asked = {"session_id": "kitchen", "text": "Remember that I like leeks."}
        answer = httpx.post(f"{address}/v1/sessions/answers", json=asked, timeout=LONGEST)
        assert answer.status_code == 200, answer.text
        assert httpx.get(f"{address}/schema", timeout=LONGEST).status_code == 200
        said = stopped(process, kind)
    assert f"{address}/console/" in said
    assert f"curl {address}/v1/sessions/answers" in said
    assert f"aforesaid chat --url {address}" in said
    assert "The data is in" in said
    assert "memory.db" in said


def test_what_was_said_is_there_after_a_restart(tmp_path: Path) -> None:
    turn = {"session_id": "kitchen", "messages": [{"role": "user", "content": "hi"}]}
    with started(tmp_path, "--url", "sqlite:///memory.db") as (process, address):
        httpx.post(f"{address}/v1/sessions/turns", json=turn, timeout=LONGEST)
        stopped(process, signal.SIGTERM)
    with started(tmp_path, "--url", "sqlite:///memory.db") as (_, address):
        assert httpx.get(f"{address}/v1/stats", timeout=LONGEST).json()["messages"] == 1


def test_several_workers_share_a_store_and_one_that_dies_is_replaced(tmp_path: Path) -> None:
    with started(tmp_path, "--url", "sqlite:///memory.db", "--workers", "2") as (process, address):
        turn = {"session_id": "kitchen", "messages": [{"role": "user", "content": "hi"}]}
        for _ in range(20):  # a connection each, so that both are asked
            assert httpx.post(f"{address}/v1/sessions/turns", json=turn, timeout=LONGEST).status_code == 201
        killed = _children(process.pid)[0]
        os.kill(killed, signal.SIGKILL)
        _until(lambda: killed not in _children(process.pid) and len(_children(process.pid)) >= 2)
        assert httpx.get(f"{address}/v1/stats", timeout=LONGEST).json()["messages"] == 20
        stopped(process, signal.SIGTERM)
    assert _children(process.pid) == []


def _children(pid: int) -> list[int]:
    """The workers of a server: its children that serve, not the one that tidies up after them."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
            command = (entry.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if int(fields[1]) == pid and b"spawn_main" in command and fields[0] != "Z":
            found.append(int(entry.parent.name))
    return sorted(found)


def _until(holds: Any) -> None:
    until(holds, "it does not become true")


# What is refused


def refused(*arguments: str, **environ: str) -> str:
    result = CliRunner().invoke(app, ["serve", *arguments], env=environ)
    assert result.exit_code == 2, result.output
    return " ".join(result.stderr.split())


def test_it_does_not_listen_beyond_this_machine_without_keys(tmp_path: Path) -> None:
    said = refused("--url", f"sqlite:///{tmp_path}/memory.db", "--host", "0.0.0.0")
    assert "aforesaid keys create" in said
    assert "AFORESAID_JWT_ISSUER" in said


@pytest.mark.parametrize("url", ["memory://", "file://{folder}/memory.json"])
def test_stores_of_one_process_do_not_get_several(tmp_path: Path, url: str) -> None:
    said = refused("--url", url.format(folder=tmp_path), "--workers", "2")
    assert "one process" in said
    assert "--workers 1" in said


@pytest.mark.parametrize("port", ["-1", "65536", "99999999"])
def test_a_port_that_is_none_is_refused(port: str) -> None:
    assert f"the port must be 0 to 65535; got {port}" in refused("--url", "memory://", "--port", port)


def test_a_port_that_is_taken_is_said_so() -> None:
    with bind_socket("127.0.0.1", 0) as taken:
        taken.listen()
        with pytest.raises(StoreUnavailable, match=r"cannot listen.*--port 0"):
            bind_socket("127.0.0.1", taken.getsockname()[1])


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("localhost", True),
        ("::1", True),
        ("127.9.9.9", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.5", False),
        ("example.org", False),
    ],
)
def test_which_addresses_are_this_machine(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


async def test_with_a_key_it_may_listen_anywhere() -> None:
    from aforesaid.server.auth.keys import ApiKeys

    async with aforesaid.open("memory://", models=aforesaid.Models(preload=False, embedder=None)) as memory:
        with pytest.raises(InvalidSetting, match="keys create"):
            await check_keys(memory, ServerConfig(), "0.0.0.0")
        assert await check_keys(memory, ServerConfig(), "127.0.0.1") is True
        await ApiKeys(memory.backend).create(["erin"])
        assert await check_keys(memory, ServerConfig(), "0.0.0.0") is False


def test_no_workers_is_no_server() -> None:
    with pytest.raises(InvalidSetting, match="1 or more"):
        check_workers("sqlite:///memory.db", 0)


# The way down


async def test_a_server_that_is_about_to_stop_is_not_ready_and_finishes_what_runs(tmp_path: Path) -> None:
    async with serving(f"sqlite:///{tmp_path}/memory.db") as server:
        assert (await server.client.get("/ready")).json()["status"] == "ready"
        turn = {"session_id": "kitchen", "messages": [{"role": "user", "content": "hi"}]}
        running = asyncio.create_task(server.client.post("/v1/sessions/turns", json=turn))
        server.service.draining.set()
        answer = await server.client.get("/ready")
        assert (answer.status_code, answer.json()["status"]) == (503, "draining")
        assert (await running).status_code == 201


async def test_watchers_are_let_go_when_the_server_stops() -> None:
    async with serving() as server, server.client.stream("GET", "/v1/changes") as answer:
        lines = answer.aiter_lines()
        assert await anext(lines) == ": watching"
        server.service.stopping.set()
        rest = [line async for line in lines]
        assert not any(line.startswith("data") for line in rest)


# Keys, by command


def test_keys_are_made_listed_and_revoked(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    runner = CliRunner()
    made = runner.invoke(
        app,
        [
            "keys",
            "create",
            "--owner",
            "erin",
            "--owner",
            "bob",
            "--scope",
            "read",
            "--expires",
            "90d",
            "--name",
            "kitchen",
            "--url",
            url,
            "--json",
        ],
    )
    assert made.exit_code == 0, made.output
    key = json.loads(made.stdout)
    assert key["key"].startswith(f"ak_{key['id']}_")
    assert (key["owners"], key["scope"], key["name"]) == (["erin", "bob"], "read", "kitchen")
    listed = runner.invoke(app, ["keys", "list", "--url", url])
    assert key["id"] in listed.stdout
    assert key["key"] not in listed.stdout
    gone = runner.invoke(app, ["keys", "revoke", key["id"], "--url", url])
    assert gone.exit_code == 0, gone.output
    (shown,) = json.loads(runner.invoke(app, ["keys", "list", "--url", url, "--json"]).stdout)
    assert shown["holds"] is False
    assert "digest" not in shown
    missing = runner.invoke(app, ["keys", "revoke", "000000000000", "--url", url])
    assert missing.exit_code == 3


@pytest.mark.parametrize("expires", ["soon", "0d", "-1d", "90", ""])
def test_a_lifetime_that_is_none_makes_no_key(tmp_path: Path, expires: str) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    result = CliRunner().invoke(app, ["keys", "create", "-o", "erin", "--expires", expires, "--url", url])
    assert result.exit_code == 2
    assert "90d" in result.stderr


# The lame duck

DUCK = {"AFORESAID_LAME_DUCK_SECONDS": "3600"}


def test_after_sigterm_requests_are_served_while_load_balancers_notice(tmp_path: Path) -> None:
    with started(tmp_path, "--url", "sqlite:///memory.db", **DUCK) as (
        process,
        address,
    ):
        with httpx.Client(base_url=address, timeout=LONGEST) as client:
            assert "connection" not in client.get("/v1/conversations").headers
            process.send_signal(signal.SIGTERM)
            _until(lambda: client.get("/ready").status_code == 503)
            turn = {"session_id": "kitchen", "messages": [{"role": "user", "content": "hi"}]}
            stored = client.post("/v1/sessions/turns", json=turn)
            assert stored.status_code == 201
            # A proxy must not keep a connection that closes soon.
            assert stored.headers["connection"] == "close"
        # The second signal does not wait.
        stopped(process, signal.SIGTERM)


def test_sigint_does_not_wait_for_load_balancers(tmp_path: Path) -> None:
    with started(tmp_path, "--url", "sqlite:///memory.db", **DUCK) as (
        process,
        _,
    ):
        stopped(process, signal.SIGINT)


def test_workers_are_lame_ducks_too(tmp_path: Path) -> None:
    arguments = ("--url", "sqlite:///memory.db", "--workers", "2")
    with started(tmp_path, *arguments, AFORESAID_LAME_DUCK_SECONDS="1") as (process, address):
        process.send_signal(signal.SIGTERM)
        _until(lambda: httpx.get(f"{address}/ready", timeout=LONGEST).status_code == 503)
        assert httpx.get(f"{address}/v1/conversations", timeout=LONGEST).status_code == 200
        assert process.wait(LONGEST) == 0
