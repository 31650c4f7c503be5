"""A connection without a socket: every frame that a client may send, and what comes back."""

import asyncio
from collections.abc import Mapping
from typing import Any
from unittest.mock import Mock
from uuid import uuid4

import pytest

from aforesaid.errors import StoreUnavailable
from aforesaid.model.messages import Message, Speech
from aforesaid.protocol.live import CloseCode
from aforesaid.server.auth.keys import Caller
from aforesaid.server.limits import Limits
from aforesaid.server.live.outbox import ConnectionClosed
from aforesaid.stores.memory import InMemoryStore
from tests.integration.server.live.parts import PATIENCE, Client, HubSetup, open_hub, words


async def the_end(client: Client) -> int:
    with pytest.raises(ConnectionClosed) as ended:
        while True:
            await client.next()
    return ended.value.code


async def test_hello_is_answered_with_the_conversation_and_its_history() -> None:
    async with open_hub() as hub:
        erin = hub.erin
        conversation = await erin.get_or_create_conversation("kitchen", channel="text")
        await erin.add_message(conversation.id, "user", "is the door locked?")
        ready = await hub.client().hello(session_id="kitchen")
        assert ready["type"] == "ready"
        assert ready["owner"] == "erin"
        assert ready["conversation"]["id"] == conversation.id
        assert words(ready) == ["is the door locked?"]
        assert ready["place"] == {"revision": 1, "sequence": 1, "messages": 1}


async def test_a_text_is_answered_in_pieces_and_stored_as_a_turn() -> None:
    async with open_hub() as hub:
        client = hub.client()
        ready = await client.hello(session_id="kitchen")
        hub.agent.may_go_on.clear()
        await client.send("text", id="q1", text="good morning")
        assert await client.next() == {"type": "answer.delta", "id": "q1", "text": "you "}
        hub.agent.may_go_on.set()
        done = await client.until("answer.done")
        assert done["text"] == "you said good morning"
        assert words(done) == ["good morning", "you said good morning"]
        assert done["place"]["sequence"] == 2
        stored = await hub.erin.messages(ready["conversation"]["id"])
        assert [message.content for message in stored] == ["good morning", "you said good morning"]
        assert [message.message_id for message in stored] == done["message_ids"] == ["q1", "q1/1"]


async def test_the_agent_is_given_what_was_said_before() -> None:
    async with open_hub() as hub:
        client = hub.client()
        await client.hello(session_id="kitchen")
        await client.say("q1", "my name is Erin")
        await client.say("q2", "who am I?")
        assert [message.content for message in hub.agent.windows[-1]] == [
            "my name is Erin",
            "you said my name is Erin",
            "who am I?",
        ]


async def test_words_that_want_no_answer_are_stored_and_sent() -> None:
    async with open_hub() as hub:
        one, other = hub.client(), hub.client()
        ready = await one.hello(session_id="kitchen")
        await other.hello(conversation_id=ready["conversation"]["id"])
        await one.send("text", id="n1", text="back at six", answer=False)
        assert words(await one.until("stored")) == ["back at six"]
        assert words(await other.until("messages")) == ["back at six"]
        assert hub.agent.asked == []


TURN = [{"role": "user", "content": "is the door locked?"}, {"role": "assistant", "content": "since two"}]


async def test_a_turn_that_was_answered_elsewhere_is_stored_whole_and_sent_to_the_others() -> None:
    async with open_hub() as hub:
        one, other = hub.client(), hub.client()
        ready = await one.hello(session_id="kitchen")
        conversation_id = ready["conversation"]["id"]
        await other.hello(conversation_id=conversation_id)
        await one.send("turn", id="t1", messages=TURN)
        assert await one.next() == {
            "type": "stored",
            "id": "t1",
            "conversation_id": conversation_id,
            "entries": [],
            "message_ids": ["t1", "t1/1"],
            "place": {"revision": 1, "sequence": 2, "messages": 2},
        }
        describe = await other.until("messages")
        assert words(describe) == ["is the door locked?", "since two"]
        stored = await hub.erin.messages(conversation_id)
        assert [(message.role, message.message_id) for message in stored] == [
            ("user", "t1"),
            ("assistant", "t1/1"),
        ]
        assert hub.agent.asked == []
        assert (await one.say("q1", "and now?"))["place"]["sequence"] == 4, "nothing is told twice"
        assert [frame["type"] for frame in one.frames if frame["type"] == "messages"] == []


