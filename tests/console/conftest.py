"""One browser and one server for all tests; each test has an owner and a context of its own."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from playwright.sync_api import expect, sync_playwright

from tests.console.browsing import Console, find_browser
from tests.console.serving import Served

# The machine may be busy: a longer wait costs nothing when all is well.
expect.set_options(timeout=30_000)


@pytest.fixture(scope="session")
def playwright() -> Iterator[Any]:
    with sync_playwright() as driver:
        yield driver


@pytest.fixture(scope="session")
def browser(playwright: Any) -> Iterator[Any]:
    path = find_browser()
    assert path, "no browser: install Debian's chromium, or name one in CHROMIUM"
    found = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
    yield found
    found.close()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server without keys, as `make run` starts it."""
    served = Served(tmp_path_factory.mktemp("server")).start()
    yield served
    served.stop()


@pytest.fixture
def owner() -> str:
    return f"owner-{uuid4().hex[:8]}"


@pytest.fixture
def api(server: Served, owner: str) -> Iterator[httpx.Client]:
    with server.api(owner) as client:
        yield client


Opening = Callable[..., Console]
Starting = Callable[..., Served]


@pytest.fixture
def starting(tmp_path: Path) -> Iterator[Starting]:
    """Start further servers, which end after the pages that use them."""
    started: list[Served] = []

    def start(make: Callable[..., Served] = Served, **options: Any) -> Served:
        started.append(make(tmp_path, **options))
        return started[-1].start()

    yield start
    for served in started:
        served.stop()


@pytest.fixture
def opening(browser: Any, server: Served, owner: str, starting: Starting) -> Iterator[Opening]:
    """Open consoles; at the end, fail on anything that the browser reported."""
    opened: list[Console] = []

    def open_console(
        place: str = "/", *, address: str | None = None, key: str | None = None, **options: Any
    ) -> Console:
        whose = options.pop("whose", owner)
        console = Console(
            options.pop("browser", browser), address or server.address, whose, key=key, **options
        )
        opened.append(console)
        console.open(place)
        return console

    yield open_console
    for console in opened:
        console.watcher.check()
        console.close()
