"""The first turn and the first window of a process do not wait for the token tables."""

import subprocess
import sys

import pytest

SCRIPT = """
import asyncio, logging, threading
from aforesaid import ConversationConfig, ConversationManager
from aforesaid.tokens import exact, is_ready
from aforesaid.windows import WindowPolicy

build = exact._build
loaded = []

async def main():
    # No deadline: a busy machine loads the tables for longer than one.
    erin = ConversationManager(config=ConversationConfig(context_deadline=0))
    await erin.remember("The lights are dim.")
    stop = asyncio.Event()

    def slow(name):
        # The tables wait until the turn and the window are there: neither can have needed them.
        asyncio.run_coroutine_threadsafe(stop.wait(), loop).result()
        loaded.append(name)
        return build(name)

    loop = asyncio.get_running_loop()
    exact._build = slow
    async with erin.turn("kitchen") as turn:
        turn.user("What is for dinner?")
        request = await turn.request("anthropic", system="Be brief.")
        turn.assistant("Leeks.")
    context = await erin.load_context("kitchen")
    assert not loaded and not is_ready(erin.intake.counter)
    # The load itself waits until the first turns of the process are stored: part of it stops every thread.
    [timer] = [each for each in threading.enumerate() if each.name == "aforesaid-tokens"]
    assert timer.interval >= 1
    print(len(request["messages"]), len(context), context.report.counter)
    stop.set()
    # A window that is cut needs exact counts. This one warns: with the inserted opening it is too large.
    logging.getLogger("aforesaid").setLevel(logging.ERROR)
    cut = await erin.load_context("kitchen", policy=WindowPolicy(max_tokens=9, notes_tokens=0))
    assert loaded
    print(len(cut), cut.report.counter)

asyncio.run(main())
"""


@pytest.mark.slow
def test_neither_waits_for_the_tables() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.stderr == ""
    assert done.stdout == "1 3 estimate_by_characters\n1 o200k_base\n"
