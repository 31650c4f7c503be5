"""A server without keys answers programs on this machine and refuses proxied and cross-site requests."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest
from litestar import get
from litestar.routes import HTTPRoute, WebSocketRoute
from websockets.exceptions import InvalidStatus

from aforesaid.errors import NotAllowed
from aforesaid.protocol.live import CloseCode
from aforesaid.server.auth import authenticator as authenticators
from aforesaid.server.auth.authenticator import check_address, check_headers, check_request
from tests.integration.server.live.sockets import Serving, live_serving
from tests.integration.server.running import Running, serving

HEALTH = {"/health", "/ready"}
"""What answers everybody."""

FORWARDED = [
    {"Forwarded": "for=192.0.2.60;proto=http"},
    {"X-Forwarded-For": "192.0.2.60"},
    {"X-Forwarded-Proto": "https"},
    {"X-Forwarded-Host": "memory.example.org"},
    {"X-Forwarded-Anything": ""},
    {"X-Real-IP": "192.0.2.60"},
    {"Via": "1.1 proxy"},
    {"True-Client-IP": "192.0.2.60"},
    {"CF-Connecting-IP": "192.0.2.60"},
    {"X-Original-Forwarded-For": "192.0.2.60"},
    {"X-Envoy-External-Address": "192.0.2.60"},
    {"Tailscale-User-Login": "erin@example.org"},
    {"CDN-Loop": "cdn.example"},
]
CROSS_SITE = [{"Sec-Fetch-Site": site} for site in ("cross-site", "same-site", "Cross-Site", "nonsense", "")]
FOREIGN = [*FORWARDED, *CROSS_SITE, {"Host": "evil.example"}, {"Origin": "https://evil.example"}]


def operations(app: Any) -> Iterator[tuple[str, str]]:
    """Every method of every HTTP route that the application has, with its path filled in."""
    for route in app.framework.routes:
        if isinstance(route, HTTPRoute):
            path = route.path_format
            for name in route.path_parameters:
                path = path.replace("{" + str(name) + "}", str(uuid4()))
            for method in sorted(route.methods - {"OPTIONS"}):
                yield method, path


@get("/added")
async def added() -> str:
    """A route that a program of its own adds to the application."""
    return "reached"


async def requested(server: Running, method: str, path: str, headers: dict[str, str]) -> httpx.Response:
    return await server.client.request(method, path, headers=headers, json={})


async def test_no_route_of_a_server_without_keys_answers_a_request_from_elsewhere() -> None:
    async with serving(app_options={"route_handlers": [added]}) as server:
        found = list(operations(server.app))
        assert {path for _, path in found} > {"/metrics", "/schema", "/added", "/v1/erase", *HEALTH}
        for method, path in found:
            for headers in FOREIGN:
                answer = await requested(server, method, path, headers)
                expected = 200 if path in HEALTH else 403
                assert answer.status_code == expected, f"{method} {path} with {headers}"


async def test_local_requests_reach_every_route() -> None:
    """What is refused above is refused for its headers."""
    async with serving(app_options={"route_handlers": [added]}) as server:
        for method, path in operations(server.app):
            if path == "/v1/changes":  # an answer without an end
                continue
            for headers in ({}, {"Sec-Fetch-Site": "none"}, {"Sec-Fetch-Site": "same-origin"}):
                answer = await requested(server, method, path, headers)
                assert answer.status_code not in (401, 403), f"{method} {path} with {headers}"


async def test_an_erasure_through_a_proxy_erases_nothing() -> None:
    async with serving() as server:
        erin = server.memory.of("default")
        conversation = await erin.get_or_create_conversation("kitchen")
        await erin.add_message(conversation.id, "user", "hello")
        headers = {"Host": "localhost", "X-Forwarded-For": "192.0.2.60", "X-Forwarded-Proto": "https"}
        answer = await server.client.post("/v1/erase", headers=headers)
        assert answer.status_code == 403
        assert "keys create" in answer.json()["detail"]
        assert len(await erin.messages(conversation.id)) == 1


async def test_the_websocket_of_a_server_without_keys_refuses_them_too() -> None:
    async with live_serving() as server:
        assert {
            route.path for route in server.server._app.framework.routes if isinstance(route, WebSocketRoute)
        } == {"/ws"}
        for headers in [*FORWARDED, *CROSS_SITE]:
            assert await handshake(server, headers) == 403, headers


async def handshake(server: Serving, headers: dict[str, str]) -> int:
    """The status with which a WebSocket without a key is refused: at the handshake, or after its hello."""
    try:
        async with server.connect(additional_headers=headers) as client:
            refused = await client.hello(session_id="kitchen")
            assert await client.close_code() == CloseCode.NOT_ALLOWED
            return int(refused["problem"]["status"])
    except InvalidStatus as error:
        return error.response.status_code


async def test_a_key_works_through_a_proxy_at_once() -> None:
    """The guard of a server that was started without keys must not refuse a client that has a key by now."""
    async with serving() as server:
        assert (await server.client.get("/v1/conversations")).status_code == 200
        key = await server.key("erin")
        server.service.authenticator._open_since = -authenticators.CACHE_SECONDS  # as after some seconds
        forwarded = key | {"X-Forwarded-For": "192.0.2.60", "Host": "memory.example.org"}
        assert (await server.client.get("/v1/conversations", headers=forwarded)).status_code == 200
        assert (await server.client.get("/v1/conversations")).status_code == 401


async def test_a_request_by_http_1_0_counts_as_forwarded() -> None:
    """nginx sends it unless its configuration says otherwise, and adds no header of its own."""
    headers = [(b"host", b"localhost")]
    with pytest.raises(NotAllowed, match="proxy"):
        check_request({"client": ("127.0.0.1", 1), "http_version": "1.0", "headers": headers})
    check_request({"client": ("127.0.0.1", 1), "http_version": "1.1", "headers": headers})


@pytest.mark.parametrize("address", ["192.0.2.1", "::ffff:192.0.2.1", "2001:db8::1", "testclient", ""])
def test_another_address_is_not_this_machine(address: str) -> None:
    with pytest.raises(NotAllowed):
        check_address({"client": (address, 1)})


@pytest.mark.parametrize("client", [None, ("127.0.0.1", 1), ("::1", 1), ("::ffff:127.0.0.1", 1)])
def test_loopback_and_unix_sockets_are_this_machine(client: Any) -> None:
    check_address({"client": client})


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {b"x-request-id": b"1", b"user-agent": b"curl", b"accept": b"*/*", b"traceparent": b"00-1-2-01"},
        {b"host": b"[::1]:8765", b"origin": b"http://localhost:8765"},
        {b"aforesaid-owner": b"erin", b"idempotency-key": b"1", b"if-match": b'"1"'},
    ],
    ids=str,
)
def test_headers_that_programs_send_are_fine(headers: dict[bytes, bytes]) -> None:
    check_headers(headers)


async def test_refusals_of_the_guard_are_in_the_audit_trail(tmp_path: Any) -> None:
    trail = tmp_path / "audit.jsonl"
    async with serving(audit=trail) as server:
        headers = {"X-Forwarded-For": "192.0.2.60"}
        await server.client.get("/schema", headers=headers)
        await server.client.get(f"/v1/conversations/{uuid4()}", headers=headers)
    lines = trail.read_text()
    assert lines.count('"outcome":"denied"') == 2
    assert '"action":"GET /schema"' in lines
    assert '"action":"GET /conversations/{conversation_id}"' in lines
    assert '"source":"192.0.2.60"' in lines, "the address that the proxy on this machine names"
