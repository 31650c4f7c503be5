"""Nova Sonic against a local fake of its bidirectional stream, which checks events as the service does."""

import asyncio
import base64
import json
from typing import Any

import pytest

from aforesaid.agents import AgenticLoop, Specialist, SupervisorAgent
from aforesaid.contracts import Audio, AudioFormat
from aforesaid.errors import InvalidAudio, MissingExtra, TranscriberError, TranscriberUnavailable
from aforesaid.memory.manager import ConversationManager
from aforesaid.settings import VoiceConfig
from aforesaid.voice import NovaSonicTranscriber, VoiceAssistant, transcriber_for
from aforesaid.voice.sound import pack_wav
from tests.doubles import Scripted

SAMPLES = b"\x00\x10\x00\xf0" * 8000
SAID = "What's the status of the Johnson house project?"


class NovaSonic:
    """A stream of the service: it answers when the user's audio ends."""

    def __init__(self, *answers: Any) -> None:
        self.answers = answers or tuple(spoken(SAID))
        self.order: list[str] = []
        self.heard = b""
        self.closed = 0
        self._events: asyncio.Queue[Any] = asyncio.Queue()
        self._contents: dict[str, str] = {}
        self._prompt = ""

    async def connect(self, model: str) -> "NovaSonic":
        assert model == "amazon.nova-sonic-v1:0"
        return self

    async def send(self, event: dict[str, Any]) -> None:
        ((kind, fields),) = json.loads(json.dumps(event))["event"].items()
        self.order.append(kind)
        if kind == "promptStart":
            self._prompt = fields["promptName"]
        if kind not in ("sessionStart", "sessionEnd"):
            assert fields["promptName"] == self._prompt
        if kind == "contentStart":
            self._contents[fields["contentName"]] = fields["type"]
        if kind == "audioInput":
            assert self._contents[fields["contentName"]] == "AUDIO"
            self.heard += base64.b64decode(fields["content"])
        if kind == "contentEnd" and self._contents.pop(fields["contentName"]) == "AUDIO":
            for answer in self.answers:
                self._events.put_nowait(answer)

    async def receive(self) -> Any:
        answer = await self._events.get()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def close(self) -> None:
        self.closed += 1


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"event": {kind: fields}}


def content(text: str, role: str, stage: str) -> list[dict[str, Any]]:
    fields = json.dumps({"generationStage": stage})
    return [
        event("contentStart", type="TEXT", role=role, additionalModelFields=fields),
        event("textOutput", content=text, role=role),
        event("contentEnd", type="TEXT", stopReason="PARTIAL_TURN"),
    ]


def spoken(*texts: str) -> list[Any]:
    """The events of a transcript, and of the answer that the model begins."""
    return [
        event("completionStart"),
        *(one for text in texts for one in content(text, "USER", "FINAL")),
        *content("In progress.", "ASSISTANT", "SPECULATIVE"),
        event("completionEnd", stopReason="END_TURN"),
    ]


@pytest.mark.requirement("004-077", "004-112")
async def test_the_users_words_are_the_transcript() -> None:
    service = NovaSonic()
    transcriber = NovaSonicTranscriber(connect=service.connect)
    transcript = await transcriber.transcribe(Audio(data=SAMPLES))
    assert (transcript.text, transcriber.name) == (SAID, "amazon.nova-sonic-v1:0")
    assert service.heard == SAMPLES
    assert service.order[:6] == [
        *("sessionStart", "promptStart", "contentStart", "textInput", "contentEnd", "contentStart")
    ]
    assert service.closed == 1
    await transcriber.close()


async def test_only_final_words_of_the_user_count() -> None:
    answers = [
        *content("What's the", "USER", "SPECULATIVE"),
        *spoken("What's the status", " of the project? "),
        *content("ignored", "USER", "FINAL"),
    ]
    transcript = await NovaSonicTranscriber(connect=NovaSonic(*answers).connect).transcribe(
        Audio(data=SAMPLES)
    )
    assert transcript.text == "What's the status of the project?"


@pytest.mark.parametrize("answers", [[None], [event("completionEnd")]])
async def test_silence_is_an_empty_transcript(answers: list[Any]) -> None:
    transcriber = NovaSonicTranscriber(connect=NovaSonic(*answers).connect)
    assert (await transcriber.transcribe(Audio(data=SAMPLES))).text == ""


@pytest.mark.requirement("004-112")
async def test_a_spoken_question_is_answered_and_stored() -> None:
    manager = ConversationManager()
    supervisor = SupervisorAgent(manager, [Specialist(loop=AgenticLoop(Scripted("In progress.")))])
    transcriber = NovaSonicTranscriber(connect=NovaSonic().connect)
    await VoiceAssistant(supervisor, transcriber).handle_voice_input(pack_wav(Audio(data=SAMPLES)), "s")
    record = await manager.session("s")
    assert record is not None
    assert [(one.content, one.content_type) for one in await manager.messages(record.id)] == [
        (SAID, "audio"),
        ("In progress.", "text"),
    ]


async def test_failures_are_errors_of_ours_without_secrets() -> None:
    service = NovaSonic(RuntimeError("secret"))
    with pytest.raises(TranscriberUnavailable, match="RuntimeError") as failed:
        await NovaSonicTranscriber(connect=service.connect).transcribe(Audio(data=SAMPLES))
    assert "secret" not in str(failed.value)
    assert service.closed == 1
    with pytest.raises(TranscriberError, match="cannot be read"):
        await NovaSonicTranscriber(connect=NovaSonic({"what": 1}).connect).transcribe(Audio(data=SAMPLES))
    with pytest.raises(InvalidAudio, match="16 bits"):
        await NovaSonicTranscriber(connect=NovaSonic().connect).transcribe(
            Audio(data=SAMPLES, format=AudioFormat(rate=44_100))
        )
    with pytest.raises(InvalidAudio, match="WAV file or samples"):
        await NovaSonicTranscriber(connect=NovaSonic().connect).transcribe(
            Audio(data=b"ID3", media_type="audio/mpeg")
        )


async def test_a_stream_that_takes_no_more_audio_is_unavailable_at_once() -> None:
    class Broken(NovaSonic):
        async def send(self, event: dict[str, Any]) -> None:
            if "audioInput" in event["event"]:
                raise ConnectionResetError("secret")
            await super().send(event)

    service = Broken()
    with pytest.raises(TranscriberUnavailable, match="ConnectionResetError") as failed:
        await NovaSonicTranscriber(connect=service.connect).transcribe(Audio(data=SAMPLES))
    assert "secret" not in str(failed.value)
    assert service.closed == 1


async def test_a_service_that_is_silent_is_unavailable() -> None:
    class Silent(NovaSonic):
        async def receive(self) -> Any:
            await asyncio.Event().wait()

    with pytest.raises(TranscriberUnavailable, match="in time"):
        await NovaSonicTranscriber(connect=Silent().connect, timeout=0.01).transcribe(Audio(data=SAMPLES))


async def test_without_the_package_of_amazon_the_error_names_it() -> None:
    with pytest.raises(MissingExtra, match="Nova Sonic"):
        await NovaSonicTranscriber().transcribe(Audio(data=SAMPLES))


def test_the_settings_choose_it() -> None:
    config = VoiceConfig(transcriber="nova", transcriber_model="amazon.nova-2-sonic-v1:0")
    transcriber = transcriber_for(config)
    assert isinstance(transcriber, NovaSonicTranscriber)
    assert transcriber.name == "amazon.nova-2-sonic-v1:0"
