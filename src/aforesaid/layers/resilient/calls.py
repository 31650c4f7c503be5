"""How one owner's call reaches the store, the spool or the last known state.

read  ──► the store, with retries ──► recorded in the last known state
            └─ unavailable ──► the last known state plus the spool, marked as degraded
write ──► the store, with retries
            └─ unavailable, or earlier writes wait ──► the spool ──► the owner's queue and view
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from copy import copy
from typing import Any, TypeVar

from aforesaid._internal.tasks import promptly_within
from aforesaid.errors import ConversationNotFound, StoreUnavailable
from aforesaid.layers.resilient.connection import RetryPolicy, is_transient
from aforesaid.layers.resilient.last_known_state import LastKnownState, Subject, View
from aforesaid.layers.resilient.operations import OwnerQueue
from aforesaid.layers.resilient.replay import settle
from aforesaid.layers.resilient.state import ResilientState
from aforesaid.model.ids import parse_uuid

T = TypeVar("T")

# Entries or records from which a read has the deadline of a long read.
LARGE = 1000


class OwnerCalls:
    """The calls of one owner's store."""

    def __init__(self, state: ResilientState, owner: str) -> None:
        self._state = state
        self._owner = owner
        # Whether calls are for operations on all data: without fallback and spool.
        self.is_authoritative = False

    def authoritative(self) -> "OwnerCalls":
        """Return the same calls without fallback and spool."""
        calls = copy(self)
        calls.is_authoritative = True
        return calls

    @property
    def last_known(self) -> LastKnownState:
        return self._state.last_known

    # Reading

    async def read(
        self,
        call: Callable[[], Awaitable[T]],
        answer_from: Callable[[View], T],
        *,
        remember: Callable[[T], None],
        is_known: Callable[[View], bool] | None = None,
        conversation_id: str | None = None,
        session_id: str | None = None,
        size: int = 1,
    ) -> T:
        """Return the store's answer, or a degraded answer from the last known state.

        `size` is the number of entries or records. By default an answer about a conversation or session is
        known when that is known.
        """

        def is_answer_known(view: View) -> bool:
            if is_known is not None:
                return is_known(view)
            if session_id is not None:
                return session_id in view.owner_data.sessions
            return conversation_id is None or view.has_record(parse_id(conversation_id))

        connection = self._state.connection
        is_short = isinstance(size, int) and size < LARGE
        return await self.answer(
            self.remembering(call, remember, conversation_id),
            answer_from,
            is_answer_known,
            retry=connection.read_retry if is_short else connection.long_read_retry,
            conversation_id=None if conversation_id is None else parse_id(conversation_id),
        )

    async def answer(
        self,
        call: Callable[[], Awaitable[T]],
        answer_from: Callable[[View], T],
        is_known: Callable[[View], bool],
        *,
        retry: RetryPolicy | None = None,
        conversation_id: str | None = None,
        is_prompt: bool = False,
    ) -> T:
        """Return the store's answer, or a degraded one if `is_known` holds for the last known state.

        `conversation_id` is the subject of the read, if it has one. For `is_prompt`, see
        `StoreConnection.attempt`.
        """
        state = self._state
        state.check_open()
        if self.is_authoritative:
            return await self._answer_authoritatively(call)
        queue = state.queues.get(self._owner)
        if queue is not None and conversation_id in queue.changed_conversations and not is_known(queue.view):
            # The store lacks accepted writes of this conversation, and the view does not know the rest.
            await state.catch_up(self._owner)
            queue = state.queues.get(self._owner)
            if queue is not None:
                raise state.unavailable()
        cause: StoreUnavailable | None = None
        # The store's answers are current for a conversation without accepted writes, even during a replay.
        if state.reachable and (
            queue is None or queue.is_unaffected(conversation_id) or not is_known(queue.view)
        ):
            try:
                retry = retry or state.connection.read_retry
                return await state.connection.attempt(call, retry, is_prompt=is_prompt)
            except StoreUnavailable as error:
                if state.fails_closed or not is_transient(error):
                    raise
                cause = error
        if state.fails_closed:
            raise state.unavailable()
        queue = state.queues.get(self._owner)
        # A queue's view includes the accepted writes; it was copied from the last known state.
        view = self.last_known.view(self._owner) if queue is None else queue.view
        if not is_known(view):
            raise state.unavailable() from cause or state.connection.cause
        state.note_degraded()
        return answer_from(view)

    async def _answer_authoritatively(self, call: Callable[[], Awaitable[T]]) -> T:
        """Return the store's own answer, which includes every acknowledged write of the owner, or raise."""
        state = self._state
        if not state.reachable:
            raise state.unavailable()
        if self._owner in state.queues:
            await settle(state, self._owner)
        return await state.connection.attempt(call, state.connection.long_read_retry)

    async def read_from_store(self, call: Callable[[], Awaitable[T]], *, is_prompt: bool = False) -> T:
        """Read data that only the store has, or raise."""
        return await self.answer(call, _not_known, lambda view: False, is_prompt=is_prompt)

    async def search(self, call: Callable[[], Awaitable[T]]) -> T:
        """Search the store's index. It lacks spooled turns, so an answer may be degraded."""
        retry = self._state.connection.search_retry
        found: T = await self.answer(call, _not_known, lambda view: False, retry=retry)
        if not self.is_authoritative and self._state.degraded(self._owner):
            self._state.note_degraded()
        return found

    def remembering(
        self, call: Callable[[], Awaitable[T]], remember: Callable[[T], None], subject: Subject
    ) -> Callable[[], Awaitable[T]]:
        """Return the call, extended to record its answer in the last known state, unless the answer is
        outdated."""

        async def remembered_call() -> T:
            with self.last_known.track_call(self._owner, subject) as tracked:
                try:
                    answer = await call()
                except ConversationNotFound as gone:
                    self.last_known.drop(self._owner, gone.conversation_id)
                    raise
                # A removal during the call: recording the answer would bring deleted data back.
                if not tracked.is_outdated:
                    remember(answer)
                return answer

        return remembered_call

    # Writing

    async def write(
        self,
        call: Callable[[], Awaitable[T]],
        accept: Callable[[OwnerQueue], Awaitable[T]],
        *,
        remember: Callable[[T], None],
        subject: Subject = None,
    ) -> T:
        """Write to the store; if it is unavailable, accept the write after all earlier accepted ones."""
        call = self.remembering(call, remember, subject)
        if self.is_authoritative:
            return await self.write_through(call, repeat=True)
        state = self._state
        state.check_open()
        # A direct write would overtake the writes that wait in the queue.
        while (queue := state.queues.get(self._owner)) is not None:
            await queue.pace()
            # The queue may have been drained and removed during the pause.
            if state.queues.get(self._owner) is queue:
                return await self._accept_in(queue, accept)
        if state.reachable:
            try:
                return await state.connection.attempt(call, state.connection.write_retry)
            except StoreUnavailable as error:
                if state.fails_closed or not is_transient(error):
                    raise
        elif state.fails_closed:
            raise state.unavailable()
        # The attempts took seconds: the layer may have been closed, or another call has created the queue.
        state.check_open()
        queue = state.queues.get(self._owner)
        if queue is None:
            view = self.last_known.view(self._owner).copy()
            queue = state.queues[self._owner] = OwnerQueue(self._owner, view)
        return await self._accept_in(queue, accept)

    async def write_through(self, call: Callable[[], Awaitable[T]], *, repeat: bool = False) -> T:
        """Write to the store, or raise: for writes that cannot be acknowledged during an outage. `repeat`
        allows retries, for idempotent writes."""
        state = self._state
        state.check_open()
        queue = state.queues.get(self._owner)
        # The store can decide only after it has all earlier writes. Wait for the replay, but not for long.
        if queue is not None and state.reachable:
            with suppress(TimeoutError):
                await promptly_within(state.resilience.write_deadline, queue.drained.wait())
        if self._owner in state.queues or not state.reachable:
            raise state.unavailable()
        retry = state.connection.write_retry
        return await state.connection.attempt(call, retry if repeat else retry.once())

    async def _accept_in(self, queue: OwnerQueue, accept: Callable[[OwnerQueue], Awaitable[T]]) -> T:
        try:
            with queue.reserved():
                return await accept(queue)
        finally:
            self._state.remove_if_empty(queue)


def parse_id(conversation_id: object) -> str:
    """Return the id of a conversation in its usual form. Raise `InvalidInput`."""
    return parse_uuid(conversation_id, field="conversation_id")


def _not_known(_: View) -> Any:
    raise StoreUnavailable
