"""The documents of open turns: their key and content, and their removal when the log has the turn."""

from collections.abc import Sequence
from hashlib import sha256

import msgspec

from aforesaid.contracts import OPEN_TURNS, ConversationStore, Document
from aforesaid.contracts.documents import LONGEST_KEY
from aforesaid.contracts.listing import all_documents
from aforesaid.errors import StoreDamaged
from aforesaid.model.messages import Message, OpenTurn
from aforesaid.model.wire import decode_message, encode_message


def turn_id_of(words: Sequence[Message]) -> str:
    """Return the id of a turn: that of its first message."""
    assert words[0].message_id is not None, "the intake gives every message an id"
    return words[0].message_id


def key_of(turn_id: str) -> str:
    """Return the key of the turn's document. A message id may be longer than a key."""
    return turn_id if len(turn_id.encode()) <= LONGEST_KEY else sha256(turn_id.encode()).hexdigest()


def encoded(words: Sequence[Message]) -> bytes:
    """Return the content of the document."""
    return msgspec.json.encode([msgspec.Raw(encode_message(message)) for message in words])


def open_turn_of(document: Document) -> OpenTurn:
    """Return the open turn that a document contains."""
    assert document.conversation_id is not None
    try:
        bodies = msgspec.json.decode(document.data, type=list[msgspec.Raw])
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"an open turn cannot be read: {error}") from error
    messages = tuple(decode_message(bytes(body)) for body in bodies)
    return OpenTurn(
        id=turn_id_of(messages),
        conversation_id=document.conversation_id,
        messages=messages,
        opened_at=document.updated_at,
    )


async def remove_if_answered(store: ConversationStore, turn: OpenTurn) -> bool:
    """Return whether the log has the turn. Remove it then: the process ended before it could."""
    if await store.entry(turn.conversation_id, turn.id) is None:
        return False
    await store.delete_document(OPEN_TURNS, key_of(turn.id), conversation_id=turn.conversation_id)
    return True


async def remove_answered(store: ConversationStore, conversation_id: str) -> None:
    """Remove the open turns that the log has. They would still contain words that are redacted there."""
    documents = all_documents(store, OPEN_TURNS, conversation_id=conversation_id)
    for turn in [open_turn_of(document) async for document in documents]:
        await remove_if_answered(store, turn)
