"""A transcriber on board: English, without network, on a small machine. Below: sound. Above: the assistant.

PocketSphinx brings its models with it (`aforesaid[speech]`). It is no match for a large model: it is
there so that voice works on a machine with nothing else, and gets much better where it is told what is
often said (`phrases`).
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

from aforesaid._internal.arguments import validated
from aforesaid.contracts import PCM, Audio, Segment, Transcript
from aforesaid.errors import InvalidAudio, InvalidSetting, MissingExtra, TranscriberError, shown
from aforesaid.voice.sound import resampled

if TYPE_CHECKING:
    from aforesaid.voice.sound import Samples

RATE = 16_000
FRAMES = 100
"""Frames a second, in which the decoder counts time."""
LOUDEST = 0.5
NOISE = 0.001
"""Loudness that speech is brought to, and of the noise under it. The model learned from microphones: of a
silence without any noise it makes words, and of speech over one it makes other words."""
MARGIN = 0.25
"""Seconds of noise before and after."""
ALIKE = 0.6
"""How alike, from 0 to 1, a phrase and what was understood without phrases must be for the phrase to be
taken: what nobody listed is not bent into something that is."""

_PHRASES = "phrases"


@validated
class EmbeddedTranscriber:
    """`phrases`: sentences that are often said here; heard like one of them, it is that one."""

    def __init__(self, *, phrases: Sequence[str] = ()) -> None:
        if isinstance(phrases, str):
            raise InvalidSetting(f"phrases must be a list; got {shown(phrases)}", field="phrases")
        self._phrases = [_bare(phrase) for phrase in phrases]
        self._said = {_bare(phrase): phrase for phrase in phrases}
        self._decoder: Any = None
        # One thread: the decoder does one thing at a time, and those who wait must not hold up others.
        self._thread: ThreadPoolExecutor | None = None

    @property
    def name(self) -> str:
        return "pocketsphinx"

    async def transcribe(self, audio: Audio, *, language: str | None = None) -> Transcript:
        if audio.media_type != PCM:
            raise InvalidAudio(
                f"audio must be a WAV file or bare samples for {self.name}; got {audio.media_type}",
                field="audio",
                value=audio.media_type,
            )
        if language is not None and not language.lower().startswith("en"):
            raise InvalidAudio(
                f"language must be English for {self.name}; got {shown(language)}", field="language"
            )
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="aforesaid-speech")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._transcribe, audio)

    async def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown(wait=False)
        self._decoder = self._thread = None

    def _transcribe(self, audio: Audio) -> Transcript:
        samples = _prepared(resampled(audio, RATE))
        decoder = self._loaded()
        freely = _understood(decoder, samples)
        if not self._phrases or not freely.text:
            return freely
        decoder.activate_search(_PHRASES)
        try:
            return self._chosen(freely, _understood(decoder, samples))
        finally:
            decoder.activate_search()

    def _chosen(self, freely: Transcript, phrase: Transcript) -> Transcript:
        alike = SequenceMatcher(None, freely.text, phrase.text, autojunk=False).ratio()
        if phrase.text not in self._said or alike < ALIKE:
            return freely
        said = self._said[phrase.text]
        return Transcript(text=said, confidence=alike, language="en", segments=phrase.segments)

    def _loaded(self) -> Any:
        if self._decoder is None:
            try:
                import pocketsphinx
            except ImportError:
                raise MissingExtra("the embedded transcriber", extra="speech") from None
            try:
                decoder = pocketsphinx.Decoder(samprate=RATE, cmn="batch", loglevel="FATAL")
            except RuntimeError as error:
                raise TranscriberError(f"the embedded models cannot be loaded: {error}") from error
            if self._phrases:
                _teach(decoder, self._phrases)
            self._decoder = decoder
        return self._decoder


def _bare(phrase: str) -> str:
    words = "".join(c if c.isalnum() or c in "'’ " else " " for c in str(phrase).lower().replace("’", "'"))
    return " ".join(words.split())


def _teach(decoder: Any, phrases: Sequence[str]) -> None:
    unknown = sorted({word for phrase in phrases for word in phrase.split() if not decoder.lookup_word(word)})
    if unknown or not all(phrases):
        words = ", ".join(unknown) or "nothing"
        raise InvalidSetting(f"phrases must be made of English words; not known: {words}", field="phrases")
    choices = " | ".join(dict.fromkeys(phrases))
    decoder.add_jsgf_string(_PHRASES, f"#JSGF V1.0;\ngrammar said;\npublic <said> = {choices};\n")


def _prepared(samples: "Samples") -> bytes:
    """As a microphone would have given it: loud enough, and with a little noise everywhere."""
    import numpy as np

    peak = float(np.abs(samples).max())
    loud = samples * (LOUDEST / peak) if peak else samples
    margin = np.zeros(int(MARGIN * RATE))
    whole = np.concatenate([margin, loud, margin])
    # The same noise each time: the same sound gives the same words.
    noise = np.random.default_rng(seed=0).normal(0.0, NOISE, len(whole))
    return bytes((np.clip(whole + noise, -1.0, 1.0) * 32767).astype("<i2").tobytes())


def _understood(decoder: Any, samples: bytes) -> Transcript:
    try:
        decoder.start_utt()
        decoder.process_raw(samples, full_utt=True)
        decoder.end_utt()
    except RuntimeError as error:
        raise TranscriberError(f"the sound could not be decoded: {error}") from error
    best = decoder.hyp()
    if best is None or not best.hypstr.strip():
        return Transcript(text="", confidence=0.0, language="en")
    words = tuple(_word(each) for each in decoder.seg() if each.word[0] not in "<[")
    sure = sum(word.confidence or 0.0 for word in words) / max(1, len(words))
    return Transcript(text=best.hypstr.strip(), confidence=sure, language="en", segments=words)


def _word(segment: Any) -> Segment:
    return Segment(
        text=segment.word.partition("(")[0],
        start=max(0.0, segment.start_frame / FRAMES - MARGIN),
        end=max(0.0, segment.end_frame / FRAMES - MARGIN),
        confidence=max(0.0, min(1.0, segment.prob)),
    )
