"""The WebSocket over real sockets: who is let in, what is streamed, how it ends, how it is taken up again."""

import base64
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from aforesaid.contracts import PCM
from aforesaid.protocol.live import CloseCode
from aforesaid.server.limits import ConnectionLimits
from aforesaid.settings import VoiceConfig
from tests.integration.server.live.parts import comes_true, words
from tests.integration.server.live.sockets import Serving, Socket, connecting, connecting_slowly, live_serving
from tests.integration.server.test_sessions import Listener


def offered(key: str, owner: str | None = None) -> list[str]:
    """What a browser offers as subprotocols to show its key."""

    def encoded(text: str) -> str:
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    named = [] if owner is None else [f"aforesaid.owner.{encoded(owner)}"]
    return ["aforesaid.v1", f"aforesaid.bearer.{encoded(key)}", *named]


async def test_a_turn_is_streamed_and_stored(tmp_path: Path) -> None:
    async with live_serving(f"sqlite:///{tmp_path}/memory.db") as server:
        key = await server.key("erin")
        async with server.connect() as client:
            ready = await client.hello(key=key, session_id="kitchen")
            server.agent.may_go_on.clear()
            await client.send("text", id="q1", text="good morning")
            assert (await client.next())["text"] == "you "
            server.agent.may_go_on.set()
            done = await client.until("answer.done")
            assert done["text"] == "you said good morning"
            stored = await server.memory.of("erin").messages(ready["conversation"]["id"])
            assert [message.content for message in stored] == ["good morning", "you said good morning"]


@pytest.mark.parametrize(("percent", "comes"), [(90, "transcript"), (91, "answer.failed")])
async def test_what_is_said_must_be_as_sure_as_the_settings_want(percent: int, comes: str) -> None:
    voice = VoiceConfig(least_confidence_percent=percent)
    async with live_serving(transcriber=Listener(), voice=voice) as server, server.connect() as client:
        await client.hello(session_id="kitchen")
        await client.send("audio.start", id="a1", media_type=PCM, rate=16_000, channels=1)
        await client.socket.send(b"\0\x30\0\xd0" * 8_000)
        await client.send("audio.end", id="a1")
        assert (await client.next())["type"] == comes


@pytest.mark.parametrize("way", ["header", "subprotocol", "hello"])
async def test_a_key_comes_by_header_by_subprotocol_or_in_the_hello(way: str) -> None:
    async with live_serving() as server:
        key = await server.key("erin", "sam")
        options: dict[str, Any] = {}
        hello: dict[str, Any] = {"session_id": "kitchen"}
        if way == "header":
            options["additional_headers"] = {"Authorization": f"Bearer {key}", "Aforesaid-Owner": "sam"}
        elif way == "subprotocol":
            options["subprotocols"] = offered(key, "sam")
        else:
            hello |= {"key": key, "owner": "sam"}
        async with server.connect(**options) as client:
            assert (await client.hello(**hello))["owner"] == "sam"
            assert client.socket.subprotocol == ("aforesaid.v1" if way == "subprotocol" else None)


async def test_nothing_is_revealed_without_a_valid_key() -> None:
    async with live_serving() as server:
        erin = await server.key("erin")
        conversation = await server.memory.of("erin").get_or_create_conversation("kitchen")
        await server.memory.of("erin").add_message(conversation.id, "user", "my secret")
        revoked, known = await server.keys.create(["erin"])
        await server.keys.revoke(known.id)
        for options, hello in (
            ({}, {}),
            ({}, {"key": "ak_nothing"}),
            ({}, {"key": revoked}),
            ({"additional_headers": {"Authorization": "Bearer nonsense"}}, {}),
            ({"subprotocols": offered("nonsense")}, {}),
            ({"subprotocols": ["aforesaid.v1", "aforesaid.bearer.%%%"]}, {}),
        ):
            async with server.connect(**options) as client:
                await client.hello(session_id="kitchen", **hello)
                assert await client.close_code() == CloseCode.NOT_AUTHENTICATED
                assert "secret" not in str(client.frames)
        async with server.connect() as client:
            await client.hello(key=erin, owner="sam")
            assert await client.close_code() == CloseCode.NOT_ALLOWED


