"""Keys: sign in, the right to read only, several owners, revoked keys, another path behind a proxy."""

import http.server
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.console.browsing import Console
from tests.console.conftest import Opening, Starting
from tests.console.serving import Served, say, turn


@pytest.fixture
def guarded(starting: Starting) -> Served:
    """A server that needs keys."""
    served = starting()
    served.admin = served.key("--owner", "*", "--scope", "admin", "--name", "root")  # type: ignore[attr-defined]
    return served


def test_a_key_is_asked_for_and_kept_out_of_the_address(guarded: Served, browser: Any) -> None:
    key = guarded.key("--owner", "erin", "--scope", "write")
    console = Console(browser, guarded.address, None)
    console.watcher.expect("401")
    page = console.page
    page.goto(f"{guarded.address}/console/")
    page.get_by_label("Key", exact=True).fill("ak_wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("Sign in again with a valid key.")
    page.get_by_label("Key", exact=True).fill(key)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("Nothing is stored yet")).to_be_visible()
    assert key not in page.url
    assert console.context.cookies() == []
    page.reload()
    expect(page.get_by_text("erin")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert page.evaluate("JSON.stringify(sessionStorage)").find(key) == -1
    console.watcher.check()
    console.close()


def test_a_key_in_the_fragment_signs_in_and_disappears(guarded: Served, opening: Opening) -> None:
    key = guarded.key("--owner", "erin", "--scope", "read")
    console = opening(address=guarded.address, whose=None, key=key)
    expect(console.page.get_by_text("may read", exact=True)).to_be_visible()
    assert "key" not in console.page.url
    expect(console.page.get_by_role("button", name="New conversation")).to_have_count(0)


def test_a_key_that_reads_sees_a_thread_and_cannot_write(guarded: Served, opening: Opening) -> None:
    key = guarded.key("--owner", "erin", "--scope", "read")
    with guarded.api("erin", Authorization=f"Bearer {guarded.admin}") as api:  # type: ignore[attr-defined]
        one = turn(api, "one", say("user", "hello"), say("assistant", "Hi."))
        page = opening(f"/thread/{one}", address=guarded.address, whose=None, key=key).page
        expect(page.get_by_text("Hi.")).to_be_visible()
        expect(page.get_by_role("textbox", name="Message")).to_be_disabled()
        turn(api, "one", say("user", "again"), say("assistant", "Hello again."))
        expect(page.get_by_text("Hello again.")).to_be_visible()


def test_another_owner_is_chosen(guarded: Served, opening: Opening) -> None:
    admin = guarded.admin  # type: ignore[attr-defined]
    for owner in ("erin", "sam"):
        with guarded.api(owner, Authorization=f"Bearer {admin}") as api:
            turn(api, "one", say("user", f"I am {owner}"), say("assistant", "Hi."))
            record = api.get("/v1/conversations").json()["conversations"][0]
            api.patch(f"/v1/conversations/{record['id']}", json={"subject": f"Of {owner}"})
    page = opening(address=guarded.address, whose="erin", key=admin).page
    expect(page.get_by_text("Of erin")).to_be_visible()
    page.get_by_label("Data of").select_option("sam")
    expect(page.get_by_text("Of sam")).to_be_visible()
    expect(page.get_by_text("Of erin")).to_have_count(0)


def test_keys_are_managed_and_a_revoked_one_is_signed_out(guarded: Served, opening: Opening) -> None:
    admin = guarded.admin  # type: ignore[attr-defined]
    console = opening("/health", address=guarded.address, whose="erin", key=admin)
    page = console.page
    page.get_by_role("button", name="Create a key").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("tablet")
    dialog.get_by_label("Owners").fill("erin")
    dialog.get_by_role("button", name="Create").click()
    key = dialog.locator(".secret").inner_text()
    dialog.get_by_role("button", name="Done").click()
    tablet = opening(address=guarded.address, whose=None, key=key)
    tablet.watcher.expect("401", "WebSocket")
    tablet.page.get_by_role("button", name="Start a conversation").click()
    expect(tablet.page.get_by_text("live", exact=True)).to_be_visible()
    page.get_by_role("row", name="tablet").get_by_role("button", name="Revoke").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(page.get_by_role("row", name="tablet")).to_contain_text("revoked")
    expect(tablet.page.get_by_text("The key is no longer valid.")).to_be_visible()
    expect(tablet.page.get_by_text("Sign in again with a valid key.")).to_be_visible()


class _Proxy(http.server.BaseHTTPRequestHandler):
    """Serves the console under /tools/memory/, as a reverse proxy would."""

    target = ""

    def do_GET(self) -> None:
        path = self.path.removeprefix("/tools/memory")
        request = urllib.request.Request(self.target + path, headers=dict(self.headers))
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                self._send(answer.status, answer.headers, answer.read())
        except urllib.error.HTTPError as error:
            self._send(error.code, error.headers, error.read())

    def _send(self, status: int, headers: Any, body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() not in ("transfer-encoding", "connection", "date"):
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Stay quiet."""


@pytest.fixture
def prefixed(guarded: Served) -> Iterator[str]:
    handler = type("Handler", (_Proxy,), {"target": guarded.address})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/tools/memory"
    server.shutdown()
    server.server_close()
    thread.join()


def test_the_console_works_under_another_path(prefixed: str, guarded: Served, opening: Opening) -> None:
    key = guarded.key("--owner", "erin")
    console = opening("/memory", address=prefixed, whose=None, key=key)
    expect(console.page.get_by_text("Nothing is noted yet")).to_be_visible()
    assert "/tools/memory/console/" in console.page.url
