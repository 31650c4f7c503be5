"""Remove open turns that the log has: their process ended before it could."""

from aforesaid.contracts import OPEN_TURNS, ConversationStore
from aforesaid.contracts.documents import decode_turn, turn_key
from aforesaid.contracts.listing import all_documents
from aforesaid.model.messages import OpenTurn


async def open_turns(store: ConversationStore, conversation_id: str) -> list[OpenTurn]:
    """Return the open turns of a conversation; remove those that the log has.

    Before a redaction this removes copies of the words that are redacted.
    """
    documents = all_documents(store, OPEN_TURNS, conversation_id=conversation_id)
    turns = [decode_turn(document) async for document in documents]
    return [turn for turn in turns if not await _is_answered(store, turn)]


async def _is_answered(store: ConversationStore, turn: OpenTurn) -> bool:
    if await store.entry(turn.conversation_id, turn.id) is None:
        return False
    await store.delete_document(OPEN_TURNS, turn_key(turn.id), conversation_id=turn.conversation_id)
    return True
