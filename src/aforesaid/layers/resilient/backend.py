"""The resilient backend: reads, writes, replay and removal for all owners. It belongs to one event loop."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AsyncExitStack, ExitStack, suppress
from datetime import datetime
from typing import Any, TypeVar, cast

from aforesaid._internal.deadlines import ended
from aforesaid.contracts import (
    Appended,
    Backend,
    ConversationStore,
    CopyHolder,
    Document,
    Scrubbable,
    capability,
)
from aforesaid.errors import AforesaidError, StoreClosed, StoreError, StoreUnavailable
from aforesaid.layers.resilient import dead_letters, inspect
from aforesaid.layers.resilient.apply import Answer
from aforesaid.layers.resilient.connection import PROBE_OWNER
from aforesaid.layers.resilient.last_known_state import View
from aforesaid.layers.resilient.operations import Action, Operation, TurnAdded, encode, read_header
from aforesaid.layers.resilient.options import why_not_writable
from aforesaid.layers.resilient.owner_queues import OwnerQueue
from aforesaid.layers.resilient.removal import remove_copies
from aforesaid.layers.resilient.replay import Replayer
from aforesaid.layers.resilient.retry import RetryPolicy, is_transient
from aforesaid.layers.resilient.settle import settle
from aforesaid.layers.resilient.spool import Ref, Spool
from aforesaid.layers.resilient.state import ResilientState
from aforesaid.layers.resilient.store import LARGE, ResilientStore
from aforesaid.model.conversations import Conversation
from aforesaid.model.ids import parse_name, parse_uuid
from aforesaid.telemetry import describe, event

log = logging.getLogger("aforesaid.resilient")

T = TypeVar("T")
LONG_PURGE = 300.0
"""Seconds for a purge of all owners: it may remove much data, but a hanging connection must not block it."""
ADOPT_EVERY = 30.0
"""Seconds between searches for spools of ended processes."""


class ResilientBackend(ResilientState):
    """A backend that accepts writes and answers reads while its `inner` is unavailable."""

    # A backend

    def of(self, owner: str) -> ResilientStore:
        name = parse_name(owner, field="owner")
        return ResilientStore(self, name, self.inner.of(name))

    async def open(self) -> None:
        if self._state == "open":
            return
        await self.connection.open(fails_closed=self._fails_closed)
        self._state = "open"
        self._loop.follow()
        if not self._fails_closed:
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
                await self._replayer().run()

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

    # Calls

    async def read(
        self,
        owner: str,
        call: Callable[[], Awaitable[T]],
        answer_from: Callable[[View], T],
        is_known: Callable[[View], bool],
        *,
        retry: RetryPolicy | None = None,
        conversation_id: str | None = None,
    ) -> T:
        """Return the store's answer, or a degraded answer from the last known state.

        `conversation_id` is the subject of the read, if it has one.
        """
        self.check_open()
        queue = self.queues.get(owner)
        if queue is not None and conversation_id in queue.changed_conversations and not is_known(queue.view):
            await self.catch_up(owner)
            queue = self.queues.get(owner)
            if queue is not None:
                raise self.unavailable()
        cause: StoreUnavailable | None = None
        if self.reachable and (
            queue is None or queue.is_unaffected(conversation_id) or not is_known(queue.view)
        ):
            try:
                return await self.connection.attempt(call, retry or self.connection.read_retry)
            except StoreUnavailable as error:
                if self._fails_closed or not is_transient(error):
                    raise
                cause = error
        if self._fails_closed:
            raise self.unavailable()
        queue = self.queues.get(owner)
        view = self.last_known.view(owner) if queue is None else queue.view
        if not is_known(view):
            raise self.unavailable() from cause or self.connection.cause
        self.note_degraded(owner)
        return answer_from(view)

    async def catch_up(self, owner: str) -> None:
        """Wait for the replay of the owner's queue, within the read deadline, if the store is available."""
        queue = self.queues.get(owner)
        if queue is not None and self.reachable and self._background_task is not None:
            self._wake.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(self.resilience.read_deadline):
                    await queue.drained.wait()

    async def read_authoritative(self, owner: str, call: Callable[[], Awaitable[T]]) -> T:
        """Return the store's own answer, which includes every acknowledged write of the owner, or raise."""
        self.check_open()
        if not self.reachable:
            raise self.unavailable()
        if owner in self.queues:
            await settle(self, owner)
        return await self.connection.attempt(call, self.connection.long_read_retry)

    async def pending_owners(self) -> set[str]:
        """Return the owners with an acknowledged write on this machine that may not be stored yet."""
        waiting = await asyncio.to_thread(inspect.pending_owners, self.folder)
        return {*self.queues, *waiting}

    async def start_replay(self) -> None:
        """Wake the background task to replay the queues. Without a background task, replay them here."""
        if self._background_task is None:
            await self._replayer().run()
        else:
            self._wake.set()

    def retry_for(self, size: object) -> RetryPolicy:
        """Return the retry policy for a read of this many entries or records."""
        return (
            self.connection.read_retry
            if isinstance(size, int) and size < LARGE
            else self.connection.long_read_retry
        )

    async def write(
        self, owner: str, call: Callable[[], Awaitable[T]], accept: Callable[[OwnerQueue], Awaitable[T]]
    ) -> T:
        """Write to the store; if it is unavailable, accept the write after all earlier accepted ones."""
        self.check_open()
        while (queue := self.queues.get(owner)) is not None:
            await queue.pace()
            if self.queues.get(owner) is queue:
                return await self._accept_in(queue, accept)
        if self.reachable:
            try:
                return await self.connection.attempt(call, self.connection.write_retry)
            except StoreUnavailable as error:
                if self._fails_closed or not is_transient(error):
                    raise
        elif self._fails_closed:
            raise self.unavailable()
        self.check_open()
        queue = self.queues.get(owner) or self._new_queue(owner)
        return await self._accept_in(queue, accept)

    async def write_through(self, owner: str, call: Callable[[], Awaitable[T]], *, repeat: bool) -> T:
        """Write to the store, or raise: for writes that cannot be acknowledged during an outage."""
        self.check_open()
        queue = self.queues.get(owner)
        if queue is not None and self.reachable:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.resilience.write_deadline):
                    await queue.drained.wait()
        if owner in self.queues or not self.reachable:
            raise self.unavailable()
        return await self.connection.attempt(
            call, self.connection.write_retry if repeat else self.connection.write_retry.once()
        )

    # Accepting

    def _new_queue(self, owner: str) -> OwnerQueue:
        queue = self.queues[owner] = OwnerQueue(owner, self.last_known.view(owner).copy())
        return queue

    async def _accept_in(self, queue: OwnerQueue, accept: Callable[[OwnerQueue], Awaitable[T]]) -> T:
        try:
            with queue.reserved():
                return await accept(queue)
        finally:
            self.remove_if_empty(queue)

    def remove_if_empty(self, queue: OwnerQueue) -> None:
        """Remove an empty queue, so that the owner's calls go to the store again."""
        if queue.empty and not queue.replay_lock.locked() and self.queues.get(queue.owner) is queue:
            del self.queues[queue.owner]
            queue.drained.set()

    async def accept(self, queue: OwnerQueue, action: Action, at: datetime, apply: Callable[[], Any]) -> Any:
        """Write the operation to the spool; once it is durable, apply it to the view and return the result.

        The queue stays until then, also when the caller is cancelled: the operation may still reach the disk,
        and later operations must follow it.
        """
        spool = self.spool
        if spool is None:
            raise StoreClosed

        def on_durable(ref: Ref | None) -> Any:
            try:
                with reservation:
                    return None if ref is None else self._enqueue(queue, ref, at, apply)
            finally:
                self.remove_if_empty(queue)

        self.note_degraded(queue.owner)
        operation = Operation(owner=queue.owner, at=at, action=action)
        if operation.conversation_id is not None:
            queue.changed_conversations.add(parse_uuid(operation.conversation_id, field="conversation_id"))
        payload = encode(operation)
        reservation = ExitStack()
        reservation.enter_context(queue.reserved())
        return await spool.write(payload, on_durable)

    def _enqueue(self, queue: OwnerQueue, ref: Ref, at: datetime, apply: Callable[[], Any]) -> Any:
        ref.at = at
        queue.add(ref)
        self.accepted.add()
        self._wake.set()
        return apply()

    # Recovery

    async def recover(self) -> bool:
        """Probe the store if a probe is due, and replay the queues; return whether they are empty."""
        self.check_open()
        if not self.reachable and not await self.connection.probe():
            return False
        await self._try_adopt()
        await self._replayer().run()
        return not self.queues

    async def adopt(self) -> int:
        """Adopt the spools of ended processes; return the number of operations.

        The error of a spool that cannot be read is raised after the others were adopted.
        """
        if self.spool is None:
            return 0
        try:
            return await self._replayer().adopt()
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

    def _replayer(self) -> Replayer:
        assert self.spool is not None or not self.queues
        return Replayer(
            spool=cast(Spool, self.spool),
            queues=self.queues,
            view=lambda owner: self.last_known.view(owner).copy(),
            call=self._call_for_replay,
            store=self.inner.of,
            turns=lambda owner: self._wrap_for_replay(owner, self.inner.of(owner)),
            set_aside=self._set_aside,
            on_damaged=self.damaged.add,
            on_stored=self._on_stored,
            reachable=lambda: self.reachable,
        )

    def replay_turns_through(self, wrap: Callable[[str, ConversationStore], ConversationStore]) -> None:
        """See `contracts.Spooling`."""
        self._wrap_for_replay = wrap

    async def _call_for_replay(self, call: Callable[[], Awaitable[T]]) -> T:
        return await self.connection.attempt(call, self.connection.write_retry)

    def _on_stored(self, operation: Operation, answer: Answer) -> None:
        self.replayed.add()
        if isinstance(answer, Document):
            self.last_known.document(operation.owner, answer)
        if isinstance(answer, Conversation):
            self.last_known.record(operation.owner, answer)
        if isinstance(answer, Appended) and isinstance(operation.action, TurnAdded):
            turn = operation.action
            self.last_known.add_turn(operation.owner, turn.conversation_id, turn.messages, answer)

    async def _set_aside(self, payload: bytes, error: AforesaidError) -> None:
        now = self.inner.of(PROBE_OWNER).now()
        await asyncio.to_thread(dead_letters.add, self.folder, payload, error, now=now)
        self.set_aside.add()
        header = read_header(payload)
        event(
            log,
            logging.ERROR,
            "dead_letter",
            f"the store refused a spooled operation; it is a dead letter in {self.folder}",
            store=self.name,
            error=type(error).__name__,
            conversation_id=header and header.conversation_id,
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

    # Removal

    async def forget(
        self, owner: str, conversation_id: str | None = None, *, until: datetime | None = None
    ) -> dict[str, int]:
        """Remove the layer's own copies of an owner's data, or of one conversation; see `removal`."""
        return await remove_copies(self, owner, conversation_id, until)

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
        return (*remains, *(await asyncio.to_thread(inspect.describe_unowned, self.folder)))


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
