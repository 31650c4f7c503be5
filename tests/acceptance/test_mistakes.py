"""Ten typical mistakes of a newcomer: each is one line that says what to do."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import aforesaid
from aforesaid.agents.configured import agent_for
from aforesaid.errors import AforesaidError, ConversationNotFound, InvalidInput, InvalidSetting, NothingToSend
from aforesaid.settings import AgentConfig


def one_line(error: BaseException, *words: str) -> None:
    text = str(error)
    assert "\n" not in text
    for word in words:
        assert word in text


def test_a_wrong_url() -> None:
    with pytest.raises(InvalidSetting) as caught:
        aforesaid.open("mysql://localhost/memory")
    one_line(caught.value, "no store for 'mysql:'", "sqlite", "postgresql", "PostgreSQL")
    with pytest.raises(InvalidSetting) as caught:
        aforesaid.open("https://memory.example")
    one_line(caught.value, "`aforesaid.connect`")


async def test_an_owner_that_is_no_text() -> None:
    async with aforesaid.open() as memory:
        with pytest.raises(InvalidInput) as caught:
            memory.of(42)  # type: ignore[arg-type]
    one_line(caught.value, "owner must be text", "42")


def test_a_missing_extra() -> None:
    script = "import sys; sys.modules['psycopg'] = None; import aforesaid; aforesaid.open('postgresql://h/d')"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    assert "MissingExtra" in done.stderr.splitlines()[-1]
    assert "pip install 'aforesaid[postgres]'" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("provider", "variable"), [("anthropic", "ANTHROPIC_API_KEY"), ("openai", "OPENAI_API_KEY")]
)
def test_a_missing_key(provider: str, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("ANTHROPIC_", "OPENAI_", "AZURE_"))]:
        monkeypatch.delenv(name)
    with pytest.raises(InvalidSetting) as caught:
        agent_for(AgentConfig(provider=provider, model="some-model"))
    one_line(caught.value, f"set {variable}")


def test_a_missing_key_in_the_terminal(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.endswith("_API_KEY")}
    done = subprocess.run(
        [sys.executable, "-m", "aforesaid", "chat", "--provider", "openai", "--model", "gpt-5"],
        cwd=tmp_path,
        env=environment,
        input="hello\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "set OPENAI_API_KEY" in done.stderr


async def test_a_typo_in_a_dialect() -> None:
    async with aforesaid.open() as memory:
        turn = memory.of("erin").turn("kitchen")
        turn.user("hello")
        with pytest.raises(InvalidInput) as caught:
            await turn.request("antropic")  # type: ignore[call-overload]
    one_line(caught.value, "dialect must be one of plain, anthropic, openai_chat", "'antropic'")


async def test_a_request_before_the_question() -> None:
    async with aforesaid.open() as memory, memory.of("erin").turn("kitchen") as turn:
        with pytest.raises(NothingToSend) as caught:
            await turn.request("anthropic")
        one_line(caught.value, "there is nothing to send", "`turn.user` first")
        turn.user("   ")
        with pytest.raises(NothingToSend) as caught:
            await turn.request("anthropic")
        assert "turn.user" not in str(caught.value)


async def test_a_memory_used_like_the_handle_of_an_owner() -> None:
    async with aforesaid.open() as memory:
        for name in ("messages", "add_message", "turn", "search_history"):
            with pytest.raises(AttributeError) as caught:
                getattr(memory, name)
            one_line(caught.value, f"name an owner first: memory.of('erin').{name}")
            assert not hasattr(memory, name)
        with pytest.raises(AttributeError) as caught:
            memory.mesages  # type: ignore[attr-defined]  # noqa: B018
        assert str(caught.value) == "'Memory' object has no attribute 'mesages'"


def test_a_sync_memory_used_like_the_handle_of_an_owner() -> None:
    with aforesaid.sync.open() as memory, pytest.raises(AttributeError) as caught:
        memory.messages  # type: ignore[attr-defined]  # noqa: B018
    one_line(caught.value, "memory.of('erin').messages")


def test_a_missing_await() -> None:
    script = "import aforesaid\nmemory = aforesaid.open()\nmemory.of('erin').messages('kitchen')\n"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    assert "was never awaited" in done.stderr
    with pytest.raises(TypeError) as caught, aforesaid.open():
        pass
    one_line(caught.value, "Memory needs `async with`", "aforesaid.sync.open")
    with pytest.raises(TypeError) as caught, aforesaid.open().of("erin").turn("kitchen"):
        pass
    one_line(caught.value, "TurnInProgress needs `async with`", "aforesaid.sync.open")


async def test_closing_twice() -> None:
    memory = await aforesaid.open()
    await memory.close()
    await memory.close()
    with pytest.raises(AforesaidError) as caught:
        await memory.of("erin").add_message("kitchen", "user", "hello")
    one_line(caught.value, "not open", "async with aforesaid.open")


@pytest.mark.parametrize("store", ["sqlite:///{}/memory.db", "file:{}/memory.json"])
async def test_a_memory_that_was_never_opened(store: str, tmp_path: Path) -> None:
    memory = aforesaid.open(store.format(tmp_path))
    try:
        with pytest.raises(AforesaidError) as caught:
            await memory.of("erin").add_message("kitchen", "user", "hello")
    finally:
        await memory.close()
    one_line(caught.value, "not open", "async with aforesaid.open")


def test_two_event_loops(tmp_path: Path) -> None:
    memory = aforesaid.open(f"sqlite:///{tmp_path / 'memory.db'}")
    asyncio.run(memory.start())
    for _ in range(2):
        asyncio.run(memory.of("erin").add_message("kitchen", "user", "hello"))
    asyncio.run(memory.close())


OTHERS: dict[str, Callable[[Any, str], Awaitable[Any]]] = {
    "get_conversation": lambda sam, one: sam.get_conversation(one),
    "messages": lambda sam, one: sam.messages(one),
    "add_message": lambda sam, one: sam.add_message(one, "user", "hello"),
}


@pytest.mark.parametrize("call", OTHERS)
async def test_the_id_of_another_owner(call: str) -> None:
    async with aforesaid.open() as memory:
        record = await memory.of("erin").add_message("kitchen", "user", "a secret")
        with pytest.raises(ConversationNotFound) as caught:
            await OTHERS[call](memory.of("sam"), record.id)
    one_line(caught.value, f"there is no conversation {record.id!r}")


def test_a_provider_without_a_model() -> None:
    with pytest.raises(InvalidSetting) as caught:
        agent_for(AgentConfig(provider="anthropic"))
    one_line(caught.value, "set AFORESAID_MODEL")
