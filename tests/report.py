"""The report at the end of a run: outcomes by store, what could not run, and the time used."""

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

MATRIX = os.environ.get("AFORESAID_TEST_MATRIX") == "1"
"""Whether tests run on every store they can use: `make test-matrix`."""
STORES = {
    "memory": "memory",
    "file": "json_file",
    "sqlite": "sqlite",
    "redis": "redis",
    "postgres": "postgres",
    "server": "server",
}
"""A store's name in a parameter → the prefix of its test modules."""
SPEECH = "tests/integration/voice/test_embedded.py"
"""Needs espeak-ng and PocketSphinx."""
BUDGET = 8 * 60
"""Seconds that `make test` may take on two idle cores."""
OUTCOMES = ("passed", "failed", "error", "skipped")

_MODULE = re.compile(r"(?:[^:]*/)?stores/test_(\w+)\.py")
_PARAMETERS = re.compile(r"\[(.*)\](?:@[\w.]+)?$", re.DOTALL)
"""With `xdist_group`, the name of the group follows."""


def stores_of(test: str) -> list[str]:
    """Return the stores that a test uses, by its module in a folder `stores`, or else by its parameters."""
    module = _MODULE.match(test)
    if module:
        return [name for name, prefix in STORES.items() if f"{module[1]}_".startswith(f"{prefix}_")]
    named = parameters_of(test)
    return [name for name in STORES if name in named]


def parameters_of(test: str) -> list[str]:
    """Return the parameters in a test's name."""
    parameters = _PARAMETERS.search(test)
    return parameters[1].split("-") if parameters else []


def counted(stats: Mapping[str, Sequence[Any]]) -> dict[str, Counter[str]]:
    """Count outcomes by store. A test that uses two stores counts for both."""
    table: dict[str, Counter[str]] = {name: Counter() for name in STORES}
    for outcome in OUTCOMES:
        for report in stats.get(outcome, ()):
            for store in stores_of(report.nodeid):
                table[store][outcome] += 1
    return table


def lines(stats: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """Yield the table, then a line for each part that could not be set up."""
    yield f"{'store':<10}" + "".join(f"{outcome:>9}" for outcome in OUTCOMES)
    for store, counts in counted(stats).items():
        cells = "".join(f"{counts[outcome]:>9}" for outcome in OUTCOMES)
        yield f"{store:<10}{cells}" + ("" if counts.total() else "   not tested in this run")
    for store in STORES:
        failures = [report for report in stats.get("error", ()) if store in stores_of(report.nodeid)]
        if failures:
            yield f"{store}: {len(failures)} tests could not be set up or cleared up: {_reason(failures[0])}"

    speechless = [report for report in stats.get("error", ()) if report.nodeid.startswith(SPEECH)]
    if speechless:
        yield f"speech: {len(speechless)} tests could not be set up: {_reason(speechless[0])}"
    if find_spec("supabase") is None:
        yield "supabase: tested in an environment of its own: make test-adapters ADAPTERS=supabase"


def _reason(report: Any) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(crash.message if crash is not None else report.longrepr)
    return text.strip().splitlines()[0] if text.strip() else "no reason given"


def time_line(seconds: float, processor: float) -> str:
    """Return the time used, and the budget. Processor time does not depend on how busy the machine is."""
    minutes, rest = divmod(round(seconds), 60)
    return (
        f"time: {minutes}:{rest:02}; processor time {processor:.0f} s, so {processor / 2 / 60:.1f} minutes"
        f" on two idle cores; `make test` may take {BUDGET // 60} minutes there"
    )
