"""How well the embedded transcriber understands speech that espeak-ng says: wrong words, and time.

python -m benchmarks.speech
"""

import asyncio
import time

from tests.synthesis import say, word_errors

from aforesaid.contracts import Transcriber
from aforesaid.voice import EmbeddedTranscriber

SENTENCES = (
    "what is the status of the johnson house project",
    "turn on the kitchen lights",
    "when will it be completed",
    "good morning how are you today",
    "play some music in the living room",
    "i would like to go to the store tomorrow",
    "open the door please",
    "the weather is nice today",
    "set an alarm for seven in the morning",
    "remind me to call my mother tonight",
    "how long does it take to drive to the airport",
    "the bedroom lights should be dim at nine",
)
VOICES = ("en-us+klatt3", "en-us", "en-us+f2", "en-gb-x-rp")


async def measure(transcriber: Transcriber, voice: str, label: str) -> None:
    wrong = said = whole = 0
    seconds = spent = 0.0
    for sentence in SENTENCES:
        audio = say(sentence, voice=voice)
        began = time.perf_counter()
        heard = await transcriber.transcribe(audio)
        spent += time.perf_counter() - began
        errors, words = word_errors(sentence, heard.text)
        wrong, said, whole = wrong + errors, said + words, whole + (errors == 0)
        seconds += audio.seconds or 0.0
    print(
        f"| {voice} | {label} | {100 * wrong / said:.0f} % | {whole} of {len(SENTENCES)} "
        f"| {spent / seconds:.2f} |"
    )


async def main() -> None:
    free, with_phrases = EmbeddedTranscriber(), EmbeddedTranscriber(phrases=SENTENCES)
    for transcriber in (free, with_phrases):
        await transcriber.transcribe(say("hello"))  # loads the models
    print("| voice of espeak-ng | | words wrong | sentences right | seconds for a second of sound |")
    print("| --- | --- | --- | --- | --- |")
    for voice in VOICES:
        await measure(free, voice, "freely")
    await measure(with_phrases, VOICES[0], "with these phrases")
    await measure(with_phrases, VOICES[1], "with these phrases")


if __name__ == "__main__":
    asyncio.run(main())
