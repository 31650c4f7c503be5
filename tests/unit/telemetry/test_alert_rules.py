"""Alert rules, dashboard and reference page name metrics and labels that exist, and leave none out."""

import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml

from aforesaid import errors
from aforesaid.memory.manager import ConversationManager
from aforesaid.telemetry import telemetry
from aforesaid.telemetry.metrics import CATALOGUE, Family
from tests.unit.telemetry.promql import named_in, tokens

ROOT = Path(__file__).parents[3]
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "aforesaid.json"
OF_PROMETHEUS = {"up": Family("up", "gauge", "Whether a scrape succeeded", ("job", "instance"))}


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    document = json.loads(DASHBOARD.read_text("utf-8"))
    return [panel for panel in document["panels"] if panel["type"] != "row"]


GUIDE = (ROOT / "docs" / "how-to" / "monitor.md").read_text("utf-8")
IN_GUIDE = re.findall(r"`((?:sum|histogram)[^`]*\)[^`]*)`", GUIDE)

EXPRESSIONS = [
    *(
        pytest.param(found, id=f"guide, {found}")
        for found in re.findall(r"`((?:sum|histogram)[^`]*\)[^`]*)`", GUIDE)
    ),
    *(pytest.param(rule["expr"], id=rule["alert"]) for rule in alerts()),
    *(
        pytest.param(target["expr"], id=f"{panel['title']}, {target['legendFormat']}")
        for panel in panels()
        for target in panel["targets"]
    ),
]


def family_of(metric: str) -> tuple[Family, frozenset[str]]:
    """The family that a name in an expression belongs to, and the labels that it has."""
    for suffix in ("", "_bucket", "_sum", "_count"):
        family = {**CATALOGUE, **OF_PROMETHEUS}.get(metric.removesuffix(suffix))
        if family is not None and metric.endswith(suffix) and (family.kind == "histogram") == bool(suffix):
            return family, frozenset(family.labels) | ({"le"} if suffix == "_bucket" else set())
    raise AssertionError(f"there is no metric {metric}")


def calls() -> set[str]:
    return {name for name in dir(ConversationManager) if not name.startswith("_")}


def values_of(label: str) -> set[str] | None:
    """The values that a label can have, where they are known."""
    kinds = {name for name, kind in vars(errors).items() if isinstance(kind, type)} | {"other"}
    return {"call": calls(), "error": kinds}.get(label)


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_names_what_exists(expression: str) -> None:
    named = named_in(expression)
    assert named.metrics
    found = {metric: family_of(metric) for metric in named.metrics}
    for metric, label, value in named.matched:
        assert label in found[metric][1], f"{metric} has no label {label}"
        known = values_of(label)
        assert known is None or set(value.split("|")) <= known, f"{label} is never {value}"
    for label in named.grouped:
        assert all(label in labels for _, labels in found.values()), f"not all have the label {label}"


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_counters_are_read_as_rates_and_gauges_are_not(expression: str) -> None:
    for metric in named_in(expression).metrics:
        is_rate = re.search(rf"(rate|increase)\({metric}\b", expression) is not None
        assert is_rate == (family_of(metric)[0].kind != "gauge"), metric


def test_every_metric_is_on_the_dashboard() -> None:
    targets = [target["expr"] for panel in panels() for target in panel["targets"]]
    named = {metric for expression in targets for metric in named_in(expression).metrics}
    assert {family_of(metric)[0].name for metric in named} == set(CATALOGUE)


def test_every_alert_says_how_bad_it_is_and_what_to_do() -> None:
    rules = alerts()
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert rule["annotations"].keys() == {"summary", "action"}
        named = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        assert named <= named_in(rule["expr"]).grouped


def test_panels_do_not_overlap() -> None:
    document = json.loads(DASHBOARD.read_text("utf-8"))
    taken: set[tuple[int, int]] = set()
    for panel in document["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
    assert max(x for x, _ in taken) < 24


@pytest.mark.parametrize(
    ("script", "target", "made"),
    [
        ("metrics_reference.py", "PAGE", lambda script: script["page"]()),
        (
            "grafana_dashboard.py",
            "FILE",
            lambda script: json.dumps(script["dashboard"](), indent=1, ensure_ascii=False) + "\n",
        ),
    ],
)
def test_what_is_made_by_a_script_is_up_to_date(script: str, target: str, made: Any) -> None:
    ran = runpy.run_path(str(ROOT / "scripts" / script))
    assert ran[target].read_text("utf-8") == made(ran), f"run scripts/{script}"


def test_what_is_counted_here_is_on_the_reference_page() -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8")
    for name in telemetry.families():
        if name.startswith("aforesaid_"):
            assert f"| `{name}` |" in page


# The tokenizer itself


def test_it_sees_metrics_labels_and_groups() -> None:
    named = named_in(
        'histogram_quantile(0.9, sum by (le, call) (rate(a_bucket{call="x", error=~"p|q"}[5m]))) > 1e-3 and b'
    )
    assert named.metrics == {"a_bucket", "b"}
    assert named.matched == {("a_bucket", "call", "x"), ("a_bucket", "error", "p|q")}
    assert named.grouped == {"le", "call"}


@pytest.mark.parametrize("wrong", ["sum(a) § b", "smu(a)", 'a{b="c]'])
def test_it_refuses_what_is_no_promql(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"no PromQL|no function"):
        named_in(wrong)


def test_a_name_that_does_not_exist_is_found_out() -> None:
    with pytest.raises(AssertionError, match="there is no metric"):
        test_an_expression_names_what_exists("rate(aforesaid_turns[5m])")
    with pytest.raises(AssertionError, match="has no label"):
        test_an_expression_names_what_exists('rate(aforesaid_turns_total{owner="x"}[5m])')
    with pytest.raises(AssertionError, match="is never"):
        test_an_expression_names_what_exists('rate(aforesaid_call_errors_total{error="Oops"}[5m])')
    assert tokens("a[5m]") == [("name", "a"), ("range", "[5m]")]


@pytest.mark.requirement("004-108")
@pytest.mark.parametrize("call", ["append", "load_context", "search_conversations"])
def test_a_slow_query_has_an_alert(call: str) -> None:
    slow = [rule["expr"] for rule in alerts() if "aforesaid_call_seconds_bucket" in rule["expr"]]
    assert [one for one in slow if call in re.split(r'[|"]', one) and re.search(r"> 0\.\d+\s*$", one)]


DOCUMENTED_ALERTS = {
    "a high database error rate": ("aforesaid_store_errors_total", "StoreUnavailable"),
    "slow context loading": ("aforesaid_call_seconds_bucket", 'call="load_context"'),
    "failed message storage": ("aforesaid_unstored_turns_total", 'status="lost"'),
    "cache misses exceeding a threshold": ("aforesaid_cache_misses_total", "< 0."),
}


@pytest.mark.requirement("004-090")
@pytest.mark.parametrize("what", DOCUMENTED_ALERTS)
def test_each_documented_condition_has_an_alert(what: str) -> None:
    metric, condition = DOCUMENTED_ALERTS[what]
    expressions = [rule["expr"] for rule in alerts() if metric in named_in(rule["expr"]).metrics]
    assert [one for one in expressions if condition in one]
