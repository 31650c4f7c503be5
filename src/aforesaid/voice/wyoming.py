"""Transcribe with a Wyoming service, the protocol of Home Assistant's speech services.

An event is a line of JSON, then `data_length` bytes of JSON, then `payload_length` bytes of payload. A
transcription sends `transcribe`, `audio-start`, many `audio-chunk` and `audio-stop`, and receives a
`transcript`.
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
from aforesaid.contracts import Audio, AudioFormat, Transcript
from aforesaid.errors import InvalidSetting, TranscriberError, TranscriberUnavailable, shown
from aforesaid.voice.sound import check_samples

T = TypeVar("T")

# Bytes of samples per event: a quarter of a second.
CHUNK = 8_192
MAX_LINE = 1_000_000
# Maximum bytes per event part from a service, which only sends text.
MAX_DATA = 10_000_000


class Event(Struct, frozen=True, kw_only=True):
    """A protocol event."""

    type: str
    data: dict[str, Any] = {}
    payload: bytes = b""


@validated
class WyomingTranscriber:
    """Transcribes with the service at `url`, such as `tcp://192.168.1.5:10300`. `timeout` applies to each
    wait, including the one from the last sample to the transcript.
    """

    def __init__(self, url: str, *, model: str | None = None, timeout: float = 30.0) -> None:
        self._host, self._port = _address(url)
        self._model = model
        self._timeout = timeout

    @property
    def name(self) -> str:
        return f"wyoming {self._host}:{self._port}"

    async def transcribe(self, audio: Audio, *, language: str | None = None) -> Transcript:
        check_samples(audio, self.name)
        return await self.listen(_pieces(audio.data), audio.format, language=language)

    async def listen(
        self, chunks: AsyncIterable[bytes], audio_format: AudioFormat, *, language: str | None = None
    ) -> Transcript:
        """Transcribe samples while they arrive."""
        format_fields = asdict(audio_format)
        options = {"language": language, "name": self._model}
        async with self._connection() as (reader, writer):
            await self._send(
                writer, "transcribe", {key: value for key, value in options.items() if value is not None}
            )
            await self._send(writer, "audio-start", format_fields)
            async for chunk in chunks:
                # A recording arrives as one chunk; services expect short ones.
                for at in range(0, len(chunk), CHUNK):
                    await self._send(writer, "audio-chunk", format_fields, chunk[at : at + CHUNK])
            await self._send(writer, "audio-stop", {})
            # One timeout for all events: a service that keeps sending partial results must not delay forever.
            return await self._with_timeout(_transcript(reader))

    async def close(self) -> None:
        """Do nothing: each transcription has its own connection."""

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        try:
            reader, writer = await self._with_timeout(
                asyncio.open_connection(self._host, self._port, limit=MAX_LINE)
            )
        except OSError as error:
            raise TranscriberUnavailable(f"{self.name} cannot be reached: {error}") from error
        try:
            yield reader, writer
        except OSError as error:
            raise TranscriberUnavailable(f"{self.name} closed the connection: {error}") from error
        finally:
            writer.transport.abort()  # abort, because nothing is left to send

    async def _send(
        self, writer: asyncio.StreamWriter, kind: str, data: dict[str, Any], payload: bytes = b""
    ) -> None:
        writer.write(encode_event(Event(type=kind, data=data, payload=payload)))
        await self._with_timeout(writer.drain())

    async def _with_timeout(self, waiting: Awaitable[T]) -> T:
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
    """Return the final transcript. A service may send partial ones as other events first."""
    while True:
        event = await read_event(reader)
        if event is None:
            raise TranscriberUnavailable("the service closed the connection before it sent a transcript")
        if event.type == "error":
            raise TranscriberError(f"the service reported an error: {shown(event.data.get('text'))}")
        if event.type == "transcript":
            return _read_transcript(event.data)


def _read_transcript(data: dict[str, Any]) -> Transcript:
    text, language, confidence = data.get("text"), data.get("language"), data.get("confidence")
    if not isinstance(text, str):
        raise TranscriberError(f"the service sent a transcript without text: {shown(data)}")
    is_valid = (
        isinstance(confidence, int | float) and not isinstance(confidence, bool) and 0 <= confidence <= 1
    )
    return Transcript(
        text=text.strip(),
        confidence=float(confidence) if is_valid and confidence is not None else None,
        language=language if isinstance(language, str) else None,
    )


def encode_event(event: Event) -> bytes:
    """Return the event as bytes."""
    data = json.dumps(event.data, ensure_ascii=False).encode() if event.data else b""
    header: dict[str, Any] = {"type": event.type}
    if data:
        header["data_length"] = len(data)
    if event.payload:
        header["payload_length"] = len(event.payload)
    return json.dumps(header).encode() + b"\n" + data + event.payload


async def read_event(reader: asyncio.StreamReader) -> Event | None:
    """Return the next event, or None when the service closed the connection. Raises `TranscriberError`."""
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
        raise TranscriberError("the service sent an invalid Wyoming event") from error


def _object(text: bytes) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise TypeError("an event must be an object")
    return value


def _length(header: dict[str, Any], field: str) -> int:
    length = header.get(field) or 0
    if type(length) is not int or not 0 <= length <= MAX_DATA:
        raise ValueError(field)
    return length
