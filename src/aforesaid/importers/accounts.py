"""Read the histories of chat programs: ChatGPT, Claude, Open WebUI, LibreChat.

All but Claude's are trees of messages. The active path becomes the conversation.
"""

from collections.abc import Iterator
from datetime import tzinfo
from functools import partial
from pathlib import Path
from typing import Any

from aforesaid.errors import InvalidInput
from aforesaid.importers.formats import Format, Part, Skipped
from aforesaid.importers.records import (
    ROLES,
    conversation,
    moment,
    one_by_one,
    other_branches,
    path_to,
    records_in,
    text_in,
)
from aforesaid.model.messages import Message


def read_chatgpt(path: Path, zone: tzinfo) -> Iterator[Part]:
    """Yield the conversations of ChatGPT's export: the ZIP file, its folder, or `conversations.json`."""
    records = records_in(text_in(path, "conversations.json"))
    yield from one_by_one(records, partial(_chatgpt, zone=zone))


def _chatgpt(record: dict[str, Any], zone: tzinfo) -> Iterator[Part]:
    nodes: dict[str, Any] = record["mapping"]
    parents = {name: node.get("parent") for name, node in nodes.items()}
    title = str(record.get("title") or "")
    # Not every export has both.
    identifier = record.get("conversation_id") or record.get("id") or title
    messages: list[Message] = []
    # An edited question leaves a branch behind. The path to the current node is the conversation as its
    # user sees it.
    for name in path_to(record.get("current_node"), parents):
        node = nodes[name].get("message")
        text = "" if node is None else _chatgpt_text(node.get("content") or {})
        hidden = node is not None and (node.get("metadata") or {}).get("is_visually_hidden_from_conversation")
        if node is None or not text or hidden:
            continue
        messages.append(
            Message(
                role=ROLES.get(node["author"]["role"], "assistant"),
                content=text,
                timestamp=moment(node.get("create_time") or record.get("create_time"), zone),
                message_id=str(node.get("id") or name),
            )
        )
    written = [node for node in nodes.values() if _is_said(node.get("message"))]
    yield from conversation(f"chatgpt/{identifier}", title, messages, "chatgpt")
    yield from other_branches(title, len(written), len(messages))


def _is_said(node: Any) -> bool:
    if node is None or not _chatgpt_text(node.get("content") or {}):
        return False
    return not (node.get("metadata") or {}).get("is_visually_hidden_from_conversation")


def _chatgpt_text(content: dict[str, Any]) -> str:
    parts = content.get("parts")
    if parts is None:
        parts = [content.get("text") or content.get("result") or ""]
    texts = [part if isinstance(part, str) else _chatgpt_part(part) for part in parts]
    return "\n".join(text for text in texts if text.strip())


def _chatgpt_part(part: Any) -> str:
    if not isinstance(part, dict):
        return ""
    if isinstance(part.get("text"), str):
        return str(part["text"])
    kind = str(part.get("content_type", "part"))
    # The export has a pointer instead of the file; a placeholder keeps the message in its place.
    return "[image]" if "image" in kind else f"[{kind}]"


def read_claude(path: Path, zone: tzinfo) -> Iterator[Part]:
    """Yield the conversations of Claude's export: the ZIP file, its folder, or `conversations.json`."""
    records = records_in(text_in(path, "conversations.json"))
    yield from one_by_one(records, partial(_claude, zone=zone))


def _claude(record: dict[str, Any], zone: tzinfo) -> Iterator[Part]:
    messages: list[Message] = []
    title = str(record.get("name") or "")
    for said in record["chat_messages"]:
        blocks = said.get("content") or []
        texts = [block.get("text") for block in blocks if isinstance(block, dict)]
        text = "\n".join(one for one in texts if one) or said.get("text") or ""
        # The text of attached files is part of what the assistant read.
        attached = [one.get("extracted_content") for one in said.get("attachments") or ()]
        text = "\n".join(filter(None, [text, *attached]))
        if not text:
            yield Skipped(place=title, reason=f"message {said.get('uuid')} has no text")
            continue
        messages.append(
            Message(
                role=ROLES[said["sender"]],
                content=text,
                timestamp=moment(said.get("created_at"), zone),
                message_id=str(said["uuid"]),
            )
        )
    yield from conversation(f"claude/{record['uuid']}", title, messages, "claude")


def read_open_webui(path: Path, zone: tzinfo) -> Iterator[Part]:
    """Yield the chats of Open WebUI's export."""
    yield from one_by_one(records_in(text_in(path, "chats.json")), partial(_open_webui, zone=zone))


def _open_webui(record: dict[str, Any], zone: tzinfo) -> Iterator[Part]:
    chat = record.get("chat") or record
    history = chat.get("history") or {}
    nodes: dict[str, Any] = history.get("messages") or {
        str(said.get("id") or number): {"parentId": None, **said}
        for number, said in enumerate(chat["messages"])
    }
    parents = {name: node.get("parentId") for name, node in nodes.items()}
    # A flat list has no current node and no branches.
    path = path_to(history.get("currentId"), parents) if history.get("currentId") else list(nodes)
    title = str(record.get("title") or chat.get("title") or "")
    messages = [
        Message(
            role=ROLES.get(nodes[name]["role"], "assistant"),
            content=nodes[name]["content"],
            timestamp=moment(nodes[name].get("timestamp") or record.get("created_at"), zone),
            message_id=name,
        )
        for name in path
        if nodes[name].get("content")
    ]
    yield from conversation(f"open-webui/{record.get('id') or title}", title, messages, "open-webui")
    yield from other_branches(title, sum(bool(one.get("content")) for one in nodes.values()), len(messages))


def read_librechat(path: Path, zone: tzinfo) -> Iterator[Part]:
    """Yield the conversations of LibreChat's JSON export: a list of messages, or a tree of them."""
    yield from one_by_one(records_in(text_in(path, "conversation.json")), partial(_librechat, zone=zone))


def _librechat(record: dict[str, Any], zone: tzinfo) -> Iterator[Part]:
    nodes = {str(one["messageId"]): one for one in _flat(record["messages"])}
    if not nodes:
        raise InvalidInput("the conversation has no messages", field="messages")
    parents = {name: node.get("parentMessageId") for name, node in nodes.items()}
    newest = max(nodes, key=lambda name: str(nodes[name].get("createdAt") or ""))
    title = str(record.get("title") or "")
    messages = [
        Message(
            role="user" if nodes[name].get("isCreatedByUser") else "assistant",
            content=text,
            timestamp=moment(nodes[name].get("createdAt"), zone),
            message_id=name,
        )
        for name in path_to(newest, parents)
        if (text := _librechat_text(nodes[name]))
    ]
    yield from conversation(f"librechat/{record['conversationId']}", title, messages, "librechat")
    yield from other_branches(title, sum(bool(_librechat_text(one)) for one in nodes.values()), len(messages))


def _flat(messages: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    waiting = list(messages)
    while waiting:
        one = waiting.pop(0)
        yield one
        waiting += one.get("children") or []


def _librechat_text(node: dict[str, Any]) -> str:
    if node.get("text"):
        return str(node["text"])
    parts = node.get("content") or []
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return "\n".join(one.get("value", "") if isinstance(one, dict) else one for one in texts if one)


FORMATS = (
    Format(name="chatgpt", description="ChatGPT's account export", read=read_chatgpt),
    Format(name="claude", description="Claude's account export", read=read_claude),
    Format(name="open-webui", description="Open WebUI's export of chats", read=read_open_webui),
    Format(name="librechat", description="LibreChat's JSON export", read=read_librechat),
)
