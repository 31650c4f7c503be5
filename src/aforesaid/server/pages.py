"""Serve the OpenAPI document and an HTML page of it.

The page has no scripts and loads nothing from other hosts, so that it works offline.
"""

import re
from html import escape
from typing import Any

from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp
from msgspec import Struct

from aforesaid.protocol import to_json
from aforesaid.server.openapi import Document
from aforesaid.server.responses import Response

HTML = b"text/html; charset=utf-8"
_POLICY = (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'")

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #1d2733; background: #fbfbfa }
h2 { margin-top: 2.5rem; border-bottom: 1px solid #d8d8d2 }
details { margin: .4rem 0; padding: .3rem .6rem; border: 1px solid #e2e2dc; border-radius: .4rem;
  background: #fff }
summary { cursor: pointer } code { font: .92em ui-monospace, monospace }
.method { display: inline-block; min-width: 4.6rem; padding-right: .6rem; font-weight: 600; color: #2b5d8a }
table { border-collapse: collapse } td { padding: .1rem .9rem .1rem 0; vertical-align: top }
pre { background: #f4f4ef; padding: .6rem; border-radius: .4rem; overflow-x: auto }
"""


class RenderedDocument(Struct, frozen=True):
    """The document as JSON and as a page."""

    as_json: bytes
    as_page: bytes


def render(document: Document) -> RenderedDocument:
    """Render the document in both forms."""
    return RenderedDocument(to_json(document), render_page(document).encode())


def pages(rendered: RenderedDocument) -> list[HTTPRouteHandler]:
    """Return the routes of the document and the page."""

    @get("/schema/openapi.json", include_in_schema=False)
    async def openapi_json() -> ASGIApp:
        return Response(rendered.as_json)

    @get("/schema", include_in_schema=False)
    async def openapi_page() -> ASGIApp:
        return Response(rendered.as_page, media=HTML, headers=(_POLICY,))

    return [openapi_json, openapi_page]


def render_page(document: Document) -> str:
    """Render the document as HTML."""
    info = document["info"]
    sections = "".join(_section(document, tag) for tag in document["tags"])
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(info["title"])}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>'
        f"<h1>{escape(info['title'])} <small>{escape(info['version'])}</small></h1>"
        f"<p>{_inline_code(info['description'])}</p>"
        '<p><a href="/schema/openapi.json">openapi.json</a></p>'
        f"{sections}</html>"
    )


def _section(document: Document, tag: dict[str, str]) -> str:
    operations = "".join(
        _operation(path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if tag["name"] in operation["tags"]
    )
    return f"<h2>{escape(tag['name'])}</h2><p>{_inline_code(tag['description'])}</p>{operations}"


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    rows = "".join(_parameter(each) for each in operation.get("parameters", ()))
    statuses = "".join(
        f"<tr><td>{escape(status)}</td><td>{_inline_code(each['description'])}</td></tr>"
        for status, each in operation["responses"].items()
    )
    return (
        f'<details><summary><span class="method">{method.upper()}</span><code>{escape(path)}</code> '
        f"{_inline_code(operation['summary'])}</summary>"
        f"<p>{_inline_code(operation.get('description', ''))}</p>"
        f"<table>{rows}</table>{_body(operation)}<table>{statuses}</table></details>"
    )


def _parameter(parameter: dict[str, Any]) -> str:
    required = " (required)" if parameter["required"] else ""
    place = f"{parameter['in']}{required}"
    return (
        f"<tr><td><code>{escape(parameter['name'])}</code></td><td>{escape(place)}</td>"
        f"<td>{_inline_code(parameter.get('description', ''))}</td></tr>"
    )


def _inline_code(text: str) -> str:
    """Escape a text and render backticks as code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))


def _body(operation: dict[str, Any]) -> str:
    shown = ""
    for media, content in operation.get("requestBody", {}).get("content", {}).items():
        example = content.get("example")
        shown += f"<p>Body: <code>{escape(media)}</code></p>"
        shown += f"<pre>{escape(to_json(example).decode())}</pre>" if example is not None else ""
    return shown
