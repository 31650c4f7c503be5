"""The official inspector and the official conformance scenarios judge `/mcp` and `aforesaid mcp`."""

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import aforesaid
from aforesaid.mcp import server as protocol
from tests.integration.server.running import Running, serving

PACKAGES = Path(os.environ["AFORESAID_MCP_JUDGES"]) / "node_modules"
NODE = str(PACKAGES / ".bin" / "node")
CONFORMANCE = str(PACKAGES / "@modelcontextprotocol" / "conformance" / "dist" / "index.js")
INSPECTOR = str(
    PACKAGES / "@modelcontextprotocol" / "inspector" / "clients" / "launcher" / "build" / "index.js"
)
BOUND = 300
TOOL_FAILED = 5
"""The inspector's exit code for a tool that returns an error."""

REQUIRED = {
    "dns-rebinding-protection",
    "ping",
    "prompts-list",
    "resources-list",
    "server-initialize",
    "tools-call-error",
    "tools-list",
}
"""The scenarios that need nothing but a server."""

FIXTURES = {
    # These call tools, prompts and resources of the scenarios' own.
    "json-schema-2020-12": "Tool 'json_schema_2020_12_tool' not found",
    "prompts-get-embedded-resource": "Unknown prompt",
    "prompts-get-simple": "Unknown prompt",
    "prompts-get-with-args": "Unknown prompt",
    "prompts-get-with-image": "Unknown prompt",
    "resources-read-binary": "Unknown resource",
    "resources-read-text": "Unknown resource",
    "resources-templates-read": "Unknown resource",
    "tools-call-audio": "No audio content",
    "tools-call-embedded-resource": "No resource content",
    "tools-call-image": "No image content",
    "tools-call-mixed-content": "Missing image content",
    "tools-call-simple-text": "",  # any text passes, also that of an error
    "tools-call-with-progress": "No progress notifications",
    # These need a stream per session, and questions to the client. The server is stateless.
    "elicitation-sep1034-defaults": "did not request elicitation",
    "elicitation-sep1330-enums": "did not request elicitation",
    "server-sse-multiple-streams": "",
    "server-sse-polling": "",
    "tools-call-elicitation": "did not request elicitation",
    "tools-call-sampling": "did not request sampling",
    # These need capabilities that the server does not declare.
    "completion-complete": "Method not found",
    "logging-set-level": "Method not found",
    "resources-subscribe": "Method not found",
    "resources-unsubscribe": "Method not found",
    "tools-call-with-logging": "Method not found",
}
"""The scenarios that do not apply to this server, with the reason that they give."""


async def run(*command: str, **variables: str) -> tuple[int, str, str]:
    """Run a program to its end; return its exit code and what it wrote."""
    process = await asyncio.create_subprocess_exec(
        NODE,
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PATH": f"{Path(NODE).parent}{os.pathsep}{os.environ['PATH']}", **variables},
    )
    try:
        out, error = await asyncio.wait_for(process.communicate(), BOUND)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode or 0, out.decode(), error.decode()


async def judged(url: str, folder: Path, *options: str) -> dict[str, list[dict[str, Any]]]:
    """Run conformance scenarios; return the checks of each."""
    await run(CONFORMANCE, "server", "--url", url, "-o", str(folder), *options)
    found = {}
    for file in folder.glob("server-*/checks.json"):
        scenario = re.sub(r"^server-(.*)-\d{4}-\d\d-\d\dT.*$", r"\1", file.parent.name)
        found[scenario] = json.loads(file.read_text())
    return found


def passes(checks: list[dict[str, Any]]) -> bool:
    states = [check["status"] for check in checks]
    return "SUCCESS" in states and "FAILURE" not in states


async def test_every_scenario_that_applies_passes_and_the_others_say_why(tmp_path: Path) -> None:
    _, listed, _ = await run(CONFORMANCE, "list", "--server")
    assert set(re.findall(r"^\s+- (\S+)", listed, re.MULTILINE)) == REQUIRED | set(FIXTURES)
    async with serving() as running:
        found = await judged(f"{running.url}/mcp", tmp_path, "--suite", "all")
    assert set(found) == REQUIRED | set(FIXTURES)
    assert {name for name in REQUIRED if not passes(found[name])} == set()
    for name, reason in FIXTURES.items():
        assert all(
            reason in check["errorMessage"] for check in found[name] if check["status"] == "FAILURE"
        ), name


async def test_the_scenarios_notice_a_prompt_without_a_description(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "_add_prompts", lambda server: server.prompt(name="bare")(lambda: "words"))
    async with serving() as running:
        found = await judged(f"{running.url}/mcp", tmp_path, "--scenario", "prompts-list")
    assert not passes(found["prompts-list"])