@pytest.mark.requirement("001-005")
async def test_a_conversation_may_be_watched_and_written_by_its_name() -> None:
    async with open_hub() as hub:
        await hub.erin.add_message("kitchen table", "user", "is anybody there?")
        one, other = hub.client(), hub.client()
        record = await hub.erin.get_conversation("kitchen table")
        for client in (one, other):
            ready = await client.hello(conversation_id="kitchen table")
            assert (ready["conversation"]["id"], ready["conversation"]["name"]) == (
                record.id,
                "kitchen table",
            )
        await one.send("turn", id="t1", messages=TURN)
        assert (await one.next())["conversation_id"] == record.id
        assert words(await other.until("messages")) == ["is the door locked?", "since two"]
        assert len(await hub.erin.messages("kitchen table")) == 3


async def test_a_turn_that_is_sent_again_is_stored_once_and_its_id_stands_for_its_words() -> None:
    async with open_hub() as hub:
        client = hub.client()
        conversation_id = (await client.hello(session_id="kitchen"))["conversation"]["id"]
        await client.send("turn", id="t1", messages=TURN)
        first = await client.next()
        await client.send("turn", id="t1", messages=TURN)
        assert await client.next() == first | {"repeated": True}
        await client.send("turn", id="t1", messages=[{"role": "user", "content": "something else"}])
        refused = await client.next()
        assert (refused["type"], refused["id"], refused["problem"]["status"]) == ("error", "t1", 409)
        assert len(await hub.erin.messages(conversation_id)) == 2
        await client.send("turn", id="t2", messages=TURN)
        assert (await client.next())["place"] == {"revision": 2, "sequence": 4, "messages": 4}


async def test_a_turn_may_be_as_a_provider_writes_it_and_keeps_ids_of_its_own() -> None:
    async with open_hub() as hub:
        client = hub.client()
        conversation_id = (await client.hello(session_id="kitchen"))["conversation"]["id"]
        call = {"type": "tool_use", "id": "c1", "name": "look", "input": {}}
        result = {"type": "tool_result", "tool_use_id": "c1", "content": "locked"}
        said: list[dict[str, Any]] = [
            {"role": "user", "content": "is the door locked?"},
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
            {"role": "assistant", "content": "yes"},
        ]
        await client.send("turn", id="t1", messages=said, dialect="anthropic")
        assert (await client.next())["message_ids"] == ["t1", "t1/1", "t1/2", "t1/3"]
        stored = await hub.erin.messages(conversation_id)
        assert [message.content for message in stored] == [each["content"] for each in said]
        assert stored[1].dialect == "anthropic"
        await client.send("turn", id="t2", messages=[TURN[0] | {"message_id": "mine"}, TURN[1]])
        assert (await client.next())["message_ids"] == ["mine", "t2/1"]


async def test_messages_before_a_turn_are_sent_before_it() -> None:
    async with open_hub(poll_seconds=3600.0) as hub:
        client = hub.client()
        conversation_id = (await client.hello(session_id="kitchen"))["conversation"]["id"]
        await hub.erin.add_message(conversation_id, "user", "from elsewhere")
        await client.send("turn", id="t1", messages=TURN)
        assert words(await client.next()) == ["from elsewhere"]
        stored = await client.next()
        assert (stored["type"], stored["place"]["sequence"]) == ("stored", 3)


async def test_a_turn_under_an_id_that_is_being_answered_is_refused() -> None:
    async with open_hub() as hub:
        client = hub.client()
        await client.hello(session_id="kitchen")
        hub.agent.may_go_on.clear()
        await client.send("text", id="q1", text="good morning")
        await hub.agent.has_begun.wait()
        await client.send("turn", id="q1", messages=TURN)
        assert (await client.until("error"))["problem"]["status"] == 422
        hub.agent.may_go_on.set()
        assert (await client.until("answer.done"))["text"] == "you said good morning"


async def test_without_a_key_nothing_is_revealed() -> None:
    async with open_hub() as hub:
        for fields in ({"key": "wrong"}, {"key": ""}):
            client = hub.client()
            error = await client.hello(**fields)
            assert error["problem"]["status"] == 401
            assert await the_end(client) == CloseCode.NOT_AUTHENTICATED


async def test_the_first_frame_must_be_a_hello() -> None:
    async with open_hub() as hub:
        for frame in ('{"type":"text","id":"1","text":"hi"}', "{", "[]", '"hello"', '{"type":"no"}'):
            client = hub.client(authorization="Bearer erin")
            await client.connection.receive(frame)
            assert (await client.next())["problem"]["status"] == 422
            assert await the_end(client) == CloseCode.NO_HELLO


