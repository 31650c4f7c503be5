"""The JSON form of a message in stores, exports and spools.

A body is a JSON object of the message's fields without defaults. `decode_message` is the only reader, also
for bodies of earlier releases. Fields of later releases are ignored, and a body is never rewritten on read.
"""

import json
import math
from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET

from aforesaid.errors import InvalidMessage, StoreDamaged, shown
from aforesaid.model.messages import Message, Speech

# Stored next to every set of bodies (schema, file, export), so that readers know the format.
WIRE_VERSION = 1

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Message)


def encode_message(message: Message) -> bytes:
    """Encode a message. Raise `InvalidMessage` for content that is not JSON; nothing is converted."""
    if message.content is not UNSET and type(message.content) is not str:
        check_json(message.content, field="content")
    if message.extra:
        check_json(message.extra, field="extra")
    try:
        return _encoder.encode(message)
    except (UnicodeEncodeError, TypeError):
        # A lone surrogate, which has no UTF-8 form, or a subclass of str or a number, which
        # is valid JSON.
        return _encode_with_escapes(message)
    except RecursionError:
        raise _too_deep("content") from None


def decode_message(body: bytes | str) -> Message:
    """Decode a body. Raise `StoreDamaged` with a message that contains nothing of the body."""
    try:
        return _decoder.decode(body)
    except (msgspec.MsgspecError, RecursionError) as error:
        return _decode_with_escapes(body, error)


def _encode_with_escapes(message: Message) -> bytes:
    fields = {name: getattr(message, name) for name in message.__struct_fields__}
    defaults = dict(zip(message.__struct_fields__[1:], message.__struct_defaults__, strict=True))
    present = {name: value for name, value in fields.items() if name == "role" or value != defaults[name]}
    return json.dumps(present, ensure_ascii=True, default=_plain).encode()


def _plain(value: datetime | Speech) -> Any:
    return value.to_dict() if isinstance(value, Speech) else value.isoformat()


def _decode_with_escapes(body: bytes | str, error: Exception) -> Message:
    try:
        return msgspec.convert(json.loads(body), Message)
    except (ValueError, RecursionError, msgspec.MsgspecError):
        raise StoreDamaged(f"its stored form is damaged: {error}") from error


# About 4,200 digits: as many as Python parses by default.
_LARGEST_INTEGER_BITS = 14_000


def check_json(value: Any, *, field: str) -> None:
    """Raise `InvalidMessage` for values that JSON cannot represent exactly."""
    try:
        _check_json(value, field)
    except RecursionError:
        raise _too_deep(field) from None


def _check_json(value: Any, field: str) -> None:
    match value:
        case None | bool() | str():
            return
        case int():
            if value.bit_length() > _LARGEST_INTEGER_BITS:
                raise InvalidMessage(f"{field} holds a number of too many digits", field=field)
        case float():
            if not math.isfinite(value):
                raise InvalidMessage(f"{field} holds {value}, which JSON has no form for", field=field)
        case dict():
            for key, item in value.items():
                if not isinstance(key, str):
                    raise InvalidMessage(f"{field} has the key {shown(key)}; JSON keys are text", field=field)
                _check_json(item, field)
        case list() | tuple():
            for item in value:
                _check_json(item, field)
        case _:
            raise InvalidMessage(
                f"{field} holds a {type(value).__name__}, which is not JSON: {shown(value)}", field=field
            )


def _too_deep(field: str) -> InvalidMessage:
    return InvalidMessage(f"{field} is nested too deep to be stored", field=field)
