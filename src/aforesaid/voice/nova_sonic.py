"""Transcribe with Amazon Nova Sonic over its bidirectional event stream.

A transcription sends `sessionStart`, `promptStart`, the system prompt and the samples, each as content with a
start and an end, and receives events. The words of the user are text of the role USER; everything that the
model would answer is ignored.
"""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol, TypeAlias
from uuid import uuid4

from aforesaid._internal.arguments import validated
from aforesaid.contracts import Audio, Transcript
from aforesaid.errors import (
    AforesaidError,
    InvalidAudio,
    MissingExtra,
    TranscriberError,
    TranscriberUnavailable,
)
from aforesaid.voice.sound import check_samples

MODEL = "amazon.nova-sonic-v1:0"
# Bytes of samples per event: 32 ms at 16 kHz, as the service recommends.
CHUNK = 1_024
RATES = (8_000, 16_000, 24_000)
CLOSING_SECONDS = 2.0
# The SDK writes the end of a request in a task of its own, which fails if the connection is closed before.
ENDING_SECONDS = 0.1
PROMPT = "Transcribe what the user says. Answer with one word."

Event: TypeAlias = dict[str, Any]


class EventStream(Protocol):
    """A bidirectional stream of events."""

    async def send(self, event: Event) -> None:
        """Send an event."""

    async def receive(self) -> Event | None:
        """Return the next event; None at the end."""

    async def close(self) -> None:
        """Close the stream. Closing twice is allowed."""


Connect: TypeAlias = Callable[[str], Awaitable[EventStream]]
"""Opens a stream to a model."""


@validated
class NovaSonicTranscriber:
    """Transcribes with the model behind `connect`, by default on Amazon Bedrock.

    The default needs `aforesaid[nova]` and takes credentials as Amazon's SDK does: from the environment, the
    shared files or the machine's role. `region` and `endpoint` default to those of the environment too.
    `timeout` applies to the whole transcription.
    """

    def __init__(
        self,
        *,
        model: str = MODEL,
        region: str | None = None,
        endpoint: str | None = None,
        timeout: float = 60.0,
        connect: Connect | None = None,
    ) -> None:
        self._model = model
        self._timeout = timeout
        self._connect = connect or (lambda name: connect_bedrock(name, region=region, endpoint=endpoint))

    @property
    def name(self) -> str:
        return self._model

    async def transcribe(self, audio: Audio, *, language: str | None = None) -> Transcript:
        check_samples(audio, self.name)
        sound = audio.format
        if sound.rate not in RATES or sound.width != 2 or sound.channels != 1:
            raise InvalidAudio(
                f"audio for {self.name} must have one channel of 16 bits at {', '.join(map(str, RATES))} Hz",
                field="audio",
                value=sound,
            )
        try:
            async with asyncio.timeout(self._timeout):
                return await self._transcribed(audio)
        except TimeoutError as error:
            raise TranscriberUnavailable("the transcriber did not answer in time") from error

    async def close(self) -> None:
        """Do nothing: each transcription has its own stream."""

    async def _transcribed(self, audio: Audio) -> Transcript:
        async with self._stream() as stream, asyncio.TaskGroup() as tasks:
            # A failure of either direction ends the other.
            sending = tasks.create_task(_send(stream, audio))
            text = await _spoken(stream)
            sending.cancel()
        return Transcript(text=text)

    @asynccontextmanager
    async def _stream(self) -> AsyncIterator[EventStream]:
        """Open a stream; its errors become ours."""
        try:
            stream = await self._connect(self._model)
            try:
                yield stream
            finally:
                await stream.close()
        except (AforesaidError, TimeoutError):
            raise
        except Exception as error:  # the SDK raises errors of many kinds
            cause = _first(error)
            if isinstance(cause, AforesaidError):
                raise cause from error
            # The text of a foreign error may contain a secret.
            raise TranscriberUnavailable(f"the transcriber failed: {type(cause).__name__}") from error


def _first(error: BaseException) -> BaseException:
    """Return the first error of a group."""
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


async def _send(stream: EventStream, audio: Audio) -> None:
    prompt, system, speech = (str(uuid4()) for _ in range(3))
    named = {"promptName": prompt}
    await _event(stream, "sessionStart", {"inferenceConfiguration": {"maxTokens": 16, "temperature": 0.0}})
    await _event(stream, "promptStart", named | {"textOutputConfiguration": {"mediaType": "text/plain"}})
    text = {"type": "TEXT", "role": "SYSTEM", "interactive": False}
    text["textInputConfiguration"] = {"mediaType": "text/plain"}
    await _event(stream, "contentStart", named | {"contentName": system} | text)
    await _event(stream, "textInput", named | {"contentName": system, "content": PROMPT})
    await _event(stream, "contentEnd", named | {"contentName": system})
    sound = {"type": "AUDIO", "role": "USER", "interactive": True, "audioInputConfiguration": _sound(audio)}
    await _event(stream, "contentStart", named | {"contentName": speech} | sound)
    for at in range(0, len(audio.data), CHUNK):
        content = base64.b64encode(audio.data[at : at + CHUNK]).decode()
        await _event(stream, "audioInput", named | {"contentName": speech, "content": content})
    await _event(stream, "contentEnd", named | {"contentName": speech})
    await _event(stream, "promptEnd", named)
    await _event(stream, "sessionEnd", {})


