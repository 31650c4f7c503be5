"""Every provider through its own SDK, against a server of its kind on this machine, streamed and not."""

import gc
import warnings
from collections.abc import AsyncIterator, Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import aforesaid
from aforesaid.agents import AnthropicAgent, OpenAIChatAgent, OpenAIResponsesAgent, StrandsAgent
from aforesaid.contracts import Agent, OnText
from aforesaid.memory.manager import ConversationManager
from aforesaid.testing.providers import FakeProvider
from aforesaid.testing.providers.provider import Kind
from tests.report import MATRIX

KEY = "sk-test-0123456789abcdef"
KINDS: tuple[Kind, ...] = ("anthropic", "openai_chat", "openai_responses", "bedrock")
DIALECTS = {kind: kind for kind in KINDS} | {"bedrock": "anthropic"}

Make = Callable[..., Agent]


@cache
def aws_session() -> Any:
    """One for all tests: it reads the descriptions of services from disk. What the SDKs are made of stays,
    and need not be looked at each time that their sockets are collected."""
    import boto3
    import strands.models  # noqa: F401  loaded now, to be set aside with the rest

    session = boto3.Session(region_name="us-east-1")
    gc.collect()
    gc.freeze()
    return session


def bedrock_model(url: str, *, streaming: bool, attempts: int = 1, timeout: float = 20.0) -> Any:
    from botocore.config import Config
    from strands.models import BedrockModel

    patience = Config(
        retries={"total_max_attempts": attempts, "mode": "standard"},
        read_timeout=timeout,
        connect_timeout=timeout,
    )
    return BedrockModel(
        boto_session=aws_session(),
        boto_client_config=patience,
        endpoint_url=url,
        api_key=KEY,
        model_id="fake",
        streaming=streaming,
    )


def make_agent(
    kind: Kind, url: str, *, streaming: bool, name: str = "assistant", retries: int = 0, timeout: float = 20.0
) -> Agent:
    common: dict[str, Any] = {
        "name": name,
        "base_url": url,
        "api_key": KEY,
        "max_retries": retries,
        "timeout": timeout,
    }
    match kind:
        case "anthropic":
            return AnthropicAgent("claude-fake", **common)
        case "openai_chat":
            return OpenAIChatAgent("gpt-fake", **common)
        case "openai_responses":
            return OpenAIResponsesAgent("gpt-fake", reasoning_effort="low", **common)
        case _:
            return StrandsAgent(
                lambda: bedrock_model(url, streaming=streaming, attempts=retries + 1, timeout=timeout),
                name=name,
            )


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def streaming(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
async def provider(kind: Kind) -> AsyncIterator[FakeProvider]:
    async with FakeProvider(kind) as provider:
        yield provider


@pytest.fixture
async def make(kind: Kind, provider: FakeProvider, streaming: bool) -> AsyncIterator[Make]:
    """Makes agents of this kind, and closes them."""
    made: list[Agent] = []

    def make(**options: Any) -> Agent:
        made.append(make_agent(kind, provider.url, streaming=streaming, **options))
        return made[-1]

    yield make
    for agent in made:
        await agent.close()
    if kind == "bedrock":
        _collect_sockets()


def _collect_sockets() -> None:
    """Now, and quietly: the SDK leaves the socket of a stream that broke off to the garbage collector."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def agent(make: Make) -> Agent:
    return make()


@pytest.fixture
def pieces() -> list[str]:
    return []


@pytest.fixture
def on_text(streaming: bool, pieces: list[str]) -> OnText | None:
    return pieces.append if streaming else None


@pytest.fixture(params=["memory", "sqlite"] if MATRIX else ["sqlite"])
async def memory(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[aforesaid.Memory]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/memory.db?synchronous=normal"
    async with aforesaid.open(url, retention=aforesaid.Retention(sweep_every=None)) as memory:
        yield memory


@pytest.fixture
def erin(memory: aforesaid.Memory) -> ConversationManager:
    return memory.of("erin")
