"""The design of the conversation context, as printed: what each agent sees, says and persists."""

from pathlib import Path
from typing import Any

import pytest

import aforesaid
from aforesaid import compat
from aforesaid.agents import AgenticLoop, RuleRouter, Specialist
from aforesaid.contracts import Audio, Transcript
from aforesaid.dialects import meaning_of
from aforesaid.errors import InvalidInput
from aforesaid.memory.manager import ConversationManager
from aforesaid.voice import VoiceAssistant
from aforesaid.windows import WindowPolicy
from tests.builders import Target
from tests.doubles import Scripted

SOUND = Audio(data=b"\x00\x40\x00\xc0" * 4000)
LONG = " ".join(f"Sentence number {number} of the report." for number in range(60))


class Transcriber:
    """A transcriber that hears one question."""

    name = "test"

    async def transcribe(self, audio: Audio, *, language: str | None = None) -> Transcript:
        return Transcript(text="Read me the report")

    async def close(self) -> None:
        """Nothing was opened."""


@pytest.mark.requirement("004-105")
def test_each_agent_has_its_own_window_size(target: Target) -> None:
    async def scenario(manager: ConversationManager) -> None:
        record = await manager.get_or_create_conversation("s")
        for number in range(10):
            await manager.add_message(record["id"], "user", f"message {number}")
        agents = {name: Scripted("done", name=name) for name in ("ec2_agent", "invoice_agent")}
        sizes = {"ec2_agent": 3, "invoice_agent": 6}
        specialists = [
            Specialist(loop=AgenticLoop(agents[name]), policy=WindowPolicy(max_messages=size))
            for name, size in sizes.items()
        ]
        router = RuleRouter({"instance": "ec2_agent", "invoice": "invoice_agent"})
        supervisor = compat.SupervisorAgent(manager, specialists, router=router)
        await supervisor.process_query("Which instance?", "s")
        await supervisor.process_query("Which invoice?", "s")
        assert {name: len(agent.asked[0].messages) for name, agent in agents.items()} == sizes

    target.run(scenario)


@pytest.mark.requirement("004-106")
def test_the_full_answer_is_there_by_text_after_a_cut_spoken_one(target: Target) -> None:
    async def scenario(manager: ConversationManager) -> None:
        agent = Scripted(LONG, "Here it is.")
        sessions = compat.S2SSessionManager(manager)
        supervisor = compat.SupervisorAgent(manager, [Specialist(loop=AgenticLoop(agent))], sessions=sessions)
        voice = VoiceAssistant(supervisor, Transcriber(), sessions=sessions)
        reply = await voice.handle_voice_input(SOUND, "1")
        assert len(reply.spoken) <= 800 < len(LONG)
        assert LONG.startswith(reply.spoken.removesuffix("…").rstrip())
        context = await sessions.load_session_context("1")
        assert context[-1]["content"] == LONG
        await sessions.end_session("1")
        await supervisor.process_query("Please send me the whole answer", "2")
        assert LONG in [meaning_of(message).text for message in agent.asked[1].messages]

    target.run(scenario)


@pytest.mark.requirement("004-109")
async def test_agents_are_moved_to_a_database_one_by_one(tmp_path: Path) -> None:
    """Every agent has its own manager. Without a store it stays in memory, as before."""

    async def run(persistent: set[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        async with aforesaid.open(f"sqlite:///{tmp_path}/memory.db") as memory:
            for name in ("supervisor_agent", "invoice_agent"):
                manager = memory.of(name) if name in persistent else ConversationManager()
                agent = Scripted("yes", name=name)
                supervisor = compat.SupervisorAgent(manager, [Specialist(loop=AgenticLoop(agent))])
                assert await supervisor.process_query("Are you there?", "session 1") == "yes"
                found[name] = (await manager.get_or_create_conversation("session 1"))["message_count"]
        return found

    assert await run({"supervisor_agent"}) == {"supervisor_agent": 2, "invoice_agent": 2}
    assert await run({"supervisor_agent"}) == {"supervisor_agent": 4, "invoice_agent": 2}
    assert await run({"supervisor_agent", "invoice_agent"}) == {"supervisor_agent": 6, "invoice_agent": 2}
    assert await run({"supervisor_agent", "invoice_agent"}) == {"supervisor_agent": 8, "invoice_agent": 4}


@pytest.mark.requirement("004-024", "004-025", "004-026", "004-028")
def test_the_service_identifies_and_links_the_named_client(target: Target) -> None:
    async def scenario(manager: ConversationManager) -> None:
        contact = await manager.clients.add("Robert Johnson")
        service = compat.ClientAssociationService(None, manager)
        client = await service.identify_client(message_content="The Johnson house, please")
        assert client is not None
        assert (client["id"], client["name"]) == (contact.id, "Robert Johnson")
        assert await service.identify_client(message_content="What about the house?") is None
        record = await manager.get_or_create_conversation("s")
        linked = await service.link_conversation_to_client(
            record["id"], message_content="The Johnson house, please"
        )
        assert linked is not None
        assert (linked["client_id"], linked["client_name"]) == (contact.id, "Robert Johnson")
        wrong: Any = 7
        with pytest.raises(InvalidInput, match="message_content"):
            await service.identify_client(wrong)

    target.run(scenario)


@pytest.mark.requirement("004-018")
def test_a_supervisor_without_specialists_answers_from_the_history(target: Target) -> None:
    async def scenario(manager: ConversationManager) -> None:
        supervisor = compat.SupervisorAgent(manager)
        await supervisor.process_query("The Johnson house gets blue shutters", "s")
        assert "blue shutters" in await supervisor.process_query("What did I say about shutters?", "s")

    target.run(scenario)
