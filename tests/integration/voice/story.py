"""A contractor asks by voice, hangs up, and goes on by text: each act in a process of its own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anthropic  # noqa: F401  loaded once for all processes that are forked

import aforesaid
from aforesaid.agents import AgenticLoop, AnthropicAgent, Specialist, SupervisorAgent
from aforesaid.memory.manager import ConversationManager
from aforesaid.memory.sessions import SessionManager
from aforesaid.testing.providers import FakeProvider, Says
from aforesaid.voice import EmbeddedTranscriber, VoiceAssistant
from aforesaid.voice.sound import pack_wav
from tests.synthesis import say

ASKED = "What's the status of the Johnson house project?"
IN_PROGRESS = "The Johnson house project is currently in progress. The painters come on Monday."
THEN = "When will it be completed?"
SOON = "Based on the current progress, the Johnson house project should be completed by Friday."
PHRASES = [ASKED, "Turn off the kitchen lights.", "Send an invoice for the Miller house."]
"""What this business often says."""
DEVICE = "the contractor's phone"
UNHURRIED = aforesaid.ConversationConfig(context_deadline=120)
"""While the provider's SDK is loaded, nothing else moves on a busy machine."""


@asynccontextmanager
async def supervised(manager: ConversationManager, says: str) -> AsyncIterator[tuple[Any, FakeProvider]]:
    """A supervisor whose model is a provider on this machine."""
    async with FakeProvider("anthropic") as provider:
        provider.will(Says(says))
        agent = AnthropicAgent("claude", name="supervisor_agent", base_url=provider.url, api_key="none")
        try:
            yield SupervisorAgent(manager, [Specialist(loop=AgenticLoop(agent))]), provider
        finally:
            await agent.close()


async def by_voice(url: str, owner: str) -> None:
    """Session 1: a question by voice, an answer, the end. The conversation finds its client by itself."""
    recording = pack_wav(say(ASKED))
    async with aforesaid.open(
        url,
        config=UNHURRIED,
        retention=aforesaid.Retention(sweep_every=None),
        models=aforesaid.Models(embedder=None),
    ) as memory:
        manager = memory.of(owner)
        await manager.clients.add("Mary Johnson")
        await manager.clients.add("Peter Miller")
        async with supervised(manager, IN_PROGRESS) as (supervisor, _):
            voice = VoiceAssistant(supervisor, EmbeddedTranscriber(phrases=PHRASES))
            reply = await voice.handle_voice_input(recording, "session-1", device=DEVICE)
            assert (reply.transcript.text, reply.spoken) == (ASKED, IN_PROGRESS)
            await voice.sessions.end_session("session-1")
            await voice.close()
        # Clients are found off the answer path, a moment later; a process that lives on does not wait for it.
        await manager.contact_resources.queue.wait_until_idle()


async def by_text(url: str, owner: str) -> None:
    """Session 2: a follow-up by text, answered with what was said before."""
    async with aforesaid.open(
        url,
        config=UNHURRIED,
        retention=aforesaid.Retention(sweep_every=None),
        models=aforesaid.Models(embedder=None),
    ) as memory:
        manager = memory.of(owner)
        sessions = SessionManager(manager)
        assert await sessions.get_conversation_id("session-1") is None
        session = await sessions.create_session("session-2", channel="text", device=DEVICE)
        assert session.resumed == "device"
        assert [words(one.content) for one in session.conversation.messages] == [ASKED, IN_PROGRESS]
        async with supervised(manager, SOON) as (supervisor, provider):
            answer = await supervisor.process_query(THEN, "session-2")
        assert answer == SOON
        (request,) = provider.requests
        said = [(message["role"], words(message["content"])) for message in request["messages"]]
        assert said == [("user", ASKED), ("assistant", IN_PROGRESS), ("user", THEN)]
        assert provider.refused == []
        await check(manager, session.conversation_id)


def words(content: Any) -> str:
    return content if isinstance(content, str) else "".join(block["text"] for block in content)


async def check(manager: ConversationManager, conversation_id: str) -> None:
    stored = await manager.messages(conversation_id)
    assert [(m.role, words(m.content), m.content_type, m.agent_name) for m in stored] == [
        ("user", ASKED, "audio", None),
        ("assistant", IN_PROGRESS, "text", "supervisor_agent"),
        ("user", THEN, "text", None),
        ("assistant", SOON, "text", "supervisor_agent"),
    ]
    assert stored[0].speech is not None
    assert stored[0].speech.confidence is not None
    record = await manager.get_conversation(conversation_id)
    assert record.client_name == "Mary Johnson"
    (contact,) = [one for one in (await manager.clients.list()).contacts if one.name == "Mary Johnson"]
    assert record.client_id == contact.id
    assert [one.id for one in (await manager.list(client_id=contact.id)).conversations] == [conversation_id]


def play(act: str, url: str, owner: str) -> None:
    """Play `by_voice` or `by_text`."""
    asyncio.run({"by_voice": by_voice, "by_text": by_text}[act](url, owner))
