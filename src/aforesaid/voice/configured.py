"""Create the transcriber from the settings."""

from aforesaid._internal.arguments import validated
from aforesaid.contracts import Transcriber
from aforesaid.errors import InvalidSetting
from aforesaid.settings import VoiceConfig
from aforesaid.voice.embedded import EmbeddedTranscriber
from aforesaid.voice.openai import OPENAI, OpenAITranscriber
from aforesaid.voice.wyoming import WyomingTranscriber


@validated
def transcriber_for(config: VoiceConfig) -> Transcriber | None:
    """Return the transcriber from the settings, or None if it is off. One transcriber serves all owners."""
    match config.transcriber:
        case "embedded":
            return EmbeddedTranscriber()
        case "wyoming" if not config.transcriber_url:
            raise InvalidSetting(
                "the transcriber wyoming needs an address: set AFORESAID_TRANSCRIBER_URL",
                field="transcriber_url",
                value="",
            )
        case "wyoming":
            return WyomingTranscriber(config.transcriber_url, model=config.transcriber_model or None)
        case "openai":
            return OpenAITranscriber(
                base_url=config.transcriber_url or OPENAI,
                api_key=config.transcriber_key,
                model=config.transcriber_model or "whisper-1",
            )
    return None