async def test_a_key_reaches_its_owner_only_and_says_the_same_for_all_others() -> None:
    async with open_hub() as hub:
        await hub.memory.of("not erin").get_or_create_conversation("kitchen")
        answers = []
        for owner in ("not erin", "nobody"):
            client = hub.client()
            answers.append(await client.hello(owner=owner))
            assert await the_end(client) == CloseCode.NOT_ALLOWED
        assert answers[0] == answers[1]
        assert answers[0]["problem"]["status"] == 403


async def test_another_owners_conversation_is_not_found() -> None:
    async with open_hub() as hub:
        theirs = await hub.memory.of("not erin").get_or_create_conversation("kitchen")
        client = hub.client()
        await client.hello(session_id="mine")
        for conversation_id in (theirs.id, str(uuid4())):
            await client.send("watch", conversation_id=conversation_id)
            error = await client.next()
            assert error["problem"]["type"] == "urn:aforesaid:problem:conversation-not-found"
        await client.send("text", id="1", text="hi", conversation_id=theirs.id)
        assert (await client.next())["problem"]["status"] == 404


async def test_a_key_of_several_owners_names_one() -> None:
    async with open_hub() as hub:
        client = hub.client()
        assert (await client.hello(key="both"))["problem"]["status"] == 422
        client = hub.client()
        assert (await client.hello(key="both", owner="not erin", session_id="s"))["owner"] == "not erin"


async def test_a_key_that_may_only_read_watches_and_says_nothing() -> None:
    async with open_hub() as hub:
        erin = hub.client()
        ready = await erin.hello(session_id="kitchen")
        reader = hub.client()
        assert (await reader.hello(key="reader", session_id="new"))["problem"]["status"] == 404
        await reader.hello(key="reader", session_id="kitchen")
        for type_, fields in (
            ("text", {"id": "1", "text": "hi"}),
            ("turn", {"id": "1", "messages": TURN}),
            ("typing", {"active": True}),
            ("audio.start", {"id": "a"}),
            ("interrupt", {}),
            ("bye", {}),
        ):
            await reader.send(type_, **fields)
            assert (await reader.next())["problem"]["status"] == 403
        await erin.say("q1", "good morning")
        assert words(await reader.until("messages")) == ["good morning", "you said good morning"]
        assert await hub.erin.session("new") is None
        assert ready["conversation"]["id"]


async def test_what_cannot_be_read_is_refused_and_the_connection_goes_on() -> None:
    async with open_hub() as hub:
        client = hub.client()
        await client.hello(session_id="kitchen")
        for frame in (
            "{",
            "null",
            "[1]",
            '{"type":"shout"}',
            '{"type":"text"}',
            '{"type":"text","id":"1","text":5}',
            '{"type":"text","id":"1","text":"  "}',
            '{"type":"text","id":"","text":"hi"}',
            '{"type":"text","id":"\\u0000","text":"hi"}',
            '{"type":"text","id":"1","text":"hi","colour":"red"}',
            '{"type":"text","id":"1","text":"\\ud800"}',
            '{"type":"turn","id":"1"}',
            '{"type":"turn","id":"1","messages":[]}',
            '{"type":"turn","id":"1","messages":{"role":"user","content":"hi"}}',
            '{"type":"turn","id":"1","messages":["hi"]}',
            '{"type":"turn","id":"1","messages":[{"role":"shouter","content":"hi"}]}',
            '{"type":"turn","id":"1","messages":[{"role":"user"}]}',
            '{"type":"turn","id":"1","messages":[{"role":null,"content":"hi","message_id":"m-1"}]}',
            '{"type":"turn","id":"1","messages":[{"role":"user","content":"hi"}],"dialect":"klingon"}',
            '{"type":"turn","id":"1","messages":[{"role":"user","content":"hi"}],"conversation_id":"x"}',
            '{"type":"turn","id":"","messages":[{"role":"user","content":"hi"}]}',
            '{"type":"watch","conversation_id":"kitchen"}',
            '{"type":"watch","conversation_id":"00000000-0000-0000-0000-000000000000","history":-1}',
            '{"type":"interrupt","heard":-1}',
            '{"type":"audio.end","id":"none"}',
            '{"type":"hello"}',
            "[" * 100_000,
        ):
            await client.connection.receive(frame)
            error = await client.next()
            assert error["type"] == "error", frame
            assert 400 <= error["problem"]["status"] < 500, frame
        assert (await client.say("q1", "still there?"))["text"] == "you said still there?"


