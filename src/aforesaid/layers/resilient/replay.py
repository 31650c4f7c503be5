"""Replay the spool to the store, in order, while new turns are accepted.

A few owners are replayed concurrently. Operations of one owner keep their order, except for turns of
different conversations, which are replayed concurrently too. A refused operation becomes a dead letter. When
the store becomes unavailable again, the rest stays in the spool.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime

from aforesaid.contracts import ConversationStore
from aforesaid.errors import AforesaidError, StoreDamaged
from aforesaid.layers.resilient.apply import Answer, apply, is_refusal, replay
from aforesaid.layers.resilient.last_known_state import View
from aforesaid.layers.resilient.operations import Operation, TurnAdded, decode, encode
from aforesaid.layers.resilient.owner_queues import OwnerQueue
from aforesaid.layers.resilient.spool import Adopted, Ref, Spool

BATCH = 64
"""Operations per read of the spool."""
AT_ONCE = 4
"""Owners, and conversations of an owner, that are replayed concurrently. Few, to leave connections to
callers."""

Waiting = tuple[Ref, Operation]


class Replayer:
    """One replay of the owners' queues."""

    def __init__(
        self,
        *,
        spool: Spool,
        queues: dict[str, OwnerQueue],
        view: Callable[[str], View],
        call: Callable[[Callable[[], Awaitable[Answer]]], Awaitable[Answer]],
        store: Callable[[str], ConversationStore],
        turns: Callable[[str], ConversationStore],
        set_aside: Callable[[bytes, AforesaidError], Awaitable[None]],
        on_damaged: Callable[[int], None],
        on_stored: Callable[[Operation, Answer], None],
        reachable: Callable[[], bool],
    ) -> None:
        self._spool = spool
        self._queues = queues
        self._view = view
        self._call = call
        self._store = store
        self._turns = turns
        self._set_aside = set_aside
        self._on_damaged = on_damaged
        self._on_stored = on_stored
        self._reachable = reachable
        self._slots = asyncio.Semaphore(AT_ONCE)

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
        self._on_damaged(adopted.damaged)
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
            queue = self._queues[owner] = OwnerQueue(owner, self._view(owner))
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
            self._on_damaged(await self._spool.set_aside_damaged(lost))
            queue.mark_stored(lost)
        return [(ref, decode(payload)) for ref, payload in read if payload is not None]

    # Handing over

    async def run(self) -> None:
        """Replay until the queues are empty or the store is unavailable. Raise the store's error."""
        while self._queues and self._reachable():
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
            if queue.empty:
                del self._queues[queue.owner]
                queue.drained.set()
                return
            refs = queue.first(BATCH)
            if not refs:
                await queue.wait_for_change()
                continue
            await self._store_run(queue, _first_run(await self._read(queue, refs)))

    async def _store_run(self, queue: OwnerQueue, run: Sequence[Waiting]) -> None:
        by_conversation: dict[str | None, list[Waiting]] = {}
        for one in run:
            by_conversation.setdefault(one[1].conversation_id, []).append(one)
        done: list[Ref] = []
        groups = iter(by_conversation.values())
        workers = (self._work(queue, groups, done) for _ in range(min(AT_ONCE, len(by_conversation))))
        results = await asyncio.gather(*workers, return_exceptions=True)
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
        try:
            owner = operation.owner
            answer = await self._call(lambda: replay(operation, self._store(owner), self._turns(owner)))
        except AforesaidError as error:
            if not is_refusal(error):
                raise
            await self._set_aside(encode(operation), error)
        else:
            self._on_stored(operation, answer)


def _first_run(waiting: Sequence[Waiting]) -> Sequence[Waiting]:
    """Return the leading turns, which may be replayed concurrently, or the one leading operation of another
    kind."""
    for number, (_, operation) in enumerate(waiting):
        if not isinstance(operation.action, TurnAdded):
            return waiting[: max(1, number)]
    return waiting


def _accepted_at(waiting: Waiting) -> datetime:
    return waiting[1].at
