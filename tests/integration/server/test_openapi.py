"""The OpenAPI document says what the server does: every route, every status, bodies that work."""

import tempfile
from pathlib import Path
from typing import Any

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
    """What somebody adds may speak of other kinds of values."""

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


async def test_the_page_shows_every_route_and_loads_nothing(server: Running) -> None:
    page = await server.client.get("/schema")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    for endpoint in ENDPOINTS:
        assert endpoint.full_path in page.text
    assert "<script" not in page.text
    assert "`" not in page.text, "words between backticks are shown as code"
    assert "http" not in page.text.replace("/schema/openapi.json", "")
    document = await server.client.get("/schema/openapi.json")
    assert document.json()["openapi"].startswith("3.1")


@pytest.mark.slow
def test_no_made_up_request_breaks_the_server_or_gets_an_answer_that_is_not_documented() -> None:
    """A short form of `python -m tests.integration.server.fuzz`."""
    with tempfile.TemporaryDirectory() as folder, a_server(Path(folder)) as (url, key):
        tally = fuzz(url, key, cases=250)
    assert tally.cases >= 250
    assert not any(status >= 500 for status in tally.statuses)
    assert len(tally.operations) >= len(ENDPOINTS) - 1
