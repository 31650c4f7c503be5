"""Anthropic's Messages API.

Parsing: a message keeps role and content. A response is reduced to these two, which is what is sent back.
Unknown blocks are kept.

Rendering:

- The system prompt goes to the request's `system`; several become a list of text blocks. A system message
  written for Anthropic that follows a user message stays there, where newer models accept it.
- The results of a message's calls are all in the next user message, before other blocks.
- Converted neighbours of the same role are merged. Anthropic's own messages stay as they are.
- Blank text is rejected by the provider and left out, as is a message that has nothing else (also at the
  end, where it would be accepted, because another message will follow). A tool result stays, without its
  blank texts. Thinking at the end of a message is left out for the same reason.
- The first message must be the user's. If it is the assistant's (a greeting or a cut history), the user
  message `OPENING` is inserted before it.
- An image of an unsupported media type becomes text.
"""

from collections.abc import Callable, Sequence
from typing import Any

from aforesaid.dialects.citations import anthropic_search_result
from aforesaid.dialects.conversion import (
    CallIdRule,
    Convertible,
    Draft,
    arguments_object,
    calls_in,
    check_content,
    convertible_parts,
    is_native,
    require_text,
    result_parts,
    results_in,
    split_fields,
    spoken_texts,
    text_in,
    texts_in,
    verbatim,
)
from aforesaid.dialects.parse import (
    THINKING_BLOCKS,
    Other,
    Part,
    Request,
    Text,
    ToolCall,
    ToolResult,
    is_blank,
    parts_of,
)
from aforesaid.dialects.role_messages import results_after_calls
from aforesaid.model.messages import Message, Role

NAME = "anthropic"
ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
CALL_IDS = CallIdRule(max_length=256, regular=True)
MEDIA_TYPES = frozenset(("image/jpeg", "image/png", "image/gif", "image/webp"))

Files = Callable[[Other], dict[str, Any]]
"""Converts a file to a block."""
Texts = Callable[[Text], dict[str, Any]]
"""Converts a text of an answer to a block."""

# Blocks of a system message that make tools available or unavailable from there on.
TOOL_CHANGES = ("tool_addition", "tool_removal")


def read_one(document: dict[str, Any]) -> Message:
    """Parse one message of the `messages` list."""
    role, content, extra = split_fields(document, ROLES, dialect=NAME)
    check_content(content, dialect=NAME)
    for block in content if isinstance(content, list) else ():
        _check_tool_block(block)
    return Message(role=role, content=content, dialect=NAME, extra=extra)


def write(messages: Sequence[Message], *, files: Files | None = None, texts: Texts | None = None) -> Request:
    """Render the `messages` and `system` of a request. `files` and `texts` convert files and the texts of
    answers, by default to what the API accepts.
    """
    # Programs that only store need no renderer.
    from aforesaid.dialects.anthropic_rules import finished

    prompts, dialogue = _split_prompts(messages)
    joined: list[Draft] = []
    for message in results_after_calls(dialogue):
        _add(joined, _draft(message, files, texts))
    documents = [document for draft in joined if (document := _without_rejected(draft.document)) is not None]
    return finished(documents, _system(prompts), clean=_without_rejected)


def result(*, call_id: str, name: str, text: str, is_error: bool) -> Message:
    """Return a tool result message."""
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": call_id, "content": text}
    if is_error:
        block["is_error"] = True
    return Message(role="user", content=[block], dialect=NAME)


def _check_tool_block(block: dict[str, Any]) -> None:
    if block["type"] == "tool_use":
        require_text(block, "id", what="a tool_use block")
        require_text(block, "name", what="a tool_use block")
    elif block["type"] == "tool_result":
        require_text(block, "tool_use_id", what="a tool_result block")


# The system prompt


