"""Replay the spool to the store, in order, while new turns are accepted.

A few owners are replayed concurrently. Operations of one owner keep their order, except for turns of
different conversations, which are replayed concurrently too. A refused operation becomes a dead letter. When
the store becomes unavailable again, the rest stays in the spool.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime

from aforesaid.contracts import Appended, Document
from aforesaid.errors import AforesaidError, StoreClosed, StoreDamaged, StoreError, StoreUnavailable
from aforesaid.layers.resilient import dead_letters
from aforesaid.layers.resilient.connection import PROBE_OWNER
from aforesaid.layers.resilient.operations import (
    Answer,
    Operation,
    OwnerQueue,
    TurnAdded,
    apply,
    concerns,
    decode,
    encode,
    is_refusal,
    read_header,
    replay,
)
from aforesaid.layers.resilient.spool import Adopted, Ref, Spool
from aforesaid.layers.resilient.state import ResilientState
from aforesaid.model.conversations import Conversation
from aforesaid.telemetry import event

log = logging.getLogger("aforesaid.resilient")

# Operations per read of the spool.
BATCH = 64
# Owners, and conversations of an owner, that are replayed concurrently. Few, to leave connections to
# callers.
AT_ONCE = 4

# Seconds between checks of the breaker and of other processes' spools.
POLL_SECONDS = 0.05

Waiting = tuple[Ref, Operation]


class Replayer:
    """One replay of the owners' queues. It belongs to one event loop."""

    def __init__(self, state: ResilientState) -> None:
        self._state = state
        self._queues = state.queues
        self._slots = asyncio.Semaphore(AT_ONCE)

    @property
    def _spool(self) -> Spool:
        spool = self._state.spool
        if spool is None:
            raise StoreClosed
        return spool

    # Adopting

    async def adopt(self) -> int:
        """Put the operations of ended processes into the queues, by time of acceptance; return their number.

        An operation that cannot be decoded becomes a dead letter; if that fails, the next call tries again.
        An error while reading a spool is raised after the other spools were adopted.
        """
        adopted = await self._spool.adopt(self._enqueue_adopted)
        while self._spool.undecoded:
            await self._set_undecoded_aside()
        if adopted.failed is not None:
            raise adopted.failed
        return len(adopted.operations)

    async def _set_undecoded_aside(self) -> None:
        ref, payload, error = first = self._spool.undecoded.pop(0)
        if not ref.waits:
            return  # erased meanwhile
        try:
            await self._set_aside(payload, error)
        except BaseException:
            self._spool.undecoded.insert(0, first)
            raise
        await self._spool.mark_done([ref])

    def _enqueue_adopted(self, adopted: Adopted) -> Adopted:
        self._state.damaged.add(adopted.damaged)
        by_owner: dict[str, list[Waiting]] = {}
        for ref, payload in adopted.operations:
            try:
                operation = decode(payload)
            except StoreDamaged as error:
                self._spool.undecoded.append((ref, payload, error))
                continue
            ref.at = operation.at
            by_owner.setdefault(operation.owner, []).append((ref, operation))
        for owner, waiting in by_owner.items():
            self._add(owner, sorted(waiting, key=_accepted_at))
        return adopted

    def _add(self, owner: str, waiting: Sequence[Waiting]) -> None:
        queue = self._queues.get(owner)
        if queue is None:
            queue = self._queues[owner] = OwnerQueue(owner, self._state.last_known.view(owner).copy())
        queue.add_adopted([ref for ref, _ in waiting])
        queue.changed_conversations |= {
            one.conversation_id for _, one in waiting if one.conversation_id is not None
        }
        for _, operation in waiting:
            with suppress(AforesaidError):  # the store decides about conflicts on replay
                apply(operation, queue.view)

    async def _read(self, queue: OwnerQueue, refs: Sequence[Ref]) -> list[Waiting]:
        """Read the operations. Set aside those whose frames are damaged."""
        payloads = await self._spool.read(refs)
        read = list(zip(refs, payloads, strict=True))
        lost = [ref for ref, payload in read if payload is None]
        if lost:
            self._state.damaged.add(await self._spool.set_aside_damaged(lost))
            queue.mark_stored(lost)
        return [(ref, decode(payload)) for ref, payload in read if payload is not None]

    # Handing over

    async def run(self) -> None:
        """Replay until the queues are empty or the store is unavailable. Raise the store's error."""
        while self._queues and self._state.reachable:
            results = await asyncio.gather(
                *(self._drain_exclusively(queue) for queue in list(self._queues.values())),
                return_exceptions=True,
            )
            for result in results:
                if isinstance(result, BaseException):
                    raise result

    async def _drain_exclusively(self, queue: OwnerQueue) -> None:
        async with self._slots, queue.replay_lock:
            with queue.draining():
                await self._drain(queue)

    async def _drain(self, queue: OwnerQueue) -> None:
        while self._queues.get(queue.owner) is queue:
            # From here on the owner's calls go to the store directly.
            if queue.empty:
                del self._queues[queue.owner]
                queue.drained.set()
                return
            refs = queue.first(BATCH)
            if not refs:
                # A caller has reserved a place and is about to add an operation.
                await queue.wait_for_change()
                continue
            await self._store_run(queue, _first_run(await self._read(queue, refs)))

    async def _store_run(self, queue: OwnerQueue, run: Sequence[Waiting]) -> None:
        by_conversation: dict[str | None, list[Waiting]] = {}
        for one in run:
            by_conversation.setdefault(one[1].conversation_id, []).append(one)
        done: list[Ref] = []
        groups = iter(by_conversation.values())
        # The workers share the iterator: each takes the next conversation when it has finished one.
        workers = (self._work(queue, groups, done) for _ in range(min(AT_ONCE, len(by_conversation))))
        results = await asyncio.gather(*workers, return_exceptions=True)
        # Mark also after an error: what is stored need not be replayed again.
        await self._spool.mark_done(done)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _work(self, queue: OwnerQueue, groups: Iterator[list[Waiting]], done: list[Ref]) -> None:
        for group in groups:
            for ref, operation in group:
                await self._store_one(operation)
                done.append(ref)
                queue.mark_stored([ref])

    async def _store_one(self, operation: Operation) -> None:
        state, owner = self._state, operation.owner
        store = state.inner.of(owner)
        turns = state.wrap_for_replay(owner, store)
        try:
            answer = await state.connection.attempt(
                lambda: replay(operation, store, turns), state.connection.write_retry
            )
        except AforesaidError as error:
            if not is_refusal(error):
                raise
            await self._set_aside(encode(operation), error)
        else:
            self._on_stored(operation, answer)

    def _on_stored(self, operation: Operation, answer: Answer) -> None:
        last_known = self._state.last_known
        self._state.replayed.add()
        if isinstance(answer, Document) and answer.conversation_id is None:
            last_known.document(operation.owner, answer)
        if isinstance(answer, Conversation):
            last_known.record(operation.owner, answer)
        if isinstance(answer, Appended) and isinstance(operation.action, TurnAdded):
            turn = operation.action
            last_known.add_turn(operation.owner, turn.conversation_id, turn.messages, answer)

    async def _set_aside(self, payload: bytes, error: AforesaidError) -> None:
        state = self._state
        now = state.inner.of(PROBE_OWNER).now()
        await asyncio.to_thread(dead_letters.add, state.folder, payload, error, now=now)
        state.set_aside.add()
        header = read_header(payload)
        event(
            log,
            logging.ERROR,
            "dead_letter",
            f"the store refused a spooled operation; it is a dead letter in {state.folder}",
            store=state.name,
            error=type(error).__name__,
            conversation_id=header and header.conversation_id,
        )


