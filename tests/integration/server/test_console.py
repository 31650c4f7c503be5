"""The files of the web console: complete, unchanged, self-contained, served with a strict policy."""

import re
import tomllib
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

import aforesaid.server
from aforesaid.audit import AuditTrail
from aforesaid.server.console_files import POLICY, load_console
from aforesaid.server.health_series import HealthSample, alerts_for, quantile
from aforesaid.telemetry.metrics import SECONDS
from tests.integration.server.running import serving

FOLDER = Path(aforesaid.server.__file__).parent / "console"
OWN = sorted(file for file in FOLDER.rglob("*.js") if file.parent.name != "vendor")
MOST_LINES = 300


def test_the_page_is_served_with_a_strict_policy_and_nothing_absolute() -> None:
    page = load_console().page.body.decode()
    addresses = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert addresses
    assert not [each for each in addresses if each.startswith("/") or "//" in each]
    assert not re.search(r"<script(?![^>]*src=)|\sstyle=|\son\w+=", page)
    assert "unsafe" not in POLICY


async def test_files_are_cached_forever_and_the_page_never() -> None:
    async with serving() as server:
        redirect = await server.client.get("/console")
        assert (redirect.status_code, redirect.headers["location"]) == (308, "console/")
        page = await server.client.get("/console/")
        assert page.headers["content-security-policy"] == POLICY
        assert page.headers["cache-control"] == "no-cache"
        assert page.headers["permissions-policy"].startswith("microphone=(self)")
        script = re.search(r'src="([^"]+/app\.js)"', page.text)
        assert script
        found = await server.client.get(f"/console/{script[1]}")
        assert found.headers["content-type"].startswith("text/javascript")
        assert "immutable" in found.headers["cache-control"]
        assert found.headers["content-encoding"] == "gzip"
        for missing in ("/console/0000/app.js", f"/console/{script[1]}x", "/console/../app.js"):
            assert (await server.client.get(missing)).status_code == 404


async def test_a_server_without_keys_gives_the_console_to_its_own_machine_only() -> None:
    async with serving() as server:
        refused = await server.client.get("/console/", headers={"X-Forwarded-For": "203.0.113.7"})
        assert refused.status_code == 403


@pytest.mark.parametrize("file", OWN, ids=lambda file: str(file.relative_to(FOLDER)))
def test_a_module_is_small_typed_and_never_assigns_html(file: Path) -> None:
    text = file.read_text()
    assert text.count("\n") <= MOST_LINES
    assert text.startswith("// "), "the first line says what the module is for"
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text
    )
    imports = re.findall(r'(?:^(?:import|\}) .*from |import\()"([^"]+)"', text, re.MULTILINE)
    assert all(each.startswith(".") for each in imports), imports
    assert all((file.parent / each).is_file() for each in imports), imports
    assert not re.search(r"https?://", text)


def test_vendored_modules_are_the_listed_ones() -> None:
    vendor = FOLDER / "vendor"
    listed = tomllib.loads((vendor / "vendor.toml").read_text())["module"]
    for module in listed:
        body = (vendor / module["file"]).read_bytes()
        assert sha256(body).hexdigest() == module["sha256"], module["file"]
        assert (vendor / module["licence_file"]).is_file()
        assert not re.search(rb'\bfrom\s*"', body), f"{module['file']} must not import anything"
    present = {file.name for file in vendor.iterdir() if file.suffix in (".js", ".css")}
    assert present == {module["file"] for module in listed}


async def test_access_says_what_a_key_permits() -> None:
    async with serving() as server:
        found = (await server.client.get("/v1/access")).json()
        assert (found["scope"], found["owners"], found["without_key"]) == ("admin", None, True)
        key = await server.key("erin", scope="read")
        found = (await server.client.get("/v1/access", headers=key)).json()
        assert (found["scope"], found["owners"], found["owner"]) == ("read", ["erin"], "erin")


