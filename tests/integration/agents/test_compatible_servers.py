"""Servers that speak OpenAI's interfaces, what is sent to them, and what is not."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aforesaid.agents import (
    AgenticLoop,
    AnthropicAgent,
    OpenAIChatAgent,
    OpenAIResponsesAgent,
    StrandsAgent,
)
from aforesaid.agents.providers.openai import merge_delta
from aforesaid.agents.providers.sdk import without_secrets
from aforesaid.contracts import Ask
from aforesaid.errors import MissingExtra
from aforesaid.model.messages import Message
from aforesaid.testing.providers import FakeProvider, Says
from tests.unit.agents.tools import registry

ENVIRONMENT_KEY = "sk-of-somebody-else-entirely"
HELLO = Ask(messages=(Message(role="user", content="Hello?"),))


async def test_another_server_never_gets_the_key_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", ENVIRONMENT_KEY)
    async with FakeProvider("openai_chat", otherwise=Says("Hi.")) as ollama:
        agent = OpenAIChatAgent("llama", base_url=ollama.url, provider="Ollama")
        await agent.reply(HELLO)
        await agent.close()
        assert ENVIRONMENT_KEY not in str(ollama.headers)


@pytest.mark.parametrize("streamed", [False, True])
async def test_azure_is_asked_by_deployment_and_version(streamed: bool) -> None:
    async with FakeProvider("openai_chat", otherwise=Says("Hi.")) as azure:
        address = azure.url.removesuffix("/v1")
        agent = OpenAIChatAgent("home", base_url=address, api_key="az-key", api_version="2024-10-21")
        answer = await AgenticLoop(agent).run("Hello?", on_text=print if streamed else None)
        await agent.close()
    assert answer.text == "Hi."
    assert azure.paths == ["/openai/deployments/home/chat/completions?api-version=2024-10-21"]
    assert azure.headers[0]["api-key"] == "az-key"


async def test_responses_of_azure_too() -> None:
    async with FakeProvider("openai_responses", otherwise=Says("Hi.")) as azure:
        address = azure.url.removesuffix("/v1")
        agent = OpenAIResponsesAgent("home", base_url=address, api_key="az-key", api_version="2025-04-01")
        await agent.reply(HELLO)
        await agent.close()
    assert azure.paths == ["/openai/responses?api-version=2025-04-01"]


async def test_nothing_is_kept_at_the_provider_unless_asked_for() -> None:
    async with FakeProvider("openai_responses", otherwise=Says("Hi.", thinking="hm")) as provider:
        agent = OpenAIResponsesAgent("gpt", base_url=provider.url, reasoning_effort="low")
        answer = await AgenticLoop(agent).run("Hello?")
        await AgenticLoop(agent).run("And now?", answer.messages)
        keeping = OpenAIResponsesAgent("gpt", base_url=provider.url, store=True)
        await AgenticLoop(keeping).run("And now?", answer.messages)
        await agent.close()
        await keeping.close()
    assert [body["store"] for body in provider.requests] == [False, False, True]
    by_value, by_name = provider.requests[1]["input"], provider.requests[2]["input"]
    assert [item.get("id") for item in by_value] == [None] * 4
    assert [item.get("id") for item in by_name] == [None, "rs_1", "msg_1", None]
    assert by_value[1]["encrypted_content"]


async def test_options_go_along() -> None:
    async with FakeProvider("anthropic", otherwise=Says("Hi.")) as provider:
        agent = AnthropicAgent(
            "claude", base_url=provider.url, api_key="k", max_tokens=77, options={"temperature": 0}
        )
        await agent.reply(HELLO)
        await agent.close()
    assert provider.requests[0]["max_tokens"] == 77
    assert provider.requests[0]["temperature"] == 0


async def test_a_client_that_was_handed_in_stays_open() -> None:
    import openai

    async with FakeProvider("openai_chat", otherwise=Says("Hi.")) as provider:
        client = openai.AsyncOpenAI(base_url=provider.url, api_key="k")
        first = OpenAIChatAgent("gpt", client=client)
        await first.reply(HELLO)
        await first.close()
        assert not client.is_closed()
        await OpenAIChatAgent("gpt", client=client).reply(HELLO)
        await client.close()


async def test_an_agent_may_be_closed_twice_and_unused() -> None:
    agent = AnthropicAgent("claude", base_url="http://127.0.0.1:9", api_key="k")
    await agent.close()
    await agent.close()


@pytest.mark.parametrize(
    ("package", "make", "extra"),
    [
        ("anthropic", lambda: AnthropicAgent("claude"), "anthropic"),
        ("openai", lambda: OpenAIChatAgent("gpt"), "openai"),
        ("openai", lambda: OpenAIResponsesAgent("gpt"), "openai"),
        ("strands", lambda: StrandsAgent(dict), "strands"),
    ],
)
def test_a_missing_sdk_says_what_to_type(
    monkeypatch: pytest.MonkeyPatch, package: str, make: Any, extra: str
) -> None:
    monkeypatch.setattr(
        "aforesaid.agents.providers.sdk.find_spec", lambda name: None if name == package else 1
    )
    with pytest.raises(MissingExtra, match=rf"aforesaid\[{extra}\]"):
        make()


def test_agents_are_light_until_they_are_used() -> None:
    code = (
        "import sys, aforesaid.agents; "
        "print([m for m in ('anthropic', 'openai', 'strands', 'boto3', 'httpx') if m in sys.modules])"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3] / "src")}
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert found.stdout.strip() == "[]"


pieces_of_calls = [
    # OpenAI: an index, the id once.
    [{"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}}],
    [{"index": 0, "function": {"arguments": '{"x"'}}],
    [{"index": 1, "id": "b", "function": {"name": "g", "arguments": "{}"}}],
    [{"index": 0, "function": {"arguments": ": 1}"}}],
]
whole_calls = [
    {"id": "a", "function": {"name": "f", "arguments": '{"x": 1}'}},
    {"id": "b", "function": {"name": "g", "arguments": "{}"}},
]


def test_pieces_of_calls_grow_together() -> None:
    message: dict[str, Any] = {}
    for piece in pieces_of_calls:
        merge_delta(message, {"tool_calls": piece})
    assert message["tool_calls"] == whole_calls


def test_servers_without_an_index_are_understood() -> None:
    message: dict[str, Any] = {}
    for piece in (
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x"'}},
        {"id": "a", "type": "function", "function": {"arguments": ": 1}"}},
        {"id": "b", "function": {"name": "g", "arguments": "{"}},
        {"function": {"arguments": "}"}},
    ):
        merge_delta(message, {"tool_calls": [piece]})
    assert [call["function"] for call in message["tool_calls"]] == [call["function"] for call in whole_calls]


@given(st.lists(st.text(max_size=5), max_size=8))
def test_text_grows_whatever_its_pieces(pieces: list[str]) -> None:
    message: dict[str, Any] = {"role": "assistant"}
    for piece in pieces:
        merge_delta(message, {"role": "assistant", "content": piece, "reasoning_content": piece})
    assert message.get("content", "") == message.get("reasoning_content", "") == "".join(pieces)
    assert message["role"] == "assistant"


KEYS = st.text("abcdefgh0123456789", min_size=8, max_size=30)


@given(key=KEYS, before=st.text(max_size=20), after=st.text(max_size=20))
def test_a_known_secret_is_taken_out_wherever_it_stands(key: str, before: str, after: str) -> None:
    assert key not in without_secrets(f"{before}{key}{after}", (key,)).replace("[secret]", "")


@pytest.mark.parametrize(
    "words",
    [
        "Incorrect API key provided: sk-proj-abcd1234efgh5678.",
        "Authorization: Bearer abcdef123456",
        "x-api-key=abcdef123456",
        "credential AKIAABCDEFGHIJKLMNOP is unknown",
        "token eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc",
    ],
)
def test_what_looks_like_a_secret_is_taken_out(words: str) -> None:
    describe = without_secrets(words)
    assert "[secret]" in describe
    for part in ("abcd1234efgh", "abcdef123456", "AKIAABCDEF", "eyJhbGci"):
        assert part not in describe


def test_long_words_are_cut() -> None:
    assert len(without_secrets("word " * 1000)) < 400


async def test_tools_are_described_as_each_wants_them() -> None:
    async with FakeProvider("openai_responses", otherwise=Says("Hi.")) as provider:
        agent = OpenAIResponsesAgent("gpt", base_url=provider.url)
        await AgenticLoop(agent).run("Hello?", (), registry())
        await agent.close()
    assert provider.requests[0]["tools"][0]["type"] == "function"
    assert provider.requests[0]["tools"][0]["name"] == "lights"
