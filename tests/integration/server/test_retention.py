"""Retention, archives, export, import, erasure, redaction, notes, contacts, search, statistics over HTTP."""

import io
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.integration.server.running import Running, serving


async def describe(server: Running, *words: str, session: str = "kitchen", **headers: str) -> str:
    """The path of a conversation in which this was said."""
    body = {"session_id": session, "messages": [{"role": "user", "content": each} for each in words]}
    answer = await server.client.post("/v1/sessions/turns", json=body, headers=headers)
    assert answer.status_code == 201, answer.text
    return f"/v1/conversations/{answer.json()['conversation']['id']}"


async def test_rules_are_set_in_seconds_and_applied(server: Running) -> None:
    path = await describe(server, "hi")
    rules: dict[str, Any] = {"owner": 7200.0, "channels": {"text": 3600.0}, "tags": {"legal": None}}
    changed = await server.client.put("/v1/retention", json=rules)
    assert changed.json() == {"changed": 1}
    assert (await server.client.get("/v1/retention")).json() == rules | {"conversations": {}}
    lifetime = (await server.client.get(f"{path}/lifetime")).json()
    assert (lifetime["ttl"], lifetime["step"], lifetime["name"]) == (3600.0, "channel", "text")
    soon = (await server.client.get("/v1/retention/expiring?within=4000")).json()["expiring"]
    assert [each["messages"] for each in soon] == [1]
    assert (await server.client.post("/v1/retention/purge")).json() == {"purged": 0}
    assert (await server.client.post("/v1/retention/apply")).json() == {"changed": 0}


async def test_rules_that_make_no_sense_are_refused(server: Running) -> None:
    for rules in ({"owner": -1}, {"channels": {"smoke signals": 1}}, {"tags": {"a": "b"}}, {"onwer": 1}):
        assert (await server.client.put("/v1/retention", json=rules)).status_code == 422


async def test_a_conversation_is_archived_and_restored(tmp_path: Path) -> None:
    async with serving(archives=tmp_path / "archives") as server:
        path = await describe(server, "hi")
        archived = (await server.client.post(f"{path}/archive")).json()
        assert archived["messages"] == 1
        assert (await server.client.get(path)).status_code == 404
        listed = (await server.client.get("/v1/archives")).json()["archives"]
        assert [each["conversation_id"] for each in listed] == [archived["conversation_id"]]
        restored = await server.client.post(f"/v1/archives/{archived['conversation_id']}/restore")
        assert restored.json()["message_count"] == 1
        missing = await server.client.post("/v1/archives/01952f3e-6c1e-7b0a-8f57-2f8a3c9d4e10/restore")
        assert missing.json()["type"] == "urn:aforesaid:problem:archive-not-found"


async def test_an_export_is_imported_for_another_owner(server: Running) -> None:
    await describe(server, "the key is under the pot", **{"Aforesaid-Owner": "erin"})
    packed = await server.client.get("/v1/export", headers={"Aforesaid-Owner": "erin"})
    assert packed.headers["content-type"] == "application/zip"
    assert "manifest.json" in zipfile.ZipFile(io.BytesIO(packed.content)).namelist()
    brought = await server.client.post(
        "/v1/import",
        content=packed.content,
        headers={"Aforesaid-Owner": "bob", "Content-Type": "application/zip"},
    )
    assert brought.status_code == 200, brought.text
    stats = await server.client.get("/v1/stats", headers={"Aforesaid-Owner": "bob"})
    assert stats.json()["messages"] == 1


