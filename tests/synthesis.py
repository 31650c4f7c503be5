"""Speech, synthesised on this machine by espeak-ng: by the library in a wheel, or the program on the PATH."""

import ctypes
import shutil
import subprocess
import threading
from functools import cache
from typing import Any

from aforesaid.contracts import Audio, AudioFormat
from aforesaid.voice.sound import unpack_wav

VOICE = "en-us+klatt3"
"""The voice that the embedded model understands best of those that come with espeak-ng."""
SPEED = 140
"""Words a minute, as people speak to a machine."""

_SYNCHRONOUS = 2
_RATE_PARAMETER = 1
_UTF8 = 1
_lock = threading.Lock()


def say(text: str, *, voice: str = VOICE, speed: int = SPEED) -> Audio:
    """The text, spoken."""
    if shutil.which("espeak-ng"):
        return unpack_wav(_said_by_program(text, voice, speed))
    return _library().say(text, voice, speed)


def _said_by_program(text: str, voice: str, speed: int) -> bytes:
    command = ["espeak-ng", "-v", voice, "-s", str(speed), "--stdout", text]
    return subprocess.run(command, capture_output=True, check=True, timeout=240).stdout


class _Library:
    """espeak-ng as a shared library, driven through its C interface."""

    def __init__(self) -> None:
        import espeakng_loader

        self._espeak: Any = ctypes.CDLL(espeakng_loader.get_library_path())
        self._random = ctypes.CDLL(None)
        self._said = bytearray()
        callback = ctypes.CFUNCTYPE(
            ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p
        )
        self._callback = callback(self._take)  # kept, or the library would call into nothing
        folder = espeakng_loader.get_data_path().encode()
        self._rate = self._espeak.espeak_Initialize(_SYNCHRONOUS, 0, folder, 0)
        assert self._rate > 0, "espeak-ng has no data"
        self._espeak.espeak_SetSynthCallback(self._callback)

    def _take(self, samples: Any, count: int, events: object) -> int:
        if samples and count > 0:
            self._said += ctypes.string_at(samples, count * 2)
        return 0

    def say(self, text: str, voice: str, speed: int) -> Audio:
        with _lock:
            assert self._espeak.espeak_SetVoiceByName(voice.encode()) == 0, voice
            self._espeak.espeak_SetParameter(_RATE_PARAMETER, speed, 0)
            self._said.clear()
            # The breath of the voice is random: one text shall always sound the same.
            self._random.srand(1)
            written = text.encode()
            self._espeak.espeak_Synth(written, len(written) + 1, 0, 0, 0, _UTF8, None, None)
            self._espeak.espeak_Synchronize()
            return Audio(data=bytes(self._said), format=AudioFormat(rate=self._rate))


@cache
def _library() -> _Library:
    return _Library()


def word_errors(said: str, understood: str) -> tuple[int, int]:
    """How many words must be changed, and how many were said."""
    wanted, got = said.split(), understood.split()
    row = list(range(len(got) + 1))
    for number, word in enumerate(wanted, start=1):
        before, row = row, [number]
        for at, other in enumerate(got, start=1):
            row.append(min(before[at] + 1, row[-1] + 1, before[at - 1] + (word != other)))
    return row[-1], len(wanted)