def _first_run(waiting: Sequence[Waiting]) -> Sequence[Waiting]:
    """Return the leading turns, which may be replayed concurrently, or the one leading operation of another
    kind."""
    for number, (_, operation) in enumerate(waiting):
        if not isinstance(operation.action, TurnAdded):
            return waiting[: max(1, number)]
    return waiting


def _accepted_at(waiting: Waiting) -> datetime:
    return waiting[1].at


# Waiting for the replay


async def settle(state: ResilientState, owner: str | None = None) -> None:
    """Return once the store has every acknowledged write of the owner, or of all owners: the precondition of
    an operation on all data.

    Acknowledged writes that the store lacks are in three places:

    - in the queues of this process, which are replayed
    - in the spool of a process that ended, which is adopted into a queue
    - in the spool of another live process on this machine, which replays it itself

    Raise `StoreUnavailable` when the store is unavailable, or when `Resilience.settle_deadline` passes
    first.
    """
    state.check_open()
    if not state.reachable:
        raise state.unavailable()
    deadline = state.resilience.settle_deadline
    try:
        async with asyncio.timeout(deadline) as waiting:
            await _settle(state, owner)
    except TimeoutError:
        if not waiting.expired():
            raise
        raise StoreUnavailable(
            f"{state.name} lacks writes that were acknowledged while it was unavailable, and did not get "
            f"all of them within {deadline:g} s; this operation needs all data and changed nothing: try again"
        ) from None


