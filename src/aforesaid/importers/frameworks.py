"""Read the stores of agent frameworks: OpenAI's SQLiteSession, LangGraph's SQLite saver, Strands, mem0.

Names and documents are those that the adapters use: sessions of OpenAI and Strands continue where they were.
A graph of LangGraph starts anew, and the imported messages are in its conversation.
"""

import json
from collections.abc import Iterator
from datetime import datetime, tzinfo
from itertools import groupby
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

import msgspec
from msgspec.structs import replace

from aforesaid.dialects import read
from aforesaid.errors import InvalidInput
from aforesaid.importers.formats import ForeignConversation, ForeignDocument, Format, Part, Skipped
from aforesaid.importers.records import ROLES, Tree, conversation, moment, rows_in
from aforesaid.model.messages import Message

# The namespace of message ids. A change would import every file again.
_NAMESPACE = UUID("0d6f8d3c-64f2-5d0a-8a40-9d1c1f5a3f77")

# The documents of the adapter for Strands.
STRANDS_SESSIONS = "state/strands.sessions"
STRANDS_AGENTS = "state/strands.agents"
COLUMNS_OF_MEM0 = "SELECT name FROM pragma_table_info('history')"


def read_openai_session(path: Path, zone: tzinfo) -> Iterator[Part]:
    """Yield the sessions of a SQLite file that OpenAI's `SQLiteSession` wrote."""
    query = "SELECT session_id, id, message_data, created_at FROM agent_messages ORDER BY session_id, id"
    rows = rows_in(path, query, table="agent_messages")
    for session, group in groupby(rows, key=lambda row: row[0]):
        messages: list[Message] = []
        for _, number, data, created in group:
            try:
                (message,) = read(json.loads(data), dialect="openai_responses")
                stamp = moment(f"{created}+00:00", zone)
                messages.append(message.with_(message_id=f"oa-{number}", timestamp=stamp))
            except (ValueError, TypeError) as error:
                yield Skipped(place=f"{session}, row {number}", reason=str(error))
        yield from conversation(f"openai-agents/{session}", None, messages, "openai-agents")


def read_langgraph(path: Path, zone: tzinfo) -> Iterator[Part]:
    """Yield the messages of each thread in a file of LangGraph's SQLite saver.

    All checkpoints are read, because a state may have lost messages since. A message has the time of its
    first checkpoint; paths that the newest checkpoint does not continue are branches.
    """
    query = (
        "SELECT thread_id, checkpoint_id, parent_checkpoint_id, type, checkpoint FROM checkpoints "
        "WHERE checkpoint_ns = '' ORDER BY thread_id, checkpoint_id"
    )
    for thread, group in groupby(rows_in(path, query, table="checkpoints"), key=lambda row: row[0]):
        history = _Thread(thread)
        for _, checkpoint_id, parent, kind, data in group:
            try:
                history.add(checkpoint_id, parent, *_state_of(thread, kind, data, zone))
            except (ValueError, KeyError, TypeError, AttributeError, msgspec.MsgspecError) as error:
                yield Skipped(place=f"{thread}, checkpoint {checkpoint_id}", reason=str(error))
        yield from history.parts()
    subgraphs = "SELECT thread_id, checkpoint_ns FROM checkpoints WHERE checkpoint_ns != '' GROUP BY 1, 2"
    for thread, ns in rows_in(path, subgraphs, table="checkpoints"):
        yield Skipped(place=f"{thread}, subgraph {ns}", reason="states of subgraphs are not imported")


def _state_of(thread: str, kind: str, data: bytes, zone: tzinfo) -> tuple[list[Message], datetime | None]:
    """Return the messages of a checkpoint, and its time."""
    if kind != "msgpack":
        raise InvalidInput(f"a checkpoint of type {kind} is not understood", field="file")
    checkpoint = _unpack(data)
    found = [one for value in checkpoint["channel_values"].values() for one in _messages_in(value)]
    messages = [_langchain(fields, f"{thread}:{number}") for number, fields in enumerate(found)]
    return messages, moment(checkpoint.get("ts"), zone)