async def test_an_export_on_its_way_out_lies_nowhere(
    server: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the request ends, no owner's history remains in the temporary folder."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    await describe(server, "the key is under the mat")
    async with server.client.stream("GET", "/v1/export") as answer:
        assert answer.status_code == 200
        assert list(tmp_path.iterdir()) == []
        assert zipfile.is_zipfile(io.BytesIO(await answer.aread()))


async def test_what_is_no_export_is_refused(server: Running) -> None:
    evil = io.BytesIO()
    with zipfile.ZipFile(evil, "w") as archive:
        archive.writestr("manifest.json", "{}")
        archive.writestr("../../escaped", "x")
    for content in (b"", b"PK nonsense", evil.getvalue()):
        refused = await server.client.post(
            "/v1/import", content=content, headers={"Content-Type": "application/zip"}
        )
        assert refused.status_code == 422, refused.text
        assert refused.json()["detail"]


async def test_erasure_gives_a_receipt(server: Running) -> None:
    path = await describe(server, "hi", session="a")
    await describe(server, "ho", session="b")
    one = await server.client.post(f"{path}/erase")
    counted = {"conversations": 1, "messages": 1, "sessions": 1}
    assert counted.items() <= one.json()["erased"].items()
    await server.client.post("/v1/notes", json={"text": "likes tea"})
    everything = await server.client.post("/v1/erase")
    assert {**counted, "notes": 1}.items() <= everything.json()["erased"].items()
    assert everything.json()["remains"] == []
    assert (await server.client.get("/v1/stats")).json()["conversations"] == 0


async def test_words_are_taken_out_of_a_message(server: Running) -> None:
    path = await describe(server, "my code is 1234")
    entry = (await server.client.get(f"{path}/messages")).json()["entries"][0]
    redacted = await server.client.post(
        f"{path}/redactions", json={"message_id": entry["message"]["message_id"], "mark": "[gone]"}
    )
    assert redacted.json()["content"] == "[gone]"
    assert "1234" not in (await server.client.get(f"{path}/messages")).text
    unknown = await server.client.post(f"{path}/redactions", json={"message_id": "nobody"})
    assert unknown.json()["type"] == "urn:aforesaid:problem:message-not-found"


async def test_what_was_said_is_found(server: Running) -> None:
    path = await describe(server, "the lemon chicken was lovely", "and the soup was salty")
    found = await server.client.get("/v1/search", params={"query": "chicken", "snippets": "true"})
    assert found.json()["passages"][0]["text"] == "the lemon chicken was lovely"
    assert "lemon chicken" in found.json()["snippets"][0]
    asked = {"query": "chicken", "max_results": 1, "timezone": "Europe/Berlin", "explain": True}
    posted = (await server.client.post("/v1/search", json=asked)).json()
    assert posted["passages"][0]["parts"]["matched"]
    conversations = (await server.client.post("/v1/search/conversations", json={"query": "soup"})).json()
    assert path.endswith(conversations["conversations"][0]["id"])
    listed = (await server.client.get("/v1/search/conversations?query=soup&tags=a&tags=b")).json()
    assert listed == {"conversations": []}
    similar = await server.client.get(f"{path}/similar")
    assert similar.json() == {"conversations": []}


async def test_notes_are_kept_recalled_and_forgotten(server: Running) -> None:
    note = (await server.client.post("/v1/notes", json={"text": "I like leeks", "tags": ["food"]})).json()
    assert (await server.client.get(f"/v1/notes/{note['id']}")).json() == note
    assert (await server.client.get("/v1/notes?tag=food")).json() == {"notes": [note]}
    recalled = await server.client.post("/v1/notes/recall", json={"query": "leeks"})
    assert recalled.json() == {"notes": [note]}
    assert (await server.client.delete(f"/v1/notes/{note['id']}")).json() == {"notes": [note]}
    assert (await server.client.get("/v1/notes")).json() == {"notes": []}
    missing = await server.client.get("/v1/notes/01952f3e-6c1e-7b0a-8f57-2f8a3c9d4e10")
    assert missing.json()["type"] == "urn:aforesaid:problem:note-not-found"
    await server.client.post("/v1/notes", json={"text": "I like leeks", "expires_in": 3600})
    assert len((await server.client.post("/v1/notes/forget", json={"what": "leeks"})).json()["notes"]) == 1


async def test_contacts_are_made_changed_imported_and_removed(server: Running) -> None:
    ann = (await server.client.post("/v1/clients", json={"name": "Ann Baker", "phone": "12345"})).json()
    path = f"/v1/clients/{ann['id']}"
    changed = await server.client.patch(path, json={"email": "ann@example.org", "phone": None})
    assert (changed.json()["email"], changed.json()["phone"]) == ("ann@example.org", None)
    taken = await server.client.post("/v1/clients", json={"name": "Bea", "client_id": ann["id"]})
    assert taken.status_code == 409
    file = "name,email\nCarl,carl@example.org\nDora,no address\n"
    imported = await server.client.post(
        "/v1/clients/import", content=file.encode(), headers={"Content-Type": "text/csv"}
    )
    assert [each["name"] for each in imported.json()["added"]] == ["Carl"]
    assert len(imported.json()["bad"]) == 1
    broken = await server.client.post(
        "/v1/clients/import", content=b"\xff\xfe\xff", headers={"Content-Type": "text/csv"}
    )
    assert broken.status_code == 400
    page = await server.client.get("/v1/clients?limit=1")
    following = await server.client.get(page.links["next"]["url"])
    names = [each["name"] for answer in (page, following) for each in answer.json()["contacts"]]
    assert names == ["Ann Baker", "Carl"]
    assert (await server.client.delete(path)).status_code == 204
    assert (await server.client.get(path)).json()["type"] == "urn:aforesaid:problem:contact-not-found"


async def test_statistics_count_one_owners_things(server: Running) -> None:
    await describe(server, "hi", "ho", **{"Aforesaid-Owner": "erin"})
    stats = (await server.client.get("/v1/stats", headers={"Aforesaid-Owner": "erin"})).json()
    assert (stats["conversations"], stats["messages"], stats["channel"]) == (1, 2, {"text": 1})
    nobody = (await server.client.get("/v1/stats", headers={"Aforesaid-Owner": "bob"})).json()
    assert (nobody["conversations"], nobody["last_activity"]) == (0, None)


async def test_a_content_is_forgotten_everywhere_after_a_preview(server: Running) -> None:
    path = await describe(server, "the safe code is 7788", "it rains")
    note = {"text": "The safe code is 7788", "subject": "safe code"}
    assert (await server.client.post("/v1/notes", json=note)).status_code == 201
    what = {"what": "safe code", "preview": True}
    preview = (await server.client.post("/v1/forgetting", json=what)).json()
    assert [one["text"] for one in preview["messages"]] == ["the safe code is 7788"]
    assert preview["receipt"] is None
    assert "7788" in (await server.client.get(f"{path}/messages")).text
    done = (await server.client.post("/v1/forgetting", json={"what": "safe code"})).json()
    assert (done["receipt"]["notes"], done["receipt"]["messages"]) == (1, 1)
    log = (await server.client.get(f"{path}/messages")).text
    assert "7788" not in log
    assert "it rains" in log
    rain = {"what": "weather", "preview": True}
    assert (await server.client.post("/v1/forgetting", json=rain)).json()["messages"] == []
    said = {"role": "user", "content": "it rains", "message_id": "m9"}
    assert (await server.client.post(f"{path}/messages", json=said)).status_code == 201
    named = {"conversation_id": path.rpartition("/")[2], "message_id": "m9"}
    redacted = (await server.client.post("/v1/forgetting", json=named)).json()
    assert redacted["receipt"]["messages"] == 1, "two words are too few to recognize a repetition"
    for wrong in ({}, {"what": "x", **named}, {"message_id": "m1"}):
        assert (await server.client.post("/v1/forgetting", json=wrong)).status_code == 422
