"""Voice: transcribe speech, answer it, and prepare the answer for speaking.

    VoiceAssistant        `handle_voice_input(audio_data, session_id)`: transcribe, answer, store
    WyomingTranscriber    a Wyoming speech service, as Home Assistant uses, over TCP
    OpenAITranscriber     OpenAI's `/audio/transcriptions` or a compatible server
    NovaSonicTranscriber  Amazon Nova Sonic on Bedrock, over its bidirectional stream (`aforesaid[nova]`)
    EmbeddedTranscriber   English, local, without network (`aforesaid[speech]`)

To write a transcriber, implement the methods of `aforesaid.contracts.Transcriber`.
"""

from aforesaid.voice.assistant import VoiceAssistant, VoiceReply, transcriber_for
from aforesaid.voice.embedded import EmbeddedTranscriber
from aforesaid.voice.nova_sonic import NovaSonicTranscriber
from aforesaid.voice.openai import OpenAITranscriber
from aforesaid.voice.sound import SoundLimits
from aforesaid.voice.wyoming import WyomingTranscriber

__all__ = [
    "EmbeddedTranscriber",
    "NovaSonicTranscriber",
    "OpenAITranscriber",
    "SoundLimits",
    "VoiceAssistant",
    "VoiceReply",
    "WyomingTranscriber",
    "transcriber_for",
]