class _Thread:
    """The messages of a thread's checkpoints, as a tree."""

    def __init__(self, thread: str) -> None:
        self._thread = thread
        self._said: dict[str, Message] = {}
        self._parents: dict[str, str | None] = {}
        # The message that was added last, up to each checkpoint.
        self._ends: dict[str, str | None] = {}
        self._newest: str | None = None

    def add(
        self, checkpoint: str, parent: str | None, messages: list[Message], moment: datetime | None
    ) -> None:
        """Take the messages of a checkpoint, which come in the order of their times."""
        end = None if parent is None else self._ends.get(parent, self._newest)
        for message in messages:
            node = str(message.message_id)
            known = self._said.get(node)
            self._said[node] = message.with_(timestamp=moment if known is None else known.timestamp)
            if known is None:
                self._parents[node] = end
                end = node
        self._ends[checkpoint] = self._newest = end

    def parts(self) -> Iterator[Part]:
        """Yield the conversation and its branches."""
        name = f"langgraph/{self._thread}"
        yield from Tree(self._said, self._parents).parts(name, "", self._newest, "langgraph")


def _unpack(data: bytes) -> Any:
    return msgspec.msgpack.Decoder(ext_hook=_extension).decode(data)


def _extension(code: int, data: memoryview) -> Any:
    """Return an object as its class name and fields; other values as their parts."""
    parts = _unpack(bytes(data))
    if isinstance(parts, list) and len(parts) >= 3 and isinstance(parts[2], dict):
        return {"__class__": parts[1], **parts[2]}
    return parts


def _messages_in(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if _is_message(one)] if isinstance(value, list) else []


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and str(value.get("__class__", "")).endswith("Message")


def _langchain(fields: dict[str, Any], place: str) -> Message:
    role = ROLES.get(fields.get("type", ""), "user")
    content = fields.get("content")
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
    calls = [
        {"id": call.get("id") or "", "name": call["name"], "arguments": call["args"]}
        for call in fields.get("tool_calls") or ()
    ]
    extra: dict[str, Any] = {"tool_calls": calls} if calls else {}
    if role == "tool" and fields.get("tool_call_id"):
        extra["tool_call_id"] = fields["tool_call_id"]
    text = "\n".join(text for text in texts if isinstance(text, str))
    identifier = fields.get("id") or uuid5(_NAMESPACE, f"{place}:{text}")
    return Message(role=role, content=text, extra=extra, message_id=f"lc-{identifier}")


def read_strands(path: Path, zone: tzinfo) -> Iterator[Part]:
    """Yield the agents of the sessions in a folder of Strands' `FileSessionManager`."""
    sessions = [path] if path.name.startswith("session_") else sorted(path.glob("session_*"))
    if not path.is_dir() or not sessions:
        raise InvalidInput(f"{path} contains no folder session_*", field="file")
    for session in sessions:
        for agent in sorted(session.glob("agents/agent_*")):
            messages: list[Message] = []
            for file in sorted(agent.glob("messages/message_*.json"), key=_number):
                try:
                    messages.append(_strands(json.loads(file.read_bytes()), zone))
                except (ValueError, KeyError, TypeError) as error:
                    yield Skipped(
                        place=str(file.relative_to(path)), reason=f"{type(error).__name__}: {error}"
                    )
            identifier = session.name.removeprefix("session_")
            name = f"strands/{identifier}/{agent.name.removeprefix('agent_')}"
            documents = [
                *_document(session / "session.json", STRANDS_SESSIONS, identifier),
                *_document(agent / "agent.json", STRANDS_AGENTS, "state", of_conversation=True),
            ]
            for part in conversation(name, None, messages, "strands"):
                is_one = isinstance(part, ForeignConversation)
                yield replace(part, documents=tuple(documents)) if is_one else part


def _document(file: Path, kind: str, key: str, *, of_conversation: bool = False) -> Iterator[ForeignDocument]:
    """Yield the document that the adapter reads, unless the file is missing or damaged."""
    try:
        data = msgspec.json.encode(json.loads(file.read_bytes()))
    except (OSError, ValueError):
        return
    yield ForeignDocument(kind=kind, key=key, data=data, of_conversation=of_conversation)


