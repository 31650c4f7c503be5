"""Amazon Bedrock's Converse API, which AWS Strands uses.

Parsing: a message keeps its content blocks. Media that boto3 gives as bytes is stored as base64, the form of
the API itself.

Rendering:

- The system prompt goes to the request's `system`, as text blocks.
- Roles alternate and the first message is the user's, so messages of one role are joined.
- The results of a message's calls are all in the next user message, before other blocks.
- Blank text is left out, because the API refuses it.
- Ids and names that the API refuses are replaced, in a call and its result alike.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from aforesaid._internal.patterns import lazy_pattern
from aforesaid.dialects.citations import bedrock_citation, bedrock_search_result, bedrock_text
from aforesaid.dialects.conversion import CallIdRule, arguments_object, check_role
from aforesaid.dialects.keyed_blocks import keyed
from aforesaid.dialects.keyed_requests import CITED, FILE, NATIVE, arrange
from aforesaid.dialects.parse import File, Request, file_of, image_of
from aforesaid.errors import InvalidMessage, shown
from aforesaid.model.messages import Message, Role

NAME = "bedrock"
ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
CALL_IDS = CallIdRule(max_length=64)
IMAGE_FORMATS = ("png", "jpeg", "gif", "webp")
# The API's names of formats, by media type.
_AUDIO = ("mp3", "opus", "wav", "aac", "flac", "mp4", "ogg", "m4a", "webm")
AUDIO_FORMATS = {kind: kind for kind in _AUDIO} | {"mpeg": "mp3", "x-wav": "wav", "wave": "wav"}
DOCUMENT_FORMATS = {
    "application/pdf": "pdf",
    "text/csv": "csv",
    "text/html": "html",
    "text/plain": "txt",
    "text/markdown": "md",
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
}

_INVALID_IN_NAME = lazy_pattern(r"[^a-zA-Z0-9_-]")
_LONGEST_NAME = 64

Block = dict[str, Any]


def read_one(document: dict[str, Any]) -> Message:
    """Parse one message of the `messages` list."""
    role = check_role(document, ROLES, dialect=NAME)
    extra = {name: value for name, value in document.items() if name not in ("role", "content")}
    return Message(role=ROLES[role], content=_checked_blocks(document), dialect=NAME, extra=extra)


def write(messages: Sequence[Message]) -> Request:
    """Render the `messages` and `system` of a request."""
    arranged = arrange(messages, NAME)
    documents = [
        {
            "role": message.role,
            "content": _with_text([_block(block) for block in message.blocks]),
            **message.fields,
        }
        for message in arranged.messages
    ]
    return Request(messages=documents, system=[{"text": text} for text in arranged.system] or None)


def result(*, call_id: str, name: str, text: str, is_error: bool) -> Message:
    """Return a tool result message."""
    answer = {
        "toolUseId": call_id,
        "content": [{"text": text}],
        "status": "error" if is_error else "success",
    }
    return Message(role="user", content=[{"toolResult": answer}], dialect=NAME)


def _checked_blocks(document: Mapping[str, Any]) -> Any:
    content = document.get("content")
    if isinstance(content, str):
        return [{"text": content}]
    if not isinstance(content, list):
        raise InvalidMessage(
            f"content must be a list of blocks in dialect {NAME}; got {shown(content)}", field="content"
        )
    for block in content:
        if not isinstance(block, dict):
            raise InvalidMessage(
                f"a block must be an object; got {shown(block)}", field="content", value=block
            )
        found = keyed(block)
        if found and found.key in ("toolUse", "toolResult") and not _has_id(found.value):
            raise InvalidMessage(f"a {found.key} block needs toolUseId, as text", field="toolUseId")
    return content


def _has_id(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("toolUseId"), str)


# Blocks


def _with_text(blocks: list[Block]) -> list[Block]:
    """Return the blocks with a text next to a document, which the API requires."""
    if any("document" in block for block in blocks) and not any("text" in block for block in blocks):
        return [*blocks, {"text": "[document]"}]
    return blocks


def _block(block: Block) -> Block:
    if NATIVE in block:
        native: Block = block[NATIVE]
        return native
    match block:
        case {"type": "tool_use", "id": call_id, "name": name, "input": arguments}:
            return {
                "toolUse": {
                    "toolUseId": call_id,
                    "name": _INVALID_IN_NAME.sub("_", name)[:_LONGEST_NAME] or "unnamed",
                    "input": arguments_object(arguments),
                }
            }
        case {"type": "tool_result", "tool_use_id": call_id}:
            return {"toolResult": _result(block, call_id)}
        case {"type": "text", "text": str(text)} if CITED in block:
            return bedrock_text(text, [bedrock_citation(each) for each in block[CITED]])
    return _media(block)


def _result(block: Block, call_id: str) -> Block:
    content = block.get("content")
    inner = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    blocks = [shown for each in inner if not _is_blank(shown := _in_result(_media(each)))]
    return {
        "toolUseId": call_id,
        # The API requires a block.
        "content": blocks or [{"text": "(no output)"}],
        "status": "error" if block.get("is_error") is True else "success",
    }


def _in_result(block: Block) -> Block:
    """Return the block, or its name: the API accepts no recording in a result."""
    return {"text": "[audio]"} if "audio" in block else block


def _media(block: Block) -> Block:
    image = image_of(block)
    if block.get("type") == "search_result":
        return bedrock_search_result(block)
    if block.get("type") == FILE:
        block = {**block, "type": "document"}
    file = file_of(block) if block.get("type") == "document" else None
    if file is not None:
        return _file(file, str(block.get("text") or "[document]"))
    if image is None:
        return {"text": str(block.get("text", ""))}
    kind = (image.media_type or "").removeprefix("image/").replace("jpg", "jpeg")
    if image.data is None or kind not in IMAGE_FORMATS:
        # The API takes images as data only, in four formats.
        return {"text": f"[image: {image.url}]" if image.url else f"[image/{kind}]"}
    return {"image": {"format": kind, "source": {"bytes": image.data}}}


def _file(file: File, words: str) -> Block:
    if file.data is None:
        # The API takes files as data only.
        return {"text": f"[document: {file.url}]"}
    kind = file.media_type.removeprefix("audio/")
    if file.media_type.startswith("audio/") and (audio := AUDIO_FORMATS.get(kind)):
        return {"audio": {"format": audio, "source": {"bytes": file.data}}}
    if document := DOCUMENT_FORMATS.get(file.media_type):
        name = _INVALID_IN_NAME.sub("-", file.name or "document")[:_LONGEST_NAME]
        return {"document": {"format": document, "name": name, "source": {"bytes": file.data}}}
    return {"text": words}


def _is_blank(block: Block) -> bool:
    return "text" in block and not block["text"].strip()
