"""The layer around a backend: who is asked, how often, and what happens when nobody answers.

Above: `store`, one for each owner. Below: `breaker`, `retrying`, `spool`, `known`, `queues`,
`replaying`. One event loop: the one that opened it.
"""

import asyncio
import logging
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AsyncExitStack, ExitStack, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from msgspec import Struct

from aforesaid._internal.arguments import CheckedFields
from aforesaid._internal.deadlines import ended, within
from aforesaid._internal.freshness import note_degraded
from aforesaid._internal.loops import LoopWatch
from aforesaid.contracts import (
    Appended,
    Backend,
    ConversationStore,
    CopyHolder,
    Document,
    Migratable,
    Reindexable,
    Scrubbable,
)
from aforesaid.errors import AforesaidError, InvalidSetting, StoreClosed, StoreError, StoreUnavailable, shown
from aforesaid.layers._capabilities import with_capabilities_of
from aforesaid.layers.reached import ReachedMark
from aforesaid.layers.resilient import dead_letters, inspect
from aforesaid.layers.resilient.apply import Answer
from aforesaid.layers.resilient.breaker import Breaker, State
from aforesaid.layers.resilient.last_known_state import LastKnownState, View
from aforesaid.layers.resilient.operations import Deed, Operation, TurnAdded, about, encode, is_about
from aforesaid.layers.resilient.owner_queues import OwnerQueue
from aforesaid.layers.resilient.replay import Replayer
from aforesaid.layers.resilient.retry import Effort, Sleep, is_transient, with_retries
from aforesaid.layers.resilient.settling import settle
from aforesaid.layers.resilient.spool import Ref, Spool
from aforesaid.layers.resilient.store import LARGE, ResilientStore, store_around
from aforesaid.model.conversations import Conversation, check_count
from aforesaid.model.ids import parse_name, parse_uuid
from aforesaid.telemetry import Telemetry, describe, event, telemetry

log = logging.getLogger("aforesaid.resilient")

T = TypeVar("T")
Policy = Literal["fallback", "fail_closed"]
POLICIES: tuple[Policy, ...] = ("fallback", "fail_closed")

SPOOL_LIMIT = 64 * 1024 * 1024
"""Bytes: some 50,000 spoken turns, which is hours of a busy house; little beside any disk."""
LONG_READ = 60.0
"""Seconds for a read of thousands of entries: nobody waits for it in a conversation."""
LONG_PURGE = 300.0
"""Seconds for a purge of all owners: it may remove a lot, but a connection that hangs must not hold it up."""
ADOPT_EVERY = 30.0
"""Seconds between looks at whether another process has left something behind."""
_PROBE_OWNER, _PROBE_ID = "aforesaid probe", "00000000-0000-7000-8000-000000000000"


