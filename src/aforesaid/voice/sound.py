"""Parse and check audio: format, length, level.

WAV files are unpacked with the standard library. Samples come with their format. Other files (MP3, Ogg,
WebM, …) are recognized and passed on unchanged. Anything else is refused.
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

# Peak level below which a recording counts as silent, relative to full scale: -50 dB.
SILENCE_LEVEL = 0.003

_WAV_PCM, _WAV_FLOAT, _WAV_EXTENSIBLE = 1, 3, 0xFFFE


@validated
class SoundLimits(CheckedFields, frozen=True, kw_only=True):
    """Maximum size of an audio input."""

    longest: float = 60.0
    """Seconds. Enough for one spoken request."""
    largest: int = 25_000_000
    """Bytes: the limit of OpenAI's API, and a minute at studio quality."""

    def check(self, audio: Audio) -> Audio:
        """Return the audio, or raise `InvalidAudio` with the limit that it exceeds."""
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


def read_sound(value: object, audio_format: AudioFormat | None = None) -> Audio:
    """Parse audio: samples if a format is given, else a file with a recognizable type."""
    if isinstance(value, Audio):
        return _whole_samples(value) if value.media_type == PCM else value
    if not isinstance(value, bytes | bytearray | memoryview):
        raise InvalidAudio(f"audio must be bytes; got {shown(value)}", field="audio")
    data = bytes(value)
    if not data:
        raise InvalidAudio("audio is empty", field="audio")
    if audio_format is not None:
        return _whole_samples(Audio(data=data, format=audio_format))
    if data[:4] in (b"RIFF", b"RF64") and data[8:12] == b"WAVE":
        return unpack_wav(data)
    media_type = _media_type(data)
    if media_type is None:
        raise InvalidAudio(
            f"audio has an unknown format; it begins with {shown(data[:8])}. Samples need an audio_format",
            field="audio",
        )
    return Audio(data=data, media_type=media_type)


def check_samples(audio: Audio, transcriber: str) -> None:
    """Raise `InvalidAudio` for a file in a compressed format, which this transcriber cannot read."""
    if audio.media_type != PCM:
        raise InvalidAudio(
            f"audio must be a WAV file or samples for {transcriber}; got {audio.media_type}",
            field="audio",
            value=audio.media_type,
        )


def _whole_samples(audio: Audio) -> Audio:
    """Return the samples without an incomplete one at the end, which a lost connection leaves."""
    rest = len(audio.data) % audio.format.frame
    if not audio.data or len(audio.data) == rest:
        raise InvalidAudio("audio is empty", field="audio")
    return Audio(data=audio.data[:-rest], format=audio.format) if rest else audio


def _media_type(data: bytes) -> str | None:
    """Return the media type for the first bytes of a file."""
    # MP3 files start with a tag or with a frame: eleven set bits, then version and layer.
    if data[:3] == b"ID3" or (data[0] == 0xFF and data[1:2] and data[1] & 0xE6 in (0xE2, 0xE4, 0xE6)):
        return "audio/mpeg"
    if data[4:8] == b"ftyp":
        return "audio/mp4"
    return next((kind for magic, kind in _MAGIC if data.startswith(magic)), None)


_MAGIC = ((b"OggS", "audio/ogg"), (b"fLaC", "audio/flac"), (b"\x1aE\xdf\xa3", "audio/webm"))


# WAV


def unpack_wav(data: bytes) -> Audio:
    """Return the samples of a WAV file. A truncated file yields the samples that it contains."""
    fmt, kind, samples = None, 0, None
    for name, chunk in _chunks(data):
        if name == b"fmt ":
            fmt, kind = _wav_format(chunk)
        elif name == b"data":
            samples = chunk
            break
    if fmt is None or samples is None:
        raise InvalidAudio("audio is a WAV file without a format or without samples", field="audio")
    if kind == _WAV_FLOAT:
        return _whole_samples(_from_float(samples, fmt))
    if fmt.width == 1:
        return _whole_samples(_from_unsigned(samples, fmt))
    return _whole_samples(Audio(data=samples, format=fmt))


def _chunks(data: bytes) -> "list[tuple[bytes, bytes]]":
    found, at = [], 12
    while at + 8 <= len(data):
        name, size = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        # A streamed WAV states a wrong size; slicing takes what is there.
        found.append((name, data[at + 8 : at + 8 + size]))
        # RIFF pads chunks to an even length.
        at += 8 + size + size % 2
    return found


