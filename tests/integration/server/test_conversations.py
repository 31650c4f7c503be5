"""Conversations and messages over HTTP, on a real socket: what works, and what is refused."""

import asyncio
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.integration.server.running import Running

TURN = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]}


async def opened(server: Running, session: str = "kitchen", **headers: str) -> str:
    answer = await server.client.post("/v1/conversations", json={"session_id": session}, headers=headers)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


def said(answer: httpx.Response) -> list[Any]:
    return [entry["message"]["content"] for entry in answer.json()["entries"]]


async def test_a_turn_is_stored_and_read_back(server: Running) -> None:
    kitchen = await opened(server)
    stored = await server.client.post(f"/v1/conversations/{kitchen}/turns", json=TURN)
    assert stored.status_code == 201, stored.text
    assert stored.json()["conversation"]["message_count"] == 2
    assert stored.headers["etag"] == f'"{stored.json()["conversation"]["revision"]}"'
    page = await server.client.get(f"/v1/conversations/{kitchen}/messages")
    assert said(page) == ["hi", "hello"]
    assert page.json()["next"] is None


async def test_content_of_a_provider_is_kept_as_it_was_given(server: Running) -> None:
    kitchen = await opened(server)
    call = {"id": "c1", "type": "function", "function": {"name": "lock", "arguments": "{}"}}
    given = [
        {"role": "user", "content": "lock the door", "name": "erin"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "locked"},
    ]
    stored = await server.client.post(f"/v1/conversations/{kitchen}/turns", json={"messages": given})
    assert stored.status_code == 201, stored.text
    request = await server.client.get(f"/v1/conversations/{kitchen}/context?dialect=openai_chat")
    assert request.json()["messages"] == given


async def test_half_of_a_surrogate_pair_and_deep_content_are_kept(server: Running) -> None:
    kitchen = await opened(server)
    body = b'{"messages":[{"role":"user","content":"half \\ud83d of a pair"}]}'
    headers = {"Content-Type": "application/json"}
    stored = await server.client.post(f"/v1/conversations/{kitchen}/turns", content=body, headers=headers)
    assert stored.status_code == 201, stored.text
    page = await server.client.get(f"/v1/conversations/{kitchen}/messages")
    assert said(page) == ["half \ud83d of a pair"]


@pytest.mark.parametrize(
    "body",
    [
        b'{"session_id": "k", "channel": "\\ud800"}',
        b'{"session_id": "k", "\\ud800": 1}',
        b'{"session_id": "k", "ttl": "\\ud800"}',
    ],
)
async def test_half_of_a_surrogate_pair_is_refused_where_no_text_is_kept(
    server: Running, body: bytes
) -> None:
    headers = {"Content-Type": "application/json"}
    refused = await server.client.post("/v1/conversations", content=body, headers=headers)
    assert (refused.status_code, refused.json()["type"]) == (422, "urn:aforesaid:problem:invalid-input")


async def test_an_encoded_slash_is_part_of_a_name(server: Running) -> None:
    body = {"role": "user", "content": "hello"}
    stored = await server.client.post("/v1/conversations/a%2Fmessages/messages", json=body)
    assert stored.status_code == 201
    found = await server.client.get("/v1/conversations/a%2Fmessages")
    assert found.json()["name"] == "a/messages"
    assert found.json()["id"] == stored.json()["conversation"]["id"]


@pytest.mark.parametrize("path", ["conversations%2F{}", "conversations%2F{}/messages"])
async def test_an_encoded_slash_leads_nowhere(server: Running, path: str) -> None:
    kitchen = await opened(server)
    nowhere = await server.client.get("/v1/" + path.format(kitchen))
    unknown = await server.client.get("/v1/nothing")
    assert nowhere.status_code == 404
    assert nowhere.json() == unknown.json()


async def test_pages_lead_from_one_to_the_next(server: Running) -> None:
    kitchen = await opened(server)
    for number in range(7):
        body = {"role": "user", "content": str(number)}
        await server.client.post(f"/v1/conversations/{kitchen}/messages", json=body)
    answer = await server.client.get(f"/v1/conversations/{kitchen}/messages?offset=0&limit=3")
    seen = said(answer)
    while "next" in answer.links:
        answer = await server.client.get(answer.links["next"]["url"])
        seen += said(answer)
    assert seen == [str(number) for number in range(7)]


async def test_the_newest_messages_come_first_and_a_cursor_leads_back(server: Running) -> None:
    kitchen = await opened(server)
    for number in range(5):
        body = {"role": "user", "content": str(number)}
        await server.client.post(f"/v1/conversations/{kitchen}/messages", json=body)
    path = f"/v1/conversations/{kitchen}/messages?limit=2&before="
    newest = await server.client.get(path + "latest")
    assert said(newest) == ["3", "4"]
    await server.client.post(f"/v1/conversations/{kitchen}/turns", json=TURN)
    older = await server.client.get(path + newest.json()["next"])
    assert said(older) == ["1", "2"]
    oldest = await server.client.get(older.links["next"]["url"])
    assert said(oldest) == ["0"]
    assert oldest.json()["next"] is None


