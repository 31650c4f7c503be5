"""The resilient backend: reads, writes, replay and removal for all owners. It belongs to one event loop."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, suppress
from datetime import datetime
from typing import Any

from aforesaid._internal.tasks import ended, start_background
from aforesaid.contracts import (
    Backend,
    CopyHolder,
    Scrubbable,
    Spooling,
    capability,
)
from aforesaid.errors import StoreError
from aforesaid.layers.resilient import dead_letters
from aforesaid.layers.resilient.connection import (
    Health,
    RetryPolicy,
    why_not_writable,
)
from aforesaid.layers.resilient.replay import Replayer, adopt, forget, settle
from aforesaid.layers.resilient.spool import Spool
from aforesaid.layers.resilient.state import ResilientState
from aforesaid.layers.resilient.store import ResilientStore
from aforesaid.model.ids import parse_name
from aforesaid.telemetry import describe, event

log = logging.getLogger("aforesaid.resilient")

# Seconds for a purge of all owners: it may remove much data, but a hanging connection must not block it.
LONG_PURGE = 300.0
# Seconds between searches for spools of ended processes.
ADOPT_EVERY = 30.0


class ResilientBackend(ResilientState):
    """A backend that accepts writes and answers reads while its `inner` is unavailable."""

    adds = (CopyHolder, Scrubbable, Spooling)

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
        self._start_background()

    def _start_background(self) -> None:
        if self._background:
            self._background_task = start_background(self._run(), name="aforesaid-resilient")

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

    async def _try_adopt(self) -> None:
        try:
            await adopt(self)
        except StoreError as error:
            event(
                log, logging.ERROR, "spool_not_adopted", f"an earlier spool cannot be read: {describe(error)}"
            )

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

    async def remove_copies(
        self, owner: str, conversation_id: str | None, *, until: datetime | None = None
    ) -> dict[str, int]:
        """Remove the copies of this layer and of the layers inside; see `contracts.CopyHolder`."""
        counts = Counter(await forget(self, owner, conversation_id, until=until))
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
