"""The OpenAPI document says what the server does: every route, every status, bodies that work."""

import json
import re
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import msgspec
import pytest
from litestar import get

import aforesaid
from aforesaid.server.app import ENDPOINTS, create_app
from aforesaid.server.endpoints import Endpoint
from aforesaid.server.openapi import EXAMPLES, openapi_document
from tests.integration.server.fuzz import a_server, fuzz
from tests.integration.server.running import Running

DOCUMENT = openapi_document(ENDPOINTS)


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        here = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return here.union(*(references(each) for each in value.values()))
    if isinstance(value, list):
        return set().union(*(references(each) for each in value))
    return set()


async def test_routes_of_ours_load_no_library_that_they_do_not_use() -> None:
    """A later addition may use other kinds of values."""

    @get("/added")
    async def added() -> str:
        return ""

    async with aforesaid.open(models=aforesaid.Models(preload=False)) as memory:
        for routes, plugins in (((), False), ((added,), True)):
            app = create_app(memory, route_handlers=routes)
            assert any("pydantic" in type(plugin).__module__ for plugin in app.framework.plugins) == plugins


def test_every_reference_leads_somewhere() -> None:
    known = {f"#/components/schemas/{name}" for name in DOCUMENT["components"]["schemas"]}
    assert references(DOCUMENT) <= known


def test_every_time_is_a_date_time() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    times = {
        (name, field): json.dumps(schema)
        for name, body in schemas.items()
        for field, schema in body.get("properties", {}).items()
        if field.endswith("_at") or field == "at"
    }
    assert len(times) > 30
    assert {place for place, schema in times.items() if '"date-time"' not in schema} == set()


def test_every_operation_has_a_name_of_its_own_and_words() -> None:
    operations = [each for methods in DOCUMENT["paths"].values() for each in methods.values()]
    names = [each["operationId"] for each in operations]
    assert len(set(names)) == len(names)
    assert all(each["summary"] for each in operations)
    assert {tag for each in operations for tag in each["tags"]} == {tag["name"] for tag in DOCUMENT["tags"]}


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.name)
def test_its_example_is_what_a_route_takes(endpoint: Endpoint) -> None:
    if endpoint.name in EXAMPLES:
        msgspec.convert(EXAMPLES[endpoint.name], endpoint.body)
    else:
        assert not endpoint.takes_body or endpoint.body_media is not None


async def test_the_pages_load_only_files_of_this_server(server: Running) -> None:
    for path in ("/", "/schema", "/docs/", "/docs/how-to/serve.md"):
        page = await server.client.get(path)
        assert page.headers["content-type"].startswith("text/html")
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "<style" not in page.text
        loaded = re.findall(r'<(?:script src|link rel="stylesheet" href)="([^"]+)"', page.text)
        assert loaded
        for file in loaded:
            # Relative: a proxy may serve the pages under another path.
            assert not file.startswith(("/", "http"))
            found = await server.client.get(urljoin(path, file))
            assert found.status_code == 200
            assert found.headers["content-security-policy"] == policy
    document = await server.client.get("/schema/openapi.json")
    assert document.json()["openapi"].startswith("3.1")
    assert (await server.client.get("/schema/vendor/LICENSE")).status_code == 404


def test_the_document_names_its_server_by_its_own_address() -> None:
    (named,) = DOCUMENT["servers"]
    below = "https://home.example/memory/"
    assert urljoin(f"{below}schema/openapi.json", named["url"]) == below


async def test_the_front_page_links_to_everything(server: Running) -> None:
    page = (await server.client.get("/")).text
    for link in ("console/", "schema", "docs/", "health"):
        assert f'href="{link}"' in page
        assert (await server.client.get(f"/{link}")).status_code == 200


@pytest.mark.slow
def test_no_made_up_request_breaks_the_server_or_gets_an_answer_that_is_not_documented() -> None:
    """A short form of `python -m tests.integration.server.fuzz`."""
    with tempfile.TemporaryDirectory() as folder, a_server(Path(folder)) as (url, key):
        tally = fuzz(url, key, cases=250)
    assert tally.cases >= 250
    assert not any(status >= 500 for status in tally.statuses)
    assert len(tally.operations) >= len(ENDPOINTS) - 1