async def test_a_listing_leads_from_page_to_page(server: Running) -> None:
    made = {await opened(server, f"session {number}") for number in range(5)}
    answer = await server.client.get("/v1/conversations?limit=2&channel=voice")
    seen = [each["id"] for each in answer.json()["conversations"]]
    while "next" in answer.links:
        answer = await server.client.get(answer.links["next"]["url"])
        seen += [each["id"] for each in answer.json()["conversations"]]
    assert set(seen) == made
    assert len(seen) == 5


async def test_what_was_seen_is_not_sent_again(server: Running) -> None:
    kitchen = await opened(server)
    first = await server.client.get(f"/v1/conversations/{kitchen}")
    again = await server.client.get(
        f"/v1/conversations/{kitchen}", headers={"If-None-Match": first.headers["etag"]}
    )
    assert again.status_code == 304
    assert again.content == b""
    await server.client.post(f"/v1/conversations/{kitchen}/turns", json=TURN)
    moved = await server.client.get(
        f"/v1/conversations/{kitchen}", headers={"If-None-Match": first.headers["etag"]}
    )
    assert moved.status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PATCH", "", {"subject": "Dinner"}),
        ("POST", "/turns", TURN),
        ("DELETE", "/messages", None),
        ("DELETE", "", None),
    ],
)
async def test_a_write_that_insists_on_what_it_saw_is_refused_when_that_has_passed(
    server: Running, method: str, path: str, body: Any
) -> None:
    kitchen = await opened(server)
    seen = (await server.client.get(f"/v1/conversations/{kitchen}")).headers["etag"]
    await server.client.post(f"/v1/conversations/{kitchen}/turns", json=TURN)
    refused = await server.client.request(
        method, f"/v1/conversations/{kitchen}{path}", json=body, headers={"If-Match": seen}
    )
    assert refused.status_code == 412
    assert refused.json()["type"] == "urn:aforesaid:problem:revision-conflict"
    page = await server.client.get(f"/v1/conversations/{kitchen}/messages")
    assert said(page) == ["hi", "hello"]
    now = (await server.client.get(f"/v1/conversations/{kitchen}")).headers["etag"]
    done = await server.client.request(
        method, f"/v1/conversations/{kitchen}{path}", json=body, headers={"If-Match": now}
    )
    assert done.status_code in (200, 201, 204)


async def test_a_record_changes_and_null_empties(server: Running) -> None:
    kitchen = await opened(server)
    path = f"/v1/conversations/{kitchen}"
    changed = await server.client.patch(path, json={"subject": "Dinner", "tags": ["food"], "ttl": 3600})
    assert (changed.json()["subject"], changed.json()["tags"]) == ("Dinner", ["food"])
    assert changed.json()["ttl"] == 3600
    emptied = await server.client.patch(path, json={"subject": None, "ttl": None})
    assert (emptied.json()["subject"], emptied.json()["ttl"]) == (None, None)
    assert emptied.json()["tags"] == ["food"]


async def test_a_client_is_linked_and_let_go(server: Running) -> None:
    path = f"/v1/conversations/{await opened(server)}/client"
    unknown = await server.client.put(path, json={"client_id": str(uuid4()), "client_name": "Ann"})
    assert unknown.status_code == 404
    ann = (await server.client.post("/v1/clients", json={"name": "Ann"})).json()["id"]
    linked = await server.client.put(path, json={"client_id": ann, "client_name": "Ann"})
    assert (linked.json()["client_id"], linked.json()["client_name"]) == (ann, "Ann")
    alone = await server.client.delete(path)
    assert (alone.json()["client_id"], alone.json()["client_name"]) == (None, None)


async def test_a_context_is_a_window_with_a_report(server: Running) -> None:
    kitchen = await opened(server)
    for number in range(4):
        turn = {"messages": [{"role": "user", "content": str(number)}]}
        await server.client.post(f"/v1/conversations/{kitchen}/turns", json=turn)
    asked = {"policy": {"max_messages": 2}, "pending": [{"role": "user", "content": "now"}]}
    context = await server.client.post(f"/v1/conversations/{kitchen}/context", json=asked)
    assert [each["content"] for each in context.json()["messages"]] == ["3", "now"]
    assert context.json()["report"]["message_count"] == 5
    simple = await server.client.get(f"/v1/conversations/{kitchen}/context?max_messages=1&dialect=anthropic")
    assert simple.json()["messages"] == [{"role": "user", "content": "3"}]


async def test_concurrent_turns_are_all_stored(server: Running) -> None:
    kitchen = await opened(server)
    answers = await asyncio.gather(
        *(server.client.post(f"/v1/conversations/{kitchen}/turns", json=TURN) for _ in range(20))
    )
    assert {answer.status_code for answer in answers} == {201}
    record = (await server.client.get(f"/v1/conversations/{kitchen}")).json()
    assert (record["message_count"], record["revision"]) == (40, 20)


