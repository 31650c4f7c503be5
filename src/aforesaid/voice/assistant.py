"""Voice assistant: transcribe speech, answer it and store the turn."""

import asyncio
import logging
from collections.abc import AsyncIterable, Sequence
from functools import partial
from typing import cast

from msgspec import Struct

from aforesaid._internal.arguments import validated
from aforesaid.agents import Answer, Apology, SupervisorAgent
from aforesaid.agents.supervisor import end_session_quietly
from aforesaid.contracts import Audio, AudioFormat, OnText, StreamingTranscriber, Transcriber, Transcript
from aforesaid.dialects import meaning_of
from aforesaid.errors import InvalidSetting, NotUnderstood, shown
from aforesaid.memory.manager import ConversationManager
from aforesaid.memory.sessions import SessionManager
from aforesaid.model.messages import Message, Speech
from aforesaid.settings import VoiceConfig
from aforesaid.spoken_answers import SPOKEN_LIMIT, cut_at_sentence, heard_length, without_markup
from aforesaid.voice.embedded import EmbeddedTranscriber
from aforesaid.voice.openai import OPENAI, OpenAITranscriber
from aforesaid.voice.sound import SoundLimits, check_audible, collect, limit_chunks, read_sound
from aforesaid.voice.wyoming import WyomingTranscriber

log = logging.getLogger("aforesaid.voice")

# A recording, or its chunks as they arrive.
Sound = bytes | Audio | AsyncIterable[bytes]

# Transcripts with a lower confidence are rejected. Below it the embedded transcriber is mostly wrong;
# larger models are usually above 0.7 when they are right.
LEAST_CONFIDENCE = 0.4


class SpokenPart(Struct, frozen=True, kw_only=True):
    """A message of the answer with its spoken text."""

    message_id: str
    spoken: str


class VoiceReply(Struct, frozen=True, kw_only=True):
    """The answer to a spoken request."""

    text: str
    """The whole answer as it is stored, for reading."""
    spoken: str
    """The text to speak: without markup, cut at a sentence end within the limit."""
    transcript: Transcript
    """The transcribed request."""
    session_id: str
    conversation_id: str
    parts: tuple[SpokenPart, ...] = ()
    """The messages of the answer, usually one. Empty if the turn failed and is not in the log."""
    failed: bool = False
    """Whether this is an apology."""
    stored: bool = True
    """Whether the turn is stored. False for an apology and when storing failed."""
    queued: bool = False
    """Whether storing failed and is retried in the background."""

    def __str__(self) -> str:
        return self.text


