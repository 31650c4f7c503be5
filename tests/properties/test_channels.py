"""Voice and text are one conversation."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from recollect.manager import ConversationManager
from tests.properties.worlds import World, contents, examples, say, spoken


# Feature: conversation-context, Property 1: Cross-channel message storage
@examples
@given(said=spoken)
def test_every_message_is_stored_with_its_content_type(world: World, said: list[Any]) -> None:
    async def play(erin: ConversationManager) -> None:
        conversation = await erin.get_or_create_conversation("s")
        await say(erin, conversation.id, said)
        stored = await erin.messages(conversation.id)
        assert [(m.role, m.content, m.content_type) for m in stored] == said

    world.play(play)


# Feature: conversation-context, Property 2: Cross-channel context access
@examples
@given(said=spoken)
def test_a_session_of_either_channel_gets_all_that_was_said(world: World, said: list[Any]) -> None:
    async def play(erin: ConversationManager) -> None:
        conversation = await erin.get_or_create_conversation("voice session", channel="voice")
        await erin.store.bind("text session", conversation.id)
        await say(erin, conversation.id, said)
        by_voice = await erin.get_or_create_conversation("voice session", channel="voice")
        by_text = await erin.get_or_create_conversation("text session", channel="text")
        assert by_voice == by_text
        assert [message.content for message in by_text.messages] == [content for _, content, _ in said]
        context = await erin.load_context(by_text.id)
        assert [message["content"] for message in context] == [content for _, content, _ in said]

    world.play(play)


# Feature: conversation-context, Property 3: Equal treatment of messages
@examples
@given(said=spoken)
def test_the_content_type_makes_no_difference_to_a_context(world: World, said: list[Any]) -> None:
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

    first, second = world.play(contexts)
    assert first == second
    assert len(first) == len(said)


# Feature: conversation-context, Property 22: Voice transcription storage
@examples
@given(transcript=contents)
def test_voice_is_stored_as_its_transcript_marked_audio(world: World, transcript: str) -> None:
    async def play(erin: ConversationManager) -> None:
        conversation = await erin.get_or_create_conversation("s", channel="voice")
        await erin.add_message(conversation.id, "user", transcript, content_type="audio")
        (message,) = await erin.messages(conversation.id)
        assert (message.content, message.content_type) == (transcript, "audio")

    world.play(play)


# Feature: conversation-context, Property 23: Text message storage
@examples
@given(text=contents, explicit=st.booleans())
def test_text_is_stored_marked_text(world: World, text: str, explicit: bool) -> None:
    async def play(erin: ConversationManager) -> None:
        conversation = await erin.get_or_create_conversation("s", channel="text")
        if explicit:
            await erin.add_message(conversation.id, "user", text, content_type="text")
        else:
            await erin.add_message(conversation.id, "user", text)
        (message,) = await erin.messages(conversation.id)
        assert (message.content, message.content_type) == (text, "text")

    world.play(play)
