"""A WebSocket client that resumes when its connection ends."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake


class Seen:
    """The texts of a conversation, in the order in which the server sent them."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.resumed = 0
        self._changed = asyncio.Event()

    def take(self, entries: Sequence[dict[str, Any]]) -> None:
        self.texts += [entry["message"]["content"] for entry in entries]
        self._changed.set()

    async def until(self, expected: Sequence[str]) -> None:
        """Wait until everything has come."""
        async with asyncio.timeout(120):
            while len(self.texts) < len(expected):
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def watching(address: str, key: str, *, session: str) -> AsyncIterator[Seen]:
    """Follow a session through restarts of the servers."""
    seen = Seen()
    ready = asyncio.Event()
    following = asyncio.create_task(_follow(address, key, session, seen, ready))
    try:
        await asyncio.wait_for(ready.wait(), 120)
        yield seen
    finally:
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following


async def _follow(address: str, key: str, session: str, seen: Seen, ready: asyncio.Event) -> None:
    place: dict[str, int] | None = None
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    while True:
        try:
            async with connect(
                f"{address.replace('http', 'ws', 1)}/ws",
                ssl=tls if address.startswith("https") else None,
                additional_headers={"Authorization": f"Bearer {key}"},
            ) as socket:
                hello = {"type": "hello", "session_id": session} | ({} if place is None else {"place": place})
                await socket.send(json.dumps(hello))
                async for text in socket:
                    frame = json.loads(text)
                    if frame["type"] == "ready":
                        assert place is None or frame.get("resumed"), "the place was not accepted"
                        seen.resumed += place is not None
                        ready.set()
                    assert frame["type"] not in ("reset", "problem"), frame
                    if frame["type"] in ("ready", "messages") and (
                        place is None or frame["type"] == "messages"
                    ):
                        seen.take(frame.get("entries", []))
                    place = frame.get("place", place)
        except (ConnectionClosed, InvalidHandshake, OSError):
            # The other server takes over; a client waits a little before it tries again.
            await asyncio.sleep(0.1)
