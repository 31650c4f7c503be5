"""The configuration snippets of docs/how-to/mcp.md have the form that each host expects."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from aforesaid.cli.app import app

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "mcp.md").read_text()
BLOCKS = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]
REMOTE = "https://memory.example.org/mcp"


def test_there_is_a_snippet_for_each_host() -> None:
    for host in ("Claude Desktop", "Claude Code", "Cursor", "VS Code", "ChatGPT", "Home Assistant"):
        assert f"\n{host}" in PAGE
    assert len(BLOCKS) == 6


def test_claude_desktop_starts_an_existing_command() -> None:
    server = BLOCKS[0]["mcpServers"]["aforesaid"]
    assert set(server) == {"command", "args"}
    assert server["command"] == "aforesaid"
    assert server["args"][0] == "mcp"
    shown = CliRunner().invoke(app, ["mcp", "--help"]).output
    for option in server["args"][1:]:
        assert not option.startswith("--") or option in shown


@pytest.mark.parametrize(
    ("block", "keys"),
    [
        (BLOCKS[1]["mcpServers"]["aforesaid"], {"type", "url", "headers"}),
        (BLOCKS[2]["mcpServers"]["aforesaid"], {"url", "headers"}),
        (BLOCKS[3]["servers"]["aforesaid"], {"type", "url", "headers"}),
    ],
)
def test_remote_servers_send_the_key_in_a_header(block: dict[str, Any], keys: set[str]) -> None:
    assert set(block) == keys
    assert block["url"] == REMOTE
    assert block.get("type", "http") == "http"
    assert re.fullmatch(r"Bearer \$\{[\w:-]+\}", block["headers"]["Authorization"])


def test_inputs_of_vs_code_are_declared() -> None:
    used = set(re.findall(r"\$\{input:([\w-]+)\}", json.dumps(BLOCKS[3]["servers"])))
    assert used == {each["id"] for each in BLOCKS[3]["inputs"]}


def test_the_tool_of_openai_allows_existing_tools_that_read() -> None:
    tool = BLOCKS[4]
    known = json.loads((Path(__file__).parent / "tools.json").read_text())
    assert tool["type"] == "mcp"
    assert tool["server_url"] == REMOTE
    assert all(known[name]["annotations"]["read_only_hint"] for name in tool["allowed_tools"])


def test_home_assistant_gets_the_address() -> None:
    assert BLOCKS[5] == {"url": REMOTE}