async def test_an_open_server_answers_no_page_of_another_site() -> None:
    async with live_serving() as server:
        async with server.connect() as client:
            assert (await client.hello(session_id="kitchen"))["owner"] == "default"
        async with server.connect(origin="https://evil.example") as client:
            assert (await client.hello(session_id="kitchen"))["problem"]["status"] == 403
            assert await client.close_code() == CloseCode.NOT_ALLOWED


async def test_a_revoked_key_ends_its_connections_within_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aforesaid.server.auth.authenticator.CACHE_SECONDS", 0.05)
    async with live_serving(recheck_seconds=0.05) as server:
        text, key = await server.keys.create(["erin"])
        async with server.connect() as client:
            await client.hello(key=text, session_id="kitchen")
            await server.keys.revoke(key.id)
            assert await client.close_code() == CloseCode.NOT_AUTHENTICATED


async def test_a_key_that_expires_ends_its_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    async with live_serving(recheck_seconds=0.05) as server:
        key = await server.key("erin", expires_in=timedelta(hours=1))
        async with server.connect() as client:
            assert (await client.hello(key=key, session_id="kitchen"))["type"] == "ready"
            later = datetime.now(UTC) + timedelta(hours=2)
            monkeypatch.setattr(server.live.authenticator, "_clock", lambda: later)
            assert await client.close_code() == CloseCode.NOT_AUTHENTICATED


async def test_a_second_client_sees_the_conversation_live() -> None:
    async with live_serving() as server:
        key = await server.key("erin")
        async with server.connect() as one, server.connect(subprotocols=offered(key)) as browser:
            ready = await one.hello(key=key, session_id="kitchen")
            await browser.hello(conversation_id=ready["conversation"]["id"])
            await one.send("typing", active=True)
            assert (await browser.until("typing"))["active"]
            await one.say("q1", "good morning")
            assert words(await browser.until("messages")) == ["good morning", "you said good morning"]


async def test_a_dropped_connection_is_taken_up_again_without_loss_or_repeats(tmp_path: Path) -> None:
    async with live_serving(f"sqlite:///{tmp_path}/memory.db") as server:
        key = await server.key("erin")
        async with server.connect() as client:
            ready = await client.hello(key=key, session_id="kitchen")
            server.agent.may_go_on.clear()
            await client.send("text", id="q1", text="hello")
            await client.until("answer.delta")
            client.drop()
        async with server.connect() as again:
            resumed = await again.hello(key=key, session_id="kitchen", place=ready["place"])
            assert resumed["answering"] == ["q1"]
            server.agent.may_go_on.set()
            done = await again.until("answer.done")
            assert words(done) == ["hello", "you said hello"]
            repeated = await again.say("q1", "hello")
            assert repeated["repeated"]
            assert server.agent.asked == ["hello"]
        assert len(await server.memory.of("erin").messages(ready["conversation"]["id"])) == 2


async def test_connections_that_drop_free_what_they_held() -> None:
    async with live_serving(heartbeat_seconds=0.2) as server:
        key = await server.key("erin")
        async with AsyncExitStack() as stack:
            for _ in range(10):
                client = await stack.enter_async_context(server.connect())
                await client.hello(key=key, session_id="kitchen")
                client.drop()
            await comes_true(lambda: not server.live._peers)
        assert len(server.live.feeds) == 0
        assert not server.live._concurrency._open


async def test_a_client_that_is_silent_is_dropped() -> None:
    async with live_serving(heartbeat_seconds=0.2) as server:
        key = await server.key("erin")
        async with server.connect() as client:
            await client.hello(key=key, session_id="kitchen")
            assert await client.close_code() == CloseCode.GONE
            assert client.frames[-1] == {"type": "ping"}


