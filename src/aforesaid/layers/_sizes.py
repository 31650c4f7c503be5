"""Holding on to messages: about how much memory they take, and copies that nobody else can change.

Below: values. Above: the layers that remember.
"""

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from aforesaid.contracts import Entry
from aforesaid.model.messages import Message

OVERHEAD = 512
"""Bytes of a message or record besides its text."""


def size_of(messages: Iterable[Message]) -> int:
    return sum(OVERHEAD + _size(message) for message in messages)


def _size(message: Message) -> int:
    spoken = 0 if message.speech is None else len(message.speech.spoken or "")
    return _length(message.content) + _length(message.extra) + spoken


def is_fixed(message: Message) -> bool:
    """Whether nothing in the message can be changed by whoever else has it."""
    return not message.extra and (isinstance(message.content, str | int | None) or message.content is UNSET)


def own(entries: Iterable[Entry]) -> list[Entry]:
    """The entries, with content that is shared with nobody."""
    return [entry if is_fixed(entry.message) else _copied(entry) for entry in entries]


def _copied(entry: Entry) -> Entry:
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
