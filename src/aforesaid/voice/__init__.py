"""Voice: transcribe speech, answer it, and prepare the answer for speaking.

    VoiceAssistant        `handle_voice_input(audio, session_id)`: transcribe, answer, store
    WyomingTranscriber    a Wyoming speech service, as Home Assistant uses, over TCP
    OpenAITranscriber     OpenAI's `/audio/transcriptions` or a compatible server
    EmbeddedTranscriber   English, local, without network (`aforesaid[speech]`)

To write a transcriber, implement the methods of `aforesaid.contracts.Transcriber`.
"""

from aforesaid.voice.assistant import VoiceAssistant, VoiceReply, transcriber_for
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
