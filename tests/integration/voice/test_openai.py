"""A transcriber behind OpenAI's interface, against a server on this machine that speaks it."""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

import httpx
import pytest

from aforesaid.contracts import Audio, Segment, Transcript
from aforesaid.errors import InvalidAudio, InvalidSetting, TranscriberError, TranscriberUnavailable
from aforesaid.testing.providers.protocol import HttpServer, Request, Response, json_response
from aforesaid.voice import OpenAITranscriber
from aforesaid.voice.sound import unpack_wav

SOUND = Audio(data=b"\x00\x20" * 1000)
KEY = "sk-secret"


class Service:
    """`/audio/transcriptions` as OpenAI has it."""

    def __init__(self, answer: Response) -> None:
        self._answer = answer
        self.asked: list[dict[str, Any]] = []
        self.url = ""

    async def handle(self, request: Request) -> Response:
        if (request.method, request.path) != ("POST", "/v1/audio/transcriptions"):
            return json_response({"error": {"message": f"no such route {request.path}"}}, status=404)
        self.asked.append({"key": request.headers.get("authorization"), **form_of(request)})
        return self._answer


def form_of(request: Request) -> dict[str, Any]:
    """The fields of a multipart form, read by the standard library."""
    head = f"Content-Type: {request.headers['content-type']}\r\n\r\n".encode()
    whole = message_from_bytes(head + request.body, policy=policy.HTTP)
    assert isinstance(whole, EmailMessage)
    fields: dict[str, Any] = {}
    for part in whole.iter_parts():
        name = part.get_param("name", header="content-disposition")
        content = part.get_payload(decode=True)
        assert isinstance(content, bytes)
        if part.get_filename():
            fields[str(name)] = (part.get_filename(), part.get_content_type(), content)
        else:
            fields[str(name)] = content.decode()
    return fields


@asynccontextmanager
async def serving(answer: Response) -> AsyncIterator[Service]:
    service = Service(answer)
    server = HttpServer(service.handle)
    service.url = f"http://127.0.0.1:{await server.start()}/v1"
    try:
        yield service
    finally:
        await server.stop()


@asynccontextmanager
async def transcriber_at(service: Service, **more: Any) -> AsyncIterator[OpenAITranscriber]:
    transcriber = OpenAITranscriber(base_url=service.url, api_key=KEY, **more)
    try:
        yield transcriber
    finally:
        await transcriber.close()
        await transcriber.close()


VERBOSE = {
    "text": " Turn it on. Now.",
    "language": "english",
    "duration": 4.0,
    "segments": [
        {"text": " Turn it on.", "start": 0.0, "end": 3.0, "avg_logprob": -0.2, "no_speech_prob": 0.0},
        {"text": " Now.", "start": 3.0, "end": 4.0, "avg_logprob": -1.0, "no_speech_prob": 0.5},
    ],
}


async def test_samples_go_out_as_a_wav_file_and_words_come_back() -> None:
    async with serving(json_response(VERBOSE)) as service, transcriber_at(service) as transcriber:
        heard = await transcriber.transcribe(SOUND, language="en")
    first, second = math.exp(-0.2), math.exp(-1.0) * 0.5
    assert heard.text == "Turn it on. Now."
    assert heard.language == "english"
    assert heard.confidence == pytest.approx((3 * first + second) / 4)
    assert heard.segments[1] == Segment(text="Now.", start=3.0, end=4.0, confidence=second)
    (asked,) = service.asked
    assert (asked["key"], asked["model"], asked["language"]) == (f"Bearer {KEY}", "whisper-1", "en")
    assert asked["response_format"] == "verbose_json"
    assert asked["file"][:2] == ("audio.wav", "audio/wav")
    assert unpack_wav(asked["file"][2]) == SOUND


async def test_a_model_that_tells_of_tokens_is_asked_for_them() -> None:
    answer = {
        "text": "Yes.",
        "logprobs": [{"token": "Yes", "logprob": -0.1}, {"token": ".", "logprob": -0.3}],
    }
    async with (
        serving(json_response(answer)) as service,
        transcriber_at(service, model="gpt-4o-transcribe", prompt="lights, doors") as transcriber,
    ):
        heard = await transcriber.transcribe(SOUND)
    assert heard.confidence == pytest.approx(math.exp(-0.2))
    (asked,) = service.asked
    assert (asked["include[]"], asked["response_format"]) == ("logprobs", "json")
    assert asked["prompt"] == "lights, doors"


async def test_a_server_that_says_nothing_but_the_words_is_believed() -> None:
    async with serving(json_response({"text": "Yes."})) as service, transcriber_at(service) as transcriber:
        assert await transcriber.transcribe(SOUND) == Transcript(text="Yes.")


async def test_a_file_of_another_kind_goes_as_it_is() -> None:
    recording = Audio(data=b"OggS123", media_type="audio/ogg")
    async with serving(json_response({"text": "Yes."})) as service, transcriber_at(service) as transcriber:
        await transcriber.transcribe(recording)
        with pytest.raises(InvalidAudio, match="audio/midi"):
            await transcriber.transcribe(Audio(data=b"x", media_type="audio/midi"))
    assert service.asked[0]["file"] == ("audio.ogg", "audio/ogg", b"OggS123")


WRONG: list[tuple[Response, type[TranscriberError], str]] = [
    (json_response({"error": {"message": "bad key"}}, status=401), TranscriberError, "401: 'bad key'"),
    (json_response({"error": {"message": "slow down"}}, status=429), TranscriberUnavailable, "429"),
    (json_response({"detail": "no such model"}, status=404), TranscriberError, "no such model"),
    (Response(status=503, body=b"<html>"), TranscriberUnavailable, "503"),
    (Response(status=200, body=b"<html>"), TranscriberError, "JSON"),
    (json_response({"words": []}), TranscriberError, "has no text"),
    (json_response([]), TranscriberError, "has no text"),
    (Response(body=b"{", breaks=True), TranscriberUnavailable, "cannot be reached"),
]


@pytest.mark.parametrize("case", range(len(WRONG)))
async def test_what_a_server_does_wrong_is_an_error_of_ours(case: int) -> None:
    answer, kind, words = WRONG[case]
    async with serving(answer) as service, transcriber_at(service) as transcriber:
        with pytest.raises(kind, match=words) as caught:
            await transcriber.transcribe(SOUND)
    assert type(caught.value) is kind
    assert KEY not in str(caught.value)


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    transcriber = OpenAITranscriber(base_url="http://127.0.0.1:9/v1")
    with pytest.raises(TranscriberUnavailable):
        await transcriber.transcribe(SOUND)
    await transcriber.close()


async def test_a_client_of_the_caller_stays_open() -> None:
    client = await asyncio.to_thread(httpx.AsyncClient)
    async with serving(json_response({"text": "Yes."})) as service:
        transcriber = OpenAITranscriber(base_url=service.url, client=client)
        await transcriber.transcribe(SOUND)
        await transcriber.close()
        assert not client.is_closed
        assert service.asked[0]["key"] is None
    await client.aclose()


@pytest.mark.parametrize("base_url", ["", "ftp://x", None])
def test_what_is_no_address_is_refused(base_url: Any) -> None:
    with pytest.raises(InvalidSetting, match="base_url"):
        OpenAITranscriber(base_url=base_url)
