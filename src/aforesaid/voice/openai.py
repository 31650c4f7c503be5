"""A transcriber behind OpenAI's `/audio/transcriptions`, or any server with the same interface.

Below: sound, contracts. Above: the assistant. Files of any kind go as they are; bare samples as WAV.
"""

import asyncio
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from aforesaid._internal.arguments import validated
from aforesaid.contracts import PCM, Audio, Segment, Transcript
from aforesaid.errors import (
    InvalidAudio,
    InvalidSetting,
    MissingExtra,
    TranscriberError,
    TranscriberUnavailable,
    shown,
)
from aforesaid.voice.sound import pack_wav

if TYPE_CHECKING:
    import httpx

OPENAI = "https://api.openai.com/v1"

_NAMES = {
    PCM: "audio.wav",
    "audio/wav": "audio.wav",
    "audio/mpeg": "audio.mp3",
    "audio/mp4": "audio.m4a",
    "audio/ogg": "audio.ogg",
    "audio/flac": "audio.flac",
    "audio/webm": "audio.webm",
}
"""Servers know a file by the end of its name."""

_MAYBE_LATER = frozenset((408, 409, 425, 429))


@validated
class OpenAITranscriber:
    """`model` as the server names it. `client` is an `httpx.AsyncClient` of your own, which stays open."""

    def __init__(
        self,
        *,
        base_url: str = OPENAI,
        api_key: str = "",
        model: str = "whisper-1",
        prompt: str = "",
        timeout: float = 60.0,
        client: "httpx.AsyncClient | None" = None,
    ) -> None:
        if not isinstance(base_url, str) or not base_url.startswith(("http://", "https://")):
            raise InvalidSetting(
                f"base_url must begin with http:// or https://; got {shown(base_url)}", field="base_url"
            )
        self._url = f"{base_url.rstrip('/')}/audio/transcriptions"
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._model = model
        self._prompt = prompt
        self._timeout = timeout
        self._own = client is None
        self._client = client
        self._opening = asyncio.Lock()

    @property
    def name(self) -> str:
        return self._model

    async def transcribe(self, audio: Audio, *, language: str | None = None) -> Transcript:
        if audio.media_type not in _NAMES:
            raise InvalidAudio(f"audio of this kind is not known: {shown(audio.media_type)}", field="audio")
        data = pack_wav(audio) if audio.media_type == PCM else audio.data
        kind = "audio/wav" if audio.media_type == PCM else audio.media_type
        answer = await self._post({"file": (_NAMES[audio.media_type], data, kind)}, self._fields(language))
        return _transcript(answer)

    async def close(self) -> None:
        if self._own and self._client is not None:
            await self._client.aclose()
            self._client = None

    def _fields(self, language: str | None) -> dict[str, Any]:
        fields: dict[str, Any] = {"model": self._model}
        if self._model.startswith(
            "gpt-"
        ):  # these have no long form, but say how sure they were of each token
            fields |= {"response_format": "json", "include[]": ["logprobs"]}
        else:
            fields |= {"response_format": "verbose_json"}
        wanted = {"language": language, "prompt": self._prompt}
        return fields | {field: value for field, value in wanted.items() if value}

    async def _post(self, files: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
        client = await self._opened()
        import httpx

        try:
            response = await client.post(
                self._url, headers=self._headers, files=files, data=fields, timeout=self._timeout
            )
        except httpx.TransportError as error:
            raise TranscriberUnavailable(
                f"the transcriber cannot be reached: {type(error).__name__}"
            ) from error
        if response.status_code >= 400:
            raise _refusal(response)
        try:
            answer = response.json()
        except ValueError as error:
            raise TranscriberError("the transcriber did not answer in JSON") from error
        if not isinstance(answer, dict) or not isinstance(answer.get("text"), str):
            raise TranscriberError("the transcriber answered without a text")
        return answer

    async def _opened(self) -> "httpx.AsyncClient":
        async with self._opening:
            if self._client is None:
                # Certificates are read from disk.
                self._client = await asyncio.to_thread(_new_client)
            return self._client


def _new_client() -> "httpx.AsyncClient":
    try:
        import httpx
    except ImportError:
        raise MissingExtra("a transcriber behind HTTP", extra="speech") from None
    return httpx.AsyncClient()


def _refusal(response: "httpx.Response") -> TranscriberError:
    """What the server says, without what we sent: that holds a key."""
    status = response.status_code
    kind = TranscriberUnavailable if status >= 500 or status in _MAYBE_LATER else TranscriberError
    return kind(f"the transcriber refuses with {status}: {shown(_words(response))}", status=status)


def _words(response: "httpx.Response") -> str:
    try:
        answer = response.json()
    except ValueError:
        return response.reason_phrase
    match answer:
        case {"error": {"message": str(words)}} | {"error": str(words)} | {"detail": str(words)}:
            return words
    return response.reason_phrase


def _transcript(answer: dict[str, Any]) -> Transcript:
    language = answer.get("language")
    segments = tuple(_segments(answer.get("segments")))
    return Transcript(
        text=answer["text"].strip(),
        confidence=_confidence(segments, answer.get("logprobs")),
        language=language if isinstance(language, str) else None,
        segments=segments,
    )


def _segments(given: Any) -> list[Segment]:
    found = []
    for each in given if isinstance(given, list) else ():
        match each:
            case {"text": str(text), "start": int() | float() as start, "end": int() | float() as end}:
                confidence = _segment_confidence(each)
                found.append(
                    Segment(text=text.strip(), start=float(start), end=float(end), confidence=confidence)
                )
    return found


def _segment_confidence(segment: dict[str, Any]) -> float | None:
    """How sure of the words, as the mean of their tokens; and that somebody spoke at all."""
    match segment:
        case {"avg_logprob": int() | float() as average, **rest}:
            nobody = rest.get("no_speech_prob")
            spoke = 1 - nobody if isinstance(nobody, int | float) and 0 <= nobody <= 1 else 1.0
            return _probability(average) * spoke
    return None


def _confidence(segments: Sequence[Segment], logprobs: Any) -> float | None:
    """Of the whole: the segments by their length, or the tokens."""
    weighed = [
        (each.confidence, max(each.end - each.start, 0.01))
        for each in segments
        if each.confidence is not None
    ]
    if weighed:
        return sum(sure * long for sure, long in weighed) / sum(long for _, long in weighed)
    tokens = [
        each["logprob"]
        for each in (logprobs if isinstance(logprobs, list) else ())
        if isinstance(each, dict) and isinstance(each.get("logprob"), int | float)
    ]
    return _probability(sum(tokens) / len(tokens)) if tokens else None


def _probability(logarithm: float) -> float:
    return math.exp(min(0.0, logarithm)) if not math.isnan(logarithm) else 0.0
