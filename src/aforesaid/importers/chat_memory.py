"""Read the file of the chat memory: `conversations.json`.

    {"+15550100": {"last_active": "2026-02-24T10:35:00", "turns": [{"messages": [...]}]}}

Messages are in Anthropic's format. The file has one time per key, which all messages of the key get.
"""

import json
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

from aforesaid.dialects import read
from aforesaid.errors import InvalidInput
from aforesaid.importers.formats import ForeignConversation, Format, Part, Skipped, moment_in
from aforesaid.model.ids import parse_name
from aforesaid.model.messages import Message

# The prefix of the tag that marks a key's conversations, as in `memory.chats`.
LABEL = "chat:"

# The namespace of message ids. A change would import every file again.
_NAMESPACE = UUID("5f1d7c7e-93b0-5a55-9d2b-0f6a1a5f6c11")


def read_conversations(path: Path, zone: tzinfo) -> Iterator[Part]:
    """Yield the conversation of each key."""
    for key, value in _document(path).items():
        yield from _read_key(key, value, zone)


def _document(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_bytes())
    except ValueError as error:
        raise InvalidInput(f"{path} is not JSON: {error}", field="file") from error
    if not isinstance(document, dict):
        raise InvalidInput(f"{path} is not a chat memory: it must be an object of keys", field="file")
    return document


def _read_key(key: str, value: Any, zone: tzinfo) -> Iterator[Part]:
    try:
        parse_name(LABEL + key, field="key")
        turns, last_active = _turns(value), _last_active(value, zone)
    except InvalidInput as error:
        yield Skipped(place=key, reason=str(error))
        return
    messages: list[Message] = []
    seen = Counter[str]()
    for number, turn in enumerate(turns, start=1):
        try:
            messages += _turn(key, turn, last_active, seen)
        except InvalidInput as error:
            yield Skipped(place=f"{key}, turn {number}", reason=str(error))
    if messages:
        label = LABEL + key
        yield ForeignConversation(name=label, messages=tuple(messages), tags=(label,), session=key)


def _turns(value: Any) -> list[Any]:
    turns = value.get("turns") if isinstance(value, dict) else None
    if not isinstance(turns, list):
        raise InvalidInput("turns must be a list", field="turns")
    return turns


def _last_active(value: dict[str, Any], zone: tzinfo) -> datetime:
    return moment_in(value.get("last_active"), zone, field="last_active")


def _turn(key: str, turn: Any, last_active: datetime, seen: Counter[str]) -> list[Message]:
    given = turn.get("messages") if isinstance(turn, dict) else None
    if not isinstance(given, list) or not given:
        raise InvalidInput("messages must be a list that is not empty", field="messages")
    # The original drops its oldest turns, so the place of a turn in the file changes and cannot be its id.
    content = json.dumps([key, given], sort_keys=True)
    seen[content] += 1
    source = f"{seen[content]}:{content}"
    return [
        message.with_(timestamp=last_active, message_id=str(uuid5(_NAMESPACE, f"{number}:{source}")))
        for number, message in enumerate(read(given, dialect="anthropic"))
    ]


FORMAT = Format(
    name="chat-memory",
    description="conversations.json of a chat memory: phone numbers with their last turns",
    read=read_conversations,
)
