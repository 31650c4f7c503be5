"""Pictures inside messages: left out, or kept apart from the words. Below: reading. Above: the manager.

A picture is base64 in an image block, at whatever depth a dialect puts it: in a message, in a tool
result, in an item. One at an address (a URL, a file id) holds no bytes and always stays.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import UNSET, Struct

from aforesaid.dialects.parse import split_data_url
from aforesaid.errors import NotFound
from aforesaid.model.messages import Message

PLACEHOLDER = "[Image sent: photo]"
REFERENCE = "aforesaid_blob"

_DEEPEST = 16
"""Levels of JSON that are searched; no dialect goes half as deep."""

_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII).fullmatch

Change = Callable[[dict[str, Any]], dict[str, Any]]


class _Spot(Struct, frozen=True, kw_only=True):
    """Where in a block the base64 text is, and what stands before it."""

    path: tuple[str, ...]
    media_type: str
    data: str
    prefix: str = ""


def without_images(message: Message, *, placeholder: str = PLACEHOLDER) -> Message:
    """The message with text in the place of each picture whose bytes it holds."""
    if _is_generated_image(message):
        return message.with_(content=placeholder, extra={"type": "message"}, tokens={})
    return _changed(message, lambda block: _replaced(block, placeholder))


def split_images(message: Message) -> tuple[Message, dict[str, bytes]]:
    """The message with references in the place of its pictures, and the pictures by their SHA-256.

    `rehydrate` is the exact inverse. Base64 that another encoder would write differently (line
    breaks, stray bits) could not be restored letter by letter, and stays where it is.
    """
    blobs: dict[str, bytes] = {}
    return _changed(message, lambda block: _referred(block, blobs)), blobs


def rehydrate(message: Message, blobs: Mapping[str, bytes]) -> Message:
    """The message with its pictures back in their places. Raises `NotFound` when one is missing."""
    return _changed(message, lambda block: _restored(block, blobs))


def references_in(message: Message) -> tuple[str, ...]:
    """The SHA-256 of each picture that the message refers to."""
    found: list[str] = []

    def note(block: dict[str, Any]) -> dict[str, Any]:
        if _is_sound(block):
            found.append(block["sha256"])
        return block

    _changed(message, note)
    return tuple(dict.fromkeys(found))


def resolve(message: Message, blobs: Mapping[str, bytes], *, placeholder: str = PLACEHOLDER) -> Message:
    """The message without references: pictures that are at hand in their places, text for all others."""
    if message.content is UNSET and message.extra.get("type") == REFERENCE:
        resolved = _resolved(message.extra, blobs, placeholder)
        if resolved.get("type") == "text":
            return message.with_(content=placeholder, extra={"type": "message"}, tokens={})
    return _changed(message, lambda block: _resolved(block, blobs, placeholder))


# Places


def _spot_in(block: dict[str, Any]) -> _Spot | None:
    match block:
        case {"type": "image", "source": {"type": "base64", "data": str(data), **rest}}:
            return _Spot(path=("source", "data"), media_type=_kind(rest.get("media_type")), data=data)
        case {"type": "image", "mimeType": str(kind), "data": str(data)}:
            return _Spot(path=("data",), media_type=kind, data=data)
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            return _inline(url, ("image_url", "url"))
        case {"type": "image_url" | "input_image" | "computer_screenshot", "image_url": str(url)}:
            return _inline(url, ("image_url",))
        case {"type": "image_generation_call", "result": str(data), **rest}:
            return _Spot(
                path=("result",), media_type=f"image/{rest.get('output_format') or 'png'}", data=data
            )
    return None


def _inline(url: str, path: tuple[str, ...]) -> _Spot | None:
    split = split_data_url(url)
    if split is None:
        return None
    prefix, media_type, data = split
    return _Spot(path=path, prefix=prefix, media_type=media_type, data=data)


def _kind(media_type: Any) -> str:
    return media_type if isinstance(media_type, str) else "application/octet-stream"


def _is_generated_image(message: Message) -> bool:
    return message.content is UNSET and message.extra.get("type") == "image_generation_call"


# Changes to one block


def _replaced(block: dict[str, Any], placeholder: str) -> dict[str, Any]:
    if _spot_in(block) is None:
        return block
    if block["type"] == "computer_screenshot":
        return {key: value for key, value in block.items() if key != "image_url"}
    kind = "input_text" if block["type"] == "input_image" else "text"
    return {"type": kind, "text": placeholder}


def _referred(block: dict[str, Any], blobs: dict[str, bytes]) -> dict[str, Any]:
    spot = _spot_in(block)
    picture = None if spot is None else _decoded(spot.data)
    if spot is None or picture is None:
        return block
    digest = hashlib.sha256(picture).hexdigest()
    blobs[digest] = picture
    return {
        "type": REFERENCE,
        "sha256": digest,
        "media_type": spot.media_type,
        "path": list(spot.path),
        "block": _with_value(block, spot.path, spot.prefix),
    }


def _restored(block: dict[str, Any], blobs: Mapping[str, bytes]) -> dict[str, Any]:
    match block:
        case {"type": "aforesaid_blob", "sha256": str(digest), "path": list(path), "block": dict(emptied)}:
            if digest not in blobs:
                raise NotFound(f"the image with SHA-256 {digest} is not there")
            text = base64.b64encode(blobs[digest]).decode("ascii")
            return _with_value(emptied, tuple(path), _value_at(emptied, path) + text)
    return block


def _resolved(block: dict[str, Any], blobs: Mapping[str, bytes], placeholder: str) -> dict[str, Any]:
    if block.get("type") != REFERENCE:
        return block
    if not _is_sound(block):
        return {"type": "text", "text": placeholder}
    if block["sha256"] in blobs:
        return _restored(block, blobs)
    return _replaced(block["block"], placeholder)


def _is_sound(block: dict[str, Any]) -> bool:
    """Whether this is a reference as `split_images` writes it: anybody can send a block of that type."""
    match block:
        case {"type": "aforesaid_blob", "sha256": str(digest), "path": list(path), "block": dict(emptied)}:
            spot = _spot_in(emptied)
            return _DIGEST(digest) is not None and spot is not None and list(spot.path) == path
    return False


def _decoded(text: str) -> bytes | None:
    """The bytes, if they can be written back as exactly this text."""
    try:
        picture = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return picture if picture and base64.b64encode(picture).decode("ascii") == text else None


def _value_at(block: dict[str, Any], path: list[str]) -> str:
    value: Any = block
    for key in path:
        value = value[key]
    return str(value)


def _with_value(block: dict[str, Any], path: tuple[str, ...], value: str) -> dict[str, Any]:
    key, *deeper = path
    return {**block, key: _with_value(block[key], tuple(deeper), value) if deeper else value}


# Walking


def _changed(message: Message, change: Change) -> Message:
    content = message.content if message.content is UNSET else _walked(message.content, change, _DEEPEST)
    extra = _walked(message.extra, change, _DEEPEST)
    if content is message.content and extra is message.extra:
        return message
    return message.with_(content=content, extra=extra, tokens={})


def _walked(value: Any, change: Change, depth: int) -> Any:
    """The value with every object in it changed; the very same one when nothing had to be."""
    if depth == 0 or not isinstance(value, (dict, list)):
        return value
    if isinstance(value, list):
        items = [_walked(item, change, depth - 1) for item in value]
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items
    changed = change(value)
    if changed is not value:
        return changed
    fields = {key: _walked(item, change, depth - 1) for key, item in value.items()}
    return value if all(fields[key] is value[key] for key in value) else fields