@validated
class VoiceAssistant:
    """Answers spoken requests.

    `supervisor` answers, `transcriber` transcribes, `sessions` maps sessions to conversations. A
    transcript with a confidence below `least_confidence` is rejected. A transcript without a confidence is
    accepted.
    """

    def __init__(
        self,
        supervisor: SupervisorAgent,
        transcriber: Transcriber,
        *,
        sessions: SessionManager | None = None,
        least_confidence: float = LEAST_CONFIDENCE,
        limits: SoundLimits | None = None,
        spoken_limit: int = SPOKEN_LIMIT,
    ) -> None:
        self.manager = supervisor.conversation_manager
        # Sessions need the store; the manager of a server raises `InvalidSetting` when they ask for it.
        self.sessions = sessions or SessionManager(cast(ConversationManager, self.manager))
        if not isinstance(least_confidence, int | float) or not 0 <= least_confidence <= 1:
            raise InvalidSetting(
                f"least_confidence must be a number from 0 to 1; got {shown(least_confidence)}",
                field="least_confidence",
            )
        if type(spoken_limit) is not int or spoken_limit < 1:
            raise InvalidSetting(
                f"spoken_limit must be a whole number, 1 or more; got {shown(spoken_limit)}",
                field="spoken_limit",
            )
        self._supervisor = supervisor
        self._transcriber = transcriber
        self._least_confidence = least_confidence
        self._limits = limits or SoundLimits()
        self._spoken_limit = spoken_limit

    async def handle_voice_input(
        self,
        audio: Sound,
        session_id: str,
        *,
        audio_format: AudioFormat | None = None,
        language: str | None = None,
        device: str | None = None,
        on_text: OnText | None = None,
    ) -> VoiceReply:
        """Transcribe, answer and store a request. An unknown session starts now.

        `audio` is a recording or its chunks; samples need `audio_format`. Unusable audio raises
        `InvalidAudio`, `NotUnderstood` or `TranscriberError`, and nothing is stored. A turn that fails later
        leaves its question as an open turn, and the reply is an apology. An answer that cannot be stored is
        returned with `stored` False and queued.
        """
        transcript = await self.understand(audio, audio_format=audio_format, language=language)
        question = message_of(transcript)
        existing = await self.sessions.get_conversation_id(session_id)
        conversation_id = (
            existing or (await self.sessions.create_session(session_id, device=device)).conversation_id
        )
        undo = partial(end_session_quietly, self.sessions, session_id) if existing is None else None
        answer = await self._supervisor.answer_or_apology(
            question, session_id, conversation_id, on_text=on_text, undo=undo
        )
        if isinstance(answer, Apology):
            return self._apology_reply(answer.text, transcript, session_id, conversation_id)
        return self._reply(answer, transcript, session_id, conversation_id)

    async def understand(
        self, audio: Sound, *, audio_format: AudioFormat | None = None, language: str | None = None
    ) -> Transcript:
        """Return only the transcript. Raises like `handle_voice_input`."""
        transcript = await self._transcript(audio, audio_format, language)
        if not transcript.text.strip():
            raise NotUnderstood("no speech was recognized", confidence=transcript.confidence)
        sure = transcript.confidence
        if sure is not None and sure < self._least_confidence:
            raise NotUnderstood(
                f"transcription confidence {sure:.2f} is below the minimum of {self._least_confidence:g}",
                words=transcript.text,
                confidence=sure,
            )
        return transcript

    async def interrupted(self, reply: VoiceReply, *, heard: int | str) -> tuple[Message, ...]:
        """Record how much of the reply was heard before the user interrupted, as
        `ConversationManager.interrupted` does.

        Return the updated messages. A failed turn has none.
        """
        length = heard_length(reply.spoken, heard) if isinstance(heard, str) else heard
        if len(reply.parts) == 1 or length is None or isinstance(length, bool) or length < 0:
            return tuple([await self._record_heard(reply, part, heard) for part in reply.parts])
        updated, remaining = [], length
        for part in reply.parts:
            updated.append(await self._record_heard(reply, part, max(0, min(remaining, len(part.spoken)))))
            # Parts are spoken one after another, with one separator between them.
            remaining -= len(part.spoken) + 1
        return tuple(updated)

    async def close(self) -> None:
        """Close the transcriber."""
        await self._transcriber.close()

    async def _record_heard(self, reply: VoiceReply, part: SpokenPart, heard: int | str) -> Message:
        return await self.manager.interrupted(
            reply.conversation_id, part.message_id, heard=heard, spoken=part.spoken
        )

    async def _transcript(
        self, audio: Sound, audio_format: AudioFormat | None, language: str | None
    ) -> Transcript:
        if isinstance(audio, AsyncIterable):
            # Only raw samples can be forwarded as they arrive; a file must be complete.
            if audio_format is not None and isinstance(self._transcriber, StreamingTranscriber):
                chunks = limit_chunks(audio, self._limits, audio_format)
                return await self._transcriber.listen(chunks, audio_format, language=language)
            audio = await collect(audio, self._limits, audio_format)
        # A minute of samples takes long enough to delay other callers of the event loop.
        sound = await asyncio.to_thread(self._read_checked, audio, audio_format)
        return await self._transcriber.transcribe(sound, language=language)

    def _read_checked(self, audio: bytes | Audio, audio_format: AudioFormat | None) -> Audio:
        """Parse and check the audio. It reads every sample, so call it on a thread."""
        sound = self._limits.check(read_sound(audio, audio_format))
        check_audible(sound)
        return sound

    def _reply(
        self, answer: Answer, transcript: Transcript, session_id: str, conversation_id: str
    ) -> VoiceReply:
        parts, spoken = _spoken_parts(answer.messages, self._spoken_limit)
        return VoiceReply(
            text=answer.text,
            spoken=spoken,
            transcript=transcript,
            session_id=session_id,
            conversation_id=conversation_id,
            parts=parts,
            stored=answer.not_stored is None,
            queued=answer.not_stored is not None and answer.not_stored.queued,
        )

    def _apology_reply(
        self, apology: str, transcript: Transcript, session_id: str, conversation_id: str
    ) -> VoiceReply:
        return VoiceReply(
            text=apology,
            spoken=cut_at_sentence(without_markup(apology), self._spoken_limit),
            transcript=transcript,
            session_id=session_id,
            conversation_id=conversation_id,
            failed=True,
            stored=False,
        )


def message_of(transcript: Transcript) -> Message:
    """Return the transcript as the user's message."""
    speech = Speech(confidence=transcript.confidence, language=transcript.language)
    return Message(
        role="user",
        content=transcript.text.strip(),
        content_type="audio",
        speech=None if speech == Speech() else speech,
    )


def _spoken_parts(turn: Sequence[Message], limit: int) -> tuple[tuple[SpokenPart, ...], str]:
    """Return the answer's messages after the last tool call, and the text to speak for all of them."""
    texts: list[tuple[str, str]] = []
    for message in turn:
        meaning = meaning_of(message)
        if meaning.calls or message.role == "user":
            # Text before a tool call is not part of the answer, as in `AgenticLoop`.
            texts.clear()
        elif message.role == "assistant" and message.message_id and meaning.text.strip():
            texts.append((message.message_id, without_markup(meaning.text)))
    spoken = cut_at_sentence("\n".join(words for _, words in texts), limit)
    parts, at = [], 0
    for message_id, words in texts:
        parts.append(SpokenPart(message_id=message_id, spoken=spoken[at : at + len(words)]))
        at += len(words) + 1
    return tuple(parts), spoken


@validated
def transcriber_for(config: VoiceConfig) -> Transcriber | None:
    """Return the transcriber from the settings, or None if it is off. One transcriber serves all owners."""
    match config.transcriber:
        case "embedded":
            return EmbeddedTranscriber()
        case "wyoming" if not config.transcriber_url:
            raise InvalidSetting(
                "the transcriber wyoming needs an address: set AFORESAID_TRANSCRIBER_URL",
                field="transcriber_url",
                value="",
            )
        case "wyoming":
            return WyomingTranscriber(config.transcriber_url, model=config.transcriber_model or None)
        case "openai":
            return OpenAITranscriber(
                base_url=config.transcriber_url or OPENAI,
                api_key=config.transcriber_key,
                model=config.transcriber_model or "whisper-1",
            )
    return None
