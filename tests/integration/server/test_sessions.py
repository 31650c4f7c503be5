"""Sessions, answers and voice over HTTP."""

import asyncio
import json
from typing import Any

import pytest

from aforesaid.agents.loop import AgenticLoop
from aforesaid.agents.supervisor import SupervisorAgent
from aforesaid.agents.views import Specialist
from aforesaid.contracts import Ask, Audio, OnText, Reply, Transcript
from aforesaid.errors import AgentUnavailable, StoreUnavailable
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.messages import Message
from aforesaid.stores.memory import InMemoryStore
from tests.integration.server.running import Running, serving


class Parrot:
    """An agent that says what it was asked, word by word; on request it fails, or takes for ever."""

    name = "parrot"
    dialect = "plain"

    def __init__(self) -> None:
        self.waiting = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def reply(self, ask: Ask, *, on_text: OnText | None = None) -> Reply:
        words = str(ask.messages[-1].content)
        if words == "fail":
            raise AgentUnavailable("the secret host is away")
        if words == "break":
            raise ZeroDivisionError("somebody else's mistake")
        if words == "wait":
            self.waiting.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled.set()
        for word in words.split():
            if on_text is not None:
                on_text(word)
        return Reply(messages=(Message(role="assistant", content=words),))

    async def close(self) -> None:
        return


class Listener:
    """A transcriber that understands everything as the same words."""

    name = "listener"

    async def transcribe(self, audio: Audio, *, language: str | None = None) -> Transcript:
        return Transcript(text="is the door locked", confidence=0.9)

    async def close(self) -> None:
        return


def answering(parrot: Parrot) -> dict[str, Any]:
    def assistant(manager: ConversationManager) -> SupervisorAgent:
        return SupervisorAgent(manager, [Specialist(loop=AgenticLoop(parrot))])

    return {"assistant": assistant, "transcriber": Listener()}


async def stored(server: Running) -> int:
    return int((await server.client.get("/v1/stats")).json()["messages"])


async def test_the_assistant_answers_and_both_sides_are_stored() -> None:
    async with serving(app_options=answering(Parrot())) as server:
        asked = {"session_id": "kitchen", "text": "good morning"}
        answer = (await server.client.post("/v1/sessions/answers", json=asked)).json()
        assert (answer["text"], answer["agent_name"], answer["stored"]) == ("good morning", "parrot", True)
        session = await server.client.get("/v1/sessions", params={"session_id": "kitchen"})
        assert session.json()["id"] == answer["conversation_id"]
        assert session.json()["message_count"] == 2


async def test_without_a_model_the_recall_agent_answers(server: Running) -> None:
    await server.client.post(
        "/v1/sessions/turns",
        json={"session_id": "a", "messages": [{"role": "user", "content": "the spare key is under the pot"}]},
    )
    asked = {"session_id": "b", "text": "where is the spare key?"}
    answer = (await server.client.post("/v1/sessions/answers", json=asked)).json()
    assert "under the pot" in answer["text"]


@pytest.mark.parametrize(("text", "kind"), [("fail", "agent-unavailable"), ("break", "aforesaid-error")])
async def test_a_turn_that_fails_is_an_apology_and_leaves_no_trace(text: str, kind: str) -> None:
    async with serving(app_options=answering(Parrot())) as server:
        asked = {"session_id": "kitchen", "text": text}
        answer = await server.client.post("/v1/sessions/answers", json=asked)
        assert answer.status_code == 200
        assert answer.json()["stored"] is False
        assert answer.json()["problem"]["type"] == f"urn:aforesaid:problem:{kind}"
        assert "secret host" not in answer.text
        assert "mistake" not in answer.text
        assert await stored(server) == 0


async def test_an_answer_comes_in_pieces() -> None:
    async with serving(app_options=answering(Parrot())) as server:
        asked = {"session_id": "kitchen", "text": "one two three"}
        headers = {"Accept": "text/event-stream"}
        async with server.client.stream(
            "POST", "/v1/sessions/answers", json=asked, headers=headers
        ) as answer:
            assert answer.headers["content-type"] == "text/event-stream"
            lines = [line async for line in answer.aiter_lines() if line.startswith("data: ")]
        events = [json.loads(line.removeprefix("data: ")) for line in lines]
        assert [each["text"] for each in events] == ["one", "two", "three", "one two three"]
        assert events[-1]["stored"] is True


async def test_a_client_that_disconnects_cancels_its_question() -> None:
    parrot = Parrot()
    async with serving(app_options=answering(parrot)) as server:
        asked = {"session_id": "kitchen", "text": "wait"}
        headers = {"Accept": "text/event-stream"}
        async with server.client.stream("POST", "/v1/sessions/answers", json=asked, headers=headers):
            await asyncio.wait_for(parrot.waiting.wait(), 120)
        await asyncio.wait_for(parrot.cancelled.wait(), 120)
        assert await stored(server) == 0


