"""Speech that was synthesised here is understood here, without network."""

import asyncio

import pytest

from aforesaid.agents import AgenticLoop, Specialist, SupervisorAgent
from aforesaid.contracts import Audio
from aforesaid.errors import InvalidAudio, InvalidSetting, NotUnderstood
from aforesaid.memory.manager import ConversationManager
from aforesaid.voice import EmbeddedTranscriber, VoiceAssistant
from aforesaid.voice.sound import pack_wav
from tests.doubles import Scripted
from tests.synthesis import say, word_errors

SENTENCES = (
    "when will it be completed",
    "good morning how are you today",
    "play some music in the living room",
    "the weather is nice today",
    "how long does it take to drive to the airport",
)


@pytest.fixture(scope="module", autouse=True)
def transcriber() -> EmbeddedTranscriber:
    """Where this machine cannot speak or understand, no test here begins, and the run says why at its end."""
    transcriber = EmbeddedTranscriber()
    asyncio.run(transcriber.transcribe(say("hello")))
    return transcriber


async def test_most_words_are_understood(transcriber: EmbeddedTranscriber) -> None:
    wrong = said = 0
    for sentence in SENTENCES:
        heard = await transcriber.transcribe(await spoken(sentence))
        errors, words = word_errors(sentence, heard.text)
        wrong, said = wrong + errors, said + words
    assert wrong / said <= 0.2


async def spoken(text: str) -> Audio:
    return await asyncio.to_thread(say, text)


async def test_words_have_a_place_and_a_confidence(transcriber: EmbeddedTranscriber) -> None:
    audio = await spoken(SENTENCES[0])
    heard = await transcriber.transcribe(audio)
    assert heard.language == "en"
    assert heard.confidence is not None
    assert 0.4 < heard.confidence <= 1
    assert " ".join(word.text for word in heard.segments) == heard.text
    assert audio.seconds is not None
    ends = [word.end for word in heard.segments]
    assert ends == sorted(ends)
    assert 0 <= heard.segments[0].start < ends[-1] <= audio.seconds + 0.3


async def test_the_same_sound_gives_the_same_words(transcriber: EmbeddedTranscriber) -> None:
    audio = await spoken(SENTENCES[0])
    first, second = await asyncio.gather(transcriber.transcribe(audio), transcriber.transcribe(audio))
    assert first.text == second.text


async def test_a_recording_is_understood_as_if_it_were_the_first() -> None:
    """The decoder follows the noise of a recording; that of an earlier one must not change the words."""
    transcriber = EmbeddedTranscriber()
    audio = await spoken("call Linda Campbell tomorrow")
    first = await transcriber.transcribe(audio)
    await transcriber.transcribe(await spoken(SENTENCES[0]))
    assert await transcriber.transcribe(audio) == first
    await transcriber.close()


async def test_what_is_often_said_is_understood_better() -> None:
    phrases = ["What's the status of the Johnson house project?", "Turn off the kitchen lights."]
    transcriber = EmbeddedTranscriber(phrases=phrases)
    heard = await transcriber.transcribe(await spoken(phrases[0]))
    assert heard.text == phrases[0]
    assert heard.confidence is not None
    assert heard.confidence >= 0.6
    other = await transcriber.transcribe(await spoken(SENTENCES[0]))
    assert other.text == SENTENCES[0]
    await transcriber.close()


async def test_from_speech_to_a_stored_answer(transcriber: EmbeddedTranscriber) -> None:
    erin = ConversationManager()
    supervisor = SupervisorAgent(erin, [Specialist(loop=AgenticLoop(Scripted("On Monday.")))])
    assistant = VoiceAssistant(supervisor, transcriber)
    reply = await assistant.handle_voice_input(pack_wav(await spoken(SENTENCES[0])), "s1")
    assert reply.spoken == "On Monday."
    asked, answered = await erin.messages(reply.conversation_id)
    assert (asked.content, asked.content_type) == (SENTENCES[0], "audio")
    assert asked.speech is not None
    assert asked.speech.confidence == reply.transcript.confidence
    assert answered.content == "On Monday."


async def test_the_names_of_contacts_are_heard_and_unsure_words_are_asked_back(
    transcriber: EmbeddedTranscriber,
) -> None:
    """The contacts' names reach the recognizer. Without them it writes "oliver campbell"."""
    erin, agent = ConversationManager(), Scripted(*["Calling."] * 2)
    for name in ("Linda Campbell", "Harold Finch", "Maria Sanders"):
        await erin.clients.add(name)
    assistant = VoiceAssistant(SupervisorAgent(erin, [Specialist(loop=AgenticLoop(agent))]), transcriber)
    audio = await spoken("call Linda Campbell tomorrow")
    assert "Linda Campbell" not in (await transcriber.transcribe(audio)).text
    reply = await assistant.handle_voice_input(pack_wav(audio), "s1")
    assert "Linda Campbell" in reply.transcript.text
    assert not reply.asks_back
    assert len(agent.asked) == 1
    unsure = await spoken("call Maria Sanders tomorrow")
    reply = await assistant.handle_voice_input(pack_wav(unsure), "s1")
    assert reply.asks_back
    assert reply.transcript.text in reply.spoken
    assert len(agent.asked) == 1, "no model answers what was not understood"


async def test_another_language_is_not_sure_enough(transcriber: EmbeddedTranscriber) -> None:
    german = await asyncio.to_thread(say, "Guten Morgen, wie geht es dir heute, mein Freund?", voice="de")
    supervisor = SupervisorAgent(ConversationManager(), [Specialist(loop=AgenticLoop(Scripted("Hm.")))])
    with pytest.raises(NotUnderstood, match="is below the minimum") as caught:
        await VoiceAssistant(supervisor, transcriber).understand(german)
    assert caught.value.confidence is not None
    assert caught.value.words


async def test_what_it_cannot_do_is_said() -> None:
    transcriber = EmbeddedTranscriber()
    with pytest.raises(InvalidAudio, match="language"):
        await transcriber.transcribe(Audio(data=b"\x00\x20" * 1000), language="de")
    with pytest.raises(InvalidAudio, match="audio/ogg"):
        await transcriber.transcribe(Audio(data=b"OggS", media_type="audio/ogg"))
    with pytest.raises(InvalidSetting, match="phrases must be a list"):
        EmbeddedTranscriber(phrases="one")
    unknown = EmbeddedTranscriber(phrases=["turn on the xyzzyfoo"])
    with pytest.raises(InvalidSetting, match="xyzzyfoo"):
        await unknown.transcribe(await spoken("hello"))
