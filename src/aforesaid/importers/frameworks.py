"""Read the stores of agent frameworks: OpenAI's SQLiteSession, LangGraph's SQLite saver, Strands, mem0.

Names are those that the adapters use, so that an agent continues where it was.
"""

import json
from collections.abc import Iterator
from datetime import tzinfo
from itertools import groupby
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

import msgspec

from aforesaid.dialects import read
from aforesaid.errors import InvalidInput
from aforesaid.importers.formats import Format, Part, Skipped
from aforesaid.importers.records import ROLES, conversation, moment, rows_in
from aforesaid.model.messages import Message

# The namespace of message ids. A change would import every file again.
_NAMESPACE = UUID("0d6f8d3c-64f2-5d0a-8a40-9d1c1f5a3f77")


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
    """Yield the messages of the newest checkpoint of each thread in a file of LangGraph's SQLite saver."""
    query = (
        "SELECT thread_id, checkpoint_id, type, checkpoint FROM checkpoints "
        "WHERE checkpoint_ns = '' ORDER BY thread_id, checkpoint_id DESC"
    )
    for thread, group in groupby(rows_in(path, query, table="checkpoints"), key=lambda row: row[0]):
        _, checkpoint_id, kind, data = next(group)
        try:
            if kind != "msgpack":
                raise InvalidInput(f"a checkpoint of type {kind} is not understood", field="file")
            checkpoint = _unpack(data)
            stamp = moment(checkpoint.get("ts"), zone)
            found = [one for value in checkpoint["channel_values"].values() for one in _messages_in(value)]
        except (ValueError, KeyError, TypeError, msgspec.MsgspecError) as error:
            yield Skipped(place=f"{thread}, checkpoint {checkpoint_id}", reason=str(error))
            continue
        messages = [
            _langchain(fields, f"{thread}:{number}").with_(timestamp=stamp)
            for number, fields in enumerate(found)
        ]
        yield from conversation(f"langgraph/{thread}", None, messages, "langgraph")


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
            yield from conversation(name, None, messages, "strands")


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
    """Yield the history of each memory in mem0's `history.db`: what was added, changed and deleted."""
    query = (
        "SELECT memory_id, id, old_memory, new_memory, event, created_at, updated_at FROM history "
        "ORDER BY memory_id, created_at, updated_at"
    )
    for memory, group in groupby(rows_in(path, query, table="history"), key=lambda row: row[0]):
        messages: list[Message] = []
        for _, identifier, old, new, event, created, updated in group:
            text = new if event != "DELETE" else f"forgotten: {old or ''}"
            if not text:
                yield Skipped(place=f"memory {memory}, row {identifier}", reason="it has no text")
                continue
            try:
                stamp = moment(updated or created, zone)
            except InvalidInput as error:
                yield Skipped(place=f"memory {memory}, row {identifier}", reason=str(error))
                continue
            messages.append(
                Message(role="user", content=text, timestamp=stamp, message_id=f"m0-{identifier}")
            )
        yield from conversation(f"mem0/{memory}", None, messages, "mem0")


FORMATS = (
    Format(name="openai-session", description="SQLite file of SQLiteSession", read=read_openai_session),
    Format(name="langgraph", description="SQLite file of LangGraph's saver", read=read_langgraph),
    Format(name="strands", description="folder of Strands' FileSessionManager", read=read_strands),
    Format(name="mem0", description="history.db of mem0", read=read_mem0),
)
