"""Sound as it comes in: what it is, how long, how loud. Below: contracts. Above: the assistant.

WAV files are unpacked with the standard library; bare samples come with their format; files of other
kinds (MP3, Ogg, WebM, …) are recognised and handed on as they are. What is no sound at all is refused.
"""

import math
import sys
from array import array
from collections.abc import AsyncIterable, AsyncIterator
from typing import TYPE_CHECKING

from aforesaid._internal.arguments import CheckedFields, validated
from aforesaid.contracts import PCM, Audio, AudioFormat
from aforesaid.errors import InvalidAudio, MissingExtra, NotUnderstood, shown

if TYPE_CHECKING:
    import numpy

    Samples = numpy.ndarray[tuple[int, ...], numpy.dtype[numpy.float64]]

LOUDNESS_OF_SILENCE = 0.003
"""The loudest sample of a recording in which nobody speaks, as a part of the loudest there can be: -50 dB."""

_WAV_PCM, _WAV_FLOAT, _WAV_EXTENSIBLE = 1, 3, 0xFFFE


@validated
class SoundLimits(CheckedFields, frozen=True, kw_only=True):
    """How much sound is taken at once."""

    longest: float = 60.0
    """Seconds. What is said to an assistant in one go; dictation comes in parts."""
    largest: int = 25_000_000
    """Bytes: what OpenAI's interface takes, and a minute at studio quality."""

    def check(self, audio: Audio) -> Audio:
        """The sound, or an error that says how much too much it is."""
        if not audio.data:
            raise InvalidAudio("audio is empty", field="audio")
        if len(audio.data) > self.largest:
            raise InvalidAudio(
                f"audio must have at most {self.largest:,} bytes; this has {len(audio.data):,}", field="audio"
            )
        if audio.seconds is not None and audio.seconds > self.longest:
            raise InvalidAudio(
                f"audio must last at most {self.longest:g} s; this lasts {audio.seconds:.1f} s", field="audio"
            )
        return audio


def read_sound(given: object, audio_format: AudioFormat | None = None) -> Audio:
    """What was handed in as sound: with a format, bare samples; else a file that says what it is."""
    if isinstance(given, Audio):
        return _whole(given) if given.media_type == PCM else given
    if not isinstance(given, bytes | bytearray | memoryview):
        raise InvalidAudio(f"audio must be bytes; got {shown(given)}", field="audio")
    data = bytes(given)
    if not data:
        raise InvalidAudio("audio is empty", field="audio")
    if audio_format is not None:
        return _whole(Audio(data=data, format=audio_format))
    if data[:4] in (b"RIFF", b"RF64") and data[8:12] == b"WAVE":
        return unpack_wav(data)
    media_type = _media_type(data)
    if media_type is None:
        raise InvalidAudio(
            f"audio is no recording that is known; it begins with {shown(data[:8])}. "
            "Samples need an audio_format",
            field="audio",
        )
    return Audio(data=data, media_type=media_type)


def _whole(audio: Audio) -> Audio:
    """Bare samples without half a sample at the end: a connection may have been cut anywhere."""
    rest = len(audio.data) % audio.format.frame
    if not audio.data or len(audio.data) == rest:
        raise InvalidAudio("audio is empty", field="audio")
    return Audio(data=audio.data[:-rest], format=audio.format) if rest else audio


def _media_type(data: bytes) -> str | None:
    """What kind of file begins like this."""
    if data[:3] == b"ID3" or (data[0] == 0xFF and data[1:2] and data[1] & 0xE6 in (0xE2, 0xE4, 0xE6)):
        return "audio/mpeg"
    if data[4:8] == b"ftyp":
        return "audio/mp4"
    return next((kind for magic, kind in _MAGIC if data.startswith(magic)), None)


_MAGIC = ((b"OggS", "audio/ogg"), (b"fLaC", "audio/flac"), (b"\x1aE\xdf\xa3", "audio/webm"))


# WAV


def unpack_wav(data: bytes) -> Audio:
    """The samples of a WAV file. One that was cut short has what is there."""
    form, kind, samples = None, 0, None
    for name, chunk in _chunks(data):
        if name == b"fmt ":
            form, kind = _wav_format(chunk)
        elif name == b"data":
            samples = chunk
            break
    if form is None or samples is None:
        raise InvalidAudio("audio is a WAV file without a format or without samples", field="audio")
    if kind == _WAV_FLOAT:
        return _whole(_from_floats(samples, form))
    if form.width == 1:
        return _whole(_widened(samples, form))
    return _whole(Audio(data=samples, format=form))


def _chunks(data: bytes) -> "list[tuple[bytes, bytes]]":
    found, at = [], 12
    while at + 8 <= len(data):
        name, size = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        found.append((name, data[at + 8 : at + 8 + size]))
        at += 8 + size + size % 2
    return found


