"""Serve the documentation at `/docs/`: the Markdown pages of the package, or the built documentation site."""

import asyncio
import re
from collections.abc import Mapping
from functools import cache
from html import escape
from importlib.resources import files
from itertools import pairwise
from mimetypes import guess_type
from pathlib import Path
from typing import TYPE_CHECKING, Any

from litestar import Request, get
from litestar.exceptions import NotFoundException
from litestar.types import ControllerRouterHandler

from aforesaid.server.pages import HTML, PAGE_HEADERS, REVALIDATED
from aforesaid.server.python_reference import described
from aforesaid.server.responses import Header, Response

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markdown_it.token import Token

# The pages in the order in which a newcomer reads them, by folder.
SECTIONS = {
    "": "Start",
    "how-to": "How-to",
    "explanation": "Explanation",
    "stores": "Stores",
    "reference": "Reference",
}
# Pages for people who change the project.
INTERNAL_SECTIONS = {"internals": "Internals", "decisions": "Decisions"}
FIRST = ("index.md", "tutorial.md")

PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} · Aforesaid</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="{root}schema/page.css">
</head>
<body>
<nav class="top"><a href="{root}">Aforesaid</a> <a href="{root}docs/">Documentation</a> \
<a href="{root}schema">HTTP interface</a> <a href="{root}console/">Console</a></nav>
<main class="doc">
{before}
{text}
{after}
</main>
</body>
</html>
"""


def documentation(site: str = "") -> list[ControllerRouterHandler]:
    """Return the routes of the documentation. `site` is the folder of the built site, if there is one."""

    def answer(name: str) -> Response:
        return _site_file(Path(site), name) if site else _package_page(name)

    @get("/docs", include_in_schema=False)
    async def docs_page(request: Request[Any, Any, Any]) -> Response:
        if not request.scope["raw_path"].endswith(b"/"):  # relative addresses need the slash
            return Response(status=308, headers=((b"location", b"docs/"),))
        return await asyncio.to_thread(answer, "")

    @get("/docs/{wanted:path}", include_in_schema=False)
    async def docs_file(request: Request[Any, Any, Any]) -> Response:
        return await asyncio.to_thread(answer, request.path_params["wanted"].lstrip("/"))

    return [docs_page, docs_file]


def _site_file(folder: Path, name: str) -> Response:
    found = _inside(folder, name)
    # The site's own scripts are inline; it contains no data and loads nothing from other hosts.
    return _file_response(found / "index.html" if found.is_dir() else found)


def _package_page(name: str) -> Response:
    name = name or "index.md"
    found = _inside(pages_folder(), name)
    if found.suffix != ".md" or not found.is_file():
        return _file_response(found, PAGE_HEADERS)
    return Response(_rendered(name), media=HTML, headers=PAGE_HEADERS, caching=REVALIDATED)


def _inside(folder: Path, name: str) -> Path:
    """Return the file of this name, without a way out of the folder."""
    root = folder.resolve()
    wanted = (root / name).resolve()
    if not wanted.is_relative_to(root) or "\0" in name:
        raise NotFoundException("the documentation has no such page")
    return wanted


def _file_response(file: Path, headers: tuple[Header, ...] = ()) -> Response:
    if not file.is_file():
        raise NotFoundException("the documentation has no such page")
    media = (guess_type(file.name)[0] or "application/octet-stream").encode()
    return Response(file.read_bytes(), media=media, headers=headers, caching=REVALIDATED)


@cache
def pages_folder() -> Path:
    """Return the folder of the Markdown pages: in the wheel, or of the repository of an editable install."""
    package = Path(str(files("aforesaid")))
    inside = package / "docs"
    return inside if inside.is_dir() else package.parents[1] / "docs"


# Rendering


@cache
def _rendered(name: str) -> bytes:
    text, title = _html(described((pages_folder() / name).read_text("utf-8")))
    is_start = name == "index.md"
    pages = _folded("All pages", _contents(name, SECTIONS), is_open=is_start)
    if is_start or _section(name) in INTERNAL_SECTIONS:
        pages += _folded("For people who change the project", _contents(name, INTERNAL_SECTIONS))
    page = PAGE.format(
        title="Documentation" if is_start else escape(title),
        root="../" * (name.count("/") + 1),
        before="" if is_start else pages,
        after=pages if is_start else "",
        text=text,
    )
    return page.encode()


def _folded(title: str, text: str, *, is_open: bool = False) -> str:
    return f"<details{' open' if is_open else ''}><summary>{title}</summary>\n{text}\n</details>\n"


def _html(text: str) -> tuple[str, str]:
    """Return the HTML and the title of a Markdown text."""
    from markdown_it import MarkdownIt

    renderer = MarkdownIt("commonmark").enable("table")
    tokens = renderer.parse(text)
    title = _add_anchors(tokens)
    for token in tokens:
        _make_table_safe(token)
    return renderer.renderer.render(tokens, renderer.options, {}), title


def _add_anchors(tokens: "Sequence[Token]") -> str:
    """Give each heading the id that links in the pages use. Return the first heading."""
    titles: list[str] = []
    used: dict[str, int] = {}
    for token, inline in pairwise(tokens):
        if token.type == "heading_open":
            titles.append("".join(child.content for child in inline.children or ()))
            anchor = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", titles[-1]).strip().lower())
            used[anchor] = used.get(anchor, -1) + 1
            token.attrSet("id", f"{anchor}_{used[anchor]}" if used[anchor] else anchor)
    return titles[0] if titles else "Aforesaid"


def _make_table_safe(token: "Token") -> None:
    """Replace the inline style of a cell, which the content security policy forbids, by a class."""
    style = token.attrs.pop("style", None)
    if style is not None:
        token.attrSet("class", str(style).removeprefix("text-align:"))
    if token.type == "table_open":  # a wide table scrolls by itself, not with the page
        token.attrSet("tabindex", "0")


def _contents(current: str, sections: Mapping[str, str]) -> str:
    """Return links to the pages of these sections."""
    up = "../" * current.count("/")
    here = ' aria-current="page"'
    parts = []
    for section, title in sections.items():
        links = [
            f'<li><a href="{up}{name}"{here if name == current else ""}>{escape(heading)}</a></li>'
            for name, heading in _titles()
            if _section(name) == section
        ]
        parts.append(f"<h2>{title}</h2>\n<ul>\n{chr(10).join(links)}\n</ul>")
    return "\n".join(parts)


def _section(name: str) -> str:
    return name.partition("/")[0] if "/" in name else ""


@cache
def _titles() -> tuple[tuple[str, str], ...]:
    """Return the name and the first heading of each page, sorted by heading; decisions by number."""
    root = pages_folder()
    found = [(page.relative_to(root).as_posix(), _first_heading(page)) for page in root.rglob("*.md")]
    return tuple(sorted(found, key=_order))


def _order(page: tuple[str, str]) -> tuple[bool, str]:
    name, heading = page
    return name not in FIRST, name if _section(name) == "decisions" else heading.lower()


def _first_heading(page: Path) -> str:
    with page.open(encoding="utf-8") as lines:
        return next(
            (line.lstrip("# ").strip().replace("`", "") for line in lines if line.startswith("# ")), page.stem
        )
