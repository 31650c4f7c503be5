"""A contractor asks by voice, continues by text after a restart, and another client watches: real sockets."""

from pathlib import Path

import httpx

from aforesaid.contracts import PCM, Ask, OnText, Reply
from aforesaid.dialects import meaning_of
from aforesaid.model.contacts import Contact
from aforesaid.model.messages import Message
from aforesaid.server.limits import LiveLimits
from aforesaid.voice import EmbeddedTranscriber
from tests.integration.server.live.parts import words
from tests.integration.server.live.sockets import Serving, live_serving
from tests.integration.server.live.test_sockets import offered
from tests.servers.waiting import LONGEST
from tests.synthesis import say

STATUS = "What's the status of the Johnson house project?"
IN_PROGRESS = "The Johnson house project is currently in progress."
WHEN = "When will it be completed?"
BY_FRIDAY = "Based on the current progress, the Johnson house project should be completed by Friday."


class ProjectAgent:
    """An agent that knows one project, and which one is meant only from what was said before."""

    name = "supervisor_agent"
    dialect = "plain"

    def __init__(self) -> None:
        self.windows: list[list[str]] = []

    async def reply(self, ask: Ask, *, on_text: OnText | None = None) -> Reply:
        said = [meaning_of(message).text for message in ask.messages]
        self.windows.append(said)
        project = any("Johnson" in words_ for words_ in said)
        answer = "Which project?" if not project else BY_FRIDAY if said[-1] == WHEN else IN_PROGRESS
        for word in answer.split(" ") if on_text is not None else ():
            on_text(f"{word} ")  # type: ignore[misc]
        return Reply(messages=(Message(role="assistant", content=answer),))

    async def close(self) -> None: ...


async def test_voice_then_a_restart_then_text_with_a_linked_client_and_a_watcher(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    async with live_serving(
        url, agent=ProjectAgent(), transcriber=EmbeddedTranscriber(phrases=[STATUS])
    ) as server:
        key = await server.key("contractor")
        johnson = await server.memory.of("contractor").clients.add("Robert Johnson")
        miller = await server.memory.of("contractor").clients.add("Peter Miller")
        conversation_id = await asked_by_voice(server, key)
    foreman = ProjectAgent()
    async with live_serving(url, agent=foreman) as server:
        async with server.connect() as laptop, server.connect(subprotocols=offered(key)) as browser:
            ready = await laptop.hello(key=key, session_id="session-2", device="office", channel="text")
            assert ready["conversation"]["id"] == conversation_id
            assert words(ready) == [STATUS, IN_PROGRESS]
            assert ready["conversation"]["client_id"] == johnson.id, "named in session 1"
            await browser.hello(conversation_id=conversation_id)
            await laptop.send("typing", active=True)
            assert (await browser.until("typing"))["role"] == "user"
            done = await laptop.say("text-1", WHEN)
            assert done["text"] == BY_FRIDAY
            assert foreman.windows == [[STATUS, IN_PROGRESS, WHEN]]
            assert words(await browser.until("messages")) == [WHEN, BY_FRIDAY]
            await linked_to(server, key, conversation_id, miller)
            for client in (browser, laptop):
                record = (await client.until("conversation"))["conversation"]
                assert (record["client_id"], record["client_name"]) == (miller.id, "Peter Miller")
        stored = await server.memory.of("contractor").messages(conversation_id)
        assert [(m.role, m.content_type, m.content) for m in stored] == [
            ("user", "audio", STATUS),
            ("assistant", "text", IN_PROGRESS),
            ("user", "text", WHEN),
            ("assistant", "text", BY_FRIDAY),
        ]
        assert [m.agent_name for m in stored] == [None, "supervisor_agent"] * 2


async def linked_to(server: Serving, key: str, conversation_id: str, contact: Contact) -> None:
    """Link by hand, over HTTP: whom the conversation is about after all."""
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=LONGEST) as http:
        answer = await http.put(
            f"http://127.0.0.1:{server.port}/v1/conversations/{conversation_id}/client",
            json={"client_id": contact.id, "client_name": contact.name},
        )
        assert answer.status_code == 200, answer.text


async def asked_by_voice(server: Serving, key: str) -> str:
    """Session 1: real speech in pieces, understood and answered."""
    speech = say(STATUS)
    async with server.connect() as phone:
        ready = await phone.hello(key=key, session_id="session-1", device="office", channel="voice")
        shape = {"rate": speech.format.rate, "channels": speech.format.channels}
        await phone.send("audio.start", id="voice-1", media_type=PCM, **shape)
        size = LiveLimits().audio_frame_bytes // 64
        for start in range(0, len(speech.data), size):
            await phone.socket.send(speech.data[start : start + size])
        await phone.send("audio.end", id="voice-1")
        assert (await phone.until("transcript"))["text"] == STATUS
        done = await phone.until("answer.done")
        assert (done["text"], done["spoken"]) == (IN_PROGRESS, IN_PROGRESS)
        await phone.send("bye")
        assert await phone.close_code() == 1000
    conversation_id: str = ready["conversation"]["id"]
    return conversation_id