def _split_prompts(messages: Sequence[Message]) -> tuple[list[Message], list[Message]]:
    """Return the prompts for `system`, and the messages.

    Newer models accept a system message only directly after a user's message. One with a change of tools
    (`tool_addition`) waits for such a place, because `system` accepts only text.
    """
    if all(message.role != "system" for message in messages):
        return [], list(messages)
    prompts: list[Message] = []
    dialogue: list[Message] = []
    waiting: list[Message] = []
    last: Message | None = None
    for message in messages:
        if message.role == "system":
            (waiting if _changes_tools(message) else prompts).append(message)
            if is_native(message, NAME) and last is not None and last.role in ("user", "tool"):
                dialogue.append((waiting if _changes_tools(message) else prompts).pop())
                last = message
            continue
        dialogue.append(message)
        # Blank messages do not count, because the request leaves them out.
        if _without_rejected(_draft(message).document) is None:
            continue
        last = message
        if waiting and message.role in ("user", "tool") and not _is_answer(message):
            last = _joined(waiting)
            dialogue.append(last)
            waiting = []
    return [*prompts, *waiting], dialogue


def _changes_tools(message: Message) -> bool:
    return (
        is_native(message, NAME)
        and isinstance(message.content, list)
        and any(block.get("type") in TOOL_CHANGES for block in message.content)
    )


def _is_answer(message: Message) -> bool:
    """Return whether the message contains results, which may be moved to their calls."""
    return any(isinstance(part, ToolResult) for part in parts_of(message))


def _joined(messages: Sequence[Message]) -> Message:
    blocks = [block for message in messages for block in message.content]
    return messages[-1].with_(content=blocks, tokens={}) if len(messages) > 1 else messages[0]


def _system(prompts: Sequence[Message]) -> str | list[dict[str, Any]] | None:
    """Return one prompt unchanged, several as a list of blocks."""
    contents = [content for prompt in prompts if (content := _prompt_content(prompt))]
    if len(contents) == 1:
        return contents[0]
    return [block for content in contents for block in _blocks_of(content)] or None


def _prompt_content(prompt: Message) -> str | list[dict[str, Any]] | None:
    if is_native(prompt, NAME) and isinstance(prompt.content, list):
        # The parameter accepts only text.
        return [block for block in prompt.content if block["type"] == "text" and not _is_blank(block)]
    words = texts_in(parts_of(prompt))
    return words[0] if len(words) == 1 else [_block(Text(text)) for text in words]


# Messages


def _draft(message: Message, files: Files | None = None, texts: Texts | None = None) -> Draft:
    if is_native(message, NAME) and isinstance(message.content, (str, list)):
        return Draft(document=verbatim(message), converted=False)
    role = "assistant" if message.role == "assistant" else "user"
    parts = parts_of(message)
    blocks = (
        _assistant_blocks(parts, texts or _block)
        if role == "assistant"
        else _user_blocks(parts, files or document_block)
    )
    alone = len(blocks) == 1 and set(blocks[0]) == {"type", "text"}
    content = blocks[0]["text"] if alone else blocks
    return Draft(document={"role": role, "content": content}, converted=True)


def _assistant_blocks(parts: Sequence[Part], texts: Texts) -> list[dict[str, Any]]:
    words: list[dict[str, Any]] = [texts(text) for text in spoken_texts(parts)]
    return words + [_tool_use(call) for call in calls_in(parts)]


def _user_blocks(parts: Sequence[Part], files: Files) -> list[dict[str, Any]]:
    return [_tool_result(answer, files) for answer in results_in(parts)] + [
        _block(part, files) for part in convertible_parts(parts)
    ]


def _tool_use(call: ToolCall) -> dict[str, Any]:
    return {
        "type": "tool_use",
        "id": call.id,
        "name": call.name,
        "input": arguments_object(call.arguments),
    }


def _tool_result(answer: ToolResult, files: Files) -> dict[str, Any]:
    blocks = [_block(part, files) for part in result_parts(answer)]
    alone = len(blocks) == 1 and blocks[0]["type"] == "text"
    return {
        "type": "tool_result",
        "tool_use_id": answer.call_id,
        "content": blocks[0]["text"] if alone else blocks or "",
        **({"is_error": True} if answer.is_error else {}),
    }


