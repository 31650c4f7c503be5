"""A server that says exactly what a test wants, on a real socket: pages, half answers, silence."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from msgspec import Struct


class Asked(Struct, frozen=True):
    """A request as it came."""

    line: str
    headers: dict[str, str]
    body: bytes


HANG = b"hang"
"""Instead of an answer: none, until the connection ends."""
DROP = b"drop"
"""Instead of an answer: the end of the connection."""


def answer(
    status: int = 200, body: bytes | str = b"", kind: str = "application/json", **headers: str
) -> bytes:
    content = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status} X", f"content-length: {len(content)}", f"content-type: {kind}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + content


class Scripted:
    """Answers one after the other, the last again and again; and what was asked."""

    def __init__(self, answers: Sequence[bytes]) -> None:
        self._answers = list(answers)
        self.asked: list[Asked] = []
        self.url = ""
        self.was_asked = asyncio.Event()
        self.over = asyncio.Event()
        self.serving: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.serving.add(task)
        try:
            await self._talk(reader, writer)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                self.asked.append(await _request(reader))
                self.was_asked.set()
                said = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
                if said == HANG:
                    await self._hang(reader)
                if said in (HANG, DROP):
                    break
                writer.write(said)
                await writer.drain()
                if b"connection: close" in said:
                    break

    async def _hang(self, reader: asyncio.StreamReader) -> None:
        """Until the other side, or the test, has enough."""
        ends = {asyncio.ensure_future(reader.read()), asyncio.ensure_future(self.over.wait())}
        _, waiting = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for one in waiting:
            one.cancel()


async def _request(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Asked(head[0], headers, body)


@asynccontextmanager
async def scripted(*answers: bytes) -> AsyncIterator[Scripted]:
    script = Scripted(answers)
    server = await asyncio.start_server(script.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    script.url = f"http://{host}:{port}"
    try:
        yield script
    finally:
        server.close()
        script.over.set()
        await asyncio.gather(*script.serving, return_exceptions=True)
