"""Accept one owner's writes while the store is unavailable.

Each method decides by the view of the owner's queue whether the write is valid, writes the operation to the
spool, and applies it to the view once it is durable.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import ExitStack
from datetime import datetime
from typing import Any, TypeVar, cast

from msgspec.structs import replace

from aforesaid.contracts import (
    Appended,
    ConversationStore,
    Document,
    Entry,
    LogSnapshot,
    Place,
    check_data,
    without_head,
)
from aforesaid.errors import ConversationExists, ConversationNotFound, StoreClosed, StoreUnavailable
from aforesaid.layers.resilient.last_known_state import View
from aforesaid.layers.resilient.operations import (
    Action,
    Bound,
    Created,
    DocumentPut,
    Operation,
    OwnerQueue,
    Resumed,
    Unbound,
    Updated,
    encode,
    turn_added,
)
from aforesaid.layers.resilient.spool import Ref
from aforesaid.layers.resilient.state import ResilientState
from aforesaid.model.conversations import Changes, Conversation, check_revision, stamp_for
from aforesaid.model.ids import MARK, new_id, parse_name, parse_uuid
from aforesaid.model.messages import Message
from aforesaid.stores.encoded_logs import EncodedMessage, encode_messages, split_known
from aforesaid.stores.owner_data import OwnerData

# Generate ids for messages without one, so that a retried turn is stored once.
#
# The layer removes generated ids from its answers: a message without an id reads back without one.


_LENGTH = len(MARK) + 36
# The key under which a snapshot caches itself without generated ids.
_WITHOUT_IDS = "without generated ids"


def with_ids(messages: Sequence[Message]) -> list[Message]:
    """Return the messages, each with an id."""
    return [
        message if message.message_id is not None else replace(message, message_id=MARK + new_id())
        for message in messages
    ]


def without_generated_ids(entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries without generated message ids."""
    return [_without_id(entry) if _has_generated_id(entry.message) else entry for entry in entries]


def without_generated_ids_in(what: Appended, turn: Sequence[Message]) -> Appended:
    """Return the result of an append without generated ids.

    A known entry with a generated id was stored by an attempt whose answer was lost: for the caller it is
    new.
    """
    if not any(_has_generated_id(message) for message in turn):
        return what
    fresh = [entry for entry in what.known if _has_generated_id(entry.message)]
    return Appended(
        conversation=lambda: what.conversation,
        new=lambda: tuple(without_generated_ids((*fresh, *what.new))),
        known=tuple(entry for entry in what.known if not _has_generated_id(entry.message)),
    )


def snapshot_without_generated_ids(snapshot: LogSnapshot) -> LogSnapshot:
    """Return the snapshot without generated message ids."""
    known: LogSnapshot | None = snapshot.cached(_WITHOUT_IDS)
    if known is None:
        known = snapshot
        if any(_has_generated_id(entry.message) for entry in (*snapshot.front, *snapshot.tail)):
            known = replace(
                snapshot,
                front=without_generated_ids(snapshot.front),
                tail=without_generated_ids(snapshot.tail),
                _cache={},
            )
        snapshot.cache(_WITHOUT_IDS, known)
    return known


def _has_generated_id(message: Message) -> bool:
    message_id = message.message_id
    return message_id is not None and message_id.startswith(MARK) and len(message_id) == _LENGTH


def _without_id(entry: Entry) -> Entry:
    return replace(entry, message=replace(entry.message, message_id=None))


T = TypeVar("T")


