"""What is said by voice is understood, stored and answered; what is not understood leaves nothing."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from aforesaid.agents import AgenticLoop, Specialist, SupervisorAgent
from aforesaid.contracts import PCM, Ask, Audio, AudioFormat, OnText, Reply, Transcript
from aforesaid.dialects.edits import interruption_mark
from aforesaid.errors import (
    AgentUnavailable,
    InvalidAudio,
    InvalidInput,
    InvalidSetting,
    NotUnderstood,
    TranscriberUnavailable,
)
from aforesaid.memory.manager import ConversationManager
from aforesaid.memory.sessions import SessionManager
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message, Speech
from aforesaid.voice import SoundLimits, VoiceAssistant, WyomingTranscriber
from aforesaid.voice.sound import pack_wav
from tests.builders import FEATURE_TARGETS, empty_url
from tests.doubles import Scripted, Silent, calling
from tests.servers.remote import open_at
from tests.servers.wyoming import WyomingService
from tests.unit.agents.tools import registry

SAID = "What's the status of the Johnson house project?"
SOUND = pack_wav(Audio(data=b"\x00\x10\x00\xf0" * 8000))
"""Half a second of a tone: what it says is up to the service."""
LONG = "This sentence is **spoken** in full. " * 40


class Sure:
    """A service that also says how sure it is, as some do."""

    def __init__(self, text: str, confidence: float | None) -> None:
        self.name = "sure"
        self._transcript = Transcript(text=text, confidence=confidence, language="en")
        self.heard: list[Audio] = []

    async def transcribe(self, audio: Audio, *, language: str | None = None) -> Transcript:
        self.heard.append(audio)
        return self._transcript

    async def close(self) -> None:
        self.heard.clear()


@pytest.fixture(params=FEATURE_TARGETS)
async def erin(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ConversationManager]:
    url = empty_url(request.param, tmp_path, request)
    async with open_at(url, sweep_every=None, embedder=None) as memory:
        manager = memory.of(f"erin-{new_id()}")
        yield manager
        await manager.store.clear()


@pytest.fixture
async def service() -> AsyncIterator[WyomingService]:
    async with WyomingService(lambda samples: SAID).running() as service:
        yield service


def answering(manager: ConversationManager, *lines: Any, name: str = "supervisor_agent") -> SupervisorAgent:
    specialist = Specialist(loop=AgenticLoop(Scripted(*lines, name=name)), tools=registry())
    return SupervisorAgent(manager, [specialist])


async def test_voice_is_stored_marked_audio_and_answered(
    erin: ConversationManager, service: WyomingService
) -> None:
    assistant = VoiceAssistant(answering(erin, "In progress."), WyomingTranscriber(service.url))
    reply = await assistant.handle_voice_input(SOUND, "s1")
    assert (reply.text, reply.spoken, str(reply), reply.failed) == (*["In progress."] * 3, False)
    assert reply.transcript.text == SAID
    asked, answered = await erin.messages(reply.conversation_id)
    assert (asked.content, asked.content_type, asked.speech) == (SAID, "audio", Speech(language="en"))
    assert (answered.content, answered.agent_name) == ("In progress.", "supervisor_agent")
    assert await assistant.sessions.get_conversation_id("s1") == reply.conversation_id
    await assistant.close()


async def test_the_confidence_comes_back_from_the_store(erin: ConversationManager) -> None:
    assistant = VoiceAssistant(answering(erin, "Yes."), Sure("turn it on", 0.875))
    reply = await assistant.handle_voice_input(SOUND, "s1")
    (asked, _) = await erin.messages(reply.conversation_id)
    assert asked.speech == Speech(confidence=0.875, language="en")
    assert asked.to_dict()["speech"] == {"confidence": 0.875, "language": "en"}


async def test_the_whole_answer_is_stored_and_some_of_it_spoken(erin: ConversationManager) -> None:
    assistant = VoiceAssistant(answering(erin, LONG), Sure("tell me all", None))
    reply = await assistant.handle_voice_input(SOUND, "s1")
    assert (await erin.messages(reply.conversation_id))[-1].content == LONG
    assert reply.text == LONG
    assert reply.spoken == ("This sentence is spoken in full. " * 24).strip()
    assert len(reply.spoken) <= 800


async def test_an_interrupted_reply_is_seen_as_it_was_heard(erin: ConversationManager) -> None:
    agent = Scripted(LONG, "As I said.")
    supervisor = SupervisorAgent(erin, [Specialist(loop=AgenticLoop(agent))])
    assistant = VoiceAssistant(supervisor, Sure("tell me all", None))
    reply = await assistant.handle_voice_input(SOUND, "s1")
    (noted,) = await assistant.interrupted(reply, heard=32)
    assert noted.speech == Speech(spoken=reply.spoken, heard=32)
    assert noted.content == LONG
    await assistant.handle_voice_input(SOUND, "s1")
    seen = [message.content for message in agent.asked[-1].messages]
    cut = f"This sentence is spoken in full. {interruption_mark(reply.spoken[32:])}"
    assert seen == ["tell me all", cut, "tell me all"]


async def test_an_answer_in_two_messages_is_cut_in_the_right_one() -> None:
    erin = ConversationManager()
    first = Reply(messages=(Message(role="assistant", content="One two."),), stop="pause")
    lines = (calling(("c1", "lookup", {}), text="Let me see."), first, "Three four. Five six.")
    assistant = VoiceAssistant(answering(erin, *lines), Sure("count", None))
    reply = await assistant.handle_voice_input(SOUND, "s1")
    assert reply.spoken == "One two.\nThree four. Five six."
    noted = await assistant.interrupted(reply, heard="One two. Three")
    assert [message.speech and message.speech.words_heard for message in noted] == ["One two.", "Three"]
    context = await erin.load_context(reply.conversation_id)
    assert [message["content"] for message in context][-2:] == [
        "One two.",
        'Three [interrupted; the user did not hear: "four. Five six."]',
    ]


async def test_bare_samples_are_sent_on_as_they_arrive(
    erin: ConversationManager, service: WyomingService
) -> None:
    async def speaking() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"\x00\x20" * 1000
        assert [header["type"] for header, _ in service.events][:2] == ["transcribe", "audio-start"]

    assistant = VoiceAssistant(answering(erin, "Yes."), WyomingTranscriber(service.url))
    form = AudioFormat(rate=8000)
    await assistant.handle_voice_input(speaking(), "s1", audio_format=form, language="en")
    kinds = [header["type"] for header, _ in service.events]
    assert kinds == ["transcribe", "audio-start", *["audio-chunk"] * 3, "audio-stop"]
    assert service.events[0][0]["language"] == "en"
    assert service.events[1][0]["rate"] == 8000
    assert b"".join(payload for _, payload in service.events) == b"\x00\x20" * 3000


async def test_a_file_that_arrives_in_pieces_is_put_together() -> None:
    async def arriving() -> AsyncIterator[bytes]:
        for at in range(0, len(SOUND), 1000):
            yield SOUND[at : at + 1000]

    transcriber = Sure("hello", None)
    assistant = VoiceAssistant(answering(ConversationManager(), "Yes."), transcriber)
    await assistant.handle_voice_input(arriving(), "s1")
    assert (transcriber.heard[0].media_type, transcriber.heard[0].seconds) == (PCM, 1.0)


async def endless() -> AsyncIterator[bytes]:
    while True:
        yield b"\x00\x20" * 16_000


UNUSABLE: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
    (b"", {}, InvalidAudio, "empty"),
    (b"this is no sound at all", {}, InvalidAudio, "unknown format"),
    ("text", {}, InvalidAudio, "bytes"),
    (pack_wav(Audio(data=b"")), {}, InvalidAudio, "empty"),
    (b"RIFF\x00\x00\x00\x00WAVE", {}, InvalidAudio, "without"),
    (pack_wav(Audio(data=bytes(32_000))), {}, NotUnderstood, "is silent"),
    (b"\x00\x20" * 1_000_000, {"audio_format": AudioFormat()}, InvalidAudio, "at most 60 s"),
    (endless(), {"audio_format": AudioFormat()}, InvalidAudio, "more than 60 s"),
    (endless(), {}, InvalidAudio, "more than 25,000,000 bytes"),
    (b"\x00", {"audio_format": AudioFormat()}, InvalidAudio, "empty"),
]


@pytest.mark.parametrize("case", range(len(UNUSABLE)))
async def test_what_cannot_be_used_is_refused_and_nothing_is_stored(case: int) -> None:
    audio, more, kind, words = UNUSABLE[case]
    erin = ConversationManager()
    agent = Scripted("never said")
    supervisor = SupervisorAgent(erin, [Specialist(loop=AgenticLoop(agent))])
    with pytest.raises(kind, match=words):
        await VoiceAssistant(supervisor, Sure("hello", None)).handle_voice_input(audio, "s1", **more)
    assert (await erin.list()).conversations == ()
    assert agent.asked == []


@pytest.mark.parametrize(("text", "confidence"), [("", None), ("  ", 0.9)])
async def test_what_is_not_understood_leaves_nothing(
    erin: ConversationManager, text: str, confidence: float | None
) -> None:
    assistant = VoiceAssistant(answering(erin, "never said"), Sure(text, confidence))
    with pytest.raises(NotUnderstood) as caught:
        await assistant.handle_voice_input(SOUND, "s1")
    assert caught.value.confidence == confidence
    assert caught.value.words == text.strip()
    assert (await erin.list()).conversations == ()


async def test_below_the_confidence_floor_the_assistant_asks_back(erin: ConversationManager) -> None:
    agent = Scripted("Calling Sanders.")
    supervisor = SupervisorAgent(erin, [Specialist(loop=AgenticLoop(agent))])
    unsure = VoiceAssistant(supervisor, Sure("call Sanders?", 0.39))
    reply = await unsure.handle_voice_input(SOUND, "s1")
    assert reply.asks_back
    assert reply.stored
    assert reply.spoken == "I'm not sure that I understood. Did you say: call Sanders?"
    assert agent.asked == []
    with pytest.raises(NotUnderstood):
        await unsure.understand(SOUND)
    sure = VoiceAssistant(supervisor, Sure("yes", 0.9))
    assert (await sure.handle_voice_input(SOUND, "s1")).text == "Calling Sanders."
    seen = [message.content for message in agent.asked[0].messages]
    assert seen == ["call Sanders?", reply.spoken, "yes"]


class Speaking(Scripted):
    """Says some words and then hangs."""

    def __init__(self) -> None:
        super().__init__()
        self.spoke = asyncio.Event()

    async def reply(self, ask: Ask, *, on_text: OnText | None = None) -> Reply:
        self.asked.append(ask)
        assert on_text is not None
        on_text("The painters come ")
        on_text("on Monday, and the roof is next")
        self.spoke.set()
        await asyncio.Event().wait()
        raise AssertionError("never reached")


@pytest.mark.parametrize(
    ("heard", "words"), [("The painters come", "The painters come"), (None, None), (0, "")]
)
async def test_an_interruption_while_the_answer_is_made_keeps_question_and_answer(
    erin: ConversationManager, heard: int | str | None, words: str | None
) -> None:
    agent = Speaking()
    supervisor = SupervisorAgent(erin, [Specialist(loop=AgenticLoop(agent))])
    assistant = VoiceAssistant(supervisor, Sure("how is it?", None))
    said: list[str] = []
    asking = asyncio.ensure_future(assistant.handle_voice_input(SOUND, "s1", on_text=said.append))
    await agent.spoke.wait()
    assert await assistant.interrupt("s1", heard=heard)
    reply = await asking
    assert (reply.interrupted, reply.stored, reply.text) == (True, True, "".join(said))
    question, answer = await erin.messages(reply.conversation_id)
    assert question.content == "how is it?"
    assert answer.content == "".join(said)
    assert answer.speech is not None
    assert answer.speech.words_heard == (answer.content if words is None else words)
    shown = str((await erin.load_context(reply.conversation_id))[-1]["content"])
    assert ("did not hear" in shown) == (words is not None)
    assert await erin.unanswered(reply.conversation_id) == []
    assert not await assistant.interrupt("s1"), "nothing is being answered now"


async def test_a_hanging_agent_is_filled_and_given_up(erin: ConversationManager) -> None:
    supervisor = SupervisorAgent(erin, [Specialist(loop=AgenticLoop(Silent()))])
    assistant = VoiceAssistant(supervisor, Sure("hello", None), deadline=0.2, filler_after=0.01)
    fillers: list[str] = []
    reply = await assistant.handle_voice_input(SOUND, "s1", on_filler=fillers.append)
    assert fillers == ["One moment."]
    assert reply.failed
    assert "took too long" in reply.spoken
    quick = VoiceAssistant(answering(erin, "Hello."), Sure("hello", None))
    await quick.handle_voice_input(SOUND, "s1", on_filler=fillers.append)
    assert len(fillers) == 1


async def test_the_transcriber_gets_the_names_of_contacts(erin: ConversationManager) -> None:
    class Biased(Sure):
        names: Sequence[str] = ()

        async def transcribe_with_names(
            self, audio: Audio, names: Sequence[str], *, language: str | None = None
        ) -> Transcript:
            self.names = names
            return await self.transcribe(audio, language=language)

    await erin.clients.add("Harold Finch")
    await erin.clients.add("Ana Zaragoza")
    transcriber = Biased("call Harold Finch", None)
    assistant = VoiceAssistant(answering(erin, "Yes."), transcriber)
    await assistant.handle_voice_input(SOUND, "s1")
    assert sorted(transcriber.names) == ["Ana Zaragoza", "Harold Finch"]
    given = VoiceAssistant(answering(erin, "Yes."), transcriber, names=["Rex"])
    await given.handle_voice_input(SOUND, "s1")
    assert transcriber.names == ["Rex"]


async def test_a_service_that_is_away_leaves_nothing(erin: ConversationManager) -> None:
    assistant = VoiceAssistant(answering(erin, "never said"), WyomingTranscriber("tcp://127.0.0.1:9"))
    with pytest.raises(TranscriberUnavailable):
        await assistant.handle_voice_input(SOUND, "s1")
    assert (await erin.list()).conversations == ()


@pytest.mark.parametrize("error", [AgentUnavailable("away"), ZeroDivisionError("a bug of somebody's")])
async def test_a_turn_that_fails_is_an_apology_and_leaves_an_open_turn(
    erin: ConversationManager, error: Exception
) -> None:
    assistant = VoiceAssistant(answering(erin, error, "Now."), Sure("hello", 0.9))
    reply = await assistant.handle_voice_input(SOUND, "s1")
    assert reply.failed
    assert reply.spoken
    assert reply.parts == ()
    assert await assistant.interrupted(reply, heard=3) == ()
    await _check_open_turn(erin, "hello")
    again = await assistant.handle_voice_input(SOUND, "s1")
    assert (again.text, again.failed) == ("Now.", False)


@pytest.mark.parametrize("confidence", [1.5, float("nan")])
async def test_a_transcript_that_cannot_be_stored_begins_no_session(confidence: float) -> None:
    erin = ConversationManager()
    assistant = VoiceAssistant(answering(erin, "never said"), Sure("hello", confidence))
    with pytest.raises(InvalidInput, match="confidence"):
        await assistant.handle_voice_input(SOUND, "s1")
    assert await assistant.sessions.get_conversation_id("s1") is None


async def test_a_voice_turn_that_is_cancelled_leaves_an_open_turn(erin: ConversationManager) -> None:
    silent = Silent()
    supervisor = SupervisorAgent(erin, [Specialist(loop=AgenticLoop(silent))])
    assistant = VoiceAssistant(supervisor, Sure("hello", 0.9))
    turn = asyncio.ensure_future(assistant.handle_voice_input(SOUND, "s1"))
    await silent.is_asked.wait()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    await _check_open_turn(erin, "hello")


async def _check_open_turn(manager: ConversationManager, words: str) -> None:
    """The words are stored, and the log and later windows do not have them."""
    [record] = (await manager.list()).conversations
    assert record.message_count == 0
    [turn] = await manager.unanswered(record.id)
    assert [message.content for message in turn.messages] == [words]


async def test_voice_goes_on_where_text_was(erin: ConversationManager) -> None:
    sessions = SessionManager(erin)
    typed = await sessions.create_session("keyboard", channel="text", device="phone")
    await erin.add_message(typed.conversation_id, "user", "by text")
    assistant = VoiceAssistant(answering(erin, "Yes."), Sure("by voice", 0.9), sessions=sessions)
    reply = await assistant.handle_voice_input(SOUND, "microphone", device="phone")
    assert reply.conversation_id == typed.conversation_id
    kinds = [(m.content, m.content_type) for m in await erin.messages(reply.conversation_id)]
    assert kinds == [("by text", "text"), ("by voice", "audio"), ("Yes.", "text")]


async def test_bad_settings_are_refused_and_named() -> None:
    supervisor = answering(ConversationManager())
    for bad in ({"least_confidence": 2}, {"least_confidence": "high"}, {"spoken_limit": 0}):
        with pytest.raises(InvalidSetting, match=next(iter(bad))):
            VoiceAssistant(supervisor, Sure("", None), **bad)
    limits = SoundLimits(longest=0.5)
    with pytest.raises(InvalidAudio, match=r"at most 0.5 s; this lasts 1\.0 s"):
        await VoiceAssistant(supervisor, Sure("", None), limits=limits).understand(SOUND)
