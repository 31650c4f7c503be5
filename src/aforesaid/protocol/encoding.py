"""Encode and decode JSON, including lone surrogates, which stores accept but UTF-8 cannot represent."""

import json
from typing import Any, NoReturn, TypeVar

import msgspec

from aforesaid.errors import Malformed

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def to_json(document: Any) -> bytes:
    """Encode a document."""
    try:
        return _encode(document)
    except UnicodeEncodeError:
        # A lone surrogate has no UTF-8 form, but JSON can escape it.
        return json.dumps(msgspec.to_builtins(document), ensure_ascii=True).encode()


def from_json(body: bytes) -> Any:
    """Decode JSON to plain values. Raises `Malformed`."""
    try:
        return _decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        return _decode_with_surrogates(body, error)


def _decode_with_surrogates(body: bytes, error: Exception) -> Any:
    try:
        return json.loads(body, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise Malformed(f"the body is not valid JSON: {error}", field="body") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)
