"""Run every Python block of README and docs as a program, and check that links exist."""

import re
from pathlib import Path

import pytest

from tests.processes.documentation import run_as_program

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\((?!https?:)([^)#]+)[^)]*\)")

BLOCKS = [
    pytest.param(block, id=f"{page.relative_to(ROOT)}-{number}")
    for page in PAGES
    # These run in the environments of their frameworks: tests/adapters.
    if page.parent.name != "frameworks"
    for number, block in enumerate(BLOCK.findall(page.read_text("utf-8")), start=1)
]


SERVERS = {
    "redis://localhost:6379/0": "example_redis_url",
    "postgresql://localhost/aforesaid": "postgres_url",
    "http://localhost:8765": "example_server_url",
}
"""URL in the docs → fixture with the URL of a running server."""


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_runs(block: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    for url, fixture in SERVERS.items():
        if url in block:
            block = block.replace(url, request.getfixturevalue(fixture))
    assert run_as_program(block, tmp_path) == ""


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"], ids=lambda p: p.name
)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text("utf-8")):
        assert (page.parent / target).exists(), target
