"""Anthropic's Messages interface. Below: carrying, order.

In: a message keeps role and content; a whole response is reduced to these two, which is what is
sent back. Every block is kept as it is, those that we do not know too.

Out:

- The system prompt is the request's `system`; several messages become a list of text blocks. One
  that was written for Anthropic and stands behind a user's message stays there, where newer models
  take it; all others go to `system`.
- The results of one message's calls are in the one next user message, before anything else in it.
- Neighbours with one role are joined where conversion made them; Anthropic's own are left as given.
- Text without a visible character is refused by the provider and so left out, and with it a message
  that has nothing else (also at the end, where it would be taken, since another will follow). A tool
  result stays, without its blank texts.
  Thinking with nothing after it is left out for the same reason.
- The first message must be the user's. Where it is the assistant's (a greeting, or a history that
  was cut) a user message goes before it that says just that: `OPENING`.
- A picture of a kind that the provider does not take is named in words.
"""

from collections.abc import Sequence
from typing import Any

from aforesaid.dialects.checks import check_content, require_text, split_fields
from aforesaid.dialects.conversion import (
    Draft,
    IdFitter,
    arguments_object,
    calls_in,
    carried,
    result_parts,
    results_in,
    speaks,
    verbatim,
    words_in,
)
from aforesaid.dialects.meaning import Image, Part, Request, Text, ToolCall, ToolResult, is_blank
from aforesaid.dialects.order import results_after_calls
from aforesaid.dialects.parse import THINKING_BLOCKS, parts_of
from aforesaid.model.messages import Message, Role

NAME = "anthropic"
ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
LONGEST_ID = 256
MEDIA_TYPES = frozenset(("image/jpeg", "image/png", "image/gif", "image/webp"))
OPENING = "[The conversation shown here begins with the assistant.]"


def read_one(document: dict[str, Any]) -> Message:
    """One message of the `messages` list."""
    role, content, extra = split_fields(document, ROLES, dialect=NAME)
    check_content(content, dialect=NAME)
    for block in content if isinstance(content, list) else ():
        _check_tool_block(block)
    return Message(role=role, content=content, dialect=NAME, extra=extra)


def write(messages: Sequence[Message]) -> Request:
    """The `messages` and the `system` of a request."""
    fit = IdFitter(messages, NAME, longest=LONGEST_ID)
    prompts, spoken = _prompts_apart(messages, fit)
    joined: list[Draft] = []
    for message in results_after_calls(spoken):
        _add(joined, _draft(message, fit))
    documents = [document for draft in joined if (document := _tidied(draft)) is not None]
    if documents and documents[0]["role"] == "assistant":
        documents.insert(0, {"role": "user", "content": OPENING})
    return Request(messages=documents, system=_system(prompts))


def result(*, call_id: str, name: str, text: str, is_error: bool) -> Message:
    """A tool's answer."""
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


def _prompts_apart(messages: Sequence[Message], fit: IdFitter) -> tuple[list[Message], list[Message]]:
    prompts: list[Message] = []
    spoken: list[Message] = []
    for message in messages:
        is_prompt = message.role == "system" and not _may_stay(message, spoken, fit)
        (prompts if is_prompt else spoken).append(message)
    return prompts, spoken


def _may_stay(message: Message, spoken: Sequence[Message], fit: IdFitter) -> bool:
    # Newer models take a system message directly behind a user's turn, and nowhere else. Blank messages do
    # not count: the request leaves them out.
    if not speaks(message, NAME):
        return False
    before = next((each for each in reversed(spoken) if _tidied(_draft(each, fit)) is not None), None)
    return before is not None and before.role in ("user", "tool")


def _system(prompts: Sequence[Message]) -> str | list[dict[str, Any]] | None:
    """One prompt as it is; several as one list of blocks."""
    contents = [content for prompt in prompts if (content := _prompt_content(prompt))]
    if len(contents) == 1:
        return contents[0]
    return [block for content in contents for block in _blocks_of(content)] or None


def _prompt_content(prompt: Message) -> str | list[dict[str, Any]] | None:
    if speaks(prompt, NAME) and isinstance(prompt.content, list):
        return [block for block in prompt.content if not _is_blank(block)]
    words = words_in(parts_of(prompt))
    return words[0] if len(words) == 1 else [_block(Text(text)) for text in words]


