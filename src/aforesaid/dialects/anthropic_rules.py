"""What Anthropic's Messages API requires of a request as a whole, after its messages are rendered.

- A compaction block summarizes what came before it. The request starts with the newest one.
- A tool that the provider runs has its result in the same message or in the assistant's next one.
- The first message is the user's, or starts with a compaction block.
- A final message of the assistant does not end with whitespace.
- At most four blocks are marked with `cache_control`.
"""

from collections.abc import Callable, Iterator
from typing import Any

from aforesaid.dialects.conversion import OPENING
from aforesaid.dialects.parse import Request, is_blank

MAX_CACHE_MARKS = 4

UNPAIRED = "blocks of the provider's tools without their other half, left out"
MARKS = "cache_control marks beyond four, left out"
TRAILING = "blank at the end of the final message, left out"

Document = dict[str, Any]
Block = dict[str, Any]
Clean = Callable[[Document], Document | None]


def finished(documents: list[Document], system: Any, *, clean: Clean) -> Request:
    """Return the request. `clean` removes what is refused in one message, also after blocks were removed."""
    repairs: list[str] = []
    if not all(map(_is_text, documents)):
        documents = _from_compaction(documents, clean)
        documents, unpaired = _without_unpaired(documents, clean)
        if unpaired:
            repairs.append(f"{unpaired} {UNPAIRED}")
    documents = _without_stray_system(documents)
    if documents and documents[0]["role"] == "assistant" and not _starts_with_compaction(documents[0]):
        # The API requires a user message first.
        documents.insert(0, {"role": "user", "content": OPENING})
    if documents and documents[-1]["role"] == "assistant":
        stripped = _without_trailing_blank(documents[-1])
        if stripped is not documents[-1]:
            documents[-1] = stripped
            repairs.append(f"1 {TRAILING}")
    request = Request(messages=documents, system=system, repaired=tuple(repairs))
    return with_marks_limited(request, MAX_CACHE_MARKS)


def _is_text(document: Document) -> bool:
    """Return whether the message is text, as most are, and nothing else."""
    content = document["content"]
    return isinstance(content, str) or [block.get("type") for block in content] == ["text"]


# Compaction


def _from_compaction(documents: list[Document], clean: Clean) -> list[Document]:
    """Return the messages from the newest summary on, without earlier and failed ones."""
    places = [
        (at, place)
        for at, document in enumerate(documents)
        for place, block in enumerate(_blocks(document))
        if block.get("type") == "compaction"
    ]
    if not places:
        return documents
    summaries = [(at, place) for at, place in places if _is_summary(_blocks(documents[at])[place])]
    first, start = summaries[-1] if summaries else (0, 0)
    kept: list[Document] = []
    for at, document in enumerate(documents[first:], start=first):
        blocks = _blocks(document)[start if at == first else 0 :]
        # The provider ignores a failed compaction; an empty one is refused.
        remaining = [block for block in blocks if block.get("type") != "compaction" or _is_summary(block)]
        if len(remaining) == len(_blocks(document)):
            kept.append(document)
        elif remaining and (cleaned := clean({**document, "content": remaining})) is not None:
            kept.append(cleaned)
    return kept


def _is_summary(block: Block) -> bool:
    return not is_blank(str(block.get("content") or "")) or bool(block.get("encrypted_content"))


def _starts_with_compaction(document: Document) -> bool:
    return next((block.get("type") for block in _blocks(document)), None) == "compaction"


# Tools of the provider


def _without_unpaired(documents: list[Document], clean: Clean) -> tuple[list[Document], int]:
    """Remove calls and results of the provider's tools that have no other half, and count them."""
    unpaired = set(_unpaired(documents))
    if not unpaired:
        return documents, 0
    kept = []
    for at, document in enumerate(documents):
        blocks = [block for place, block in enumerate(_blocks(document)) if (at, place) not in unpaired]
        if len(blocks) == len(_blocks(document)):
            kept.append(document)
        elif blocks and (cleaned := clean({**document, "content": blocks})) is not None:
            kept.append(cleaned)
    return kept, len(unpaired)