def _block(part: Convertible, files: Files | None = None) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if isinstance(part, Other):
        return (files or document_block)(part)
    if part.data is None:
        return {"type": "image", "source": {"type": "url", "url": part.url}}
    kind = (part.media_type or "").lower()
    if kind not in MEDIA_TYPES:
        return {"type": "text", "text": f"[{kind}]"}
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": part.data}}


def document_block(part: Other) -> dict[str, Any]:
    """Return a PDF or a text as a document; the API accepts no other files as data."""
    file = part.file
    if part.search_result is not None:
        return anthropic_search_result(part.search_result)
    words = "" if file is None else text_in(file)
    if file is None or not (file.is_pdf or words):
        return {"type": "text", "text": part.text}
    if words:
        source: dict[str, Any] = {"type": "text", "media_type": "text/plain", "data": words}
    elif file.data is None:
        source = {"type": "url", "url": file.url}
    else:
        source = {"type": "base64", "media_type": file.media_type, "data": file.data}
    return {"type": "document", "source": source, **({"title": file.name} if file.name else {})}


# Merging and cleaning


def _add(drafts: list[Draft], draft: Draft) -> None:
    # Conversion can leave nothing, such as thinking that another provider cannot verify.
    if draft.converted and not draft.document["content"]:
        return
    if drafts and _should_merge(drafts[-1], draft):
        drafts[-1] = _merge(drafts[-1], draft)
    else:
        drafts.append(draft)


def _should_merge(earlier: Draft, later: Draft) -> bool:
    role = later.document["role"]
    if earlier.document["role"] != role or role == "system":
        return False
    if earlier.converted or later.converted:
        return True
    # Merge Anthropic's own messages only if results would otherwise not all be in the next message.
    return _has(earlier.document, "tool_use") or _has(later.document, "tool_result")


def _merge(earlier: Draft, later: Draft) -> Draft:
    first, second = earlier.document, later.document
    content = _blocks_of(first["content"])
    has_text = any(not _is_thinking(block) for block in content)
    # Thinking is accepted only at the start of a message.
    content += [block for block in _blocks_of(second["content"]) if not (has_text and _is_thinking(block))]
    if not any(_is_thinking(block) for block in content):
        # Calls last: their results must follow directly.
        content = sorted(content, key=lambda block: block.get("type") == "tool_use")
    document = {**first, **second, "content": content}
    return Draft(document=document, converted=earlier.converted or later.converted)


def _is_thinking(block: dict[str, Any]) -> bool:
    return block.get("type") in THINKING_BLOCKS


def _has(document: dict[str, Any], kind: str) -> bool:
    return any(block.get("type") == kind for block in _blocks_of(document["content"]))


def _without_rejected(document: dict[str, Any]) -> dict[str, Any] | None:
    """Return the message without what the provider rejects, or None when nothing remains."""
    content = document["content"]
    if not isinstance(content, list):
        return None if is_blank(str(content)) else document
    kept = [_without_blank_texts(block) for block in content if not _is_blank(block)]
    while kept and document["role"] == "assistant" and kept[-1].get("type") in THINKING_BLOCKS:
        kept.pop()
    if document["role"] == "user":
        # The API requires results before other blocks. The sort is stable.
        kept.sort(key=lambda block: block.get("type") != "tool_result")
    if not kept:
        return None
    return document if kept == content else {**document, "content": kept}


def _without_blank_texts(block: dict[str, Any]) -> dict[str, Any]:
    """Remove blank text blocks from a tool result."""
    content = block.get("content")
    if block.get("type") != "tool_result" or not isinstance(content, list):
        return block
    kept = [inner for inner in content if not (isinstance(inner, dict) and _is_blank(inner))]
    return block if len(kept) == len(content) else {**block, "content": kept}


def _is_blank(block: dict[str, Any]) -> bool:
    return block.get("type") == "text" and is_blank(str(block.get("text") or ""))


def _blocks_of(content: Any) -> list[dict[str, Any]]:
    return [_block(Text(content))] if isinstance(content, str) else list(content)
