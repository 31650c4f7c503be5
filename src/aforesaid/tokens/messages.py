"""What a request costs: messages, system prompt and tools. Below: dialects, contracts. Above: manager.

Text is counted by the counter; around it stand fixed overheads. OpenAI publishes its own for chat
messages: 3 tokens a message beside its role, 1 for a name, 3 that begin the answer. The rest is
known from observation only, so the constants here are upper estimates:

- what is not text counts as its compact JSON;
- a tool call or result costs `PER_CALL` beside name, arguments or content, its id included;
- tools cost `PER_TOOLS`, and each `PER_TOOL` beside its compact JSON, which is longer than the form
  that a model sees: OpenAI's own count of one tool with two parameters is a third lower;
- a picture costs `PER_IMAGE` (the largest that Claude takes; OpenAI's come cheaper), or
  `PER_SMALL_IMAGE` where low detail is asked for; a document, sound or film `PER_MEDIA`;
- thinking costs its words; where it is sealed, a token for four characters.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import UNSET

from aforesaid.contracts import TokenCounter
from aforesaid.dialects.meaning import Meaning, ToolCall, ToolResult
from aforesaid.errors import InvalidInput, shown
from aforesaid.model.messages import Message

PER_MESSAGE = 3
PER_NAME = 1
PER_REQUEST = 3
"""The answer begins with these: once a request."""
PER_CALL = 8
PER_TOOL = 8
PER_TOOLS = 12
PER_IMAGE = 1600
PER_SMALL_IMAGE = 85
PER_MEDIA = 3000
SEALED_CHARACTERS = 4

_TEXT_BLOCKS = frozenset(("text", "input_text", "output_text", "refusal"))
_IMAGE_BLOCKS = frozenset(("image", "image_url", "input_image", "computer_screenshot"))
_MEDIA_BLOCKS = frozenset(("document", "file", "input_file", "audio", "input_audio", "video", "video_url"))
_THINKING_BLOCKS = frozenset(("thinking", "redacted_thinking", "reasoning"))
_THINKING_FIELDS = ("reasoning", "reasoning_content", "reasoning_details")
_WORDS_OF_THINKING = frozenset(("thinking", "reasoning", "summary", "content", "text"))
_SEALED_THINKING = frozenset(("data", "encrypted_content"))


def count_message(counter: TokenCounter, message: Message, meaning: Meaning) -> int:
    """What the message costs in a request, all of it. `meaning` is that message, read."""
    return count_meaning(counter, message.role, meaning) + _count_beside_meaning(counter, message, meaning)


def count_words(counter: TokenCounter, role: str, words: str) -> int:
    """What a message costs that is nothing but words."""
    return PER_MESSAGE + _count_role(counter, role) + counter.count_text(words)


def count_meaning(counter: TokenCounter, role: str, meaning: Meaning) -> int:
    """What a message costs by its meaning: text, tool calls and results, and the message itself."""
    return (
        PER_MESSAGE
        + _count_role(counter, role)
        + counter.count_text(meaning.text)
        + sum(_count_call(counter, call) for call in meaning.calls)
        + sum(_count_result(counter, result) for result in meaning.results)
    )


def count_request(counter: TokenCounter, messages: Iterable[tuple[Message, Meaning]]) -> int:
    """What a list of messages costs as a request: each of them, and the beginning of the answer."""
    return PER_REQUEST + sum(count_message(counter, message, meaning) for message, meaning in messages)


def count_system(counter: TokenCounter, prompt: str | Sequence[Mapping[str, Any]] | None) -> int:
    """What a system prompt costs, text or blocks. None costs nothing."""
    if not prompt:
        return 0
    return PER_MESSAGE + counter.count_text("system") + count_content(counter, prompt)


def count_tools(counter: TokenCounter, tools: Sequence[Mapping[str, Any]]) -> int:
    """What tool definitions cost, in whichever dialect they are written."""
    if not tools:
        return 0
    return PER_TOOLS + sum(PER_TOOL + counter.count_text(compact_json(tool)) for tool in tools)


def count_content(counter: TokenCounter, content: Any) -> int:
    """What content costs by itself: text, blocks, or any JSON."""
    if content is None or content is UNSET:
        return 0
    if isinstance(content, str):
        return counter.count_text(content)
    if isinstance(content, list | tuple) and all(map(_is_block, content)):
        return sum(_count_block(counter, block) for block in content)
    if _is_block(content):
        return _count_block(counter, content)
    return counter.count_text(compact_json(content))


def compact_json(value: Any) -> str:
    """The value as JSON without blanks."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"only JSON can be counted ({error}); got {shown(value)}", value=value) from error


