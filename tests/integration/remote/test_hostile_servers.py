"""Servers that are not ours, are ill, or go away: every one ends in an error of ours, and nothing hangs."""

import asyncio
import json
import logging
from typing import Any

import pytest

import aforesaid
from aforesaid.errors import (
    AforesaidError,
    NotAllowed,
    NotAuthenticated,
    Overloaded,
    StoreClosed,
    StoreForeign,
    StoreUnavailable,
    TooManyRequests,
)
from aforesaid.model.ids import new_id
from aforesaid.remote import Client, Network, RemoteMemory, RetryPolicy
from tests.integration.remote.scripted import DROP, HANG, answer, scripted

KEY = "ak_verysecret"
ID = "0193b0f0-0000-7000-8000-000000000001"
QUICK = RetryPolicy(timeout=30, attempts=3, first_pause=0.001, longest_pause=0.01)
HURRIED = RetryPolicy(timeout=0.2, attempts=3, first_pause=0.001, longest_pause=0.01)
RECORD = json.dumps(
    {"id": ID, "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z", "ttl": None}
)


def problem(status: int, name: str, **data: Any) -> bytes:
    document = {
        "type": f"urn:aforesaid:problem:{name}",
        "title": "x",
        "status": status,
        "detail": "said",
        **data,
    }
    return answer(status, json.dumps(document), "application/problem+json")


async def asked(url: str, patience: RetryPolicy = QUICK) -> Any:
    async with RemoteMemory(url, key=KEY, network=Network(retry=patience, verify=False)) as memory:
        return await memory.of("erin").get_conversation(ID)


