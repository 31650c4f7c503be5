"""A server whose database restarts."""

import time
from pathlib import Path

import httpx
import pytest

from tests.servers.postgres import PostgresServer
from tests.servers.running import server
from tests.servers.waiting import LONGEST


def said(address: str, text: str) -> httpx.Response:
    turn = {"session_id": "kitchen", "messages": [{"role": "user", "content": text}]}
    return httpx.post(f"{address}/v1/sessions/turns", json=turn, timeout=LONGEST)


def readiness(address: str) -> dict[str, object]:
    body: dict[str, object] = httpx.get(f"{address}/ready", timeout=LONGEST).json()
    return body


def test_a_restarted_database_is_used_again_and_nothing_is_lost(
    tmp_path: Path, database: PostgresServer
) -> None:
    grace = {"AFORESAID_KEY_GRACE_SECONDS": "3600"}
    one = server(tmp_path, database.url, AFORESAID_SPOOL_FOLDER=str(tmp_path / "spool"), **grace)
    one.start()
    texts = []
    try:
        texts.append("before")
        assert said(one.address, texts[-1]).status_code == 201
        for outage in range(2):
            database.interrupt()
            until = time.monotonic() + 4
            while time.monotonic() < until:
                texts.append(f"during outage {outage}, {len(texts)}")
                assert said(one.address, texts[-1]).status_code == 201
            assert readiness(one.address)["degraded"] is True
            database.resume()
            began = time.monotonic()
            while readiness(one.address)["degraded"]:
                assert time.monotonic() - began < LONGEST
            seconds = time.monotonic() - began
            print(f"recovered {seconds:.2f} s after the database answered")
        found = httpx.get(f"{one.address}/v1/stats", timeout=LONGEST).json()
        assert found["messages"] == len(texts)
    finally:
        one.stop()


def test_a_server_starts_while_a_known_database_is_away(tmp_path: Path, database: PostgresServer) -> None:
    state = {"AFORESAID_SPOOL_FOLDER": str(tmp_path / "spool"), "XDG_STATE_HOME": str(tmp_path)}
    first = server(tmp_path, database.url, **state)
    first.start()
    assert said(first.address, "before").status_code == 201
    first.stop()
    database.interrupt()
    second = server(tmp_path, database.url, **state)
    second.start()
    try:
        # Whether the store has keys is not known yet, so no request is accepted without one.
        refused = said(second.address, "meanwhile")
        assert refused.status_code == 503
        assert refused.headers["retry-after"]
        database.resume()
        until = time.monotonic() + LONGEST
        while readiness(second.address)["degraded"]:
            assert time.monotonic() < until
        assert said(second.address, "after").status_code == 201
        assert httpx.get(f"{second.address}/v1/stats", timeout=LONGEST).json()["messages"] == 2
    finally:
        second.stop()


def test_a_server_refuses_to_start_on_a_database_that_was_never_reached(
    tmp_path: Path, database: PostgresServer
) -> None:
    database.interrupt()
    state = {"AFORESAID_SPOOL_FOLDER": str(tmp_path / "spool"), "XDG_STATE_HOME": str(tmp_path)}
    one = server(tmp_path, database.url, **state)
    with pytest.raises(AssertionError, match="was never reached from this machine"):
        one.start()
    assert one.ended() != 0
