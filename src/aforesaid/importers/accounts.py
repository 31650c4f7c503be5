"""Read the histories of chat programs: ChatGPT, Claude, Open WebUI, LibreChat.

They are trees of messages. The active path becomes the conversation, other paths become branches.
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
    Tree,
    conversation,
    moment,
    one_by_one,
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
    said: dict[str, Message] = {}
    for name, one in nodes.items():
        node = one.get("message")
        if not _is_said(node):
            continue
        said[name] = Message(
            role=ROLES.get(node["author"]["role"], "assistant"),
            content=_chatgpt_text(node.get("content") or {}),
            timestamp=moment(node.get("create_time") or record.get("create_time"), zone),
            message_id=str(node.get("id") or name),
        )
    # The path to the current node is the conversation as its user sees it.
    yield from Tree(said, parents).parts(
        f"chatgpt/{identifier}", title, record.get("current_node"), "chatgpt"
    )


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
    messages: dict[str, Message] = {}
    parents: dict[str, str | None] = {}
    title = str(record.get("name") or "")
    for said in record["chat_messages"]:
        name = str(said["uuid"])
        # Older exports have no parents: each message follows the one before it.
        parents[name] = said.get("parent_message_uuid") or next(reversed(parents), None)
        blocks = said.get("content") or []
        texts = [block.get("text") for block in blocks if isinstance(block, dict)]
        text = "\n".join(one for one in texts if one) or said.get("text") or ""
        # The text of attached files is part of what the assistant read.
        attached = [one.get("extracted_content") for one in said.get("attachments") or ()]
        text = "\n".join(filter(None, [text, *attached]))
        if not text:
            yield Skipped(place=title, reason=f"message {said.get('uuid')} has no text")
            continue
        messages[name] = Message(
            role=ROLES[said["sender"]],
            content=text,
            timestamp=moment(said.get("created_at"), zone),
            message_id=name,
        )
    leaf = record.get("current_leaf_message_uuid") or next(reversed(parents), None)
    yield from Tree(messages, parents).parts(f"claude/{record['uuid']}", title, leaf, "claude")


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
    title = str(record.get("title") or chat.get("title") or "")
    name = f"open-webui/{record.get('id') or title}"
    said = {
        node: Message(
            role=ROLES.get(one["role"], "assistant"),
            content=one["content"],
            timestamp=moment(one.get("timestamp") or record.get("created_at"), zone),
            message_id=node,
        )
        for node, one in nodes.items()
        if one.get("content")
    }
    if not history.get("currentId"):  # a flat list, without branches
        yield from conversation(name, title, list(said.values()), "open-webui")
        return
    yield from Tree(said, parents).parts(name, title, history["currentId"], "open-webui")


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
    said = {
        name: Message(
            role="user" if node.get("isCreatedByUser") else "assistant",
            content=text,
            timestamp=moment(node.get("createdAt"), zone),
            message_id=name,
        )
        for name, node in nodes.items()
        if (text := _librechat_text(node))
    }
    name = f"librechat/{record['conversationId']}"
    yield from Tree(said, parents).parts(name, title, newest, "librechat")


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
