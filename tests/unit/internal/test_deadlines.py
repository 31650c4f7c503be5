"""Work that has to end, also when it does not listen at once."""

import asyncio

from aforesaid._internal.tasks import ended


async def test_a_task_that_misses_the_first_cancellation_ends_all_the_same() -> None:
    heard = 0

    async def deaf_once() -> None:
        nonlocal heard
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                heard += 1
                if heard > 1:
                    raise

    task = asyncio.create_task(deaf_once())
    await asyncio.sleep(0)
    await ended(task)
    assert task.cancelled()
    assert heard == 2


async def test_tasks_that_are_over_or_fail_are_no_trouble() -> None:
    async def fails() -> None:
        raise ValueError

    failing = asyncio.create_task(fails())
    await asyncio.wait([failing])
    await ended(failing)
    await ended()
    assert isinstance(failing.exception(), ValueError)