class Acceptance:
    """The writes of one owner. `now` returns the store's time."""

    def __init__(self, state: ResilientState, now: Callable[[], datetime]) -> None:
        self._state = state
        self._now = now

    async def create(self, queue: OwnerQueue, conversation: Conversation) -> Conversation:
        async with queue.decision_lock:
            if queue.view.owner_data.get(conversation.id, now=self._now()) is not None:
                raise ConversationExists(conversation.id)
            action = Created(conversation=conversation)
            await self._accept(queue, action, lambda data, now: data.create(conversation, now=now))
            # No other process can have written to it: the next sequence number is certain.
            queue.view.ends.add(conversation.id)
            return conversation

    async def update(self, queue: OwnerQueue, conversation_id: str, changes: Changes) -> Conversation:
        async with queue.decision_lock:
            self._require(queue.view, conversation_id)
            action = Updated(conversation_id=conversation_id, changes=changes)
            return await self._accept(
                queue, action, lambda data, now: data.update(conversation_id, changes, now=now)
            )

    async def resume(
        self, queue: OwnerQueue, session_id: str, fresh: Conversation, active_since: datetime | None
    ) -> Conversation:
        async with queue.decision_lock:
            bound = queue.view.owner_data.active_session(
                session_id, now=self._now(), active_since=active_since
            )
            if bound is not None:
                self._state.note_degraded()
                return bound
            resumed = await self._accept(
                queue,
                Resumed(session_id=session_id, conversation=fresh),
                lambda data, now: data.resume(session_id, fresh, now=now, active_since=active_since),
            )
            queue.view.ends.add(resumed.id)
            return resumed

    async def bind(self, queue: OwnerQueue, session_id: str, conversation_id: str) -> None:
        async with queue.decision_lock:
            self._require(queue.view, conversation_id)
            parse_name(session_id, field="session_id")
            action = Bound(session_id=session_id, conversation_id=conversation_id)
            await self._accept(
                queue, action, lambda data, now: data.bind(session_id, conversation_id, now=now)
            )

    async def unbind(self, queue: OwnerQueue, session_id: str) -> None:
        async with queue.decision_lock:
            action = Unbound(session_id=parse_name(session_id, field="session_id"))
            await self._accept(queue, action, lambda data, now: data.unbind(session_id))

    async def put_document(self, queue: OwnerQueue, place: Place, data: bytes) -> Document:
        async with queue.decision_lock:
            kind, key, holder = place
            action = DocumentPut(kind=kind, key=key, data=check_data(data), conversation_id=holder)
            if holder is not None:
                # The conversation may exist without having been read here. The store decides on replay.
                queue.view.assume(holder, now=self._now())
            return await self._accept(
                queue,
                action,
                lambda owner_data, now: owner_data.put_document(place, data, now=now, expected_version=None),
            )

    async def append(
        self, queue: OwnerQueue, conversation_id: str, turn: Sequence[Message], expected_revision: int | None
    ) -> Appended:
        """Accept a turn. Without the decision lock, so that concurrent turns share one fsync."""
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        if without_head(turn)[1] is not None:
            # The turn is sealed for a place that another process may take. The encrypted layer seals it
            # again.
            raise StoreUnavailable(
                f"conversation {conversation_id} cannot be written to: {self._state.degraded_reason}"
            )
        view, now = queue.view, self._now()
        log = view.owner_data.logs.get(conversation_id)
        # A spooled turn keeps the time of its acceptance; the store would assign the time of the replay.
        packed = _with_times(turn, stamp_for(None if log is None else log.record.last_message_at, now=now))
        if expected_revision is not None and conversation_id not in view.ends:
            raise StoreUnavailable(
                f"the end of conversation {conversation_id} is not known: {self._state.degraded_reason}"
            )
        # The conversation may exist without having been read here. The store decides on replay.
        view.assume(conversation_id, now=now)
        if view.owner_data.get(conversation_id, now=now) is None:
            raise ConversationNotFound(conversation_id)
        new, _ = split_known(view.owner_data.logs[conversation_id], packed, now=now)
        # The retry of an accepted turn: nothing to write.
        if not new:
            return view.owner_data.append(conversation_id, packed, now=now)
        check_revision(
            conversation_id, view.owner_data.logs[conversation_id].record.revision, expected_revision
        )
        action = turn_added(conversation_id, packed, expected_revision)
        return await self._accept(
            queue, action, lambda data, now: data.append(conversation_id, packed, now=now)
        )

    async def _accept(
        self, queue: OwnerQueue, action: Action, apply: Callable[[OwnerData, datetime], T]
    ) -> T:
        """Write the operation to the spool; once it is durable, apply it to the view and return the result.

        The queue stays until then, also when the caller is cancelled: the operation may still reach the disk,
        and later operations must follow it.
        """
        state, at = self._state, self._now()
        if state.spool is None:
            raise StoreClosed
        state.note_degraded()
        operation = Operation(owner=queue.owner, at=at, action=action)
        if operation.conversation_id is not None:
            changed = parse_uuid(operation.conversation_id, field="conversation_id")
            # From now on the store's answers about this conversation are outdated.
            queue.changed_conversations.add(changed)
        payload = encode(operation)
        reservation = ExitStack()

        def on_durable(ref: Ref | None) -> Any:
            try:
                with reservation:
                    return None if ref is None else self._enqueue(queue, ref, at, apply)
            finally:
                state.remove_if_empty(queue)

        reservation.enter_context(queue.reserved())
        return cast(T, await state.spool.write(payload, on_durable))

    def _enqueue(
        self, queue: OwnerQueue, ref: Ref, at: datetime, apply: Callable[[OwnerData, datetime], T]
    ) -> T:
        ref.at = at
        queue.add(ref)
        self._state.accepted.add()
        self._state.wake()
        return apply(queue.view.owner_data, at)

    def _require(self, view: View, conversation_id: str) -> None:
        """Raise unless the conversation is known to exist, because only the store could decide about
        others."""
        known = parse_uuid(conversation_id, field="conversation_id")
        if not view.has_log(known):
            raise StoreUnavailable(
                f"conversation {known} is not in the last known state: {self._state.degraded_reason}"
            )
        if view.owner_data.get(known, now=self._now()) is None:
            raise ConversationNotFound(conversation_id)


def _with_times(turn: Sequence[Message], stamp: datetime) -> list[EncodedMessage]:
    return encode_messages(
        [message if message.timestamp else message.with_(timestamp=stamp) for message in turn]
    )


def create_once(
    inner: ConversationStore, conversation: Conversation
) -> Callable[[], Awaitable[Conversation]]:
    """Return a call that creates the conversation. If the answer of an attempt was lost, the next one must
    not raise a conflict."""
    attempts = 0

    async def create() -> Conversation:
        nonlocal attempts
        attempts += 1
        try:
            return await inner.create(conversation)
        except ConversationExists:
            there = await inner.get(conversation.id) if attempts > 1 else None
            if there is None or there.created_at != conversation.created_at:
                raise
            return there

    return create
