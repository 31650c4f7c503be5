"""Each alert rule: the outage that it is for happens, and a real Prometheus raises it."""

import asyncio
import base64
import json
import os
import resource
import signal
import socket
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count, cycle
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psycopg
import pytest
from websockets.sync.client import connect

import aforesaid
from tests.chaos.disks import REMOUNT, disk_of_its_own, mount
from tests.chaos.proxy import Proxy
from tests.operations.prometheus import Prometheus, rules, watching
from tests.servers import redis
from tests.servers.ports import free_port
from tests.servers.postgres import PostgresServer
from tests.servers.running import ROOT, Process, server
from tests.servers.waiting import LONGEST
from tests.stored_bodies import WRONG_CHANNEL

RAISED: set[str] = set()
"""The alerts of which a test here causes the outage."""

F = TypeVar("F", bound=Callable[..., None])


def raises(*alerts: str) -> Callable[[F], F]:
    """The test causes the outage of these alerts; it is left out where Prometheus cannot be had."""
    RAISED.update(alerts)
    return pytest.mark.needs("prometheus")


def test_every_rule_has_an_outage() -> None:
    assert rules().keys() == RAISED


def sqlite_url(folder: Path) -> str:
    return f"sqlite:///{folder}/memory.db"


NO_LAYERS = {"AFORESAID_RESILIENCE": "off", "AFORESAID_CACHE": "off"}
# No refusal of callers or requests disturbs what is caused here.
PATIENT = {
    "AFORESAID_QUEUE_SECONDS": "0",
    "AFORESAID_RATE_READ": "0",
    "AFORESAID_RATE_WRITE": "0",
    "AFORESAID_RATE_SEARCH": "0",
    "AFORESAID_RATE_ASK": "0",
    "AFORESAID_KEY_GRACE_SECONDS": "3600",
}


@contextmanager
def watched(folder: Path, url: str, **environ: str) -> Iterator[tuple[Process, Prometheus]]:
    """A server and the Prometheus that scrapes it."""
    one = server(folder, url, **{"AFORESAID_SPOOL_FOLDER": f"{folder}/spool", **PATIENT, **environ})
    with watching(folder, one) as prometheus:
        yield one, prometheus


def said(address: str, text: str = "hello", *, session: str = "kitchen", **fields: str) -> httpx.Response:
    turn = {"session_id": session, "messages": [{"role": "user", "content": text, **fields}]}
    return httpx.post(f"{address}/v1/sessions/turns", json=turn, timeout=LONGEST)


def asked(address: str, session: str = "kitchen") -> httpx.Response:
    question = {"session_id": session, "text": "What did I say?"}
    return httpx.post(f"{address}/v1/sessions/answers", json=question, timeout=LONGEST)


def got(address: str, path: str, **headers: str) -> httpx.Response:
    return httpx.get(f"{address}{path}", headers=headers, timeout=LONGEST)


def conversation_of(address: str, session: str = "kitchen") -> str:
    """The id of the session's conversation, which has one turn."""
    while (answer := said(address, session=session)).status_code == 503:
        time.sleep(0.1)  # the store may be slow on a busy machine
    assert answer.status_code == 201, answer.text
    return str(answer.json()["conversation"]["id"])


def context_path(conversation: str) -> str:
    return f"/v1/conversations/{conversation}/context"


def messages_path(conversation: str) -> str:
    return f"/v1/conversations/{conversation}/messages"


# The server


@raises("AforesaidDown")
def test_a_server_that_does_not_answer(tmp_path: Path) -> None:
    with watched(tmp_path, sqlite_url(tmp_path)) as (one, prometheus):
        assert said(one.address).status_code == 201
        one.stop()
        prometheus.raises("AforesaidDown")


