"""The example conversation of the design, as printed: a voice session, then a text session."""

import re
from datetime import timedelta
from typing import Optional

import pytest
from msgspec.structs import replace

from aforesaid import compat
from aforesaid.agents import AgenticLoop, Specialist
from aforesaid.contracts import Audio, Transcript
from aforesaid.dialects import meaning_of
from aforesaid.memory.manager import ConversationManager
from aforesaid.memory.sessions import SessionManager, SessionPolicy
from aforesaid.voice import VoiceAssistant
from tests.acceptance.seeds.printed import printed, run
from tests.builders import Target
from tests.doubles import Scripted

SOUND = Audio(data=b"\x00\x40\x00\xc0" * 4000)


def line(block: str, speaker: str) -> str:
    """Return the quoted words of a speaker."""
    found = re.search(rf'^ *{re.escape(speaker)}: "(.+)"$', printed(block), re.MULTILINE)
    assert found is not None
    return found[1]


SPOKEN, TRANSCRIBED = line("004-15", "User (voice)"), line("004-15", "→ Transcribed")
TYPED = line("004-16", "User (text)")
ANSWERS = line("004-15", "Assistant"), line("004-16", "Assistant")


class Transcriber:
    """A transcriber that returns the printed transcript."""

    name = "test"

    async def transcribe(self, audio: Audio, *, language: str | None = None) -> Transcript:
        return Transcript(text=TRANSCRIBED)

    async def close(self) -> None:
        """Nothing was opened."""


@pytest.mark.requirement("004-104")
def test_text_in_a_second_session_has_the_context_of_the_first(target: Target) -> None:
    async def scenario(manager: ConversationManager) -> None:
        agent = Scripted(*ANSWERS, name="supervisor_agent")
        sessions = compat.S2SSessionManager(manager)
        specialist = Specialist(loop=AgenticLoop(agent))
        supervisor = compat.SupervisorAgent(manager, [specialist], sessions=sessions)
        await VoiceAssistant(supervisor, Transcriber(), sessions=sessions).handle_voice_input(SOUND, "1")
        await sessions.end_session("1")
        await supervisor.process_query(TYPED, "2")
        conversation_id = await sessions.get_conversation_id("2")
        assert conversation_id is not None
        expected = [
            ("user", SPOKEN, "audio", None),
            ("assistant", ANSWERS[0], "text", "supervisor_agent"),
            ("user", TYPED, "text", None),
            ("assistant", ANSWERS[1], "text", "supervisor_agent"),
        ]
        stored = [
            (message.role, message.content, message.content_type, message.agent_name)
            for message in await manager.messages(conversation_id)
        ]
        assert stored == expected
        sent = [meaning_of(message).text for message in agent.asked[1].messages]
        assert sent == [content for _, content, _, _ in expected[:3]]

    target.run(scenario)


@pytest.mark.requirement("004-104")
def test_the_printed_session_manager_continues_the_last_conversation(stored_target: Target) -> None:
    """It ends no session, so the setting `continue_minutes` is needed."""
    blocks = printed("004-03")

    async def scenario(manager: ConversationManager) -> None:
        names = await run(blocks, Optional=Optional, List=list, ConversationManager=ConversationManager)
        sessions = names["S2SSessionManager"](manager)
        await sessions.create_session("1")
        await manager.add_message(await sessions.get_conversation_id("1"), "user", SPOKEN)
        await sessions.create_session("2", channel="text")
        context = await sessions.load_session_context("2")
        assert [message["content"] for message in context] == [SPOKEN]

    stored_target.run(lambda manager: scenario(with_settings(manager, continue_minutes=30)))
    with pytest.raises(AssertionError):
        stored_target.run(scenario)


def with_settings(manager: ConversationManager, **changes: int) -> ConversationManager:
    """Return a manager of the same owner with other settings."""
    return ConversationManager(scope=manager.scope, config=replace(manager.config, **changes))


@pytest.mark.requirement("004-104")
def test_what_a_new_session_continues(stored_target: Target) -> None:
    async def scenario(manager: ConversationManager) -> None:
        sessions = compat.S2SSessionManager(manager)
        first = await sessions.create_session("1")
        await manager.add_message(first.conversation_id, "user", SPOKEN)
        second = await sessions.create_session("2")
        assert second.conversation_id != first.conversation_id, "session 1 has not ended"
        await sessions.end_session("1")
        kitchen = await sessions.create_session("3", device="kitchen")
        assert kitchen.conversation_id not in (first.conversation_id, second.conversation_id)
        late = SessionManager(manager, SessionPolicy(idle_after=timedelta(microseconds=1)))
        assert (await late.create_session("4")).resumed is None
        continued = await sessions.create_session("5")
        assert (continued.conversation_id, continued.resumed) == (first.conversation_id, "ended")
        assert sessions.session_to_conversation.keys() == {"2", "3", "5"}

    stored_target.run(scenario)
