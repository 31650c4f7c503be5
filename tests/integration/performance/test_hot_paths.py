"""A turn, a window and a search cost no more than they did: in calls, and in what SQLite is made to do.
Nothing here is measured by a clock, so a crowded machine is not mistaken for a slip."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.performance.guard import calls
from tests.integration.performance.paths import Bench, opened
from tests.integration.performance.usual import MORE, USUAL, Usual, steps_of, twice


@pytest.fixture(scope="module", params=USUAL)
def path(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def usual(path: str) -> Usual:
    return USUAL[path]


@pytest.fixture(scope="module")
def bench(path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One for each path: what turns leave behind is no search's business."""
    with opened(Path(tmp_path_factory.mktemp("hot-paths")), watched=True) as bench:
        yield bench


def test_it_makes_no_more_calls_than_it_did(bench: Bench, path: str, usual: Usual) -> None:
    ours, _ = steps_of(bench, path)
    assert calls(ours) <= usual.calls * MORE


def test_it_has_the_engine_do_no_more_than_it_did(bench: Bench, path: str, usual: Usual) -> None:
    ours, _ = steps_of(bench, path)
    assert bench.engine.each(ours) <= usual.instructions * MORE


def test_the_usual_is_not_out_of_date(bench: Bench, path: str, usual: Usual) -> None:
    """Much less than what is written down means that a slip of two would pass: write down less."""
    ours, _ = steps_of(bench, path)
    assert calls(ours) > usual.calls / MORE**2
    assert bench.engine.each(ours) > usual.instructions / MORE**2


def test_a_slip_of_two_is_caught(bench: Bench, path: str) -> None:
    """Compare with the current cost, so that only the slip counts."""
    ours, _ = steps_of(bench, path)
    slipped = twice(ours)
    assert calls(slipped) > calls(ours) * MORE
    assert bench.engine.each(slipped) > bench.engine.each(ours) * MORE