class Resilience(CheckedFields, frozen=True, kw_only=True):
    """How the layer behaves. Times are seconds."""

    policy: Policy = "fallback"
    """`fallback` keeps turns in the spool and answers from what is known; `fail_closed` refuses both."""
    folder: Path | None = None
    """Where the spool is; None is a folder of this user and this store."""
    spool_limit: int = SPOOL_LIMIT
    attempts: int = 3
    read_deadline: float = 2.0
    """For all attempts of a read: an agent waits for it."""
    search_deadline: float = 5.0
    """For all attempts of a search, which looks at more than a read does."""
    write_deadline: float = 5.0
    """For all attempts of a write, before it goes to the spool."""
    start_unreached: bool = False
    """Whether `open` succeeds while the store is away although this machine has never reached it. A store
    that was reached before may always be away."""
    close_deadline: float = 5.0
    """For handing the spool to a store that is well, when closing. The rest stays for the next process."""
    settle_deadline: float = 30.0
    """For waiting until the store has every acknowledged write, before an operation that needs all data."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self.spool_limit, field="spool_limit", least=0)
        check_count(self.attempts, field="attempts", least=1)
        for field in self.__struct_fields__:
            if field.endswith("_deadline") and not getattr(self, field) > 0:
                seconds = shown(getattr(self, field))
                raise InvalidSetting(f"{field} must be seconds, more than 0; got {seconds}", field=field)


class Health(Struct, frozen=True, kw_only=True):
    """How the layer is doing."""

    store: str
    breaker: State
    degraded: bool
    """Whether anybody's answers are not the store's own now."""
    reason: str | None
    spool_operations: int
    spool_bytes: int
    spool_limit: int
    """Bytes that the spool may take; 0 where nothing is accepted while the store is away."""
    spool_oldest_seconds: float
    dead_letters: int
    """Operations that the store refused or that cannot be read; they wait for somebody to look at them."""


class ResilientBackend(Backend):
    """A backend that goes on while the one it wraps is away."""

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
        self.inner = inner
        self._reached = reached
        """Whether this machine has reached the store before; None where that makes no difference."""
        self.resilience = resilience or Resilience()
        self.folder = folder
        self.name = name
        self.known = LastKnownState()
        self.queues: dict[str, OwnerQueue] = {}
        self.breaker = Breaker(clock=clock, moved=self._breaker_moved)
        self._sleep = sleep
        self._background = background
        self.sealed = sealed
        """Whether messages come sealed to their places: then a turn that insists on a revision is accepted in
        an outage if that is the last known one, and set aside if somebody else turns out to have written."""
        self._spool: Spool | None = None
        self._state: Literal["new", "open", "closed"] = "new"
        self._inner_open = False
        self._cause: StoreUnavailable | None = None
        """The last error of a store that is away: the cause of what is refused meanwhile."""
        self._left: set[asyncio.Task[Any]] = set()
        """Calls that were given up on, and that have not ended yet."""
        self._loop = LoopWatch()
        self._wake = asyncio.Event()
        self._around_turns: Callable[[str, ConversationStore], ConversationStore] = _as_it_is
        self._keeper: asyncio.Task[None] | None = None
        self._read_effort = Effort(
            attempts=self.resilience.attempts, deadline=self.resilience.read_deadline, longest_pause=0.2
        )
        self._long_effort = Effort(attempts=self.resilience.attempts, deadline=LONG_READ)
        self.search_effort = Effort(
            attempts=self.resilience.attempts, deadline=self.resilience.search_deadline, longest_pause=0.2
        )
        self._write_effort = Effort(
            attempts=self.resilience.attempts, deadline=self.resilience.write_deadline, first_pause=0.1
        )
        self._count(metrics)

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
            "known_bytes": lambda: self.known.size,
        }
        for gauge, read in gauges.items():
            metrics.gauge(f"aforesaid_{gauge}", "", read, store=store)

    # A backend

    def of(self, owner: str) -> ResilientStore:
        return store_around(self, parse_name(owner, field="owner"))

    async def open(self) -> None:
        if self._state == "open":
            return
        await self._reach()
        self._state = "open"
        self._loop.follow()
        if not self._fails_closed:
            await self._start_spool()
        if self._background:
            self._keeper = asyncio.create_task(self._keep(), name="aforesaid-resilient")

    async def _reach(self) -> None:
        """Open the store. One that was reached before may be away; one that never was is most likely a URL
        with a mistake in it, and turns would wait in the spool for ever."""
        required = not self._fails_closed and not await self._may_be_away()
        try:
            if required:
                await with_retries(self._open_inner, self._write_effort, sleep=self._sleep)
            else:
                await self._open_inner()
        except StoreUnavailable as error:
            if self._fails_closed:
                raise
            if required:
                raise StoreUnavailable(
                    f"{self.name} was never reached from this machine, so its URL may be wrong: {error}. To "
                    "start without it, set AFORESAID_START_UNREACHED=true or Resilience(start_unreached=True)"
                ) from error
            self._trip(error)

    async def _may_be_away(self) -> bool:
        if self._reached is None or self.resilience.start_unreached:
            return True
        return await asyncio.to_thread(self._reached.is_set)

    async def _open_inner(self) -> None:
        await self.inner.open()
        self._inner_open = True
        if self._reached is not None:
            await asyncio.to_thread(self._reached.set)

    async def _start_spool(self) -> None:
        self._spool = Spool(
            self.folder, limit=self.resilience.spool_limit, deadline=self.resilience.write_deadline
        )
        problem = await asyncio.to_thread(why_not_writable, self.folder)
        if problem:
            event(log, logging.WARNING, "spool_unusable", f"the spool cannot be used: {problem}")
        await self._adopt_what_can_be_read()

    async def close(self) -> None:
        if self._state == "closed":
            return
        was, self._state = self._state, "closed"
        if self._loop.has_changed():
            self._follow_loop()
        async with AsyncExitStack() as leaving:  # all of it, from the last to the first, also when cancelled
            leaving.push_async_callback(self.inner.close)
            leaving.push_async_callback(self._wait_for_left)
            leaving.push_async_callback(self._close_spool)
            keeper, self._keeper = self._keeper, None
            await _ended(keeper)
            if was == "open":
                await self._hand_over()

    async def _hand_over(self) -> None:
        """Give the store what it can have now; the rest is safe where it is."""
        if not self.queues or not self.reachable:
            return
        with suppress(TimeoutError, StoreError):
            async with asyncio.timeout(self.resilience.close_deadline):
                await self._replayer().run()

    async def _close_spool(self) -> None:
        spool, self._spool = self._spool, None
        try:
            if spool is not None:
                await spool.close()
        finally:
            for queue in self.queues.values():
                queue.drained.set()
            self.queues.clear()

    async def _wait_for_left(self) -> None:
        self._inner_open = False
        if self._left:
            await asyncio.wait(set(self._left), timeout=self.resilience.close_deadline)

    async def owners(self, *, ignored_kinds: Collection[str] = ()) -> AsyncIterator[str]:
        self.check_open()
        if not self.reachable:
            raise self.away()
        pending = await self.pending_owners()  # first: they may be stored while the store lists its own
        found = await self._attempt(
            lambda: _collected(self.inner.owners(ignored_kinds=ignored_kinds)), self._long_effort
        )
        for owner in (*found, *sorted(pending - found.keys())):
            yield owner

    async def purge_expired(self, now: datetime | None = None) -> int:
        await settle(self)  # a turn that is not stored yet may have given a conversation more time
        effort = Effort(attempts=self.resilience.attempts, deadline=LONG_PURGE)
        return await self._attempt(lambda: self.inner.purge_expired(now), effort)

    # State

    @property
    def _fails_closed(self) -> bool:
        return self.resilience.policy == "fail_closed"

    @property
    def reachable(self) -> bool:
        """Whether the store is asked at all."""
        return self._inner_open and self.breaker.closed

    @property
    def why(self) -> str:
        """Why answers are degraded, in words."""
        if self.reachable:
            return f"{self.name} takes in what was said while it was away"
        return f"{self.name} is away: {self.breaker.reason or 'it was not reached yet'}"

    @property
    def spool_depth(self) -> int:
        return sum(queue.depth for queue in self.queues.values())

    @property
    def spool_bytes(self) -> int:
        return 0 if self._spool is None else self._spool.size

    @property
    def spool_age(self) -> float:
        """Seconds since the operation that waits longest was accepted; 0 when nothing waits."""
        oldest = min((queue.oldest for queue in self.queues.values() if queue.oldest), default=None)
        if oldest is None:
            return 0.0
        return max(0.0, (self.inner.of(_PROBE_OWNER).now() - oldest).total_seconds())

    async def health(self) -> Health:
        degraded = not self.reachable or bool(self.queues)
        return Health(
            store=self.name,
            breaker=self.breaker.state,
            degraded=degraded,
            reason=self.why if degraded else None,
            spool_operations=self.spool_depth,
            spool_bytes=self.spool_bytes,
            spool_limit=0 if self._fails_closed else self.resilience.spool_limit,
            spool_oldest_seconds=self.spool_age,
            dead_letters=await asyncio.to_thread(dead_letters.count, self.folder),
        )

    def degraded(self, owner: str) -> bool:
        return not self.reachable or owner in self.queues

    def note_degraded(self, owner: str) -> None:
        self.degraded_reads.add()
        note_degraded(self.why)

    def check_open(self) -> None:
        if self._state == "closed":
            raise StoreClosed
        if self._state == "new":
            raise StoreClosed(f"{self.name} is not open")
        if self._loop.has_changed():
            self._follow_loop()

    def _follow_loop(self) -> None:
        """Go on on another event loop: the tasks of the last one ended with it."""
        self._wake = asyncio.Event()
        self._left = set()
        for queue in self.queues.values():
            queue.follow_loop()
        if self._spool is not None:
            self._spool.follow_loop()
        if self._background and self._state == "open":
            self._keeper = asyncio.create_task(self._keep(), name="aforesaid-resilient")

    def away(self) -> StoreUnavailable:
        """The error for what cannot be answered without the store."""
        away = StoreUnavailable(self.why)
        away.__cause__ = self._cause
        return away

    def _breaker_moved(self, state: State, reason: str) -> None:
        if state == "closed":
            self._cause = None
        level = logging.INFO if state == "half_open" else logging.WARNING
        sentence = f"{self.name}: the breaker is {state.replace('_', ' ')}"
        event(log, level, f"breaker_{state}", sentence, store=self.name, reason=reason)
        self._wake.set()

    # Asking

    async def read(
        self,
        owner: str,
        ask: Callable[[], Awaitable[T]],
        recall: Callable[[View], T],
        knows: Callable[[View], bool],
        *,
        effort: Effort | None = None,
        about: str | None = None,
    ) -> T:
        """The store's answer; else the best that is known, marked. `about`: the conversation it is about."""
        self.check_open()
        queue = self.queues.get(owner)
        if queue is not None and about in queue.touched and not knows(queue.view):
            await self.catch_up(owner)
            queue = self.queues.get(owner)
            if queue is not None:
                raise self.away()
        cause: StoreUnavailable | None = None
        if self.reachable and (queue is None or queue.leaves_alone(about) or not knows(queue.view)):
            try:
                return await self._attempt(ask, effort or self._read_effort)
            except StoreUnavailable as error:
                if self._fails_closed or not is_transient(error):
                    raise
                cause = error
        if self._fails_closed:
            raise self.away()
        queue = self.queues.get(owner)
        view = self.known.view(owner) if queue is None else queue.view
        if not knows(view):
            raise self.away() from cause or self._cause
        self.note_degraded(owner)
        return recall(view)

    async def catch_up(self, owner: str) -> None:
        """Give the background task a moment to store what the owner's lane holds, if the store is there."""
        queue = self.queues.get(owner)
        if queue is not None and self.reachable and self._keeper is not None:
            self._wake.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(self.resilience.read_deadline):
                    await queue.drained.wait()

    async def read_whole(self, owner: str, ask: Callable[[], Awaitable[T]]) -> T:
        """The store's own answer, which includes every acknowledged write of the owner; else an error."""
        self.check_open()
        if not self.reachable:
            raise self.away()
        if owner in self.queues:
            await settle(self, owner)
        return await self._attempt(ask, self._long_effort)

    async def pending_owners(self) -> set[str]:
        """Everybody with an acknowledged write that may not be in the store yet, on this machine."""
        waiting = await asyncio.to_thread(inspect.pending_owners, self.folder)
        return {*self.queues, *waiting}

    async def hurry(self) -> None:
        """Have the lanes drained now. Without a background task, this drains them."""
        if self._keeper is None:
            await self._replayer().run()
        else:
            self._wake.set()

    def effort_for(self, size: object) -> Effort:
        """How hard to try for so many entries or records."""
        return self._read_effort if isinstance(size, int) and size < LARGE else self._long_effort

    async def write(
        self, owner: str, ask: Callable[[], Awaitable[T]], accept: Callable[[OwnerQueue], Awaitable[T]]
    ) -> T:
        """Have the store do it; else accept it, behind everything that was accepted before."""
        self.check_open()
        while (queue := self.queues.get(owner)) is not None:
            await queue.pace()
            if self.queues.get(owner) is queue:
                return await self._accept_in(queue, accept)
        if self.reachable:
            try:
                return await self._attempt(ask, self._write_effort)
            except StoreUnavailable as error:
                if self._fails_closed or not is_transient(error):
                    raise
        elif self._fails_closed:
            raise self.away()
        self.check_open()
        queue = self.queues.get(owner) or self._new_queue(owner)
        return await self._accept_in(queue, accept)

    async def strict(self, owner: str, ask: Callable[[], Awaitable[T]], *, repeat: bool) -> T:
        """Have the store do it, and nobody else: what cannot be promised in its absence."""
        self.check_open()
        queue = self.queues.get(owner)
        if queue is not None and self.reachable:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.resilience.write_deadline):
                    await queue.drained.wait()
        if owner in self.queues or not self.reachable:
            raise self.away()
        return await self._attempt(ask, self._write_effort if repeat else _once(self._write_effort))

    async def _attempt(self, ask: Callable[[], Awaitable[T]], effort: Effort) -> T:
        """Ask as hard as the effort says. What is not answered within its time has failed."""
        trying = with_retries(
            ask, effort, sleep=self._sleep, failed=self._attempt_failed, again=self.retries.add
        )
        try:
            answer = await within(effort.deadline, trying, left=self._left)
        except TimeoutError as error:
            late = StoreUnavailable(f"{self.name} did not answer within {effort.deadline:g} s")
            self._trip(late)
            raise late from error
        except StoreUnavailable as error:
            if is_transient(error):
                self._trip(error)
            raise
        except AforesaidError:
            self.breaker.succeeded()
            raise
        self.breaker.succeeded()
        return answer

    def _trip(self, error: StoreUnavailable) -> None:
        self.breaker.trip(str(error))
        if not self.breaker.closed:
            self._cause = error

    def _attempt_failed(self, error: AforesaidError) -> None:
        self.breaker.failed(str(error))

    # Accepting

    def _new_queue(self, owner: str) -> OwnerQueue:
        queue = self.queues[owner] = OwnerQueue(owner, self.known.view(owner).copy())
        return queue

    async def _accept_in(self, queue: OwnerQueue, accept: Callable[[OwnerQueue], Awaitable[T]]) -> T:
        try:
            with queue.adding():
                return await accept(queue)
        finally:
            self._let_go(queue)

    def _let_go(self, queue: OwnerQueue) -> None:
        """A lane that holds nothing is no lane."""
        if queue.empty and not queue.replaying.locked() and self.queues.get(queue.owner) is queue:
            del self.queues[queue.owner]
            queue.drained.set()

    async def accept(self, queue: OwnerQueue, deed: Deed, at: datetime, apply: Callable[[], Any]) -> Any:
        """Put the operation into the spool; once it is durable, what is known says so too. The lane stays
        until then, also when the caller does not: what is on its way to the disk may be kept, and comes
        first."""
        spool = self._spool
        if spool is None:
            raise StoreClosed

        def settled(ref: Ref | None) -> Any:
            try:
                with staying:
                    return None if ref is None else self._keep_in(queue, ref, at, apply)
            finally:
                self._let_go(queue)

        self.note_degraded(queue.owner)
        operation = Operation(owner=queue.owner, at=at, deed=deed)
        if operation.conversation_id is not None:
            queue.touched.add(parse_uuid(operation.conversation_id, field="conversation_id"))
        payload = encode(operation)
        staying = ExitStack()
        staying.enter_context(queue.adding())
        return await spool.write(payload, settled)

    def _keep_in(self, queue: OwnerQueue, ref: Ref, at: datetime, apply: Callable[[], Any]) -> Any:
        ref.at = at
        queue.add(ref)
        self.accepted.add()
        self._wake.set()
        return apply()

    # Coming back

    async def recover(self) -> bool:
        """Probe the store if that is due, and hand over what waits. Whether nothing waits any more."""
        self.check_open()
        if not self.reachable and not await self._probe():
            return False
        await self._adopt_what_can_be_read()
        await self._replayer().run()
        return not self.queues

    async def adopt(self) -> int:
        """Take over what processes that are gone have left; returns how many operations. Raises what kept it
        from some of them; the others are taken over."""
        if self._spool is None:
            return 0
        try:
            return await self._replayer().adopt()
        finally:
            if self.queues:
                self._wake.set()

    async def _adopt_what_can_be_read(self) -> None:
        try:
            await self.adopt()
        except StoreError as error:
            event(
                log, logging.ERROR, "spool_not_adopted", f"an earlier spool cannot be read: {describe(error)}"
            )

    def _replayer(self) -> Replayer:
        assert self._spool is not None or not self.queues
        return Replayer(
            spool=cast(Spool, self._spool),
            queues=self.queues,
            view=lambda owner: self.known.view(owner).copy(),
            ask=self._attempt_replay,
            store=self.inner.of,
            turns=lambda owner: self._around_turns(owner, self.inner.of(owner)),
            set_aside=self._set_aside,
            damaged=self.damaged.add,
            stored=self._stored,
            reachable=lambda: self.reachable,
        )

    def replay_turns_through(self, around: Callable[[str, ConversationStore], ConversationStore]) -> None:
        """See `contracts.Spooling`."""
        self._around_turns = around

    async def _attempt_replay(self, ask: Callable[[], Awaitable[T]]) -> T:
        return await self._attempt(ask, self._write_effort)

    def _stored(self, operation: Operation, answer: Answer) -> None:
        self.replayed.add()
        if isinstance(answer, Document):
            self.known.document(operation.owner, answer)
        if isinstance(answer, Conversation):
            self.known.record(operation.owner, answer)
        if isinstance(answer, Appended) and isinstance(operation.deed, TurnAdded):
            turn = operation.deed
            self.known.appended(operation.owner, turn.conversation_id, turn.messages, answer)

    async def _set_aside(self, payload: bytes, error: AforesaidError) -> None:
        now = self.inner.of(_PROBE_OWNER).now()
        await asyncio.to_thread(dead_letters.keep, self.folder, payload, error, now=now)
        self.set_aside.add()
        subject = about(payload)
        event(
            log,
            logging.ERROR,
            "dead_letter",
            f"what was accepted while the store was away cannot be stored; it is kept in {self.folder}",
            store=self.name,
            error=type(error).__name__,
            conversation_id=subject and subject.conversation_id,
        )

    async def _probe(self) -> bool:
        if self.breaker.closed:
            self.breaker.trip("it was not opened yet")
        if not self.breaker.begin_probe():
            return False
        try:
            await within(self.resilience.write_deadline, self._ask_for_life(), left=self._left)
        except TimeoutError:
            self.breaker.probe_failed("it does not answer")
        except StoreError as error:
            self.breaker.probe_failed(str(error))
        except BaseException:
            self.breaker.probe_failed("the probe was broken off")
            raise
        else:
            self.breaker.probe_succeeded()
        return self.breaker.closed

    async def _ask_for_life(self) -> None:
        if not self._inner_open:
            await self._open_inner()
        await self.inner.of(_PROBE_OWNER).get(_PROBE_ID)

    async def _keep(self) -> None:
        """Probe, replay and adopt, until cancelled."""
        while True:
            try:
                await self._keep_once()
            except Exception:  # the supervisor of a background task: logged, and on with it
                log.exception("the resilient layer of %s stumbled", self.name)
                await asyncio.sleep(1)

    async def _keep_once(self) -> None:
        self._wake.clear()
        pause = ADOPT_EVERY if self.reachable else self.breaker.seconds_to_probe
        if not (self.reachable and self.queues):
            with suppress(TimeoutError):
                async with asyncio.timeout(pause + 0.01):
                    await self._wake.wait()
        if not self._fails_closed or not self.reachable:
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
                await asyncio.sleep(0.1)

    # Forgetting

    async def forget(
        self, owner: str, conversation_id: str | None = None, *, until: datetime | None = None
    ) -> dict[str, int]:
        """Remove every trace of an owner, or of one conversation, that the layer itself keeps: spool, dead
        letters, last known state. With `until`, what was accepted after that moment stays. Returns how much
        went, by kind; what was spooled went unstored."""
        self.check_open()
        await self.adopt()  # what a process that is gone has left would come back else
        queue = self.queues.get(owner)
        known = self.known
        copies = known.forget(owner) if conversation_id is None else known.drop(owner, conversation_id)
        gone: list[Ref] = []
        if self._spool is not None and self._spool.size:
            gone = await self._forget_spooled(queue, owner, conversation_id, until)
        set_aside = await asyncio.to_thread(dead_letters.forget, self.folder, owner, conversation_id, until)
        return {"spool_entries": len(gone), "dead_letters": set_aside, "cached_copies": copies}

    async def remove_copies(
        self, owner: str, conversation_id: str | None, *, until: datetime | None = None
    ) -> dict[str, int]:
        """The same, and what is held further inside, for whoever erases. See `contracts.CopyHolder`."""
        counts = Counter(await self.forget(owner, conversation_id, until=until))
        if isinstance(self.inner, CopyHolder):
            counts.update(await self.inner.remove_copies(owner, conversation_id, until=until))
        return dict(counts)

    async def scrub(self, owner: str | None) -> tuple[str, ...]:
        """Have the store scrub its files, if it has any, and take out of the spool what is stored by now;
        returns what remains there, and the damaged parts of spools: whose those are, nobody can tell. See
        `contracts.Scrubbable`."""
        self.check_open()
        if self._spool is not None and self._spool.size:
            await self._spool.forget(lambda payload: False)  # finished operations go with any rewriting
        remains = await self.inner.scrub(owner) if isinstance(self.inner, Scrubbable) else ()
        return (*remains, *(await asyncio.to_thread(inspect.unknown_owners, self.folder)))

    async def _forget_spooled(
        self, queue: OwnerQueue | None, owner: str, conversation_id: str | None, until: datetime | None
    ) -> list[Ref]:
        assert self._spool is not None

        def is_meant(payload: bytes) -> bool:
            return is_about(payload, owner, conversation_id, until=until)

        if queue is None:
            return await self._spool.forget(is_meant)
        async with queue.replaying:
            gone = await self._spool.forget(is_meant)
            queue.drop(gone)
            if conversation_id is not None:
                queue.view.owner_data.delete(conversation_id)
            elif until is not None:
                queue.view.forget_older(until)
            else:
                queue.view.owner_data.logs.clear()
                queue.view.owner_data.sessions.clear()
        self._let_go(queue)
        return gone


def resilient(inner: Backend, **options: Any) -> ResilientBackend:
    """The layer around a backend, with the powers of that backend."""
    return with_capabilities_of(inner, ResilientBackend(inner, **options), [Migratable, Reindexable])


async def _collected(names: AsyncIterator[str]) -> dict[str, None]:
    return {name: None async for name in names}


def _once(effort: Effort) -> Effort:
    return Effort(attempts=1, deadline=effort.deadline)


async def _ended(task: "asyncio.Task[None] | None") -> None:
    if task is None or task.get_loop() is not asyncio.get_running_loop():
        return
    await ended(task)


def _as_it_is(_: str, store: ConversationStore) -> ConversationStore:
    return store


def why_not_writable(folder: Path) -> str | None:
    """Why nothing could be written there; None when it could."""
    nearest = folder
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    if not nearest.is_dir():
        return f"{nearest} is not a folder"
    return None if os.access(nearest, os.W_OK | os.X_OK) else f"{nearest} cannot be written"
