"""Who understands what is said by voice, by the settings. Below: the transcribers. Above: surfaces."""

from recollect.arguments import validated
from recollect.contracts import Transcriber
from recollect.errors import InvalidSetting
from recollect.settings import VoiceConfig
from recollect.voice.embedded import EmbeddedTranscriber
from recollect.voice.openai import OPENAI, OpenAITranscriber
from recollect.voice.wyoming import WyomingTranscriber


@validated
def transcriber_for(config: VoiceConfig) -> Transcriber | None:
    """The transcriber that the settings name; None where it is off. One serves all owners."""
    match config.transcriber:
        case "embedded":
            return EmbeddedTranscriber()
        case "wyoming" if not config.transcriber_url:
            raise InvalidSetting(
                "the transcriber wyoming needs an address: set RECOLLECT_TRANSCRIBER_URL",
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
