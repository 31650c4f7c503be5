"""Token counts of messages, each counted once, and of requests with system prompt and tools."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import UNSET

from aforesaid._internal.bounded import BoundedDict
from aforesaid.contracts import TokenCounter
from aforesaid.dialects import meaning_of
from aforesaid.dialects.keyed_blocks import field, keyed, typed
from aforesaid.dialects.parse import Meaning, ToolCall, ToolResult
from aforesaid.errors import InvalidInput, shown
from aforesaid.model.messages import Message, plain_text
from aforesaid.tokens.counters import Estimator
from aforesaid.tokens.families import Family

# Token counts of requests: messages, system prompt and tools.
#
# The counter counts text; fixed overheads are added. OpenAI documents its own for chat messages: 3 tokens
# per message plus its role, 1 for a name, 3 for the start of the answer. The other constants are upper
# estimates from observation:
#
# - content other than text counts as its compact JSON;
# - a tool call or result costs `PER_CALL` plus name, arguments or content, including its id;
# - an image costs `PER_IMAGE` (the largest for Claude; OpenAI's cost less), or `PER_SMALL_IMAGE` with
#   low detail; a document, audio or video costs `PER_MEDIA`;
# - thinking costs its text; encrypted thinking costs a token per four characters, and that of OpenAI, whose
#   summary the model does not receive, one per five characters beyond its frame.


PER_MESSAGE = 3
PER_NAME = 1
# The start of the answer, once per request.
PER_REQUEST = 3
PER_CALL = 8
PER_IMAGE = 1600
PER_SMALL_IMAGE = 85
PER_MEDIA = 3000
SEALED_CHARACTERS = 4
# OpenAI's encrypted thinking: characters without any thought, and per token (5.9 to 28 were recorded).
SEALED_FRAME = 700
SEALED_CHARACTERS_OF_OPENAI = 5

_TEXT_BLOCKS = frozenset(("text", "input_text", "output_text", "refusal"))
_IMAGE_BLOCKS = frozenset(("image", "image_url", "input_image", "computer_screenshot"))
_MEDIA_BLOCKS = frozenset(("document", "file", "input_file", "audio", "input_audio", "video", "video_url"))
_THINKING_BLOCKS = frozenset(("thinking", "redacted_thinking", "reasoning"))
_THINKING_FIELDS = ("reasoning", "reasoning_content", "reasoning_details")
_CALL_BLOCKS = ("tool_use", "tool_result")
_THINKING_TEXT_KEYS = frozenset(("thinking", "reasoning", "reasoningText", "summary", "content", "text"))
_SEALED_THINKING_KEYS = frozenset(("data", "redactedContent"))


def count_message(counter: TokenCounter, message: Message, meaning: Meaning) -> int:
    """Return the cost of a whole message in a request. `meaning` is the parsed message."""
    return count_meaning(counter, message.role, meaning) + _count_outside_meaning(counter, message, meaning)


def count_plain_text(counter: TokenCounter, role: str, words: str) -> int:
    """Return the cost of a message that contains only text."""
    return _per_message(counter, role) + counter.count_text(words)


def count_meaning(counter: TokenCounter, role: str, meaning: Meaning) -> int:
    """Return the cost of a message by its meaning: text, tool calls, results, and the message overhead."""
    return (
        _per_message(counter, role)
        + counter.count_text(meaning.text)
        + sum(_count_call(counter, call) for call in meaning.calls)
        + sum(_count_result(counter, result) for result in meaning.results)
    )


def count_request(counter: TokenCounter, messages: Iterable[tuple[Message, Meaning]]) -> int:
    """Return the cost of a list of messages as a request, including the start of the answer."""
    return PER_REQUEST + sum(count_message(counter, message, meaning) for message, meaning in messages)


def count_system(counter: TokenCounter, prompt: str | Sequence[Mapping[str, Any]] | None) -> int:
    """Return the cost of a system prompt, text or blocks. None costs nothing."""
    if not prompt:
        return 0
    family = _family(counter)
    added = PER_MESSAGE + counter.count_text("system") if family is None else family.system
    return added + count_content(counter, prompt)


def count_content(counter: TokenCounter, content: Any) -> int:
    """Return the cost of content alone: text, blocks, or any JSON."""
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
    """Return the value as JSON without whitespace."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"only JSON can be counted ({error}); got {shown(value)}", value=value) from error


def _family(counter: TokenCounter) -> Family | None:
    """Return the family of models that an estimate is for; None for another counter."""
    family = getattr(counter, "family", None)
    return family if isinstance(family, Family) else None


