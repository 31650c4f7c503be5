"""Open turns: store a user's words before the answer exists.

An open turn is a document of its conversation, so it is durable, encrypted, copied, exported and removed like
the conversation, and no window, count or search reads it. The answer closes it: the whole turn is appended to
the log in one step, and the document is removed. After a crash between these two steps the document is
outdated, because the log has its first message; `unanswered` removes it then.
"""

from collections.abc import Sequence
from hashlib import sha256

import msgspec

from aforesaid.contracts import OPEN_TURNS, ConversationStore, Document
from aforesaid.contracts.documents import LONGEST_KEY
from aforesaid.contracts.listing import all_documents
from aforesaid.errors import (
    ConversationNotFound,
    DocumentConflict,
    InvalidInput,
    MessageConflict,
    StoreDamaged,
    StoreUnavailable,
    shown,
)
from aforesaid.intake.messages import Intake
from aforesaid.model.ids import parse_name, parse_uuid
from aforesaid.model.messages import Message, OpenTurn
from aforesaid.model.wire import decode_message, encode_message


class OpenTurns:
    """One owner's open turns."""

    def __init__(self, store: ConversationStore, intake: Intake) -> None:
        self._store = store
        self._intake = intake

    async def open_turn(self, conversation_id: str, messages: Sequence[Message]) -> OpenTurn:
        """Store the words of a turn that has no answer yet, outside the log.

        The words are durable on return. They are in no window. To answer, append the whole turn with the same
        first message and call `discard_turn`; `turn` and the agents do both. Opening a turn again with the
        same first message id changes nothing, or adds the messages that follow the stored ones; other words
        raise `MessageConflict`.
        """
        if isinstance(messages, str) or not isinstance(messages, Sequence) or not messages:
            raise InvalidInput(
                f"messages must be a list with the user's words; got {shown(messages)}", field="messages"
            )
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        words = tuple(await self._intake.stored_form(conversation_id, messages))
        try:
            stored = await self._put(conversation_id, words, expected_version=0)
        except DocumentConflict:
            stored = await self._extend(conversation_id, words)
        except StoreUnavailable:
            # Only an unconditional write can be spooled.
            stored = await self._put(conversation_id, words)
        return _decode(stored)

    async def unanswered(self, conversation_id: str) -> list[OpenTurn]:
        """Return the open turns of a conversation, oldest first: questions whose answer failed, was lost with
        its process, or is still being made.
        """
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        found = all_documents(self._store, OPEN_TURNS, conversation_id=conversation_id)
        turns = [_decode(document) async for document in found]
        still_open = [turn for turn in turns if not await self._is_answered(turn)]
        return sorted(still_open, key=lambda turn: (turn.opened_at, turn.id))

    async def discard_turn(self, conversation_id: str, turn_id: str) -> bool:
        """Remove an open turn with its words; return whether there was one."""
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        key = _key(parse_name(turn_id, field="turn_id"))
        return await self._store.delete_document(OPEN_TURNS, key, conversation_id=conversation_id)

    async def _put(
        self, conversation_id: str, words: tuple[Message, ...], expected_version: int | None = None
    ) -> Document:
        return await self._store.put_document(
            OPEN_TURNS,
            _key(_turn_id(words)),
            _encode(words),
            conversation_id=conversation_id,
            expected_version=expected_version,
        )

    async def _extend(self, conversation_id: str, words: tuple[Message, ...]) -> Document:
        """Add the messages that follow the stored ones."""
        turn_id = _turn_id(words)
        stored = await self._store.get_document(OPEN_TURNS, _key(turn_id), conversation_id=conversation_id)
        if stored is None:  # closed in between
            return await self._put(conversation_id, words)
        before = _decode(stored).messages
        if len(before) > len(words) or not all(map(Message.same_content_as, before, words)):
            raise MessageConflict(conversation_id, turn_id)
        if len(before) == len(words):
            return stored
        return await self._put(conversation_id, words, expected_version=stored.version)

    async def _is_answered(self, turn: OpenTurn) -> bool:
        """Return whether the log has the turn. Remove it then: the process ended before it could."""
        if await self._store.entry(turn.conversation_id, turn.id) is None:
            return False
        await self.discard_turn(turn.conversation_id, turn.id)
        return True


async def has_open_turns(store: ConversationStore, conversation_id: str) -> bool:
    """Return whether the conversation has words without an answer."""
    try:
        return bool(await store.documents(OPEN_TURNS, conversation_id=conversation_id, limit=1))
    except ConversationNotFound:
        return False


def _turn_id(words: Sequence[Message]) -> str:
    assert words[0].message_id is not None, "the intake gives every message an id"
    return words[0].message_id


def _key(turn_id: str) -> str:
    """Return the key of the turn's document. A message id may be longer than a key."""
    return turn_id if len(turn_id.encode()) <= LONGEST_KEY else sha256(turn_id.encode()).hexdigest()


def _encode(words: Sequence[Message]) -> bytes:
    return msgspec.json.encode([msgspec.Raw(encode_message(message)) for message in words])


def _decode(document: Document) -> OpenTurn:
    assert document.conversation_id is not None
    try:
        bodies = msgspec.json.decode(document.data, type=list[msgspec.Raw])
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"an open turn cannot be read: {error}") from error
    messages = tuple(decode_message(bytes(body)) for body in bodies)
    return OpenTurn(
        id=_turn_id(messages),
        conversation_id=document.conversation_id,
        messages=messages,
        opened_at=document.updated_at,
    )
