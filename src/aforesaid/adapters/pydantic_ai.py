"""Pydantic AI: `AforesaidConversationStore`, whose entries are messages of the log.

A record is a document with compare-and-swap, in its conversation. An entry belongs to the conversation that
stored it; an index of entries by id lets forks point into other conversations.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from pydantic import TypeAdapter
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from aforesaid.adapters._transcripts import (
    Transcript,
    check_manager,
    document_of_each,
    message_of,
    names_of_calls,
    parts_of,
    source_of,
)
from aforesaid.contracts import Document
from aforesaid.errors import DocumentConflict
from aforesaid.memory.interface import ManagerProtocol
from aforesaid.model.messages import Message, Role

__all__ = ["AforesaidConversationStore"]

FRAMEWORK = "pydantic-ai"
# The record of a conversation is in it: it quotes the tool calls that wait for an approval.
RECORDS = "state/pydantic-ai.records"
KEY = "record"
# Which conversation has an entry, and which entry it follows, by its id: a chain may continue in another
# conversation.
ENTRIES = "state/pydantic-ai.entries"
_RECORD: TypeAdapter[ConversationRecord] = TypeAdapter(ConversationRecord)


class _Place(msgspec.Struct, array_like=True):
    """Where an entry is."""

    conversation: str
    parent: str | None


class _Written(msgspec.Struct):
    """A record as it is stored, with the entries that are not in the log yet."""

    record: Any
    entries: list[Any]


class _Stored(NamedTuple):
    record: ConversationRecord
    version: int


class AforesaidConversationStore(ConversationStore):
    """Conversations of agents in one owner's memory.

        store = AforesaidConversationStore(memory.of("kim"))
        conversation = await store.load("c1") or Conversation(conversation_id="c1")
        result = await agent.run("Hello", conversation=conversation)
        await store.save(result)

    Deleting a conversation keeps its entries while a fork may point at them.
    """

    def __init__(self, manager: ManagerProtocol, *, prefix: str = "pydantic-ai/") -> None:
        self.manager = check_manager(manager)
        self.prefix = prefix

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """Return the record of a conversation."""
        stored = await self._stored(conversation_id)
        return None if stored is None else stored.record

    async def read_records(
        self, *, scope: str | None = None, limit: int | None = None
    ) -> Sequence[ConversationRecord]:
        """Return the records of a scope, or all, newest first."""
        matching = [record for record in await self._records() if scope is None or record.scope == scope]
        return sorted(matching, key=lambda record: record.updated_at, reverse=True)[:limit]

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Store the record together with the new entries, and then move the entries to the log.

        A write that loses against a concurrent one stores nothing. One that is interrupted before the move is
        completed by the next reader or writer.
        """
        conversation = record.conversation_id
        stored = await self._stored(conversation)
        if (None if stored is None else stored.record.revision) != expected_revision:
            raise ConversationConflict(conversation)
        new_ids = {entry.id for entry in new_entries}
        is_earlier = record.head_id is not None and record.head_id not in new_ids
        if is_earlier and await self._place(str(record.head_id)) is None:
            raise ConversationConflict(conversation)
        written = _Written(
            _RECORD.dump_python(record, mode="json"), [source_of_entry(one) for one in new_entries]
        )
        try:
            document = await self._put(conversation, written, 0 if stored is None else stored.version)
        except DocumentConflict as error:
            raise ConversationConflict(conversation) from error
        await self._complete(conversation, document)

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Remove the record, and its messages unless another conversation continues them."""
        stored = await self._stored(conversation_id)
        if stored is None or stored.record.revision != expected_revision:
            raise ConversationConflict(conversation_id)
        name = self.prefix + conversation_id
        try:
            await self.manager.delete_document(
                RECORDS, KEY, conversation_id=name, expected_version=stored.version
            )
        except DocumentConflict as error:
            raise ConversationConflict(conversation_id) from error
        await self._remove_unreachable(name)

    async def _remove_unreachable(self, name: str) -> None:
        tips = [tip for record in await self._records() for tip in (record.head_id, *record.branches)]
        reached = {entry.id for tip in tips if tip is not None for entry in await self._chain(tip, None)}
        own = await Transcript(self.manager, name).messages()
        ids = [str(message.message_id) for message in own]
        if reached.isdisjoint(ids):
            await self.manager.delete_conversation(name)
            for entry_id in ids:
                await self.manager.delete_document(ENTRIES, entry_id)

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Return one entry. Raise `KeyError` for an unknown id, as the reference does."""
        (entry,) = await self.read_history(entry_id, limit=1)
        return entry

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        """Return the chain that ends at an entry, oldest first; each conversation is read once.

        A fork whose first conversation was deleted starts with its own entries.
        """
        if head_id is None or limit == 0:
            return []
        found = await self._chain(head_id, limit)
        if not found:
            raise KeyError(head_id)
        return found

    async def _chain(self, head_id: str, limit: int | None) -> list[ConversationEntry]:
        found: list[ConversationEntry] = []
        known: dict[str, ConversationEntry] = {}
        current: str | None = head_id
        while current is not None and (limit is None or len(found) < limit):
            if current not in known:
                place = await self._place(current)
                if place is not None:
                    known |= await self._entries_in(place.conversation)
            if current not in known:
                break
            found.append(known[current])
            current = known[current].parent_id
        return found[::-1]

    async def _entries_in(self, name: str) -> dict[str, ConversationEntry]:
        found: dict[str, ConversationEntry] = {}
        messages = await Transcript(self.manager, name).messages()
        tools = names_of_calls(messages)
        for message in messages:
            entry_id = str(message.message_id)
            source = source_of(message, FRAMEWORK)
            # The log keeps the words of a redacted message nowhere; the index knows its place in the chain.
            place = await self._place(entry_id) if source is None else None
            parent = None if place is None else place.parent
            found[entry_id] = _redacted(message, parent, tools) if source is None else _entry(source)
        return found

    async def _records(self) -> list[ConversationRecord]:
        found = await document_of_each(self.manager, self.prefix, RECORDS, KEY)
        return [_stored(document).record for document in found]

    async def _stored(self, conversation_id: str) -> "_Stored | None":
        """Return the record of a conversation, after completing a write that was interrupted."""
        name = self.prefix + conversation_id
        document = await self.manager.get_document(RECORDS, KEY, conversation_id=name)
        return None if document is None else _stored(await self._complete(conversation_id, document))

    async def _complete(self, conversation_id: str, document: Document) -> Document:
        """Move the entries of a write to the log; return the document without them."""
        written = msgspec.json.decode(document.data, type=_Written)
        if not written.entries:
            return document
        name = self.prefix + conversation_id
        # An entry that another process has moved already is stored once, by its id.
        await Transcript(self.manager, name).append([to_log(source) for source in written.entries])
        for source in written.entries:
            place = msgspec.json.encode(_Place(name, source["parent_id"]))
            await self.manager.put_document(ENTRIES, source["id"], place)
        try:
            return await self._put(conversation_id, _Written(written.record, []), document.version)
        except DocumentConflict:
            return document  # its version no longer counts, so that a write of this caller conflicts

    async def _put(self, conversation_id: str, written: "_Written", version: int) -> Document:
        name, data = self.prefix + conversation_id, msgspec.json.encode(written)
        return await self.manager.put_document(
            RECORDS, KEY, data, conversation_id=name, expected_version=version
        )

    async def _place(self, entry_id: str) -> _Place | None:
        found = await self.manager.get_document(ENTRIES, entry_id)
        return None if found is None else msgspec.json.decode(found.data, type=_Place)


