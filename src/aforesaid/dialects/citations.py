"""Citations of web pages in an answer, and search results in a question, in the forms of the targets.

A citation of a page stands for itself, so it is converted. A citation of a passage in a document refers to
the documents of its request by number, and one of Anthropic's web search has an encrypted index. These stay
in their own dialect, and others receive the text.
"""

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from aforesaid.dialects.parse import Citation, SearchResult


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
