"""Framework messages in our log, and blobs as documents: what all adapters share.

A framework's own object is kept in the message under `extra["source"]`, for an exact way back. The dialect of
such a message is the framework's name: every provider's dialect converts it by its meaning, so windows,
search, redaction and export treat it like any other message.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from aforesaid._internal.portal import PORTAL
from aforesaid.contracts import Appended, Document, Entry
from aforesaid.contracts.entries import unreadable_reason
from aforesaid.errors import (
    ConversationNotFound,
    InvalidInput,
    MessageConflict,
    MissingExtra,
    RevisionConflict,
)
from aforesaid.memory.interface import ManagerProtocol
from aforesaid.memory.opening import open as open_memory
from aforesaid.model.conversations import Conversation
from aforesaid.model.messages import Message, Role

# Entries or documents read in one call; a server answers at most as many.
PAGE = 1000
# Conversations listed in one call, and documents read at the same time.
LISTED = 100
AT_ONCE = 16
# The field with the framework's own object.
SOURCE = "source"
# Attempts of a change that concurrent writers interrupt. Each attempt of one writer means that another
# succeeded.
ATTEMPTS = 50

Change = Callable[[list[Message]], Sequence[Message] | None]
"""Returns the new messages for the stored ones; None changes nothing."""


def message_of(
    framework: str,
    role: Role,
    text: str,
    source: Any,
    *,
    message_id: str | None = None,
    calls: Sequence[dict[str, Any]] = (),
    answers: str | None = None,
    is_error: bool = False,
    **fields: Any,
) -> Message:
    """Return a framework's message as ours: its text, its tool calls or the call that it answers."""
    # As text: the log moves images out of nested values, and the way back must be exact.
    extra: dict[str, Any] = {SOURCE: msgspec.json.encode(source).decode()}
    if calls:
        extra["tool_calls"] = list(calls)
    if answers is not None:
        extra["tool_call_id"] = answers
    if is_error:
        extra["is_error"] = True
    return Message(role=role, content=text, dialect=framework, extra=extra, message_id=message_id, **fields)


def source_of(message: Message, framework: str) -> Any:
    """Return the framework's own object; None for a message of another origin, or a redacted one."""
    source = message.extra.get(SOURCE) if message.dialect == framework else None
    return None if source is None else msgspec.json.decode(source)


class Call(NamedTuple):
    """A tool call of a message."""

    id: str
    name: str
    arguments: dict[str, Any]

    def as_function(self) -> dict[str, Any]:
        """Return the call in the form of OpenAI's chat messages, which several frameworks use."""
        function = {"name": self.name, "arguments": msgspec.json.encode(self.arguments).decode()}
        return {"id": self.id, "type": "function", "function": function}


class Answer(NamedTuple):
    """A result of a tool call."""

    id: str
    text: str
    is_error: bool


class Parts(NamedTuple):
    """What a message says without the framework's own object: a redacted one, or one of another program.

    A redacted call keeps its id and name, and a redacted result its id, so that a request stays valid.
    """

    text: str
    calls: list[Call]
    answers: list[Answer]


def parts_of(message: Message) -> Parts:
    """Return the text, the calls and the results of a message."""
    if isinstance(message.content, list):
        return _parts_of_blocks(message.content)
    text = message.content if isinstance(message.content, str) else ""
    calls = [_call(one) for one in message.extra.get("tool_calls") or () if isinstance(one, dict)]
    answered = message.extra.get("tool_call_id")
    if answered is None:
        return Parts(text, calls, [])
    return Parts("", calls, [Answer(str(answered), text, bool(message.extra.get("is_error")))])


def _call(given: dict[str, Any]) -> Call:
    described: dict[str, Any] = given["function"] if isinstance(given.get("function"), dict) else given
    return Call(str(given.get("id")), str(described.get("name")), _arguments(described.get("arguments")))


def _arguments(given: object) -> dict[str, Any]:
    """Return a call's arguments, which some programs store as text."""
    if isinstance(given, str):
        try:
            given = msgspec.json.decode(given)
        except msgspec.DecodeError:
            return {}
    return dict(given) if isinstance(given, dict) else {}


def names_of_calls(messages: Sequence[Message]) -> dict[str, str]:
    """Return the tools' names by the ids of their calls: a redacted result has the id only."""
    return {call.id: call.name for message in messages for call in parts_of(message).calls}


def _parts_of_blocks(blocks: list[Any]) -> Parts:
    texts: list[str] = []
    calls: list[Call] = []
    answers: list[Answer] = []
    for block in blocks:
        match block:
            case {"type": "tool_use", "id": str(call_id), "name": str(name), **rest}:
                calls.append(Call(call_id, name, _arguments(rest.get("input"))))
            case {"type": "tool_result", "tool_use_id": str(call_id), **rest}:
                answers.append(Answer(call_id, str(rest.get("content") or ""), bool(rest.get("is_error"))))
            case {"text": str(text)}:
                texts.append(text)
    return Parts("\n".join(texts), calls, answers)


