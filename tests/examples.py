"""How many examples Hypothesis runs: profiles, and decorators that follow the selected profile."""

import copy
import functools
import inspect
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers

from tests.report import MATRIX

USUAL = 100
"""Examples of a property: the design documents require at least as many."""
THROUGH_SERVER = 30
"""Examples of a property through a server, where each call takes a round trip."""


def register_profiles() -> None:
    """Register the profiles and load the default; `--hypothesis-profile fast` or `explore` loads another.

    No profile has a deadline: how long an example takes shows how busy the machine is. Except in `explore`,
    the examples are the same in each run, so a failure points to the change under test.
    """
    slow_is_fine: list[HealthCheck] = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
    base = settings(deadline=None, derandomize=True, suppress_health_check=slow_is_fine)
    settings.register_profile("aforesaid", base, max_examples=USUAL)
    settings.register_profile("fast", base, max_examples=10)
    settings.register_profile("explore", base, max_examples=10 * USUAL, derandomize=False)
    settings.load_profile("aforesaid")
    _draw_no_constants_of_our_code()


def _draw_no_constants_of_our_code() -> None:
    """Draw the same examples whatever is imported.

    Hypothesis parses every imported module of ours, and sometimes draws a constant that it finds there. The
    examples of a test would depend on which tests ran before it in the same process.
    """
    nothing = providers._local_constants
    providers._get_local_constants = lambda: nothing


def examples(count: int = USUAL) -> settings:
    """Run `count` examples: fewer in the fast profile, ten times as many in the explore profile."""
    assert settings.default is not None
    profile = settings.default.max_examples
    return settings(max_examples=min(count, profile) if profile <= USUAL else count * profile // USUAL)


def for_all(
    count: int = USUAL, /, **strategies: st.SearchStrategy[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Test a property of a `target`: with `count` examples, or `THROUGH_SERVER` if the target is remote.

    Drawing an example takes longer than running it on an embedded store, so the first target draws them and
    the others of the process run the same ones. The tests of one property run in one process.
    """
    return _with_examples(count, strategies, lambda target: target.is_remote)


def also_for_all(
    **strategies: st.SearchStrategy[Any],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Test a property once more, by another way in: `USUAL` examples on SQLite, and few through a server.

    A test with `for_all` shows the property on every store. `make test-matrix` runs this one there, too.
    """
    decorate = _with_examples(USUAL, strategies, lambda target: not target.url.startswith("sqlite:"))
    if MATRIX:
        return decorate
    targets = pytest.mark.parametrize("target", ["sqlite", "server"], indirect=True)
    return lambda test: cast("Callable[..., None]", targets(decorate(test)))


def _with_examples(
    count: int, strategies: dict[str, st.SearchStrategy[Any]], takes_few: Callable[[Any], bool]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        shared = _SharedExamples(test, strategies, count)

        def run(**fixtures: Any) -> None:
            shared.run(fixtures, few=takes_few(fixtures["target"]))

        run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
        run.__signature__ = inspect.signature(shared.drawing)  # type: ignore[attr-defined]
        group = pytest.mark.xdist_group(f"{test.__module__}.{test.__name__}")
        return cast("Callable[..., None]", group(run))

    return decorate


class _SharedExamples:
    """The examples of one property, drawn by Hypothesis once per process."""

    def __init__(
        self, test: Callable[..., None], strategies: dict[str, st.SearchStrategy[Any]], count: int
    ) -> None:
        self._test = test
        self._names = strategies.keys()
        self._drawn: list[dict[str, Any]] = []
        self._is_complete = False

        @functools.wraps(test)
        def recorded(**arguments: Any) -> None:
            self._drawn.append(copy.deepcopy({name: arguments[name] for name in self._names}))
            test(**arguments)

        self.drawing = examples(count)(given(**strategies)(recorded))
        self._drawing_few = examples(THROUGH_SERVER)(given(**strategies)(test))

    def run(self, fixtures: dict[str, Any], *, few: bool) -> None:
        if not self._is_complete:
            self._draw(fixtures, few=few)
            return
        # Examples grow in the course of a run, so a part of them is taken from everywhere.
        step = max(len(self._drawn) // THROUGH_SERVER, 1) if few else 1
        for example in self._drawn[::step]:
            try:
                self._test(**fixtures, **copy.deepcopy(example))
            except BaseException:
                self._draw(fixtures, few=False)  # reports the smallest example that fails
                raise

    def _draw(self, fixtures: dict[str, Any], *, few: bool) -> None:
        if few:
            self._drawing_few(**fixtures)
            return
        self._drawn.clear()
        self._is_complete = False
        self.drawing(**fixtures)
        assert settings.default is not None
        self._is_complete = settings.default.derandomize
