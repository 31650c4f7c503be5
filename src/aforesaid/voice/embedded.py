"""Transcribe English locally with PocketSphinx, without network, on a small machine.

PocketSphinx includes its models (`aforesaid[speech]`). It is much weaker than a large model. It makes
voice work without any other service, and becomes much better with a list of common `phrases`.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from aforesaid._internal.arguments import validated
from aforesaid.contracts import Audio, Segment, Transcript
from aforesaid.errors import InvalidAudio, InvalidSetting, MissingExtra, TranscriberError, shown
from aforesaid.voice.sound import check_samples, resample

if TYPE_CHECKING:
    from aforesaid.voice.sound import Samples

RATE = 16_000
# Decoder frames per second.
FRAMES = 100
PEAK = 0.5
# Peak level of the prepared speech and level of the added noise. The model was trained on microphone
# recordings; it finds words in absolute silence and misreads speech without background noise.
NOISE = 0.001
# Seconds of noise before and after the speech.
MARGIN = 0.25
# Minimum similarity, from 0 to 1, of a phrase and the free transcription. It prevents other speech from
# being mapped to a phrase.
MIN_SIMILARITY = 0.6

# Minimum similarity of the sounds of a name and of the transcribed words.
MIN_ALIKE = 0.7

_PHRASES = "phrases"


@validated
class EmbeddedTranscriber:
    """Transcribes locally. Speech that resembles one of `phrases` becomes that phrase."""

    def __init__(self, *, phrases: Sequence[str] = ()) -> None:
        if isinstance(phrases, str):
            raise InvalidSetting(f"phrases must be a list; got {shown(phrases)}", field="phrases")
        self._phrases = [_normalize(phrase) for phrase in phrases]
        self._originals = {_normalize(phrase): phrase for phrase in phrases}
        self._decoder: Any = None
        # One dedicated thread: the decoder is not concurrent, and callers must not occupy the shared pool.
        self._thread: ThreadPoolExecutor | None = None

    @property
    def name(self) -> str:
        return "pocketsphinx"

    async def transcribe(self, audio: Audio, *, language: str | None = None) -> Transcript:
        return await self.transcribe_with_names(audio, (), language=language)

    async def transcribe_with_names(
        self, audio: Audio, names: Sequence[str], *, language: str | None = None
    ) -> Transcript:
        """Transcribe, and replace words that sound like one of the names. Names of one word are ignored:
        they sound like too many other words.
        """
        check_samples(audio, self.name)
        if language is not None and not language.lower().startswith("en"):
            raise InvalidAudio(
                f"language must be English for {self.name}; got {shown(language)}", field="language"
            )
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="aforesaid-speech")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._transcribe, audio, tuple(names))

    async def close(self) -> None:
        if self._thread is not None:
            # A running transcription ends by itself; closing must not wait for it.
            self._thread.shutdown(wait=False)
        self._decoder = self._thread = None

    def _transcribe(self, audio: Audio, names: Sequence[str]) -> Transcript:
        samples = _prepare(resample(audio, RATE))
        decoder = self._load()
        free = _with_names(decoder, _decode(decoder, samples), names)
        if not self._phrases or not free.text:
            return free
        decoder.activate_search(_PHRASES)
        try:
            return self._choose(free, _decode(decoder, samples))
        finally:
            # Back to free speech for the next recording.
            decoder.activate_search()

    def _choose(self, free: Transcript, phrase: Transcript) -> Transcript:
        similarity = SequenceMatcher(None, free.text, phrase.text, autojunk=False).ratio()
        if phrase.text not in self._originals or similarity < MIN_SIMILARITY:
            return free
        original = self._originals[phrase.text]
        return Transcript(text=original, confidence=similarity, language="en", segments=phrase.segments)

    def _load(self) -> Any:
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
                _add_phrases(decoder, self._phrases)
            self._decoder = decoder
        return self._decoder


def _normalize(phrase: str) -> str:
    words = "".join(c if c.isalnum() or c in "'’ " else " " for c in str(phrase).lower().replace("’", "'"))
    return " ".join(words.split())


def _add_phrases(decoder: Any, phrases: Sequence[str]) -> None:
    unknown = sorted({word for phrase in phrases for word in phrase.split() if not decoder.lookup_word(word)})
    if unknown or not all(phrases):
        words = ", ".join(unknown) or "an empty phrase"
        raise InvalidSetting(f"phrases must consist of English words; unknown: {words}", field="phrases")
    choices = " | ".join(dict.fromkeys(phrases))
    decoder.add_jsgf_string(_PHRASES, f"#JSGF V1.0;\ngrammar phrases;\npublic <phrase> = {choices};\n")


def _with_names(decoder: Any, transcript: Transcript, names: Sequence[str]) -> Transcript:
    """Return the transcript with words replaced that sound like a name of several words."""
    words = [segment.text for segment in transcript.segments]
    if not words or not names:
        return transcript
    sounds = [_phones(decoder, [word]) or [] for word in words]
    for name in names:
        parts = _normalize(name).split()
        phones = _phones(decoder, parts) if len(parts) > 1 else None
        if phones is not None:
            _replace_alike(words, sounds, name, parts, phones)
    return replace(transcript, text=" ".join(words))


def _replace_alike(
    words: list[str], sounds: list[list[str]], name: str, parts: Sequence[str], phones: list[str]
) -> None:
    """Replace the words that sound most like the name, if they sound alike enough."""
    best, place = MIN_ALIKE, None
    for length in (len(parts), len(parts) - 1, len(parts) + 1):
        for start in range(len(words) - length + 1):
            sound = [phone for each in sounds[start : start + length] for phone in each]
            alike = SequenceMatcher(None, sound, phones, autojunk=False).ratio()
            if alike > best:
                best, place = alike, slice(start, start + length)
    if place is not None:
        words[place] = [name]
        sounds[place] = [phones]


def _phones(decoder: Any, words: Sequence[str]) -> list[str] | None:
    """Return the sounds of words; None if one is not in the dictionary."""
    found = [decoder.lookup_word(word) for word in words]
    return [phone for each in found for phone in each.split()] if all(found) else None


def _prepare(samples: "Samples") -> bytes:
    """Normalize the level and add a little noise, as a microphone would."""
    import numpy as np

    peak = float(np.abs(samples).max())
    loud = samples * (PEAK / peak) if peak else samples
    margin = np.zeros(int(MARGIN * RATE))
    whole = np.concatenate([margin, loud, margin])
    # A fixed seed, so that the same audio gives the same text.
    noise = np.random.default_rng(seed=0).normal(0.0, NOISE, len(whole))
    return bytes((np.clip(whole + noise, -1.0, 1.0) * 32767).astype("<i2").tobytes())


def _decode(decoder: Any, samples: bytes) -> Transcript:
    try:
        # Otherwise the noise of earlier recordings, perhaps of another room, changes the words.
        decoder.reinit_feat()
        decoder.start_utt()
        decoder.process_raw(samples, full_utt=True)
        decoder.end_utt()
    except RuntimeError as error:
        raise TranscriberError(f"the audio could not be decoded: {error}") from error
    best = decoder.hyp()
    if best is None or not best.hypstr.strip():
        return Transcript(text="", confidence=0.0, language="en")
    # Fillers such as <sil> and [NOISE] are not words.
    words = tuple(_word(each) for each in decoder.seg() if each.word[0] not in "<[")
    confidence = sum(word.confidence or 0.0 for word in words) / max(1, len(words))
    return Transcript(text=best.hypstr.strip(), confidence=confidence, language="en", segments=words)


def _word(segment: Any) -> Segment:
    return Segment(
        # The dictionary numbers alternative pronunciations: "read(2)".
        text=segment.word.partition("(")[0],
        start=max(0.0, segment.start_frame / FRAMES - MARGIN),
        end=max(0.0, segment.end_frame / FRAMES - MARGIN),
        confidence=max(0.0, min(1.0, segment.prob)),
    )
