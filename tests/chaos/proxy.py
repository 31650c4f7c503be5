"""A TCP proxy between a store and its server, which can disturb the connection on request.

pass      everything goes through
reset     what is connected is cut off with a reset; what connects now goes through
refuse    whoever connects, or is connected, is cut off at once
drop      nothing goes through, in either direction, and nobody is told
delay     everything goes through, late
truncate  of the next answer only a part goes through, then the connection is cut
"""

import asyncio
import contextlib
import socket
import struct
from typing import Literal

Mode = Literal["pass", "reset", "refuse", "drop", "delay", "truncate"]

_RESET = struct.pack("ii", 1, 0)
DELAY = 0.05
CHUNK = 65_536


class Proxy:
    """Listens on a port of its own on loopback and passes on to another."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._mode: Mode = "pass"
        self._moved = asyncio.Event()
        self._links: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self.become("refuse")
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def become(self, mode: Mode) -> None:
        self._mode = "pass" if mode == "reset" else mode
        if mode in ("reset", "refuse"):
            for link in list(self._links):
                _cut(link)
        self._moved.set()
        self._moved = asyncio.Event()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._pass_on(reader, writer)
        except (OSError, asyncio.CancelledError):
            _cut(writer)
        finally:
            self._tasks.discard(task)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._mode == "refuse":
            _cut(writer)
            return
        there, back = await asyncio.open_connection("127.0.0.1", self._target)
        self._links |= {writer, back}
        try:
            await asyncio.gather(
                self._pump(reader, back, answers=False), self._pump(there, writer, answers=True)
            )
        finally:
            for link in (writer, back):
                self._links.discard(link)
                _cut(link)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool
    ) -> None:
        while content := await reader.read(CHUNK):
            while self._mode == "drop":
                await self._moved.wait()
            if self._mode == "delay":
                await asyncio.sleep(DELAY)
            if self._mode == "truncate" and answers:
                writer.write(content[: len(content) // 2])
                with contextlib.suppress(OSError):
                    await writer.drain()
                raise ConnectionResetError("truncated")
            writer.write(content)
            await writer.drain()
        raise ConnectionResetError("the other side has closed")


def _cut(writer: asyncio.StreamWriter) -> None:
    """End the connection with a reset: no goodbye, no rest of what was under way."""
    connection = writer.get_extra_info("socket")
    if connection is not None:
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
