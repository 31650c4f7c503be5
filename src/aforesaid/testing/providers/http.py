"""A minimal HTTP/1.1 server that satisfies the SDKs."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct


class Request(Struct, frozen=True, kw_only=True):
    """A received request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        document = json.loads(self.body or b"{}")
        return document if isinstance(document, dict) else {}


class Response(Struct, frozen=True, kw_only=True):
    """A response, whole or in pieces. With `breaks`, the connection is lost before the end."""

    status: int = 200
    headers: Mapping[str, str] = {}
    body: bytes = b""
    pieces: Sequence[bytes] | None = None
    breaks: bool = False


Handle = Callable[[Request], Awaitable[Response]]


def json_response(document: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    kind = {"content-type": "application/json"}
    return Response(status=status, headers={**kind, **(headers or {})}, body=json.dumps(document).encode())


class HttpServer:
    """Listens on a free loopback port and answers with the result of `handle`."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._server: asyncio.Server | None = None
        self._talking: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        """Listen and return the port."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._talking:
            task.cancel()
        if self._talking:
            await asyncio.wait(self._talking)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._talk(reader, writer))
        self._talking.add(task)
        task.add_done_callback(self._talking.discard)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (request := await _read(reader)) is not None:
                response = await self._handle(request)
                _write(writer, response)
                await writer.drain()
                if response.breaks:
                    return
        except (ConnectionError, asyncio.CancelledError):
            return  # the client disconnected, or the server stops
        finally:
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    method, path, _ = first.split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Request(method=method, path=path, headers=headers, body=body)


def _write(writer: asyncio.StreamWriter, response: Response) -> None:
    headers = dict(response.headers)
    if response.pieces is None:
        # A broken response announces more bytes than it sends.
        headers["content-length"] = str(len(response.body) + (100 if response.breaks else 0))
        payload = response.body
    else:
        headers["transfer-encoding"] = "chunked"
        payload = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in response.pieces if piece)
        payload += b"" if response.breaks else b"0\r\n\r\n"
    lines = [f"HTTP/1.1 {response.status} -", *(f"{name}: {value}" for name, value in headers.items())]
    writer.write("\r\n".join([*lines, "", ""]).encode() + payload)