def _wav_format(chunk: bytes) -> tuple[AudioFormat, int]:
    if len(chunk) < 16:
        raise InvalidAudio("audio is a WAV file without a format or without samples", field="audio")
    kind, channels = int.from_bytes(chunk[:2], "little"), int.from_bytes(chunk[2:4], "little")
    rate, bits = int.from_bytes(chunk[4:8], "little"), int.from_bytes(chunk[14:16], "little")
    if kind == _WAV_EXTENSIBLE and len(chunk) >= 26:
        kind = int.from_bytes(chunk[24:26], "little")
    known = (kind == _WAV_PCM and bits in (8, 16, 24, 32)) or (kind == _WAV_FLOAT and bits == 32)
    if not known:
        raise InvalidAudio(
            f"audio is a WAV file of a kind that is not known: format {kind} with {bits} bits", field="audio"
        )
    return AudioFormat(rate=rate, width=bits // 8, channels=channels), kind


def _from_floats(samples: bytes, form: AudioFormat) -> Audio:
    floats = array("f", samples[: len(samples) - len(samples) % 4])
    if sys.byteorder == "big":
        floats.byteswap()
    return _of_samples([_sample(value) for value in floats], form)


def _widened(samples: bytes, form: AudioFormat) -> Audio:
    """Narrow samples, which WAV counts from zero."""
    return _of_samples([(sample - 128) << 8 for sample in samples], form)


def _of_samples(samples: list[int], form: AudioFormat) -> Audio:
    whole = array("h", samples)
    if sys.byteorder == "big":
        whole.byteswap()
    return Audio(data=whole.tobytes(), format=AudioFormat(rate=form.rate, width=2, channels=form.channels))


def _sample(value: float) -> int:
    return 0 if math.isnan(value) else round(max(-1.0, min(1.0, value)) * 32767)


def pack_wav(audio: Audio) -> bytes:
    """Bare samples as a WAV file."""
    form, data = audio.format, audio.data
    if form.width == 1:
        data = bytes((sample + 128) & 0xFF for sample in data)
    head = b"WAVEfmt " + (16).to_bytes(4, "little") + _WAV_PCM.to_bytes(2, "little")
    head += form.channels.to_bytes(2, "little") + form.rate.to_bytes(4, "little")
    head += (form.rate * form.frame).to_bytes(4, "little") + form.frame.to_bytes(2, "little")
    head += (8 * form.width).to_bytes(2, "little") + b"data" + len(data).to_bytes(4, "little")
    return b"RIFF" + (len(head) + len(data)).to_bytes(4, "little") + head + data


# Loudness


def check_audible(audio: Audio) -> None:
    """Refuse bare samples in which nobody speaks: a transcriber would make words of nothing."""
    if audio.media_type == PCM and loudest(audio) < LOUDNESS_OF_SILENCE:
        raise NotUnderstood("nobody spoke: there is nothing but silence")


def loudest(audio: Audio) -> float:
    """The loudest sample, from 0 to 1. Around their mean, because some microphones have a constant part."""
    samples = _samples(audio)
    middle = sum(samples) / len(samples)
    return max(max(samples) - middle, middle - min(samples)) / (1 << (8 * min(audio.format.width, 2) - 1))


def _samples(audio: Audio) -> "array[int]":
    """The samples; of wide ones the upper two bytes, which is all that can be heard."""
    width = audio.format.width
    if width == 1:
        return array("b", audio.data)
    data = audio.data
    if width > 2:
        narrow = bytearray(2 * (len(data) // width))
        narrow[0::2], narrow[1::2] = data[width - 2 :: width], data[width - 1 :: width]
        data = bytes(narrow)
    samples = array("h", data)
    if sys.byteorder == "big":
        samples.byteswap()
    return samples


# Another rate


def resampled(audio: Audio, rate: int) -> "Samples":
    """One channel of samples at another rate, from -1 to 1. Takes its time: call it off the loop."""
    try:
        import numpy as np
    except ImportError:
        raise MissingExtra("another sample rate", extra="speech") from None

    narrow: Samples = np.array(_samples(audio), dtype=np.float64) / (
        1 << (8 * min(audio.format.width, 2) - 1)
    )
    mono: Samples = narrow[: len(narrow) // audio.format.channels * audio.format.channels]
    mono = mono.reshape(-1, audio.format.channels).mean(axis=1)
    if audio.format.rate == rate:
        return mono
    share = rate / audio.format.rate
    if share < 1:  # what is too high for the new rate would come back as a false low tone
        reach = math.ceil(32 / share)
        window = np.blackman(2 * reach + 1)
        filtering = np.sinc(np.arange(-reach, reach + 1) * share * 0.95) * share * 0.95 * window
        mono = np.convolve(mono, filtering, "same")[: len(mono)]
    places = np.arange(int(len(mono) * share)) / share
    other: Samples = np.interp(places, np.arange(len(mono)), mono)
    return other


# Piece by piece


async def bounded(
    chunks: AsyncIterable[bytes], limits: SoundLimits, audio_format: AudioFormat | None
) -> AsyncIterator[bytes]:
    """The chunks as they come, until they are too many."""
    size = 0
    form = audio_format
    most = limits.largest if form is None else min(limits.largest, limits.longest * form.frame * form.rate)
    async for chunk in chunks:
        if not isinstance(chunk, bytes | bytearray | memoryview):
            raise InvalidAudio(f"audio must be bytes; got {shown(chunk)}", field="audio")
        size += len(chunk)
        if size > most:
            limit = f"{limits.largest:,} bytes" if form is None else f"{limits.longest:g} s"
            raise InvalidAudio(f"audio is too long: more than {limit}", field="audio")
        yield bytes(chunk)


async def collected(
    chunks: AsyncIterable[bytes], limits: SoundLimits, audio_format: AudioFormat | None
) -> bytes:
    """All of it."""
    return b"".join([chunk async for chunk in bounded(chunks, limits, audio_format)])
