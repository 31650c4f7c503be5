"""What fake providers share: replies, a minimal HTTP server, and the interface of a provider."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

# Provider-independent replies of a fake provider.


Ending = Literal["whole", "breaks", "stops"]
"""Whether a reply is complete, loses its connection in the middle, or stops without an end event."""


class Called(Struct, frozen=True):
    """A tool call. `arguments` is an object, or malformed text."""

    id: str
    name: str
    arguments: dict[str, Any] | str = {}


class Says(Struct, frozen=True):
    """A reply of the model."""

    text: str = ""
    calls: tuple[Called, ...] = ()
    thinking: str = ""
    ending: Ending = "whole"
    out_of_room: bool = False
    """Whether the reply reached the token limit."""
    paused: bool = False


class Refuses(Struct, frozen=True):
    """A refusal of the model."""

    words: str = ""


class Fails(Struct, frozen=True):
    """An error of the provider; with `inside`, in the middle of a stream."""

    status: int
    words: str = "something went wrong"
    kind: str = "api_error"
    retry_after: float | None = None
    inside: bool = False


class Silence(Struct, frozen=True):
    """The provider accepts the request and never answers."""


class Garbage(Struct, frozen=True):
    """A response that is not a reply: a login page, a proxy error, an empty object."""

    body: str
    content_type: str = "text/html"


Act = Says | Refuses | Fails | Silence | Garbage


# A minimal HTTP/1.1 server that satisfies the SDKs.


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
        # Strong references: the event loop keeps only weak ones.
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
    # Latin-1 decodes every byte, so a malformed header fails in a test and not here.
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
        # Without the last chunk, the SDK notices that the stream is incomplete.
        payload += b"" if response.breaks else b"0\r\n\r\n"
    lines = [f"HTTP/1.1 {response.status} -", *(f"{name}: {value}" for name, value in headers.items())]
    writer.write("\r\n".join([*lines, "", ""]).encode() + payload)


# The interface of a provider's module, and helpers that they share.


class ProviderApi(Protocol):
    """One provider's HTTP API."""

    @property
    def BASE_PATH(self) -> str: ...  # noqa: N802  # a module's constant
    def problems(self, body: dict[str, Any]) -> list[str]: ...
    def wants_stream(self, request: Request) -> bool: ...
    def reply(self, act: Act, request: Request) -> Response: ...
    def stream(self, act: Act, request: Request) -> Response: ...
    def failure(self, act: Fails) -> Response: ...


def as_says(act: Act) -> Says:
    """Return the reply; a refusal becomes one with its text."""
    return act if isinstance(act, Says) else Says(act.words if isinstance(act, Refuses) else "")


def halves(text: str) -> Iterator[str]:
    """Yield the text in two pieces, as a stream does."""
    middle = len(text) // 2
    yield from (piece for piece in (text[:middle], text[middle:]) if piece)


def arguments_text(call: Called) -> str:
    return call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)


def retry_headers(act: Fails) -> dict[str, str]:
    if act.retry_after is None:
        return {}
    # SDKs that read milliseconds do not make a test wait for a whole second.
    return {"retry-after-ms": f"{act.retry_after * 1000:g}", "retry-after": f"{act.retry_after:g}"}


def cut(events: Sequence[bytes], act: Act) -> tuple[Sequence[bytes], bool]:
    """Return the events that are sent, and whether the connection then breaks."""
    if not isinstance(act, Says) or act.ending == "whole":
        return events, False
    return events[: max(1, len(events) // 2)], act.ending == "breaks"


def event_stream(events: Sequence[bytes], act: Act) -> Response:
    """Return server-sent events, truncated as the reply requires."""
    pieces, breaks = cut(events, act)
    return Response(headers={"content-type": "text/event-stream"}, pieces=pieces, breaks=breaks)


def sse(document: Any, *, event: str | None = None) -> bytes:
    """Encode one server-sent event."""
    name = f"event: {event}\n" if event else ""
    return f"{name}data: {json.dumps(document)}\n\n".encode()