def source_of_entry(entry: ConversationEntry) -> dict[str, Any]:
    """Return an entry as plain JSON."""
    raw = msgspec.json.decode(ModelMessagesTypeAdapter.dump_json([entry.message]))[0]
    return {"id": entry.id, "parent_id": entry.parent_id, "kind": entry.kind, "message": raw}


def to_log(source: dict[str, Any]) -> Message:
    """Return an entry as a message: its texts, tool calls or results, and the entry itself as source."""
    raw = source["message"]
    blocks = [block for part in raw["parts"] if (block := _block(part)) is not None]
    role: Role = "assistant" if raw["kind"] == "response" else "user"
    only_text = len(blocks) == 1 and blocks[0]["type"] == "text"
    content = blocks[0]["text"] if only_text else blocks or ""
    return message_of(FRAMEWORK, role, "", source, message_id=source["id"]).with_(content=content)


def _block(part: dict[str, Any]) -> dict[str, Any] | None:
    """Return a part as a block that every provider's dialect understands; None for thinking and the like."""
    match part["part_kind"]:
        case "text" | "user-prompt" | "system-prompt":
            text = _text(part["content"])
            return {"type": "text", "text": text} if text else None
        case "tool-call":
            arguments = part.get("args") or {}
            name, call_id = part["tool_name"], part["tool_call_id"]
            return {"type": "tool_use", "id": call_id, "name": name, "input": _arguments(arguments)}
        case "tool-return" | "retry-prompt" if part.get("tool_name"):
            call_id, content = part["tool_call_id"], _text(part.get("content"))
            return {"type": "tool_result", "tool_use_id": call_id, "content": content}
    return None


def _arguments(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return arguments
    try:
        return msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        return {"unparsed_arguments": arguments}


def _entry(source: Any) -> ConversationEntry:
    (restored,) = ModelMessagesTypeAdapter.validate_python([source["message"]])
    return ConversationEntry(
        id=source["id"], parent_id=source["parent_id"], message=restored, kind=source["kind"]
    )


def _redacted(message: Message, parent: str | None, tools: Mapping[str, str]) -> ConversationEntry:
    """Return the entry of a redacted message: the mark, and its calls or results without words."""
    text, calls, answers = parts_of(message)
    made: ModelMessage
    if message.role == "assistant":
        words = [TextPart(text)] if text else []
        made = ModelResponse(parts=[*words, *(ToolCallPart(one.name, {}, one.id) for one in calls)])
    else:
        asked = [UserPromptPart(text)] if text else []
        results = [ToolReturnPart(tools.get(one.id, one.id), one.text, one.id) for one in answers]
        made = ModelRequest(parts=[*results, *asked])
    return ConversationEntry(id=str(message.message_id), parent_id=parent, message=made)


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(part if isinstance(part, str) else "" for part in content)
    return "" if content is None else msgspec.json.encode(content).decode()


def _stored(document: Document) -> _Stored:
    written = msgspec.json.decode(document.data, type=_Written)
    return _Stored(_RECORD.validate_python(written.record), document.version)
