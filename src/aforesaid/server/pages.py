"""The page that shows the interface, and the document behind it. Below: openapi.

The page is made here, from the document: no script, nothing from another host, so that it works on a machine
that is off the net and shows the same to everybody.
"""

import re
from html import escape
from typing import Any

from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from aforesaid.protocol import to_json
from aforesaid.server.openapi import Document
from aforesaid.server.responses import Answer

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


def pages(document: Document) -> list[HTTPRouteHandler]:
    """The routes of the document and of the page that shows it."""
    as_json, as_page = to_json(document), rendered(document).encode()

    @get("/schema/openapi.json", include_in_schema=False)
    async def openapi_json() -> ASGIApp:
        return Answer(as_json)

    @get("/schema", include_in_schema=False)
    async def openapi_page() -> ASGIApp:
        return Answer(as_page, media=HTML, headers=(_POLICY,))

    return [openapi_json, openapi_page]


def rendered(document: Document) -> str:
    """The document as a page."""
    info = document["info"]
    sections = "".join(_section(document, tag) for tag in document["tags"])
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(info["title"])}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>'
        f"<h1>{escape(info['title'])} <small>{escape(info['version'])}</small></h1>"
        f"<p>{_words(info['description'])}</p>"
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
    return f"<h2>{escape(tag['name'])}</h2><p>{_words(tag['description'])}</p>{operations}"


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    rows = "".join(_parameter(each) for each in operation.get("parameters", ()))
    statuses = "".join(
        f"<tr><td>{escape(status)}</td><td>{_words(each['description'])}</td></tr>"
        for status, each in operation["responses"].items()
    )
    return (
        f'<details><summary><span class="method">{method.upper()}</span><code>{escape(path)}</code> '
        f"{_words(operation['summary'])}</summary><p>{_words(operation.get('description', ''))}</p>"
        f"<table>{rows}</table>{_body(operation)}<table>{statuses}</table></details>"
    )


def _parameter(parameter: dict[str, Any]) -> str:
    needed = " (needed)" if parameter["required"] else ""
    place = f"{parameter['in']}{needed}"
    return (
        f"<tr><td><code>{escape(parameter['name'])}</code></td><td>{escape(place)}</td>"
        f"<td>{_words(parameter.get('description', ''))}</td></tr>"
    )


def _words(text: str) -> str:
    """Words of the document, with what stands between backticks as code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))


def _body(operation: dict[str, Any]) -> str:
    shown = ""
    for media, content in operation.get("requestBody", {}).get("content", {}).items():
        example = content.get("example")
        shown += f"<p>Body: <code>{escape(media)}</code></p>"
        shown += f"<pre>{escape(to_json(example).decode())}</pre>" if example is not None else ""
    return shown
