"""What an operation does: to what is known, at once, and to the store, when it is back.

Both are idempotent as far as the store's own rules make them so: turns by the ids of their messages,
conversations by theirs. Below: `operations`, the store contract.
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
    """Whether the store has looked at the operation and will never take it. A store that fails in any
    other way may take it later. What is damaged in it does not mend itself: to wait for that would hold up
    everything else of the owner, deleting what is damaged included."""
    return isinstance(error, Conflict | NotFound | InvalidInput | StoreDamaged)


def apply(operation: Operation, view: View) -> None:
    """Make what is known say what was accepted. For operations that an earlier process accepted."""
    owner_data, now = view.owner_data, operation.at
    match operation.deed:
        case Created(conversation=conversation):
            if not view.knows(conversation.id):
                owner_data.create(conversation, now=now)
                view.ends.add(conversation.id)
        case Resumed(session_id=session_id, conversation=conversation):
            if not view.knows(conversation.id):
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
    """Do to the store what was accepted, and give its answer. Raises what the store says to it.

    `turns` is the same store, or a layer around it that turns must pass.
    """
    match operation.deed:
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
    """Whether the message was stored, by an attempt whose answer was lost, and its words were taken out
    since: then they must not come back, nor be kept as a dead letter."""
    if message.message_id is None:
        return False
    there = await store.entry(conversation_id, message.message_id)
    return there is not None and TAG in there.message.tags


async def _resume(session_id: str, conversation: Conversation, store: ConversationStore) -> Conversation:
    """What was acknowledged is that this session is in this conversation; an older one, which could not
    be known, stays where it is."""
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
