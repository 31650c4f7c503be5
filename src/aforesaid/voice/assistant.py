"""Voice assistant: transcribe speech, answer it and store the turn."""

import asyncio
import logging
from collections.abc import AsyncIterable, Coroutine, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

from msgspec import Struct

from aforesaid._internal.arguments import validated
from aforesaid._internal.tasks import ended
from aforesaid.agents import Answer, Apology, SupervisorAgent, TurnProgress
from aforesaid.agents.stored_turns import append_or_queue
from aforesaid.agents.supervisor import check_deadline, end_session_quietly
from aforesaid.agents.turn_order import Found, running_turn
from aforesaid.contracts import (
    Audio,
    AudioFormat,
    NameAwareTranscriber,
    OnText,
    StreamingTranscriber,
    Transcriber,
    Transcript,
)
from aforesaid.dialects import meaning_of
from aforesaid.errors import AforesaidError, InvalidInput, InvalidSetting, NotUnderstood, shown
from aforesaid.intake.unstored_turns import NotStored
from aforesaid.memory.manager import ConversationManager
from aforesaid.memory.sessions import SessionManager
from aforesaid.model.ids import parse_name
from aforesaid.model.messages import Message, Speech
from aforesaid.settings import VoiceConfig
from aforesaid.spoken_answers import SPOKEN_LIMIT, cut_at_sentence, heard_length, without_markup
from aforesaid.telemetry import describe
from aforesaid.voice.embedded import EmbeddedTranscriber
from aforesaid.voice.nova_sonic import MODEL as NOVA_SONIC
from aforesaid.voice.nova_sonic import NovaSonicTranscriber
from aforesaid.voice.openai import OPENAI, OpenAITranscriber
from aforesaid.voice.sound import SoundLimits, check_audible, collect, limit_chunks, read_sound
from aforesaid.voice.wyoming import WyomingTranscriber

log = logging.getLogger("aforesaid.voice")

# A recording, or its chunks as they arrive.
Sound = bytes | Audio | AsyncIterable[bytes]

# Transcripts with a lower confidence are rejected. Below it the embedded transcriber is mostly wrong;
# larger models are usually above 0.7 when they are right.
LEAST_CONFIDENCE = 0.4


# Seconds that a spoken answer may take, and after which the user hears that it is being made.
DEADLINE = 20.0
FILLER_AFTER = 2.5
FILLER = "One moment."
# The most names of contacts that a transcriber gets. More make it find names that were not said.
MOST_NAMES = 100
# The tag of a question whether a transcript is right.
ASKS_BACK = "asks_back"
# The question to the user ends with a mark of its own.
_MARKS = ".!?…"


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
    """Whether the turn is stored. False when storing failed, and for an apology unless the turn had effects
    or was heard in part.
    """
    queued: bool = False
    """Whether storing failed and is retried in the background."""
    asks_back: bool = False
    """Whether the reply asks if the transcript is right, because its confidence is too low."""
    interrupted: bool = False
    """Whether the user interrupted the answer while it was made; `spoken` is what was heard."""

    def __str__(self) -> str:
        return self.text