class Inspector:
    """The inspector's command line, connected to one server."""

    def __init__(self, home: Path, *options: str, command: tuple[str, ...] = ()) -> None:
        self.home = home
        self.options = ("--cli", "--format", "json", "--connect-timeout", "120000", *options)
        self.command = ("--", *command) if command else ()

    async def ask(self, method: str, *options: str, fails: int = 0) -> dict[str, Any]:
        """Call a method; return the result. The exit code must be `fails`."""
        arguments = [*self.options, "--method", method, *options, *self.command]
        code, out, error = await run(INSPECTOR, *arguments, HOME=str(self.home))
        assert code == fails, (code, out, error)
        return dict(json.loads(out)["result"])

    async def call(self, tool: str, *, fails: int = 0, **arguments: Any) -> dict[str, Any]:
        """Call a tool; return what it found, or its error."""
        given = ["--tool-name", tool, "--tool-args-json", json.dumps(arguments)]
        result = await self.ask("tools/call", *given, fails=fails)
        return result if fails else dict(result["structuredContent"])


async def look_around(inspector: Inspector) -> None:
    """Use everything that the server offers, as a person with the inspector does."""
    tools = (await inspector.ask("tools/list", "--strict"))["tools"]
    assert [tool["name"] for tool in tools][:4] == [
        "search_history",
        "read_conversation",
        "list_conversations",
        "recall",
    ]
    read = await inspector.call("read_conversation", conversation_id="trip")
    assert [one["quotation"] for one in read["messages"]] == ["We fly to Lisbon."]
    assert (await inspector.ask("prompts/list"))["prompts"][0]["name"] == "recall_topic"
    prompt = await inspector.ask(
        "prompts/get", "--prompt-name", "recall_topic", "--prompt-args", "topic=Lisbon"
    )
    assert "Lisbon" in json.dumps(prompt["messages"])
    (template,) = (await inspector.ask("resources/templates/list"))["resourceTemplates"]
    uri = template["uriTemplate"].replace("{conversation_id}", "trip")
    contents = (await inspector.ask("resources/read", "--uri", uri))["contents"]
    assert "We fly to Lisbon." in contents[0]["text"]
    unknown = await inspector.call("read_conversation", conversation_id="none", fails=TOOL_FAILED)
    assert "none" in json.dumps(unknown)


async def test_the_inspector_uses_the_command(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    async with aforesaid.open(url, models=aforesaid.Models(embedder=None)) as memory:
        await memory.of("kim").add_message("trip", "user", "We fly to Lisbon.")
        await memory.of("lee").add_message("trip", "user", "Lee's secret.")
    command = (sys.executable, "-m", "aforesaid", "mcp", "--url", url, "--owner", "kim")
    sources = f"PYTHONPATH={os.environ['PYTHONPATH']}"  # the inspector passes on few variables
    await look_around(Inspector(tmp_path, "-e", sources, command=command))


@asynccontextmanager
async def two_owners() -> AsyncIterator[Running]:
    async with serving(open_without_keys=False) as running:
        await running.memory.of("kim").add_message("trip", "user", "We fly to Lisbon.")
        await running.memory.of("lee").add_message("trip", "user", "Lee's secret.")
        yield running


def with_key(running: Running, folder: Path, key: dict[str, str], *more: str) -> Inspector:
    headers = [f"{name}: {value}" for name, value in key.items()]
    # The list of headers ends where another option follows.
    return Inspector(
        folder, "--server-url", f"{running.url}/mcp", *(("--header", *headers) if headers else ()), *more
    )


async def test_the_inspector_uses_the_server_in_both_eras_of_the_protocol(tmp_path: Path) -> None:
    async with two_owners() as running:
        key = await running.key("kim")
        await look_around(with_key(running, tmp_path, key))
        modern = with_key(running, tmp_path, key, "--protocol-era", "modern")
        note = await modern.call("remember", text="Kim likes tea", about="drinks")
        assert note["note"]["quotation"] == "Kim likes tea"
        assert [one["quotation"] for one in (await modern.call("recall"))["notes"]] == ["Kim likes tea"]


async def test_the_inspector_is_refused_what_its_key_does_not_allow(tmp_path: Path) -> None:
    async with two_owners() as running:
        reader, lee = await running.key("kim", scope="read"), await running.key("lee")
        refused = await with_key(running, tmp_path, reader).call("remember", text="mud", fails=TOOL_FAILED)
        assert "scope write" in json.dumps(refused)
        read = await with_key(running, tmp_path, lee).call("read_conversation", conversation_id="trip")
        assert [one["quotation"] for one in read["messages"]] == ["Lee's secret."]
        for headers in ({}, {"Authorization": "Bearer wrong"}, {**lee, "Aforesaid-Owner": "kim"}):
            with pytest.raises(AssertionError) as failed:
                await with_key(running, tmp_path, headers, "--stored-auth-only").ask("tools/list")
            assert re.search(r"\b(401|403)\b|auth_required|Unauthorized|Forbidden", str(failed.value)), (
                failed.value
            )
        assert await running.memory.of("kim").notes() == []


async def test_two_hundred_calls_of_the_inspector_at_once_succeed(tmp_path: Path) -> None:
    async with two_owners() as running:
        inspector = with_key(running, tmp_path, await running.key("kim"))
        load = ["--load", "--load-requests", "200", "--load-concurrency", "200"]
        found = await inspector.ask("tools/call", "--tool-name", "list_conversations", *load)
    assert (found["requests"], found["ok"], found["errors"]) == (200, 200, 0)
