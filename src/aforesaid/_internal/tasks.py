"""Tasks, threads, event loops and deadlines."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import Context, ContextVar
from typing import Any, BinaryIO, Generic, NoReturn, ParamSpec, TypeVar

# Deadlines that hold even for work that is slow to cancel.
#
# A cancelled driver may first try to cancel its query on a server that does not answer. `within` does not
# wait for that: it cancels the work and leaves it to end by itself.


T = TypeVar("T")

# After this pause a task that still runs is cancelled again.
CANCEL_AGAIN_SECONDS = 0.5

# Cancelled work that has not ended. The event loop holds only weak references to tasks.
_unfinished: "set[asyncio.Task[Any]]" = set()


# Where background work began: a span, if tracing is on. `telemetry.tracing` sets `origins.find`.
origin: ContextVar[Any] = ContextVar("aforesaid_origin", default=None)


class _Origins:
    find: Callable[[], Any] = staticmethod(lambda: None)


origins = _Origins()


def start_background(work: Coroutine[Any, Any, T], *, name: str) -> "asyncio.Task[T]":
    """Start work that outlives the request which caused it, in a `background_context`."""
    return asyncio.get_running_loop().create_task(work, name=name, context=background_context())


def background_context() -> Context:
    """Return a context for work that the running request causes.

    In the request's own context the work would extend the request's trace for as long as it runs, and count
    its reads as the request's.
    """
    context = Context()
    context.run(origin.set, origins.find())
    return context


async def within(
    seconds: float | None, work: Coroutine[Any, Any, T], *, left: "set[asyncio.Task[Any]] | None" = None
) -> T:
    """Return the result of the work. Raise `TimeoutError` on time; unfinished work is added to `left`."""
    if seconds is None:
        return await work
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        _abandon(task, _unfinished if left is None else left)
        raise
    if not done:
        _abandon(task, _unfinished if left is None else left)
        raise TimeoutError
    return task.result()


async def promptly_within(seconds: float | None, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of work that ends as soon as it is cancelled. It needs no task of its own."""
    async with asyncio.timeout(seconds):
        return await work