def _per_message(counter: TokenCounter, role: str) -> int:
    family = _family(counter)
    return PER_MESSAGE + _count_role(counter, role) if family is None else family.message


_roles: dict[tuple[str, str], int] = {}


def _count_role(counter: TokenCounter, role: str) -> int:
    """Return the cost of a role's name, cached because there are only four."""
    key = (counter.name, role)
    if key not in _roles:
        _roles[key] = counter.count_text(role)
    return _roles[key]


def _count_call(counter: TokenCounter, call: ToolCall) -> int:
    arguments = call.arguments if isinstance(call.arguments, str) else compact_json(call.arguments)
    return _per_call(counter) + counter.count_text(call.name) + counter.count_text(arguments)


def _count_result(counter: TokenCounter, result: ToolResult) -> int:
    return _per_call(counter) + count_content(counter, result.content)


def _per_call(counter: TokenCounter) -> int:
    family = _family(counter)
    return PER_CALL if family is None else family.call


def _is_block(value: Any) -> bool:
    if isinstance(value, str):
        return True
    return isinstance(value, Mapping) and (isinstance(value.get("type"), str) or keyed(value) is not None)


def _count_block(counter: TokenCounter, block: Any) -> int:
    if isinstance(block, str):
        return counter.count_text(block)
    if "type" not in block:
        return _count_keyed(counter, block)
    match block["type"]:
        case kind if kind in _TEXT_BLOCKS:
            words = block.get("refusal" if kind == "refusal" else "text")
            return counter.count_text(words if isinstance(words, str) else compact_json(block))
        case kind if kind in _IMAGE_BLOCKS:
            return PER_SMALL_IMAGE if _has_low_detail(block) else PER_IMAGE
        case kind if (kind in _MEDIA_BLOCKS or "/" in kind) and not _is_text_document(block):
            return PER_MEDIA
        case kind if kind in _THINKING_BLOCKS:
            return _count_thinking(counter, block)
    if isinstance(block.get("content"), list | tuple):
        return _count_with_content(counter, block)
    return counter.count_text(compact_json(block))


def _count_keyed(counter: TokenCounter, block: Any) -> int:
    """Return the cost of a block of Gemini or Bedrock."""
    found, form = keyed(block), typed(block)
    if found is None or form is None:
        return counter.count_text(compact_json(block))
    if found.key == "reasoningContent":
        return _count_thinking(counter, found.value)
    if set(form) == {"type"} and form["type"] not in _IMAGE_BLOCKS | _MEDIA_BLOCKS:
        return counter.count_text(compact_json(block))
    return _count_block(counter, form)


def _count_with_content(counter: TokenCounter, block: Mapping[str, Any]) -> int:
    # The content may include images, as in a tool result; their bytes must not be counted as text.
    rest = {key: value for key, value in block.items() if key != "content"}
    return counter.count_text(compact_json(rest)) + count_content(counter, block["content"])


def _has_low_detail(block: Mapping[str, Any]) -> bool:
    address = block.get("image_url")
    within = address if isinstance(address, Mapping) else block
    return within.get("detail") == "low"


def _is_text_document(block: Mapping[str, Any]) -> bool:
    """Return whether a document consists of text or blocks instead of a file."""
    source = block.get("source")
    return isinstance(source, Mapping) and source.get("type") in ("text", "content")


