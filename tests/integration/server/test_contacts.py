"""Contacts over HTTP: found by what is typed, and named by what is said."""

import pytest

from tests.integration.server.running import Running


async def test_contacts_are_found_by_what_is_typed(server: Running) -> None:
    for name in ("Ann Oakley", "Robert Smith"):
        await server.client.post("/v1/clients", json={"name": name})
    found = await server.client.post("/v1/clients/find", json={"query": "oakly"})
    assert [one["name"] for one in found.json()["contacts"]] == ["Ann Oakley"]
    every = await server.client.post("/v1/clients/find", json={})
    assert [one["name"] for one in every.json()["contacts"]] == ["Ann Oakley", "Robert Smith"]
    assert (await server.client.post("/v1/clients/find", json={"query": 7})).status_code == 422


async def test_a_text_names_one_client_several_or_none(server: Running) -> None:
    for name in ("Jane Smith", "Robert Smith"):
        await server.client.post("/v1/clients", json={"name": name})
    one = (await server.client.post("/v1/clients/identify", json={"text": "Mrs Smith called"})).json()
    assert one["client"]["name"] == "Jane Smith"
    several = (await server.client.post("/v1/clients/identify", json={"text": "Smith called"})).json()
    assert several["client"] is None
    assert {each["contact"]["name"] for each in several["candidates"]} == {"Jane Smith", "Robert Smith"}
    nobody = (await server.client.post("/v1/clients/identify", json={"text": "the lights"})).json()
    assert nobody == {"client": None, "confidence": 0.0, "candidates": []}


async def test_a_key_that_may_only_read_finds_and_names_contacts(guarded: Running) -> None:
    await guarded.memory.of("erin").clients.add("Ann Oakley")
    key = await guarded.key("erin", scope="read")
    found = await guarded.client.post("/v1/clients/find", json={"query": "oakley"}, headers=key)
    named = await guarded.client.post("/v1/clients/identify", json={"text": "Ann Oakley"}, headers=key)
    assert found.json()["contacts"][0]["name"] == named.json()["client"]["name"] == "Ann Oakley"


@pytest.mark.parametrize("way", ["DELETE", "PATCH"])
async def test_a_message_does_not_link_a_conversation_that_was_unlinked(server: Running, way: str) -> None:
    ann = (await server.client.post("/v1/clients", json={"name": "Ann Oakley"})).json()
    made = (await server.client.post("/v1/conversations", json={"session_id": "kitchen"})).json()
    path = f"/v1/conversations/{made['id']}"
    linked = await server.client.put(
        f"{path}/client", json={"client_id": ann["id"], "client_name": ann["name"]}
    )
    assert linked.json()["client_id"] == ann["id"]
    if way == "DELETE":
        await server.client.delete(f"{path}/client")
    else:
        await server.client.patch(path, json={"client_id": None, "client_name": None})
    said = {"role": "user", "content": "Ann Oakley called"}
    assert (await server.client.post(f"{path}/messages", json=said)).is_success
    await server.memory.contact_resources.queue.wait_until_idle()
    assert (await server.client.get(path)).json()["client_id"] is None
