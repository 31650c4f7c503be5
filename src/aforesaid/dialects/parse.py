"""The dialect-independent meaning of a message, and the parts of every dialect that it is parsed from."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import UNSET, Struct

from aforesaid._internal.patterns import lazy_pattern
from aforesaid.dialects import items
from aforesaid.dialects.items import Link
from aforesaid.dialects.keyed_blocks import as_json, typed
from aforesaid.model.messages import Message, only_text

# The dialect-independent meaning of a message.
#
# A message consists of parts. `Part` lists the kinds that can be converted between dialects. Anything else
# is an `Other`: kept in its own dialect and described as text in others.


def is_blank(text: str) -> bool:
    """Return whether the text is empty or only whitespace, which providers reject."""
    return not text.strip()


class Citation(Struct, frozen=True, kw_only=True):
    """A page that a text cites."""

    url: str
    title: str = ""
    quote: str = ""


class SearchResult(Struct, frozen=True, kw_only=True):
    """A search result that the user's side provides for the model to cite."""

    source: str
    title: str
    texts: tuple[str, ...]


class Text(Struct, frozen=True):
    """A text, and the pages that it cites."""

    text: str
    citations: tuple[Citation, ...] = ()


class Image(Struct, frozen=True, kw_only=True):
    """An image: a URL, or base64 data with its media type."""

    url: str | None = None
    media_type: str | None = None
    data: str | None = None
    detail: str | None = None
    """The requested resolution, in dialects that have one."""

    @property
    def as_url(self) -> str:
        """The image as a URL. Data becomes a `data:` URL."""
        return self.url if self.url is not None else f"data:{self.media_type};base64,{self.data}"


class Thinking(Struct, frozen=True):
    """A model's thinking. It is signed or encrypted for its provider and never converted."""


class File(Struct, frozen=True, kw_only=True):
    """A document or a recording: a URL, or base64 data, with its media type."""

    media_type: str
    data: str | None = None
    url: str | None = None
    name: str | None = None

    @property
    def is_pdf(self) -> bool:
        return self.media_type == "application/pdf"

    @property
    def as_url(self) -> str:
        """The file as a URL. Data becomes a `data:` URL."""
        return self.url if self.url is not None else f"data:{self.media_type};base64,{self.data}"


class Other(Struct, frozen=True, kw_only=True):
    """Content that exists only in its own dialect, or a file."""

    kind: str
    text: str
    """The replacement in other dialects: the text inside, or the kind in brackets."""
    file: File | None = None
    """The file, for dialects that accept its type."""
    search_result: SearchResult | None = None
    """The search result, for dialects that have them."""


class ToolCall(Struct, frozen=True, kw_only=True):
    """A model's call of a tool."""

    id: str
    name: str
    arguments: Any
    """The arguments as the dialect has them: an object or its JSON text."""


class ToolResult(Struct, frozen=True, kw_only=True):
    """The result of a tool call."""

    call_id: str
    content: Any
    """The result as the dialect has it: text or blocks."""
    is_error: bool = False


Part = Text | Image | Thinking | Other | ToolCall | ToolResult | Link


class Meaning(Struct, frozen=True, kw_only=True):
    """A parsed message."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()
    thinking: bool = False
    """Whether the message contains thinking, which must stay with the calls after it."""
    opens: tuple[str, ...] = ()
    """Ids of calls that the provider answers, in this message or a later one."""
    closes: tuple[str, ...] = ()
    """Ids of such calls that are answered here."""


class Request(Struct, frozen=True, kw_only=True):
    """A request's messages for a provider.

    `messages` is the value of the provider's `messages`, `input` or `contents` parameter. `system` is the
    separate system prompt of Anthropic (text or blocks), Gemini (a content) and Bedrock (blocks). It is None
    without a prompt and in all other dialects.
    """

    messages: list[dict[str, Any]]
    # Each provider has a type of its own.
    system: Any = None
    repaired: tuple[str, ...] = ()
    """What was changed because the provider refuses it, by kind. The log is unchanged."""


# Parse the blocks, fields and items of every dialect into parts.
#
# One parser serves all dialects, because no block type has two meanings. It therefore also understands
# messages labelled `plain` or with an unknown dialect. It accepts any JSON.


TEXT_BLOCKS = frozenset(("text", "input_text", "output_text"))
THINKING_BLOCKS = frozenset(("thinking", "redacted_thinking"))
IMAGE_BLOCKS = frozenset(("image", "image_url", "input_image"))
# Fields for thinking in servers with OpenAI's chat API.
THINKING_FIELDS = ("reasoning", "reasoning_content", "reasoning_details", "thinking")

_DATA_URL = lazy_pattern(r"data:([\w.+-]+/[\w.+-]+)(?:;[^,]*)?;base64,", re.IGNORECASE)


def meaning_of(message: Message) -> Meaning:
    """Return a message's text, tool calls, tool results and whether it contains thinking."""
    text = only_text(message)
    if text is not None:
        return Meaning(text=text)
    parts = parts_of(message)
    return Meaning(
        text=_join_texts(parts, glue="" if message.role == "assistant" else "\n"),
        calls=tuple(part for part in parts if isinstance(part, ToolCall)),
        results=tuple(part for part in parts if isinstance(part, ToolResult)),
        thinking=any(isinstance(part, Thinking) for part in parts),
        opens=tuple(part.id for part in parts if isinstance(part, Link) and not part.closes),
        closes=tuple(part.id for part in parts if isinstance(part, Link) and part.closes),
    )


