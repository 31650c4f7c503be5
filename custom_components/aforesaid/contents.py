"""Convert between Home Assistant's chat log and stored messages.

A stored content carries its owner as an attribute. So nothing is stored twice, a window can replace exactly
the contents that it stands for, and a session that several users share does not mix their words.
"""

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

import orjson
from homeassistant.components import conversation
from homeassistant.components.conversation.chat_log import Content
from homeassistant.helpers import llm
from homeassistant.helpers.json import json_encoder_default
from homeassistant.util.json import JSON_DECODE_EXCEPTIONS, json_loads

from aforesaid.dialects import meaning_of
from aforesaid.model.messages import Message

_OWNER = "_aforesaid_owner"
_DIALECT = "openai_chat"


def is_stored(content: Content) -> bool:
    """Return whether the content is in the store already."""
    return getattr(content, _OWNER, None) is not None


def mark_stored(contents: Iterable[Content], owner: str) -> None:
    """Note that the contents are in this owner's store."""
    for content in contents:
        # The values are frozen, but have no slots; a copy of the log shares them.
        object.__setattr__(content, _OWNER, owner)


# From the chat log


def last_turn(contents: Sequence[Content]) -> list[Content]:
    """Return the last turn of a log: the user's sentence, what follows, and a satellite's words before it."""
    start = max((at for at, each in enumerate(contents) if each.role == "user"), default=len(contents))
    while start > 1 and contents[start - 1].role == "assistant" and not is_stored(contents[start - 1]):
        start -= 1
    return [content for content in contents[start:] if not is_stored(content)]


def messages_of(contents: Iterable[Content], log_id: str) -> list[Message]:
    """Return the messages of a turn. Their ids are the same at every call: a repeated turn is stored once."""
    return [_message(content, log_id) for content in contents if content.role != "system"]


def _message(content: Content, log_id: str) -> Message:
    fields: dict[str, Any] = {"timestamp": content.created, "message_id": _message_id(content, log_id)}
    if isinstance(content, conversation.AssistantContent):
        fields["agent_name"] = content.agent_id
        if not content.tool_calls:
            return Message(role="assistant", content=content.content or "", **fields)
        extra: dict[str, Any] = {"tool_calls": [_call(call) for call in content.tool_calls]}
        return Message(role="assistant", content=content.content, dialect=_DIALECT, extra=extra, **fields)
    if isinstance(content, conversation.ToolResultContent):
        extra = {"tool_call_id": content.tool_call_id, "name": content.tool_name}
        if content.result.error:
            extra["is_error"] = True
        text = to_json(content.result.data)
        return Message(
            role="tool", content=text, dialect=_DIALECT, extra=extra, agent_name=content.agent_id, **fields
        )
    text = content.content
    for attachment in getattr(content, "attachments", None) or ():
        text += f"\n[{attachment.mime_type}]"
    return Message(role="user", content=text, **fields)


def _message_id(content: Content, log_id: str) -> str:
    call_id = getattr(content, "tool_call_id", "")
    text = content.result.data if isinstance(content, conversation.ToolResultContent) else content.content
    parts = (log_id, content.role, content.created.isoformat(), call_id, to_json(text))
    return blake2b("\x1f".join(parts).encode(), digest_size=16).hexdigest()


def _call(call: llm.ToolInput) -> dict[str, Any]:
    function = {"name": call.tool_name, "arguments": to_json(call.tool_args)}
    document = {"id": call.id, "type": "function", "function": function}
    return document | {"external": True} if call.external else document


def to_json(value: Any) -> str:
    """Return JSON with Home Assistant's encoder. Results of intents hold times and other objects."""
    return orjson.dumps(value, default=_encodable, option=orjson.OPT_NON_STR_KEYS).decode()


def _encodable(value: Any) -> Any:
    try:
        return json_encoder_default(value)
    except TypeError:
        return str(value)


# To the chat log


def contents_of(messages: Iterable[Message], agent_id: str) -> list[Content]:
    """Return stored messages as contents. Notes and other system texts become user contents, because several
    providers accept one system prompt only and cache it.
    """
    contents: list[Content] = []
    names: dict[str, str] = {}
    for message in messages:
        for content in _contents(message, agent_id, names):
            if message.timestamp is not None:
                object.__setattr__(content, "created", message.timestamp)
            contents.append(content)
    return contents


def _contents(message: Message, agent_id: str, names: dict[str, str]) -> list[Content]:
    meaning = meaning_of(message)
    speaker = message.agent_name or agent_id
    if message.role == "assistant":
        external = {call.get("id") for call in message.extra.get("tool_calls", ()) if call.get("external")}
        calls = [
            llm.ToolInput(
                tool_name=call.name,
                tool_args=_object(call.arguments),
                id=call.id,
                external=call.id in external,
            )
            for call in meaning.calls
        ]
        names |= {call.id: call.tool_name for call in calls}
        return [
            conversation.AssistantContent(
                agent_id=speaker, content=meaning.text or None, tool_calls=calls or None
            )
        ]
    results: list[Content] = [
        conversation.ToolResultContent(
            agent_id=speaker,
            tool_call_id=result.call_id,
            tool_name=names.get(result.call_id, ""),
            result=llm.ToolResult(
                data=_object(meaning_text(message)), error=bool(message.extra.get("is_error"))
            ),
        )
        for result in meaning.results
    ]
    return results or [conversation.UserContent(content=meaning.text)]


def meaning_text(message: Message) -> Any:
    """Return the text of a tool result."""
    return message.content if isinstance(message.content, str) else to_json(message.content)


def _object(value: Any) -> dict[str, Any]:
    """Return an object from JSON text. A shortened result is no JSON any more."""
    if isinstance(value, dict):
        return value
    try:
        parsed = json_loads(value) if isinstance(value, str) and value else {}
    except JSON_DECODE_EXCEPTIONS:
        return {"result": value}
    return parsed if isinstance(parsed, dict) else {"result": parsed}


def seed(
    chat_log: conversation.ChatLog, window: Sequence[Message] | None, *, owner: str, agent_id: str
) -> None:
    """Insert the owner's window between the system prompt and the user's sentence.

    The store is the authority: contents that are stored are replaced by the window, others stay. Without a
    window, because the store is unavailable, the owner's own contents stay.
    """
    earlier = chat_log.content[1:-1]
    if window is None:
        chat_log.content[1:-1] = [each for each in earlier if getattr(each, _OWNER, owner) == owner]
        return
    seeded = contents_of(window, agent_id)
    mark_stored(seeded, owner)
    chat_log.content[1:-1] = [*seeded, *(each for each in earlier if not is_stored(each))]