def _number(file: Path) -> int:
    digits = file.stem.removeprefix("message_")
    return int(digits) if digits.isdigit() else 0


def _strands(document: dict[str, Any], zone: tzinfo) -> Message:
    said = document.get("redact_message") or document["message"]
    blocks: list[dict[str, Any]] = []
    for block in said["content"]:
        if "text" in block:
            blocks.append({"type": "text", "text": block["text"]})
        elif "toolUse" in block:
            use = block["toolUse"]
            blocks.append(
                {"type": "tool_use", "id": use["toolUseId"], "name": use["name"], "input": use["input"]}
            )
        elif "toolResult" in block:
            result = block["toolResult"]
            texts = [part.get("text") or json.dumps(part.get("json")) for part in result["content"]]
            content = "\n".join(texts)
            blocks.append({"type": "tool_result", "tool_use_id": result["toolUseId"], "content": content})
    only_text = len(blocks) == 1 and blocks[0]["type"] == "text"
    return Message(
        role=ROLES[said["role"]],
        content=blocks[0]["text"] if only_text else blocks,
        dialect="plain" if only_text else "anthropic",
        timestamp=moment(document.get("created_at"), zone),
        message_id=f"st-{document['message_id']}",
    )


def read_mem0(path: Path, zone: tzinfo) -> Iterator[Part]:
    """Yield each memory in mem0's `history.db`, what was added, changed and deleted, and then
    the last messages of each session.
    """
    columns = {name for (name,) in rows_in(path, COLUMNS_OF_MEM0, table="history")}
    query = (
        "SELECT memory_id, id, old_memory, new_memory, event, created_at, updated_at, "
        f"{'role' if 'role' in columns else 'NULL'} FROM history ORDER BY memory_id, created_at, updated_at"
    )
    for memory, group in groupby(rows_in(path, query, table="history"), key=lambda row: row[0]):
        messages: list[Message] = []
        for _, identifier, old, new, event, created, updated, role in group:
            text = new if event != "DELETE" else f"forgotten: {old or ''}"
            try:
                messages.append(_mem0(identifier, text, role, updated or created, zone))
            except InvalidInput as error:
                yield Skipped(place=f"memory {memory}, row {identifier}", reason=str(error))
        yield from conversation(f"mem0/{memory}", None, messages, "mem0")
    if any(rows_in(path, "SELECT 1 FROM sqlite_master WHERE name = 'messages'", table="history")):
        yield from _mem0_sessions(path, zone)


def _mem0_sessions(path: Path, zone: tzinfo) -> Iterator[Part]:
    query = (
        "SELECT session_scope, id, role, content, created_at FROM messages ORDER BY session_scope, created_at"
    )
    for scope, group in groupby(rows_in(path, query, table="messages"), key=lambda row: row[0]):
        messages: list[Message] = []
        for _, identifier, role, text, created in group:
            try:
                messages.append(_mem0(identifier, text, role, created, zone))
            except InvalidInput as error:
                yield Skipped(place=f"session {scope}, row {identifier}", reason=str(error))
        yield from conversation(f"mem0/session/{scope}", None, messages, "mem0")


def _mem0(identifier: str, text: str | None, role: str | None, moment_: Any, zone: tzinfo) -> Message:
    if not text:
        raise InvalidInput("it has no text", field="text")
    return Message(
        role=ROLES.get(role or "", "user"),
        content=text,
        timestamp=moment(moment_, zone),
        message_id=f"m0-{identifier}",
    )


FORMATS = (
    Format(name="openai-session", description="SQLite file of SQLiteSession", read=read_openai_session),
    Format(name="langgraph", description="SQLite file of LangGraph's saver", read=read_langgraph),
    Format(name="strands", description="folder of Strands' FileSessionManager", read=read_strands),
    Format(name="mem0", description="history.db of mem0", read=read_mem0),
)
