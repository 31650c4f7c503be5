"""Sound as it comes in: recognised, unpacked, measured, brought to another rate."""

import io
import math
import struct
import wave
from array import array
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aforesaid.contracts import PCM, Audio, AudioFormat
from aforesaid.errors import InvalidAudio, NotUnderstood
from aforesaid.voice.sound import check_audible, pack_wav, peak_level, read_sound, resample, unpack_wav


def tone(hertz: float, seconds: float = 1.0, *, form: AudioFormat | None = None, loud: float = 0.5) -> Audio:
    form = form or AudioFormat()
    top = (1 << (8 * form.width - 1)) - 1
    samples = bytearray()
    for number in range(int(seconds * form.rate)):
        value = round(top * loud * math.sin(2 * math.pi * hertz * number / form.rate))
        samples += value.to_bytes(form.width, "little", signed=True) * form.channels
    return Audio(data=bytes(samples), format=form)


def float_wav(samples: list[float], *, extensible: bool = False) -> bytes:
    kind = struct.pack("<HHIIHH", 0xFFFE if extensible else 3, 1, 16_000, 64_000, 4, 32)
    if extensible:
        kind += struct.pack("<HHI", 22, 32, 4) + struct.pack("<H", 3) + bytes(14)
    data = array("f", samples).tobytes()
    chunks = b"fmt " + struct.pack("<I", len(kind)) + kind + b"LIST" + struct.pack("<I", 3) + b"abc\0"
    chunks += b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


@given(
    data=st.binary(min_size=24, max_size=240),
    rate=st.sampled_from([8_000, 16_000, 44_100]),
    width=st.sampled_from([2, 3, 4]),
    channels=st.sampled_from([1, 2]),
)
def test_what_is_packed_is_unpacked_and_others_can_read_it(
    data: bytes, rate: int, width: int, channels: int
) -> None:
    form = AudioFormat(rate=rate, width=width, channels=channels)
    audio = Audio(data=data[: len(data) // form.frame * form.frame], format=form)
    packed = pack_wav(audio)
    assert unpack_wav(packed) == audio
    with wave.open(io.BytesIO(packed)) as read:
        assert (read.getframerate(), read.getsampwidth(), read.getnchannels()) == (rate, width, channels)
        assert read.readframes(read.getnframes()) == audio.data


def test_narrow_samples_are_widened() -> None:
    packed = pack_wav(Audio(data=bytes([0, 64, 128, 255]), format=AudioFormat(width=1)))
    assert array("h", unpack_wav(packed).data).tolist() == [0, 64 << 8, -128 << 8, -1 << 8]


@pytest.mark.parametrize("extensible", [False, True])
def test_samples_that_are_fractions_are_made_whole(extensible: bool) -> None:
    audio = unpack_wav(float_wav([0.0, 0.5, -1.0, 2.0, math.nan], extensible=extensible))
    assert array("h", audio.data).tolist() == [0, 16384, -32767, 32767, 0]
    assert audio.format == AudioFormat()


def test_a_file_that_was_cut_short_has_what_is_there() -> None:
    packed = pack_wav(tone(440))
    assert unpack_wav(packed[:1001]).data == packed[44:1000]
    unending = packed[:40] + b"\xff\xff\xff\xff" + packed[44:]
    assert unpack_wav(unending).data == packed[44:]


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        (b"ID3\x04", "audio/mpeg"),
        (b"\xff\xfb\x90\x64", "audio/mpeg"),
        (b"OggS\x00", "audio/ogg"),
        (b"fLaC\x00", "audio/flac"),
        (b"\x1aE\xdf\xa3", "audio/webm"),
        (b"\x00\x00\x00\x20ftypM4A ", "audio/mp4"),
    ],
)
def test_other_files_are_recognised(start: bytes, kind: str) -> None:
    audio = read_sound(start + bytes(100))
    assert (audio.media_type, audio.seconds) == (kind, None)


@given(data=st.binary())
def test_whatever_comes_is_sound_or_refused(data: bytes) -> None:
    for given_data in (data, b"RIFF\x00\x00\x00\x00WAVE" + data, b"RIFF\x00\x00\x00\x00WAVEfmt " + data):
        with suppress(InvalidAudio):
            assert read_sound(given_data).data


def test_half_a_sample_at_the_end_is_left_out() -> None:
    form = AudioFormat(channels=2)
    assert read_sound(b"\x01\x02\x03\x04\x05\x06", form) == Audio(data=b"\x01\x02\x03\x04", format=form)
    assert read_sound(Audio(data=b"\x01\x02\x03")).data == b"\x01\x02"


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_loudness_is_seen_at_every_width(width: int) -> None:
    form = AudioFormat(width=width)
    assert peak_level(tone(440, 0.1, form=form)) == pytest.approx(0.5, abs=0.02)
    check_audible(tone(440, 0.1, form=form, loud=0.05))
    with pytest.raises(NotUnderstood, match="is silent"):
        check_audible(Audio(data=bytes(form.width * 100), format=form))


def test_a_constant_part_is_no_sound() -> None:
    with pytest.raises(NotUnderstood):
        check_audible(Audio(data=array("h", [9000] * 1000).tobytes()))


@pytest.mark.parametrize("rate", [8_000, 22_050, 44_100, 48_000])
def test_a_tone_is_the_same_tone_at_another_rate(rate: int) -> None:
    samples = resample(tone(1_000, form=AudioFormat(rate=rate, channels=2)), 16_000)
    assert len(samples) == pytest.approx(16_000, abs=1)
    spectrum = np.abs(np.fft.rfft(samples[:16_000]))
    assert int(spectrum.argmax()) == pytest.approx(1_000, abs=2)
    assert float(np.abs(samples[1_000:-1_000]).max()) == pytest.approx(0.5, abs=0.02)


def test_what_is_too_high_for_the_new_rate_does_not_come_back_low() -> None:
    samples = resample(tone(11_000, form=AudioFormat(rate=48_000)), 16_000)
    assert float(np.abs(samples[200:-200]).max()) < 0.005


@pytest.mark.parametrize(
    "fields", [{"rate": 0}, {"rate": 16_000.0}, {"width": 5}, {"channels": 0}, {"width": True}]
)
def test_what_is_no_format_is_refused(fields: dict[str, int]) -> None:
    with pytest.raises(InvalidAudio, match=next(iter(fields))):
        AudioFormat(**fields)


def test_a_format_says_how_long_samples_last() -> None:
    assert Audio(data=bytes(64_000), media_type=PCM, format=AudioFormat(channels=2)).seconds == 1.0