async def _event(stream: EventStream, kind: str, fields: Event) -> None:
    await stream.send({"event": {kind: fields}})


def _sound(audio: Audio) -> Event:
    return {
        "mediaType": "audio/lpcm",
        "sampleRateHertz": audio.format.rate,
        "sampleSizeBits": 16,
        "channelCount": 1,
        "audioType": "SPEECH",
        "encoding": "base64",
    }


async def _spoken(stream: EventStream) -> str:
    """Return the words of the user: all final text of the role USER until the model begins to answer."""
    words: list[str] = []
    content: Event = {}
    while (received := await stream.receive()) is not None:
        match received.get("event"):
            case {"contentStart": dict(content)} if content.get("role") == "ASSISTANT" and words:
                break
            case {"textOutput": {"content": str(text)}} if _is_transcript(content):
                words.append(text.strip())
            case {"completionEnd": _}:
                break
            case dict():
                pass
            case _:
                raise TranscriberError("the transcriber sent an event that cannot be read")
    return " ".join(word for word in words if word)


def _is_transcript(content: Event) -> bool:
    if content.get("role") != "USER" or content.get("type") != "TEXT":
        return False
    try:
        stage = json.loads(content.get("additionalModelFields") or "{}").get("generationStage", "FINAL")
    except (ValueError, TypeError, AttributeError):
        return False
    return bool(stage == "FINAL")


async def connect_bedrock(model: str, *, region: str | None, endpoint: str | None) -> EventStream:
    """Open a stream to a model on Amazon Bedrock. Raise `MissingExtra` without its SDK."""
    try:
        from aws_sdk_bedrock_runtime.client import AsyncBedrockRuntimeClient
        from aws_sdk_bedrock_runtime.config import AsyncBedrockRuntimeConfig
        from aws_sdk_bedrock_runtime.models import InvokeModelWithBidirectionalStreamOperationInput
        from smithy_http.aio.crt import AWSCRTHTTPClient
    except ImportError as error:
        raise MissingExtra("Nova Sonic", extra="nova") from error
    chosen: dict[str, Any] = {"region": region, "endpoint_uri": endpoint}
    options = {name: value for name, value in chosen.items() if value is not None}
    options["transport"] = AWSCRTHTTPClient()  # the SDK's default has no bidirectional streams
    client = AsyncBedrockRuntimeClient(config=await AsyncBedrockRuntimeConfig.resolve(**options))
    operation = InvokeModelWithBidirectionalStreamOperationInput(model_id=model)
    try:
        return _BedrockStream(client, await client.invoke_model_with_bidirectional_stream(operation))
    except BaseException:
        await client.close()
        raise


class _BedrockStream:
    """A stream of Amazon's SDK: events are JSON in chunks of bytes."""

    def __init__(self, client: Any, stream: Any) -> None:
        self._client = client
        self._stream = stream
        self._output: Any = None

    async def send(self, event: Event) -> None:
        from aws_sdk_bedrock_runtime.models import (
            BidirectionalInputPayloadPart,
            InvokeModelWithBidirectionalStreamInputChunk,
        )

        part = BidirectionalInputPayloadPart(bytes_=json.dumps(event).encode())
        await self._stream.input_stream.send(InvokeModelWithBidirectionalStreamInputChunk(value=part))

    async def receive(self) -> Event | None:
        if self._output is None:
            _, self._output = await self._stream.await_output()
        result = await self._output.receive()
        if result is None or result.value is None:
            return None
        try:
            event = json.loads(result.value.bytes_)
        except ValueError as error:
            raise TranscriberError("the transcriber's response is not JSON") from error
        return event if isinstance(event, dict) else {}

    async def close(self) -> None:
        try:
            # Closing waits for the service, which may not answer any more.
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSING_SECONDS):
                    await self._stream.input_stream.close()
            await self._read_to_end()
        finally:
            await self._client.close()

    async def _read_to_end(self) -> None:
        if self._output is None:
            return
        # Whatever the service sends after the transcript does not matter, including its errors.
        with suppress(Exception):
            async with asyncio.timeout(ENDING_SECONDS):
                while await self._output.receive() is not None:
                    pass
