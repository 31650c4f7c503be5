"""Pydantic AI: `AforesaidConversationStore`, whose entries are messages of the log.

A record is a document with compare-and-swap. An entry belongs to the conversation that stored it; an index of
entries by id lets forks point into other conversations.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import msgspec
from pydantic import TypeAdapter
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelRequest

from aforesaid.adapters._transcripts import (
    Transcript,
    check_manager,
    documents_in,
    message_of,
    source_of,
)
from aforesaid.contracts import Document
from aforesaid.errors import DocumentConflict
from aforesaid.memory.interface import ManagerProtocol
from aforesaid.model.messages import Message, Role

__all__ = ["AforesaidConversationStore"]

FRAMEWORK = "pydantic-ai"
RECORDS = "state/pydantic-ai.records"
# Which conversation has an entry, by its id: a chain may continue in another conversation.
ENTRIES = "state/pydantic-ai.entries"
_RECORD: TypeAdapter[ConversationRecord] = TypeAdapter(ConversationRecord)


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
        document = await self.manager.get_document(RECORDS, conversation_id)
        return None if document is None else _record(document)

    async def read_records(
        self, *, scope: str | None = None, limit: int | None = None
    ) -> Sequence[ConversationRecord]:
        """Return the records of a scope, or all, newest first."""
        records = [_record(document) for document in await documents_in(self.manager, RECORDS)]
        matching = [record for record in records if scope is None or record.scope == scope]
        return sorted(matching, key=lambda record: record.updated_at, reverse=True)[:limit]

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Store new entries in the log, then the record, which makes them part of the history.

        Entries of a write that loses against a concurrent one stay in the log, where search finds them; no
        history reaches them.
        """
        conversation = record.conversation_id
        document = await self.manager.get_document(RECORDS, conversation)
        stored = None if document is None else _record(document)
        if (None if stored is None else stored.revision) != expected_revision:
            raise ConversationConflict(conversation)
        new_ids = {entry.id for entry in new_entries}
        is_earlier = record.head_id is not None and record.head_id not in new_ids
        if is_earlier and await self.manager.get_document(ENTRIES, str(record.head_id)) is None:
            raise ConversationConflict(conversation)
        name = self.prefix + conversation
        await Transcript(self.manager, name).append([to_log(entry) for entry in new_entries])
        for entry in new_entries:
            await self.manager.put_document(ENTRIES, entry.id, name.encode())
        try:
            await self.manager.put_document(
                RECORDS,
                conversation,
                _RECORD.dump_json(record),
                expected_version=0 if document is None else document.version,
            )
        except DocumentConflict as error:
            raise ConversationConflict(conversation) from error

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Remove the record, and its messages unless another conversation continues them."""
        document = await self.manager.get_document(RECORDS, conversation_id)
        if document is None or _record(document).revision != expected_revision:
            raise ConversationConflict(conversation_id)
        try:
            await self.manager.delete_document(RECORDS, conversation_id, expected_version=document.version)
        except DocumentConflict as error:
            raise ConversationConflict(conversation_id) from error
        await self._remove_unreachable(self.prefix + conversation_id)

    async def _remove_unreachable(self, name: str) -> None:
        records = [_record(document) for document in await documents_in(self.manager, RECORDS)]
        tips = [tip for record in records for tip in (record.head_id, *record.branches)]
        reached = {entry.id for tip in tips if tip is not None for entry in await self.read_history(tip)}
        own = await Transcript(self.manager, name).messages()
        ids = [str(message.message_id) for message in own]
        if reached.isdisjoint(ids):
            await self.manager.delete_conversation(name)
            for entry_id in ids:
                await self.manager.delete_document(ENTRIES, entry_id)

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Return one entry. Raise `KeyError` for an unknown id, as the reference does."""
        home = await self.manager.get_document(ENTRIES, entry_id)
        if home is None:
            raise KeyError(entry_id)
        return (await self._entries_in(home.data.decode()))[entry_id]

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        """Return the chain that ends at an entry, oldest first; each conversation is read once."""
        found: list[ConversationEntry] = []
        known: dict[str, ConversationEntry] = {}
        current = head_id
        while current is not None and (limit is None or len(found) < limit):
            if current not in known:
                home = await self.manager.get_document(ENTRIES, current)
                if home is None:
                    raise KeyError(current)
                known |= await self._entries_in(home.data.decode())
            entry = known[current]
            found.append(entry)
            current = entry.parent_id
        return found[::-1]

    async def _entries_in(self, name: str) -> dict[str, ConversationEntry]:
        messages = await Transcript(self.manager, name).messages()
        entries = [entry_of(message) for message in messages]
        return {entry.id: entry for entry in entries}


def to_log(entry: ConversationEntry) -> Message:
    """Return an entry as a message: its texts, tool calls or results, and the entry itself as source."""
    raw = msgspec.json.decode(ModelMessagesTypeAdapter.dump_json([entry.message]))[0]
    blocks = [block for part in raw["parts"] if (block := _block(part)) is not None]
    source = {"id": entry.id, "parent_id": entry.parent_id, "kind": entry.kind, "message": raw}
    role: Role = "assistant" if raw["kind"] == "response" else "user"
    only_text = len(blocks) == 1 and blocks[0]["type"] == "text"
    content = blocks[0]["text"] if only_text else blocks or ""
    return message_of(FRAMEWORK, role, "", source, message_id=entry.id).with_(content=content)


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


def entry_of(message: Message) -> ConversationEntry:
    """Return the entry. A redacted message keeps its place as a request with the mark."""
    source = source_of(message, FRAMEWORK)
    if source is None:
        made: ModelMessage = ModelRequest.user_text_prompt(str(message.content))
        return ConversationEntry(id=str(message.message_id), parent_id=None, message=made)
    (restored,) = ModelMessagesTypeAdapter.validate_python([source["message"]])
    return ConversationEntry(
        id=source["id"], parent_id=source["parent_id"], message=restored, kind=source["kind"]
    )


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(part if isinstance(part, str) else "" for part in content)
    return "" if content is None else msgspec.json.encode(content).decode()


def _record(document: Document) -> ConversationRecord:
    return dataclasses.replace(_RECORD.validate_json(document.data))
