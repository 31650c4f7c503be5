"""Find the browser, and pages that notice everything that must not happen."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

ARTEFACTS = Path(os.environ.get("CONSOLE_ARTEFACTS", Path(__file__).parents[2] / ".console"))
"""Where screenshots are kept. Git ignores it."""

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
NO_WARNING_LEFT = ("error", "warning")


def find_browser() -> str | None:
    """Return the path of Chromium or Chrome; None if neither is installed."""
    named = os.environ.get("CHROMIUM")
    if named:
        return named
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def until(page: Any, is_true: Callable[[], bool]) -> None:
    """Let the page run until a condition outside of it is true, for at most a minute."""
    for _ in range(1200):
        if is_true():
            return
        page.wait_for_timeout(50)
    raise AssertionError("the condition did not become true within a minute")


class Watcher:
    """Collects console errors, policy violations, exceptions and requests to other hosts."""

    def __init__(self, page: Any, address: str) -> None:
        self.found: list[str] = []
        self._expected: list[str] = []
        self._host = urlsplit(address).netloc
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.found.append(f"exception: {error}"))
        page.on("request", self._request)

    def expect(self, *texts: str) -> None:
        """Allow console errors with one of these texts, for tests in which a request must fail."""
        self._expected += texts

    def check(self) -> None:
        unexpected = [each for each in self.found if not any(text in each for text in self._expected)]
        assert not unexpected, "the browser reported:\n" + "\n".join(unexpected)

    def _console(self, message: Any) -> None:
        if message.type in NO_WARNING_LEFT:
            self.found.append(f"{message.type}: {message.text} ({message.location.get('url', '')})")

    def _request(self, request: Any) -> None:
        parts = urlsplit(request.url)
        if parts.scheme in ("http", "https", "ws", "wss") and parts.netloc != self._host:
            self.found.append(f"foreign request: {request.url}")


class Console:
    """A browser context with the console of one owner open."""

    def __init__(
        self, browser: Any, address: str, owner: str | None, *, key: str | None = None, **options: Any
    ) -> None:
        self.address = address
        given = {name: value for name, value in (("key", key), ("owner", owner)) if value}
        self._fragment = urlencode(given)
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        self.context.set_default_timeout(30_000)
        self.page = self.context.new_page()
        self.watcher = Watcher(self.page, address)

    def open(self, place: str = "/") -> Any:
        """Sign in by the address, as a link would, then go to a place."""
        self.page.goto(f"{self.address}/console/#{self._fragment}")
        self.page.wait_for_selector("main h1")
        if place != "/":
            self.go(place)
        return self.page

    def go(self, place: str) -> Any:
        self.page.evaluate("place => { location.hash = place }", f"#{place}")
        self.page.wait_for_selector("main h1")
        return self.page

    def screenshot(self, name: str, **options: Any) -> Path:
        ARTEFACTS.mkdir(exist_ok=True)
        path = ARTEFACTS / f"{name}.png"
        self.page.screenshot(path=path, animations="disabled", caret="hide", **options)
        return path

    def close(self) -> None:
        self.context.close()
