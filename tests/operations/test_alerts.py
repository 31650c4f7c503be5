"""The alert rules: a real Prometheus scrapes a real server while the outage that a rule is for happens."""

import json
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from websockets.sync.client import connect

from tests.servers import programs
from tests.servers.ports import free_port
from tests.servers.postgres import PostgresServer
from tests.servers.running import DEPLOY, Process, server
from tests.servers.waiting import LONGEST

RULES = DEPLOY / "prometheus" / "alerts.yml"
DASHBOARD = DEPLOY / "grafana" / "aforesaid.json"
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
# A rule that waits five minutes waits five seconds here; a range of five minutes has ten samples.
FASTER = 60
SCRAPE_SECONDS = 0.5


def faster(text: str) -> str:
    """Shorten every duration of the rules, in `for:` and in ranges."""

    def shorter(match: re.Match[str]) -> str:
        seconds = int(match["count"]) * UNITS[match["unit"]] / FASTER
        return f"{match['before']}{max(1, round(seconds))}s{match['after']}"

    duration = r"(?P<before>\[|for: )(?P<count>\d+)(?P<unit>[smhd])(?P<after>\]|\n)"
    return re.sub(duration, shorter, text)


class Prometheus:
    """A Prometheus that scrapes one server."""

    def __init__(self, folder: Path, target: str) -> None:
        self._folder = folder
        folder.mkdir()
        (folder / "alerts.yml").write_text(faster(RULES.read_text("utf-8")))
        configuration = {
            "global": {"scrape_interval": "500ms", "evaluation_interval": "500ms"},
            "rule_files": ["alerts.yml"],
            "scrape_configs": [
                {"job_name": "aforesaid", "static_configs": [{"targets": [target.removeprefix("http://")]}]}
            ],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration))
        port = free_port()
        command = [
            str(programs.prometheus()), f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{port}",
        ]  # fmt: skip
        self.process = Process(command, f"http://127.0.0.1:{port}", folder / "prometheus.log")

    def get(self, path: str, **query: str) -> Any:
        answer = httpx.get(f"{self.process.address}/api/v1/{path}", params=query, timeout=LONGEST)
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]

    def firing(self) -> set[str]:
        return {
            each["labels"]["alertname"] for each in self.get("alerts")["alerts"] if each["state"] == "firing"
        }

    def until(self, alert: str, *, fires: bool) -> None:
        """Wait until the alert fires, or no longer does."""
        ended = time.monotonic() + LONGEST
        while (alert in self.firing()) != fires:
            assert time.monotonic() < ended, (
                f"{alert} {'does not fire' if fires else 'still fires'}: {self.firing()}"
            )
            time.sleep(SCRAPE_SECONDS)

    def until_scraped(self) -> None:
        ended = time.monotonic() + LONGEST
        while not self.get("query", query='up{job="aforesaid"} == 1')["result"]:
            assert time.monotonic() < ended
            time.sleep(SCRAPE_SECONDS)


@contextmanager
def watched(folder: Path, url: str, **environ: str) -> Iterator[tuple[Process, Prometheus]]:
    one = server(folder, url, AFORESAID_SPOOL_FOLDER=str(folder / "spool"), **environ)
    one.start()
    prometheus = Prometheus(folder / "prometheus", one.address)
    prometheus.process.start(path="/-/ready")
    try:
        prometheus.until_scraped()
        yield one, prometheus
    finally:
        prometheus.process.stop()
        one.stop()


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
def test_an_unavailable_store_raises_the_alert_and_its_return_ends_it(tmp_path: Path) -> None:
    database = PostgresServer()
    database.start()
    try:
        with watched(tmp_path, database.url, AFORESAID_KEY_GRACE_SECONDS="3600") as (one, prometheus):
            assert said(one.address).status_code == 201
            assert not prometheus.firing() & {"AforesaidStoreAway", "AforesaidSpoolFills"}
            database.interrupt()
            assert said(one.address).status_code == 201
            prometheus.until("AforesaidStoreAway", fires=True)
            database.resume()
            prometheus.until("AforesaidStoreAway", fires=False)
            write_recorded_test(prometheus, tmp_path)
    finally:
        database.stop()


def write_recorded_test(prometheus: Prometheus, folder: Path) -> None:
    """Give promtool the breaker's series as it was recorded during the outage, and let it test the rule."""
    (series,) = prometheus.get("query", query="aforesaid_breaker_state[5m]")["result"]
    values = [value for _, value in series["values"]]
    assert {"0", "2"} <= set(values), "the series must contain an outage"
    away = next(at for at, value in enumerate(values) if value != "0")
    back = len(values) - next(at for at, value in enumerate(reversed(values)) if value != "0")
    store = series["metric"]["store"]
    # One recorded sample per half minute: what took seconds here takes minutes there.
    document = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "30s",
        "tests": [
            {
                "interval": "30s",
                "input_series": [
                    {"series": f'aforesaid_breaker_state{{store="{store}"}}', "values": " ".join(values)}
                ],
                "alert_rule_test": [
                    {
                        "eval_time": f"{30 * max(0, away - 1)}s",
                        "alertname": "AforesaidStoreAway",
                        "exp_alerts": [],
                    },
                    {
                        "eval_time": f"{30 * (back - 1)}s",
                        "alertname": "AforesaidStoreAway",
                        "exp_alerts": [
                            {
                                "exp_labels": {"severity": "critical", "store": store},
                                "exp_annotations": annotations("AforesaidStoreAway", store=store),
                            }
                        ],
                    },
                ],
            }
        ],
    }
    file = folder / "recorded.yml"
    file.write_text(yaml.safe_dump(document))
    done = subprocess.run(
        [programs.promtool(), "test", "rules", file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def annotations(alert: str, **labels: str) -> dict[str, str]:
    """The annotations of a rule with its labels filled in."""
    groups = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    (rule,) = (rule for group in groups for rule in group["rules"] if rule["alert"] == alert)
    found = {}
    for name, text in rule["annotations"].items():
        for label, value in labels.items():
            text = text.replace("{{ $labels." + label + " }}", value)
        found[name] = text
    return found


@pytest.mark.needs("prometheus")
def test_a_server_that_does_not_answer_raises_the_alert(tmp_path: Path) -> None:
    with watched(tmp_path, f"sqlite:///{tmp_path}/memory.db") as (one, prometheus):
        one.stop()
        prometheus.until("AforesaidDown", fires=True)


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
