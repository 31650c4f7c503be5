"""Alert rules and dashboard: promtool accepts them, and their series exist in a real Prometheus."""

import json
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from websockets.sync.client import connect

from tests.operations.prometheus import RULES, Prometheus, watching
from tests.servers import programs
from tests.servers.running import DEPLOY, Process, server
from tests.servers.waiting import LONGEST

DASHBOARD = DEPLOY / "grafana" / "aforesaid.json"


@contextmanager
def watched(folder: Path, url: str, **environ: str) -> Iterator[tuple[Process, Prometheus]]:
    one = server(folder, url, AFORESAID_SPOOL_FOLDER=str(folder / "spool"), **environ)
    with watching(folder, one) as prometheus:
        yield one, prometheus


def said(address: str, text: str = "hello") -> httpx.Response:
    turn = {"session_id": "kitchen", "messages": [{"role": "user", "content": text}]}
    return httpx.post(f"{address}/v1/sessions/turns", json=turn, timeout=LONGEST)


@pytest.mark.needs("promtool")
def test_promtool_accepts_the_rules() -> None:
    done = subprocess.run(
        [programs.promtool(), "check", "rules", RULES], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert f"{len(re.findall('- alert:', RULES.read_text('utf-8')))} rules found" in done.stdout


@pytest.mark.needs("prometheus")
def test_the_first_error_of_a_kind_is_seen(tmp_path: Path) -> None:
    """The series exists before its first error, so that its increase is not missed."""
    with watched(tmp_path, f"sqlite:///{tmp_path}/memory.db") as (_, prometheus):
        for name, matcher in counters_of_alerts():
            found = prometheus.get("query", query=f"{name}{matcher}")["result"]
            assert found, f"{name}{matcher} does not exist before the first error"


# Series that exist only with an agent, a tool or a spool.
CONDITIONAL = (
    "aforesaid_agent", "aforesaid_tool", "aforesaid_dead_letters", "aforesaid_spool", "aforesaid_retries",
    "aforesaid_cache",
)  # fmt: skip


def counters_of_alerts() -> set[tuple[str, str]]:
    """The counters that rules take an increase or rate of, with their matchers."""
    text = RULES.read_text("utf-8")
    found = set(re.findall(r"(?:rate|increase)\((aforesaid_\w+_total)(\{[^}]*\})?", text))
    rates = {(name, matcher) for name, matcher in found if not name.startswith(CONDITIONAL)}
    # Refusals of callers are counted per route when they happen; their alerts need a steady rate.
    return {(name, matcher) for name, matcher in rates if "401" not in matcher and "429" not in matcher}


LAYERS = {"AFORESAID_RESILIENCE": "fallback", "AFORESAID_CACHE": "watched"}


@pytest.mark.needs("prometheus")
def test_every_query_of_the_dashboard_has_an_answer_after_traffic(tmp_path: Path) -> None:
    with watched(tmp_path, f"sqlite:///{tmp_path}/memory.db", **LAYERS) as (one, prometheus):
        ended = time.monotonic() + LONGEST
        # A rate needs two samples of a series, so the traffic goes on until every query has an answer.
        while (unanswered := unanswered_queries(prometheus)) and time.monotonic() < ended:
            exercise(one.address)
        assert not unanswered


def unanswered_queries(prometheus: Prometheus) -> list[tuple[str, str]]:
    """Panels and queries without an answer, except those that this traffic has nothing for."""
    queries = [
        (panel["title"], target["expr"])
        for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"]
        for target in panel.get("targets", ())
        if panel["title"] not in WITHOUT_DATA and POSTGRESQL_ONLY not in target["expr"]
    ]
    return [
        (title, query)
        for title, query in queries
        if not prometheus.get("query", query=query.replace("$__rate_interval", "10s"))["result"]
    ]


# Panels of what this traffic has none of: a model's tokens, tools, failures.
POSTGRESQL_ONLY = "aforesaid_changes_polled"
WITHOUT_DATA = {"Tokens", "Replies that fail", "Tools, p95", "Tools that fail"}


def exercise(address: str) -> None:
    with connect(f"{address.replace('http', 'ws', 1)}/ws") as socket:
        socket.send(json.dumps({"type": "hello", "session_id": "kitchen"}))
        assert json.loads(socket.recv(LONGEST))["type"] == "ready"
    with httpx.Client(base_url=address, timeout=LONGEST) as client:
        assert said(address).status_code == 201
        asked = {"session_id": "kitchen", "text": "What did I say?"}
        assert client.post("/v1/sessions/answers", json=asked).status_code == 200
        assert client.get("/v1/search", params={"query": "hello"}).status_code == 200
        (conversation, *_) = client.get("/v1/conversations").json()["conversations"]
        assert client.get(f"/v1/conversations/{conversation['id']}/context").status_code == 200
        for status in ("closed", "open"):
            changed = client.patch(f"/v1/conversations/{conversation['id']}", json={"status": status})
            assert changed.status_code == 200
        client.get("/v1/conversations/00000000-0000-7000-8000-000000000000")
        gone = client.post("/v1/conversations", json={"session_id": "gone"}).json()["id"]
        assert client.delete(f"/v1/conversations/{gone}").status_code == 204