def parts_of(message: Message) -> list[Part]:
    """Return a message's parts in order."""
    if message.content is UNSET and isinstance(message.extra.get("type"), str):
        return item_parts(message.extra)
    if message.role == "tool":
        return _answer_parts(message)
    return [*parts_in(message.content), *_field_parts(message)]


def parts_in(content: Any) -> list[Part]:
    """Return the parts of a message's or tool result's content."""
    match content:
        case str():
            return [Text(content)] if content else []
        case list() | tuple():
            return [part for block in content for part in _block_parts(block)]
        case None:
            return []
        case _:
            # Any JSON is valid content; as text it can still be read and searched.
            return [] if content is UNSET else [Text(as_json(content))]


def item_parts(item: dict[str, Any]) -> list[Part]:
    """Return the parts of a Responses API item without a role."""
    kind = item.get("type")
    if kind == "reasoning":
        return [Thinking()]
    call_id = items.call_id_of(item)
    if items.is_call(item) and call_id is not None:
        return [
            ToolCall(id=call_id, name=_text(item.get("name")) or str(kind), arguments=_item_arguments(item))
        ]
    if items.is_answer(item) and call_id is not None:
        return [
            ToolResult(call_id=call_id, content=_item_output(item), is_error=item.get("status") == "failed")
        ]
    link = items.link_of(item)
    return [_other(item)] if link is None else [link]


def _item_output(item: dict[str, Any]) -> Any:
    if item["type"] == "mcp_approval_response":
        return "approved" if item.get("approve") is True else _text(item.get("reason")) or "not approved"
    return item.get("tools") if item["type"] == "tool_search_output" else item.get("output")


def text_of(content: Any) -> str:
    """Return the text of a content value, such as a tool result's."""
    return _join_texts(parts_in(content), glue="\n")


def image_of(block: dict[str, Any]) -> Image | None:
    """Return the image in an image block of any dialect; None for a file id or an unknown form."""
    match block:
        case {"type": "image", "source": {"type": "base64", "media_type": str(kind), "data": str(data)}}:
            return Image(media_type=kind, data=data)
        case {"type": "image", "source": {"type": "url", "url": str(url)}}:
            return _image_at(url)
        case {"type": "image", "mimeType": str(kind), "data": str(data)}:
            return Image(media_type=kind, data=data)
        case {"type": "image_url", "image_url": {"url": str(url), **rest}}:
            return _image_at(url, detail=rest.get("detail"))
        case {"type": "image_url" | "input_image", "image_url": str(url), **rest}:
            return _image_at(url, detail=rest.get("detail"))
    return None


def images_in(fields: dict[str, Any]) -> list[Image]:
    """Return the images of Ollama's field `images`: base64 data without a media type."""
    images = fields.get("images")
    found = [each for each in images if isinstance(each, str)] if isinstance(images, list) else []
    return [Image(media_type=_media_type(data), data=data) for data in found]


def _media_type(data: str) -> str:
    return next((kind for start, kind in _IMAGE_STARTS.items() if data.startswith(start)), "image/png")


# The first bytes of images, in base64.
_IMAGE_STARTS = {"/9j/": "image/jpeg", "R0lG": "image/gif", "UklG": "image/webp"}


def split_data_url(url: str) -> tuple[str, str, str] | None:
    """Return the prefix, media type and base64 text of a `data:` URL."""
    found = _DATA_URL.match(url)
    return None if found is None else (found[0], found[1], url[found.end() :])


def _image_at(url: str, *, detail: Any = None) -> Image | None:
    resolution = detail if isinstance(detail, str) else None
    inline = split_data_url(url)
    if inline is not None:
        return Image(media_type=inline[1], data=inline[2], detail=resolution)
    return None if url.startswith("data:") else Image(url=url, detail=resolution)


