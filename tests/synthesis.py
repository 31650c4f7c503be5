"""Speech, synthesised on this machine by espeak-ng: by the library in a wheel, or by the program on the PATH.

A text from the library always sounds the same. The program breathes at random.
"""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from aforesaid.contracts import Audio, AudioFormat
from aforesaid.voice.sound import unpack_wav

VOICE = "en-us+klatt3"
"""The voice that the embedded model understands best of those that come with espeak-ng."""
SPEED = 140
"""Words a minute, as people speak to a machine."""
SPEAKING = Path(__file__).parent / "processes" / "speaking.py"


def say(text: str, *, voice: str = VOICE, speed: int = SPEED) -> Audio:
    """The text, spoken."""
    if find_spec("espeakng_loader") is None:
        return unpack_wav(_output("espeak-ng", "-v", voice, "-s", str(speed), "--stdout", text))
    rate, _, samples = _output(sys.executable, str(SPEAKING), text, voice, str(speed)).partition(b"\n")
    return Audio(data=samples, format=AudioFormat(rate=int(rate)))


def _output(*command: str) -> bytes:
    return subprocess.run(command, capture_output=True, check=True, timeout=240).stdout


def word_errors(said: str, understood: str) -> tuple[int, int]:
    """How many words must be changed, and how many were said."""
    wanted, got = said.split(), understood.split()
    row = list(range(len(got) + 1))
    for number, word in enumerate(wanted, start=1):
        before, row = row, [number]
        for at, other in enumerate(got, start=1):
            row.append(min(before[at] + 1, row[-1] + 1, before[at - 1] + (word != other)))
    return row[-1], len(wanted)
