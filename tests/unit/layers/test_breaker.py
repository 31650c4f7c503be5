"""The breaker and the retries, as the pure things they are."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aforesaid.errors import Overloaded, SpoolFull, StoreDamaged, StoreError, StoreUnavailable
from aforesaid.layers.resilient.connection import Breaker, RetryPolicy, is_transient, with_retries
from tests.unit.layers.conftest import Seconds


def test_it_opens_after_three_failures_in_a_row_and_not_before() -> None:
    breaker = Breaker(clock=Seconds())
    for _ in range(5):
        breaker.failed("x")
        breaker.failed("x")
        breaker.succeeded()
    assert breaker.closed
    for _ in range(3):
        breaker.failed("gone")
    assert (breaker.state, breaker.reason) == ("open", "gone")


def test_one_probe_at_a_time_and_only_when_it_is_due() -> None:
    seconds = Seconds()
    breaker = Breaker(clock=seconds, first_pause=1.0, longest_pause=3.0)
    breaker.trip("gone")
    pauses = []
    for _ in range(4):
        assert not breaker.begin_probe()
        pauses.append(breaker.seconds_to_probe)
        seconds.now += breaker.seconds_to_probe
        assert breaker.begin_probe()
        assert not breaker.begin_probe(), "a second probe beside the first"
        assert not breaker.closed
        breaker.probe_failed("still gone")
    assert pauses == [1.0, 2.0, 3.0, 3.0]
    seconds.now += 3
    assert breaker.begin_probe()
    breaker.probe_succeeded()
    assert breaker.closed
    breaker.trip("gone again")
    assert breaker.seconds_to_probe == 1.0


@given(st.lists(st.sampled_from(["failed", "succeeded", "trip", "probe", "time", "well", "ill"])))
def test_whatever_happens_only_a_probe_closes_it(steps: list[str]) -> None:
    seconds = Seconds()
    moves: list[tuple[str, str]] = []
    breaker = Breaker(clock=seconds, on_change=lambda state, reason: moves.append((breaker.state, state)))
    for step in steps:
        before = breaker.state
        match step:
            case "failed" | "trip":
                getattr(breaker, step)("x")
            case "succeeded":
                breaker.succeeded()
            case "probe":
                assert breaker.begin_probe() == (before == "open" and breaker.seconds_to_probe == 0.0) or (
                    before == "open" and breaker.state == "half_open"
                )
            case "time":
                seconds.now += 1.0
            case "well" | "ill" if before == "half_open":
                breaker.probe_succeeded() if step == "well" else breaker.probe_failed("x")
        if before != "closed" and breaker.closed:
            assert (before, step) == ("half_open", "well")


def test_which_errors_pass_is_said_in_one_place() -> None:
    assert is_transient(StoreUnavailable())
    assert is_transient(Overloaded())
    assert not is_transient(SpoolFull())
    assert not is_transient(StoreDamaged())
    assert not is_transient(StoreError())


@given(st.integers(1, 8))
def test_pauses_grow_up_to_a_bound_and_are_uneven(attempts: int) -> None:
    effort = RetryPolicy(attempts=attempts, first_pause=0.1, longest_pause=0.5)
    pauses = list(effort.pauses())
    assert len(pauses) == attempts - 1
    for number, pause in enumerate(pauses):
        ceiling = min(0.1 * 2**number, 0.5)
        assert ceiling / 2 <= pause <= ceiling


async def test_who_is_overloaded_is_not_asked_again() -> None:
    calls = 0

    async def call() -> None:
        nonlocal calls
        calls += 1
        raise Overloaded

    with pytest.raises(Overloaded):
        await with_retries(call, RetryPolicy(attempts=3), sleep=Seconds().sleep)
    assert calls == 1


async def test_a_cancelled_call_is_not_retried_although_its_driver_reports_an_error() -> None:
    attempts = 0

    async def call() -> None:
        nonlocal attempts
        attempts += 1
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            raise StoreUnavailable("the connection is lost") from None

    retrying = asyncio.create_task(with_retries(call, RetryPolicy(attempts=3), sleep=Seconds().sleep))
    await asyncio.sleep(0)
    retrying.cancel()
    with pytest.raises(StoreUnavailable):
        await asyncio.wait_for(retrying, 60)
    assert attempts == 1
