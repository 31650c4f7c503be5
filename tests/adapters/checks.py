"""The checks that every adapter passes, through its real framework."""

import asyncio
import base64
import importlib.util
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import aforesaid
from aforesaid.contracts.entries import unreadable_reason
from aforesaid.encryption import MasterKeys
from aforesaid.layers.build import Layers
from aforesaid.memory.interface import ManagerProtocol
from aforesaid.testing.validity import problems
from aforesaid.windows import WindowPolicy

ROOT = Path(__file__).resolve().parents[2]
FRAMEWORK_PAGES = ROOT / "docs" / "how-to" / "frameworks"
KILLED = 9
SECRET = "xylophonequartz"
"""A word that occurs nowhere else: in files, it can only come from a message."""


class Adapter:
    """What the checks need of a framework. Each adapter's tests implement it."""

    session = "room 7"

    def conversation(self, session: str) -> str:
        """Return the name of the session's conversation."""
        raise NotImplementedError

    async def say(self, manager: ManagerProtocol, session: str, question: str, answer: str) -> None:
        """Run one turn of a real agent: the question, and the answer of a scripted model."""
        raise NotImplementedError

    async def call_tool(self, manager: ManagerProtocol, session: str) -> None:
        """Run one turn in which the scripted model calls a tool and then answers."""
        raise NotImplementedError

    async def history(self, manager: ManagerProtocol, session: str) -> list[str]:
        """Return the texts that the framework loads for the session, oldest first."""
        raise NotImplementedError


class StatefulAdapter(Adapter):
    """A framework that keeps state beside the transcript."""

    async def keep_state(self, manager: ManagerProtocol, session: str, word: str) -> None:
        """Store a word in the state of the session."""
        raise NotImplementedError

    async def state(self, manager: ManagerProtocol, session: str) -> str:
        """Return the state of the session as text."""
        raise NotImplementedError


@asynccontextmanager
async def memory_in(folder: Path, **options: Any) -> AsyncIterator[aforesaid.Memory]:
    async with aforesaid.open(
        f"sqlite:///{folder / 'memory.db'}", models=aforesaid.Models(embedder=None), **options
    ) as memory:
        yield memory


class StateChecks:
    """State that a framework keeps beside the transcript: documents of the conversation, with its fate."""

    adapter: "StatefulAdapter"

    async def test_state_goes_with_the_conversation(self, tmp_path: Path) -> None:
        async with memory_in(tmp_path) as memory:
            await self._keep(memory)
            assert _is_in_files(tmp_path)
            await memory.of("kim").delete_conversation(self.adapter.conversation(self.adapter.session))
            assert SECRET not in await self.adapter.state(memory.of("kim"), self.adapter.session)
        assert not _is_in_files(tmp_path)

    async def test_state_is_erased_with_the_owner(self, tmp_path: Path) -> None:
        async with memory_in(tmp_path) as memory:
            await self._keep(memory)
            await memory.of("kim").erase()
        assert not _is_in_files(tmp_path)

    async def test_state_is_encrypted_and_exported(self, tmp_path: Path) -> None:
        layers = Layers(encryption=MasterKeys(b"k" * 32))
        async with memory_in(tmp_path, layers=layers) as memory:
            await self._keep(memory)
            assert not _is_in_files(tmp_path)
            await memory.of("kim").export(tmp_path / "export")
        (tmp_path / "other").mkdir()
        async with memory_in(tmp_path / "other") as memory:
            await memory.of("kim").import_(tmp_path / "export")
            assert SECRET in await self.adapter.state(memory.of("kim"), self.adapter.session)

    async def test_state_of_another_owner_is_absent(self, tmp_path: Path) -> None:
        async with memory_in(tmp_path) as memory:
            await self._keep(memory)
            assert SECRET not in await self.adapter.state(memory.of("lee"), self.adapter.session)

    async def _keep(self, memory: Any) -> None:
        kim, session = memory.of("kim"), self.adapter.session
        await self.adapter.say(kim, session, "hello", "hi")
        await self.adapter.keep_state(kim, session, SECRET)
        assert SECRET in await self.adapter.state(kim, session)


