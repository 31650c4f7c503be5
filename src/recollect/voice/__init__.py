"""Voice: from sound to words, to an answer, to what is spoken of it. Below: agents, sessions, contracts.

    VoiceAssistant        `handle_voice_input(audio, session_id)`: understood, stored, answered
    WyomingTranscriber    a speech service of Home Assistant's, over TCP
    OpenAITranscriber     OpenAI's `/audio/transcriptions`, or a server with the same interface
    EmbeddedTranscriber   English, on board, without network (`recollect[speech]`)

A transcriber of your own is any class with the methods of `recollect.contracts.Transcriber`.
"""

from recollect.voice.assistant import VoiceAssistant, VoiceReply
from recollect.voice.choosing import transcriber_for
from recollect.voice.embedded import EmbeddedTranscriber
from recollect.voice.openai import OpenAITranscriber
from recollect.voice.sound import SoundLimits
from recollect.voice.wyoming import WyomingTranscriber

__all__ = [
    "EmbeddedTranscriber",
    "OpenAITranscriber",
    "SoundLimits",
    "VoiceAssistant",
    "VoiceReply",
    "WyomingTranscriber",
    "transcriber_for",
]