_roles: dict[tuple[str, str], int] = {}


def _count_role(counter: TokenCounter, role: str) -> int:
    """What the name of a role costs: there are four, so each is counted once."""
    key = (counter.name, role)
    if key not in _roles:
        _roles[key] = counter.count_text(role)
    return _roles[key]


def _count_call(counter: TokenCounter, call: ToolCall) -> int:
    arguments = call.arguments if isinstance(call.arguments, str) else compact_json(call.arguments)
    return PER_CALL + counter.count_text(call.name) + counter.count_text(arguments)


def _count_result(counter: TokenCounter, result: ToolResult) -> int:
    return PER_CALL + count_content(counter, result.content)


def _is_block(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, Mapping) and isinstance(value.get("type"), str))


def _count_block(counter: TokenCounter, block: Any) -> int:
    if isinstance(block, str):
        return counter.count_text(block)
    match block["type"]:
        case kind if kind in _TEXT_BLOCKS:
            words = block.get("refusal" if kind == "refusal" else "text")
            return counter.count_text(words if isinstance(words, str) else compact_json(block))
        case kind if kind in _IMAGE_BLOCKS:
            return PER_SMALL_IMAGE if _asks_for_low_detail(block) else PER_IMAGE
        case kind if kind in _MEDIA_BLOCKS and not _holds_words(block):
            return PER_MEDIA
        case kind if kind in _THINKING_BLOCKS:
            return _count_thinking(counter, block)
    if isinstance(block.get("content"), list | tuple):
        return _count_with_content(counter, block)
    return counter.count_text(compact_json(block))


def _count_with_content(counter: TokenCounter, block: Mapping[str, Any]) -> int:
    # Pictures lie inside, as in a tool result: they must not be counted as the text of their bytes.
    rest = {key: value for key, value in block.items() if key != "content"}
    return counter.count_text(compact_json(rest)) + count_content(counter, block["content"])


def _asks_for_low_detail(block: Mapping[str, Any]) -> bool:
    address = block.get("image_url")
    within = address if isinstance(address, Mapping) else block
    return within.get("detail") == "low"


def _holds_words(block: Mapping[str, Any]) -> bool:
    """Whether a document is text, or blocks, and no file."""
    source = block.get("source")
    return isinstance(source, Mapping) and source.get("type") in ("text", "content")


def _count_thinking(counter: TokenCounter, thinking: Any) -> int:
    match thinking:
        case str():
            return counter.count_text(thinking)
        case list() | tuple():
            return sum(_count_thinking(counter, part) for part in thinking)
        case Mapping():
            words = sum(_count_thinking(counter, thinking.get(key)) for key in _WORDS_OF_THINKING)
            return words + sum(_count_sealed(thinking.get(key)) for key in _SEALED_THINKING)
    return 0


def _count_sealed(sealed: Any) -> int:
    return -(-len(sealed) // SEALED_CHARACTERS) if isinstance(sealed, str) else 0


def _count_beside_meaning(counter: TokenCounter, message: Message, meaning: Meaning) -> int:
    """What a meaning does not hold: thinking, pictures and media, blocks of one provider, a name."""
    if message.content is UNSET and isinstance(message.extra.get("type"), str):
        known = meaning.calls or meaning.results
        return 0 if known else _count_block(counter, message.extra)
    return (
        _count_name(counter, message)
        + _count_fields(counter, message)
        + _count_blocks(counter, message, meaning)
    )


def _count_name(counter: TokenCounter, message: Message) -> int:
    name = message.extra.get("name")
    return PER_NAME + counter.count_text(name) if isinstance(name, str) else 0


def _count_fields(counter: TokenCounter, message: Message) -> int:
    # Servers that write thinking into more than one field say the same in each.
    given = (message.extra[field] for field in _THINKING_FIELDS if message.extra.get(field))
    return _count_thinking(counter, next(given, None)) if message.role == "assistant" else 0


def _count_blocks(counter: TokenCounter, message: Message, meaning: Meaning) -> int:
    if message.role == "tool" and meaning.results:
        return 0  # the content as a whole is the result
    blocks = message.content if isinstance(message.content, list | tuple) else [message.content]
    return sum(_count_block(counter, block) for block in blocks if not _is_in_meaning(block))


def _is_in_meaning(block: Any) -> bool:
    match block:
        case {"type": "tool_use", "id": str(), "name": str()} | {"type": "tool_result", "tool_use_id": str()}:
            return True
        case {"type": str(kind)}:
            return kind in _TEXT_BLOCKS
    return True