async def test_a_frame_that_is_too_large_is_refused() -> None:
    async with open_hub(frame_bytes=1000) as hub:
        client = hub.client()
        await client.hello(session_id="kitchen")
        await client.send("text", id="1", text="x" * 1000)
        assert (await client.next())["problem"]["status"] == 413


async def test_an_answer_that_fails_is_reported_and_nothing_is_stored() -> None:
    async with open_hub() as hub:
        client = hub.client()
        ready = await client.hello(session_id="kitchen")

        async def broken(*_: object, **__: object) -> None:
            raise RuntimeError("inside")

        hub.agent.reply = broken  # type: ignore[assignment]
        await client.send("text", id="q1", text="hello")
        failed = await client.until("answer.failed")
        assert failed["id"] == "q1"
        assert failed["apology"]
        assert "inside" not in str(failed)
        assert await hub.erin.messages(ready["conversation"]["id"]) == []


async def test_the_same_text_twice_is_answered_once() -> None:
    async with open_hub() as hub:
        client = hub.client()
        ready = await client.hello(session_id="kitchen")
        hub.agent.may_go_on.clear()
        await client.send("text", id="q1", text="hello")
        await hub.agent.has_begun.wait()
        await client.send("text", id="q1", text="hello")
        hub.agent.may_go_on.set()
        await client.until("answer.done")
        again = await client.say("q1", "hello")
        assert again["repeated"]
        assert again["message_ids"] == ["q1", "q1/1"]
        assert "entries" not in again or not again["entries"]
        assert len(await hub.erin.messages(ready["conversation"]["id"])) == 2


async def test_an_id_that_stands_for_other_words_is_refused() -> None:
    async with open_hub() as hub:
        client = hub.client()
        await client.hello(session_id="kitchen")
        await client.say("q1", "hello")
        await client.send("text", id="q1", text="good bye")
        failed = await client.until("answer.failed")
        assert failed["problem"]["type"] == "urn:aforesaid:problem:message-conflict"


async def test_questions_of_one_conversation_are_answered_in_order() -> None:
    async with open_hub() as hub:
        client = hub.client()
        ready = await client.hello(session_id="kitchen")
        hub.agent.may_go_on.clear()
        for number in range(4):
            await client.send("text", id=f"q{number}", text=str(number))
        hub.agent.may_go_on.set()
        for _ in range(4):
            await client.until("answer.done")
        stored = await hub.erin.messages(ready["conversation"]["id"])
        assert [m.content for m in stored if m.role == "user"] == ["0", "1", "2", "3"]
        assert [m.role for m in stored] == ["user", "assistant"] * 4


async def test_more_questions_than_may_wait_are_refused() -> None:
    async with open_hub(turns_waiting=2) as hub:
        client = hub.client()
        await client.hello(session_id="kitchen")
        hub.agent.may_go_on.clear()
        for number in range(3):
            await client.send("text", id=f"q{number}", text=str(number))
        refused = await client.until("error")
        assert (refused["id"], refused["problem"]["status"]) == ("q2", 429)
        hub.agent.may_go_on.set()


async def test_typing_is_sent_to_the_other_watchers() -> None:
    async with open_hub() as hub:
        one, other, elsewhere = hub.client(), hub.client(), hub.client()
        ready = await one.hello(session_id="kitchen", name="Erin")
        await other.hello(conversation_id=ready["conversation"]["id"])
        await elsewhere.hello(session_id="garage")
        await one.send("typing", active=True)
        typing = await other.next()
        assert (typing["type"], typing["role"], typing["active"], typing["name"]) == (
            "typing",
            "user",
            True,
            "Erin",
        )
        await one.say("q1", "hello")
        assistant = await other.next()
        assert (assistant["type"], assistant["role"], assistant["active"]) == ("typing", "assistant", True)
        one.leave()
        gone = await other.until("typing")
        while gone["role"] != "user":
            gone = await other.until("typing")
        assert gone["active"] is False
        assert [frame["type"] for frame in elsewhere.frames] == ["ready"]


