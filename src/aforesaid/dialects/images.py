"""Images inside messages: replace them by text, or store them apart.

An image is base64 in an image block at any depth: in a message, a tool result or an item. An image at a
URL or with a file id has no data and stays.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import UNSET, Struct

from aforesaid._internal.patterns import lazy_pattern
from aforesaid.dialects.parse import split_data_url
from aforesaid.errors import NotFound
from aforesaid.model.messages import Message

PLACEHOLDER = "[Image sent: photo]"
REFERENCE = "aforesaid_blob"

# Levels of JSON that are searched; dialects use fewer than half as many.
_MAX_DEPTH = 16

_DIGEST = lazy_pattern(r"[0-9a-f]{64}", re.ASCII)

Change = Callable[[dict[str, Any]], dict[str, Any]]


class _ImageData(Struct, frozen=True, kw_only=True):
    """The place of base64 text in a block, with the prefix before it."""

    path: tuple[str, ...]
    media_type: str
    data: str
    prefix: str = ""


def without_images(message: Message, *, placeholder: str = PLACEHOLDER) -> Message:
    """Return the message with text in place of each embedded image."""
    # An item of generated images has no content: it becomes a message with text.
    if _is_generated_image(message):
        return message.with_(content=placeholder, extra={"type": "message"}, tokens={})
    return _map_blocks(message, lambda block: _to_placeholder(block, placeholder))


def split_images(message: Message) -> tuple[Message, dict[str, bytes]]:
    """Return the message with references in place of its images, and the images by SHA-256.

    `rehydrate` is the exact inverse. Non-canonical base64 (line breaks, stray bits) could not be restored
    exactly and stays.
    """
    blobs: dict[str, bytes] = {}
    return _map_blocks(message, lambda block: _to_reference(block, blobs)), blobs


def rehydrate(message: Message, blobs: Mapping[str, bytes]) -> Message:
    """Return the message with its images restored. Raises `NotFound` when one is missing."""
    return _map_blocks(message, lambda block: _from_reference(block, blobs))


def references_in(message: Message) -> tuple[str, ...]:
    """Return the SHA-256 of each image that the message refers to."""
    found: list[str] = []

    def collect(block: dict[str, Any]) -> dict[str, Any]:
        if _is_reference(block):
            found.append(block["sha256"])
        return block

    _map_blocks(message, collect)
    return tuple(dict.fromkeys(found))


def resolve(message: Message, blobs: Mapping[str, bytes], *, placeholder: str = PLACEHOLDER) -> Message:
    """Return the message without references: available images restored, text in place of others."""
    if message.content is UNSET and message.extra.get("type") == REFERENCE:
        resolved = _resolve_block(message.extra, blobs, placeholder)
        if resolved.get("type") == "text":
            return message.with_(content=placeholder, extra={"type": "message"}, tokens={})
    return _map_blocks(message, lambda block: _resolve_block(block, blobs, placeholder))


# Finding image data


def _find_image(block: dict[str, Any]) -> _ImageData | None:
    match block:
        case {"type": "image", "source": {"type": "base64", "data": str(data), **rest}}:
            return _ImageData(path=("source", "data"), media_type=_kind(rest.get("media_type")), data=data)
        case {"type": "image", "mimeType": str(kind), "data": str(data)}:
            return _ImageData(path=("data",), media_type=kind, data=data)
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            return _inline(url, ("image_url", "url"))
        case {"type": "image_url" | "input_image" | "computer_screenshot", "image_url": str(url)}:
            return _inline(url, ("image_url",))
        case {"type": "image_generation_call", "result": str(data), **rest}:
            return _ImageData(
                path=("result",), media_type=f"image/{rest.get('output_format') or 'png'}", data=data
            )
    return _find_keyed_image(block)


def _find_keyed_image(block: dict[str, Any]) -> _ImageData | None:
    match block:
        case {"inlineData": {"mimeType": str(kind), "data": str(data)}} if kind.startswith("image/"):
            return _ImageData(path=("inlineData", "data"), media_type=kind, data=data)
        case {"inline_data": {"mime_type": str(kind), "data": str(data)}} if kind.startswith("image/"):
            return _ImageData(path=("inline_data", "data"), media_type=kind, data=data)
        case {"image": {"format": str(kind), "source": {"bytes": str(data)}}}:
            return _ImageData(path=("image", "source", "bytes"), media_type=f"image/{kind}", data=data)
    return None


def _inline(url: str, path: tuple[str, ...]) -> _ImageData | None:
    split = split_data_url(url)
    if split is None:
        return None
    prefix, media_type, data = split
    return _ImageData(path=path, prefix=prefix, media_type=media_type, data=data)


def _kind(media_type: Any) -> str:
    return media_type if isinstance(media_type, str) else "application/octet-stream"


def _is_generated_image(message: Message) -> bool:
    return message.content is UNSET and message.extra.get("type") == "image_generation_call"


# Changes to one block


def _to_placeholder(block: dict[str, Any], placeholder: str) -> dict[str, Any]:
    if _find_image(block) is None:
        return block
    if "type" not in block:
        return {"text": placeholder}
    if block["type"] == "computer_screenshot":
        return {key: value for key, value in block.items() if key != "image_url"}
    kind = "input_text" if block["type"] == "input_image" else "text"
    return {"type": kind, "text": placeholder}


def _to_reference(block: dict[str, Any], blobs: dict[str, bytes]) -> dict[str, Any]:
    found_image = _find_image(block)
    image = None if found_image is None else _decoded(found_image.data)
    if found_image is None or image is None:
        return block
    digest = hashlib.sha256(image).hexdigest()
    blobs[digest] = image
    return {
        "type": REFERENCE,
        "sha256": digest,
        "media_type": found_image.media_type,
        "path": list(found_image.path),
        "block": _with_value(block, found_image.path, found_image.prefix),
    }


def _from_reference(block: dict[str, Any], blobs: Mapping[str, bytes]) -> dict[str, Any]:
    match block:
        case {"type": "aforesaid_blob", "sha256": str(digest), "path": list(path), "block": dict(emptied)}:
            if digest not in blobs:
                raise NotFound(f"the image with SHA-256 {digest} is missing")
            text = base64.b64encode(blobs[digest]).decode("ascii")
            return _with_value(emptied, tuple(path), _value_at(emptied, path) + text)
    return block


def _resolve_block(block: dict[str, Any], blobs: Mapping[str, bytes], placeholder: str) -> dict[str, Any]:
    if block.get("type") != REFERENCE:
        return block
    if not _is_reference(block):
        return {"type": "text", "text": placeholder}
    if block["sha256"] in blobs:
        return _from_reference(block, blobs)
    return _to_placeholder(block["block"], placeholder)


def _is_reference(block: dict[str, Any]) -> bool:
    """Return whether this is a reference written by `split_images`. A client can send any block of that
    type.
    """
    match block:
        case {"type": "aforesaid_blob", "sha256": str(digest), "path": list(path), "block": dict(emptied)}:
            found_image = _find_image(emptied)
            return (
                _DIGEST.fullmatch(digest) is not None
                and found_image is not None
                and list(found_image.path) == path
            )
    return False


def _decoded(text: str) -> bytes | None:
    """Return the bytes if encoding them yields exactly this text."""
    try:
        image = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return image if image and base64.b64encode(image).decode("ascii") == text else None


def _value_at(block: dict[str, Any], path: list[str]) -> str:
    value: Any = block
    for key in path:
        value = value[key]
    return str(value)


def _with_value(block: dict[str, Any], path: tuple[str, ...], value: str) -> dict[str, Any]:
    key, *deeper = path
    return {**block, key: _with_value(block[key], tuple(deeper), value) if deeper else value}


# Traversal


def _map_blocks(message: Message, change: Change) -> Message:
    content = message.content if message.content is UNSET else _map_value(message.content, change, _MAX_DEPTH)
    extra = _map_value(message.extra, change, _MAX_DEPTH)
    if content is message.content and extra is message.extra:
        return message
    return message.with_(content=content, extra=extra, tokens={})


def _map_value(value: Any, change: Change, depth: int) -> Any:
    """Apply `change` to every object inside; return the same object when nothing changes."""
    if depth == 0 or not isinstance(value, (dict, list)):
        return value
    if isinstance(value, list):
        items = [_map_value(item, change, depth - 1) for item in value]
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items
    changed = change(value)
    if changed is not value:
        return changed
    fields = {key: _map_value(item, change, depth - 1) for key, item in value.items()}
    return value if all(fields[key] is value[key] for key in value) else fields
