"""Write deploy/grafana/aforesaid.json from the panels below: `python scripts/grafana_dashboard.py`."""

import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[1] / "deploy" / "grafana" / "aforesaid.json"

RATE = "[$__rate_interval]"
Query = tuple[str, str]
"""A legend and an expression."""


def quantiles(name: str, where: str = "") -> list[Query]:
    """p50, p95 and p99 of a histogram of times."""
    inner = f"sum by (le) (rate({name}_bucket{where}{RATE}))"
    return [(f"p{share:g}", f"histogram_quantile({share / 100:g}, {inner})") for share in (50, 95, 99)]


def mean(name: str) -> str:
    return f"sum(rate({name}_sum{RATE})) / sum(rate({name}_count{RATE}))"


def by(label: str, name: str, where: str = "") -> list[Query]:
    """A rate, a line for each value of a label."""
    return [(f"{{{{{label}}}}}", f"sum by ({label}) (rate({name}{where}{RATE}))")]


def p95_by(label: str, name: str) -> list[Query]:
    """The 95th percentile of a histogram of times, a line for each value of a label."""
    inner = f"sum by (le, {label}) (rate({name}_bucket{RATE}))"
    return [(f"{{{{{label}}}}}", f"histogram_quantile(0.95, {inner})")]


def call(name: str) -> str:
    return f'{{call="{name}"}}'


_HITS, _MISSES = (f"sum(rate(aforesaid_cache_{kind}_total{RATE}))" for kind in ("hits", "misses"))
_REQUESTS = f"sum(rate(aforesaid_http_requests_total{RATE}))"
_FAILED = f'sum(rate(aforesaid_http_requests_total{{status=~"5.."}}{RATE}))'
_BREAKER = "max by (store) (aforesaid_breaker_state)"
_RELEASE = "max by (version) (aforesaid_build_info)"
_OPENED = f"sum(rate(aforesaid_live_opened_total{RATE}))"

