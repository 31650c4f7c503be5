"""Decode bodies, queries and messages of requests and frames."""

from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta
from msgspec.structs import force_setattr

from aforesaid.dialects import read
from aforesaid.errors import InvalidInput
from aforesaid.model.ids import following_id
from aforesaid.model.messages import Message, plain_text
from aforesaid.protocol import from_json
from aforesaid.protocol.bodies import Count, MessageInputs, RequestModel, TurnBody
from aforesaid.protocol.live import Turn

B = TypeVar("B")


# Documents


def decode_body(raw: bytes, decoder: "msgspec.json.Decoder[B]", kind: type[B]) -> B:
    """Decode a body. Raises `InvalidInput` with the name of the field, or `Malformed`."""
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise validation_error(error) from None
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        # `from_json` also accepts lone surrogates, and raises `Malformed` for anything else.
        return convert(from_json(raw), kind)


def convert(document: Any, kind: type[B], *, strict: bool = True) -> B:
    """Convert a document to this type. Raises `InvalidInput`."""
    try:
        return msgspec.convert(document, kind, strict=strict)
    except msgspec.ValidationError as error:
        raise validation_error(error) from None
    except RecursionError:
        raise InvalidInput("the body is nested too deeply", field="body") from None
    except UnicodeEncodeError:
        # Message content may have lone surrogates. msgspec needs UTF-8 for field names, enums and datetimes.
        raise InvalidInput(
            "the body has a lone surrogate in a field that does not accept arbitrary text", field="body"
        ) from None


def validation_error(error: msgspec.ValidationError) -> InvalidInput:
    """Return the validation error with the name of its field.

    An `InvalidInput` from a type stays as it is.
    """
    if isinstance(error.__cause__, InvalidInput):
        return error.__cause__
    words, _, place = str(error).partition(" - at `")
    field = place.removesuffix("`").removeprefix("$").lstrip(".") or "body"
    return InvalidInput(f"{field}: {words[0].lower()}{words[1:]}", field=field)


# Messages. Most turns are plain text and are decoded directly. `dialects` parses everything else and keeps it
# unchanged.


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
    return plain_text(message) is not None and message.dialect == "plain" and not message.tokens
