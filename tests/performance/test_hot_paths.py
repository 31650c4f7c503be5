"""A turn, a window and a search cost no more than they did, beside their floors. A slip of two is caught, a
crowded machine is not mistaken for one."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import Struct

from tests.performance.guard import Steps, calls, crowd, processor_ratio
from tests.performance.paths import Bench, opened

pytestmark = pytest.mark.slow

SLIP = 1.6
"""How much more than usual is a slip: well above what a busy machine does, well below two."""

MORE_CALLS = 1.25
"""Calls do not depend on the machine, only a little on the release of Python."""


class Usual(Struct, frozen=True, kw_only=True):
    """What a path costs. Set anew when it has become faster, so that the guard holds what was won:
    `python -m tests.performance` says what it costs now."""

    ratio: float
    """Time of the processor beside the floor."""
    calls: float
    """Calls of functions for a step."""


USUAL = {
    "turn": Usual(ratio=4.0, calls=245),
    "window": Usual(ratio=12.0, calls=1_420),
    "same_window": Usual(ratio=7.0, calls=255),
    "search": Usual(ratio=40.0, calls=3_990),
}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with opened(Path(tmp_path_factory.mktemp("hot-paths"))) as bench:
        yield bench


@pytest.fixture(params=USUAL)
def path(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def steps_of(bench: Bench, path: str) -> tuple[Steps, Steps]:
    """Ours and the floor's."""
    return bench.ours(getattr(bench, path)), bench.bare(getattr(bench, f"bare_{path}"))


def cost(ours: Steps, floor: Steps, usual: Usual) -> float:
    """The ratio to the floor. Where it looks like a slip, it is taken again: noise passes, a slip stays."""
    return min(_until_usual(ours, floor, usual))


def _until_usual(ours: Steps, floor: Steps, usual: Usual) -> Iterator[float]:
    for _ in range(3):
        ratio = processor_ratio(ours, floor)
        yield ratio
        if ratio <= usual.ratio * SLIP:
            return


def twice(steps: Steps) -> Steps:
    """A copy of a path that has slipped: it does everything two times."""
    return lambda count: steps(2 * count)


class TestProcessor:
    def test_costs_what_it_did_beside_the_floor(self, bench: Bench, path: str) -> None:
        ours, floor = steps_of(bench, path)
        assert cost(ours, floor, USUAL[path]) <= USUAL[path].ratio * SLIP

    def test_a_crowd_is_no_slip(self, bench: Bench, path: str) -> None:
        ours, floor = steps_of(bench, path)
        with crowd(4):
            assert cost(ours, floor, USUAL[path]) <= USUAL[path].ratio * SLIP

    def test_a_slip_of_two_is_caught(self, bench: Bench, path: str) -> None:
        """Beside what this machine takes for usual, so that it is the slip that is seen."""
        ours, floor = steps_of(bench, path)
        usual = Usual(ratio=min(processor_ratio(ours, floor) for _ in range(3)), calls=0)
        assert cost(twice(ours), floor, usual) > usual.ratio * SLIP


class TestCalls:
    def test_makes_no_more_calls_than_it_did(self, bench: Bench, path: str) -> None:
        ours, _ = steps_of(bench, path)
        assert calls(ours) <= USUAL[path].calls * MORE_CALLS

    def test_the_usual_is_not_out_of_date(self, bench: Bench, path: str) -> None:
        """Half the calls that are written down here mean that a slip of two would pass: write down fewer."""
        ours, _ = steps_of(bench, path)
        assert calls(ours) > USUAL[path].calls / 1.5

    def test_a_slip_of_two_is_caught(self, bench: Bench, path: str) -> None:
        ours, _ = steps_of(bench, path)
        assert calls(twice(ours)) > USUAL[path].calls * MORE_CALLS