@raises("AforesaidRequestsFail", "AforesaidStoreFails")
def test_a_store_that_is_away_without_a_spool(tmp_path: Path, database: PostgresServer) -> None:
    with watched(tmp_path, database.url, **NO_LAYERS) as (one, prometheus):
        assert said(one.address).status_code == 201
        database.interrupt()
        prometheus.raises(
            "AforesaidRequestsFail",
            "AforesaidStoreFails",
            traffic=lambda: said(one.address).status_code == 503,
        )


@raises("AforesaidRefusesCallers")
def test_a_key_that_nobody_has(tmp_path: Path) -> None:
    with watched(tmp_path, sqlite_url(tmp_path)) as (one, prometheus):
        wrong = {"Authorization": "Bearer ak_wrong_key"}
        assert got(one.address, "/v1/conversations", **wrong).status_code == 401
        prometheus.raises(
            "AforesaidRefusesCallers", traffic=lambda: got(one.address, "/v1/conversations", **wrong)
        )


@raises("AforesaidLimitsCallers")
def test_a_client_in_a_loop(tmp_path: Path) -> None:
    with watched(tmp_path, sqlite_url(tmp_path), AFORESAID_RATE_READ="1") as (one, prometheus):
        prometheus.raises("AforesaidLimitsCallers", traffic=lambda: got(one.address, "/v1/conversations"))


@raises("AforesaidOverCapacity")
def test_more_turns_than_the_store_can_take(tmp_path: Path) -> None:
    impatient = NO_LAYERS | {"AFORESAID_QUEUE_SECONDS": "1"}
    with watched(tmp_path, sqlite_url(tmp_path), **impatient) as (one, prometheus):
        path = f"{one.address}/v1/conversations/{conversation_of(one.address)}/turns"
        turn = {"messages": [{"role": "user", "content": "hello"}]}
        with edited(tmp_path) as connection, arriving(lambda: httpx.Request("POST", path, json=turn)):
            connection.execute("BEGIN IMMEDIATE")  # nobody else can write until the end
            prometheus.raises("AforesaidOverCapacity")


def with_provider(url: str) -> dict[str, str]:
    return {
        "AFORESAID_PROVIDER": "openai",
        "AFORESAID_MODEL": "gpt-4o-mini",
        "AFORESAID_PROVIDER_URL": url,
        "AFORESAID_PROVIDER_KEY": "sk-nothing",
    }


@contextmanager
def arriving(*requests: Callable[[], httpx.Request], every: float = 0.01) -> Iterator[None]:
    """Requests arrive at a steady rate until the end, whether or not earlier ones are answered."""
    done = threading.Event()

    async def work() -> None:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(timeout=LONGEST, limits=limits) as client, asyncio.TaskGroup() as group:
            under_way: set[asyncio.Task[None]] = set()
            for make in cycle(requests):
                if done.is_set():
                    break
                task = group.create_task(quietly(client, make()))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
                await asyncio.sleep(every)
            for task in under_way:
                task.cancel()

    async def quietly(client: httpx.AsyncClient, request: httpx.Request) -> None:
        with suppress(httpx.HTTPError):
            await client.send(request)

    with in_thread(work):
        try:
            yield
        finally:
            done.set()


