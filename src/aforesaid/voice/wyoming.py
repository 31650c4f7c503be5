"""A transcriber behind the Wyoming protocol, which Home Assistant speaks with its own speech services.

Below: sound, contracts. Above: the assistant. An event is a line of JSON, then as many bytes of JSON as
its `data_length` says, then as many bytes of payload as its `payload_length` says. A transcription is:
`transcribe`, `audio-start`, `audio-chunk` again and again, `audio-stop`; then a `transcript` comes back.
"""

import asyncio
import json
from collections.abc import AsyncIterable, AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import asdict

from aforesaid._internal.arguments import validated
from aforesaid.contracts import PCM, Audio, AudioFormat, Transcript
from aforesaid.errors import InvalidAudio, InvalidSetting, TranscriberError, TranscriberUnavailable, shown

T = TypeVar("T")

CHUNK = 8_192
"""Bytes of samples in an event: a quarter of a second."""
LONGEST_LINE = 1_000_000
LARGEST_DATA = 10_000_000
"""Bytes that a service may send at once: what it says is words."""


class Event(Struct, frozen=True, kw_only=True):
    """One thing that one side tells the other."""

    type: str
    data: dict[str, Any] = {}
    payload: bytes = b""


@validated
class WyomingTranscriber:
    """`url` is where the service listens, as `tcp://192.168.1.5:10300`. `timeout` counts from the last
    sample to the words, and for everything else that is waited for."""

    def __init__(self, url: str, *, model: str | None = None, timeout: float = 30.0) -> None:
        self._host, self._port = _address(url)
        self._model = model
        self._timeout = timeout

    @property
    def name(self) -> str:
        return f"wyoming {self._host}:{self._port}"

    async def transcribe(self, audio: Audio, *, language: str | None = None) -> Transcript:
        if audio.media_type != PCM:
            raise InvalidAudio(
                f"audio must be a WAV file or bare samples for {self.name}; got {audio.media_type}",
                field="audio",
                value=audio.media_type,
            )
        return await self.listen(_pieces(audio.data), audio.format, language=language)

    async def listen(
        self, chunks: AsyncIterable[bytes], audio_format: AudioFormat, *, language: str | None = None
    ) -> Transcript:
        """The words in samples that are sent on as they arrive."""
        described = asdict(audio_format)
        wanted = {"language": language, "name": self._model}
        async with self._connected() as (reader, writer):
            await self._send(
                writer, "transcribe", {key: value for key, value in wanted.items() if value is not None}
            )
            await self._send(writer, "audio-start", described)
            async for chunk in chunks:
                for at in range(0, len(chunk), CHUNK):
                    await self._send(writer, "audio-chunk", described, chunk[at : at + CHUNK])
            await self._send(writer, "audio-stop", {})
            return await self._within(_transcript(reader))

    async def close(self) -> None:
        """Every transcription has a connection of its own, so nothing is open."""

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        try:
            reader, writer = await self._within(
                asyncio.open_connection(self._host, self._port, limit=LONGEST_LINE)
            )
        except OSError as error:
            raise TranscriberUnavailable(f"{self.name} cannot be reached: {error}") from error
        try:
            yield reader, writer
        except OSError as error:
            raise TranscriberUnavailable(f"{self.name} broke off: {error}") from error
        finally:
            writer.transport.abort()  # nothing that was sent matters any more

    async def _send(
        self, writer: asyncio.StreamWriter, kind: str, data: dict[str, Any], payload: bytes = b""
    ) -> None:
        writer.write(encode_event(Event(type=kind, data=data, payload=payload)))
        await self._within(writer.drain())

    async def _within(self, waiting: Awaitable[T]) -> T:
        try:
            return await asyncio.wait_for(waiting, self._timeout)
        except TimeoutError as error:
            raise TranscriberUnavailable(f"{self.name} did not answer within {self._timeout:g} s") from error


def _address(url: str) -> tuple[str, int]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except (ValueError, AttributeError, TypeError):
        parts, host, port = None, None, None
    if parts is None or parts.scheme != "tcp" or not host or not port:
        raise InvalidSetting(f"url must be tcp://host:port; got {shown(url)}", field="url", value=url)
    return host, port


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def _transcript(reader: asyncio.StreamReader) -> Transcript:
    """The first transcript that comes. A service may say first what it has understood so far."""
    while True:
        event = await read_event(reader)
        if event is None:
            raise TranscriberUnavailable("the service broke off before it had understood anything")
        if event.type == "error":
            raise TranscriberError(f"the service says: {shown(event.data.get('text'))}")
        if event.type == "transcript":
            return _read_transcript(event.data)


def _read_transcript(data: dict[str, Any]) -> Transcript:
    text, language, confidence = data.get("text"), data.get("language"), data.get("confidence")
    if not isinstance(text, str):
        raise TranscriberError(f"the service gave a transcript without text: {shown(data)}")
    sure = isinstance(confidence, int | float) and not isinstance(confidence, bool) and 0 <= confidence <= 1
    return Transcript(
        text=text.strip(),
        confidence=float(confidence) if sure and confidence is not None else None,
        language=language if isinstance(language, str) else None,
    )


def encode_event(event: Event) -> bytes:
    """The event as it is sent."""
    data = json.dumps(event.data, ensure_ascii=False).encode() if event.data else b""
    header: dict[str, Any] = {"type": event.type}
    if data:
        header["data_length"] = len(data)
    if event.payload:
        header["payload_length"] = len(event.payload)
    return json.dumps(header).encode() + b"\n" + data + event.payload


async def read_event(reader: asyncio.StreamReader) -> Event | None:
    """The next event; None when the other side is done. What is no event is a `TranscriberError`."""
    try:
        line = await reader.readline()
        if not line:
            return None
        header = _object(line)
        data = header.get("data") or {}
        data |= _object(await reader.readexactly(_length(header, "data_length")) or b"{}")
        payload = await reader.readexactly(_length(header, "payload_length"))
        return Event(type=str(header["type"]), data=data, payload=payload)
    except asyncio.IncompleteReadError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise TranscriberError("the service does not speak the Wyoming protocol") from error


def _object(text: bytes) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise TypeError("an event is an object")
    return value


def _length(header: dict[str, Any], field: str) -> int:
    length = header.get(field) or 0
    if type(length) is not int or not 0 <= length <= LARGEST_DATA:
        raise ValueError(field)
    return length