@validated
class VoiceAssistant:
    """Answers spoken requests.

    - `supervisor` answers, `transcriber` transcribes, `sessions` maps sessions to conversations.
    - `least_confidence`: a transcript below it is not answered; the reply asks the user whether it is right.
      A transcript without a confidence is accepted.
    - `deadline`: seconds that an answer may take. Longer silence is unusable in a dialogue.
    - `filler` is passed to `on_filler` after `filler_after` seconds without a word of the answer.
    - `names`: names that are likely in the audio; by default those of the owner's contacts. Transcribers
      that are `NameAwareTranscriber` recognize them better.
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
        deadline: float | None = DEADLINE,
        filler: str = FILLER,
        filler_after: float = FILLER_AFTER,
        names: Sequence[str] | None = None,
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
        self._deadline = check_deadline(deadline, field="deadline")
        self._filler = filler
        self._filler_after = check_deadline(filler_after, field="filler_after")
        self._names = names
        self._running: dict[str, list[_RunningReply]] = {}

    async def handle_voice_input(
        self,
        audio_data: Sound,
        session_id: str,
        *,
        audio_format: AudioFormat | None = None,
        language: str | None = None,
        device: str | None = None,
        on_text: OnText | None = None,
        on_filler: OnText | None = None,
    ) -> VoiceReply:
        """Transcribe, answer and store a request. An unknown session starts now.

        `audio_data` is a recording or its chunks; samples need `audio_format`. Unusable audio raises
        `InvalidAudio`, `NotUnderstood` or `TranscriberError`, and nothing is stored. Words below the
        confidence floor are not answered: the reply asks whether they are right (`asks_back`). A turn that
        fails later leaves its question as an open turn, and the reply is an apology. An answer that cannot be
        stored is returned with `stored` False and queued.
        """
        parse_name(session_id, field="session_id")
        transcript = await self._heard(audio_data, audio_format, language)
        question = message_of(transcript)
        if not self._is_sure(transcript):
            return await self._ask_back(question, transcript, session_id, device)
        progress = TurnProgress()
        progress.is_spoken = on_text is not None
        found: list[str] = []
        work = self._answer(question, session_id, device, progress, found, on_text)
        answer = await self._interruptible(session_id, work, progress, on_filler)
        conversation_id = found[0] if found else ""
        if answer is None:
            return self._interrupted_reply(progress, transcript, session_id, conversation_id)
        if isinstance(answer, Apology):
            return self._apology_reply(answer, transcript, session_id, conversation_id)
        return self._reply(answer, transcript, session_id, conversation_id)

    async def _answer(
        self,
        question: Message,
        session_id: str,
        device: str | None,
        progress: TurnProgress,
        found: list[str],
        on_text: OnText | None,
    ) -> Answer | Apology:
        def passed_on(piece: str) -> None:
            if on_text is not None:
                on_text(piece)

        try:
            look_up = partial(self._look_up, session_id, device)
            async with running_turn(self.manager, session_id, look_up) as (conversation_id, *_):
                found.append(conversation_id)
                # Always streamed: an interruption must know what was generated by then.
                return await self._supervisor.answer_query(
                    question,
                    session_id,
                    conversation_id,
                    on_text=passed_on,
                    deadline=self._deadline,
                    progress=progress,
                )
        except Exception as error:
            if not found:
                raise
            return self._supervisor.apologize(error, progress)

    async def _look_up(self, session_id: str, device: str | None) -> Found:
        existing = await self.sessions.get_conversation_id(session_id)
        if existing is not None:
            return Found(existing)
        started = await self.sessions.create_session(session_id, device=device)
        return Found(started.conversation_id, partial(end_session_quietly, self.sessions, session_id))

    async def _interruptible(
        self,
        session_id: str,
        work: Coroutine[Any, Any, Answer | Apology],
        progress: TurnProgress,
        on_filler: OnText | None,
    ) -> Answer | Apology | None:
        """Return the answer; None for one that was interrupted."""
        running = _RunningReply(asyncio.ensure_future(work), progress)
        self._running.setdefault(session_id, []).append(running)
        try:
            await self._wait_with_filler(running.task, progress, on_filler)
            return await running.task
        except asyncio.CancelledError:
            if progress.interrupted and running.task.cancelled():
                return None
            await ended(running.task)
            raise
        finally:
            self._running[session_id].remove(running)
            if not self._running[session_id]:
                del self._running[session_id]

    async def _wait_with_filler(
        self, task: "asyncio.Task[Any]", progress: TurnProgress, on_filler: OnText | None
    ) -> None:
        if on_filler is None or not self._filler:
            return
        await asyncio.wait({task}, timeout=self._filler_after)
        if not task.done() and not progress.text:
            on_filler(self._filler)

    async def interrupt(self, session_id: str, *, heard: int | str | None = None) -> bool:
        """Stop the answer that is being made in a session; return whether there was one.

        `heard` is how many characters of the streamed text the user heard, or the words; None for all. The
        turn is stored with what was generated, and the model sees what was not heard. After the answer, use
        `interrupted`.
        """
        running = list(self._running.get(parse_name(session_id, field="session_id"), ()))
        for each in running:
            each.progress.interrupt(_heard_characters(each.progress, heard))
            each.task.cancel()
        if running:
            await asyncio.wait({each.task for each in running})
        return bool(running)

    async def _heard(
        self, audio: Sound, audio_format: AudioFormat | None, language: str | None
    ) -> Transcript:
        transcript = await self._transcript(audio, audio_format, language)
        if not transcript.text.strip():
            raise NotUnderstood("no speech was recognized", confidence=transcript.confidence)
        return transcript

    def _is_sure(self, transcript: Transcript) -> bool:
        return transcript.confidence is None or transcript.confidence >= self._least_confidence

    async def _ask_back(
        self, question: Message, transcript: Transcript, session_id: str, device: str | None
    ) -> VoiceReply:
        """Ask whether the words are right. Both are stored, so that the answer "yes" has a meaning."""
        spoken = f"I'm not sure that I understood. Did you say: {transcript.text.strip().rstrip(_MARKS)}?"
        look_up = partial(self._look_up, session_id, device)
        async with running_turn(self.manager, session_id, look_up) as (conversation_id, *_):
            asking = Message(role="assistant", content=spoken, tags=(ASKS_BACK,))
            turn = [self.manager.intake.completed(question), self.manager.intake.completed(asking)]
            stored = await append_or_queue(self.manager, conversation_id, turn)
        is_stored = not isinstance(stored, NotStored)
        return VoiceReply(
            text=spoken,
            spoken=spoken,
            transcript=transcript,
            session_id=session_id,
            conversation_id=conversation_id,
            parts=(SpokenPart(message_id=str(turn[1].message_id), spoken=spoken),),
            stored=is_stored,
            queued=isinstance(stored, NotStored) and stored.queued,
            asks_back=True,
        )

    async def understand(
        self, audio: Sound, *, audio_format: AudioFormat | None = None, language: str | None = None
    ) -> Transcript:
        """Return only the transcript. Raises `NotUnderstood` also below the confidence floor."""
        transcript = await self._heard(audio, audio_format, language)
        if not self._is_sure(transcript):
            raise NotUnderstood(
                f"transcription confidence {transcript.confidence:.2f} is below the minimum of "
                f"{self._least_confidence:g}",
                words=transcript.text,
                confidence=transcript.confidence,
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
        if isinstance(self._transcriber, NameAwareTranscriber):
            names = await self._likely_names()
            return await self._transcriber.transcribe_with_names(sound, names, language=language)
        return await self._transcriber.transcribe(sound, language=language)

    async def _likely_names(self) -> Sequence[str]:
        """Return the names that the audio may contain. Without them it is transcribed all the same."""
        if self._names is not None:
            return self._names
        try:
            page = await self.manager.clients.list(MOST_NAMES)
        except AforesaidError as error:
            log.info("the names of contacts are not known: %s", describe(error))
            return ()
        return [contact.name for contact in page.contacts]

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

    def _interrupted_reply(
        self, progress: TurnProgress, transcript: Transcript, session_id: str, conversation_id: str
    ) -> VoiceReply:
        return VoiceReply(
            text=progress.text,
            spoken=progress.text[: progress.heard],
            transcript=transcript,
            session_id=session_id,
            conversation_id=conversation_id,
            interrupted=True,
            stored=progress.is_kept,
        )

    def _apology_reply(
        self, apology: Apology, transcript: Transcript, session_id: str, conversation_id: str
    ) -> VoiceReply:
        return VoiceReply(
            text=apology.text,
            spoken=cut_at_sentence(without_markup(apology.text), self._spoken_limit),
            transcript=transcript,
            session_id=session_id,
            conversation_id=conversation_id,
            failed=True,
            stored=apology.kept,
        )


class _RunningReply(NamedTuple):
    """A reply that is being made."""

    task: "asyncio.Task[Answer | Apology]"
    progress: TurnProgress


def _heard_characters(progress: TurnProgress, heard: int | str | None) -> int:
    if heard is None:
        return len(progress.text) if progress.is_spoken else 0
    if not isinstance(heard, str):
        return heard
    length = heard_length(progress.text, heard)
    if length is None:
        raise InvalidInput(
            f"heard must be the beginning of what was spoken; got {shown(heard)}", field="heard", value=heard
        )
    return length


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
        case "nova":
            endpoint = config.transcriber_url or None
            return NovaSonicTranscriber(model=config.transcriber_model or NOVA_SONIC, endpoint=endpoint)
        case "openai":
            return OpenAITranscriber(
                base_url=config.transcriber_url or OPENAI,
                api_key=config.transcriber_key,
                model=config.transcriber_model or "whisper-1",
            )
    return None
