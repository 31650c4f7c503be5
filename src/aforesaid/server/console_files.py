"""Serve the web console: the static files of `console/`, without access to data.

The page loads its files from a folder named after their digest, so browsers cache them forever and a new
release never mixes with cached files of an old one. All addresses in the files are relative: the console
works under any path behind a proxy.
"""

import asyncio
import gzip
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from litestar import Request, get
from litestar.exceptions import NotFoundException
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp
from msgspec import Struct

from aforesaid.server.responses import Header, Response

PAGE = "index.html"
# Stands for the digest folder in the page.
FOLDER = "{files}"

# The content security policy: only this server's files, no inline code, no assignment of HTML text.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "font-src 'self'",
        "connect-src 'self'",
        "media-src 'self' blob:",
        "manifest-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
_HEADERS: tuple[Header, ...] = (
    (b"content-security-policy", POLICY.encode()),
    (b"permissions-policy", b"microphone=(self), camera=(), geolocation=()"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"vary", b"accept-encoding"),
)
_REVALIDATED: Header = (b"cache-control", b"no-cache")
_FOREVER: Header = (b"cache-control", b"public, max-age=31536000, immutable")

# Types of the served files, by suffix. Other files, such as licences, are not served.
MEDIA = {
    "css": b"text/css; charset=utf-8",
    "html": b"text/html; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "svg": b"image/svg+xml",
}


class StaticFile(Struct, frozen=True):
    """A file of the console, as it is and compressed."""

    body: bytes
    compressed: bytes
    media: bytes


class ConsoleFiles(Struct, frozen=True):
    """The page, and the files it loads by path."""

    page: StaticFile
    digest: str
    files: Mapping[str, StaticFile]


def console_routes() -> list[HTTPRouteHandler]:
    """Return the routes of the console."""

    @get("/console", include_in_schema=False)
    async def page(request: Request[Any, Any, Any]) -> ASGIApp:
        # Litestar drops the slash from `path`. Without it, relative addresses would miss the folder.
        if not request.scope["raw_path"].endswith(b"/"):
            # Relative, because a proxy may serve this under another path.
            return Response(status=308, headers=((b"location", b"console/"),))
        found = await asyncio.to_thread(load_console)
        return _file_response(request, found.page, _REVALIDATED)

    @get("/console/{wanted:path}", include_in_schema=False)
    async def file(request: Request[Any, Any, Any]) -> ASGIApp:
        found = await asyncio.to_thread(load_console)
        folder, _, name = request.path_params["wanted"].lstrip("/").partition("/")
        wanted = found.files.get(name) if folder == found.digest else None
        if wanted is None:
            raise NotFoundException("the console has no such file")
        return _file_response(request, wanted, _FOREVER)

    return [page, file]


def _file_response(request: "Request[Any, Any, Any]", file: StaticFile, caching: Header) -> Response:
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers = (*_HEADERS, (b"content-encoding", b"gzip"))
        return Response(file.compressed, media=file.media, headers=headers, caching=caching)
    return Response(file.body, media=file.media, headers=_HEADERS, caching=caching)


@cache
def load_console() -> ConsoleFiles:
    """Read and compress all files, once per process."""
    found = dict(_read(files("aforesaid.server") / "console"))
    page = found.pop(PAGE)
    digest = sha256()
    for name, body in sorted(found.items()):
        digest.update(name.encode() + b"\0" + body)
    folder = digest.hexdigest()[:16]
    return ConsoleFiles(
        page=_file(PAGE, page.replace(FOLDER.encode(), folder.encode())),
        digest=folder,
        files={name: _file(name, body) for name, body in found.items()},
    )


def _read(folder: Traversable, prefix: str = "") -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for item in folder.iterdir():
        name = prefix + item.name
        if item.is_dir():
            found += _read(item, f"{name}/")
        elif _suffix(name) in MEDIA:
            found.append((name, item.read_bytes()))
    return found


def _file(name: str, body: bytes) -> StaticFile:
    return StaticFile(body, gzip.compress(body, mtime=0), MEDIA[_suffix(name)])


def _suffix(name: str) -> str:
    return name.rpartition(".")[2]
