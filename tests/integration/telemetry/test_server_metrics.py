"""What a server says about itself: /metrics, /ready, /health, the ids of requests, and its log."""

import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect

import aforesaid
from aforesaid.errors import SpoolFull
from aforesaid.layers.resilient import Resilience, resilient
from aforesaid.server.routes.operations import readiness
from aforesaid.stores.memory import InMemoryBackend
from aforesaid.telemetry import Telemetry
from aforesaid.telemetry.exposition import CLASSIC, OPEN
from aforesaid.telemetry.logs import JsonLines
from tests.faults import Failing
from tests.integration.server.running import serving
from tests.metric_values import parsed, value

ROOT = Path(__file__).parents[3]
REQUESTS = "aforesaid_http_requests_total"


async def test_metrics_come_in_the_form_that_is_asked_for() -> None:
    async with serving(timed=True) as server:
        await server.client.post("/v1/conversations", json={"session_id": "kitchen"})
        for accept, form in (("application/openmetrics-text", OPEN), ("text/plain", CLASSIC)):
            answer = await server.client.get("/metrics", headers={"Accept": accept})
            assert answer.headers["content-type"] == form
            assert {"aforesaid_http_requests", "aforesaid_store_seconds"} <= parsed(answer.text, form).keys()


async def test_a_request_is_counted_by_the_template_of_its_route() -> None:
    route = "/v1/conversations/{conversation_id}"
    labels = {"method": "GET", "route": route, "status": "404"}
    before = value(REQUESTS, labels)
    async with serving() as server:
        await server.client.get("/v1/conversations/marzipan-4711")
        await server.client.get("/v1/conversations/00000000-0000-4000-8000-000000000000")
        assert value(REQUESTS, labels) + value(REQUESTS, labels | {"status": "422"}) >= before + 1
        text = (await server.client.get("/metrics")).text
    assert f'route="{route}"' in text
    assert "marzipan" not in text


async def test_what_has_no_route_and_what_has_no_sense_is_counted_too() -> None:
    nowhere = {"method": "GET", "route": "(none)", "status": "404"}
    strange = {"method": "other"}
    before = value(REQUESTS, nowhere), value(REQUESTS, strange)
    async with serving() as server:
        for number in range(3):
            await server.client.get(f"/nowhere/{number}")
        await server.client.request("PROPFIND", "/v1/conversations")
    assert (value(REQUESTS, nowhere), value(REQUESTS, strange)) == (before[0] + 3, before[1] + 1)


async def test_metrics_want_a_key_that_reaches_everybody_once_there_are_keys() -> None:
    async with serving() as server:
        assert (await server.client.get("/metrics")).status_code == 200
        erins, everybodys = await server.key("erin", scope="admin"), await server.key("*", scope="read")
        server.service.authenticator._open_since = -1e9  # the door is looked at anew, as after a few seconds
        assert (await server.client.get("/metrics")).status_code == 401
        assert (await server.client.get("/metrics", headers=erins)).status_code == 403
        assert (await server.client.get("/metrics", headers=everybodys)).status_code == 200


async def test_the_id_of_a_request_comes_back_if_it_is_sane() -> None:
    async with serving() as server:
        given = await server.client.get("/health", headers={"X-Request-ID": "abc-123"})
        refused = await server.client.get("/nowhere", headers={"X-Request-ID": "a b"})
        assert given.headers["x-request-id"] == "abc-123"
        assert re.fullmatch(r"[0-9a-f]{32}", refused.headers["x-request-id"])