async def test_a_client_that_gives_a_sign_stays() -> None:
    async with live_serving(heartbeat_seconds=0.1) as server:
        key = await server.key("erin")
        async with server.connect() as client:
            await client.hello(key=key, session_id="kitchen")
            for _ in range(5):
                await client.until("ping")
                await client.send("pong")
            assert (await client.say("q1", "here"))["text"] == "you said here"


async def store_until_one_is_left(server: Serving, reader: Socket, conversation_id: str) -> None:
    """Store long messages, which one of two clients reads, until the server has given up the other one."""
    erin = server.memory.of("erin")
    while len(server.live._peers) == 2:
        await erin.add_message(conversation_id, "user", "x" * 200_000)
        await reader.until("messages")


async def test_a_slow_watcher_delays_no_client_and_learns_why_it_is_cut_off() -> None:
    """It does not read; others go on; what it held is freed; behind what it left unread comes the reason."""
    async with live_serving(stall_seconds=0.5) as server:
        key = await server.key("erin")
        async with server.connect() as one, connecting_slowly(server.port) as slow:
            ready = await one.hello(key=key, session_id="kitchen")
            conversation_id = ready["conversation"]["id"]
            await slow.hello(key=key, conversation_id=conversation_id)
            await store_until_one_is_left(server, one, conversation_id)
            assert (await one.say("q1", "still there?"))["text"] == "you said still there?"
            # The server has done what it does for this client before the client reads on.
            await comes_true(lambda: len(server.server.server_state.tasks) == 1)
            assert await slow.close_code() == CloseCode.TOO_SLOW
            place = slow.frames[-1]["place"]
        async with server.connect() as again:
            resumed = await again.hello(key=key, conversation_id=conversation_id, place=place)
            assert resumed["resumed"]


async def test_a_client_that_never_reads_is_cut_off_after_a_grace_period() -> None:
    async with live_serving(stall_seconds=0.5, socket_limits=ConnectionLimits(stall_seconds=0.5)) as server:
        key = await server.key("erin")
        async with server.connect() as one, connecting_slowly(server.port) as deaf:
            ready = await one.hello(key=key, session_id="kitchen")
            await deaf.hello(key=key, conversation_id=ready["conversation"]["id"])
            await store_until_one_is_left(server, one, ready["conversation"]["id"])
            open_connections = server.server.server_state.connections
            await comes_true(lambda: len(open_connections) == 1)


async def test_a_server_that_stops_finishes_its_answers_and_says_so(tmp_path: Path) -> None:
    async with live_serving(f"sqlite:///{tmp_path}/memory.db") as server:
        key = await server.key("erin")
        async with server.connect() as client:
            ready = await client.hello(key=key, session_id="kitchen")
            server.agent.may_go_on.clear()
            await client.send("text", id="q1", text="hello")
            await client.until("answer.delta")
            server.server.stop()
            await comes_true(lambda: server.live.is_draining)
            server.agent.may_go_on.set()
            assert (await client.until("answer.done"))["text"] == "you said hello"
            assert await client.close_code() == CloseCode.RESTARTING
        stored = await server.memory.of("erin").messages(ready["conversation"]["id"])
        assert [message.content for message in stored] == ["hello", "you said hello"]


async def test_a_frame_beyond_all_limits_closes_with_a_documented_code() -> None:
    async with live_serving() as server:
        key = await server.key("erin")
        async with server.connect() as client:
            await client.hello(key=key, session_id="kitchen")
            await client.send("text", id="1", text="x" * 300_000)
            assert (await client.next())["problem"]["status"] == 413
            await client.send("text", id="1", text="x" * 3_000_000)
            assert await client.close_code() == CloseCode.TOO_LARGE


async def test_a_full_server_says_to_come_again() -> None:
    async with live_serving(connections=1) as server:
        key = await server.key("erin")
        async with server.connect() as one, server.connect() as other:
            await one.hello(key=key)
            assert await other.close_code() == CloseCode.TRY_LATER


async def test_there_is_no_other_socket() -> None:
    async with live_serving() as server:
        with pytest.raises(InvalidStatus):
            async with connecting(f"{server.url}/elsewhere"):
                pass