async def test_an_interrupted_answer_is_kept_as_far_as_it_was_heard() -> None:
    async with open_hub() as hub:
        client = hub.client()
        ready = await client.hello(session_id="kitchen")
        hub.agent.may_go_on.clear()
        await client.send("text", id="q1", text="tell me a story")
        assert (await client.until("answer.delta"))["text"] == "you "
        await client.send("interrupt", heard=3)
        done = await client.until("answer.done")
        assert done["interrupted"]
        assert done["text"] == "you "
        stored = await hub.erin.messages(ready["conversation"]["id"])
        assert [message.content for message in stored] == ["tell me a story", "you "]
        assert stored[1].speech == Speech(spoken="you ", heard=3)
        assert "interrupted" in stored[1].tags
        hub.agent.may_go_on.set()
        assert (await client.say("q2", "go on"))["text"] == "you said go on"


async def test_a_user_may_interrupt_while_a_complete_answer_is_spoken() -> None:
    async with open_hub() as hub:
        client = hub.client()
        ready = await client.hello(session_id="kitchen")
        await client.say("q1", "tell me a story")
        await client.send("interrupt", id="q1")
        assert (await client.next())["problem"]["field"] == "heard"
        await client.send("interrupt", id="q1", heard=8)
        changed = await client.until("changed")
        assert [entry["sequence"] for entry in changed["entries"]] == [2]
        _, answer = await hub.erin.messages(ready["conversation"]["id"])
        assert answer.content == "you said tell me a story"
        assert answer.speech == Speech(spoken="you said tell me a story", heard=8)


async def test_an_interruption_before_anything_was_heard_keeps_the_question() -> None:
    async with open_hub() as hub:
        client = hub.client()
        ready = await client.hello(session_id="kitchen")
        hub.agent.may_go_on.clear()
        await client.send("text", id="q1", text="first")
        await client.send("text", id="q2", text="second")
        await hub.agent.has_begun.wait()
        await client.send("interrupt", id="q2", heard=0)
        hub.agent.may_go_on.set()
        outcomes = [await client.until("answer.done"), await client.until("answer.done")]
        assert [frame["id"] for frame in outcomes if frame.get("interrupted")] == ["q2"]
        stored = await hub.erin.messages(ready["conversation"]["id"])
        assert sorted(message.content for message in stored) == ["first", "second", "you said first"]


async def test_interrupting_what_is_not_answered_is_an_error() -> None:
    async with open_hub() as hub:
        client = hub.client()
        await client.hello(session_id="kitchen")
        await client.send("interrupt", id="nothing")
        assert (await client.next())["problem"]["status"] == 404


async def test_audio_is_refused_where_the_server_does_not_understand_speech() -> None:
    async with open_hub() as hub:
        client = hub.client()
        await client.hello(session_id="kitchen")
        await client.send("audio.start", id="a1")
        error = await client.next()
        assert (error["id"], error["problem"]["status"]) == ("a1", 503)
        await client.connection.receive(b"\0\0")
        assert (await client.next())["problem"]["status"] == 422


async def understood(audio: bytes, _: object) -> Message:
    return Message(role="user", content=audio.decode(), content_type="audio")


async def test_audio_in_pieces_is_transcribed_stored_and_answered() -> None:
    async with open_hub(transcribe=understood) as hub:
        client = hub.client()
        ready = await client.hello(session_id="kitchen", channel="voice")
        await client.send("audio.start", id="a1")
        for piece in (b"good ", b"morning"):
            await client.connection.receive(piece)
        await client.send("audio.end", id="a1")
        assert (await client.next())["text"] == "good morning"
        done = await client.until("answer.done")
        assert done["text"] == "you said good morning"
        question, _ = await hub.erin.messages(ready["conversation"]["id"])
        assert (question.content, question.content_type) == ("good morning", "audio")


async def test_audio_has_its_limits_and_can_be_given_up() -> None:
    async with open_hub(transcribe=understood, audio_bytes=10, audio_frame_bytes=8) as hub:
        client = hub.client()
        await client.hello(session_id="kitchen")
        for pieces in ([b"x" * 9], [b"x" * 6, b"x" * 6]):
            await client.send("audio.start", id="a1")
            for piece in pieces:
                await client.connection.receive(piece)
            error = await client.next()
            assert (error["id"], error["problem"]["status"]) == ("a1", 413)
        await client.send("audio.start", id="a2")
        await client.send("audio.start", id="a3")
        assert (await client.next())["id"] == "a3"
        await client.send("audio.cancel", id="a2")
        await client.send("audio.end", id="a2")
        assert (await client.next())["problem"]["status"] == 404
        await client.send("audio.start", id="a4")
        await client.send("audio.end", id="a4")
        assert (await client.next())["problem"]["status"] == 422


