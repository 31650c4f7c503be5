"""Each adapter is tested where its framework is installed: `make test-adapters`."""

import importlib.util
import os
from pathlib import Path
from typing import Any

FRAMEWORKS = {
    "agent_framework": "agent_framework",
    "claude_agent_sdk": "claude_agent_sdk",
    "google_adk": "google.adk",
    "langchain": "langchain_core",
    "langgraph": "langgraph",
    "livekit": "livekit.agents",
    "llama_index": "llama_index.core",
    "mcp": "mcp",
    "nova": "aws_sdk_bedrock_runtime",
    "openai_agents": "agents",
    "pipecat": "pipecat",
    "pydantic_ai": "pydantic_ai",
    "strands": "strands",
}
"""The module of each framework, by the folder of its tests."""


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


# In the main environment a blocking call on an event loop is an error, and synchronous frameworks make some.
IS_ADAPTER_RUN = "AFORESAID_PYTHON" in os.environ
MISSING = [folder for folder, module in FRAMEWORKS.items() if not IS_ADAPTER_RUN or not _is_installed(module)]
HERE = Path(__file__).parent
collect_ignore = [str(HERE / folder) for folder in MISSING]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if MISSING and any("tests/adapters" in str(path) for path in terminalreporter.config.args):
        terminalreporter.write_line(
            f"adapters not tested here: {', '.join(MISSING)}; `make test-adapters` tests them"
        )