ROWS: dict[str, list[tuple[str, str, list[Query]]]] = {
    "Conversation health": [
        ("Conversations begun", "cps", by("channel", "aforesaid_conversations_started_total")),
        (
            "Turns and messages stored",
            "cps",
            [("turns", f"sum(rate(aforesaid_turns_total{RATE}))"), *by("role", "aforesaid_messages_total")],
        ),
        ("Events of conversations", "cps", by("kind", "aforesaid_conversation_events_total")),
        ("Conversations that went", "cps", by("how", "aforesaid_conversations_ended_total")),
        (
            "Clients linked",
            "cps",
            [
                ("linked", f"sum(rate(aforesaid_client_associations_total{RATE}))"),
                ("may name several", f"sum(rate(aforesaid_clients_ambiguous_total{RATE}))"),
                ("not looked through", f"sum(rate(aforesaid_client_notes_dropped_total{RATE}))"),
            ],
        ),
        (
            "Lengths, on average",
            "short",
            [
                ("messages in a conversation", mean("aforesaid_conversation_messages")),
                ("messages in a context", mean("aforesaid_context_messages")),
            ],
        ),
        (
            "Tokens in a context, characters in a message",
            "short",
            [
                ("tokens, p95", quantiles("aforesaid_context_tokens")[1][1]),
                ("characters, p95", quantiles("aforesaid_message_characters")[1][1]),
            ],
        ),
    ],
    "Latency": [
        ("A turn is stored", "s", quantiles("aforesaid_call_seconds", call("append"))),
        ("A context is loaded", "s", quantiles("aforesaid_call_seconds", call("load_context"))),
        ("History is searched", "s", quantiles("aforesaid_call_seconds", call("search"))),
        ("A request is answered", "s", quantiles("aforesaid_http_request_seconds")),
    ],
    "Errors": [
        ("Calls that fail", "cps", by("error", "aforesaid_call_errors_total")),
        ("Requests by status", "reqps", by("status", "aforesaid_http_requests_total")),
        ("Share of requests that fail", "percentunit", [("5xx", f"{_FAILED} / {_REQUESTS}")]),
        ("Degraded contexts", "cps", [("degraded", f"sum(rate(aforesaid_contexts_degraded_total{RATE}))")]),
    ],
    "Stores": [
        ("Operations, p95", "s", p95_by("operation", "aforesaid_store_seconds")),
        ("Operations that fail", "cps", by("error", "aforesaid_store_errors_total")),
        ("Cache hit rate", "percentunit", [("hits", f"{_HITS} / ({_HITS} + {_MISSES})")]),
        ("Breaker (0 closed, 1 half open, 2 open)", "short", [("{{store}}", _BREAKER)]),
        (
            "Spool",
            "short",
            [
                ("{{store}}: operations", "sum by (store) (aforesaid_spool_operations)"),
                ("{{store}}: accepted/s", f"sum by (store) (rate(aforesaid_spool_accepted_total{RATE}))"),
                ("{{store}}: replayed/s", f"sum by (store) (rate(aforesaid_spool_replayed_total{RATE}))"),
            ],
        ),
        (
            "Spool: how full, how old",
            "short",
            [
                ("{{store}}: share", "max by (store) (aforesaid_spool_bytes / aforesaid_spool_limit_bytes)"),
                ("{{store}}: minutes", "max by (store) (aforesaid_spool_oldest_seconds) / 60"),
            ],
        ),
        (
            "Retries, degraded reads, dead letters",
            "cps",
            [
                ("retries", f"sum(rate(aforesaid_retries_total{RATE}))"),
                ("slow", f"sum(rate(aforesaid_slow_operations_total{RATE}))"),
                ("degraded reads", f"sum(rate(aforesaid_degraded_reads_total{RATE}))"),
                ("dead letters", f"sum(rate(aforesaid_dead_letters_total{RATE}))"),
                ("damaged spool", f"sum(rate(aforesaid_spool_damaged_total{RATE}))"),
                ("unreadable messages", f"sum(rate(aforesaid_unreadable_messages_total{RATE}))"),
                ("log violations", f"sum(rate(aforesaid_log_violations_total{RATE}))"),
            ],
        ),
        (
            "Memory of layers",
            "bytes",
            [("cache", "sum(aforesaid_cache_bytes)"), ("last known state", "sum(aforesaid_known_bytes)")],
        ),
    ],
    "Search": [
        ("Searches", "cps", by("by", "aforesaid_searches_total")),
        ("Stages, p95", "s", p95_by("stage", "aforesaid_search_stage_seconds")),
        ("Results of a search, on average", "short", [("results", mean("aforesaid_search_results"))]),
    ],
    "Agents": [
        ("A reply takes, p95", "s", p95_by("agent", "aforesaid_agent_step_seconds")),
        ("Replies that fail", "cps", by("error", "aforesaid_agent_errors_total")),
        ("Tokens", "cps", by("direction", "aforesaid_agent_tokens_total")),
        ("Answers that could not be stored", "cps", by("status", "aforesaid_unstored_turns_total")),
        ("Tools, p95", "s", p95_by("tool", "aforesaid_tool_seconds")),
        ("Tools that fail", "cps", by("tool", "aforesaid_tool_errors_total")),
    ],
    "Server": [
        ("Requests by route", "reqps", by("route", "aforesaid_http_requests_total")),
        (
            "Requests refused by load",
            "reqps",
            [("refused", f"sum(rate(aforesaid_http_requests_shed_total{RATE}))")],
        ),
        ("Requests being answered", "short", [("requests", "sum(aforesaid_http_requests_in_progress)")]),
        (
            "WebSocket connections",
            "short",
            [
                ("open", "sum(aforesaid_live_connections)"),
                ("conversations watched", "sum(aforesaid_live_feeds)"),
                ("changes are polled", "max(aforesaid_changes_polled)"),
                ("turns under way", "sum(aforesaid_live_turns)"),
            ],
        ),
        ("Frames", "cps", by("direction", "aforesaid_live_frames_total")),
        ("Notifications", "cps", by("how", "aforesaid_notifications_total")),
        ("Requests to webhooks", "cps", by("status", "aforesaid_webhook_attempts_total")),
        (
            "Frames that wait",
            "short",
            [("all", "sum(aforesaid_live_queued)"), ("on one", "max(aforesaid_live_queue_longest)")],
        ),
        (
            "Connections that come and go",
            "cps",
            [("opened", _OPENED), *by("code", "aforesaid_live_closed_total")],
        ),
        ("Processes", "short", [("processes", "sum(aforesaid_processes)"), ("{{version}}", _RELEASE)]),
        (
            "File handles",
            "percentunit",
            [("used", "max(aforesaid_open_files / aforesaid_open_files_limit)")],
        ),
        (
            "Free disk",
            "percentunit",
            [("{{folder}}", "min by (folder) (aforesaid_disk_free_bytes / aforesaid_disk_size_bytes)")],
        ),
        ("Up for", "s", [("since the last start", "time() - max(aforesaid_start_time_seconds)")]),
    ],
}

SOURCE = {"type": "prometheus", "uid": "${source}"}
WIDTH, HEIGHT, ALL = 8, 8, 24


def dashboard() -> dict[str, Any]:
    """The whole dashboard."""
    return {
        "title": "Aforesaid",
        "uid": "aforesaid",
        "tags": ["aforesaid"],
        "schemaVersion": 39,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "30s",
        "templating": {
            "list": [{"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}]
        },
        "panels": _panels(),
    }


def _panels() -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = []
    y = 0
    for row, charts in ROWS.items():
        panels.append(_placed({"type": "row", "title": row, "collapsed": False, "panels": []}, 0, y, ALL, 1))
        y += 1
        for number, chart in enumerate(charts):
            x = number * WIDTH % ALL
            panels.append(_placed(_chart(*chart), x, y + number * WIDTH // ALL * HEIGHT, WIDTH, HEIGHT))
        y += -(-len(charts) * WIDTH // ALL) * HEIGHT
    return [{"id": number, **panel} for number, panel in enumerate(panels, start=1)]


def _placed(panel: dict[str, Any], x: int, y: int, width: int, height: int) -> dict[str, Any]:
    return {**panel, "gridPos": {"x": x, "y": y, "w": width, "h": height}}


def _chart(title: str, unit: str, queries: list[Query]) -> dict[str, Any]:
    return {
        "type": "timeseries",
        "title": title,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": chr(65 + number),
                "datasource": SOURCE,
                "legendFormat": legend,
                "expr": expression,
                "exemplar": True,
            }
            for number, (legend, expression) in enumerate(queries)
        ],
    }


if __name__ == "__main__":
    FILE.write_text(json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n", "utf-8")