async def _settle(state: ResilientState, owner: str | None) -> None:
    while True:
        await _adopt(state)
        while (queue := _next_queue(state, owner)) is not None:
            await _wait_briefly(state, queue)
        pending = await state.pending_owners()
        if not (pending if owner is None else owner in pending):
            return
        await asyncio.sleep(POLL_SECONDS)


async def _adopt(state: ResilientState) -> None:
    try:
        await adopt(state)
    except StoreError as error:
        raise StoreUnavailable(
            f"the spool of an earlier process cannot be read, so {state.name} may lack data; this "
            f"operation needs all data and changed nothing: {error}"
        ) from error


def _next_queue(state: ResilientState, owner: str | None) -> OwnerQueue | None:
    if owner is not None:
        return state.queues.get(owner)
    return next(iter(state.queues.values()), None)


async def _wait_briefly(state: ResilientState, queue: OwnerQueue) -> None:
    """Wait for the queue for one poll interval, because the store may become unavailable again."""
    if not state.reachable:
        raise state.unavailable()
    await _start_replay(state)
    try:
        async with asyncio.timeout(POLL_SECONDS):
            await queue.drained.wait()
    except TimeoutError:
        return


async def adopt(state: ResilientState) -> int:
    """Adopt the spools of ended processes; return the number of operations.

    The error of a spool that cannot be read is raised after the others were adopted.
    """
    if state.spool is None:
        return 0
    try:
        return await Replayer(state).adopt()
    finally:
        if state.queues:
            state.wake()


async def _start_replay(state: ResilientState) -> None:
    """Wake the background task to replay the queues. Without a background task, replay them here."""
    if not state.has_background:
        await Replayer(state).run()
    else:
        state.wake()


# Removal


async def forget(
    state: ResilientState, owner: str, conversation_id: str | None = None, *, until: datetime | None = None
) -> dict[str, int]:
    """Remove the layer's own copies of an owner's data, or of one conversation: spooled operations, dead
    letters and last known state. Return their number by kind.

    With `until`, operations that were accepted later stay. Removed operations are not stored.
    """
    state.check_open()
    await adopt(state)  # otherwise the spool of an ended process would restore the data later
    known = state.last_known
    copies = known.forget(owner) if conversation_id is None else known.drop(owner, conversation_id)
    spooled = await _forget_spooled(state, owner, conversation_id, until)
    letters = await asyncio.to_thread(dead_letters.remove, state.folder, owner, conversation_id, until)
    return {"spool_entries": len(spooled), "dead_letters": letters, "cached_copies": copies}


async def _forget_spooled(
    state: ResilientState, owner: str, conversation_id: str | None, until: datetime | None
) -> list[Ref]:
    spool, queue = state.spool, state.queues.get(owner)
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
    state.remove_if_empty(queue)
    return removed
