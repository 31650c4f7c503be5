"""JSON over the wire: every text that can be stored can be sent. Below: errors."""

import json
from typing import Any, NoReturn, TypeVar

import msgspec

from aforesaid.errors import Malformed

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def to_json(document: Any) -> bytes:
    """The document as JSON. Half of a surrogate pair has no form in UTF-8, but one in JSON."""
    try:
        return _encode(document)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(document), ensure_ascii=True).encode()


def from_json(body: bytes) -> Any:
    """What the JSON says, as plain values. Raises `Malformed`."""
    try:
        return _decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        return _with_escapes(body, error)


def _with_escapes(body: bytes, error: Exception) -> Any:
    try:
        return json.loads(body, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise Malformed(f"the body is no JSON: {error}", field="body") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)
