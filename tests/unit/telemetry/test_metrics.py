"""Metrics: what is counted, how exactly, and that both forms of it parse."""

import ast
import random
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import aforesaid
from aforesaid.errors import ConversationNotFound, InvalidMessage
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.ids import new_id
from aforesaid.telemetry import Telemetry, telemetry
from aforesaid.telemetry.exposition import CLASSIC, OPEN, exposition, form_for
from aforesaid.telemetry.metrics import CATALOGUE, LENGTHS, MOST_SERIES, SECONDS
from aforesaid.telemetry.tracing import Request, answering
from aforesaid.testing import FixedClock
from tests.metric_values import parsed, value

PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
"""What Prometheus asks for."""
SOURCE = Path(__file__).parents[3] / "src" / "aforesaid"


def quantile(metrics: Telemetry, name: str, share: float) -> float:
    """As Prometheus reads it: the bucket that holds it, and in it a straight line."""
    buckets = [
        (float(one.labels["le"].replace("+Inf", "inf")), one.value)
        for one in metrics.samples()
        if one.name == f"{name}_bucket"
    ]
    rank = share * buckets[-1][1]
    lower, below = 0.0, 0.0
    for upper, count in buckets:
        if count >= rank:
            return lower + (upper - lower) * (rank - below) / (count - below)
        lower, below = upper, count
    raise AssertionError("no bucket holds it")


@pytest.mark.parametrize("share", [0.5, 0.95, 0.99])
@given(seed=st.integers(0, 2**32), typical=st.floats(1e-4, 1.0))
def test_a_quantile_is_never_off_by_more_than_a_step(share: float, seed: int, typical: float) -> None:
    metrics, draws = Telemetry(), random.Random(seed)
    times = sorted(min(9.0, typical * draws.lognormvariate(0, 0.7)) for _ in range(500))
    seconds = metrics.histogram("aforesaid_call_seconds", call="load_context")
    for one in times:
        seconds.observe(one)
    true = times[int(share * 500) - 1]
    assert true / 1.61 <= quantile(metrics, "aforesaid_call_seconds", share) <= true * 1.61


@given(amounts=st.lists(st.integers(0, 3_000_000), min_size=1))
def test_a_length_is_in_the_bucket_of_the_next_power_of_two(amounts: list[int]) -> None:
    metrics = Telemetry()
    lengths = metrics.lengths("aforesaid_context_tokens")
    for amount in amounts:
        lengths.observe(amount)
    found = {
        float(one.labels["le"].replace("+Inf", "inf")): one.value
        for one in metrics.samples()
        if one.name.endswith("_bucket")
    }
    for bound in (*LENGTHS, float("inf")):
        assert found[bound] == sum(amount <= bound for amount in amounts)
    assert value("aforesaid_context_tokens_sum", metrics=metrics) == sum(amounts)


def test_bounds_go_up() -> None:
    for bounds in (SECONDS, LENGTHS):
        assert list(bounds) == sorted(set(bounds))


def test_asking_twice_gives_the_same_metric_and_another_kind_is_refused() -> None:
    metrics = Telemetry()
    retries = metrics.counter("aforesaid_retries_total", store="a")
    assert metrics.counter("aforesaid_retries_total", store="a") is retries
    assert metrics.counter("aforesaid_retries_total", store="b") is not retries
    with pytest.raises(ValueError, match="aforesaid_retries_total is a counter with the labels store"):
        metrics.counter("aforesaid_retries_total", owner="erin")
    with pytest.raises(ValueError, match="is a counter"):
        metrics.gauge("aforesaid_retries_total", "", lambda: 0, store="a")


def test_an_application_counts_its_own() -> None:
    metrics = Telemetry()
    metrics.counter("bakery_loaves_total", "Loaves baked", kind="rye").add(3)
    text = exposition(metrics.series(), CLASSIC, metrics.families())
    assert "# HELP bakery_loaves_total Loaves baked" in text
    assert 'bakery_loaves_total{kind="rye"} 3.0' in text


def test_series_are_bounded() -> None:
    metrics = Telemetry()
    for number in range(MOST_SERIES + 50):
        metrics.counter("aforesaid_retries_total", store=str(number)).add()
    samples = metrics.samples()
    assert len(samples) == MOST_SERIES + 1
    assert value("aforesaid_retries_total", {"store": "other"}, metrics) == 50
    assert sum(one.value for one in samples) == MOST_SERIES + 50


