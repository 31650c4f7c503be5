"""The state of the resilient layer: connection, spool, queues and last known state, for all owners."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

from aforesaid._internal.freshness import note_degraded
from aforesaid._internal.tasks import LoopWatch
from aforesaid.contracts import (
    Backend,
    ConversationStore,
)
from aforesaid.errors import StoreClosed, StoreUnavailable
from aforesaid.layers.base import BackendWrapper, ReachedMark
from aforesaid.layers.resilient import dead_letters
from aforesaid.layers.resilient.connection import (
    PROBE_OWNER,
    Resilience,
    Sleep,
    StoreConnection,
)
from aforesaid.layers.resilient.last_known_state import LastKnownState
from aforesaid.layers.resilient.operations import OwnerQueue
from aforesaid.layers.resilient.spool import Spool
from aforesaid.telemetry import Telemetry, telemetry


class ResilientState(BackendWrapper):
    """What the stores, the replay and the backend of the layer share. It belongs to one event loop."""

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
        # Whether messages are sealed for their places. Then a turn with an expected revision is
        # accepted in an outage if that is the last known one, and becomes a dead letter if another
        # process wrote meanwhile.
        self.sealed = sealed
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

    @property
    def has_background(self) -> bool:
        """Whether a task replays the queues; otherwise the caller that needs them replays."""
        return self._background_task is not None

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
            raise StoreClosed.named(self.name)
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
        if self._state == "open":
            self._start_background()

    def _start_background(self) -> None:
        """Start the task that probes and replays. The backend implements it: replaying needs this state."""

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

    def remove_if_empty(self, queue: OwnerQueue) -> None:
        """Remove an empty queue, so that the owner's calls go to the store again."""
        # A replay in progress removes the queue itself.
        if queue.empty and not queue.replay_lock.locked() and self.queues.get(queue.owner) is queue:
            del self.queues[queue.owner]
            queue.drained.set()

    def replay_turns_through(self, wrap: Callable[[str, ConversationStore], ConversationStore]) -> None:
        """See `contracts.Spooling`."""
        self.wrap_for_replay = wrap


def _identity(_: str, store: ConversationStore) -> ConversationStore:
    return store