class Transcript:
    """The log of one conversation of a framework."""

    def __init__(self, manager: ManagerProtocol, name: str) -> None:
        self.manager = manager
        self.name = name

    async def record(self) -> Conversation | None:
        """Return the record; None where the conversation does not exist."""
        try:
            return await self.manager.get_conversation(self.name)
        except ConversationNotFound:
            return None

    async def append(
        self, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended | None:
        """Store messages as one turn, all of them or nothing. Create the conversation if there is none."""
        if not messages:
            return None
        return await self.manager.append(self.name, messages, expected_revision=expected_revision)

    async def append_new(self, messages: Sequence[Message]) -> None:
        """Store the messages whose ids the log does not have, as one turn."""
        first: dict[str | None, Message] = {}
        for message in messages:
            first.setdefault(message.message_id, message)
        unique = list(first.values())
        try:
            # The store leaves out what it has already, so a long log costs no more than a short one.
            await self.append(unique)
        except MessageConflict:
            # Something changed after it was stored: the log keeps what was said first.
            known = {message.message_id for message in await self.messages()}
            await self.append([message for message in unique if message.message_id not in known])

    async def entries(self, *, offset: int = 0) -> list[Entry]:
        """Return all readable entries from an offset on; empty where there is no conversation."""
        found: list[Entry] = []
        try:
            while True:
                page = await self.manager.entries(self.name, PAGE, offset)
                found += page
                # A short page is the last one; this saves a call for every conversation.
                if len(page) < PAGE:
                    # One damaged entry must not keep an agent from continuing its
                    # session.
                    return [entry for entry in found if unreadable_reason(entry) is None]
                offset += len(page)
        except ConversationNotFound:
            return []

    async def messages(self, *, last: int | None = None) -> list[Message]:
        """Return all messages, or the last ones."""
        offset = 0
        if last is not None:
            record = await self.record()
            # By offset instead of a tail, because the result may be longer than one page.
            offset = 0 if record is None else max(record.message_count - last, 0)
        return [entry.message for entry in await self.entries(offset=offset)]

    async def change(self, change: Change) -> list[Message]:
        """Replace the messages by a function of the stored ones, atomically; return the earlier ones."""
        for _ in range(ATTEMPTS):
            record = await self.record()
            stored = [] if record is None else await self.messages()
            # Called again for every attempt, with what the other writer stored.
            new = change(stored)
            if new is None:
                return stored
            try:
                if record is None:
                    await self.append(new)
                else:
                    await self.manager.rewrite_history(self.name, new, expected_revision=record.revision)
            except RevisionConflict:
                await asyncio.sleep(0)  # another writer was first: read again
                continue
            return stored
        raise RevisionConflict(self.name, expected=0, actual=0)

    async def clear(self) -> None:
        """Remove the messages."""
        if await self.record() is not None:
            await self.manager.clear_history(self.name)

    async def delete(self) -> None:
        """Remove the conversation with its documents."""
        await self.manager.delete_conversation(self.name)


async def conversations_named(manager: ManagerProtocol, prefix: str) -> list[Conversation]:
    """Return the records of all conversations whose names start with a prefix."""
    found: list[Conversation] = []
    after: str | None = None
    while True:
        page = await manager.list(limit=LISTED, after=after)
        found += [record for record in page.conversations if (record.name or "").startswith(prefix)]
        after = page.next
        if after is None:
            return found


async def document_of_each(manager: ManagerProtocol, prefix: str, kind: str, key: str) -> list[Document]:
    """Return one document of each conversation whose name starts with a prefix, where it has one.

    What a framework knows of a session is in the session's conversation, so that deleting, expiring, erasing
    and exporting the conversation include it.
    """
    records = await conversations_named(manager, prefix)
    found: list[Document | None] = []
    for start in range(0, len(records), AT_ONCE):
        reads = (
            manager.get_document(kind, key, conversation_id=record.id)
            for record in records[start : start + AT_ONCE]
        )
        found += await asyncio.gather(*reads)
    return [document for document in found if document is not None]


async def documents_in(
    manager: ManagerProtocol, kind: str, *, conversation_id: str | None = None, prefix: str = ""
) -> list[Document]:
    """Return all documents of a kind whose keys start with a prefix, sorted by key."""
    found: list[Document] = []
    after = prefix or None
    while True:
        page = await manager.list_documents(kind, conversation_id=conversation_id, after=after, limit=PAGE)
        matching = [document for document in page if document.key.startswith(prefix)]
        found += matching
        # Keys are sorted, so the first key without the prefix ends the search.
        if len(page) < PAGE or len(matching) < len(page):
            return found
        after = page[-1].key


def open_manager(url: str, *, owner: str, **options: Any) -> ManagerProtocol:
    """Open a memory for synchronous code and return the handle of one owner.

    Every synchronous adapter of the process shares one event loop on a thread. `options` are those of
    `aforesaid.open`. The memory stays open until the process ends.
    """

    async def opened() -> ManagerProtocol:
        # On the portal's loop, where every later call runs as well.
        memory = await open_memory(url, **options).start()
        return memory.of(owner)

    return PORTAL.call(opened)


def check_manager(manager: object) -> ManagerProtocol:
    """Return the handle. Raise `InvalidInput` for anything else, such as a URL."""
    if not hasattr(manager, "append") or not hasattr(manager, "put_document"):
        raise InvalidInput(
            f"manager must be a handle of one owner, such as memory.of('kim'); got {type(manager).__name__}",
            field="manager",
        )
    return manager  # type: ignore[return-value]


def missing(framework: str, extra: str) -> MissingExtra:
    """Return the error for a framework that is not installed."""
    return MissingExtra(f"the adapter for {framework}", extra=extra)