def _wav_format(chunk: bytes) -> tuple[AudioFormat, int]:
    if len(chunk) < 16:
        raise InvalidAudio("audio is a WAV file without a format or without samples", field="audio")
    kind, channels = int.from_bytes(chunk[:2], "little"), int.from_bytes(chunk[2:4], "little")
    rate, bits = int.from_bytes(chunk[4:8], "little"), int.from_bytes(chunk[14:16], "little")
    if kind == _WAV_EXTENSIBLE and len(chunk) >= 26:
        # The extensible format has the actual encoding in the first bytes of its subformat GUID.
        kind = int.from_bytes(chunk[24:26], "little")
    supported = (kind == _WAV_PCM and bits in (8, 16, 24, 32)) or (kind == _WAV_FLOAT and bits == 32)
    if not supported:
        raise InvalidAudio(
            f"audio is a WAV file with an unsupported encoding: format {kind} with {bits} bits", field="audio"
        )
    return AudioFormat(rate=rate, width=bits // 8, channels=channels), kind


def _from_float(samples: bytes, fmt: AudioFormat) -> Audio:
    floats = array("f", samples[: len(samples) - len(samples) % 4])
    if sys.byteorder == "big":
        floats.byteswap()
    return _audio_of([_sample(value) for value in floats], fmt)


def _from_unsigned(samples: bytes, fmt: AudioFormat) -> Audio:
    """Convert 8-bit samples, which are unsigned in WAV."""
    return _audio_of([(sample - 128) << 8 for sample in samples], fmt)


def _audio_of(samples: list[int], fmt: AudioFormat) -> Audio:
    whole = array("h", samples)
    if sys.byteorder == "big":
        whole.byteswap()
    return Audio(data=whole.tobytes(), format=AudioFormat(rate=fmt.rate, width=2, channels=fmt.channels))


def _sample(value: float) -> int:
    return 0 if math.isnan(value) else round(max(-1.0, min(1.0, value)) * 32767)


def pack_wav(audio: Audio) -> bytes:
    """Return samples as a WAV file."""
    fmt, data = audio.format, audio.data
    if fmt.width == 1:
        # WAV stores 8-bit samples unsigned, all others signed.
        data = bytes((sample + 128) & 0xFF for sample in data)
    head = b"WAVEfmt " + (16).to_bytes(4, "little") + _WAV_PCM.to_bytes(2, "little")
    head += fmt.channels.to_bytes(2, "little") + fmt.rate.to_bytes(4, "little")
    head += (fmt.rate * fmt.frame).to_bytes(4, "little") + fmt.frame.to_bytes(2, "little")
    head += (8 * fmt.width).to_bytes(2, "little") + b"data" + len(data).to_bytes(4, "little")
    return b"RIFF" + (len(head) + len(data)).to_bytes(4, "little") + head + data


# Loudness


def check_audible(audio: Audio) -> None:
    """Refuse silent samples, from which a transcriber would invent words."""
    if audio.media_type == PCM and peak_level(audio) < SILENCE_LEVEL:
        raise NotUnderstood("the recording is silent")


def peak_level(audio: Audio) -> float:
    """Return the peak level from 0 to 1, relative to the mean, because some microphones have a DC offset."""
    samples = _samples(audio)
    # A constant offset, as some microphones add, is not sound.
    middle = sum(samples) / len(samples)
    return max(max(samples) - middle, middle - min(samples)) / (1 << (8 * min(audio.format.width, 2) - 1))


def _samples(audio: Audio) -> "array[int]":
    """Return the samples; for wide ones the upper two bytes, which is all that is audible."""
    width = audio.format.width
    if width == 1:
        return array("b", audio.data)
    data = audio.data
    if width > 2:
        narrow = bytearray(2 * (len(data) // width))
        # The two most significant bytes of each sample; the rest is below any noise.
        narrow[0::2], narrow[1::2] = data[width - 2 :: width], data[width - 1 :: width]
        data = bytes(narrow)
    samples = array("h", data)
    if sys.byteorder == "big":
        samples.byteswap()
    return samples


# Resampling


def resample(audio: Audio, rate: int) -> "Samples":
    """Return one channel at another rate, from -1 to 1. This is CPU-bound: call it on a thread."""
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
    ratio = rate / audio.format.rate
    if ratio < 1:  # a low-pass filter prevents aliasing
        reach = math.ceil(32 / ratio)
        window = np.blackman(2 * reach + 1)
        kernel = np.sinc(np.arange(-reach, reach + 1) * ratio * 0.95) * ratio * 0.95 * window
        mono = np.convolve(mono, kernel, "same")[: len(mono)]
    positions = np.arange(int(len(mono) * ratio)) / ratio
    other: Samples = np.interp(positions, np.arange(len(mono)), mono)
    return other


# Streaming


async def limit_chunks(
    chunks: AsyncIterable[bytes], limits: SoundLimits, audio_format: AudioFormat | None
) -> AsyncIterator[bytes]:
    """Yield the chunks. Raise `InvalidAudio` when they exceed a limit."""
    size = 0
    fmt = audio_format
    most = limits.largest if fmt is None else min(limits.largest, limits.longest * fmt.frame * fmt.rate)
    async for chunk in chunks:
        if not isinstance(chunk, bytes | bytearray | memoryview):
            raise InvalidAudio(f"audio must be bytes; got {shown(chunk)}", field="audio")
        size += len(chunk)
        if size > most:
            limit = f"{limits.largest:,} bytes" if fmt is None else f"{limits.longest:g} s"
            raise InvalidAudio(f"audio is too long: more than {limit}", field="audio")
        yield bytes(chunk)


async def collect(
    chunks: AsyncIterable[bytes], limits: SoundLimits, audio_format: AudioFormat | None
) -> bytes:
    """Return all chunks as bytes."""
    return b"".join([chunk async for chunk in limit_chunks(chunks, limits, audio_format)])
