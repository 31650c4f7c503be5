"""Voice and text are one conversation."""

from typing import Any

from hypothesis import strategies as st

from aforesaid.agents import AgenticLoop, Specialist, SupervisorAgent
from aforesaid.contracts import Audio, Transcript
from aforesaid.memory.manager import ConversationManager
from aforesaid.voice import VoiceAssistant
from tests.builders import Target, contents, say, spoken
from tests.doubles import Scripted
from tests.examples import also_for_all, for_all


# Feature: conversation-context, Property 1: Cross-channel message storage
@for_all(said=spoken)
def test_every_message_is_stored_with_its_content_type(target: Target, said: list[Any]) -> None:
    async def scenario(erin: ConversationManager) -> None:
        conversation = await erin.get_or_create_conversation("s")
        await say(erin, conversation.id, said)
        stored = await erin.messages(conversation.id)
        assert [(m.role, m.content, m.content_type) for m in stored] == said

    target.run(scenario)


# Feature: conversation-context, Property 2: Cross-channel context access
@for_all(said=spoken)
def test_a_session_of_either_channel_gets_all_that_was_said(target: Target, said: list[Any]) -> None:
    async def scenario(erin: ConversationManager) -> None:
        conversation = await erin.get_or_create_conversation("voice session", channel="voice")
        await erin.store.bind("text session", conversation.id)
        await say(erin, conversation.id, said)
        by_voice = await erin.get_or_create_conversation("voice session", channel="voice")
        by_text = await erin.get_or_create_conversation("text session", channel="text")
        assert by_voice == by_text
        assert [message.content for message in by_text.messages] == [content for _, content, _ in said]
        context = await erin.load_context(by_text.id)
        assert [message["content"] for message in context] == [content for _, content, _ in said]

    target.run(scenario)


# Feature: conversation-context, Property 3: Equal treatment of messages
@also_for_all(said=spoken)
def test_the_content_type_makes_no_difference_to_a_context(target: Target, said: list[Any]) -> None:
    async def contexts(erin: ConversationManager) -> list[list[Any]]:
        loaded = []
        for session, swap in (("as said", False), ("the other way round", True)):
            conversation = await erin.get_or_create_conversation(session)
            other = {"text": "audio", "audio": "text"}
            turned = [(role, content, other[kind] if swap else kind) for role, content, kind in said]
            await say(erin, conversation.id, turned)
            context = await erin.load_context(conversation.id)
            loaded.append([(message["role"], message["content"]) for message in context])
        return loaded

    first, second = target.run(contexts)
    assert first == second
    assert len(first) == len(said)


class Hears:
    """A transcriber that understands what the test wants it to."""

    name = "test"

    def __init__(self, text: str) -> None:
        self._text = text

    async def transcribe(self, audio: Audio, *, language: str | None = None) -> Transcript:
        return Transcript(text=self._text)

    async def close(self) -> None:
        """Nothing was opened."""


def supervisor_of(erin: ConversationManager, answer: str) -> SupervisorAgent:
    return SupervisorAgent(erin, [Specialist(loop=AgenticLoop(Scripted(answer)))])


SOUND = Audio(data=b"\x00\x40\x00\xc0" * 4000)
words = contents.filter(str.strip)


async def heard_of(erin: ConversationManager, session: str) -> list[tuple[str, Any, str]]:
    record = await erin.session(session)
    assert record is not None
    return [(m.role, m.content, m.content_type) for m in await erin.messages(record.id)]


# Feature: conversation-context, Property 22: Voice transcription storage
@for_all(transcript=words, answer=words)
def test_a_spoken_question_is_stored_once_as_its_transcript_marked_audio(
    target: Target, transcript: str, answer: str
) -> None:
    async def scenario(erin: ConversationManager) -> None:
        voice = VoiceAssistant(supervisor_of(erin, answer), Hears(transcript))
        await voice.handle_voice_input(SOUND, "s")
        assert await heard_of(erin, "s") == [
            ("user", transcript.strip(), "audio"),
            ("assistant", answer, "text"),
        ]

    target.run(scenario)


# Feature: conversation-context, Property 23: Text message storage
@for_all(text=words, answer=words, is_direct=st.booleans())
def test_a_typed_question_is_stored_once_marked_text(
    target: Target, text: str, answer: str, is_direct: bool
) -> None:
    async def scenario(erin: ConversationManager) -> None:
        if is_direct:
            conversation = await erin.get_or_create_conversation("s", channel="text")
            await erin.add_message(conversation.id, "user", text)
            await erin.add_message(conversation.id, "assistant", answer)
        else:
            await supervisor_of(erin, answer).process_query(text, "s")
        assert await heard_of(erin, "s") == [("user", text, "text"), ("assistant", answer, "text")]

    target.run(scenario)
