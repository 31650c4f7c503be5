"""The files of the web console: complete, unchanged, self-contained, served with a strict policy."""

import re
import tomllib
from hashlib import sha256
from pathlib import Path

import httpx
import pytest

import aforesaid.server
from aforesaid.server.console_files import POLICY, load_console
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
