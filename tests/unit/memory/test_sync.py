"""The synchronous face: every call of a manager, without `await`, in any thread."""

import asyncio
import inspect
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import aforesaid
import aforesaid.sync
from aforesaid.errors import ConversationNotFound, InvalidInput, StoreClosed
from aforesaid.memory.manager import ConversationManager

NOT_BLOCKING = {"calibrate", "degraded", "now"}


def test_a_script_stores_and_reads(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    with aforesaid.sync.open(url) as memory:
        erin = memory.of("erin")
        with erin.turn("kitchen") as turn:
            turn.user("What is for dinner?")
            request = turn.request("anthropic", model="claude-sonnet-5")
            turn.assistant("Chicken with leeks.")
        assert request["messages"] == [{"role": "user", "content": "What is for dinner?"}]
    with aforesaid.sync.open(url) as memory:
        assert [m.content for m in memory.of("erin").messages("kitchen")] == [
            "What is for dinner?",
            "Chicken with leeks.",
        ]
        assert memory.owners() == ["erin"]
        assert memory.of("erin").clients.list().contacts == ()
        assert memory.sweep() == 0


def test_a_turn_that_raises_stores_nothing() -> None:
    with aforesaid.sync.open() as memory:
        erin = memory.of("erin")
        with pytest.raises(ZeroDivisionError), erin.turn("kitchen") as turn:
            turn.user("hello")
            raise ZeroDivisionError
        with pytest.raises(ConversationNotFound):
            erin.get_conversation("kitchen")


NOTEBOOK = """
import asyncio, aforesaid.sync

async def cell():
    with aforesaid.sync.open() as memory:
        memory.of("erin").add_message("kitchen", "user", "hello")
        print(len(memory.of("erin").messages("kitchen")))

asyncio.run(cell())
"""


def test_it_works_inside_a_running_loop() -> None:
    # In a process of its own: the tests forbid to block a loop, which is what a notebook wants here.
    done = subprocess.run([sys.executable, "-c", NOTEBOOK], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_threads_share_one_memory() -> None:
    with aforesaid.sync.open() as memory:

        def say(number: int) -> None:
            memory.of("erin").add_message("kitchen", "user", str(number))

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(say, range(20)))
        assert len(memory.of("erin").messages("kitchen")) == 20


def test_changes_are_watched() -> None:
    with aforesaid.sync.open() as memory:
        erin = memory.of("erin")
        with erin.watch() as changes:
            stored = erin.add_message("kitchen", "user", "hello")
            assert next(changes).conversation_id == stored.id


def test_a_closed_memory_says_so() -> None:
    memory = aforesaid.sync.open()
    memory.close()
    memory.close()
    with pytest.raises(StoreClosed, match="open it again"):
        memory.of("erin").messages("kitchen")


def test_a_wrong_url_leaves_no_thread() -> None:
    with pytest.raises(InvalidInput, match="no store for"):
        aforesaid.sync.open("mysql://host/db")


def test_every_method_of_a_manager_is_there() -> None:
    for name, member in inspect.getmembers(ConversationManager):
        if not name.startswith("_") and name not in NOT_BLOCKING and callable(member):
            assert hasattr(aforesaid.sync.SyncManager, name), name


def test_several_loops_use_one_memory(tmp_path: Path) -> None:
    memory = aforesaid.open(f"sqlite:///{tmp_path / 'memory.db'}")

    async def say(words: str) -> int:
        async with memory.of("erin").turn("kitchen") as turn:
            turn.user(words)
            await turn.request("openai_chat")
        await memory.of("erin").search_history(words)
        return len(await memory.of("erin").messages("kitchen"))

    asyncio.run(memory.start())
    assert [asyncio.run(say(words)) for words in ("one", "two", "three")] == [1, 2, 3]
    asyncio.run(memory.close())
    asyncio.run(memory.close())