async def test_frames_that_come_too_fast_are_refused_and_then_the_connection_ends() -> None:
    async with open_hub(frames_per_second=1, burst=3, refused_frames=2) as hub:
        client = hub.client()
        await client.hello(session_id="kitchen")
        for _ in range(2):
            await client.send("ping")
            assert (await client.next())["type"] == "pong"
        await client.send("ping")
        error = await client.next()
        assert (error["problem"]["status"], error["problem"]["retry_after"]) == (429, 1.0)
        hub.clock.now += 1
        await client.send("ping", at=1.5)
        assert await client.next() == {"type": "pong", "at": 1.5}
        for _ in range(3):
            await client.send("ping")
        assert await the_end(client) == CloseCode.TOO_MANY


async def test_a_key_asks_so_many_questions_a_minute_typed_or_spoken() -> None:
    """Whatever connection they come by; what is asked again while it is answered is no further question."""
    rates = Limits({"ask": 2}, monotonic=lambda: 0.0)
    async with open_hub(transcribe=understood, rates=rates) as hub:
        one, other = hub.client(), hub.client()
        await one.hello(session_id="kitchen")
        await other.hello(session_id="kitchen")
        hub.agent.may_go_on.clear()
        await one.send("text", id="q1", text="hello")
        await other.send("text", id="q1", text="hello")
        hub.agent.may_go_on.set()
        for client in (one, other):
            await client.until("answer.done")
        await speak(other, "a1", b"good morning")
        await other.until("answer.done")
        await one.send("text", id="q2", text="hello?")
        refused = await one.until("error")
        assert (refused["id"], refused["problem"]["status"]) == ("q2", 429)
        await speak(other, "a2", b"hello?")
        assert (await other.until("error"))["id"] == "a2"
        assert hub.agent.asked == ["hello", "good morning"]
        await one.send("text", id="w1", text="only a note", answer=False)
        await one.until("stored")


async def test_other_words_under_an_id_that_is_being_answered_are_refused() -> None:
    """An acknowledged question is stored, and no answer is assigned to another question."""
    async with open_hub(transcribe=understood) as hub:
        client, other = hub.client(), hub.client()
        ready = await client.hello(session_id="kitchen")
        await other.hello(session_id="kitchen")
        hub.agent.may_go_on.clear()
        await client.send("text", id="q1", text="what is the time?")
        await hub.agent.has_begun.wait()
        for each in (client, other):
            await each.send("text", id="q1", text="call the doctor")
            refused = await each.until("error")
            assert (refused["id"], refused["problem"]["status"]) == ("q1", 409)
            await speak(each, "q1", b"call the doctor")
            assert (await each.until("error"))["problem"]["status"] == 409
        hub.agent.may_go_on.set()
        assert (await client.until("answer.done"))["text"] == "you said what is the time?"
        stored = await hub.erin.messages(ready["conversation"]["id"])
        assert [message.content for message in stored] == ["what is the time?", "you said what is the time?"]


async def asked_in_both(hub: HubSetup, client: Client) -> tuple[str, str]:
    """Two conversations in which something is being answered, under the same id."""
    kitchen = (await client.hello(session_id="kitchen"))["conversation"]["id"]
    hall = (await hub.erin.get_or_create_conversation("hall")).id
    await client.send("watch", conversation_id=hall)
    hub.agent.may_go_on.clear()
    await client.send("text", id="q1", text="in the kitchen")
    await client.send("text", id="q1", text="in the hall", conversation_id=hall)
    return kitchen, hall


async def test_conversations_may_have_the_same_ids() -> None:
    async with open_hub() as hub:
        client = hub.client()
        kitchen, hall = await asked_in_both(hub, client)
        hub.agent.may_go_on.set()
        done = [await client.until("answer.done") for _ in range(2)]
        assert {frame["conversation_id"]: frame["text"] for frame in done} == {
            kitchen: "you said in the kitchen",
            hall: "you said in the hall",
        }


async def test_an_interruption_may_name_the_conversation() -> None:
    async with open_hub() as hub:
        client = hub.client()
        kitchen, hall = await asked_in_both(hub, client)
        await client.send("interrupt", id="q1", conversation_id=hall)
        stopped = await client.until("answer.done")
        assert (stopped["conversation_id"], stopped["interrupted"]) == (hall, True)
        hub.agent.may_go_on.set()
        done = await client.until("answer.done")
        assert (done["conversation_id"], done["text"]) == (kitchen, "you said in the kitchen")


