"""Serve the front page, the OpenAPI document, and the page of the HTTP interface (Swagger UI).

All files are part of the package, all addresses in them are relative, and nothing is loaded from other hosts.
"""

import asyncio
import gzip
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

from litestar import Request, get
from litestar.exceptions import NotFoundException
from litestar.types import ASGIApp, ControllerRouterHandler
from msgspec import Struct

from aforesaid.protocol import to_json
from aforesaid.server.openapi import Document
from aforesaid.server.responses import Header, Response

HTML = b"text/html; charset=utf-8"
FOLDER = files("aforesaid.server") / "api_page"
# The files that the pages load, with their types.
FILES = {
    "page.css": b"text/css; charset=utf-8",
    "start.js": b"text/javascript; charset=utf-8",
    "vendor/swagger-ui.css": b"text/css; charset=utf-8",
    "vendor/swagger-ui-bundle.js": b"text/javascript; charset=utf-8",
}

# The content security policy of the pages.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
PAGE_HEADERS: tuple[Header, ...] = (
    (b"content-security-policy", POLICY.encode()),
    (b"referrer-policy", b"no-referrer"),
    (b"vary", b"accept-encoding"),
)
REVALIDATED: Header = (b"cache-control", b"no-cache")


class RenderedDocument(Struct, frozen=True):
    """The OpenAPI document as JSON, and the version of the server."""

    as_json: bytes
    version: str


def render(document: Document) -> RenderedDocument:
    """Render the document."""
    return RenderedDocument(to_json(document), document["info"]["version"])


def pages(rendered: RenderedDocument) -> list[ControllerRouterHandler]:
    """Return the routes of the front page, and of the document and its page."""

    @get("/", include_in_schema=False)
    async def front_page(request: Request[Any, Any, Any]) -> ASGIApp:
        template = (await asyncio.to_thread(_read, "front.html")).decode()
        address = escape(str(request.base_url).rstrip("/"))
        for name, value in {"address": address, "version": rendered.version}.items():
            template = template.replace(f"{{{name}}}", value)
        return Response(template.encode(), media=HTML, headers=PAGE_HEADERS)

    @get("/schema/openapi.json", include_in_schema=False)
    async def openapi_json() -> ASGIApp:
        return Response(rendered.as_json)

    @get("/schema", include_in_schema=False)
    async def openapi_page() -> ASGIApp:
        return Response(await asyncio.to_thread(_read, "index.html"), media=HTML, headers=PAGE_HEADERS)

    @get("/schema/{wanted:path}", include_in_schema=False)
    async def file(request: Request[Any, Any, Any]) -> ASGIApp:
        name = request.path_params["wanted"].lstrip("/")
        if name not in FILES:
            raise NotFoundException("there is no such file")
        body, headers = await asyncio.to_thread(_read, name), PAGE_HEADERS
        if "gzip" in request.headers.get("accept-encoding", ""):
            body = await asyncio.to_thread(_compressed, name)
            headers = (*PAGE_HEADERS, (b"content-encoding", b"gzip"))
        return Response(body, media=FILES[name], headers=headers, caching=REVALIDATED)

    return [front_page, openapi_json, openapi_page, file]


@cache
def _read(name: str) -> bytes:
    return FOLDER.joinpath(*name.split("/")).read_bytes()


@cache
def _compressed(name: str) -> bytes:
    return gzip.compress(_read(name), mtime=0)