@pytest.mark.parametrize(
    ("said", "error", "words"),
    [
        (answer(200, "<html>welcome</html>", "text/html"), StoreForeign, "check the URL"),
        (answer(200, "", ""), StoreForeign, "check the URL"),
        (answer(200, '{"id": "', "application/json"), StoreUnavailable, "truncated or invalid JSON"),
        (answer(200, b"\xff\xfe", "application/json"), StoreUnavailable, "truncated or invalid JSON"),
        (answer(200, "[]"), StoreForeign, "another release"),
        (answer(200, '{"id": 7}'), StoreForeign, "another release"),
        (answer(200, RECORD.replace("2026", "x")), StoreForeign, "another release"),
        (answer(200, "[" * 100_000), StoreUnavailable, "truncated or invalid JSON"),
        (answer(301, "", "text/html", location="https://elsewhere"), StoreForeign, "elsewhere"),
        (answer(404, "<p>nginx</p>", "text/html"), StoreForeign, "404"),
        (answer(404, "not json", "application/problem+json"), StoreForeign, "404"),
        (answer(404, "[]", "application/problem+json"), StoreForeign, "404"),
        (answer(405, "", ""), StoreForeign, "405"),
        (answer(404, '{"type": "about:blank"}', "application/problem+json"), StoreForeign, "release"),
        (answer(500, "Traceback", "text/plain"), StoreUnavailable, "500"),
        (answer(502, "<p>bad gateway</p>", "text/html"), StoreUnavailable, "502"),
        (answer(503, "", ""), StoreUnavailable, "503"),
        (answer(429, "", ""), TooManyRequests, "later"),
        (problem(401, "not-authenticated"), NotAuthenticated, "said"),
        (problem(403, "not-allowed"), NotAllowed, "said"),
        (problem(503, "overloaded"), Overloaded, "said"),
        (problem(418, "from-the-future"), AforesaidError, "said"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\nconnection: close\r\n\r\n{", StoreUnavailable, "failed"),
        (b"220 smtp.example.org ESMTP\r\nconnection: close\r\n", StoreUnavailable, "failed"),
        (
            b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 3\r\n\r\nabc",
            StoreUnavailable,
            "failed",
        ),
        (DROP, StoreUnavailable, "failed"),
    ],
)
async def test_what_comes_back_is_not_believed(said: bytes, error: type[AforesaidError], words: str) -> None:
    async with scripted(said) as server:
        with pytest.raises(error, match=words) as raised:
            await asked(server.url)
        assert type(raised.value) is error
        assert KEY not in str(raised.value)


async def test_a_server_that_does_not_answer_is_away() -> None:
    async with scripted(HANG) as server:
        with pytest.raises(StoreUnavailable, match="in time") as raised:
            await asked(server.url, HURRIED)
        assert KEY not in str(raised.value)


async def test_it_comes_through_when_the_server_is_back() -> None:
    async with scripted(DROP, answer(503), HANG, answer(200, RECORD)) as server:
        # Only the third is sure to take longer: on a busy machine others may, and are sent again, too.
        patient = RetryPolicy(timeout=1.5, attempts=20, first_pause=0.001, longest_pause=0.01)
        record = await asked(server.url, patient)
        assert record.id == ID
        assert len(server.asked) >= 4


async def test_a_write_that_is_sent_again_is_the_same_to_the_letter() -> None:
    async with (
        scripted(DROP, answer(502), problem(404, "conversation-not-found", conversation_id=ID)) as server,
        RemoteMemory(server.url, key=KEY, network=Network(retry=QUICK, verify=False)) as memory,
    ):
        with pytest.raises(aforesaid.errors.ConversationNotFound):
            await memory.of("erin").add_message(ID, "user", "hello")
    bodies = {one.body for one in server.asked}
    assert len(server.asked) == 3
    assert len(bodies) == 1
    assert json.loads(bodies.pop())["message_id"]
    first, *repeats = [one.headers.get("idempotency-key") for one in server.asked]
    assert first is None
    assert repeats[0] is not None
    assert repeats == [repeats[0]] * 2


async def test_what_must_not_be_done_twice_is_not_sent_twice() -> None:
    async with (
        scripted(DROP) as server,
        RemoteMemory(server.url, network=Network(retry=QUICK, verify=False)) as memory,
    ):
        with pytest.raises(StoreUnavailable, match="it is unknown whether"):
            await memory.of("erin").erase()
    assert len(server.asked) == 1


async def test_whose_it_is_goes_in_a_header_whatever_the_name() -> None:
    name = "erin/../ö%\u200b\n😀"
    async with (
        scripted(answer(200, RECORD)) as server,
        RemoteMemory(server.url, network=Network(verify=False)) as memory,
    ):
        await memory.of(name).get_conversation(ID)
    from urllib.parse import unquote

    assert unquote(server.asked[0].headers["aforesaid-owner"]) == name
    assert "authorization" not in server.asked[0].headers


async def test_a_context_comes_in_time_with_what_is_being_said() -> None:
    async with scripted(HANG) as server:
        config = aforesaid.ConversationConfig(context_deadline=1)
        async with RemoteMemory(server.url, config=config, network=Network(verify=False)) as memory:
            erin = memory.of("erin")
            pending = [erin.intake.message("user", "is anybody there?")]
            async with asyncio.timeout(120):
                context = await erin.load_context(ID, pending=pending)
            assert context.report.degraded
            assert [message["content"] for message in context] == ["is anybody there?"]
            assert "did not answer" in context.report.warnings[0]


async def test_closing_twice_and_using_after_close() -> None:
    memory = await RemoteMemory("http://127.0.0.1:9", network=Network(verify=False))
    erin = memory.of("erin")
    await memory.close()
    await memory.close()
    with pytest.raises(StoreClosed):
        await erin.get_conversation(ID)
    with pytest.raises(StoreClosed):
        await RemoteMemory("http://127.0.0.1:9").of("erin").get_conversation(ID)
    client = Client("http://127.0.0.1:9")
    with pytest.raises(StoreClosed):
        client.of("erin").get_conversation(ID)
    client.close()
    client.close()


async def test_closing_while_something_is_under_way_ends_it() -> None:
    async with scripted(HANG) as server:
        memory = await RemoteMemory(server.url, network=Network(verify=False))
        task = asyncio.create_task(memory.of("erin").get_conversation(ID))
        await server.was_asked.wait()
        await memory.close()
        with pytest.raises((StoreClosed, StoreUnavailable)):
            async with asyncio.timeout(120):
                await task


async def test_calls_beyond_the_connections_wait_and_get_an_error() -> None:
    async with scripted(HANG) as server:
        patience = RetryPolicy(timeout=0.2, attempts=1)
        async with RemoteMemory(
            server.url, network=Network(connections=2, retry=patience, verify=False)
        ) as memory:
            erin = memory.of("erin")
            calls = [erin.get_conversation(new_id()) for _ in range(6)]
            ends = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(end, StoreUnavailable) for end in ends)
        assert len(server.asked) <= 4
        assert any(isinstance(end, Overloaded) for end in ends)


async def test_an_unreachable_server_is_an_error_of_ours_for_both(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        await asked("http://127.0.0.1:9")

    def wait() -> None:
        with Client("http://127.0.0.1:9", key=KEY, network=Network(retry=QUICK, verify=False)) as client:
            client.of("erin").get_conversation(ID)

    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        await asyncio.to_thread(wait)
    assert KEY not in caplog.text


async def test_the_one_that_waits_follows_the_same_rules() -> None:
    def wait(url: str) -> Any:
        with Client(url, key=KEY, network=Network(retry=QUICK, verify=False)) as client:
            return client.of("erin").get_conversation(ID)

    async with scripted(DROP, answer(503), answer(200, RECORD)) as server:
        assert (await asyncio.to_thread(wait, server.url)).id == ID
        assert len(server.asked) == 3
        assert server.asked[0].headers["authorization"] == f"Bearer {KEY}"


async def test_a_watch_of_a_server_that_is_not_ours() -> None:
    for said in (answer(200, "<p>hello</p>", "text/html"), answer(404, "", "text/html")):
        async with (
            scripted(said) as server,
            RemoteMemory(server.url, network=Network(verify=False)) as memory,
        ):
            with pytest.raises(StoreForeign):
                async with memory.of("erin").watch():
                    pass