# Messages


def _draft(message: Message, fit: IdFitter) -> Draft:
    if speaks(message, NAME) and isinstance(message.content, (str, list)):
        return Draft(document=verbatim(message), converted=False)
    role = "assistant" if message.role == "assistant" else "user"
    parts = parts_of(message)
    blocks = _answer(parts, fit) if role == "assistant" else _question(parts, fit)
    content = blocks[0]["text"] if len(blocks) == 1 and blocks[0]["type"] == "text" else blocks
    return Draft(document={"role": role, "content": content}, converted=True)


def _answer(parts: Sequence[Part], fit: IdFitter) -> list[dict[str, Any]]:
    words: list[dict[str, Any]] = [_block(Text(text)) for text in words_in(parts)]
    return words + [_tool_use(call, fit) for call in calls_in(parts)]


def _question(parts: Sequence[Part], fit: IdFitter) -> list[dict[str, Any]]:
    return [_tool_result(answer, fit) for answer in results_in(parts)] + [
        _block(part) for part in carried(parts)
    ]


def _tool_use(call: ToolCall, fit: IdFitter) -> dict[str, Any]:
    return {
        "type": "tool_use",
        "id": fit(call.id),
        "name": call.name,
        "input": arguments_object(call.arguments),
    }


def _tool_result(answer: ToolResult, fit: IdFitter) -> dict[str, Any]:
    blocks = [_block(part) for part in result_parts(answer)]
    alone = len(blocks) == 1 and blocks[0]["type"] == "text"
    return {
        "type": "tool_result",
        "tool_use_id": fit(answer.call_id),
        "content": blocks[0]["text"] if alone else blocks or "",
        **({"is_error": True} if answer.is_error else {}),
    }


def _block(part: Text | Image) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if part.data is None:
        return {"type": "image", "source": {"type": "url", "url": part.url}}
    kind = (part.media_type or "").lower()
    if kind not in MEDIA_TYPES:
        return {"type": "text", "text": f"[{kind}]"}
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": part.data}}


# Order and tidiness


def _add(drafts: list[Draft], draft: Draft) -> None:
    if draft.converted and not draft.document["content"]:
        return
    if drafts and _belong_together(drafts[-1], draft):
        drafts[-1] = _joined(drafts[-1], draft)
    else:
        drafts.append(draft)


def _belong_together(earlier: Draft, later: Draft) -> bool:
    role = later.document["role"]
    if earlier.document["role"] != role or role == "system":
        return False
    if earlier.converted or later.converted:
        return True
    # Neighbours of Anthropic's own, torn apart so that results would not be in the one next message.
    return _has(earlier.document, "tool_use") or _has(later.document, "tool_result")


def _joined(earlier: Draft, later: Draft) -> Draft:
    first, second = earlier.document, later.document
    content = _blocks_of(first["content"])
    said = any(not _is_thinking(block) for block in content)
    # Thinking is taken at the front of a message alone; behind words it stays behind.
    content += [block for block in _blocks_of(second["content"]) if not (said and _is_thinking(block))]
    if not any(_is_thinking(block) for block in content):
        content = sorted(content, key=lambda block: block.get("type") == "tool_use")
    document = {**first, **second, "content": content}
    return Draft(document=document, converted=earlier.converted or later.converted)


def _is_thinking(block: dict[str, Any]) -> bool:
    return block.get("type") in THINKING_BLOCKS


def _has(document: dict[str, Any], kind: str) -> bool:
    return any(block.get("type") == kind for block in _blocks_of(document["content"]))


def _tidied(draft: Draft) -> dict[str, Any] | None:
    """The message without what the provider refuses; None when that was all of it."""
    document, content = draft.document, draft.document["content"]
    if not isinstance(content, list):
        return None if is_blank(str(content)) else document
    kept = [_tidied_block(block) for block in content if not _is_blank(block)]
    while kept and document["role"] == "assistant" and kept[-1].get("type") in THINKING_BLOCKS:
        kept.pop()
    if document["role"] == "user":
        kept.sort(key=lambda block: block.get("type") != "tool_result")
    if not kept:
        return None
    return document if kept == content else {**document, "content": kept}


def _tidied_block(block: dict[str, Any]) -> dict[str, Any]:
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
