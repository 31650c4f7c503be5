"""The protocol server, called by the official client: in memory, over stdio and over HTTP."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_PARAMS

import aforesaid
from aforesaid.mcp.server import create_server
from aforesaid.mcp.tools import MAX_TOKENS, Access, Scope
from aforesaid.memory.manager import ConversationManager
from tests.integration.server.running import Running, serving

SNAPSHOT = Path(__file__).parent / "tools.json"
TOOLS = [
    *["search_history", "read_conversation", "list_conversations", "recall"],
    *["remember", "forget", "fork_conversation"],
]


@asynccontextmanager
async def client_of(manager: ConversationManager, *, scope: Scope = "write") -> AsyncIterator[Client]:
    access = Access(manager=manager, scope=scope)
    async with Client(create_server(lambda _: access, scope=scope)) as client:
        yield client


@pytest.fixture
async def manager() -> AsyncIterator[ConversationManager]:
    async with aforesaid.open("memory://") as memory:
        kim = memory.of("kim")
        await kim.add_message("trip", "user", "We fly to Lisbon on 3 May with Anna.")
        await kim.add_message("trip", "assistant", "Noted: Lisbon on 3 May.")
        await memory.of("lee").add_message("trip", "user", "Lee's secret is in Lisbon.")
        yield kim


async def test_tools_schemas_and_annotations_are_those_of_the_snapshot(manager: ConversationManager) -> None:
    async with client_of(manager) as client:
        listed = (await client.list_tools()).tools
    found: dict[str, dict[str, Any]] = {
        tool.name: {
            "description": tool.description,
            "input": tool.input_schema,
            "output": tool.output_schema,
            "annotations": tool.annotations.model_dump(exclude_none=True) if tool.annotations else None,
        }
        for tool in listed
    }
    if os.environ.get("AFORESAID_WRITE_SNAPSHOT"):
        SNAPSHOT.write_text(json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    assert found == json.loads(SNAPSHOT.read_text())
    assert list(found) == TOOLS
    for tool in found.values():
        assert not {"owner", "user", "user_id"} & set(tool["input"]["properties"])
        assert all("description" in each for each in tool["input"]["properties"].values())


async def test_search_quotes_only_the_owners_words(manager: ConversationManager) -> None:
    async with client_of(manager) as client:
        result = await client.call_tool("search_history", {"query": "Lisbon"})
    assert not result.is_error
    found = _structured(result)
    assert "instructions" in found["notice"]
    assert found["passages"][0]["quotation"].startswith(("We fly", "Noted"))
    assert "secret" not in json.dumps(found)
    assert found["passages"][0]["ago"]


async def test_a_search_states_that_it_found_nothing_and_what_limits_it() -> None:
    async with aforesaid.open("memory://", models=aforesaid.Models(embedder=None)) as memory:
        kim = memory.of("kim")
        await kim.add_message("trip", "user", "We fly to Lisbon on 3 May with Anna.")
        async with client_of(kim) as client:
            found = _structured(await client.call_tool("search_history", {"query": "quantum physics"}))
    assert found["passages"] == []
    assert found["remark"].startswith("Nothing about this was said in the earlier conversations.")
    assert "words only" in found["remark"]


async def test_a_passage_leads_to_its_conversation(manager: ConversationManager) -> None:
    async with client_of(manager) as client:
        passage = _structured(await client.call_tool("search_history", {"query": "Anna"}))["passages"][0]
        read = _structured(
            await client.call_tool(
                "read_conversation",
                {"conversation_id": passage["conversation_id"], "around": passage["number"], "limit": 1},
            )
        )
    assert [one["quotation"] for one in read["messages"]] == ["We fly to Lisbon on 3 May with Anna."]
    assert read["left_out"]["items"] == 1


async def test_a_long_message_can_be_read_to_its_end(manager: ConversationManager) -> None:
    text = " ".join(f"word{number}" for number in range(4000))
    await manager.add_message("long", "user", text)
    read, start = "", 0
    async with client_of(manager) as client:
        for _ in range(50):
            result = await client.call_tool(
                "read_conversation", {"conversation_id": "long", "from_character": start, "limit": 1}
            )
            assert manager.intake.counter.count_text(result.content[0].text) <= MAX_TOKENS  # type: ignore[union-attr]
            found = _structured(result)
            read += found["messages"][0]["quotation"]
            start = len(read)
            if found["left_out"] is None:
                break
            assert f"from_character={start}" in found["left_out"]["next_step"]
    assert read == text


async def test_results_fit_the_budget_and_name_what_was_left_out(manager: ConversationManager) -> None:
    for number in range(60):
        await manager.add_message("many", "user", f"Message {number}: " + "about the garden " * 20)
        await manager.add_message(f"room {number}", "user", "hello")
    async with client_of(manager) as client:
        for tool, arguments in (
            ("read_conversation", {"conversation_id": "many", "limit": 50}),
            ("search_history", {"query": "garden", "limit": 50}),
            ("list_conversations", {"limit": 50}),
        ):
            result = await client.call_tool(tool, arguments)
            assert not result.is_error
            assert manager.intake.counter.count_text(result.content[0].text) <= MAX_TOKENS  # type: ignore[union-attr]
            left = _structured(result)["left_out"]
            assert left["items"] > 0
            assert left["next_step"]


async def test_every_page_of_the_list_can_be_reached(manager: ConversationManager) -> None:
    seen: list[str] = []
    for number in range(7):
        await manager.add_message(f"room {number}", "user", "hello")
    async with client_of(manager) as client:
        arguments: dict[str, Any] = {"limit": 3}
        while True:
            found = _structured(await client.call_tool("list_conversations", arguments))
            seen += [one["name"] for one in found["conversations"]]
            if found["left_out"] is None:
                break
            arguments["after"] = found["left_out"]["next_step"].split("after='")[1].split("'")[0]
    assert sorted(seen) == sorted([*(f"room {number}" for number in range(7)), "trip"])


async def test_notes_are_remembered_recalled_and_forgotten(manager: ConversationManager) -> None:
    async with client_of(manager) as client:
        first = _structured(await client.call_tool("remember", {"text": "Kim likes tea", "about": "drinks"}))
        second = _structured(
            await client.call_tool("remember", {"text": "Kim likes coffee", "about": "drinks"})
        )
        assert second["replaced"][0]["note_id"] == first["note"]["note_id"]
        notes = _structured(await client.call_tool("recall", {"topic": "coffee"}))["notes"]
        assert [one["quotation"] for one in notes] == ["Kim likes coffee"]
        assert "coffee" in (await client.read_resource("aforesaid://notes")).contents[0].text  # type: ignore[union-attr]
        await client.call_tool("forget", {"note_id": second["note"]["note_id"]})
        assert _structured(await client.call_tool("recall", {}))["notes"] == []


async def test_a_conversation_is_branched_from_a_message_on(manager: ConversationManager) -> None:
    await manager.add_message("trip", "user", "Which hotel?")
    async with client_of(manager) as client:
        listed = _structured(await client.call_tool("read_conversation", {"conversation_id": "trip"}))
        at = next(one["number"] for one in listed["messages"] if one["quotation"] == "Which hotel?")
        forked = _structured(
            await client.call_tool(
                "fork_conversation", {"conversation_id": "trip", "at": at, "subject": "trains"}
            )
        )
        assert (forked["shared_messages"], forked["subject"]) == (2, "trains")
        arguments = {"conversation_id": forked["conversation_id"]}
        branch = _structured(await client.call_tool("read_conversation", arguments))
    assert branch["branch_of"] == forked["branch_of"] == listed["conversation_id"]
    assert [one["quotation"] for one in branch["messages"]] == [
        "We fly to Lisbon on 3 May with Anna.",
        "Noted: Lisbon on 3 May.",
    ]


async def test_a_participant_reads_a_conversation(manager: ConversationManager) -> None:
    await manager.set_participant("trip", "anna", history="from_now")
    await manager.add_message("trip", "user", "Hello Anna!")
    await manager.fork("trip")
    async with client_of(manager.as_participant("anna")) as client:
        found = _structured(await client.call_tool("read_conversation", {"conversation_id": "trip"}))
        forked = await client.call_tool("fork_conversation", {"conversation_id": "trip"})
    assert [one["quotation"] for one in found["messages"]] == ["Hello Anna!"]
    assert found["message_count"] == 1
    assert forked.is_error


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("forget", {"note_id": "none"}, "no note"),
        ("read_conversation", {"conversation_id": "unknown"}, "unknown"),
        ("read_conversation", {"conversation_id": "trip", "around": 99}, "99"),
        ("search_history", {"query": "x", "since": "soon"}, "since"),
        ("search_history", {"query": "x", "limit": 0}, "limit"),
        ("fork_conversation", {"conversation_id": "trip", "at": 99}, "99"),
        ("remember", {"text": "   "}, "text"),
        ("recall", {"owner": "lee", "topic": 3}, "topic"),
    ],
)
async def test_a_mistake_is_an_error(
    manager: ConversationManager, tool: str, arguments: dict[str, Any], words: str
) -> None:
    async with client_of(manager) as client:
        result = await client.call_tool(tool, arguments)
    assert result.is_error
    assert words in result.content[0].text  # type: ignore[union-attr]


async def test_a_reader_has_no_tool_that_writes(manager: ConversationManager) -> None:
    async with client_of(manager, scope="read") as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == TOOLS[:4]


async def test_resources_and_prompts_have_descriptions(manager: ConversationManager) -> None:
    async with client_of(manager) as client:
        templates = (await client.list_resource_templates()).resource_templates
        resources = (await client.list_resources()).resources
        prompts = (await client.list_prompts()).prompts
        text = (await client.read_resource("aforesaid://conversations/trip")).contents[0].text  # type: ignore[union-attr]
        prompt = await client.get_prompt("recall_topic", {"topic": "Lisbon"})
    assert [one.uri_template for one in templates] == ["aforesaid://conversations/{conversation_id}"]
    assert [str(one.uri) for one in resources] == ["aforesaid://notes"]
    assert [one.name for one in prompts] == ["recall_topic", "continue_conversation"]
    described: list[Any] = [*templates, *resources, *prompts]
    assert all(one.description for one in described)
    assert "We fly to Lisbon" in text
    assert "Lisbon" in str(prompt.messages)


@pytest.mark.parametrize(("name", "arguments"), [("unknown", {}), ("recall_topic", {})])
async def test_a_wrong_prompt_is_an_invalid_parameter(
    manager: ConversationManager, name: str, arguments: dict[str, str]
) -> None:
    async with client_of(manager) as client:
        with pytest.raises(MCPError) as refused:
            await client.get_prompt(name, arguments)
    assert refused.value.code == INVALID_PARAMS


async def test_over_stdio_the_command_serves_the_owner(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    async with aforesaid.open(url) as memory:
        await memory.of("kim").add_message("trip", "user", "We fly to Lisbon.")
        await memory.of("lee").add_message("trip", "user", "Lee's secret.")
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "aforesaid", "mcp", "--url", url, "--owner", "kim"],
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    async with Client(command) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == TOOLS
        found = _structured(await client.call_tool("read_conversation", {"conversation_id": "trip"}))
        assert [one["quotation"] for one in found["messages"]] == ["We fly to Lisbon."]
        await client.call_tool("remember", {"text": "Kim likes tea"})
    async with aforesaid.open(url) as memory:
        assert [note.text for note in await memory.of("kim").notes()] == ["Kim likes tea"]


@asynccontextmanager
async def over_http(running: Running, headers: dict[str, str]) -> AsyncIterator[Client]:
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        transport = streamable_http_client(f"{running.url}/mcp", http_client=http)
        async with Client(transport) as client:
            yield client


async def test_over_http_the_key_decides_owner_and_scope() -> None:
    async with serving(open_without_keys=False) as running:
        await running.memory.of("kim").add_message("trip", "user", "We fly to Lisbon.")
        await running.memory.of("lee").add_message("trip", "user", "Lee's secret.")
        kim, reader = await running.key("kim"), await running.key("kim", scope="read")
        lee = await running.key("lee")
        async with over_http(running, kim) as client:
            read = _structured(await client.call_tool("read_conversation", {"conversation_id": "trip"}))
            assert [one["quotation"] for one in read["messages"]] == ["We fly to Lisbon."]
            assert not (await client.call_tool("remember", {"text": "Kim likes tea"})).is_error
        async with over_http(running, reader) as client:
            refused = await client.call_tool("remember", {"text": "Kim likes mud"})
            assert refused.is_error
            assert "scope write" in refused.content[0].text  # type: ignore[union-attr]
        async with over_http(running, lee) as client:
            assert _structured(await client.call_tool("recall", {}))["notes"] == []
        for headers in ({}, {"Authorization": "Bearer wrong"}, {**lee, "Aforesaid-Owner": "kim"}):
            answer = await running.client.post("/mcp", headers=headers, json={})
            assert answer.status_code == (403 if "Aforesaid-Owner" in headers else 401)


async def test_two_hundred_calls_at_once_answer_correctly() -> None:
    async with serving() as running:
        for number in range(20):
            await running.memory.of("default").add_message(f"room {number}", "user", f"word{number}")
        async with over_http(running, {}) as client:

            async def read(number: int) -> str:
                arguments = {"conversation_id": f"room {number % 20}"}
                found = _structured(await client.call_tool("read_conversation", arguments))
                return str(found["messages"][0]["quotation"])

            said = await asyncio.gather(*(read(number) for number in range(200)))
    assert said == [f"word{number % 20}" for number in range(200)]


def _structured(result: Any) -> dict[str, Any]:
    assert not result.is_error, result.content
    assert json.loads(result.content[0].text) == result.structured_content
    return dict(result.structured_content)


async def test_a_model_finds_and_reads_branches(manager: ConversationManager) -> None:
    trip = (await manager.get_conversation("trip")).id
    branches = [await manager.fork(trip, subject=f"plan {number} " + "x" * 200) for number in range(7)]
    for branch in branches:
        await manager.add_message(branch.id, "user", "word " * 400)
    async with client_of(manager) as client:
        read = (await client.call_tool("read_conversation", {"conversation_id": trip})).structured_content
        assert read["branch_of"] is None
        assert [one["branch_of"] for one in read["branches"]] == [trip] * 5
        listed = (await client.call_tool("list_conversations", {})).structured_content["conversations"]
        assert {one["conversation_id"]: one["branch_of"] for one in listed}[branches[0].id] == trip
        result = await client.call_tool("read_conversation", {"conversation_id": branches[0].id})
        text = result.structured_content["messages"][0]["quotation"]
        assert result.structured_content["branch_of"] == trip
        assert "Lisbon" in text or result.structured_content["left_out"] is not None
        assert (
            manager.intake.counter.count_text(json.dumps(result.structured_content, indent=2)) <= MAX_TOKENS
        )
