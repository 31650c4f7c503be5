"""Check the built documentation site: its pages are there, and nothing is loaded from other hosts.

    python -m scripts.docs_site build/site

Where Chromium is installed, a page is also opened in it, and every request that leaves is an error.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

LOADED = re.compile(
    r'<(?:script|img|iframe|source)\b[^>]*\bsrc="(https?:)?//[^"]*"|<link\b[^>]*href="https?://[^"]*"'
)
FOREIGN = re.compile(r"url\(\s*['\"]?(?:https?:)?//")
PAGES = (
    "index.html",
    "tutorial/index.html",
    "reference/python/memory/index.html",
    "reference/settings/index.html",
)


def problems(site: Path) -> Iterator[str]:
    """Yield what is wrong with the site, one sentence each."""
    for name in PAGES:
        if not (site / name).is_file():
            yield f"{name} is missing"
    for page in site.rglob("*.html"):
        for found in LOADED.finditer(page.read_text("utf-8")):
            if 'rel="canonical"' not in found[0]:
                yield f"{page.relative_to(site)} loads {found[0]}"
    for style in site.rglob("*.css"):
        if FOREIGN.search(style.read_text("utf-8")):
            yield f"{style.relative_to(site)} loads a file of another host"
    reference = site / "reference/python/memory/index.html"
    if reference.is_file() and reference.read_text("utf-8").count("doc-heading") < 50:
        yield "the Python reference has no signatures"


def requests_elsewhere(site: Path, chromium: str) -> Iterator[str]:
    """Open a page in a browser that reaches no other host; yield the hosts that it asked for."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "net.json"
        subprocess.run(
            [
                chromium,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                f"--user-data-dir={folder}/profile",
                "--disable-component-update",
                "--disable-background-networking",
                "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
                f"--log-net-log={log}",
                "--virtual-time-budget=5000",
                "--dump-dom",
                (site / "index.html").resolve().as_uri(),
            ],
            capture_output=True,
            check=False,
            timeout=120,
        )
        asked = set(re.findall(r'"url":"(https?://[^"/]+)', log.read_text("utf-8", "replace")))
    # The browser itself looks for updates and accounts, whatever page it shows.
    own = re.compile(r"https?://(?!fonts\.)([\w.-]+\.)?(google|googleapis|gstatic|gvt1)\.com$")
    yield from (f"the page asks {host}" for host in sorted(asked) if not own.match(host))


def main() -> int:
    site = Path(sys.argv[1])
    found = list(problems(site))
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        print("No Chromium is installed: the site was checked without a browser.")  # noqa: T201
    else:
        found += requests_elsewhere(site, chromium)
    for problem in found:
        print(problem, file=sys.stderr)  # noqa: T201
    print(f"{site}: {len(found)} problems")  # noqa: T201
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