class AdapterChecks:
    """Inherit from this and set `adapter`."""

    adapter: Adapter
    keeps_questions = True
    """Whether the framework hands over every question when two writers talk at once."""

    async def test_1_a_restart_keeps_everything(self, tmp_path: Path) -> None:
        async with memory_in(tmp_path) as memory:
            await self._say(memory, "What is the capital of Peru?", "Lima.")
        async with memory_in(tmp_path) as memory:
            await self._say(memory, "And of Chile?", "Santiago.")
            texts = await self._history(memory)
        assert _in_order(texts, "capital of Peru", "Lima.", "of Chile", "Santiago.")

    async def test_2_two_writers_lose_nothing(self, tmp_path: Path) -> None:
        async with memory_in(tmp_path) as one, memory_in(tmp_path) as two:
            await self._say(one, "hello", "hi")

            async def talk(memory: aforesaid.Memory, name: str) -> None:
                for number in range(5):
                    await self._say(memory, f"question {name}{number}", f"answer {name}{number}")

            await asyncio.gather(talk(one, "a"), talk(two, "b"))
            stored = await self._stored_text(one)
        for name in "ab":
            for number in range(5):
                # A framework may ask again after a conflict.
                assert f"question {name}{number}" in stored or not self.keeps_questions
                assert stored.count(f"answer {name}{number}") == 1

    async def test_3_a_kill_within_a_turn_keeps_the_earlier_ones(self, tmp_path: Path) -> None:
        async with memory_in(tmp_path) as memory:
            await self._say(memory, "What is the capital of Peru?", "Lima.")
        done = await asyncio.to_thread(_run_killed, type(self), tmp_path)
        assert done.returncode == KILLED, done.stderr
        async with memory_in(tmp_path) as memory:
            texts = await self._history(memory)
            assert _in_order(texts, "capital of Peru", "Lima.")
            await self._say(memory, "And of Chile?", "Santiago.")
            assert _in_order(await self._history(memory), "Lima.", "of Chile", "Santiago.")

    async def test_4_owners_are_isolated(self, tmp_path: Path) -> None:
        async with memory_in(tmp_path) as memory:
            await self._say(memory, f"The word is {SECRET}", "Noted.")
            assert await self.adapter.history(memory.of("lee"), self.adapter.session) == []
            await self.adapter.say(memory.of("lee"), self.adapter.session, "What is the word?", "No idea.")
            texts = await self.adapter.history(memory.of("lee"), self.adapter.session)
            assert SECRET not in "\n".join(texts)
            assert len(await self._history(memory)) == 2

    async def test_5_windows_are_valid_requests(self, tmp_path: Path) -> None:
        async with memory_in(tmp_path) as memory:
            kim, name = memory.of("kim"), self.adapter.conversation(self.adapter.session)
            for number in range(4):
                await self.adapter.call_tool(kim, self.adapter.session)
                await self._say(memory, f"question {number}", f"answer {number}")
            for limit in (1, 2, 3, 5, 8):
                for dialect in ("anthropic", "openai_chat", "openai_responses"):
                    policy = WindowPolicy(max_turns=limit)
                    request = await kim.load_request(name, dialect, policy=policy)
                    assert problems(request, dialect) == []

    async def test_6_search_finds_it(self, tmp_path: Path) -> None:
        async with memory_in(tmp_path) as memory:
            await self._say(memory, f"The word is {SECRET}", "Noted.")
            assert SECRET in "\n".join(await memory.of("kim").search_history(SECRET))

    async def test_7_erasure_leaves_no_residue(self, tmp_path: Path) -> None:
        async with memory_in(tmp_path) as memory:
            await self._say(memory, f"The word is {SECRET}", f"I keep {SECRET}.")
            await self.adapter.say(memory.of("lee"), self.adapter.session, "hello", "hi")
            assert _is_in_files(tmp_path)
            await memory.of("kim").erase()
            assert await self._history(memory) == []
        assert not _is_in_files(tmp_path)

    async def test_8_an_export_can_be_imported(self, tmp_path: Path) -> None:
        async with memory_in(tmp_path) as memory:
            await self._say(memory, "What is the capital of Peru?", "Lima.")
            await self._say(memory, "And of Chile?", "Santiago.")
            before = await self._history(memory)
            await memory.of("kim").export(tmp_path / "export")
        (tmp_path / "other").mkdir()
        async with memory_in(tmp_path / "other") as memory:
            await memory.of("kim").import_(tmp_path / "export")
            assert await self._history(memory) == before
            await self._say(memory, "And of Bolivia?", "Sucre.")
            assert len(await self._history(memory)) > len(before)

    async def test_9_encryption_hides_it(self, tmp_path: Path) -> None:
        layers = Layers(encryption=MasterKeys(b"k" * 32))
        async with memory_in(tmp_path, layers=layers) as memory:
            await self._say(memory, f"The word is {SECRET}", "Noted.")
        assert not _is_in_files(tmp_path)
        async with memory_in(tmp_path, layers=layers) as memory:
            assert SECRET in "\n".join(await self._history(memory))

    async def test_10_a_server_replaces_the_store(self, tmp_path: Path) -> None:
        async with serving(tmp_path) as url, aforesaid.connect(url) as memory:
            kim = memory.of("kim")
            await self.adapter.say(kim, self.adapter.session, "What is the capital of Peru?", "Lima.")
            await self.adapter.say(kim, self.adapter.session, "And of Chile?", "Santiago.")
            texts = await self.adapter.history(kim, self.adapter.session)
        assert _in_order(texts, "capital of Peru", "Lima.", "of Chile", "Santiago.")

    async def test_11_a_redacted_message_leaves_the_session_and_the_files(self, tmp_path: Path) -> None:
        async with memory_in(tmp_path) as memory:
            kim, name = memory.of("kim"), self.adapter.conversation(self.adapter.session)
            await self._say(memory, f"The word is {SECRET}", "Noted.")
            await self._say(memory, "What is the capital of Peru?", "Lima.")
            for entry in await kim.entries(name, 1000):
                if SECRET in str(entry.message.content):
                    await kim.redact(name, str(entry.message.message_id), scrub=True)
            texts = await self._history(memory)
            assert SECRET not in "\n".join(texts)
            assert _in_order(texts, "Noted.", "capital of Peru", "Lima.")
            await self._say(memory, "And of Chile?", "Santiago.")
            assert _in_order(await self._history(memory), "Lima.", "of Chile", "Santiago.")
            assert SECRET not in await self._stored_text(memory)
        assert not _is_in_files(tmp_path)

    async def test_12_a_session_continues_when_its_tool_calls_are_redacted(self, tmp_path: Path) -> None:
        async with memory_in(tmp_path) as memory:
            kim, name = memory.of("kim"), self.adapter.conversation(self.adapter.session)
            await self._say(memory, "What is the capital of Peru?", "Lima.")
            before = len(await kim.entries(name, 1000))
            await self.adapter.call_tool(kim, self.adapter.session)
            count = len(await self._history(memory))
            for entry in (await kim.entries(name, 1000))[before:]:
                await kim.redact(name, str(entry.message.message_id))
            assert len(await self._history(memory)) == count
            await self._say(memory, "And of Chile?", "Santiago.")
            texts = await self._history(memory)
            request = await kim.load_request(name, "anthropic", policy=WindowPolicy(max_turns=9))
        assert "rake" not in "\n".join(texts)
        assert _in_order(texts, "capital of Peru", "Lima.", "of Chile", "Santiago.")
        assert problems(request, "anthropic") == []

    async def test_13_deleting_the_conversation_deletes_the_session(self, tmp_path: Path) -> None:
        async with memory_in(tmp_path) as memory:
            await self._say(memory, f"The word is {SECRET}", "Noted.")
            assert _is_in_files(tmp_path)
            await memory.of("kim").delete_conversation(self.adapter.conversation(self.adapter.session))
            assert await self._history(memory) == []
            await self._say(memory, "What is the capital of Peru?", "Lima.")
            assert _in_order(await self._history(memory), "capital of Peru", "Lima.")
        assert not _is_in_files(tmp_path)

    async def test_the_page_runs_and_a_second_run_continues(self, tmp_path: Path) -> None:
        """Run the program of the framework's how-to page, with a scripted model where it names a real one."""
        block = _program_of(type(self))
        await asyncio.to_thread(_run_page, type(self), block, tmp_path)
        first = await _asked_in(tmp_path)
        assert len(first) == len(set(first)) > 0
        await asyncio.to_thread(_run_page, type(self), block, tmp_path)
        assert sorted(await _asked_in(tmp_path)) == sorted(first * 2)

    def test_the_line_to_change_is_in_the_program_of_the_page(self) -> None:
        """The README and the page name the line that the program of the page has."""
        readme = (ROOT / "README.md").read_text()
        name = _page_of(type(self))
        (row,) = re.findall(rf"^\|.*frameworks/{name}.md\) \| `([^`]+)`", readme, re.MULTILINE)
        page = (FRAMEWORK_PAGES / f"{name}.md").read_text()
        (named,) = re.findall(r"^The (?:changed|added) line: `([^`]+)`", page, re.MULTILINE)
        program = "".join(_program_of(type(self)).split())
        assert "".join(row.split()) in program
        assert "".join(named.split()) in program

    async def _say(self, memory: Any, question: str, answer: str) -> None:
        await self.adapter.say(memory.of("kim"), self.adapter.session, question, answer)

    async def _history(self, memory: Any) -> list[str]:
        return await self.adapter.history(memory.of("kim"), self.adapter.session)

    async def _stored_text(self, memory: Any) -> str:
        """Return everything in the session's log."""
        name = self.adapter.conversation(self.adapter.session)
        entries = await memory.of("kim").entries(name, 1000)
        assert all(unreadable_reason(entry) is None for entry in entries)
        return "\n".join(str(entry.message.content) for entry in entries)