@contextmanager
def in_thread(work: Callable[[], Any]) -> Iterator[None]:
    """Run the coroutine in a thread of its own; it ends by itself soon after the block."""
    thread = threading.Thread(target=lambda: asyncio.run(work()), daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join(LONGEST)


@raises("AforesaidFilesRunOut")
def test_clients_that_keep_connections_open(tmp_path: Path) -> None:
    with watched(tmp_path, sqlite_url(tmp_path)) as (one, prometheus), ExitStack() as stack:
        _, hard = resource.prlimit(one.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(one.pid, resource.RLIMIT_NOFILE, (200, hard))
        request = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"

        def connect_once_more() -> None:
            if len(os.listdir(f"/proc/{one.pid}/fd")) < 180:
                kept = stack.enter_context(socket.create_connection(address_of(one), timeout=LONGEST))
                kept.sendall(request)
                assert kept.recv(1024)

        prometheus.raises("AforesaidFilesRunOut", traffic=connect_once_more)


def address_of(one: Process) -> tuple[str, int]:
    host, _, port = one.address.removeprefix("http://").partition(":")
    return host, int(port)


@raises("AforesaidDiskFills", "AforesaidDiskFull")
def test_a_disk_that_fills(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    with disk_of_its_own(folder) as is_mounted:
        if not is_mounted:
            pytest.skip("a small disk needs the right to mount one")
        assert mount(folder, b"size=4g", REMOUNT)
        with watched(tmp_path, sqlite_url(folder)) as (one, prometheus):
            assert said(one.address).status_code == 201
            assert mount(folder, b"size=512m", REMOUNT)
            prometheus.raises("AforesaidDiskFills")
            assert "AforesaidDiskFull" not in prometheus.alerts()
            assert mount(folder, b"size=50m", REMOUNT)
            prometheus.raises("AforesaidDiskFull")


@raises("AforesaidConnectionsLag")
def test_a_client_that_does_not_read(tmp_path: Path) -> None:
    with watched(tmp_path, sqlite_url(tmp_path), AFORESAID_LIVE_RATE="100000") as (one, prometheus):
        conversation = conversation_of(one.address)
        (entry,) = got(one.address, messages_path(conversation)).json()["entries"]
        fork = {"message_id": entry["message"]["message_id"]}
        for _ in range(50):
            path = f"{one.address}/v1/conversations/{conversation}/branches"
            assert httpx.post(path, json=fork, timeout=LONGEST).status_code == 201
        with ExitStack() as stack:
            address = f"{one.address.replace('http', 'ws', 1)}/ws"
            deaf = stack.enter_context(connect(address, max_queue=1, compression=None, ping_interval=None))
            deaf.send(json.dumps({"type": "hello", "session_id": "kitchen"}))
            # Its answers fill the buffers of both sides, then the queue of the connection.
            for _ in range(2000):
                deaf.send(json.dumps({"type": "branches"}))
            prometheus.raises("AforesaidConnectionsLag")


# The store


SLOW = ("AforesaidTurnsSlow", "AforesaidContextsSlow", "AforesaidSearchSlow", "AforesaidOperationsSlow")


@raises(*SLOW)
def test_a_database_in_which_somebody_holds_locks(tmp_path: Path, database: PostgresServer) -> None:
    with watched(tmp_path, database.url, **NO_LAYERS) as (one, prometheus):
        conversation = conversation_of(one.address)
        assert not prometheus.alerts().keys() & set(SLOW)
        turn = {"messages": [{"role": "user", "content": "hello"}]}
        traffic = (
            lambda: httpx.Request("GET", f"{one.address}{context_path(conversation)}"),
            lambda: httpx.Request("GET", f"{one.address}/v1/search?query=hello"),
            lambda: httpx.Request("POST", f"{one.address}/v1/conversations/{conversation}/turns", json=turn),
        )
        with arriving(*traffic, every=0.15), locking_again_and_again(database):
            prometheus.raises(*SLOW)


LOCK = "LOCK TABLE aforesaid.conversations, aforesaid.messages IN ACCESS EXCLUSIVE MODE"


@contextmanager
def locking_again_and_again(database: PostgresServer) -> Iterator[None]:
    """Nobody else can use conversations for more than a second, again and again."""
    done = threading.Event()

    async def work() -> None:
        with psycopg.connect(database.url) as connection:
            while not done.is_set():
                connection.execute(LOCK)
                done.wait(1.5)
                connection.commit()
                done.wait(0.5)

    with in_thread(work):
        try:
            yield
        finally:
            done.set()


@contextmanager
def cutting_network(port: int) -> Iterator[tuple[int, Callable[[], None]]]:
    """A proxy before a server: its port, and what cuts its connections."""
    ready, cut, done = threading.Event(), threading.Event(), threading.Event()
    proxy = Proxy(port)

    async def work() -> None:
        await proxy.start()
        ready.set()
        while not done.is_set():
            await asyncio.sleep(0.02)
            if cut.is_set():
                proxy.become("reset")
                cut.clear()
        await proxy.stop()

    with in_thread(work):
        assert ready.wait(LONGEST)
        try:
            yield proxy.port, cut.set
        finally:
            done.set()


@raises("AforesaidRetriesOften")
def test_a_network_that_cuts_connections(tmp_path: Path, database: PostgresServer) -> None:
    with cutting_network(database.port) as (port, cut):
        url = database.url.replace(str(database.port), str(port))
        with watched(tmp_path, url, AFORESAID_CACHE="off") as (one, prometheus):

            def cut_and_speak() -> None:
                cut()
                said(one.address)

            prometheus.raises("AforesaidRetriesOften", traffic=cut_and_speak)


@raises("AforesaidOverloaded")
def test_a_store_that_stands_still(tmp_path: Path) -> None:
    with redis.running() as port:
        url = f"redis://127.0.0.1:{port}?max_connections=2&timeout=0.3"
        with watched(tmp_path, url, **NO_LAYERS) as (one, prometheus):
            path = messages_path(conversation_of(one.address))
            # It answers no more, whatever it is asked.
            redis.client(port).execute_command("CLIENT", "PAUSE", round(LONGEST * 2000), "ALL")
            with arriving(lambda: httpx.Request("GET", f"{one.address}{path}"), every=0.02):
                prometheus.raises("AforesaidOverloaded")


@raises("AforesaidStoreDamaged", "AforesaidMessagesUnreadable")
def test_a_file_in_which_somebody_writes(tmp_path: Path) -> None:
    with watched(tmp_path, sqlite_url(tmp_path), **NO_LAYERS) as (one, prometheus):
        damaged, unreadable = (conversation_of(one.address, session) for session in ("hall", "kitchen"))
        with edited(tmp_path) as connection:
            connection.execute("UPDATE conversations SET channel = ? WHERE id = ?", (WRONG_CHANNEL, damaged))
            connection.execute(
                "UPDATE messages SET body = '{' WHERE conversation ="
                " (SELECT pk FROM conversations WHERE id = ?)",
                (unreadable,),
            )
        assert got(one.address, f"/v1/conversations/{damaged}").status_code == 500
        assert got(one.address, messages_path(unreadable)).status_code == 200
        prometheus.raises("AforesaidStoreDamaged", "AforesaidMessagesUnreadable")


@contextmanager
def edited(folder: Path) -> Iterator[sqlite3.Connection]:
    """The file of the store, as another program opens it."""
    connection = sqlite3.connect(folder / "memory.db", timeout=LONGEST)
    with connection:
        yield connection
    connection.close()


@raises("AforesaidLogViolated")
def test_a_sealed_log_in_which_somebody_swaps_messages(tmp_path: Path) -> None:
    key = {"AFORESAID_MASTER_KEY": base64.b64encode(os.urandom(32)).decode()}
    with watched(tmp_path, sqlite_url(tmp_path), **NO_LAYERS, **key) as (one, prometheus):
        conversation = conversation_of(one.address)
        assert said(one.address, "another").status_code == 201
        with edited(tmp_path) as connection:
            (first,), (second,) = connection.execute("SELECT body FROM messages ORDER BY sequence").fetchall()
            connection.execute("UPDATE messages SET body = ? WHERE sequence = 1", (second,))
            connection.execute("UPDATE messages SET body = ? WHERE sequence = 2", (first,))
        got(one.address, messages_path(conversation))
        prometheus.raises("AforesaidLogViolated")


@raises("AforesaidCacheUseless")
def test_a_cache_whose_content_nobody_reads_twice(tmp_path: Path) -> None:
    cached = {"AFORESAID_CACHE": "watched"}
    with watched(tmp_path, sqlite_url(tmp_path), **cached) as (one, prometheus):
        numbers = count()

        def read_a_new_one_once() -> None:
            got(one.address, messages_path(conversation_of(one.address, f"room {next(numbers)}")))

        prometheus.raises("AforesaidCacheUseless", traffic=read_a_new_one_once)


# The spool


AWAY = ("AforesaidStoreAway", "AforesaidSpoolOld", "AforesaidContextsDegraded", "AforesaidSpoolFills")


@raises(*AWAY)
def test_a_store_that_is_away(tmp_path: Path, database: PostgresServer) -> None:
    with watched(tmp_path, database.url, AFORESAID_SPOOL_LIMIT_MB="1") as (one, prometheus):
        path = context_path(conversation_of(one.address))
        assert not prometheus.alerts().keys() & set(AWAY)
        database.interrupt()
        for _ in range(6):
            assert said(one.address, "word " * 20_000).status_code == 201
        prometheus.raises(*AWAY, traffic=lambda: got(one.address, path))
        database.resume()
        prometheus.until_quiet(*AWAY)


@raises("AforesaidDeadLetters")
def test_a_store_that_refuses_what_was_spooled(tmp_path: Path, database: PostgresServer) -> None:
    with watched(tmp_path, database.url) as (one, prometheus):
        conversation = conversation_of(one.address)
        database.interrupt()
        assert said(one.address, "spooled", message_id="m1").status_code == 201
        one.stop(signal.SIGKILL)
        database.resume()
        asyncio.run(take_the_id(database.url, conversation))
        one.start()
        prometheus.raises("AforesaidDeadLetters")


async def take_the_id(url: str, conversation: str) -> None:
    """Store another message with the id of the spooled one, as a server with another spool would."""
    layers = aforesaid.Layers(resilience="off", cache="off")
    async with aforesaid.open(url, layers=layers) as memory:
        await memory.of("default").add_message(conversation, "user", "another", message_id="m1")


@raises("AforesaidSpoolDamaged")
def test_a_disk_that_flips_bits_of_the_spool(tmp_path: Path, database: PostgresServer) -> None:
    with watched(tmp_path, database.url) as (one, prometheus):
        assert said(one.address).status_code == 201
        database.interrupt()
        assert said(one.address, "spooled").status_code == 201
        one.stop(signal.SIGKILL)
        (segment,) = (tmp_path / "spool").rglob("*.spool")
        content = bytearray(segment.read_bytes())
        content[len(content) // 2] ^= 1
        segment.write_bytes(content)
        database.resume()
        one.start()
        prometheus.raises("AforesaidSpoolDamaged")


# Agents, and what others have written


@raises("AforesaidAgentsFail")
def test_a_provider_that_is_away(tmp_path: Path) -> None:
    away = with_provider(f"http://127.0.0.1:{free_port()}/v1")
    with watched(tmp_path, sqlite_url(tmp_path), **away) as (one, prometheus):
        prometheus.raises("AforesaidAgentsFail", traffic=lambda: asked(one.address))


BUGS = ("AforesaidToolsFail", "AforesaidTurnsNotStored", "AforesaidMistakes")


@raises(*BUGS)
def test_bugs_of_a_store_and_of_a_tool(tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "tests.servers.faulty", str(port)]
    faulty = Process(
        command,
        f"http://127.0.0.1:{port}",
        tmp_path / "faulty.log",
        PYTHONPATH=f"{ROOT}/src:{ROOT}",
        **PATIENT,
    )
    with watching(tmp_path, faulty) as prometheus:

        def use_it() -> None:
            asked(faulty.address)
            got(faulty.address, "/v1/conversations")

        prometheus.raises(
            "AforesaidToolsFail", "AforesaidTurnsNotStored", "AforesaidMistakes", traffic=use_it
        )
