"""The example conversation of the design, as printed: a voice session, then a text session."""

import re

import pytest

from aforesaid import compat
from aforesaid.agents import AgenticLoop, Specialist
from aforesaid.contracts import Audio, Transcript
from aforesaid.dialects import meaning_of
from aforesaid.memory.manager import ConversationManager
from aforesaid.voice import VoiceAssistant
from tests.acceptance.seeds.printed import printed
from tests.builders import World
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
def test_text_in_a_second_session_has_the_context_of_the_first(world: World) -> None:
    async def play(manager: ConversationManager) -> None:
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

    world.play(play)
