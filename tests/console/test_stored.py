"""What a store can hold besides words: pictures, and messages whose key is lost."""

import base64
import shutil
import subprocess
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.console.conftest import Opening, Starting
from tests.console.serving import BIN, ROOT, say, turn

MASTER_KEY = base64.b64encode(bytes(range(32))).decode()

_STORE_PICTURE = """
import asyncio, base64, struct, sys, zlib
import aforesaid

def png(size, colour):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\\0" + bytes(colour) * size for _ in range(size))
    header = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")
    return base64.b64encode(b"\\x89PNG\\r\\n\\x1a\\n" + b"".join(parts)).decode()

async def main(url):
    images = aforesaid.ImageOptions(policy="blobs", blobs=sys.argv[2]) if sys.argv[2:] else "keep"
    async with aforesaid.open(url, images=images) as memory:
        manager = memory.of("erin")
        record = await manager.get_or_create_conversation("one", channel="text")
        source = {"type": "base64", "media_type": "image/png", "data": png(48, (192, 48, 48))}
        text = {"type": "text", "text": "What is on this picture?"}
        elsewhere = {"type": "image", "source": {"type": "url", "url": "https://example.org/cat.png"}}
        async with manager.turn(record.id) as turn:
            turn.user([text, {"type": "image", "source": source}, elsewhere])
            turn.assistant("A red square.")
        print(record.id)

asyncio.run(main(sys.argv[1]))
"""


def test_a_stored_picture_is_drawn_and_one_elsewhere_is_only_named(
    opening: Opening, starting: Starting, tmp_path: Path
) -> None:
    command = [str(BIN / "python"), "-c", _STORE_PICTURE, f"sqlite:///{tmp_path}/memory.db"]
    stored = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)
    served = starting()
    page = opening(f"/thread/{stored.stdout.strip()}", address=served.address, whose="erin").page
    picture = page.get_by_role("img", name="Picture in the message")
    expect(picture).to_be_visible()
    assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") == 48
    # The watcher fails the test if the browser asks another host for it.
    expect(page.get_by_text("Picture, not shown: https://example.org/cat.png")).to_be_visible()


def test_a_picture_beside_the_log_is_drawn_with_a_key_that_may_read(
    opening: Opening, starting: Starting, tmp_path: Path
) -> None:
    url, blobs = f"sqlite:///{tmp_path}/memory.db", str(tmp_path / "blobs")
    command = [str(BIN / "python"), "-c", _STORE_PICTURE, url, blobs]
    stored = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)
    served = starting(AFORESAID_BLOBS_FOLDER=blobs)
    key = served.key("--owner", "erin", "--scope", "read")
    place = f"/thread/{stored.stdout.strip()}"
    console = opening(place, address=served.address, whose=None, key=key)
    picture = console.page.get_by_role("img", name="Picture in the message")
    expect(picture).to_be_visible()
    assert picture.get_attribute("src").startswith("blob:")
    assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") == 48
    shutil.rmtree(blobs)
    console.watcher.expect("404")
    console.page.reload()
    expect(console.page.get_by_text("Picture, not shown: the server does not have it.")).to_be_visible()


@pytest.fixture
def sealed(starting: Starting, tmp_path: Path) -> tuple[str, str]:
    """A server over a store whose data keys are lost; its address and a sealed conversation."""
    keys = tmp_path / "keys.db"
    settings = {"AFORESAID_MASTER_KEY": MASTER_KEY, "AFORESAID_KEYRING_URL": f"sqlite:///{keys}"}
    served = starting(**settings)
    with served.api("erin") as api:
        one = turn(api, "one", say("user", "The safe is behind the clock"), say("assistant", "Noted."))
        assert api.patch(f"/v1/conversations/{one}", json={"subject": "The safe"}).is_success
    served.stop()
    for file in tmp_path.glob("keys.db*"):
        file.unlink()
    served.start()
    return served.address, one


def test_a_message_whose_key_is_lost_is_marked_and_the_reason_given(
    opening: Opening, sealed: tuple[str, str]
) -> None:
    address, one = sealed
    console = opening(f"/thread/{one}", address=address, whose="erin")
    page = console.page
    marks = page.locator(".message .unreadable")
    expect(marks).to_have_count(2)
    expect(marks.first).to_contain_text("This message cannot be read")
    expect(marks.first).to_contain_text("key")
    expect(page.locator(".message .speaker").first).to_have_text("Unknown speaker")
    expect(page.get_by_text("behind the clock")).to_have_count(0)
    console.screenshot("unreadable-1280-light")
    page.locator(".message").first.hover()
    expect(page.locator(".message").first.get_by_role("button")).to_have_count(0)
    console.go("/")
    expect(page.locator(".conversation-title", has_text="The safe")).to_be_visible()
    # Nothing can be sent, so there is no raw request.
    console.watcher.expect("422")
    console.go(f"/context/{one}")
    expect(page.locator(".context-row.omitted").first).to_contain_text("cannot be read")