def test_a_gauge_is_read_when_it_is_asked_for_and_taken_over_by_the_last() -> None:
    metrics, waiting = Telemetry(), [1]
    metrics.gauge("aforesaid_cache_bytes", "", lambda: 7, store="a")
    metrics.gauge("aforesaid_cache_bytes", "", lambda: len(waiting), store="a")
    waiting.append(2)
    assert value("aforesaid_cache_bytes", metrics=metrics) == 2


# Both forms


def some_numbers() -> Telemetry:
    metrics = Telemetry()
    metrics.counter("aforesaid_retries_total", store='postgres://"a"\\b\nc').add(2)
    metrics.gauge("aforesaid_cache_bytes", "", lambda: 12_345_678, store="a")
    metrics.lengths("aforesaid_context_tokens").observe(900)
    with answering(Request("r-1", "4bf92f3577b34da6a3ce929d0e0e4736")):
        metrics.histogram("aforesaid_call_seconds", call="append").observe(0.0004)
    metrics.histogram("aforesaid_call_seconds", call="search").observe(20.0)
    metrics.gauge("aforesaid_build_info", "", lambda: 1, version="0.1.0")
    return metrics


def test_the_classic_form_parses_to_what_was_counted() -> None:
    families = parsed(exposition(some_numbers().series()), CLASSIC)
    (retries,) = families["aforesaid_retries"].samples
    assert (retries.value, retries.labels) == (2, {"store": 'postgres://"a"\\b\nc'})
    assert families["aforesaid_cache_bytes"].samples[0].value == 12_345_678
    assert families["aforesaid_call_seconds"].type == "histogram"
    assert not any(one.exemplar for family in families.values() for one in family.samples)


def test_openmetrics_parses_and_carries_exemplars() -> None:
    families = parsed(exposition(some_numbers().series(), OPEN), OPEN)
    assert families["aforesaid_retries"].type == "counter"
    (exemplar,) = [one.exemplar for one in families["aforesaid_call_seconds"].samples if one.exemplar]
    assert exemplar.labels == {"request_id": "r-1", "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736"}
    assert exemplar.value == 0.0004


@given(
    amounts=st.lists(st.floats(0, 1e12), min_size=1, max_size=20),
    store=st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
)
def test_any_number_and_any_label_parses_in_both_forms(amounts: list[float], store: str) -> None:
    metrics = Telemetry()
    counter = metrics.counter("aforesaid_retries_total", store=store)
    seconds = metrics.histogram("aforesaid_store_seconds", store=store, operation="append")
    for amount in amounts:
        counter.add(amount)
        seconds.observe(amount)
    for form in (CLASSIC, OPEN):
        families = parsed(exposition(metrics.series(), form), form)
        (found,) = families["aforesaid_retries"].samples
        counts = [
            one.value for one in families["aforesaid_store_seconds"].samples if one.name.endswith("_count")
        ]
        assert found.labels == {"store": store}
        assert (found.value, counts) == (pytest.approx(sum(amounts)), [len(amounts)])


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        (None, CLASSIC),
        ("*/*", CLASSIC),
        ("text/html, */*;q=0.1", CLASSIC),
        ("application/openmetrics-text", OPEN),
        (PROMETHEUS, OPEN),
        ("text/plain;version=0.0.4;q=0.9, application/openmetrics-text;version=1.0.0;q=0.3", CLASSIC),
        ("application/openmetrics-text;q=0", CLASSIC),
        ("application/openmetrics-text;q=.", CLASSIC),
        (";;,,;q=", CLASSIC),
    ],
)
def test_the_form_is_the_one_that_is_asked_for(accept: str | None, form: str) -> None:
    assert form_for(accept) == form


# What the manager counts


async def test_a_conversation_leaves_its_numbers() -> None:
    names = [
        ("aforesaid_turns_total", {}),
        ("aforesaid_messages_total", {"role": "user"}),
        ("aforesaid_conversations_started_total", {"channel": "voice"}),
        ("aforesaid_conversations_ended_total", {"how": "deleted"}),
        ("aforesaid_client_associations_total", {}),
        ("aforesaid_context_messages_count", {}),
        ("aforesaid_conversation_messages_sum", {}),
        ("aforesaid_call_seconds_count", {"call": "append"}),
        ("aforesaid_call_seconds_count", {"call": "load_context"}),
        ("aforesaid_searches_total", {"by": "words"}),
        ("aforesaid_search_stage_seconds_count", {"stage": "candidates"}),
        ("aforesaid_message_characters_sum", {}),
    ]
    before = [value(name, labels) for name, labels in names]
    erin = ConversationManager()
    conversation = await erin.get_or_create_conversation("kitchen")
    async with erin.turn(conversation.id) as turn:
        turn.user("a roast")
        turn.assistant([{"type": "text", "text": "with potatoes"}], content_type="text")
    await erin.associate_client(conversation.id, (await erin.clients.add("Mia")).id, "Mia")
    await erin.load_context(conversation.id)
    await erin.search("potatoes")
    await erin.delete_conversation(conversation.id)
    grown = [value(name, labels) - was for (name, labels), was in zip(names, before, strict=True)]
    assert grown == [1, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1, len("a roast") + len("textwith potatoes")]


