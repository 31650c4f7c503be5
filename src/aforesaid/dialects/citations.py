"""Citations of web pages in an answer, and search results in a question, of every dialect that has them.

A citation of a page stands for itself, so it is converted. A citation of a passage in a document refers to
the documents of its request by number, and one of Anthropic's web search has an encrypted index. These stay
in their own dialect, and others receive the text.
"""

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct


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


def citations_of(block: dict[str, Any]) -> tuple[Citation, ...]:
    """Return the pages that a text block cites."""
    listed = block.get("citations") or block.get("annotations")
    found = [_citation(each) for each in listed] if isinstance(listed, list) else []
    return tuple(each for each in found if each is not None)


def _citation(value: Any) -> Citation | None:
    match value:
        case {"type": "web_search_result_location", "url": str(url), **rest}:
            return Citation(url=url, title=_text(rest.get("title")), quote=_text(rest.get("cited_text")))
        case {"type": "search_result_location", "source": str(url), **rest} if _is_address(url):
            return Citation(url=url, title=_text(rest.get("title")), quote=_text(rest.get("cited_text")))
        case {"type": "url_citation", "url": str(url), **rest}:
            return Citation(url=url, title=_text(rest.get("title")))
        case {"location": {"web": {"url": str(url)}}, **rest}:
            return Citation(url=url, title=_text(rest.get("title")), quote=_quote(rest.get("sourceContent")))
    return None


def search_result_of(block: dict[str, Any]) -> SearchResult | None:
    """Return the search result of a block in Anthropic's form."""
    match block:
        case {"type": "search_result", "source": str(source), "title": str(title), "content": list(blocks)}:
            texts = tuple(text for text in _texts(blocks) if text.strip())
            return SearchResult(source=source, title=title, texts=texts)
    return None


# The forms of the targets


def annotations(citations: Sequence[Citation], *, start: int, end: int) -> list[dict[str, Any]]:
    """Return the annotations of a text in OpenAI's Responses API."""
    place = {"start_index": start, "end_index": end}
    return [
        {"type": "url_citation", "url": each.url, "title": each.title or each.url, **place}
        for each in citations
    ]


def bedrock_text(text: str, citations: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a text with citations as a block of Bedrock's Converse API."""
    return {"citationsContent": {"content": [{"text": text}], "citations": list(citations)}}


def bedrock_citation(citation: Citation) -> dict[str, Any]:
    """Return a citation of Bedrock's Converse API."""
    quote = {"sourceContent": [{"text": citation.quote}]} if citation.quote else {}
    web = {"url": citation.url, "domain": urlsplit(citation.url).hostname or citation.url}
    return {"title": citation.title or citation.url, "location": {"web": web}, **quote}


def anthropic_search_result(found: SearchResult) -> dict[str, Any]:
    """Return a search result as a block of Anthropic's Messages API."""
    content = [{"type": "text", "text": text} for text in found.texts]
    return {"type": "search_result", "source": found.source, "title": found.title, "content": content}


def bedrock_search_result(block: dict[str, Any]) -> dict[str, Any]:
    """Return Anthropic's block as one of Bedrock's Converse API."""
    content = [{"text": each["text"]} for each in block["content"]]
    return {"searchResult": {"source": block["source"], "title": block["title"], "content": content}}


def _quote(blocks: Any) -> str:
    return "\n".join(text for text in _texts(blocks) if text)


def _is_address(source: str) -> bool:
    return source.startswith(("https://", "http://"))


def _texts(blocks: Any) -> list[str]:
    listed = blocks if isinstance(blocks, list) else []
    return [_text(each.get("text")) for each in listed if isinstance(each, dict)]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
