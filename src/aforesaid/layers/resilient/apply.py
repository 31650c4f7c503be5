"""Apply a spooled operation to the last known state, and replay it to the store.

Both are idempotent: messages and conversations are identified by their ids.
"""

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
from aforesaid.layers.resilient.operations import (
    Bound,
    Created,
    DocumentPut,
    Operation,
    Resumed,
    TurnAdded,
    Unbound,
    Updated,
)
from aforesaid.model.conversations import Conversation
from aforesaid.model.messages import Message

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
        case DocumentPut(kind=kind, key=key, data=data):
            owner_data.put_document(Place(kind, key), data, now=now, expected_version=None)


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
        case DocumentPut(kind=kind, key=key, data=data):
            return await store.put_document(kind, key, data)
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
        if there is None or there.created_at != conversation.created_at:
            raise
        return there
