"""Reads and writes of a resilient store: how a call reaches the store, the spool or the last known state."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from aforesaid.contracts import ConversationStore, SnapshotReader
from aforesaid.errors import ConversationNotFound, StoreUnavailable
from aforesaid.layers.base import StoreWrapper
from aforesaid.layers.resilient.last_known_state import LastKnownState, Subject, View
from aforesaid.layers.resilient.operations import (
    Action,
)
from aforesaid.layers.resilient.owner_queues import OwnerQueue
from aforesaid.layers.resilient.retry import RetryPolicy
from aforesaid.layers.resilient.settle import settle
from aforesaid.model.conversations import Conversation
from aforesaid.model.ids import parse_uuid

if TYPE_CHECKING:
    from aforesaid.layers.resilient.backend import ResilientBackend

T = TypeVar("T")


class ResilientStoreBase(StoreWrapper):
    """The owner, the wrapped store, and helpers for reads and writes."""

    # A snapshot cannot come from the last known state, but a context must.
    hides = (SnapshotReader,)

    def __init__(self, backend: "ResilientBackend", owner: str, inner: ConversationStore) -> None:
        super().__init__(inner)
        self._backend = backend
        self._owner = owner
        self._is_authoritative = False
        """Whether this is the view for operations on all data: without fallback and spool."""

    @property
    def degraded(self) -> bool:
        """Whether an answer now would come from the last known state, or lack spooled turns."""
        return not self._is_authoritative and self._backend.degraded(self._owner)

    async def authoritative(self) -> Self:
        await settle(self._backend, self._owner)
        view = await super().authoritative()
        view._is_authoritative = True
        return view

    @property
    def _last_known(self) -> LastKnownState:
        return self._backend.last_known

    def _remember_record(self, record: Conversation) -> None:
        self._last_known.record(self._owner, record)

    async def _read(
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
        def is_answer_known(view: View) -> bool:
            if is_known is not None:
                return is_known(view)
            if session_id is not None:
                return session_id in view.owner_data.sessions
            return conversation_id is None or view.has_record(parse_id(conversation_id))

        return await self._answer(
            self._remembering(call, remember, conversation_id),
            answer_from,
            is_answer_known,
            retry=self._backend.retry_for(size),
            conversation_id=None if conversation_id is None else parse_id(conversation_id),
        )

    async def _answer(
        self,
        call: Callable[[], Awaitable[T]],
        answer_from: Callable[[View], T],
        is_known: Callable[[View], bool],
        *,
        retry: RetryPolicy | None = None,
        conversation_id: str | None = None,
    ) -> T:
        """Return the store's answer, or one from the last known state unless this view is authoritative."""
        if self._is_authoritative:
            return await self._backend.read_authoritative(self._owner, call)
        return await self._backend.read(
            self._owner, call, answer_from, is_known, retry=retry, conversation_id=conversation_id
        )

    async def _write(
        self,
        call: Callable[[], Awaitable[T]],
        accept: Callable[[OwnerQueue], Awaitable[T]],
        *,
        remember: Callable[[T], None],
        subject: Subject = None,
    ) -> T:
        if self._is_authoritative:
            return await self._write_through(self._remembering(call, remember, subject), repeat=True)
        return await self._backend.write(self._owner, self._remembering(call, remember, subject), accept)

    def _remembering(
        self, call: Callable[[], Awaitable[T]], remember: Callable[[T], None], subject: Subject
    ) -> Callable[[], Awaitable[T]]:
        """Return the call, extended to record its answer in the last known state, unless the answer is
        outdated."""

        async def remembered_call() -> T:
            with self._last_known.track_call(self._owner, subject) as tracked:
                try:
                    answer = await call()
                except ConversationNotFound as gone:
                    self._last_known.drop(self._owner, gone.conversation_id)
                    raise
                if not tracked.is_outdated:
                    remember(answer)
                return answer

        return remembered_call

    async def _read_from_store(self, call: Callable[[], Awaitable[T]]) -> T:
        """Read data that only the store has, or raise."""
        return await self._answer(call, _not_known, lambda view: False)

    async def _search(self, call: Callable[[], Awaitable[T]]) -> T:
        """Search the store's index. It lacks spooled turns, so an answer may be degraded."""
        backend = self._backend
        found: T = await self._answer(
            call, _not_known, lambda view: False, retry=backend.connection.search_retry
        )
        if self.degraded:
            backend.note_degraded(self._owner)
        return found

    async def _write_through(self, call: Callable[[], Awaitable[T]], *, repeat: bool = False) -> T:
        return await self._backend.write_through(self._owner, call, repeat=repeat)

    async def _accept(self, queue: OwnerQueue, action: Action, apply: Callable[[Any, datetime], T]) -> T:
        at = self.now()
        done = await self._backend.accept(queue, action, at, lambda: apply(queue.view.owner_data, at))
        return cast(T, done)

    def _require(self, view: View, conversation_id: str) -> None:
        """Raise unless the conversation is known to exist, because only the store could decide about
        others."""
        known = parse_uuid(conversation_id, field="conversation_id")
        if not view.has_log(known):
            raise StoreUnavailable(
                f"conversation {known} is not in the last known state: {self._backend.degraded_reason}"
            )
        if view.owner_data.get(known, now=self.now()) is None:
            raise ConversationNotFound(conversation_id)


def parse_id(conversation_id: object) -> str:
    return parse_uuid(conversation_id, field="conversation_id")


def _not_known(_: View) -> Any:
    raise StoreUnavailable
