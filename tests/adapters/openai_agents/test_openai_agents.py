"""OpenAI Agents with Aforesaid as its session."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, Model, ModelResponse, Runner, SQLiteSession, Usage, function_tool
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

import aforesaid
from aforesaid.adapters.openai_agents import AforesaidSession
from aforesaid.importers import FORMATS, import_history
from aforesaid.memory.interface import ManagerProtocol
from tests.adapters.checks import ROOT, Adapter, AdapterChecks


class Scripted(Model):
    """A model that gives prepared answers."""

    def __init__(self, *outputs: list[Any], before: Callable[[], Any] = lambda: None) -> None:
        self.outputs = list(outputs)
        self.before = before
        self.asked: list[Any] = []

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        self.before()
        self.asked.append(kwargs.get("input", args[1] if len(args) > 1 else None))
        return ModelResponse(output=self.outputs.pop(0), usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


def text(words: str) -> list[Any]:
    content = ResponseOutputText(text=words, type="output_text", annotations=[])
    return [
        ResponseOutputMessage(id="m", content=[content], role="assistant", status="completed", type="message")
    ]


@function_tool
def look(where: str) -> str:
    """Look somewhere."""
    return f"a rake in the {where}"


class OpenAIAdapter(Adapter):
    before_answer: Callable[[], Any] = staticmethod(lambda: None)

    def conversation(self, session: str) -> str:
        return f"openai-agents/{session}"

    async def say(self, manager: ManagerProtocol, session: str, question: str, answer: str) -> None:
        agent = Agent(name="a", model=Scripted(text(answer), before=self.before_answer))
        await Runner.run(agent, question, session=AforesaidSession(session, manager))

    async def call_tool(self, manager: ManagerProtocol, session: str) -> None:
        call = ResponseFunctionToolCall(
            arguments='{"where": "shed"}', call_id="c1", name="look", type="function_call"
        )
        agent = Agent(name="a", model=Scripted([call], text("A rake.")), tools=[look])
        await Runner.run(agent, "What is in the shed?", session=AforesaidSession(session, manager))

    async def history(self, manager: ManagerProtocol, session: str) -> list[str]:
        return [_words(item) for item in await AforesaidSession(session, manager).get_items()]


class TestChecks(AdapterChecks):
    adapter = OpenAIAdapter()


async def test_items_come_back_exactly() -> None:
    items: list[Any] = [
        {"role": "user", "content": "hi"},
        {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]},
        {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "xyz"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "id": "fc"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "x"}]},
        {"type": "something_new", "anything": {"nested": [1, None, True]}},
        {
            "role": "assistant",
            "content": [{"type": "output_text", "text": "ok", "annotations": []}],
            "id": "m",
        },
    ]
    async with aforesaid.open("memory://") as memory:
        session = AforesaidSession("s", memory.of("kim"))
        await session.add_items(items)
        await session.add_items(items)
        assert await session.get_items() == items * 2
        assert await session.get_items(3) == items[-3:]
        assert await session.get_items(0) == []


async def test_two_callers_never_pop_the_same_item() -> None:
    async with aforesaid.open("memory://") as memory:
        session = AforesaidSession("s", memory.of("kim"))
        await session.add_items([{"role": "user", "content": str(number)} for number in range(10)])
        popped = await asyncio.gather(*(session.pop_item() for _ in range(12)))
    contents = [item["content"] for item in popped if item is not None]
    assert sorted(contents) == [str(number) for number in range(10)]
    assert popped.count(None) == 2


async def test_compaction_hides_old_turns_and_the_log_keeps_them() -> None:
    async with aforesaid.open("memory://") as memory:
        kim = memory.of("kim")
        session = AforesaidSession("s", kim, keep_turns=2)
        for number in range(5):
            await session.add_items(
                [{"role": "user", "content": f"q{number}"}, {"role": "assistant", "content": f"a{number}"}]
            )
            await session.run_compaction({"response_id": "r"})
        assert [item["content"] for item in await session.get_items()] == ["q3", "a3", "q4", "a4"]
        assert len(await kim.messages("openai-agents/s")) == 10


async def test_a_file_of_the_sdks_own_session_is_imported(tmp_path: Path) -> None:
    theirs = SQLiteSession("s", tmp_path / "theirs.db")
    items: list[Any] = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    await theirs.add_items(items)
    theirs.close()
    async with aforesaid.open("memory://") as memory:
        kim = memory.of("kim")
        report = await import_history(kim, FORMATS["openai-session"], tmp_path / "theirs.db")
        again = await import_history(kim, FORMATS["openai-session"], tmp_path / "theirs.db")
        assert (report.messages, again.messages) == (2, 0)
        assert await AforesaidSession("s", kim).get_items() == items


PUBLISHED = ["tests/memory/test_session.py", "tests/memory/test_session_limit.py"]
INSIDES = (
    "test_sqlite_session_close_closes_worker_thread_connections",
    "test_sqlite_session_reaps_connections_from_exited_worker_threads",
    "test_sqlite_session_closes_retired_connections_before_the_next_allocation",
    "test_sqlite_session_keeps_connections_of_live_worker_threads",
    "test_sqlite_session_file_lock_is_shared_across_instances",
    "test_sqlite_session_failed_add_items_releases_write_lock",
    "test_sqlite_session_failed_clear_session_rolls_back",
    "test_sqlite_session_failed_pop_item_releases_write_lock",
    "test_sqlite_session_rollback_failure_evicts_connection",
    "test_sqlite_session_close_retries_quarantined_connection",
    "test_sqlite_session_post_commit_cancellation_propagates_after_known_outcome",
    "test_sqlite_session_pop_item_skips_corrupt_most_recent",
    "test_sqlite_session_pop_item_returns_none_after_dropping_only_corrupt_rows",
    "test_sqlite_session_get_items_limit_skips_corrupt_newest_rows",
    "test_sqlite_session_get_items_session_settings_limit_skips_corrupt_rows",
)
"""Tests that inspect SQLite: connections, locks, rows. They say nothing of a session."""


@pytest.mark.parametrize("broken", [False, True])
def test_the_published_tests(broken: bool) -> None:
    (suite,) = Path(os.environ["AFORESAID_SUITE"]).glob("openai_agents-*/")
    paths = [str(ROOT / "src"), str(ROOT), str(suite)]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests_plugin",
        "-p",
        "no:randomly",
        "-p",
        "no:cacheprovider",
    ]
    done = subprocess.run(
        [*command, "-o", "asyncio_mode=auto", "-k", f"not ({' or '.join(INSIDES)})", *PUBLISHED],
        check=False,
        cwd=suite,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent / "plugin"), *paths]),
            "AFORESAID_BROKEN": "1" if broken else "",
            "OPENAI_API_KEY": "none",
        },
        capture_output=True,
        text=True,
    )
    last = done.stdout.strip().splitlines()[-1]
    assert ("failed" in last) == broken, done.stdout[-4000:] + done.stderr[-1000:]
    if not broken:
        assert last.startswith("54 passed, 17 deselected"), last


def _words(item: Any) -> str:
    content = item.get("content") or item.get("output") or ""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)