def _page_of(checks: type[AdapterChecks]) -> str:
    return checks.__module__.split(".")[2].replace("_", "-")


def _program_of(checks: type[AdapterChecks]) -> str:
    page = (FRAMEWORK_PAGES / f"{_page_of(checks)}.md").read_text()
    (block,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return str(block)


def _run_page(checks: type[AdapterChecks], block: str, folder: Path) -> None:
    model = f"{checks.__module__.rpartition('.')[0]}.page_model"
    prelude = f"import {model}\n" if importlib.util.find_spec(model) else ""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", prelude + block],
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


async def _asked_in(folder: Path) -> list[str]:
    """Return what the user said in all conversations of the page's memory."""
    async with memory_in(folder) as memory:
        kim = memory.of("kim")
        records = (await kim.list(limit=10)).conversations
        messages = [message for record in records for message in await kim.messages(record.id, 100)]
    return [str(message.content) for message in messages if message.role == "user"]


def _run_killed(checks: type[AdapterChecks], folder: Path) -> "subprocess.CompletedProcess[str]":
    script = f"""
        import asyncio, os
        from pathlib import Path
        from tests.adapters.checks import memory_in
        from {checks.__module__} import {checks.__name__} as checks


        async def main():
            adapter = checks().adapter
            async with memory_in(Path({str(folder)!r})) as memory:
                adapter.before_answer = lambda: os._exit({KILLED})
                await adapter.say(memory.of("kim"), adapter.session, "A question", "never given")

        asyncio.run(main())
    """
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=120,
    )


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[str]:
    """Run the server of the main environment, which has the server's packages."""
    python = os.environ.get("AFORESAID_PYTHON", sys.executable)
    arguments = ["aforesaid", "serve", "--port", "0", "--url", f"sqlite:///{folder / 'served.db'}"]
    code = f"import sys; from aforesaid.cli import main; sys.argv = {arguments!r}; main()"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1"}
    process = await asyncio.create_subprocess_exec(
        python,
        "-c",
        code,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=folder,
    )
    assert process.stdout is not None
    try:
        yield await asyncio.wait_for(_address(process.stdout), 120)
    finally:
        process.terminate()
        await process.wait()


async def _address(output: asyncio.StreamReader) -> str:
    lines: list[str] = []
    while line := (await output.readline()).decode():
        lines.append(line)
        for word in line.split():
            if word.startswith("http://127.0.0.1:"):
                return word.strip(".,)\x1b[0m")
    pytest.fail("the server did not start: " + "".join(lines))


def _is_in_files(folder: Path) -> bool:
    """Return whether the secret is in any file, as text or within data in base64."""
    forms = [SECRET.encode(), *_in_base64(SECRET.encode())]
    files = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    return any(form in content for form in forms for content in files)


def _in_base64(word: bytes) -> list[bytes]:
    """Return how the word looks within base64, at each of the three places of a group."""
    forms = []
    for before in range(3):
        start, end = -(-before * 8 // 6), (before + len(word)) * 8 // 6
        forms.append(base64.b64encode(bytes(before) + word)[start:end])
    return forms


def _in_order(texts: list[str], *parts: str) -> bool:
    joined, place = "\n".join(texts), 0
    for part in parts:
        place = joined.find(part, place)
        if place < 0:
            raise AssertionError(f"{part!r} is missing, or out of order, in {texts}")
    return True