async def test_keys_are_created_listed_and_revoked_by_admins_of_all_owners() -> None:
    async with serving() as server:
        admin = await server.key("*", scope="admin", name="root")
        body = {"owners": ["erin"], "scope": "read", "name": "tablet"}
        made = (await server.client.post("/v1/keys", json=body, headers=admin)).json()
        key = {"Authorization": f"Bearer {made['text']}"}
        assert (await server.client.get("/v1/conversations", headers=key)).status_code == 200
        listed = (await server.client.get("/v1/keys", headers=admin)).json()["keys"]
        assert [each["name"] for each in listed] == ["root", "tablet"]
        assert made["text"].rpartition("_")[2] not in str(listed)
        revoked = await server.client.post(f"/v1/keys/{made['key']['id']}/revoke", headers=admin)
        assert revoked.json()["revoked_at"]
        assert (await server.client.post("/v1/keys/nothing/revoke", headers=admin)).status_code == 404


@pytest.mark.parametrize(("owners", "scope"), [(("erin",), "admin"), (("*",), "write")])
async def test_other_keys_cannot_manage_keys(owners: tuple[str, ...], scope: str) -> None:
    async with serving() as server:
        key = await server.key(*owners, scope=scope)  # type: ignore[arg-type]
        responses: list[httpx.Response] = [
            await server.client.get("/v1/keys", headers=key),
            await server.client.post("/v1/keys", json={"owners": ["*"]}, headers=key),
            await server.client.post("/v1/keys/x/revoke", headers=key),
        ]
        assert [each.status_code for each in responses] == [403, 403, 403]


async def test_a_listing_has_the_latest_messages_on_request() -> None:
    async with serving() as server:
        turn = {"session_id": "one", "messages": [{"role": "user", "content": "hello"}]}
        await server.client.post("/v1/sessions/turns", json=turn)
        plain = (await server.client.get("/v1/conversations")).json()["conversations"][0]
        full = (await server.client.get("/v1/conversations?latest=1")).json()["conversations"][0]
        assert plain["messages"] == []
        assert [each["content"] for each in full["messages"]] == ["hello"]
        assert (await server.client.get("/v1/conversations?latest=11")).status_code == 422


async def test_the_health_series_has_samples_and_alerts() -> None:
    async with serving() as server:
        history = server.service.history
        await history.sample()
        await server.client.get("/v1/conversations")
        await history.sample()
        found = (await server.client.get("/v1/health/series")).json()
        assert sum(sample["requests"] for sample in found["samples"]) >= 1
        # The server's own task samples too, perhaps after the request.
        assert any(sample["p99"] is not None for sample in found["samples"])
        key = await server.key("erin", scope="admin")
        assert (await server.client.get("/v1/health/series", headers=key)).status_code == 403


def test_alerts_follow_the_latest_samples() -> None:
    fine = _sample()
    assert alerts_for([]) == alerts_for([fine]) == []
    assert [each.name for each in alerts_for([fine, _sample(errors=3)])] == ["AforesaidRequestsFail"]
    assert [each.name for each in alerts_for([fine, _sample(breaker=2)])] == ["AforesaidStoreAway"]
    assert [each.name for each in alerts_for([_sample(breaker=2), fine])] == []
    assert [each.name for each in alerts_for([fine, _sample(dead_letters=1)])] == ["AforesaidDeadLetters"]


def test_a_quantile_is_the_bound_of_its_bucket() -> None:
    assert quantile([], 0.5) is None
    assert quantile([0, 0, 0], 0.5) is None
    assert quantile([1, 0, 9], 0.05) == SECONDS[0]
    assert quantile([1, 0, 9], 0.5) == SECONDS[2]
    assert quantile([0] * len(SECONDS) + [1], 0.5) == SECONDS[-1]


def _sample(**changed: Any) -> HealthSample:
    fields: dict[str, Any] = dict.fromkeys(HealthSample.__struct_fields__, 0)
    return HealthSample(**fields | {"at": datetime.now(UTC), "requests": 100} | changed)


