"""Handing over: what waits in the spool goes to the store, in order, while new turns keep coming.

Owners are taken in side by side, a few at once. Within an owner everything keeps its order, but for
turns of different conversations, which may go side by side too. What the store refuses is set aside,
and the rest goes on; when the store goes away again, what is left waits. Above: `backend`.
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
"""Operations that are read from the spool at once."""
AT_ONCE = 4
"""Owners, and conversations of an owner, that are taken in side by side: most connections are left to
those who speak now."""

Waiting = tuple[Ref, Operation]


class Replayer:
    """One handing over."""

    def __init__(
        self,
        *,
        spool: Spool,
        queues: dict[str, OwnerQueue],
        view: Callable[[str], View],
        ask: Callable[[Callable[[], Awaitable[Answer]]], Awaitable[Answer]],
        store: Callable[[str], ConversationStore],
        turns: Callable[[str], ConversationStore],
        set_aside: Callable[[bytes, AforesaidError], Awaitable[None]],
        damaged: Callable[[int], None],
        stored: Callable[[Operation, Answer], None],
        reachable: Callable[[], bool],
    ) -> None:
        self._spool = spool
        self._queues = queues
        self._view = view
        self._ask = ask
        self._store = store
        self._turns = turns
        self._set_aside = set_aside
        self._damaged = damaged
        self._stored = stored
        self._reachable = reachable
        self._places = asyncio.Semaphore(AT_ONCE)

    # Adopting

    async def adopt(self) -> int:
        """Put what other processes have left into the lanes, in the order in which it was accepted. What
        cannot be decoded is set aside; where that fails, the next call tries again. Raises, in the end, what
        kept it from something."""
        adopted = await self._spool.adopt(self._take_in)
        while self._spool.undecoded:
            await self._set_undecoded_aside()
        if adopted.failed is not None:
            raise adopted.failed
        return len(adopted.operations)

    async def _set_undecoded_aside(self) -> None:
        ref, payload, error = first = self._spool.undecoded.pop(0)
        if not ref.waits:
            return  # it was erased meanwhile
        try:
            await self._set_aside(payload, error)
        except BaseException:
            self._spool.undecoded.insert(0, first)
            raise
        await self._spool.mark_done([ref])

    def _take_in(self, adopted: Adopted) -> Adopted:
        self._damaged(adopted.damaged)
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
            self._add(owner, sorted(waiting, key=_acceptance))
        return adopted

    def _add(self, owner: str, waiting: Sequence[Waiting]) -> None:
        queue = self._queues.get(owner)
        if queue is None:
            queue = self._queues[owner] = OwnerQueue(owner, self._view(owner))
        queue.add_earlier([ref for ref, _ in waiting])
        queue.touched |= {one.conversation_id for _, one in waiting if one.conversation_id is not None}
        for _, operation in waiting:
            with suppress(AforesaidError):  # what does not fit is for the store to refuse
                apply(operation, queue.view)

    async def _read(self, queue: OwnerQueue, refs: Sequence[Ref]) -> list[Waiting]:
        """Read the operations. Those whose frames are damaged by now are set aside, and the others go on."""
        payloads = await self._spool.read(refs)
        read = list(zip(refs, payloads, strict=True))
        lost = [ref for ref, payload in read if payload is None]
        if lost:
            self._damaged(await self._spool.set_aside_damaged(lost))
            queue.stored(lost)
        return [(ref, decode(payload)) for ref, payload in read if payload is not None]

    # Handing over

    async def run(self) -> None:
        """Until nothing waits, or the store goes away. Raises what a failing store says."""
        while self._queues and self._reachable():
            results = await asyncio.gather(
                *(self._drain_in_turn(queue) for queue in list(self._queues.values())), return_exceptions=True
            )
            for result in results:
                if isinstance(result, BaseException):
                    raise result

    async def _drain_in_turn(self, queue: OwnerQueue) -> None:
        async with self._places, queue.replaying:
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
                await queue.moved()
                continue
            await self._hand_over(queue, _leading_run(await self._read(queue, refs)))

    async def _hand_over(self, queue: OwnerQueue, run: Sequence[Waiting]) -> None:
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
                queue.stored([ref])

    async def _store_one(self, operation: Operation) -> None:
        try:
            owner = operation.owner
            answer = await self._ask(lambda: replay(operation, self._store(owner), self._turns(owner)))
        except AforesaidError as error:
            if not is_refusal(error):
                raise
            await self._set_aside(encode(operation), error)
        else:
            self._stored(operation, answer)


def _leading_run(waiting: Sequence[Waiting]) -> Sequence[Waiting]:
    """The turns at the front, which may go side by side; or the one operation that is no turn."""
    for number, (_, operation) in enumerate(waiting):
        if not isinstance(operation.deed, TurnAdded):
            return waiting[: max(1, number)]
    return waiting


def _acceptance(waiting: Waiting) -> datetime:
    return waiting[1].at
