"""The background task: when it starts, waiting for it, and how it ends."""

import asyncio
import gc
import math
import warnings

import pytest

from aforesaid._internal.tasks import Background


class Notes:
    """Notes, and a background task that works through them."""

    def __init__(self) -> None:
        self.waiting: list[str] = []
        self.done: list[str] = []
        self.begun = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()
        self.background = Background(self._work, lambda: bool(self.waiting), name="notes")

    def leave(self, note: str, *, at: float) -> None:
        self.waiting.append(note)
        self.background.here()
        if self.background.is_idle:
            self.background.begin_at(lambda: at)

    async def _work(self) -> None:
        self.begun.set()
        while self.waiting:
            await self.gate.wait()
            self.done.append(self.waiting.pop(0))


async def test_it_begins_when_the_moment_has_come() -> None:
    notes = Notes()
    notes.leave("a", at=0)
    await asyncio.wait_for(notes.begun.wait(), 240)
    await notes.background.done()
    assert notes.done == ["a"]
    assert notes.background.is_idle


async def test_a_moment_that_was_put_off_is_waited_for_again() -> None:
    notes = Notes()
    loop = asyncio.get_running_loop()
    asked = 0

    def moment() -> float:
        nonlocal asked
        asked += 1
        return loop.time() + (0.01 if asked < 3 else 0)

    notes.waiting.append("a")
    notes.background.begin_at(moment)
    await asyncio.wait_for(notes.begun.wait(), 240)
    assert asked == 3


async def test_who_waits_does_not_wait_for_the_moment() -> None:
    notes = Notes()
    notes.leave("a", at=math.inf)
    notes.leave("b", at=math.inf)
    await asyncio.wait_for(notes.background.done(), 240)
    assert notes.done == ["a", "b"]


async def test_a_rest_ends_when_a_caller_waits() -> None:
    resting = asyncio.Event()
    left = [1]

    async def work() -> None:
        while left:
            resting.set()
            await background.rest(math.inf)
            left.clear()

    background = Background(work, lambda: bool(left), name="rests")
    background.begin_at(lambda: 0)
    await asyncio.wait_for(resting.wait(), 240)
    await asyncio.wait_for(background.done(), 240)
    assert not left


async def test_closing_ends_what_runs_and_begins_nothing_more() -> None:
    notes = Notes()
    notes.gate.clear()
    notes.leave("a", at=0)
    await asyncio.wait_for(notes.begun.wait(), 240)
    await notes.background.close()
    notes.leave("b", at=0)
    await asyncio.wait_for(notes.background.done(), 240)  # not for ever, although something is left
    assert notes.waiting == ["a", "b"]
    assert notes.background.is_idle


def test_another_event_loop_begins_afresh() -> None:
    async def left_behind(notes: Notes) -> None:
        notes.leave("a", at=math.inf)

    async def finished(notes: Notes) -> list[str]:
        notes.gate = asyncio.Event()
        notes.gate.set()
        await notes.background.done()
        return notes.done

    notes = Notes()
    asyncio.run(left_behind(notes))
    assert asyncio.run(finished(notes)) == ["a"]


def test_it_does_not_start_while_its_loop_shuts_down() -> None:
    """The moment comes after `asyncio.run` has cancelled all tasks, while one of them still cleans up."""

    async def clean_up_until(at: float) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            over = asyncio.Event()
            asyncio.get_running_loop().call_at(at, over.set)
            await over.wait()

    async def leave(notes: Notes) -> "asyncio.Task[None]":
        at = asyncio.get_running_loop().time() + 0.02
        task = asyncio.create_task(clean_up_until(at))
        await asyncio.sleep(0)
        notes.leave("a", at=at)
        return task

    notes = Notes()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(leave(notes))
        gc.collect()
    assert not caught
    assert notes.waiting == ["a"]
    assert not notes.begun.is_set()


async def test_closing_before_the_first_step_leaves_it_idle() -> None:
    notes = Notes()
    notes.leave("a", at=math.inf)
    await notes.background.close()
    assert notes.background.is_idle
    assert notes.waiting == ["a"]


@pytest.mark.parametrize("seconds", [0.0, 0.01])
async def test_a_rest_is_over_by_itself(seconds: float) -> None:
    notes = Notes()
    notes.background.here()
    await asyncio.wait_for(notes.background.rest(seconds), 240)