async def speak(client: Client, utterance_id: str, audio: bytes) -> None:
    await client.send("audio.start", id=utterance_id)
    await client.connection.receive(audio)
    await client.send("audio.end", id=utterance_id)


@pytest.mark.parametrize("kind", ["text", "turn"])
async def test_a_key_stores_so_many_turns_a_minute(kind: str) -> None:
    fields: dict[str, Any] = {"text": "a note", "answer": False}
    if kind == "turn":
        fields = {"messages": [{"role": "user", "content": "a note"}]}
    async with open_hub(rates=Limits({"write": 1}, monotonic=lambda: 0.0)) as hub:
        client = hub.client()
        ready = await client.hello(session_id="kitchen")
        await client.send(kind, id="w1", **fields)
        await client.until("stored")
        await client.send(kind, id="w2", **fields)
        assert (await client.until("error"))["problem"]["retry_after"] == 60.0
        assert len(await hub.erin.messages(ready["conversation"]["id"])) == 1


async def test_a_key_has_so_many_connections() -> None:
    async with open_hub(connections_per_key=2) as hub:
        clients = [hub.client() for _ in range(3)]
        for client in clients[:2]:
            assert (await client.hello())["type"] == "ready"
        assert (await clients[2].hello())["problem"]["status"] == 429
        assert await the_end(clients[2]) == CloseCode.TOO_MANY
        clients[2].leave()
        clients[0].leave()
        assert (await hub.client().hello())["type"] == "ready"


async def test_silence_is_asked_about_and_then_taken_for_an_end() -> None:
    async with open_hub(heartbeat_seconds=20) as hub:
        client = hub.client()
        await client.hello(session_id="kitchen")
        cut = Mock(return_value=True)
        client.connection.abort = cut
        hub.clock.now += 21
        client.connection.tick()
        assert await client.next() == {"type": "ping"}
        await client.send("pong")
        hub.clock.now += 15
        client.connection.tick()
        hub.clock.now += 6
        client.connection.tick()
        assert await client.next() == {"type": "ping"}
        hub.clock.now += 21
        client.connection.tick()
        assert await the_end(client) == CloseCode.GONE
        cut.assert_called_once()


async def test_a_peer_that_does_not_read_is_cut_off() -> None:
    async with open_hub(stall_seconds=30) as hub:
        client = hub.client()
        await client.hello(session_id="kitchen")
        cut = Mock(return_value=True)
        client.connection.abort = cut
        hub.clock.now += 31
        client.connection.tick()
        cut.assert_called_once()
        assert await the_end(client) == CloseCode.TOO_SLOW


async def test_who_says_no_hello_in_time_is_sent_away() -> None:
    async with open_hub(hello_seconds=5) as hub:
        client = hub.client()
        hub.clock.now += 6
        client.connection.tick()
        assert await the_end(client) == CloseCode.NO_HELLO


async def test_a_key_that_ends_ends_its_connections() -> None:
    async with open_hub(recheck_seconds=0.01) as hub:
        client = hub.client()
        await client.hello(session_id="kitchen")
        del hub.authenticator.callers["erin"]
        assert await asyncio.wait_for(the_end(client), PATIENCE) == CloseCode.NOT_AUTHENTICATED


async def test_a_key_that_cannot_be_verified_ends_its_connections() -> None:
    """A key that was revoked elsewhere must not go on talking for as long as an outage lasts."""
    async with open_hub(recheck_seconds=0.01) as hub:
        client = hub.client()
        await client.hello(session_id="kitchen")

        async def away(headers: Mapping[bytes, bytes]) -> Caller:
            raise StoreUnavailable

        hub.authenticator.authenticate = away  # type: ignore[method-assign]
        assert await asyncio.wait_for(the_end(client), PATIENCE) == CloseCode.TRY_LATER


