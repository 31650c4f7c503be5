"""Several processes, one answer: what is scraped is the sum over all of them."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from aforesaid.telemetry import Telemetry
from aforesaid.telemetry.exposition import (
    FRESH,
    GONE,
    OPEN,
    Numbers,
    SharedNumbers,
    exposition,
    shared_folder,
)
from aforesaid.telemetry.metrics import samples_of
from aforesaid.telemetry.tracing import Request, answering
from tests.metric_values import parsed

CHILD = Path(__file__).parents[2] / "processes" / "counting.py"


@pytest.fixture
def folder() -> Iterator[Path]:
    with shared_folder() as folder:
        yield folder


def child(retries: int) -> "subprocess.Popen[str]":
    """A process that has counted so many."""
    started = subprocess.Popen(
        [sys.executable, str(CHILD), str(retries)],
        env=os.environ | {"PYTHONPATH": str(CHILD.parents[2] / "src")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert started.stdout is not None
    assert started.stdout.readline() == "counted\n"
    return started


def end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate()


def value(numbers: Numbers, name: str, **labels: str) -> float:
    return sum(
        one.value
        for one in samples_of(numbers.series, numbers.families)
        if one.name == name and labels.items() <= dict(one.labels).items()
    )


async def test_the_numbers_of_all_processes_are_added_up_also_of_one_that_was_killed(folder: Path) -> None:
    first, second = await asyncio.gather(asyncio.to_thread(child, 3), asyncio.to_thread(child, 4))
    metrics = Telemetry()
    metrics.counter("aforesaid_retries_total", store="a").add(10)
    shared = SharedNumbers(folder, metrics=metrics)
    try:
        numbers = await shared.numbers()
        assert value(numbers, "aforesaid_retries_total") == 17
        assert value(numbers, "aforesaid_processes") == 3
        assert value(numbers, "aforesaid_spool_operations") == 7
        assert value(numbers, "aforesaid_breaker_state") == 2, "the worst of them, not the sum"
        assert value(numbers, "aforesaid_call_seconds_count", call="append") == 2
        assert value(numbers, "aforesaid_call_seconds_sum", call="append") == pytest.approx(0.007)
        assert value(numbers, "bakery_loaves_total") == 7
        assert "aforesaid_retries" in parsed(exposition(numbers.series, OPEN, numbers.families), OPEN)
    finally:
        await asyncio.gather(asyncio.to_thread(end, first), asyncio.to_thread(end, second))
    assert value(await shared.numbers(), "aforesaid_retries_total") == 17, "what they counted stays"


async def test_gauges_of_a_process_that_writes_no_more_are_left_out_and_its_counters_stay(
    folder: Path,
) -> None:
    await asyncio.to_thread(lambda: end(child(5)))
    shared = SharedNumbers(folder, metrics=Telemetry(), clock=lambda: time.time() + FRESH + 1)
    numbers = await shared.numbers()
    assert value(numbers, "aforesaid_retries_total") == 5
    assert value(numbers, "aforesaid_spool_operations") == 0
    assert value(numbers, "aforesaid_processes") == 1


async def test_what_processes_left_that_are_gone_becomes_one_file(folder: Path) -> None:
    def run_and_kill() -> None:
        for retries in (1, 2, 3):
            end(child(retries))

    await asyncio.to_thread(run_and_kill)
    shared = SharedNumbers(folder, metrics=Telemetry())
    async with keeping(shared, folder):
        assert value(await shared.numbers(), "aforesaid_retries_total") == 6
        files = await asyncio.to_thread(lambda: [one.name for one in folder.iterdir()])
        assert len([name for name in files if not name.startswith(".")]) == 2
        assert GONE in files
        assert value(await shared.numbers(), "bakery_loaves_total") == 6


async def test_what_was_shown_once_is_never_taken_back(folder: Path) -> None:
    """The first process has written the numbers that it showed before the next process is asked."""
    one, other = Telemetry(), Telemetry()
    counter = one.counter("aforesaid_turns_total")
    asked_first, asked_next = SharedNumbers(folder, metrics=one), SharedNumbers(folder, metrics=other)
    last = 0.0
    for _ in range(5):
        counter.add()
        for asked in (asked_first, asked_next):
            shown = value(await asked.numbers(), "aforesaid_turns_total")
            assert shown >= last
            last = shown
    assert last == 5


async def test_the_latest_exemplar_is_kept(folder: Path) -> None:
    one, other = Telemetry(), Telemetry()
    first, second = SharedNumbers(folder, metrics=one), SharedNumbers(folder, metrics=other)
    for metrics, request in ((one, "early"), (other, "late")):
        with answering(Request(request)):
            metrics.histogram("aforesaid_call_seconds", call="append").observe(0.5)
    await second.numbers()
    numbers = await first.numbers()
    (shown,) = [each for one in numbers.series for each in one.exemplars if each is not None]
    assert shown.labels == {"request_id": "late"}


async def test_a_removed_folder_is_logged_and_breaks_no_process(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shared = SharedNumbers(folder / "nowhere", metrics=Telemetry())
    await shared._try_to_write(folder / "nowhere")
    assert "metrics are not shared: FileNotFoundError: No such file or directory" in caplog.text


async def test_without_a_folder_a_process_speaks_for_itself() -> None:
    metrics = Telemetry()
    metrics.counter("aforesaid_turns_total").add(2)
    shared = SharedNumbers(metrics=metrics)
    await shared.keep_writing()
    assert value(await shared.numbers(), "aforesaid_turns_total") == 2


class keeping:  # noqa: N801
    """The block while the numbers are written."""

    def __init__(self, shared: SharedNumbers, folder: Path) -> None:
        self._shared, self._folder = shared, folder

    async def __aenter__(self) -> None:
        self._task = asyncio.create_task(self._shared.keep_writing())
        written = (self._folder / self._shared._name).exists
        while not await asyncio.to_thread(written):
            assert not self._task.done()

    async def __aexit__(self, *_: Any) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
