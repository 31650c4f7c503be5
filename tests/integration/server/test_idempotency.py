"""A write that is sent again is done once and answered alike, also after a restart."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from aforesaid.server.routes.messages import KEY_LIFETIME, KIND
from tests.integration.server.running import Running, serving

TURN = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]}
KEY = {"Idempotency-Key": "3f1c"}


async def opened(server: Running) -> str:
    answer = await server.client.post("/v1/conversations", json={"session_id": "kitchen"})
    return f"/v1/conversations/{answer.json()['id']}"


async def test_a_repeated_turn_is_stored_once_and_answered_alike(server: Running) -> None:
    path = await opened(server)
    first = await server.client.post(f"{path}/turns", json=TURN, headers=KEY)
    again = await server.client.post(f"{path}/turns", json=TURN, headers=KEY)
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    assert (await server.client.get(path)).json()["message_count"] == 2


async def test_repeats_that_come_together_are_stored_once(server: Running) -> None:
    path = await opened(server)
    answers = await asyncio.gather(
        *(server.client.post(f"{path}/turns", json=TURN, headers=KEY) for _ in range(10))
    )
    assert {answer.status_code for answer in answers} == {201}
    assert (await server.client.get(path)).json()["message_count"] == 2


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "user", "content": "something else"}]},
        {"messages": TURN["messages"][:1]},
        {"messages": [*TURN["messages"], {"role": "user", "content": "and more"}]},
        TURN | {"expected_revision": 0},
    ],
)
async def test_the_same_key_with_another_body_is_refused(server: Running, body: Any) -> None:
    path = await opened(server)
    await server.client.post(f"{path}/turns", json=TURN, headers=KEY)
    refused = await server.client.post(f"{path}/turns", json=body, headers=KEY)
    assert refused.status_code == 422
    assert refused.json()["type"] == "urn:aforesaid:problem:key-reused"
    assert (await server.client.get(path)).json()["message_count"] == 2


async def test_another_key_is_another_turn(server: Running) -> None:
    path = await opened(server)
    for key in ("one", "two"):
        await server.client.post(f"{path}/turns", json=TURN, headers={"Idempotency-Key": key})
    assert (await server.client.get(path)).json()["message_count"] == 4


async def test_owners_do_not_share_keys(server: Running) -> None:
    for owner in ("erin", "bob"):
        headers = {"Aforesaid-Owner": owner}
        body = {"session_id": "kitchen", "messages": TURN["messages"]}
        stored = await server.client.post("/v1/sessions/turns", json=body, headers=headers | KEY)
        assert stored.json()["conversation"]["message_count"] == 2


async def test_a_key_is_known_after_a_restart(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    async with serving(url) as server:
        path = await opened(server)
        first = await server.client.post(f"{path}/turns", json=TURN, headers=KEY)
    async with serving(url) as server:
        again = await server.client.post(f"{path}/turns", json=TURN, headers=KEY)
        assert again.json() == first.json()
        other = await server.client.post(f"{path}/turns", json={"messages": []} | TURN, headers=KEY)
        assert other.status_code == 201
        assert (await server.client.get(path)).json()["message_count"] == 2


async def test_a_session_that_has_gone_on_does_not_store_a_repeat_anew(server: Running) -> None:
    body = {"session_id": "kitchen", "messages": TURN["messages"]}
    first = await server.client.post("/v1/sessions/turns", json=body, headers=KEY)
    await server.memory.of("default").store.unbind("kitchen")
    again = await server.client.post("/v1/sessions/turns", json=body, headers=KEY)
    assert again.json() == first.json()
    assert len((await server.client.get("/v1/conversations")).json()["conversations"]) == 1


async def test_a_turn_that_failed_may_be_sent_again(server: Running) -> None:
    path = await opened(server)
    late = {"If-Match": '"7"'}
    refused = await server.client.post(f"{path}/turns", json=TURN, headers=KEY | late)
    assert refused.status_code == 412
    done = await server.client.post(f"{path}/turns", json=TURN, headers=KEY)
    assert done.status_code == 201


async def test_old_keys_are_forgotten(server: Running) -> None:
    path = await opened(server)
    store = server.memory.of("default").store
    for number in range(64):
        headers = {"Idempotency-Key": str(number)}
        await server.client.post(f"{path}/turns", json=TURN, headers=headers)
    held = await store.documents(KIND)
    long_ago = [
        type(each)(
            **{name: getattr(each, name) for name in each.__struct_fields__}
            | {"updated_at": each.updated_at - KEY_LIFETIME - timedelta(days=1)}
        )
        for each in held
    ]
    await store.restore_documents(long_ago)
    for number in range(64, 160):
        headers = {"Idempotency-Key": str(number)}
        await server.client.post(f"{path}/turns", json=TURN, headers=headers)
    left = {each.key for each in await store.documents(KIND, limit=1000)}
    assert len(left & {each.key for each in long_ago}) < len(long_ago) / 2


@pytest.mark.parametrize("key", ["x" * 256, ""])
async def test_a_key_that_is_none_is_refused(server: Running, key: str) -> None:
    path = await opened(server)
    refused = await server.client.post(f"{path}/turns", json=TURN, headers={"Idempotency-Key": key})
    assert refused.status_code == 422