async def test_voice_is_understood_answered_and_stored_as_audio() -> None:
    async with serving(app_options=answering(Parrot())) as server:
        answer = await server.client.post(
            "/v1/sessions/voice",
            params={"session_id": "kitchen"},
            content=b"\0\x30\0\xd0" * 8_000,
            headers={"Content-Type": "audio/pcm"},
        )
        assert answer.status_code == 200, answer.text
        assert answer.json()["transcript"]["text"] == "is the door locked"
        assert answer.json()["spoken"] == "is the door locked"
        path = f"/v1/conversations/{answer.json()['conversation_id']}/messages"
        entries = (await server.client.get(path)).json()["entries"]
        assert entries[0]["message"]["content_type"] == "audio"
        cut = {"message_id": entries[1]["message"]["message_id"], "heard": 6}
        noted = await server.client.post(path.replace("/messages", "/interruptions"), json=cut)
        assert noted.status_code == 200, noted.text


async def test_sound_that_is_none_is_refused(server: Running) -> None:
    for content, media in (
        (b"", "audio/wav"),
        (b"hello", "audio/wav"),
        (b"RIFF....WAVEnonsense", "audio/wav"),
    ):
        refused = await server.client.post(
            "/v1/sessions/voice",
            params={"session_id": "k"},
            content=content,
            headers={"Content-Type": media},
        )
        assert refused.status_code == 422, refused.text


async def test_a_session_is_any_text(server: Running) -> None:
    for name in ("../..", "a/b", "ü 🏠", "%2F", "x" * 1024):
        body = {"session_id": name, "messages": [{"role": "user", "content": "hi"}]}
        made = await server.client.post("/v1/sessions/turns", json=body)
        assert made.status_code == 201, made.text
        found = await server.client.get("/v1/sessions", params={"session_id": name})
        assert found.json()["id"] == made.json()["conversation"]["id"]
        gone = await server.client.delete("/v1/sessions", params={"session_id": name})
        assert gone.status_code == 204
        assert (await server.client.get("/v1/sessions", params={"session_id": name})).status_code == 404


async def test_changes_are_sent_as_they_happen(server: Running) -> None:
    opened = await server.client.post("/v1/conversations", json={"session_id": "kitchen"})
    kitchen = opened.json()["id"]
    async with server.client.stream("GET", f"/v1/changes?conversation_id={kitchen}") as answer:
        lines = answer.aiter_lines()
        assert await anext(lines) == ": watching"
        body = {"messages": [{"role": "user", "content": "hi"}]}
        await server.client.post(f"/v1/conversations/{kitchen}/turns", json=body)
        async for line in lines:
            if line.startswith("data: "):
                assert json.loads(line[6:]) == {"conversation_id": kitchen, "revision": 1}
                break


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_an_answer_that_cannot_be_stored_is_sent_and_stored_later(
    streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(app_options=answering(Parrot())) as server:
        await server.client.post("/v1/sessions/answers", json={"session_id": "kitchen", "text": "one"})
        asked = {"session_id": "kitchen", "text": "two"}
        headers = {"Accept": "text/event-stream"} if streamed else {}

        async def fail(*_: object, **__: object) -> None:
            raise StoreUnavailable("the disk is full")

        with monkeypatch.context() as patched:
            patched.setattr(InMemoryStore, "append", fail)
            sent = await server.client.post("/v1/sessions/answers", json=asked, headers=headers)
            answer = json.loads(sent.text.rpartition("data: ")[2]) if streamed else sent.json()
            assert (answer["text"], answer["agent_name"]) == ("two", "parrot")
            assert (answer["stored"], answer["queued"]) == (False, True)
            assert answer["problem"]["type"] == "urn:aforesaid:problem:store-unavailable"
            assert await stored(server) == 2
        await server.memory.unstored.settled()
        assert await stored(server) == 4


async def test_a_spoken_answer_that_cannot_be_stored_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(app_options=answering(Parrot())) as server:

        async def fail(*_: object, **__: object) -> None:
            raise StoreUnavailable("the disk is full")

        with monkeypatch.context() as patched:
            patched.setattr(InMemoryStore, "append", fail)
            sent = await server.client.post(
                "/v1/sessions/voice",
                params={"session_id": "kitchen"},
                content=b"\x00\x10\x00\xf0" * 8000,
                headers={"Content-Type": "audio/pcm"},
            )
        reply = sent.json()
        assert reply["text"] == "is the door locked"
        assert (reply["failed"], reply["stored"], reply["queued"]) == (False, False, True)
        await server.memory.unstored.settled()
        assert await stored(server) == 2