async def test_a_key_that_cannot_be_looked_at_keeps_no_other_from_being() -> None:
    async with open_hub(recheck_seconds=0.01) as hub:
        erin, sam = hub.client(), hub.client()
        await erin.hello(session_id="kitchen")
        await sam.hello(key="sam", session_id="kitchen")
        stumbled = asyncio.Event()
        authenticate = hub.authenticator.authenticate

        async def stumbling(headers: Mapping[bytes, bytes]) -> Caller:
            if headers[b"authorization"] == b"Bearer erin":
                stumbled.set()
                raise KeyError("keys")
            return await authenticate(headers)

        hub.authenticator.authenticate = stumbling  # type: ignore[method-assign]
        await asyncio.wait_for(stumbled.wait(), PATIENCE)
        del hub.authenticator.callers["sam"]
        assert await asyncio.wait_for(the_end(sam), PATIENCE) == CloseCode.NOT_AUTHENTICATED
        assert erin.connection.ending is None


async def test_bye_ends_the_session_and_the_connection() -> None:
    async with open_hub() as hub:
        client = hub.client()
        await client.hello(session_id="kitchen")
        await client.say("q1", "hello")
        await client.send("bye")
        assert await the_end(client) == CloseCode.NORMAL
        assert await hub.erin.session("kitchen") is None


async def test_a_server_that_ends_finishes_its_answers_first() -> None:
    async with open_hub() as hub:
        client = hub.client()
        ready = await client.hello(session_id="kitchen")
        hub.agent.may_go_on.clear()
        await client.send("text", id="q1", text="hello")
        await hub.agent.has_begun.wait()
        draining = asyncio.create_task(hub.live.drain())
        await asyncio.sleep(0)
        await client.send("text", id="q2", text="one more")
        assert (await client.until("error"))["problem"]["status"] == 503
        hub.agent.may_go_on.set()
        assert (await client.until("answer.done"))["text"] == "you said hello"
        assert await the_end(client) == CloseCode.RESTARTING
        client.leave()
        await asyncio.wait_for(draining, PATIENCE)
        assert len(await hub.erin.messages(ready["conversation"]["id"])) == 2


async def test_an_answer_that_takes_too_long_to_end_is_given_up_and_leaves_what_was_sent() -> None:
    async with open_hub(drain_seconds=0) as hub:
        client = hub.client()
        ready = await client.hello(session_id="kitchen")
        hub.agent.may_go_on.clear()
        await client.send("text", id="q1", text="hello")
        await hub.agent.has_begun.wait()
        draining = asyncio.create_task(hub.live.drain())
        failed = await client.until("answer.failed")
        assert failed["problem"]["status"] == 502
        assert await the_end(client) == CloseCode.RESTARTING
        client.leave()
        await draining
        question, answer = await hub.erin.messages(ready["conversation"]["id"])
        assert question.content == "hello"
        assert answer.content.endswith("[incomplete: the turn was cancelled]")


async def test_an_answer_that_cannot_be_stored_is_delivered_and_sent_to_watchers_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise StoreUnavailable("the disk is full")

    async with open_hub() as hub:
        client, watcher = hub.client(), hub.client()
        ready = await client.hello(session_id="kitchen")
        conversation_id = ready["conversation"]["id"]
        await watcher.hello(conversation_id=conversation_id)
        with monkeypatch.context() as patched:
            patched.setattr(InMemoryStore, "append", fail)
            done = await client.say("q1", "hello")
            assert (done["text"], done["stored"], done["entries"]) == ("you said hello", False, [])
            again = hub.client()
            await again.hello(session_id="kitchen", place=ready["place"])
            repeated = await again.say("q1", "hello")
            assert (repeated["text"], repeated["stored"]) == ("you said hello", False)
            assert hub.agent.asked == ["hello"], "the model is asked once"
        await hub.memory.unstored.settled()
        describe = await watcher.until("messages")
        assert words(describe)[0] == "hello"
        stored = await hub.erin.messages(conversation_id)
        assert [message.content for message in stored] == ["hello", "you said hello"]
        assert (await client.say("q2", "go on")).get("stored", True)


async def test_an_interrupted_answer_that_cannot_be_stored_is_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise StoreUnavailable("the disk is full")

    async with open_hub() as hub:
        client = hub.client()
        ready = await client.hello(session_id="kitchen")
        hub.agent.may_go_on.clear()
        with monkeypatch.context() as patched:
            patched.setattr(InMemoryStore, "append", fail)
            await client.send("text", id="q1", text="tell me a story")
            await client.until("answer.delta")
            await client.send("interrupt", heard=3)
            done = await client.until("answer.done")
            assert (done["interrupted"], done["stored"], done["text"]) == (True, False, "you ")
        await hub.memory.unstored.settled()
        stored = await hub.erin.messages(ready["conversation"]["id"])
        assert [message.content for message in stored] == ["tell me a story", "you "]