async def ended(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel the tasks and wait until they end.

    One cancellation may not be enough: on Python 3.11 `asyncio.wait_for`, which drivers use, swallows a
    cancellation that coincides with the awaited result. Tasks of another loop are cancelled but not awaited;
    those of a closed loop never run again.
    """
    here = asyncio.get_running_loop()
    running = {task for task in tasks if not task.done() and task.get_loop() is here}
    for task in tasks:
        if not task.done() and task not in running:
            _cancel_elsewhere(task)
    while running:
        for task in running:
            task.cancel()
        _, running = await asyncio.wait(running, timeout=CANCEL_AGAIN_SECONDS)


def _cancel_elsewhere(task: "asyncio.Task[Any]") -> None:
    with suppress(RuntimeError):  # the loop is closed, or is being closed
        task.get_loop().call_soon_threadsafe(task.cancel)


def _abandon(task: "asyncio.Task[Any]", left: "set[asyncio.Task[Any]]") -> None:
    def ended(task: "asyncio.Task[Any]") -> None:
        left.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not log it

    task.cancel()
    left.add(task)
    task.add_done_callback(ended)


# Work that always finishes once it has started, on threads and in tasks.


P = ParamSpec("P")


async def to_the_end(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run the work on a thread, and wait for its end even when the caller is cancelled.

    For work that must not continue after cleanup: opening, closing, writing files.
    """
    return await _result(asyncio.ensure_future(asyncio.to_thread(work, *args, **kwargs)))


async def finished(work: Coroutine[Any, Any, T]) -> T:
    """Run the coroutine to its end; a cancelled caller waits for it."""
    return await _result(asyncio.ensure_future(work))


@asynccontextmanager
async def opened(opening: Callable[[], BinaryIO]) -> AsyncIterator[BinaryIO]:
    """Open a file on a thread and close it with the block, or at once when the caller is cancelled before."""
    running = asyncio.ensure_future(asyncio.to_thread(opening))
    try:
        file = await _result(running)
    except asyncio.CancelledError:
        if not running.cancelled() and running.exception() is None:
            running.result().close()
        raise
    try:
        yield file
    finally:
        await to_the_end(file.close)


async def _result(running: "asyncio.Future[T]") -> T:
    """Return the result; a cancelled caller waits for the end first."""
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await _ended(running)
        raise


async def _ended(running: "asyncio.Future[Any]") -> None:
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError:
            continue  # cancelled again: the work is only awaited, not stopped
    if not running.cancelled():
        running.exception()  # retrieved, so that asyncio does not log it


# Objects that belong to one event loop, recreated when another loop runs.
#
# A program may use one memory with several `asyncio.run` calls. Locks, events and tasks are bound to the
# loop that created or first awaited them, and do not work on another.


class PerLoop(Generic[T]):
    """A value for the running loop, one loop at a time. `make` runs on the loop."""

    __slots__ = ("_loop", "_make", "_value")

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._loop: asyncio.AbstractEventLoop | None = None

    def here(self) -> T:
        """Return the value of the running loop."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._value = self._make()
            self._loop = loop
        return self._value


class LoopWatch:
    """Detects a change of the event loop."""

    __slots__ = ("_loop",)

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def is_here(self) -> bool:
        """Whether the running loop is the followed one."""
        return asyncio.get_running_loop() is self._loop

    def follow(self) -> None:
        self._loop = asyncio.get_running_loop()

    def has_changed(self) -> bool:
        """Return whether the running loop is another one, and follow it."""
        if self.is_here:
            return False
        self.follow()
        return True


class Underway:
    """Counts calls in progress, and waits for the last of them."""

    def __init__(self) -> None:
        self._count = 0
        self._idle = asyncio.Event()

    @contextmanager
    def one(self) -> Iterator[None]:
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1
            self._idle.set()

    async def finished(self) -> None:
        """Wait until no call is in progress."""
        while self._count:
            self._idle.clear()
            await self._idle.wait()


class LoopEnd:
    """Closes a resource of the running event loop when that loop ends.

    `asyncio.run` cancels running tasks before it closes the loop: the last opportunity to close connections
    in order. `close` handles its own errors. Call `release` when the resource is closed otherwise.
    """

    def __init__(self, close: Callable[[], Awaitable[None]]) -> None:
        self._close: Callable[[], Awaitable[None]] | None = close
        self._task = asyncio.get_running_loop().create_task(self._wait(), name="aforesaid-loop-end")
        _waiting.add(self._task)
        self._task.add_done_callback(_waiting.discard)

    async def _wait(self) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            if self._close is not None:
                await self._close()

    async def release(self) -> None:
        """Do not close the resource any more."""
        self._close = None
        await ended(self._task)

    async def trigger(self) -> None:
        """Close the resource now; on another loop, as soon as that loop runs."""
        await ended(self._task)


# Strong references: an event loop does not keep a task alive that waits for nothing.
_waiting: "set[asyncio.Task[None]]" = set()


# A background task that starts after a pause and works until nothing is left.
#
# A turn queues work and continues; the task processes the queue later.


Work = Callable[[], Awaitable[None]]
Moment = Callable[[], float]


class Background:
    """A restartable task. `work` runs until nothing is left; `has_work` returns whether there is any. It
    belongs to one event loop at a time; a task of an earlier loop is abandoned, because it never ends.

    One task both pauses and works. A timer that creates the task later may fire while `asyncio.run` closes
    the loop, after it has cancelled all tasks: such a task would never start.
    """

    def __init__(self, work: Work, has_work: Callable[[], bool], *, name: str) -> None:
        self._work = work
        self._has_work = has_work
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        # Set while a caller of `done` waits.
        self._awaited = asyncio.Event()
        self.is_closed = False

    def here(self) -> asyncio.AbstractEventLoop:
        """Return the running loop, and bind the task to it."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._task = loop, None
            self._awaited = asyncio.Event()
        return loop

    @property
    def is_idle(self) -> bool:
        """Whether it neither works nor waits for its start."""
        # A task that is cancelled before its first step ends without running `_run`.
        return self._task is None or self._task.done()

    def begin_at(self, moment: Moment) -> None:
        """Start at the loop time that `moment` returns. It is called again at that time, which may have been
        postponed.
        """
        self.here()
        if self.is_idle and not self.is_closed:
            self._task = start_background(self._run(moment), name=self._name)

    async def done(self) -> None:
        """Start at once and wait until nothing is left, or until closed."""
        loop = self.here()
        self._awaited.set()
        try:
            while not self.is_closed and (self._has_work() or not self.is_idle):
                self.begin_at(loop.time)
                if self._task is not None:
                    await asyncio.wait([self._task])
        finally:
            self._awaited.clear()

    async def rest(self, seconds: float) -> None:
        """Pause the work, unless a caller of `done` waits. To be called by `work`."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._awaited.wait(), seconds)

    async def close(self) -> None:
        """Cancel the task, and start no more."""
        self.is_closed = True
        self.here()
        if self._task is not None:
            await ended(self._task)

    async def _run(self, moment: Moment) -> None:
        own = asyncio.current_task()  # read now: the garbage collector may end this coroutine without a loop
        try:
            await self._wait_for(moment)
            await self._work()
        finally:
            # In the same step as the last check for work: whatever is queued next starts a new task. The task
            # of an abandoned loop must not hide its successor.
            if self._task is own:
                self._task = None

    async def _wait_for(self, moment: Moment) -> None:
        now = asyncio.get_running_loop().time
        while (seconds := moment() - now()) > 0 and not self._awaited.is_set():
            await self.rest(seconds)


class AsyncWithOnly:
    """Refuses a plain `with`, because Python's own error does not name the missing word."""

    def __enter__(self) -> NoReturn:
        name = type(self).__name__
        raise TypeError(
            f"{name} needs `async with`; aforesaid.sync.open opens a memory for code without await"
        )

    def __exit__(self, *_: object) -> None:
        """Never called: `__enter__` raises."""
