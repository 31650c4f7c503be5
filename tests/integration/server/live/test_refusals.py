"""The audit trail records every refusal, by HTTP and by WebSocket alike."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from aforesaid.audit import AuditTrail
from aforesaid.protocol.live import CloseCode
from aforesaid.server.auth import authenticator as authenticators
from aforesaid.server.limits import LiveLimits
from aforesaid.settings import ServerConfig
from tests.integration.server.live.sockets import Connecting, connecting
from tests.integration.server.running import UNLIMITED, Running, serving


@asynccontextmanager
async def audited(
    folder: Path, *, open_without_keys: bool = False, settings: ServerConfig = UNLIMITED, **limits: Any
) -> AsyncIterator[Running]:
    async with serving(
        audit=AuditTrail(folder / "audit.jsonl"),
        open_without_keys=open_without_keys,
        settings=settings,
        app_options={"live_limits": LiveLimits(**limits)},
    ) as server:
        yield server


def connect(server: Running, **options: Any) -> Connecting:
    return connecting(server.url.replace("http", "ws") + "/ws", **options)


def denied(folder: Path) -> list[dict[str, Any]]:
    """Refusals of the server. What the store does not have is noted as denied too, under other actions."""
    found = [json.loads(line) for line in (folder / "audit.jsonl").read_text().splitlines()]
    refused = [each for each in found if each.get("outcome") == "denied"]
    return [each for each in refused if each["action"].startswith(("WS ", "GET "))]


async def test_a_wrong_key_leaves_the_same_entry_either_way(tmp_path: Path) -> None:
    async with audited(tmp_path) as server:
        await server.client.get("/v1/conversations", headers={"Authorization": "Bearer ak_secret"})
        async with connect(server) as client:
            await client.hello(key="ak_secret")
            assert await client.close_code() == CloseCode.NOT_AUTHENTICATED
    by_http, by_socket = denied(tmp_path)
    assert by_http["action"] == "GET /conversations"
    assert by_socket["action"] == "WS hello"
    for same in ("actor", "source", "outcome", "owner"):
        assert by_http.get(same) == by_socket.get(same), same
    assert "ak_" not in (tmp_path / "audit.jsonl").read_text()


async def test_every_kind_of_refusal_is_noted(tmp_path: Path) -> None:
    async with audited(tmp_path, connections_per_key=1) as server:
        reads, _ = await server.keys.create(["erin"], scope="read")
        conversation = await server.memory.of("erin").get_or_create_conversation("kitchen")
        async with connect(server) as client:
            await client.hello()
            await client.close_code()
        async with connect(server) as client:
            await client.hello(key=reads, owner="sam")
            assert await client.close_code() == CloseCode.NOT_ALLOWED
        async with connect(server) as client:
            assert (await client.hello(key=reads, conversation_id=conversation.id))["type"] == "ready"
            await client.send("text", id="q1", text="unlock the door")
            assert (await client.next())["problem"]["status"] == 403
            async with connect(server) as another:
                await another.hello(key=reads, conversation_id=conversation.id)
                assert await another.close_code() == CloseCode.TOO_MANY
    assert [(each["action"], each["actor"]) for each in denied(tmp_path)] == [
        ("WS hello", "NotAuthenticated"),
        ("WS hello", "NotAllowed"),
        ("WS text", "NotAllowed"),
        ("WS hello", "TooManyRequests"),
    ]


async def test_a_refused_page_of_another_site_is_in_the_audit_trail(tmp_path: Path) -> None:
    foreign = {"origin": "https://evil.example"}
    async with audited(tmp_path, open_without_keys=True) as server, connect(server, **foreign) as client:
        await client.hello(session_id="kitchen")
        assert await client.close_code() == CloseCode.NOT_ALLOWED
    assert [each["action"] for each in denied(tmp_path)] == ["WS hello"]


async def test_a_key_that_ends_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authenticators, "CACHE_SECONDS", 0.01)
    async with audited(tmp_path, recheck_seconds=0.01) as server:
        text, key = await server.keys.create(["erin"])
        async with connect(server) as client:
            await client.hello(key=text, session_id="kitchen")
            await server.keys.revoke(key.id)
            assert await client.close_code() == CloseCode.NOT_AUTHENTICATED
    assert {each["action"] for each in denied(tmp_path)} == {"WS recheck"}


async def test_metrics_that_are_refused_are_noted(tmp_path: Path) -> None:
    async with audited(tmp_path) as server:
        key = await server.key("erin")
        assert (await server.client.get("/metrics")).status_code == 401
        assert (await server.client.get("/metrics", headers=key)).status_code == 403
    assert [each["action"] for each in denied(tmp_path)] == ["GET /metrics", "GET /metrics"]
