"""Messages as callers give them, read into values. Below: dialects, bodies. Above: the routes, the WebSocket.

A turn of plain text is what nearly everybody brings, and it is read straight into values; whatever else a
caller or a provider writes takes the way through `dialects`, which keeps it as it was given.
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
from aforesaid.server.calls import converted


class _Said(Message, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message in our own form and no other: what is read straight into a value."""


_SaidMessages = Annotated[list[_Said], Meta(min_length=1, max_length=1000)]


class _SaidTurn(RequestModel, frozen=True, kw_only=True):
    messages: _SaidMessages
    expected_revision: Count | None = None


_said_turn = msgspec.json.Decoder(_SaidTurn)
_said_messages = msgspec.json.Decoder(_SaidMessages)
_said_message = msgspec.json.Decoder(_Said)
_UNREADABLE = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)


def given_turn(raw: bytes) -> tuple[Sequence[Message], int | None]:
    """The messages of a turn, and the revision that it insists on."""
    try:
        said = _said_turn.decode(raw)
    except _UNREADABLE:
        said = None
    if said is not None and all(map(_is_plain, said.messages)):
        return said.messages, said.expected_revision
    body = converted(from_json(raw), TurnBody)
    return read(list(body.messages), dialect=body.dialect), body.expected_revision


def given_message(raw: bytes) -> Message:
    """The one message there is."""
    try:
        said = _said_message.decode(raw)
    except _UNREADABLE:
        said = None
    if said is not None and _is_plain(said):
        return said
    messages = read([converted(from_json(raw), dict[str, Any])])
    if len(messages) != 1:
        raise InvalidInput("one message is stored at a time: use turns for several", field="body")
    return messages[0]


def told_turn(frame: Turn) -> list[Message]:
    """The messages of a turn that came in a frame. Those without ids get the frame's, and what follows it."""
    messages = _told(frame)
    for at, message in enumerate(messages):
        if message.message_id is None:
            # Nobody else has seen the message yet, and the frame's id was checked.
            force_setattr(message, "message_id", following_id(frame.id, at) if at else frame.id)
    return messages


def _told(frame: Turn) -> list[Message]:
    raw = bytes(frame.messages)
    if frame.dialect is None:
        try:
            said = _said_messages.decode(raw)
        except _UNREADABLE:
            said = None
        if said is not None and all(map(_is_plain, said)):
            return list(said)
    return list(read(list(converted(from_json(raw), MessageInputs)), dialect=frame.dialect))


def _is_plain(message: Message) -> bool:
    """Whether it is text and our labels, and so means what it says; `dialects` reads everything else."""
    return (
        type(message.content) is str
        and message.dialect == "plain"
        and not message.extra
        and not message.tokens
    )
