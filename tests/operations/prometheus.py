"""A real Prometheus with the alert rules in shorter time, and promtool with what it recorded."""

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.servers import programs
from tests.servers.ports import free_port
from tests.servers.running import DEPLOY, Process
from tests.servers.waiting import LONGEST
from tests.unit.telemetry.promql import named_in

RULES = DEPLOY / "prometheus" / "alerts.yml"
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
# A rule that waits five minutes waits five seconds here, and no rule waits longer than fifteen.
FASTER, MOST_SECONDS = 60, 15
SCRAPE_SECONDS = 1.0
# An alert that has fired for some scrapes also fires in a test whose scrapes are exact.
SURE_SECONDS = 4.0

DURATION = re.compile(r"(?P<before>\[|for: |offset )(?P<count>\d+)(?P<unit>[smhd])\b")
# The only rule with a threshold in seconds of waiting.
AGE = re.compile(r"(?P<before>_oldest_seconds\) > )(?P<seconds>\d+)")


def shorter(seconds: int) -> int:
    return min(MOST_SECONDS, max(1, seconds // FASTER))


def faster(text: str) -> str:
    """Shorten every duration of the rules: `for:`, ranges, offsets and the age of operations."""

    def shorter_duration(match: re.Match[str]) -> str:
        return f"{match['before']}{shorter(int(match['count']) * UNITS[match['unit']])}s"

    text = DURATION.sub(shorter_duration, text)
    return AGE.sub(lambda match: f"{match['before']}{shorter(int(match['seconds']))}", text)


def rules() -> dict[str, dict[str, Any]]:
    """The rules as they are shipped, by the names of their alerts."""
    groups = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def slowed(rule: dict[str, Any]) -> int:
    """How many times as long the shipped rule waits as the one in shorter time."""
    durations = DURATION.findall(f"for: {rule.get('for', '0s')} {rule['expr']}")
    long = [int(count) * UNITS[unit] for _, count, unit in durations]
    return max(FASTER, *(seconds // shorter(seconds) for seconds in long))


class Prometheus:
    """A Prometheus that scrapes one server."""

    def __init__(self, folder: Path, target: str) -> None:
        self._folder = folder
        folder.mkdir()
        (folder / "alerts.yml").write_text(faster(RULES.read_text("utf-8")))
        interval = f"{round(SCRAPE_SECONDS * 1000)}ms"
        configuration = {
            "global": {"scrape_interval": interval, "evaluation_interval": interval},
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

    def alerts(self) -> dict[str, dict[str, Any]]:
        """The alerts that fire, by name."""
        found = self.get("alerts")["alerts"]
        return {one["labels"]["alertname"]: one for one in found if one["state"] == "firing"}

    def until_scraped(self) -> None:
        ended = time.monotonic() + LONGEST
        while not self.get("query", query='up{job="aforesaid"} == 1')["result"]:
            assert time.monotonic() < ended
            time.sleep(SCRAPE_SECONDS)

    def until_quiet(self, *alerts: str) -> None:
        """Wait until none of the alerts fires any longer."""
        ended = time.monotonic() + LONGEST
        while left := self.alerts().keys() & set(alerts):
            assert time.monotonic() < ended, f"these still fire: {left}"
            time.sleep(SCRAPE_SECONDS)

    def raises(self, *alerts: str, traffic: Callable[[], object] = lambda: None) -> None:
        """Let traffic go on until all of the alerts have fired; then let promtool test the shipped rules
        with the series that were recorded meanwhile.
        """
        ended, fired = time.monotonic() + LONGEST, dict.fromkeys(alerts, 0.0)
        while fired:
            assert time.monotonic() < ended, (
                f"these do not fire: {set(fired)}; these do: {set(self.alerts())}"
            )
            traffic()
            now, firing = time.monotonic(), self.alerts()
            for alert, since in list(fired.items()):
                fired[alert] = (since or now) if alert in firing else 0.0
                if fired[alert] and now - fired[alert] >= SURE_SECONDS:
                    self._replay(alert)
                    del fired[alert]
            time.sleep(0.05)

    def _replay(self, alert: str) -> None:
        """Let promtool test the rule as it is shipped with the series that have raised it here."""
        at, fired = time.time(), self.alerts()[alert]
        rule = rules()[alert]
        slower = slowed(rule)
        series = [
            one
            for name in named_in(rule["expr"]).metrics
            for one in self._recorded(name, rule, at=at, slower=slower)
        ]
        labels = {name: value for name, value in fired["labels"].items() if name != "alertname"}
        expected = {"exp_labels": labels, "exp_annotations": fired["annotations"]}
        # Stretched like the series, so that a scrape of the test is one of promtool's evaluations.
        step = SCRAPE_SECONDS * slower
        last = max(len(values) for _, values in series) - 1
        document = {
            "rule_files": [str(RULES)],
            "evaluation_interval": f"{step:.0f}s",
            "tests": [
                {
                    "interval": f"{step:.0f}s",
                    "input_series": [{"series": name, "values": " ".join(values)} for name, values in series],
                    "alert_rule_test": [
                        {"eval_time": "0s", "alertname": alert, "exp_alerts": []},
                        {"eval_time": f"{last * step:.0f}s", "alertname": alert, "exp_alerts": [expected]},
                    ],
                }
            ],
        }
        file = self._folder / f"{alert}.yml"
        file.write_text(yaml.safe_dump(document))
        done = subprocess.run(
            [programs.promtool(), "test", "rules", file], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def _recorded(
        self, metric: str, rule: dict[str, Any], *, at: float, slower: int
    ) -> list[tuple[str, list[str]]]:
        """Return each series of a metric since the start: its labels, and a value for each scrape.

        The time between scrapes is stretched. What grows with time is stretched with it: an age, and a
        counter whose rate a rule takes.
        """
        found = self.get("query", query=f"{metric}[1h]", time=str(at))["result"]
        start = min((value[0] for each in found for value in each["values"]), default=at)
        factor = slower if f"rate({metric}" in rule["expr"] or metric.endswith("_oldest_seconds") else 1
        return [(_written(each["metric"]), _in_steps(each["values"], start, factor)) for each in found]


def _written(metric: dict[str, str]) -> str:
    """Return the name and labels of a series as in an expression."""
    labels = ",".join(f'{name}="{value}"' for name, value in metric.items() if name != "__name__")
    return f"{metric['__name__']}{{{labels}}}"


def _in_steps(values: list[tuple[float, str]], start: float, factor: int) -> list[str]:
    """Return the value of each scrape; `_` where there was none."""
    by_step = {round((at - start) / SCRAPE_SECONDS): float(value) * factor for at, value in values}
    return [f"{by_step[step]:g}" if step in by_step else "_" for step in range(max(by_step) + 1)]


@contextmanager
def watching(folder: Path, server: Process) -> Iterator[Prometheus]:
    """Let a Prometheus scrape a server, which is started; both stop at the end."""
    server.start()
    prometheus = Prometheus(folder / "prometheus", server.address)
    prometheus.process.start(path="/-/ready")
    try:
        prometheus.until_scraped()
        yield prometheus
    finally:
        prometheus.process.stop()
        server.stop()