def answered_call_id(message: Message) -> str | None:
    """Return the id of the call that the whole message answers: a chat `tool` message or an output item."""
    if message.content is UNSET and isinstance(message.extra.get("type"), str):
        return items.call_id_of(message.extra) if items.is_answer(message.extra) else None
    if message.role != "tool":
        return None
    # OpenAI's deprecated `function` messages and Ollama's results have no call id; they answer by name.
    name = message.extra.get("tool_name", message.extra.get("name"))
    call_id = message.extra.get("tool_call_id", name)
    return call_id if isinstance(call_id, str) else None


def _answer_parts(message: Message) -> list[Part]:
    call_id = answered_call_id(message)
    if call_id is None:
        return parts_in(message.content)
    content = None if message.content is UNSET else message.content
    return [ToolResult(call_id=call_id, content=content, is_error=message.extra.get("is_error") is True)]


def _field_parts(message: Message) -> list[Part]:
    extra = message.extra
    if not extra or message.role != "assistant":
        return [*images_in(extra)] if extra and message.role == "user" else []
    parts: list[Part] = []
    if any(extra.get(field) for field in THINKING_FIELDS):
        parts.append(Thinking())
    if refusal := _text(extra.get("refusal")):
        parts.append(Text(refusal))
    audio = extra.get("audio")
    # OpenAI's audio answers have their words in the transcript and no content.
    if isinstance(audio, dict) and not message.content and (transcript := _text(audio.get("transcript"))):
        parts.append(Text(transcript))
    calls = extra.get("tool_calls")
    if isinstance(calls, list):
        parts.extend(call for document in calls if (call := _call_of(document)) is not None)
    if (call := _legacy_call(extra.get("function_call"))) is not None:
        parts.append(call)
    return parts


def _call_of(document: Any) -> ToolCall | None:
    """Parse a tool call of OpenAI's chat API (function or custom) or of a plain message."""
    match document:
        case {"function": {"name": str(name), **function}} if name:
            return ToolCall(id=_id_of(document, name), name=name, arguments=function.get("arguments", ""))
        case {"custom": {"name": str(name), **custom}} if name:
            return ToolCall(id=_id_of(document, name), name=name, arguments=custom.get("input", ""))
        case {"name": str(name), **rest} if name:
            return ToolCall(id=_id_of(document, name), name=name, arguments=rest.get("arguments", {}))
    return None


def _id_of(call: Any, name: str) -> str:
    # Ollama's calls have no ids; their results answer by name.
    return call["id"] if isinstance(call.get("id"), str) else name


def _legacy_call(document: Any) -> ToolCall | None:
    match document:
        # Some servers send a placeholder with an empty name, which is no call.
        case {"name": str(name), **rest} if name:
            # The deprecated function call has no id; its result answers by name.
            return ToolCall(id=name, name=name, arguments=rest.get("arguments", ""))
    return None


def _block_parts(block: Any) -> list[Part]:
    if isinstance(block, str):
        return [Text(block)] if block else []
    block = typed(block) or block
    if not isinstance(block, dict) or not isinstance(block.get("type"), str):
        return [Text(as_json(block))]
    kind = block["type"]
    if kind in TEXT_BLOCKS or kind == "refusal":
        text = _text(block.get("refusal" if kind == "refusal" else "text"))
        return [Text(text, citations_of(block))] if text else []
    if kind in THINKING_BLOCKS:
        return [Thinking()]
    if kind in IMAGE_BLOCKS:
        return [image_of(block) or _other(block)]
    return [_tool_part(block) or _other(block)]


def _tool_part(block: dict[str, Any]) -> Part | None:
    match block:
        case {"type": "tool_use", "id": str(call_id), "name": str(name), **rest} if name:
            return ToolCall(id=call_id, name=name, arguments=rest.get("input", {}))
        case {"type": "tool_result", "tool_use_id": str(call_id), **rest}:
            return ToolResult(
                call_id=call_id, content=rest.get("content"), is_error=rest.get("is_error") is True
            )
        # Tools that the provider runs: web search, code execution, MCP servers and those of later versions.
        case {"type": str(kind), "id": str(call_id)} if kind.endswith("_tool_use"):
            return Link(call_id, closes=False)
        case {"type": str(kind), "tool_use_id": str(call_id)} if kind.endswith("_tool_result"):
            return Link(call_id, closes=True)
    return None


