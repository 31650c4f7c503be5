"""Who understands, by the settings."""

import pytest

from aforesaid.errors import InvalidSetting
from aforesaid.settings import SECRETS, Settings, VoiceConfig
from aforesaid.voice import EmbeddedTranscriber, OpenAITranscriber, WyomingTranscriber, transcriber_for


def test_without_a_transcriber_no_speech_is_understood() -> None:
    assert transcriber_for(Settings.load(environ={"AFORESAID_TRANSCRIBER": "off"}).voice) is None


@pytest.mark.parametrize(
    ("environ", "kind", "name"),
    [
        ({}, EmbeddedTranscriber, "pocketsphinx"),
        (
            {"AFORESAID_TRANSCRIBER": "wyoming", "AFORESAID_TRANSCRIBER_URL": "tcp://127.0.0.1:10300"},
            WyomingTranscriber,
            "wyoming 127.0.0.1:10300",
        ),
        (
            {"AFORESAID_TRANSCRIBER": "openai", "AFORESAID_TRANSCRIBER_MODEL": "large-v3"},
            OpenAITranscriber,
            "large-v3",
        ),
    ],
)
def test_the_settings_name_who_understands(environ: dict[str, str], kind: type, name: str) -> None:
    transcriber = transcriber_for(Settings.load(environ=environ).voice)
    assert transcriber is not None
    assert (type(transcriber), transcriber.name) == (kind, name)


def test_an_address_that_is_missing_or_none_is_said() -> None:
    with pytest.raises(InvalidSetting, match="AFORESAID_TRANSCRIBER_URL"):
        transcriber_for(VoiceConfig(transcriber="wyoming"))
    with pytest.raises(InvalidSetting, match="base_url"):
        transcriber_for(VoiceConfig(transcriber="openai", transcriber_url="somewhere"))
    with pytest.raises(InvalidSetting, match="AFORESAID_TRANSCRIBER"):
        Settings.load(environ={"AFORESAID_TRANSCRIBER": "telepathy"})


def test_the_key_is_not_shown() -> None:
    voice = Settings.load(environ={"AFORESAID_TRANSCRIBER_KEY": "sk-secret"}).voice
    assert voice.transcriber_key == "sk-secret"
    assert "transcriber_key" in SECRETS
