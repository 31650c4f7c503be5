"""Decode messages from requests and frames.

Most turns are plain text and are decoded directly. `dialects` parses everything else and keeps it unchanged.
"""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from msgspec.structs import force_setattr

from aforesaid.dialects import read
from aforesaid.errors import InvalidInput
from aforesaid.model.ids import following_id
from aforesaid.model.messages import Message
from aforesaid.protocol import from_json
from aforesaid.protocol.bodies import Count, MessageInputs, RequestModel, TurnBody
from aforesaid.protocol.live import Turn
from aforesaid.server.calls import convert


class _PlainMessage(Message, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message in the documented form without further fields."""


_PlainMessages = Annotated[list[_PlainMessage], Meta(min_length=1, max_length=1000)]


class _PlainTurn(RequestModel, frozen=True, kw_only=True):
    messages: _PlainMessages
    expected_revision: Count | None = None


_turn_decoder = msgspec.json.Decoder(_PlainTurn)
_messages_decoder = msgspec.json.Decoder(_PlainMessages)
_message_decoder = msgspec.json.Decoder(_PlainMessage)
_UNREADABLE = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)


def parse_turn(raw: bytes) -> tuple[Sequence[Message], int | None]:
    """Return the messages and the expected revision of a turn."""
    try:
        plain = _turn_decoder.decode(raw)
    except _UNREADABLE:
        plain = None
    if plain is not None and all(map(_is_plain, plain.messages)):
        return plain.messages, plain.expected_revision
    body = convert(from_json(raw), TurnBody)
    return read(list(body.messages), dialect=body.dialect), body.expected_revision


def parse_message(raw: bytes) -> Message:
    """Return the message of a request with one message."""
    try:
        plain = _message_decoder.decode(raw)
    except _UNREADABLE:
        plain = None
    if plain is not None and _is_plain(plain):
        return plain
    messages = read([convert(from_json(raw), dict[str, Any])])
    if len(messages) != 1:
        raise InvalidInput("the body must be one message; use turns for several", field="body")
    return messages[0]


def parse_frame_turn(frame: Turn) -> list[Message]:
    """Return the messages of a `turn` frame. Messages without ids get ids derived from the frame's id."""
    messages = _frame_messages(frame)
    for at, message in enumerate(messages):
        if message.message_id is None:
            # Safe on a frozen value: it is not shared yet, and the id of the frame was validated.
            force_setattr(message, "message_id", following_id(frame.id, at) if at else frame.id)
    return messages


def _frame_messages(frame: Turn) -> list[Message]:
    raw = bytes(frame.messages)
    if frame.dialect is None:
        try:
            plain = _messages_decoder.decode(raw)
        except _UNREADABLE:
            plain = None
        if plain is not None and all(map(_is_plain, plain)):
            return list(plain)
    return list(read(list(convert(from_json(raw), MessageInputs)), dialect=frame.dialect))


def _is_plain(message: Message) -> bool:
    """Return whether the message is plain text, which needs no parsing by `dialects`."""
    return (
        type(message.content) is str
        and message.dialect == "plain"
        and not message.extra
        and not message.tokens
    )
