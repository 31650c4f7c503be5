"""Contacts over HTTP: found by what is typed, and named by what is said."""

from tests.server.running import Running


async def test_contacts_are_found_by_what_is_typed(server: Running) -> None:
    for name in ("Ann Oakley", "Robert Smith"):
        await server.client.post("/v1/clients", json={"name": name})
    found = await server.client.post("/v1/clients/find", json={"query": "oakly"})
    assert [one["name"] for one in found.json()["contacts"]] == ["Ann Oakley"]
    every = await server.client.post("/v1/clients/find", json={})
    assert [one["name"] for one in every.json()["contacts"]] == ["Ann Oakley", "Robert Smith"]
    assert (await server.client.post("/v1/clients/find", json={"query": 7})).status_code == 422


async def test_a_text_names_one_client_several_or_nobody(server: Running) -> None:
    for name in ("Jane Smith", "Robert Smith"):
        await server.client.post("/v1/clients", json={"name": name})
    one = (await server.client.post("/v1/clients/identify", json={"text": "Mrs Smith called"})).json()
    assert one["client"]["name"] == "Jane Smith"
    several = (await server.client.post("/v1/clients/identify", json={"text": "Smith called"})).json()
    assert several["client"] is None
    assert {each["contact"]["name"] for each in several["candidates"]} == {"Jane Smith", "Robert Smith"}
    nobody = (await server.client.post("/v1/clients/identify", json={"text": "the lights"})).json()
    assert nobody == {"client": None, "confidence": 0.0, "candidates": []}
