"""A voice assistant: what was said by voice is understood, stored and answered.

Below: agents, sessions, sound. Above: whoever has a microphone and a loudspeaker: a server, a device.
"""

import asyncio
import logging
from collections.abc import AsyncIterable, Sequence
from functools import partial

from msgspec import Struct

from aforesaid._internal.arguments import validated
from aforesaid.agents import Answer, Apology, SupervisorAgent
from aforesaid.agents.supervisor import end_session_quietly
from aforesaid.contracts import Audio, AudioFormat, OnText, StreamingTranscriber, Transcriber, Transcript
from aforesaid.dialects import meaning_of
from aforesaid.errors import InvalidSetting, NotUnderstood, shown
from aforesaid.memory.sessions import SessionManager
from aforesaid.model.messages import Message, Speech
from aforesaid.speech.spoken_form import SPOKEN_LIMIT, cut_at_sentence, heard_length, without_markup
from aforesaid.voice.sound import SoundLimits, bounded, check_audible, collected, read_sound

log = logging.getLogger("aforesaid.voice")

Sound = bytes | Audio | AsyncIterable[bytes]
"""A recording, or its pieces as they arrive."""

LEAST_CONFIDENCE = 0.4
"""What is less sure than this is asked for again. Below it, the embedded transcriber's words are mostly
other words; larger models are mostly above 0.7 where they understood."""


class SpokenPart(Struct, frozen=True, kw_only=True):
    """A message of the answer, and what is spoken of it."""

    message_id: str
    spoken: str


class VoiceReply(Struct, frozen=True, kw_only=True):
    """The answer to something that was said by voice."""

    text: str
    """All of it, as it is stored: to be read."""
    spoken: str
    """What a voice should say of it: without markup, up to a sentence end within the limit."""
    transcript: Transcript
    """What was understood."""
    session_id: str
    conversation_id: str
    parts: tuple[SpokenPart, ...] = ()
    """Which messages it is made of: one, mostly. None where the turn failed: then nothing is stored."""
    failed: bool = False
    """Whether this is an apology."""
    stored: bool = True
    """Whether the turn is stored. False for an apology, and where storing failed."""
    queued: bool = False
    """Whether storing failed and is tried again in the background."""

    def __str__(self) -> str:
        return self.text


@validated
class VoiceAssistant:
    """Answers what is said by voice.

    `supervisor` answers, `transcriber` understands, `sessions` knows who is in which conversation.
    What is less sure than `least_confidence` is not understood; a transcriber that does not say how
    sure it is, is believed.
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
        self.sessions = sessions or SessionManager(self.manager)
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
        """Understand, store and answer. A session that is not known begins now.

        `audio` is a recording, or pieces of one as they arrive; bare samples need `audio_format`. What
        cannot be used or understood raises `InvalidAudio`, `NotUnderstood` or `TranscriberError`, and
        nothing is stored. A turn that fails later leaves no trace, and the reply is an apology. An answer
        that cannot be stored is returned, with `stored` False, and queued.
        """
        transcript = await self.understand(audio, audio_format=audio_format, language=language)
        question = asked(transcript)
        known = await self.sessions.get_conversation_id(session_id)
        conversation_id = (
            known or (await self.sessions.create_session(session_id, device=device)).conversation_id
        )
        undo = partial(end_session_quietly, self.sessions, session_id) if known is None else None
        answer = await self._supervisor.answer_or_apology(
            question, session_id, conversation_id, on_text=on_text, undo=undo
        )
        if isinstance(answer, Apology):
            return self._sorry(answer.text, transcript, session_id, conversation_id)
        return self._reply(answer, transcript, session_id, conversation_id)

    async def understand(
        self, audio: Sound, *, audio_format: AudioFormat | None = None, language: str | None = None
    ) -> Transcript:
        """The words alone; raises as `handle_voice_input`."""
        transcript = await self._transcript(audio, audio_format, language)
        if not transcript.text.strip():
            raise NotUnderstood("nobody spoke, or nothing was understood", confidence=transcript.confidence)
        sure = transcript.confidence
        if sure is not None and sure < self._least_confidence:
            raise NotUnderstood(
                f"the words are not sure enough: {sure:.2f}, and {self._least_confidence:g} is needed",
                words=transcript.text,
                confidence=sure,
            )
        return transcript

    async def interrupted(self, reply: VoiceReply, *, heard: int | str) -> tuple[Message, ...]:
        """Somebody cut in: note how much of the reply was heard, as `ConversationManager.interrupted`.

        Gives the messages that have a note now. A turn that failed has none.
        """
        length = heard_length(reply.spoken, heard) if isinstance(heard, str) else heard
        if len(reply.parts) == 1 or length is None or isinstance(length, bool) or length < 0:
            return tuple([await self._note(reply, part, heard) for part in reply.parts])
        noted, left = [], length
        for part in reply.parts:
            noted.append(await self._note(reply, part, max(0, min(left, len(part.spoken)))))
            left -= len(part.spoken) + 1
        return tuple(noted)

    async def close(self) -> None:
        """Let go of the transcriber."""
        await self._transcriber.close()

    async def _note(self, reply: VoiceReply, part: SpokenPart, heard: int | str) -> Message:
        return await self.manager.interrupted(
            reply.conversation_id, part.message_id, heard=heard, spoken=part.spoken
        )

    async def _transcript(
        self, audio: Sound, audio_format: AudioFormat | None, language: str | None
    ) -> Transcript:
        if isinstance(audio, AsyncIterable):
            if audio_format is not None and isinstance(self._transcriber, StreamingTranscriber):
                chunks = bounded(audio, self._limits, audio_format)
                return await self._transcriber.listen(chunks, audio_format, language=language)
            audio = await collected(audio, self._limits, audio_format)
        sound = await asyncio.to_thread(self._checked, audio, audio_format)
        return await self._transcriber.transcribe(sound, language=language)

    def _checked(self, audio: bytes | Audio, audio_format: AudioFormat | None) -> Audio:
        """Looks at every sample, so it is called off the loop."""
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

    def _sorry(
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


def asked(transcript: Transcript) -> Message:
    """What was said by voice, as it is stored."""
    speech = Speech(confidence=transcript.confidence, language=transcript.language)
    return Message(
        role="user",
        content=transcript.text.strip(),
        content_type="audio",
        speech=None if speech == Speech() else speech,
    )


def _spoken_parts(turn: Sequence[Message], limit: int) -> tuple[tuple[SpokenPart, ...], str]:
    """The messages with the words of the answer, and what is spoken of all: what follows the last call."""
    said: list[tuple[str, str]] = []
    for message in turn:
        meaning = meaning_of(message)
        if meaning.calls or message.role == "user":
            said.clear()
        elif message.role == "assistant" and message.message_id and meaning.text.strip():
            said.append((message.message_id, without_markup(meaning.text)))
    spoken = cut_at_sentence("\n".join(words for _, words in said), limit)
    parts, at = [], 0
    for message_id, words in said:
        parts.append(SpokenPart(message_id=message_id, spoken=spoken[at : at + len(words)]))
        at += len(words) + 1
    return tuple(parts), spoken