async def test_the_audit_trail_of_an_owner_is_listed_and_verified(tmp_path: Path) -> None:
    async with serving(audit=AuditTrail(tmp_path / "audit.jsonl")) as server:
        for owner in ("erin", "sam"):
            turn = {"session_id": "one", "messages": [{"role": "user", "content": "hello"}]}
            headers = {"Aforesaid-Owner": owner}
            await server.client.post("/v1/sessions/turns", json=turn, headers=headers)
        found = await server.client.get("/v1/audit?limit=5", headers={"Aforesaid-Owner": "erin"})
        events = found.json()["events"]
        assert "append" in {event["action"] for event in events}
        assert [event["n"] for event in events] == sorted((event["n"] for event in events), reverse=True)
        assert "sam" not in found.text
        await server.client.post("/v1/erase", headers={"Aforesaid-Owner": "erin"})
        found = await server.client.get("/v1/audit?action=erase", headers={"Aforesaid-Owner": "erin"})
        assert [event["action"] for event in found.json()["events"]] == ["erase"]
        checked = (await server.client.get("/v1/audit/verification")).json()
        assert checked["problems"] == []
        trail = tmp_path / "audit.jsonl"
        trail.write_text(trail.read_text().replace("append", "delete", 1))
        checked = (await server.client.get("/v1/audit/verification")).json()
        assert checked["problems"]


async def test_without_a_trail_there_is_nothing_to_list() -> None:
    async with serving() as server:
        assert (await server.client.get("/v1/audit")).status_code == 404
        assert (await server.client.get("/v1/audit/verification")).status_code == 404


async def test_ambiguous_mentions_wait_until_a_person_resolves_them() -> None:
    async with serving() as server:
        client = server.client
        anns = [
            (await client.post("/v1/clients", json={"name": name})).json()["id"]
            for name in ("Ann Baker", "Ann Miller")
        ]
        words = [{"role": "user", "content": "Ann wants the roof done by Friday"}]
        conversations = [
            (await client.post("/v1/sessions/turns", json={"session_id": name, "messages": words})).json()[
                "conversation"
            ]["id"]
            for name in ("one", "two")
        ]
        found = (await client.get("/v1/clients/ambiguous")).json()["mentions"]
        assert {each["conversation_id"] for each in found} == set(conversations)
        assert {one["contact"]["id"] for one in found[0]["candidates"]} == set(anns)
        link = {"client_id": anns[0], "client_name": "Ann Baker"}
        await client.put(f"/v1/conversations/{conversations[0]}/client", json=link)
        await client.delete(f"/v1/conversations/{conversations[1]}/client")
        assert (await client.get("/v1/clients/ambiguous")).json()["mentions"] == []


async def test_an_answer_keeps_its_request_until_a_message_is_redacted() -> None:
    async with serving() as server:
        client = server.client
        question = {"session_id": "one", "text": "Remember that I like leeks."}
        await client.post("/v1/sessions/answers", json=question)
        answer = (
            await client.post("/v1/sessions/answers", json=question | {"text": "What do I like?"})
        ).json()
        path = f"/v1/conversations/{answer['conversation_id']}"
        entries = (await client.get(f"{path}/messages")).json()["entries"]
        ids = [entry["message"]["message_id"] for entry in entries]
        found = (await client.get(f"{path}/request", params={"message_id": ids[-1]})).json()
        assert found["agent_name"] == "recall"
        assert found["message_ids"] == ids[:-1]
        notes = (await client.get("/v1/notes")).json()["notes"]
        assert found["notes"] == [note["id"] for note in notes]
        heading, line = found.pop("notes_text").splitlines()
        assert heading.startswith("Notes about this user")
        assert line.startswith("- I like leeks (")
        assert "leeks" not in str(found)
        forgotten = await client.post("/v1/notes/forget", json={"what": notes[0]["id"]})
        assert forgotten.is_success, forgotten.text
        again = (await client.get(f"{path}/request", params={"message_id": ids[-1]})).json()
        assert again["notes_text"].splitlines()[1:] == ["- a note that was forgotten since"]
        assert "leeks" not in str(again)
        other = await client.get(
            f"{path}/request", params={"message_id": ids[-1]}, headers={"Aforesaid-Owner": "sam"}
        )
        assert other.status_code == 404
        await client.post(f"{path}/redactions", json={"message_id": ids[0]})
        assert (await client.get(f"{path}/request", params={"message_id": ids[-1]})).status_code == 404
