"""How many examples Hypothesis runs: profiles, and decorators that follow the selected profile."""

import inspect
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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


def examples(count: int = USUAL) -> settings:
    """Run `count` examples: fewer in the fast profile, ten times as many in the explore profile."""
    assert settings.default is not None
    profile = settings.default.max_examples
    return settings(max_examples=min(count, profile) if profile <= USUAL else count * profile // USUAL)


def for_all(
    count: int = USUAL, /, **strategies: st.SearchStrategy[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Test a property of a `world`: with `count` examples, or `THROUGH_SERVER` if the world is remote."""

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        local = examples(count)(given(**strategies)(test))
        remote = examples(THROUGH_SERVER)(given(**strategies)(test))

        def run(**fixtures: Any) -> None:
            (remote if fixtures["world"].is_remote else local)(**fixtures)

        run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
        run.__signature__ = inspect.signature(local)  # type: ignore[attr-defined]
        return run

    return decorate
