"""The resilient backend: reads, writes, replay and removal for all owners. It belongs to one event loop."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AsyncExitStack, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from aforesaid._internal.freshness import note_degraded
from aforesaid._internal.tasks import LoopWatch, ended
from aforesaid.contracts import (
    Backend,
    ConversationStore,
    CopyHolder,
    Scrubbable,
    Spooling,
    capability,
)
from aforesaid.errors import StoreClosed, StoreError, StoreUnavailable
from aforesaid.layers.base import BackendWrapper, ReachedMark
from aforesaid.layers.resilient import dead_letters
from aforesaid.layers.resilient.connection import (
    PROBE_OWNER,
    Health,
    Resilience,
    RetryPolicy,
    Sleep,
    StoreConnection,
    why_not_writable,
)
from aforesaid.layers.resilient.last_known_state import LastKnownState
from aforesaid.layers.resilient.operations import OwnerQueue, concerns
from aforesaid.layers.resilient.replay import Replayer, settle
from aforesaid.layers.resilient.spool import Ref, Spool
from aforesaid.layers.resilient.store import ResilientStore
from aforesaid.model.ids import parse_name
from aforesaid.telemetry import Telemetry, describe, event, telemetry

log = logging.getLogger("aforesaid.resilient")

LONG_PURGE = 300.0
"""Seconds for a purge of all owners: it may remove much data, but a hanging connection must not block it."""
ADOPT_EVERY = 30.0
"""Seconds between searches for spools of ended processes."""


class ResilientBackend(BackendWrapper):
    """A backend that accepts writes and answers reads while its `inner` is unavailable."""

    adds = (CopyHolder, Scrubbable, Spooling)

    def __init__(
        self,
        inner: Backend,
        *,
        folder: Path,
        resilience: Resilience | None = None,
        name: str = "store",
        metrics: Telemetry = telemetry,
        clock: Callable[[], float] = time.monotonic,
        sleep: Sleep = asyncio.sleep,
        background: bool = True,
        sealed: bool = False,
        reached: ReachedMark | None = None,
    ) -> None:
        super().__init__(inner)
        self.resilience = resilience or Resilience()
        self.folder = folder
        self.name = name
        self.last_known = LastKnownState()
        self.queues: dict[str, OwnerQueue] = {}
        self._background = background
        self.sealed = sealed
        """Whether messages are sealed for their places. Then a turn with an expected revision is accepted in
        an outage if that is the last known one, and becomes a dead letter if another process wrote
        meanwhile."""
        self.spool: Spool | None = None
        self._state: Literal["new", "open", "closed"] = "new"
        self._loop = LoopWatch()
        self._wake = asyncio.Event()
        self.wrap_for_replay: Callable[[str, ConversationStore], ConversationStore] = _identity
        self._background_task: asyncio.Task[None] | None = None
        self._count(metrics)
        self.connection = StoreConnection(
            inner,
            name=name,
            resilience=self.resilience,
            reached=reached,
            clock=clock,
            sleep=sleep,
            on_change=self.wake,
            on_retry=self.retries.add,
        )
        self.breaker = self.connection.breaker

    # A backend

    def of(self, owner: str) -> ResilientStore:
        name = parse_name(owner, field="owner")
        return ResilientStore(self, name, self.inner.of(name))

    async def open(self) -> None:
        if self._state == "open":
            return
        # Before the spool: opening raises for a store that was never reached.
        await self.connection.open(fails_closed=self.fails_closed)
        self._state = "open"
        self._loop.follow()
        if not self.fails_closed:
            await self._start_spool()
        if self._background:
            self._background_task = asyncio.create_task(self._run(), name="aforesaid-resilient")

    async def _start_spool(self) -> None:
        self.spool = Spool(
            self.folder, limit=self.resilience.spool_limit, deadline=self.resilience.write_deadline
        )
        problem = await asyncio.to_thread(why_not_writable, self.folder)
        if problem:
            event(log, logging.WARNING, "spool_unusable", f"the spool cannot be used: {problem}")
        await self._try_adopt()

    async def close(self) -> None:
        if self._state == "closed":
            return
        was, self._state = self._state, "closed"
        if self._loop.has_changed():
            self._follow_loop()
        async with AsyncExitStack() as leaving:  # runs every callback, last first, also after a cancellation
            leaving.push_async_callback(self.inner.close)
            leaving.push_async_callback(self.connection.finish)
            leaving.push_async_callback(self._close_spool)
            task, self._background_task = self._background_task, None
            await _stop(task)
            if was == "open":
                await self._replay_before_close()

    async def _replay_before_close(self) -> None:
        """Replay as much as the deadline allows. The rest stays in the spool."""
        if not self.queues or not self.reachable:
            return
        with suppress(TimeoutError, StoreError):
            async with asyncio.timeout(self.resilience.close_deadline):
                await Replayer(self).run()

    async def _close_spool(self) -> None:
        spool, self.spool = self.spool, None
        try:
            if spool is not None:
                await spool.close()
        finally:
            for queue in self.queues.values():
                queue.drained.set()
            self.queues.clear()

    async def owners(self, *, ignored_kinds: Collection[str] = ()) -> AsyncIterator[str]:
        self.check_open()
        if not self.reachable:
            raise self.unavailable()
        pending = await self.pending_owners()  # first: they may be stored while the store lists its owners
        found = await self.connection.attempt(
            lambda: _collect(self.inner.owners(ignored_kinds=ignored_kinds)), self.connection.long_read_retry
        )
        for owner in (*found, *sorted(pending - found.keys())):
            yield owner

    async def purge_expired(self, now: datetime | None = None) -> int:
        await settle(self)  # a turn in the spool may extend a lifetime
        retry = RetryPolicy(attempts=self.resilience.attempts, deadline=LONG_PURGE)
        return await self.connection.attempt(lambda: self.inner.purge_expired(now), retry)

    # State

    def _count(self, metrics: Telemetry) -> None:
        store = self.name
        self.retries = metrics.counter("aforesaid_retries_total", store=store)
        self.degraded_reads = metrics.counter("aforesaid_degraded_reads_total", store=store)
        self.accepted = metrics.counter("aforesaid_spool_accepted_total", store=store)
        self.replayed = metrics.counter("aforesaid_spool_replayed_total", store=store)
        self.set_aside = metrics.counter("aforesaid_dead_letters_total", store=store)
        self.damaged = metrics.counter("aforesaid_spool_damaged_total", store=store)
        states = ("closed", "half_open", "open")
        gauges: dict[str, Callable[[], float]] = {
            "breaker_state": lambda: states.index(self.breaker.state),
            "spool_operations": lambda: self.spool_depth,
            "spool_bytes": lambda: self.spool_bytes,
            "spool_limit_bytes": lambda: self.resilience.spool_limit,
            "spool_oldest_seconds": lambda: self.spool_age,
            "known_bytes": lambda: self.last_known.size,
        }
        for gauge, read in gauges.items():
            metrics.gauge(f"aforesaid_{gauge}", "", read, store=store)

    def wake(self) -> None:
        """Wake the background task."""
        self._wake.set()  # looked up at each call: a new event loop gets a new event

    @property
    def fails_closed(self) -> bool:
        return self.resilience.policy == "fail_closed"

    @property
    def reachable(self) -> bool:
        """Whether calls go to the store."""
        return self.connection.reachable

    @property
    def degraded_reason(self) -> str:
        """The reason why answers are degraded, as a sentence."""
        if self.reachable:
            return f"{self.name} is replaying the writes of an outage"
        return f"{self.name} is unavailable: {self.breaker.reason or 'it was not reached yet'}"

    @property
    def spool_depth(self) -> int:
        return sum(queue.depth for queue in self.queues.values())

    @property
    def spool_bytes(self) -> int:
        return 0 if self.spool is None else self.spool.size

    @property
    def spool_age(self) -> float:
        """The age of the oldest spooled operation in seconds; 0 without one."""
        oldest = min((queue.oldest for queue in self.queues.values() if queue.oldest), default=None)
        if oldest is None:
            return 0.0
        return max(0.0, (self.inner.of(PROBE_OWNER).now() - oldest).total_seconds())

    async def health(self) -> Health:
        degraded = not self.reachable or bool(self.queues)
        return Health(
            store=self.name,
            breaker=self.breaker.state,
            degraded=degraded,
            reason=self.degraded_reason if degraded else None,
            spool_operations=self.spool_depth,
            spool_bytes=self.spool_bytes,
            spool_limit=0 if self.fails_closed else self.resilience.spool_limit,
            spool_oldest_seconds=self.spool_age,
            dead_letters=await asyncio.to_thread(dead_letters.count, self.folder),
        )

    def degraded(self, owner: str) -> bool:
        return not self.reachable or owner in self.queues

    def note_degraded(self) -> None:
        """Count a degraded answer and mark the current request."""
        self.degraded_reads.add()
        note_degraded(self.degraded_reason)

    def unavailable(self) -> StoreUnavailable:
        """Return the error for calls that need the store."""
        unavailable = StoreUnavailable(self.degraded_reason)
        unavailable.__cause__ = self.connection.cause
        return unavailable

    def check_open(self) -> None:
        if self._state == "closed":
            raise StoreClosed
        if self._state == "new":
            raise StoreClosed(f"{self.name} is not open")
        if self._loop.has_changed():
            self._follow_loop()

    def _follow_loop(self) -> None:
        """Move to the running event loop. The tasks of the previous one ended with it."""
        self._wake = asyncio.Event()
        self.connection.follow_loop()
        for queue in self.queues.values():
            queue.follow_loop()
        if self.spool is not None:
            self.spool.settle_finished()
        if self._background and self._state == "open":
            self._background_task = asyncio.create_task(self._run(), name="aforesaid-resilient")

    # Recovery

    async def catch_up(self, owner: str) -> None:
        """Wait for the replay of the owner's queue, within the read deadline, if the store is available."""
        queue = self.queues.get(owner)
        if queue is not None and self.reachable and self._background_task is not None:
            self._wake.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(self.resilience.read_deadline):
                    await queue.drained.wait()

    async def pending_owners(self) -> set[str]:
        """Return the owners with an acknowledged write on this machine that may not be stored yet."""
        waiting = await asyncio.to_thread(dead_letters.pending_owners, self.folder)
        return {*self.queues, *waiting}

    async def start_replay(self) -> None:
        """Wake the background task to replay the queues. Without a background task, replay them here."""
        if self._background_task is None:
            await Replayer(self).run()
        else:
            self._wake.set()

    def remove_if_empty(self, queue: OwnerQueue) -> None:
        """Remove an empty queue, so that the owner's calls go to the store again."""
        # A replay in progress removes the queue itself.
        if queue.empty and not queue.replay_lock.locked() and self.queues.get(queue.owner) is queue:
            del self.queues[queue.owner]
            queue.drained.set()

    async def recover(self) -> bool:
        """Probe the store if a probe is due, and replay the queues; return whether they are empty."""
        self.check_open()
        if not self.reachable and not await self.connection.probe():
            return False
        # A process that ended during the outage may have left operations. They must be replayed by time of
        # acceptance, together with ours.
        await self._try_adopt()
        await Replayer(self).run()
        return not self.queues

    async def adopt(self) -> int:
        """Adopt the spools of ended processes; return the number of operations.

        The error of a spool that cannot be read is raised after the others were adopted.
        """
        if self.spool is None:
            return 0
        try:
            return await Replayer(self).adopt()
        finally:
            if self.queues:
                self._wake.set()

    async def _try_adopt(self) -> None:
        try:
            await self.adopt()
        except StoreError as error:
            event(
                log, logging.ERROR, "spool_not_adopted", f"an earlier spool cannot be read: {describe(error)}"
            )

    def replay_turns_through(self, wrap: Callable[[str, ConversationStore], ConversationStore]) -> None:
        """See `contracts.Spooling`."""
        self.wrap_for_replay = wrap

    async def _run(self) -> None:
        """Probe, replay and adopt, until cancelled."""
        while True:
            try:
                await self._run_once()
            except Exception:  # the supervisor of a background task logs and continues
                log.exception("the background task of the resilient layer of %s failed", self.name)
                await asyncio.sleep(1)

    async def _run_once(self) -> None:
        self._wake.clear()
        pause = ADOPT_EVERY if self.reachable else self.breaker.seconds_to_probe
        if not (self.reachable and self.queues):
            with suppress(TimeoutError):
                async with asyncio.timeout(pause + 0.01):
                    await self._wake.wait()
        # With `fail_closed` there is nothing to replay: only an unavailable store needs a probe.
        if not self.fails_closed or not self.reachable:
            try:
                await self.recover()
            except StoreError as error:
                event(
                    log,
                    logging.WARNING,
                    "replay_stopped",
                    f"replay stopped: {describe(error)}",
                    store=self.name,
                )
                # The breaker may still be closed: do not retry in a tight loop.
                await asyncio.sleep(0.1)

    # Removal

    async def forget(
        self, owner: str, conversation_id: str | None = None, *, until: datetime | None = None
    ) -> dict[str, int]:
        """Remove the layer's own copies of an owner's data, or of one conversation: spooled operations, dead
        letters and last known state. Return their number by kind.

        With `until`, operations that were accepted later stay. Removed operations are not stored.
        """
        self.check_open()
        await self.adopt()  # otherwise the spool of an ended process would restore the data later
        known = self.last_known
        copies = known.forget(owner) if conversation_id is None else known.drop(owner, conversation_id)
        spooled = await self._forget_spooled(owner, conversation_id, until)
        letters = await asyncio.to_thread(dead_letters.remove, self.folder, owner, conversation_id, until)
        return {"spool_entries": len(spooled), "dead_letters": letters, "cached_copies": copies}

    async def _forget_spooled(
        self, owner: str, conversation_id: str | None, until: datetime | None
    ) -> list[Ref]:
        spool, queue = self.spool, self.queues.get(owner)
        if spool is None or not spool.size:
            return []

        def matches(payload: bytes) -> bool:
            return concerns(payload, owner, conversation_id, until=until)

        if queue is None:
            return await spool.forget(matches)
        async with queue.replay_lock:
            removed = await spool.forget(matches)
            queue.drop(removed)
            queue.view.forget(conversation_id, until)
        self.remove_if_empty(queue)
        return removed

    async def remove_copies(
        self, owner: str, conversation_id: str | None, *, until: datetime | None = None
    ) -> dict[str, int]:
        """Remove the copies of this layer and of the layers inside; see `contracts.CopyHolder`."""
        counts = Counter(await self.forget(owner, conversation_id, until=until))
        inner = capability(self.inner, CopyHolder)
        if inner is not None:
            counts.update(await inner.remove_copies(owner, conversation_id, until=until))
        return dict(counts)

    async def scrub(self, owner: str | None) -> tuple[str, ...]:
        """Scrub the store's files and the spool; return a sentence for each file that still has content.

        That includes damaged parts of spools, because their owner is unknown. See `contracts.Scrubbable`.
        """
        self.check_open()
        if self.spool is not None and self.spool.size:
            await self.spool.forget(lambda payload: False)  # rewriting the files drops stored operations
        inner = capability(self.inner, Scrubbable)
        remains = () if inner is None else await inner.scrub(owner)
        return (*remains, *(await asyncio.to_thread(dead_letters.describe_unowned, self.folder)))


def resilient(inner: Backend, **options: Any) -> ResilientBackend:
    """Wrap a backend in the resilient layer."""
    return ResilientBackend(inner, **options)


async def _collect(names: AsyncIterator[str]) -> dict[str, None]:
    return {name: None async for name in names}


async def _stop(task: "asyncio.Task[None] | None") -> None:
    if task is None or task.get_loop() is not asyncio.get_running_loop():
        return
    await ended(task)


def _identity(_: str, store: ConversationStore) -> ConversationStore:
    return store