def _count_thinking(counter: TokenCounter, thinking: Any) -> int:
    match thinking:
        case str():
            return counter.count_text(thinking)
        case list() | tuple():
            return sum(_count_thinking(counter, part) for part in thinking)
        case {"encrypted_content": str(sealed)} if sealed:
            return max(0, -(-(len(sealed) - SEALED_FRAME) // SEALED_CHARACTERS_OF_OPENAI))
        case Mapping():
            words = sum(_count_thinking(counter, thinking.get(key)) for key in _THINKING_TEXT_KEYS)
            return words + sum(_count_sealed(thinking.get(key)) for key in _SEALED_THINKING_KEYS)
    return 0


def _count_sealed(sealed: Any) -> int:
    return -(-len(sealed) // SEALED_CHARACTERS) if isinstance(sealed, str) else 0


def _count_outside_meaning(counter: TokenCounter, message: Message, meaning: Meaning) -> int:
    """Return the cost of content outside the meaning: thinking, media, provider-specific blocks, a name."""
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
    # Servers that write thinking into several fields repeat the same text, so count only one.
    present = (message.extra[field] for field in _THINKING_FIELDS if message.extra.get(field))
    return _count_thinking(counter, next(present, None)) if message.role == "assistant" else 0


def _count_blocks(counter: TokenCounter, message: Message, meaning: Meaning) -> int:
    if message.role == "tool" and meaning.results:
        return 0  # the whole content is the result, which is already counted
    blocks = message.content if isinstance(message.content, list | tuple) else [message.content]
    outside = sum(_count_block(counter, block) for block in blocks if not _is_in_meaning(block))
    return outside + _count_signatures(counter, blocks)


def _count_signatures(counter: TokenCounter, blocks: Sequence[Any]) -> int:
    family = _family(counter)
    if family is None or not family.signature:
        return 0
    sealed = (field(block, "thoughtSignature") for block in blocks)
    return math.ceil(family.signature * sum(len(each) for each in sealed if isinstance(each, str)))


def _is_in_meaning(block: Any) -> bool:
    if isinstance(block, Mapping) and "type" not in block:
        form = typed(block)
        # A block of an unknown kind is text of the meaning.
        return form is None or form["type"] in _CALL_BLOCKS or form["type"] in _TEXT_BLOCKS
    match block:
        case {"type": "tool_use", "id": str(), "name": str()} | {"type": "tool_result", "tool_use_id": str()}:
            return True
        case {"type": str(kind)}:
            return kind in _TEXT_BLOCKS
    return True


# The token count of a message, counted once.
#
# A count stored with a message stays valid when an estimator learns: the correction is applied to it. Other
# messages (stored under another counter, not stored yet, or partially shown in a window) are counted on
# demand and cached in this process by content.


# Maximum number of cached counts, about 200 bytes each: enough for four windows.
CACHE_SIZE = 16_384

# Characters of blocks up to which a count is cached. Larger content is mostly an image, which has a fixed
# cost and is cheaper to count than to hash.
LARGEST_BLOCKS = 200_000

Key = tuple[str, bytes]

_cache: BoundedDict[Key, int] = BoundedDict(CACHE_SIZE)


def storable_counter(counter: TokenCounter) -> TokenCounter:
    """Return the counter for stored counts: an estimator's uncorrected part, which never changes."""
    return counter.uncorrected if isinstance(counter, Estimator) else counter


class NotCounted(Exception):
    """The message has no stored count, and the counter is not loaded yet."""


def costs_by(
    counter: TokenCounter, *, stored_only: bool = False, otherwise: TokenCounter | None = None
) -> Callable[[Message], int]:
    """Return a function from a message to its cost: the stored count, or a cached one.

    Both options are for a counter that is not loaded yet. With `stored_only`, the function raises
    `NotCounted` for a message without a stored count; `otherwise` counts such a message.
    """
    storable = storable_counter(counter)
    name = storable.name

    def cost(message: Message) -> int:
        stored = message.tokens.get(name)
        if stored is not None:
            return stored
        if stored_only:
            raise NotCounted
        if otherwise is not None:
            return _count_cached(otherwise, message, otherwise.name)
        return _count_cached(storable, message, name)

    if isinstance(counter, Estimator) and counter.correction != 1.0:
        # Stored counts are uncorrected: the correction changes while the process learns.
        return lambda message: counter.corrected(cost(message))
    return cost


def count(counter: TokenCounter, message: Message) -> int:
    """Count a message now, ignoring stored and cached counts."""
    plain = plain_text(message)
    if plain is not None:
        return count_plain_text(counter, message.role, plain)
    return count_message(counter, message, meaning_of(message))


def characters_in(value: Any) -> int:
    """Return the approximate number of characters in a message or JSON value."""
    if isinstance(value, Message):
        plain = plain_text(value)
        return len(plain) if plain is not None else characters_in(value.content) + characters_in(value.extra)
    if isinstance(value, str):
        return len(value)
    if isinstance(value, list | tuple):
        return sum(map(characters_in, value))
    return sum(map(characters_in, value.values())) if isinstance(value, dict) else 1


def _count_cached(counter: TokenCounter, message: Message, name: str) -> int:
    key = _key(name, message)
    cached = None if key is None else _cache.get(key)
    if cached is None:
        cached = count(counter, message)
        if key is not None:
            _cache[key] = cached
    return cached


def _key(name: str, message: Message) -> Key | None:
    """Return a cache key of everything that affects the count; None if the message is not cacheable."""
    if not isinstance(message.content, str) and characters_in(message) > LARGEST_BLOCKS:
        return None
    # UNSET cannot be encoded; an empty tuple keeps it apart from None.
    content = () if message.content is msgspec.UNSET else (message.content,)
    try:
        counted = msgspec.json.encode((message.role, message.dialect, content, message.extra))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None  # the codec cannot encode it, for example an integer with many digits
    return name, blake2b(counted, digest_size=16).digest()
