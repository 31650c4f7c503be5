"""A server shows the documentation: the pages of the package, or the built site."""

import re
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx
import pytest

import aforesaid
from aforesaid.server.app import create_app
from aforesaid.server.documentation import pages_folder
from aforesaid.settings import ServerConfig, Settings

# One page of each kind: a folder deeper, wide tables, a reference of Python objects, pictures.
PAGES = ("", "tutorial.md", "how-to/console.md", "stores/sqlite.md", "reference/python/memory.md")


@asynccontextmanager
async def served(site: str = "") -> AsyncIterator[httpx.AsyncClient]:
    async with aforesaid.open(models=aforesaid.Models(preload=False)) as memory:
        app: Any = create_app(memory, Settings(server=ServerConfig(docs_folder=site)), open_without_keys=True)
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            yield client


async def test_every_link_of_a_page_leads_to_a_file_of_this_server() -> None:
    async with served() as client:
        found: set[str] = set()
        for name in PAGES:
            page = await client.get(f"/docs/{name}")
            assert page.headers["content-type"].startswith("text/html")
            for link in set(re.findall(r'(?:href|src)="([^"]+)"', page.text)):
                address, _, anchor = urljoin(f"/docs/{name}", link).partition("#")
                if not address.startswith("/"):
                    continue
                found.add(address)
                if address.endswith(".md") and not anchor:  # rendering every page takes seconds
                    assert (pages_folder() / address.removeprefix("/docs/")).is_file(), (name, link)
                    continue
                answer = await client.get(address, follow_redirects=True)
                assert answer.status_code == 200, (name, link)
                assert f'id="{anchor}"' in answer.text or not anchor, (name, link)
        assert len(found) > 80


async def test_a_page_needs_no_style_or_script_of_its_own() -> None:
    """The content security policy forbids them."""
    async with served() as client:
        page = (await client.get("/docs/performance.md")).text
    assert "<table" in page
    assert 'class="right"' in page
    assert not re.search(r"<script|<style|<[^>]+ style=", page)


async def test_the_python_reference_describes_the_objects() -> None:
    async with served() as client:
        page = (await client.get("/docs/reference/python/memory.md")).text
    assert ":::" not in page
    assert "Return the handle of one owner" in page
    assert "await search_history(" in page


@pytest.mark.parametrize("name", ["../pyproject.toml", "..%2fpyproject.toml", "how-to", "none.md", "%00"])
async def test_nothing_else_is_served(name: str, tmp_path: Path) -> None:
    (tmp_path / "how-to").mkdir()
    for site in ("", str(tmp_path)):
        async with served(site) as client:
            assert (await client.get(f"/docs/{name}")).status_code == 404


async def test_the_built_site_takes_the_place_of_the_pages(tmp_path: Path) -> None:
    (tmp_path / "tutorial").mkdir()
    for name in ("index.html", "tutorial/index.html"):
        (tmp_path / name).write_text(f"<h1>{name}</h1>")
    async with served(str(tmp_path)) as client:
        assert "index.html" in (await client.get("/docs/")).text
        assert "tutorial/index.html" in (await client.get("/docs/tutorial/")).text


@pytest.mark.slow
def test_the_wheel_has_every_page_and_stays_small(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", str(tmp_path), str(root)], check=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    pages = [one for one in root.joinpath("docs").rglob("*") if one.is_file()]
    wanted = {f"aforesaid/{one.relative_to(root).as_posix()}" for one in pages}
    with zipfile.ZipFile(wheel) as archive:
        assert wanted - set(archive.namelist()) == set()
    assert wheel.stat().st_size < 6_000_000
