"""Servers behind nginx and Caddy with the shipped configurations."""

import asyncio
import re
import ssl
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import httpx
import pytest

from tests.servers.load import Load, client, rolled
from tests.servers.running import PROXIES, Process, bare_nginx, new_key, server
from tests.servers.streams import watching

# As the recipes say: longer than the proxies keep idle connections.
LAME_DUCK = "5"


def two_servers(folder: Path) -> tuple[list[Process], str]:
    url = f"sqlite:///{folder}/memory.db"
    key = new_key(url, "--owner", "erin")
    settings = {
        "AFORESAID_REQUIRE_KEYS": "true",
        "AFORESAID_LAME_DUCK_SECONDS": LAME_DUCK,
        "AFORESAID_RATE_WRITE": "0",
        "AFORESAID_RATE_READ": "0",
    }
    return [server(folder, url, **settings) for _ in range(2)], key


@pytest.mark.parametrize("proxy", PROXIES)
async def test_a_rolling_restart_fails_no_request_and_no_stream(tmp_path: Path, proxy: str) -> None:
    servers, key = two_servers(tmp_path)
    for each in servers:
        each.start()
    try:
        with PROXIES[proxy](tmp_path, [each.address for each in servers]) as address:
            load = Load(address, key)
            running = asyncio.create_task(load.run())
            async with watching(address, key, session="load-0") as seen:
                await asyncio.sleep(1)
                await rolled(servers)
                load.stop()
                await running
                expected = load.said_by(0)
                await seen.until(expected)
            assert set(load.statuses) <= {200, 201}, load.statuses
            assert load.statuses[201] > 100
            assert seen.texts == expected
            async with client(address, key) as http:
                stats = (await http.get("/v1/stats")).json()
            assert stats["messages"] == len(load.stored)
    finally:
        for each in servers:
            each.stop()


SPELLINGS = (
    "/metrics", "/metrics/", "//metrics", "/metrics?x=1", "/%6detrics", "/%6Detrics", "/./metrics",
    "/x/../metrics", "/METRICS", "/metrics%2f", "/metrics;x", "/metrics%00", "/v1/../metrics",
)  # fmt: skip


@pytest.mark.parametrize("path", ["", "/memory"])
@pytest.mark.parametrize("proxy", PROXIES)
async def test_metrics_are_hidden_in_every_spelling(tmp_path: Path, proxy: str, path: str) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    key = new_key(url, "--owner", "*", "--scope", "admin")
    one = server(tmp_path, url, AFORESAID_REQUIRE_KEYS="true")
    one.start()
    try:
        with PROXIES[proxy](tmp_path, [one.address], path=path) as address:
            async with client(one.address, key) as http:
                assert "aforesaid_build_info" in (await http.get("/metrics")).text
            for spelling in SPELLINGS:
                text = await raw_get(address, f"{path}{spelling}", key)
                assert b"aforesaid_build_info" not in text, spelling
    finally:
        one.stop()


LINK = re.compile(r'(?:href|src)="([^"#]+)"')


@pytest.mark.parametrize("proxy", PROXIES)
async def test_everything_works_under_a_path(tmp_path: Path, proxy: str) -> None:
    """Pages link relatively, and the OpenAPI document names the server relative to itself."""
    servers, key = two_servers(tmp_path)
    servers[0].start()
    try:
        with PROXIES[proxy](tmp_path, [servers[0].address], path="/memory") as address:
            async with client(address, key) as http, watching(address, key, session="kitchen") as seen:
                for page in ("/", "/schema", "/console/"):
                    await check_links(http, f"{address}{page}")
                document = f"{address}/schema/openapi.json"
                base = urljoin(document, (await http.get(document)).json()["servers"][0]["url"])
                turn = {"session_id": "kitchen", "messages": [{"role": "user", "content": "hello"}]}
                stored = await http.post(f"{base.rstrip('/')}/v1/sessions/turns", json=turn)
                assert stored.status_code == 201
                await seen.until(["hello"])
    finally:
        servers[0].stop()


async def check_links(http: httpx.AsyncClient, page: str) -> None:
    """All files and pages of this machine that a page names are there."""
    answer = await http.get(page)
    assert answer.status_code == 200, page
    links = [urljoin(page, each) for each in LINK.findall(answer.text) if ":" not in each]
    assert links, page
    for link in links:
        assert (await http.get(link)).status_code == 200, link


CLOSED = PROXIES | {"bare nginx": bare_nginx}


@pytest.mark.parametrize("kind", CLOSED)
def test_a_server_without_keys_behind_a_proxy_is_closed(tmp_path: Path, kind: str) -> None:
    one = server(tmp_path, f"sqlite:///{tmp_path}/memory.db")
    one.start()
    try:
        with CLOSED[kind](tmp_path, [one.address]) as address:
            assert httpx.get(f"{one.address}/v1/conversations").status_code == 200
            for headers in ({}, {"Host": "localhost"}):
                with httpx.Client(base_url=address, headers=headers, verify=False) as through:
                    assert through.post("/v1/erase").status_code == 403
                    assert through.get("/v1/conversations").status_code == 403
                    assert through.get("/schema").status_code == 403
    finally:
        one.stop()


async def raw_get(address: str, path: str, key: str) -> bytes:
    """Send the path as it is: a client would normalise it."""
    place = urlsplit(address)
    context = None
    if place.scheme == "https":
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection(place.hostname, place.port, ssl=context)
    try:
        head = ("Host: localhost", f"Authorization: Bearer {key}", "Connection: close", "", "")
        writer.write("\r\n".join((f"GET {path} HTTP/1.1", *head)).encode())
        await writer.drain()
        return await asyncio.wait_for(reader.read(), 60)
    finally:
        writer.close()


@pytest.mark.parametrize("proxy", PROXIES)
async def test_websockets_and_event_streams_pass(tmp_path: Path, proxy: str) -> None:
    servers, key = two_servers(tmp_path)
    servers = servers[:1]
    servers[0].start()
    try:
        with PROXIES[proxy](tmp_path, [servers[0].address]) as address:
            async with watching(address, key, session="kitchen") as seen, client(address, key) as http:
                turn = {"session_id": "kitchen", "messages": [{"role": "user", "content": "hello"}]}
                assert (await http.post("/v1/sessions/turns", json=turn)).status_code == 201
                await seen.until(["hello"])
                async with http.stream("GET", "/v1/changes") as stream:
                    lines = stream.aiter_lines()
                    assert await asyncio.wait_for(anext(lines), 60) == ": watching"
                    await http.post("/v1/sessions/turns", json=turn)
                    while not (line := await asyncio.wait_for(anext(lines), 60)).startswith("data:"):
                        continue
                    assert "revision" in line
    finally:
        servers[0].stop()
