"""Transcribe with OpenAI's `/audio/transcriptions` or a compatible server.

Audio files are sent unchanged; samples are sent as WAV.
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

# Servers detect the file type by the extension.
_NAMES = {
    PCM: "audio.wav",
    "audio/wav": "audio.wav",
    "audio/mpeg": "audio.mp3",
    "audio/mp4": "audio.m4a",
    "audio/ogg": "audio.ogg",
    "audio/flac": "audio.flac",
    "audio/webm": "audio.webm",
}

# The most characters of names in a prompt. Whisper reads only its last 224 tokens.
_NAMES_LIMIT = 500
_RETRYABLE = frozenset((408, 409, 425, 429))


@validated
class OpenAITranscriber:
    """Transcribes over HTTP. `model` is the server's model name. A `client` that is passed in stays open."""

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
        self._owns_client = client is None
        self._client = client
        self._opening = asyncio.Lock()

    @property
    def name(self) -> str:
        return self._model

    async def transcribe(self, audio: Audio, *, language: str | None = None) -> Transcript:
        return await self.transcribe_with_names(audio, (), language=language)

    async def transcribe_with_names(
        self, audio: Audio, names: Sequence[str], *, language: str | None = None
    ) -> Transcript:
        """Transcribe with names in the prompt, which these models take as earlier text."""
        if audio.media_type not in _NAMES:
            raise InvalidAudio(
                f"audio has an unsupported media type: {shown(audio.media_type)}", field="audio"
            )
        data = pack_wav(audio) if audio.media_type == PCM else audio.data
        kind = "audio/wav" if audio.media_type == PCM else audio.media_type
        answer = await self._post(
            {"file": (_NAMES[audio.media_type], data, kind)}, self._fields(language, names)
        )
        return _transcript(answer)

    async def close(self) -> None:
        if self._owns_client and self._client is not None:
            await self._client.aclose()
            self._client = None

    def _fields(self, language: str | None, names: Sequence[str]) -> dict[str, Any]:
        fields: dict[str, Any] = {"model": self._model}
        if self._model.startswith("gpt-"):  # these models have no verbose_json, but return logprobs
            fields |= {"response_format": "json", "include[]": ["logprobs"]}
        else:
            fields |= {"response_format": "verbose_json"}
        optional = {"language": language, "prompt": _prompt(self._prompt, names)}
        return fields | {field: value for field, value in optional.items() if value}

    async def _post(self, files: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
        client = await self._open_client()
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
            raise _error_for(response)
        try:
            answer = response.json()
        except ValueError as error:
            raise TranscriberError("the transcriber's response is not JSON") from error
        if not isinstance(answer, dict) or not isinstance(answer.get("text"), str):
            raise TranscriberError("the transcriber's response has no text")
        return answer

    async def _open_client(self) -> "httpx.AsyncClient":
        async with self._opening:
            if self._client is None:
                # httpx reads certificates from disk.
                self._client = await asyncio.to_thread(_new_client)
            return self._client


def _prompt(prompt: str | None, names: Sequence[str]) -> str:
    """Return the prompt with as many names as fit."""
    known = ""
    for name in names:
        if len(known) + len(name) > _NAMES_LIMIT:
            break
        known = f"{known}, {name}" if known else name
    return " ".join(part for part in (prompt, known and f"{known}.") if part)


def _new_client() -> "httpx.AsyncClient":
    try:
        import httpx
    except ImportError:
        raise MissingExtra("a transcriber behind HTTP", extra="speech") from None
    return httpx.AsyncClient()


def _error_for(response: "httpx.Response") -> TranscriberError:
    """Return the error for a response, with the server's message but without our request, which contains
    the key.
    """
    status = response.status_code
    kind = TranscriberUnavailable if status >= 500 or status in _RETRYABLE else TranscriberError
    return kind(f"the transcriber answered {status}: {shown(_error_text(response))}", status=status)


def _error_text(response: "httpx.Response") -> str:
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


def _segments(value: Any) -> list[Segment]:
    found = []
    for each in value if isinstance(value, list) else ():
        match each:
            case {"text": str(text), "start": int() | float() as start, "end": int() | float() as end}:
                confidence = _segment_confidence(each)
                found.append(
                    Segment(text=text.strip(), start=float(start), end=float(end), confidence=confidence)
                )
    return found


def _segment_confidence(segment: dict[str, Any]) -> float | None:
    """Return the confidence of a segment: the mean token probability, reduced by the probability of no
    speech.
    """
    match segment:
        case {"avg_logprob": int() | float() as average, **rest}:
            no_speech = rest.get("no_speech_prob")
            speech = 1 - no_speech if isinstance(no_speech, int | float) and 0 <= no_speech <= 1 else 1.0
            return _probability(average) * speech
    return None


def _confidence(segments: Sequence[Segment], logprobs: Any) -> float | None:
    """Return the overall confidence: the mean over segments by duration, or over tokens."""
    weighted = [
        (each.confidence, max(each.end - each.start, 0.01))
        for each in segments
        if each.confidence is not None
    ]
    if weighted:
        return sum(confidence * seconds for confidence, seconds in weighted) / sum(
            seconds for _, seconds in weighted
        )
    tokens = [
        each["logprob"]
        for each in (logprobs if isinstance(logprobs, list) else ())
        if isinstance(each, dict) and isinstance(each.get("logprob"), int | float)
    ]
    return _probability(sum(tokens) / len(tokens)) if tokens else None


def _probability(logarithm: float) -> float:
    return math.exp(min(0.0, logarithm)) if not math.isnan(logarithm) else 0.0