def _unpaired(documents: list[Document]) -> Iterator[tuple[int, int]]:
    """Yield the message and place of each block without its other half."""
    pending: dict[str, tuple[int, int]] = {}
    for at, document in enumerate(documents):
        if document["role"] != "assistant":
            continue
        opened: dict[str, tuple[int, int]] = {}
        for place, block in enumerate(_blocks(document)):
            if is_server_call(block):
                opened[str(block.get("id"))] = (at, place)
            elif is_server_result(block):
                call_id = str(block.get("tool_use_id"))
                if opened.pop(call_id, None) is None and pending.pop(call_id, None) is None:
                    yield at, place
        # The result of a call is at the latest in the assistant's next message.
        yield from pending.values()
        pending = opened
    if pending and not _is_unfinished(documents, next(iter(pending.values()))[0]):
        yield from pending.values()


def _is_unfinished(documents: list[Document], at: int) -> bool:
    """Return whether the provider will complete this message: it is the last one, or only results follow."""
    rest = documents[at + 1 :]
    if not rest:
        return True
    return len(rest) == 1 and any(block.get("type") == "tool_result" for block in _blocks(rest[0]))


def is_server_call(block: Block) -> bool:
    """Return whether the provider runs the tool of this call."""
    return str(block.get("type")).endswith("_tool_use")


def is_server_result(block: Block) -> bool:
    """Return whether this is the result of a tool that the provider ran."""
    return str(block.get("type")).endswith("_tool_result")


def _without_stray_system(documents: list[Document]) -> list[Document]:
    """Remove system messages that follow no user's message, after messages before them were removed."""
    kept: list[Document] = []
    for document in documents:
        if document["role"] != "system" or (kept and kept[-1]["role"] == "user"):
            kept.append(document)
    return kept


# The end


def _without_trailing_blank(document: Document) -> Document:
    content = document["content"]
    if isinstance(content, str):
        return document if content == content.rstrip() else {**document, "content": content.rstrip()}
    last = content[-1] if content else {}
    text = last.get("text")
    if last.get("type") != "text" or not isinstance(text, str) or text == text.rstrip():
        return document
    return {**document, "content": [*content[:-1], {**last, "text": text.rstrip()}]}


# Marks of the prompt cache


def with_marks_limited(request: Request, most: int) -> Request:
    """Return the request with at most so many `cache_control` marks: the last ones, which cover the most."""
    excess = sum(1 for _ in _marks(request)) - most
    if excess <= 0:
        return request
    counter = iter(range(1 << 30))
    system = [_unmarked(block, counter, excess) for block in _content_blocks(request.system)]
    messages = [_unmarked_message(document, counter, excess) for document in request.messages]
    return Request(
        messages=messages,
        system=system if isinstance(request.system, list) else request.system,
        repaired=(*request.repaired, f"{excess} {MARKS}"),
    )


def _marks(request: Request) -> Iterator[Block]:
    contents = [request.system, *(document["content"] for document in request.messages)]
    for content in contents:
        for block in _content_blocks(content):
            yield from (each for each in (*_content_blocks(block.get("content")), block) if _is_marked(each))


def _is_marked(block: Block) -> bool:
    return block.get("cache_control") is not None


def _unmarked_message(document: Document, counter: Iterator[int], excess: int) -> Document:
    content = document["content"]
    if not isinstance(content, list):
        return document
    blocks = [_unmarked(block, counter, excess) for block in content]
    return document if blocks == content else {**document, "content": blocks}


def _unmarked(block: Block, counter: Iterator[int], excess: int) -> Block:
    inner = block.get("content")
    if isinstance(inner, list):
        within = [_unmarked(each, counter, excess) if isinstance(each, dict) else each for each in inner]
        block = block if within == inner else {**block, "content": within}
    if not _is_marked(block) or next(counter) >= excess:
        return block
    return {name: value for name, value in block.items() if name != "cache_control"}


def _content_blocks(content: Any) -> list[Block]:
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _blocks(document: Document) -> list[Block]:
    return _content_blocks(document["content"])