def _other(block: dict[str, Any]) -> Other:
    kind = str(block["type"])
    words = _words_inside(block)
    return Other(
        kind=kind,
        text=words or f"[{kind}]",
        file=None if words else file_of(block),
        search_result=search_result_of(block) if words else None,
    )


def citations_of(block: dict[str, Any]) -> tuple[Citation, ...]:
    """Return the pages that a text block cites."""
    listed = block.get("citations") or block.get("annotations")
    found = [_citation(each) for each in listed] if isinstance(listed, list) else []
    return tuple(each for each in found if each is not None)


def _citation(value: Any) -> Citation | None:
    match value:
        case {"type": "web_search_result_location", "url": str(url), **rest}:
            return Citation(url=url, title=_text(rest.get("title")), quote=_text(rest.get("cited_text")))
        case {"type": "search_result_location", "source": str(url), **rest} if url.startswith(
            ("https://", "http://")
        ):
            return Citation(url=url, title=_text(rest.get("title")), quote=_text(rest.get("cited_text")))
        case {"type": "url_citation", "url": str(url), **rest}:
            return Citation(url=url, title=_text(rest.get("title")))
        case {"location": {"web": {"url": str(url)}}, **rest}:
            quote = "\n".join(_texts(rest.get("sourceContent")))
            return Citation(url=url, title=_text(rest.get("title")), quote=quote)
    return None


def search_result_of(block: dict[str, Any]) -> SearchResult | None:
    """Return the search result of a block in Anthropic's form."""
    match block:
        case {"type": "search_result", "source": str(source), "title": str(title), "content": list(blocks)}:
            texts = tuple(text for text in _texts(blocks) if text.strip())
            return SearchResult(source=source, title=title, texts=texts)
    return None


def _texts(blocks: Any) -> list[str]:
    listed = blocks if isinstance(blocks, list) else []
    return [_text(each.get("text")) for each in listed if isinstance(each, dict)]


def file_of(block: dict[str, Any]) -> File | None:
    """Return the file in a block of any dialect; None for a file id or an unknown form."""
    match block:
        case {"source": {"type": "base64", "media_type": str(kind), "data": str(data)}, **rest}:
            return File(media_type=kind, data=data, name=_text(rest.get("title")) or None)
        case {"type": "document", "source": {"type": "url", "url": str(url)}, **rest}:
            return File(media_type=_PDF, url=url, name=_text(rest.get("title")) or None)
        case {"type": "file", "file": {"file_data": str(url), **rest}}:
            return _file_at(url, rest.get("filename"))
        case {"type": "input_file", "file_data": str(url), **rest}:
            return _file_at(url, rest.get("filename"))
        case {"type": "input_file", "file_url": str(url)}:
            return File(media_type=_PDF, url=url)
        case {"type": "input_audio", "input_audio": {"data": str(data), "format": str(kind)}}:
            return File(media_type=f"audio/{kind}", data=data)
        case {"type": "input_audio", "input_audio": str(data)}:  # Mistral
            return File(media_type="audio/wav", data=data)
        case {"type": "document_url", "document_url": str(url), **rest}:
            return _file_at(url, rest.get("document_name")) or File(media_type=_PDF, url=url)
    return None


def _file_at(url: str, name: Any) -> File | None:
    inline = split_data_url(url)
    if inline is None:
        return None
    return File(media_type=inline[1], data=inline[2], name=_text(name) or None)


_PDF = "application/pdf"


def _words_inside(block: dict[str, Any]) -> str:
    match block:
        case {"type": "document", "source": {"type": "text", "data": str(data)}}:
            return data
        case {"type": "compaction", "content": str(summary)}:
            return summary
        case {"type": "search_result" | "document", "content": list(blocks)}:
            return _plain_texts(blocks)
        case {"type": "document", "source": {"type": "content", "content": list(blocks)}}:
            return _plain_texts(blocks)
    return ""


def _plain_texts(blocks: Iterable[Any]) -> str:
    texts = (
        block["text"]
        for block in blocks
        if isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)
    )
    return "\n".join(texts)


def _item_arguments(item: dict[str, Any]) -> Any:
    for field in ("arguments", "input", "action", "actions", "operation"):
        if field in item:
            return item[field]
    return {}


def _join_texts(parts: Sequence[Part], *, glue: str) -> str:
    """Join the texts. Providers split an assistant's sentence at citations, so its texts join without a
    separator.
    """
    runs: list[list[str]] = [[]]
    for part in parts:
        if isinstance(part, Text):
            runs[-1].append(part.text)
        # Something else stands between the texts: keep them apart.
        elif runs[-1]:
            runs.append([])
    return "\n".join(glue.join(run) for run in runs if run)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