async def test_lines_of_a_request_carry_its_id(caplog: pytest.LogCaptureFixture) -> None:
    lines: list[dict[str, Any]] = []

    class Keeping(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(json.loads(JsonLines().format(record)))

    keeping = Keeping()
    logging.getLogger("aforesaid").addHandler(keeping)
    try:
        with caplog.at_level(logging.DEBUG, "aforesaid"):
            async with serving() as server:
                await server.client.post(
                    "/v1/conversations", json={"session_id": "kitchen"}, headers={"X-Request-ID": "r-1"}
                )
    finally:
        logging.getLogger("aforesaid").removeHandler(keeping)
    events = {line["event"]: line for line in lines if line.get("request_id") == "r-1"}
    assert {"conversation_started", "request"} <= events.keys()
    assert events["request"]["route"] == "/v1/conversations"
    assert events["request"]["status"] == 200


async def test_connections_and_their_frames_are_counted() -> None:
    names = [
        ("aforesaid_live_opened_total", {}),
        ("aforesaid_live_frames_total", {"direction": "in", "kind": "text"}),
        ("aforesaid_live_closed_total", {"code": "1000"}),
    ]
    before = [value(name, labels) for name, labels in names]
    async with serving() as server, connect(f"{server.url.replace('http', 'ws')}/ws") as socket:
        await socket.send(json.dumps({"type": "hello", "session_id": "kitchen"}))
        assert json.loads(await socket.recv())["type"] == "ready"
        assert value("aforesaid_live_connections") == 1
        assert value("aforesaid_live_queued") >= value("aforesaid_live_queue_longest") >= 0
        await socket.send(json.dumps({"type": "bye"}))
        await socket.wait_closed()
    grown = [value(name, labels) - was for (name, labels), was in zip(names, before, strict=True)]
    assert grown == [1, 2, 1]


# Ready


async def test_a_server_that_is_well_is_ready() -> None:
    async with serving() as server:
        answer = await server.client.get("/ready")
        assert answer.status_code == 200
        assert answer.json()["status"] == "ready"
        assert (await server.client.get("/health")).json() == {"status": "ok", "server": "aforesaid"}


async def test_one_that_is_about_to_stop_is_not() -> None:
    async with serving() as server:
        server.service.draining.set()
        answer = await server.client.get("/ready")
        assert (answer.status_code, answer.json()["status"]) == (503, "draining")
        assert (await server.client.get("/health")).status_code == 200, "it is alive, all the same"


@pytest.mark.parametrize(("policy", "status"), [("fallback", "ready"), ("fail_closed", "away")])
async def test_while_the_store_is_away_it_depends_on_whether_turns_are_accepted(
    policy: Any, status: str, tmp_path: Path
) -> None:
    failing = Failing(InMemoryBackend())
    chosen = Resilience(policy=policy, attempts=1)
    backend = resilient(failing, folder=tmp_path, resilience=chosen, metrics=Telemetry(), background=False)
    async with aforesaid.Memory(
        backend,
        retention=aforesaid.Retention(sweep_every=None),
        models=aforesaid.Models(preload=False, embedder=None),
    ) as memory:
        assert (await readiness(memory, draining=False)).status == "ready"
        failing.down()
        found = await readiness(memory, draining=False)
        assert (found.status, found.degraded) == (status, True)
        failing.up()


async def test_a_full_spool_is_a_reason_to_turn_callers_off(tmp_path: Path) -> None:
    failing = Failing(InMemoryBackend())
    chosen = Resilience(attempts=1, spool_limit=64 * 1024)
    backend = resilient(failing, folder=tmp_path, resilience=chosen, metrics=Telemetry(), background=False)
    async with aforesaid.Memory(
        backend,
        retention=aforesaid.Retention(sweep_every=None),
        models=aforesaid.Models(preload=False, embedder=None),
    ) as memory:
        erin = memory.of("erin")
        conversation = await erin.get_or_create_conversation("kitchen")
        failing.down()
        with pytest.raises(SpoolFull):
            for _ in range(1000):
                await erin.add_message(conversation.id, "user", "leeks " * 50)
        found = await readiness(memory, draining=False)
        spool = next(check for check in found.checks if check.about == "spool")
        assert (found.status, spool.state) == ("away", "problem")
        failing.up()


async def test_a_store_without_the_layer_that_does_not_answer_is_away() -> None:
    failing = Failing(InMemoryBackend())
    async with aforesaid.Memory(
        failing,
        retention=aforesaid.Retention(sweep_every=None),
        models=aforesaid.Models(preload=False, embedder=None),
    ) as memory:
        failing.down()
        found = await readiness(memory, draining=False)
        assert (found.status, found.degraded, len(found.checks)) == ("away", True, 1)


# The command


@contextmanager
def served(folder: Path, *options: str) -> Iterator[tuple[str, "subprocess.Popen[str]", Path]]:
    """`aforesaid serve` as a process of its own; its address, and the file with its log."""
    log = folder / "serve.log"
    command = [sys.executable, "-m", "aforesaid", "serve", "--port", "0", "--url", f"sqlite:///{folder}/m.db"]
    with log.open("w") as lines:
        process = subprocess.Popen(
            [*command, *options],
            stdout=subprocess.PIPE,
            stderr=lines,
            text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT / "src"), "COLUMNS": "200"},
        )
        try:
            yield _listening(_address(process)), process, log
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=240)
    assert process.returncode == 0


def _address(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    for line in process.stdout:
        found = re.search(r"http://127\.0\.0\.1:\d+", line)
        if found:
            return found.group()
    raise AssertionError("it did not start")


def _listening(url: str) -> str:
    """Return the address once a worker answers there: workers start after it is printed."""
    while True:
        with suppress(httpx.ConnectError):
            httpx.get(f"{url}/health", timeout=240)
            return url


def _told(url: str, name: str) -> float:
    """The sum of a metric, as one of the workers tells it."""
    families = parsed(httpx.get(f"{url}/metrics", timeout=240).text, CLASSIC)
    samples = [sample for family in families.values() for sample in family.samples]
    return float(sum(sample.value for sample in samples if sample.name == name))


@pytest.mark.slow
def test_metrics_of_several_workers_are_their_sum(tmp_path: Path) -> None:
    with served(tmp_path, "--workers", "2", "--log", "json") as (url, _, log):
        for number in range(20):  # each over a connection of its own: whichever worker takes it
            session = {"session_id": f"room-{number}"}
            assert httpx.post(f"{url}/v1/conversations", json=session, timeout=240).status_code == 200
        describe = [_told(url, "aforesaid_conversations_started_total") for _ in range(3)]
        while describe[-1] < 20:
            describe.append(_told(url, "aforesaid_conversations_started_total"))
        assert describe == sorted(describe), "what was shown once is never taken back"
        assert describe[-1] == 20
        while _told(url, "aforesaid_processes") < 2:
            continue
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert sum(line["event"] == "conversation_started" for line in lines) == 20
    assert len({line["request_id"] for line in lines if line["event"] == "request"}) >= 20


@pytest.mark.slow
def test_text_for_people_is_the_default_and_what_there_is_not_is_refused(tmp_path: Path) -> None:
    with served(tmp_path) as (url, _, log):
        httpx.get(f"{url}/health", timeout=240)
    assert " INFO    aforesaid.requests: GET /health 200 event=request " in log.read_text()
    refused = subprocess.run(
        [sys.executable, "-m", "aforesaid", "serve", "--log", "xml"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        cwd=tmp_path,
        check=False,
    )
    assert refused.returncode != 0
    assert "log must be one of text, json" in refused.stderr + refused.stdout
