"""Voice: from sound to words, to an answer, to what is spoken of it. Below: agents, sessions, contracts.

    VoiceAssistant        `handle_voice_input(audio, session_id)`: understood, stored, answered
    WyomingTranscriber    a speech service of Home Assistant's, over TCP
    OpenAITranscriber     OpenAI's `/audio/transcriptions`, or a server with the same interface
    EmbeddedTranscriber   English, on board, without network (`aforesaid[speech]`)

A transcriber of your own is any class with the methods of `aforesaid.contracts.Transcriber`.
"""

from aforesaid.voice.assistant import VoiceAssistant, VoiceReply
from aforesaid.voice.configured import transcriber_for
from aforesaid.voice.embedded import EmbeddedTranscriber
from aforesaid.voice.openai import OpenAITranscriber
from aforesaid.voice.sound import SoundLimits
from aforesaid.voice.wyoming import WyomingTranscriber

__all__ = [
    "EmbeddedTranscriber",
    "OpenAITranscriber",
    "SoundLimits",
    "VoiceAssistant",
    "VoiceReply",
    "WyomingTranscriber",
    "transcriber_for",
]