async def test_an_id_that_is_taken_by_other_words_is_a_conflict(server: Running) -> None:
    path = f"/v1/conversations/{await opened(server)}/messages"
    first = {"role": "user", "content": "one", "message_id": "m"}
    assert (await server.client.post(path, json=first)).status_code == 201
    assert (await server.client.post(path, json=first)).json()["known"] != []
    other = await server.client.post(path, json=first | {"content": "two"})
    assert other.status_code == 409
    assert other.json()["message_id"] == "m"


HOSTILE: list[tuple[str, bytes, int]] = [
    ("malformed", b'{"messages": [', 400),
    ("empty", b"", 400),
    ("not UTF-8", b'{"messages":[{"role":"user","content":"\xff\xfe"}]}', 400),
    ("deep", b'{"messages":[{"role":"user","content":' + b"[" * 50_000 + b"]" * 50_000 + b"}]}", 400),
    ("NaN", b'{"messages":[{"role":"user","content":NaN}]}', 400),
    ("a list", b"[]", 422),
    ("null", b"null", 422),
    ("no messages", b'{"messages":[]}', 422),
    ("a wrong type", b'{"messages":"hi"}', 422),
    ("a role that is none", b'{"messages":[{"role":"king","content":"hi"}]}', 422),
    ("no role", b'{"messages":[{"content":"hi"}]}', 422),
    ("NUL in an id", b'{"messages":[{"role":"user","content":"hi","message_id":"a\\u0000b"}]}', 422),
    ("NUL in a tag", b'{"messages":[{"role":"user","content":"hi","tags":["\\u0000"]}]}', 422),
    ("a naive moment", b'{"messages":[{"role":"user","content":"a","timestamp":"2026-01-01T00:00"}]}', 422),
    ("an unknown field", b'{"messages":[{"role":"user","content":"hi"}],"mesages":1}', 422),
    ("a revision below zero", b'{"messages":[{"role":"user","content":"hi"}],"expected_revision":-1}', 422),
    ("an unknown dialect", b'{"messages":[{"role":"user","content":"hi"}],"dialect":"klingon"}', 422),
    ("too many", b'{"messages":[' + b",".join([b'{"role":"user","content":"hi"}'] * 1001) + b"]}", 422),
]


@pytest.mark.parametrize(
    ("body", "status"), [each[1:] for each in HOSTILE], ids=[each[0] for each in HOSTILE]
)
async def test_a_turn_that_cannot_be_used_is_refused_with_a_reason_and_stores_nothing(
    server: Running, body: bytes, status: int
) -> None:
    path = f"/v1/conversations/{await opened(server)}"
    refused = await server.client.post(
        f"{path}/turns", content=body, headers={"Content-Type": "application/json"}
    )
    assert refused.status_code == status, refused.text
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.json()["detail"]
    assert (await server.client.get(path)).json()["message_count"] == 0


async def test_text_with_nul_in_content_is_kept(server: Running) -> None:
    kitchen = await opened(server)
    turn = {"messages": [{"role": "user", "content": "a\0b"}]}
    assert (await server.client.post(f"/v1/conversations/{kitchen}/turns", json=turn)).status_code == 201
    assert said(await server.client.get(f"/v1/conversations/{kitchen}/messages")) == ["a\0b"]


async def test_a_body_of_another_type_is_refused(server: Running) -> None:
    path = f"/v1/conversations/{await opened(server)}/turns"
    refused = await server.client.post(path, content=b"hi", headers={"Content-Type": "text/plain"})
    assert refused.status_code == 415


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/conversations/not-a-uuid", 404),
        ("/v1/conversations/%FF", 422),
        ("/v1/conversations/..%2F..", 404),
        ("/v1/conversations/01a1e174-4c20-4812-9e6e-13464433e8ca", 404),
        ("/v1/conversations?limit=0", 422),
        ("/v1/conversations?limit=many", 422),
        ("/v1/conversations?after=nonsense", 422),
        ("/v1/conversations?no_such_filter=1", 422),
        ("/v1/conversations?assigned_to=%FF", 422),
        ("/v1/conversations?date_from=2026-01-01T00:00", 422),
        ("/v1/search?timezone=Atlantis/Capital", 422),
        ("/v1/search?timezone=%2B99:99", 422),
        ("/v1/search?timezone=../../etc/passwd", 422),
        ("/v1/nonsense", 404),
        ("/nonsense", 404),
    ],
)
async def test_a_question_that_makes_no_sense_is_refused(server: Running, path: str, status: int) -> None:
    refused = await server.client.get(path)
    assert refused.status_code == status, refused.text
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.json()["status"] == status


async def test_a_method_that_is_not_known_is_refused(server: Running) -> None:
    refused = await server.client.put("/v1/conversations", json={})
    assert refused.status_code == 405
    assert refused.headers["content-type"] == "application/problem+json"


async def test_the_methods_of_a_path_are_named_without_a_key(guarded: Running) -> None:
    answer = await guarded.client.options("/v1/conversations/trip")
    assert (answer.status_code, answer.content) == (204, b"")
    named = set(answer.headers["allow"].split(", "))
    assert named == {"OPTIONS", "GET", "PATCH", "DELETE"}