async def test_an_error_is_counted_once_by_its_class_where_it_is_first_seen() -> None:
    erin = ConversationManager()
    errors = "aforesaid_call_errors_total"
    before = value(errors)
    missing = value(errors, {"call": "append", "error": "ConversationNotFound"})
    invalid = value(errors, {"call": "add_message", "error": "InvalidMessage"})
    with pytest.raises(ConversationNotFound):
        await erin.add_message(new_id(), "user", "hello")
    conversation = await erin.get_or_create_conversation("kitchen")
    with pytest.raises(InvalidMessage):
        await erin.add_message(conversation.id, "user", object())
    assert value(errors, {"call": "append", "error": "ConversationNotFound"}) == missing + 1
    assert value(errors, {"call": "add_message", "error": "InvalidMessage"}) == invalid + 1
    assert value(errors) == before + 2


async def test_a_turn_that_is_sent_again_is_not_counted_again() -> None:
    erin = ConversationManager()
    conversation = await erin.get_or_create_conversation("kitchen")
    message = new_id()
    await erin.add_message(conversation.id, "user", "hello", message_id=message)
    before = value("aforesaid_turns_total"), value("aforesaid_messages_total")
    await erin.add_message(conversation.id, "user", "hello", message_id=message)
    assert (value("aforesaid_turns_total"), value("aforesaid_messages_total")) == before


def test_every_call_of_the_manager_is_watched() -> None:
    calls = {one.labels["call"] for one in telemetry.samples() if one.name == "aforesaid_call_seconds_count"}
    assert {"append", "load_context", "search", "purge_expired", "erase", "retention"} <= calls
    assert not any(call.startswith("_") for call in calls)


async def test_a_search_for_snippets_counts_as_a_search() -> None:
    """Dashboards and alerts select `call="search"`."""

    def counts() -> list[float]:
        return [
            value("aforesaid_call_seconds_count", {"call": call}) for call in ("search", "search_history")
        ]

    erin = ConversationManager()
    before = counts()
    await erin.search_history("leeks")
    await erin.search("leeks")
    assert counts() == [before[0] + 2, before[1] + 1]


async def test_a_purge_is_counted() -> None:
    before = value("aforesaid_conversations_ended_total", {"how": "expired"})
    clock = FixedClock()
    async with aforesaid.open(
        "memory://", ttl=timedelta(hours=1), retention=aforesaid.Retention(sweep_every=None), clock=clock
    ) as memory:
        await memory.of("erin").get_or_create_conversation("kitchen")
        clock.advance(timedelta(hours=2))
        assert await memory.purge_expired() == 1
    assert value("aforesaid_conversations_ended_total", {"how": "expired"}) == before + 1


# The catalogue


def counted_in_source() -> set[str]:
    """Names that the source asks a metric for."""
    found = set()
    for file in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                first = node.args[0]
                is_metric = node.func.attr in {"counter", "gauge", "histogram", "lengths"}
                if is_metric and isinstance(first, ast.Constant) and isinstance(first.value, str):
                    found.add(first.value)
    return found


@pytest.mark.slow
def test_what_the_source_counts_is_in_the_catalogue() -> None:
    assert counted_in_source() - {"bakery_loaves_total"} <= set(CATALOGUE)


def test_no_label_can_name_anybody() -> None:
    allowed = {
        "agent", "by", "call", "channel", "code", "direction", "error", "folder", "how", "kind",
        "method", "operation", "role", "route", "stage", "status", "store", "tool", "version",
    }  # fmt: skip
    assert {label for family in CATALOGUE.values() for label in family.labels} <= allowed


def test_no_two_names_are_one_in_openmetrics() -> None:
    """There a counter goes by its name without `_total`."""
    assert len({name.removesuffix("_total") for name in CATALOGUE}) == len(CATALOGUE)


def test_names_follow_the_conventions_of_prometheus() -> None:
    for name, family in CATALOGUE.items():
        assert name.startswith("aforesaid_")
        assert name.endswith("_total") == (family.kind == "counter"), name
        assert bool(family.bounds) == (family.kind == "histogram"), name
        assert family.help[0].isupper() or family.help[0].isdigit()
        assert not family.help.endswith(".")
