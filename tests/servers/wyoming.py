"""Speech services on this machine: one that speaks Wyoming, with bytes put together by hand."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

Line = tuple[dict[str, Any], bytes]


class WyomingService:
    """Answers each recording with what `answer` makes of its samples: text, or raw bytes to send instead."""

    def __init__(self, answer: Callable[[bytes], str | bytes]) -> None:
        self._answer = answer
        self.events: list[Line] = []
        """What it received: header and data in one, and the payload."""
        self.url = ""

    @asynccontextmanager
    async def running(self) -> AsyncIterator["WyomingService"]:
        server = await asyncio.start_server(self._talk, "127.0.0.1", 0)
        self.url = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        samples = b""
        try:
            while line := await reader.readline():
                header = json.loads(line)
                header |= json.loads(await reader.readexactly(header.get("data_length", 0)) or b"{}")
                payload = await reader.readexactly(header.get("payload_length", 0))
                self.events.append((header, payload))
                samples += payload
                if header["type"] == "audio-stop":
                    await self._reply(writer, self._answer(samples))
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    async def _reply(self, writer: asyncio.StreamWriter, said: str | bytes) -> None:
        writer.write(said if isinstance(said, bytes) else _transcript(said))
        await writer.drain()


def _transcript(text: str) -> bytes:
    """As services do: what is understood so far first, data beside the header or behind it."""
    data = json.dumps({"text": text, "language": "en"}).encode()
    started = json.dumps({"type": "transcript-start", "data": {"language": "en"}}).encode() + b"\n"
    return started + json.dumps({"type": "transcript", "data_length": len(data)}).encode() + b"\n" + data
