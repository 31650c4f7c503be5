"""Speak one text with espeak-ng's library: `speaking.py TEXT VOICE SPEED` writes the rate, then the samples.

The breath of a voice is random, and depends on all that the process has said before. A process that says one
text always gives it the same sound.
"""

import ctypes
import sys
from typing import Any

import espeakng_loader

_SYNCHRONOUS = 2
_RATE_PARAMETER = 1
_UTF8 = 1
_Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)


def main(text: bytes, voice: bytes, speed: int) -> None:
    espeak: Any = ctypes.CDLL(espeakng_loader.get_library_path())
    said = bytearray()

    def take(samples: Any, count: int, events: object) -> int:
        if samples and count > 0:
            said.extend(ctypes.string_at(samples, count * 2))
        return 0

    callback = _Callback(take)
    rate = espeak.espeak_Initialize(_SYNCHRONOUS, 0, espeakng_loader.get_data_path().encode(), 0)
    assert rate > 0, "espeak-ng has no data"
    espeak.espeak_SetSynthCallback(callback)
    assert espeak.espeak_SetVoiceByName(voice) == 0, voice
    espeak.espeak_SetParameter(_RATE_PARAMETER, speed, 0)
    ctypes.CDLL(None).srand(1)
    espeak.espeak_Synth(text, len(text) + 1, 0, 0, 0, _UTF8, None, None)
    espeak.espeak_Synchronize()
    sys.stdout.buffer.write(b"%d\n" % rate + said)


if __name__ == "__main__":
    main(sys.argv[1].encode(), sys.argv[2].encode(), int(sys.argv[3]))
