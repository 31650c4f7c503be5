"""Operations accepted while the store is unavailable: their JSON form in the spool, their effect on the last
known state, and their replay to the store.

Message bodies are text that `model.wire` wrote: only its decoder reads everything that it writes, such as
half of a surrogate pair. Each message has an id and a time.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import islice
from typing import TypeAlias

import msgspec
from msgspec import Struct

from aforesaid.contracts import Appended, ConversationStore, Document, Place
from aforesaid.dialects.tombstones import TAG
from aforesaid.errors import (
    AforesaidError,
    Conflict,
    ConversationExists,
    InvalidInput,
    MessageConflict,
    NotFound,
    StoreDamaged,
)
from aforesaid.layers.resilient.last_known_state import View
from aforesaid.layers.resilient.spool import Ref
from aforesaid.model.conversations import Changes, Conversation, decode_record
from aforesaid.model.messages import Message
from aforesaid.model.wire import decode_message
from aforesaid.stores.encoded_logs import EncodedMessage


class Created(Struct, frozen=True, kw_only=True, tag="create"):
    """A new conversation."""

    conversation: Conversation


class Resumed(Struct, frozen=True, kw_only=True, tag="resume"):
    """An unknown session was bound to a new conversation."""

    session_id: str
    conversation: Conversation


class Bound(Struct, frozen=True, kw_only=True, tag="bind"):
    session_id: str
    conversation_id: str


class Unbound(Struct, frozen=True, kw_only=True, tag="unbind"):
    session_id: str


class Updated(Struct, frozen=True, kw_only=True, tag="update"):
    conversation_id: str
    changes: Changes


class TurnAdded(Struct, frozen=True, kw_only=True, tag="append"):
    """A turn, whose messages have ids and times."""

    conversation_id: str
    bodies: tuple[str, ...]
    expected_revision: int | None = None
    """The revision that the places of sealed messages belong to; None for messages that are not sealed."""

    @property
    def messages(self) -> list[Message]:
        return [decode_message(body) for body in self.bodies]

    def packed(self) -> list[EncodedMessage]:
        return [EncodedMessage(decode_message(body), body.encode()) for body in self.bodies]


class DocumentPut(Struct, frozen=True, kw_only=True, tag="put_document"):
    """A document of the owner or an open turn of a conversation. It replaces the previous version."""

    kind: str
    key: str
    data: bytes
    conversation_id: str | None = None


Action: TypeAlias = Created | Resumed | Bound | Unbound | Updated | TurnAdded | DocumentPut


class Operation(Struct, frozen=True, kw_only=True):
    """An accepted operation: the owner, the time and the action."""

    owner: str
    at: datetime
    action: Action

    @property
    def conversation_id(self) -> str | None:
        """The conversation that the operation changes; None for one of a session or the owner."""
        match self.action:
            case Created() | Resumed():
                return self.action.conversation.id
            case Bound() | Updated() | TurnAdded() | DocumentPut():
                return self.action.conversation_id
        return None


class _Named(Struct, frozen=True):
    id: str | None = None


class _AnyAction(Struct, frozen=True):
    conversation_id: str | None = None
    conversation: _Named = _Named()


class OperationHeader(Struct, frozen=True):
    """Owner, time and conversation of an operation, readable also when its action is unknown."""

    owner: str
    at: datetime
    action: _AnyAction = _AnyAction()

    @property
    def conversation_id(self) -> str | None:
        return self.action.conversation_id or self.action.conversation.id


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Operation, dec_hook=decode_record)
_about_decoder = msgspec.json.Decoder(OperationHeader)


def encode(operation: Operation) -> bytes:
    return _encoder.encode(operation)


def decode(payload: bytes) -> Operation:
    try:
        return _decoder.decode(payload)
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"a spooled operation cannot be read: {error}") from error


def read_header(payload: bytes) -> OperationHeader | None:
    """Return the header of a spooled operation; None when it cannot be read."""
    try:
        return _about_decoder.decode(payload)
    except msgspec.MsgspecError:
        return None


def turn_added(
    conversation_id: str, turn: Sequence[EncodedMessage], expected_revision: int | None = None
) -> TurnAdded:
    return TurnAdded(
        conversation_id=conversation_id,
        bodies=tuple(body.decode() for _, body in turn),
        expected_revision=expected_revision,
    )


def concerns(
    payload: bytes, owner: str, conversation_id: str | None, *, until: datetime | None = None
) -> bool:
    """Whether a spooled operation belongs to this owner, and to this conversation if one is given.

    With `until`, only if it was accepted by then.
    """
    # The header is readable also for actions of a newer release, so their owner's data can be erased.
    header = read_header(payload)
    if header is None or header.owner != owner or conversation_id not in (None, header.conversation_id):
        return False
    return until is None or header.at <= until


# Applying and replaying. Both are idempotent: messages and conversations are identified by their ids.

Answer = Appended | Conversation | Document | None


def is_refusal(error: AforesaidError) -> bool:
    """Whether the store will never accept the operation, however often it is replayed.

    `StoreDamaged` counts: waiting for a repair would block all other operations of the owner, including the
    deletion of the damaged data.
    """
    return isinstance(error, Conflict | NotFound | InvalidInput | StoreDamaged)


def apply(operation: Operation, view: View) -> None:
    """Apply an adopted operation to the view."""
    owner_data, now = view.owner_data, operation.at
    match operation.action:
        case Created(conversation=conversation):
            if not view.has_log(conversation.id):
                owner_data.create(conversation, now=now)
                view.ends.add(conversation.id)
        case Resumed(session_id=session_id, conversation=conversation):
            if not view.has_log(conversation.id):
                owner_data.create(conversation, now=now)
                view.ends.add(conversation.id)
            owner_data.bind(session_id, conversation.id, now=now)
        case Bound(session_id=session_id, conversation_id=conversation_id):
            view.assume(conversation_id, now=now)
            owner_data.bind(session_id, conversation_id, now=now)
        case Unbound(session_id=session_id):
            owner_data.unbind(session_id)
        case Updated(conversation_id=conversation_id, changes=changes):
            view.assume(conversation_id, now=now)
            owner_data.update(conversation_id, changes, now=now)
        case TurnAdded(conversation_id=conversation_id) as turn:
            view.assume(conversation_id, now=now)
            owner_data.append(conversation_id, turn.packed(), now=now)
        case DocumentPut(kind=kind, key=key, data=data, conversation_id=holder):
            if holder is not None:
                view.assume(holder, now=now)
            owner_data.put_document(Place(kind, key, holder), data, now=now, expected_version=None)


async def replay(operation: Operation, store: ConversationStore, turns: ConversationStore) -> Answer:
    """Apply the operation to the store and return the store's answer.

    `turns` is the same store, or a layer around it that seals turns.
    """
    match operation.action:
        case Created(conversation=conversation):
            return await _create(conversation, store)
        case Resumed(session_id=session_id, conversation=conversation):
            return await _resume(session_id, conversation, store)
        case Bound(session_id=session_id, conversation_id=conversation_id):
            await store.bind(session_id, conversation_id)
        case Unbound(session_id=session_id):
            await store.unbind(session_id)
        case Updated(conversation_id=conversation_id, changes=changes):
            return await store.update(conversation_id, changes)
        case TurnAdded() as turn:
            return await _append(turn, turns)
        case DocumentPut(kind=kind, key=key, data=data, conversation_id=holder):
            return await store.put_document(kind, key, data, conversation_id=holder)
    return None


async def _append(turn: TurnAdded, store: ConversationStore) -> Appended | None:
    messages, revision = turn.messages, turn.expected_revision
    try:
        return await store.append(turn.conversation_id, messages, expected_revision=revision)
    except MessageConflict:
        rest = [one for one in messages if not await _is_redacted(turn.conversation_id, one, store)]
        if len(rest) == len(messages):
            raise
        if not rest:
            return None
        return await store.append(turn.conversation_id, rest, expected_revision=revision)


async def _is_redacted(conversation_id: str, message: Message, store: ConversationStore) -> bool:
    """Whether an earlier attempt stored the message, and it was redacted since.

    Its text must neither be stored again nor be written to a dead letter.
    """
    if message.message_id is None:
        return False
    there = await store.entry(conversation_id, message.message_id)
    return there is not None and TAG in there.message.tags


async def _resume(session_id: str, conversation: Conversation, store: ConversationStore) -> Conversation:
    # The acknowledged answer bound the session to this conversation. An older conversation of the session,
    # which was unknown during the outage, is not changed.
    created = await _create(conversation, store)
    await store.bind(session_id, conversation.id)
    return created


async def _create(conversation: Conversation, store: ConversationStore) -> Conversation:
    try:
        return await store.create(conversation)
    except ConversationExists:
        there = await store.get(conversation.id)
        # A name determines the id: an existing conversation of this name is the same one.
        if there is None or (conversation.name is None and there.created_at != conversation.created_at):
            raise
        return there


# One owner's queue of spooled operations, and the view that includes them.
#
# A queue exists from the first spooled operation until the last one is stored. Meanwhile all writes of the
# owner go through it, so that their order is kept. It belongs to one event loop.


# During a replay, one new operation is accepted per this many stored ones, so that the backlog shrinks.
PACE = 2

# The longest time that a new operation waits during a replay: a stalled store must not delay callers.
LONGEST_WAIT = 0.25


class OwnerQueue:
    """The operations of one owner that are not stored yet."""

    def __init__(self, owner: str, view: View) -> None:
        self.owner = owner
        self.view = view
        self._backlog: deque[Ref] = deque()
        self._stored: set[Ref] = set()
        self._reservations = 0
        # Conversations that an accepted operation changes. The store's answers about others are
        # current.
        self.changed_conversations: set[str] = set()
        self.follow_loop()

    def follow_loop(self) -> None:
        """Create locks and events for the running event loop."""
        # Held from reading the view to changing it.
        self.decision_lock = asyncio.Lock()
        self.replay_lock = asyncio.Lock()
        self.drained = asyncio.Event()
        self._draining = False
        self._credit = 0
        self._changed = asyncio.Event()

    def is_unaffected(self, conversation_id: str | None) -> bool:
        """Whether no accepted operation changes this conversation."""
        return conversation_id is not None and conversation_id not in self.changed_conversations

    @property
    def empty(self) -> bool:
        """Whether the queue has no operation and no reservation."""
        return not self._backlog and not self._reservations

    @property
    def depth(self) -> int:
        return len(self._backlog) - len(self._stored)

    @property
    def oldest(self) -> datetime | None:
        """When the oldest operation was accepted."""
        return self._backlog[0].at if self._backlog else None

    @contextmanager
    def reserved(self) -> Iterator[None]:
        """Keep the queue alive while a caller is about to add an operation."""
        self._reservations += 1
        try:
            yield
        finally:
            self._reservations -= 1
            self._changed.set()

    def add(self, ref: Ref) -> None:
        self._backlog.append(ref)

    def add_adopted(self, refs: Sequence[Ref]) -> None:
        """Insert operations of another process by time of acceptance."""
        self._backlog = deque(sorted((*refs, *self._backlog), key=_accepted_at))

    def first(self, count: int) -> list[Ref]:
        """Return the oldest operations that are not stored."""
        waiting = (ref for ref in self._backlog if ref not in self._stored)
        return list(islice(waiting, count))

    def mark_stored(self, refs: Iterable[Ref]) -> None:
        """Remove operations that are stored or set aside."""
        before = len(self._stored)
        self._stored.update(refs)
        self._credit += len(self._stored) - before
        # Turns of different conversations are stored out of order, but the oldest one determines the age.
        while self._backlog and self._backlog[0] in self._stored:
            self._stored.remove(self._backlog.popleft())
        self._changed.set()

    def drop(self, refs: Iterable[Ref]) -> None:
        """Remove operations without storing them."""
        gone = set(refs)
        self._backlog = deque(ref for ref in self._backlog if ref not in gone)
        self._changed.set()

    @contextmanager
    def draining(self) -> Iterator[None]:
        """Slow down new operations while the backlog is replayed."""
        self._draining = True
        try:
            yield
        finally:
            self._draining = False
            self._credit = 0
            self._changed.set()

    async def pace(self) -> None:
        """Delay a new operation while the backlog is replayed."""
        if not self._draining:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_WAIT):
                while self._draining and self._credit < PACE and not self.drained.is_set():
                    await self.wait_for_change()
        # Each stored operation is a credit; a new one costs two.
        self._credit = max(0, self._credit - PACE)

    async def wait_for_change(self) -> None:
        """Wait until an operation is added, stored or removed."""
        self._changed.clear()
        await self._changed.wait()


def _accepted_at(ref: Ref) -> datetime:
    assert ref.at is not None
    return ref.at
