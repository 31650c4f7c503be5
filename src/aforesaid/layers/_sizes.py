"""Approximate sizes and private copies of messages, for layers that keep messages in memory."""

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

from msgspec.structs import replace

from aforesaid.contracts import Entry
from aforesaid.model.messages import Message, is_immutable

OVERHEAD = 512
"""Bytes of a message or record besides its text."""


def size_of(messages: Iterable[Message]) -> int:
    """Return the approximate number of bytes that the messages occupy in memory."""
    return sum(OVERHEAD + _text_size(message) for message in messages)


def _text_size(message: Message) -> int:
    spoken = 0 if message.speech is None else len(message.speech.spoken or "")
    return _length(message.content) + _length(message.extra) + spoken


def private_copies(entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries, mutable content copied. Immutable messages are shared, because copying is slow."""
    return [entry if is_immutable(entry.message) else _copy(entry) for entry in entries]


def _copy(entry: Entry) -> Entry:
    message = entry.message
    copy = replace(message, content=deepcopy(message.content), extra=deepcopy(message.extra))
    return replace(entry, message=copy)


def _length(value: Any) -> int:
    match value:
        case str():
            return len(value)
        case list() | tuple():
            return 64 + sum(map(_length, value))
        case dict():
            return 64 + sum(len(key) + _length(item) for key, item in value.items())
    return 16
