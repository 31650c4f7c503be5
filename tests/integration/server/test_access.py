"""No request without a valid key reaches any data."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from aforesaid.errors import InvalidInput, NotAuthenticated, NotFound, StoreUnavailable
from aforesaid.server.app import ENDPOINTS
from aforesaid.server.auth import authenticator as authenticators
from aforesaid.server.auth.authenticator import Authenticator
from aforesaid.server.auth.keys import KIND, ApiKeys, Caller
from aforesaid.server.openapi import EXAMPLES, openapi_document
from aforesaid.server.routes import conversations
from tests.integration.server.running import Running, serving

OPEN = {"/health", "/ready"}
"""What tells nothing about anybody."""


def every_operation() -> Iterator[tuple[str, str]]:
    for path, methods in openapi_document(ENDPOINTS)["paths"].items():
        for method in methods:
            if path not in OPEN:
                yield method.upper(), path


class Watched:
    """A backend that says whose data were asked for."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self.asked: list[str] = []

    def of(self, owner: str) -> Any:
        self.asked.append(owner)
        return self._backend.of(owner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


async def called(server: Running, method: str, path: str, headers: dict[str, str]) -> Any:
    ids = {"conversation_id": str(uuid4()), "client_id": str(uuid4()), "note_id": str(uuid4())}
    for name, value in ids.items():
        path = path.replace("{" + name + "}", value)
    return await server.client.request(method, path, headers=headers, json={})


async def test_no_route_is_reached_without_a_good_key(guarded: Running) -> None:
    """Every route of the OpenAPI document: without a key, with a wrong one, an expired one, a revoked one."""
    await guarded.memory.of("erin").get_or_create_conversation("kitchen")
    gone, key = await guarded.keys.create(["erin"], scope="admin")
    await guarded.keys.revoke(key.id)
    expired, _ = await guarded.keys.create(["erin"], scope="admin", expires_in=timedelta(microseconds=1))
    other_secret = gone[:16] + "A" * len(gone[16:])
    shown = ["", "Bearer", "Bearer nonsense", f"Bearer {gone}", f"Bearer {expired}", f"Bearer {other_secret}"]
    shown += [f"Basic {gone}", "Bearer a.b.c", "Bearer " + "x" * 20_000]
    watched = Watched(guarded.memory.backend)
    guarded.memory.backend = watched
    answers = set()
    for method, path in every_operation():
        for authorization in shown:
            headers = {"Authorization": authorization} if authorization else {}
            answer = await called(guarded, method, path, headers | {"Aforesaid-Owner": "erin"})
            assert answer.status_code == 401, f"{method} {path} with {authorization[:40]!r}"
            assert answer.headers["www-authenticate"] == 'Bearer realm="aforesaid"'
            answers.add(answer.content)
    assert len(answers) == 1, "whatever is wrong with a key, the answer is the same"
    assert watched.asked == []
    await called(guarded, "GET", "/v1/conversations", await guarded.key("erin"))
    assert watched.asked == ["erin"]


async def test_no_route_reaches_an_owner_beyond_the_key(guarded: Running) -> None:
    """Whether the owner exists or not: the same answer, and none of their data is touched."""
    await guarded.memory.of("erin").get_or_create_conversation("kitchen")
    key = await guarded.key("bob", "carol", scope="admin")
    watched = Watched(guarded.memory.backend)
    guarded.memory.backend = watched
    for endpoint in ENDPOINTS:
        if not endpoint.needs_owner:
            continue
        answers = [
            await called(guarded, endpoint.method, endpoint.full_path, key | {"Aforesaid-Owner": owner})
            for owner in ("erin", "nobody-at-all", "aforesaid.journal")
        ]
        assert {answer.status_code for answer in answers} == {403}, endpoint.name
        assert len({answer.content for answer in answers}) == 1
    assert watched.asked == []


@pytest.mark.parametrize("scope", ["read", "write"])
async def test_a_key_reaches_no_further_than_its_scope(guarded: Running, scope: Any) -> None:
    key = await guarded.key("erin", scope=scope)
    allowed = {"read": ("read",), "write": ("read", "write")}[scope]
    for endpoint in ENDPOINTS:
        if endpoint.path == "/changes":  # an answer without an end
            continue
        if endpoint.path == "/health/series":  # needs a key for all owners, whatever its scope
            continue
        answer = await called(guarded, endpoint.method, endpoint.full_path, key)
        assert (answer.status_code == 403) == (endpoint.scope not in allowed), endpoint.name


async def test_an_owner_is_implied_where_the_key_has_one_and_asked_for_where_it_has_several(
    guarded: Running,
) -> None:
    one, several = await guarded.key("erin"), await guarded.key("erin", "bob")
    body = {"session_id": "kitchen"}
    first = await guarded.client.post("/v1/conversations", json=body, headers=one)
    unsaid = await guarded.client.post("/v1/conversations", json=body, headers=several)
    assert unsaid.status_code == 422
    assert unsaid.json()["field"] == "Aforesaid-Owner"
    said = await guarded.client.post(
        "/v1/conversations", json=body, headers=several | {"Aforesaid-Owner": "erin"}
    )
    assert said.json()["id"] == first.json()["id"]
    other = await guarded.client.post(
        "/v1/conversations", json=body, headers=several | {"Aforesaid-Owner": "bob"}
    )
    assert other.json()["id"] != first.json()["id"]


async def test_any_owner_can_be_named(guarded: Running) -> None:
    key = await guarded.key("*", scope="read")
    name = "Zoë/ü 🏠 100%"
    await guarded.memory.of(name).get_or_create_conversation("kitchen")
    quoted = "Zo%C3%AB%2F%C3%BC%20%F0%9F%8F%A0%20100%25"
    found = await guarded.client.get("/v1/conversations", headers=key | {"Aforesaid-Owner": quoted})
    assert len(found.json()["conversations"]) == 1
    wrong = await guarded.client.get("/v1/conversations", headers=key | {"Aforesaid-Owner": "%FF"})
    assert wrong.status_code == 422
    owners = await guarded.client.get("/v1/owners", headers=key)
    assert owners.json() == {"owners": [name]}


async def test_a_revoked_key_is_refused_within_the_bound(
    guarded: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it was let in just before: what is remembered of it is looked up again in time."""
    now = 0.0
    keys = ApiKeys(guarded.memory.backend)
    authenticator = Authenticator(keys, monotonic=lambda: now)
    text, key = await keys.create(["erin"])
    headers = {b"authorization": f"Bearer {text}".encode()}
    assert (await authenticator.authenticate(headers)).name == f"key:{key.id}"
    await keys.revoke(key.id)
    now = authenticators.CACHE_SECONDS - 0.01
    await authenticator.authenticate(headers)
    now = authenticators.CACHE_SECONDS
    with pytest.raises(NotAuthenticated):
        await authenticator.authenticate(headers)


async def test_a_revoked_key_hears_no_more_changes(guarded: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authenticators, "CACHE_SECONDS", 0.0)
    monkeypatch.setattr(conversations, "RECHECK_SECONDS", 0.01)
    text, key = await guarded.keys.create(["erin"], scope="read")
    headers = {"Authorization": f"Bearer {text}"}
    async with guarded.client.stream("GET", "/v1/changes", headers=headers) as answer:
        lines = answer.aiter_lines()
        assert await anext(lines) == ": watching"
        await guarded.keys.revoke(key.id)
        assert [line async for line in lines if line] == []


async def test_a_stream_of_changes_ends_when_its_key_cannot_be_verified(
    guarded: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that was revoked elsewhere must not hear changes for as long as an outage lasts."""
    monkeypatch.setattr(conversations, "RECHECK_SECONDS", 0.01)
    key = await guarded.key("erin", scope="read")
    async with guarded.client.stream("GET", "/v1/changes", headers=key) as answer:
        lines = answer.aiter_lines()
        assert await anext(lines) == ": watching"

        async def away(headers: authenticators.Headers) -> Caller:
            raise StoreUnavailable

        monkeypatch.setattr(guarded.service.authenticator, "authenticate", away)
        assert [line async for line in lines if line.startswith("data: ")] == []


async def test_only_a_digest_of_a_key_is_kept(guarded: Running) -> None:
    text, key = await guarded.keys.create(["erin"], name="kitchen")
    secret = text.rpartition("_")[2] if text.count("_") == 2 else text[16:]
    documents = await guarded.memory.backend.of("aforesaid.journal").documents(KIND)
    assert len(documents) == 1
    assert secret.encode() not in documents[0].data
    assert [each.id for each in await guarded.keys.list()] == [key.id]


async def test_keys_that_make_no_sense_are_not_made(guarded: Running) -> None:
    for owners in ([], [""], ["a\0b"], ["aforesaid.journal"]):
        with pytest.raises(InvalidInput):
            await guarded.keys.create(owners)
    with pytest.raises(InvalidInput):
        await guarded.keys.create(["erin"], scope="root")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput):
        await guarded.keys.create(["erin"], expires_in=timedelta(days=-1))
    with pytest.raises(NotFound):
        await guarded.keys.revoke("000000000000")


# A server without keys


async def test_the_first_key_closes_the_door(server: Running) -> None:
    assert (await server.client.get("/v1/conversations")).status_code == 200
    key = await server.key("default")
    server.service.authenticator._open_since = -authenticators.CACHE_SECONDS  # as after some seconds
    assert (await server.client.get("/v1/conversations")).status_code == 401
    assert (await server.client.get("/v1/conversations", headers=key)).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Host": "192.168.1.5:8765"},
    ],
    ids=str,
)
async def test_an_open_server_is_for_programs_on_this_machine(
    server: Running, headers: dict[str, str]
) -> None:
    """A web page in a browser on this machine is not one of them."""
    answer = await server.client.post("/v1/erase", headers=headers)
    assert answer.status_code == 403


async def test_a_page_of_this_machine_may_ask(server: Running) -> None:
    answer = await server.client.get("/v1/conversations", headers={"Origin": "http://localhost:3000"})
    assert answer.status_code == 200


async def test_refusals_are_in_the_audit_trail_without_what_was_shown(tmp_path: Any) -> None:
    trail = tmp_path / "audit.jsonl"
    async with serving(audit=trail, open_without_keys=False) as guarded:
        key = await guarded.key("erin", scope="read")
        await guarded.client.get("/v1/conversations", headers={"Authorization": "Bearer ak_secret_secret"})
        await guarded.client.post("/v1/erase", headers=key)
        await guarded.client.get("/v1/conversations", headers=key)
    lines = trail.read_text()
    assert '"action":"GET /conversations"' in lines
    assert '"action":"POST /erase"' in lines
    assert lines.count('"outcome":"denied"') == 2
    assert '"actor":"key:' in lines
    assert "ak_" not in lines


def test_every_route_with_a_body_has_an_example() -> None:
    named = {endpoint.name for endpoint in ENDPOINTS if endpoint.takes_body and endpoint.body_media is None}
    assert named == set(EXAMPLES)
