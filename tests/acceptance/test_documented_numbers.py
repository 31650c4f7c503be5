"""Numbers and guarantees of the design documents, counted instead of timed."""

import asyncio
import sys
import tracemalloc
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import aforesaid
from aforesaid.memory.chats import ChatHistory
from aforesaid.memory.sliding import ConversationMemoryManager
from aforesaid.model.messages import Message
from aforesaid.settings import SlidingWindowConfig
from aforesaid.testing import FixedClock
from aforesaid.tokens import counter_for
from aforesaid.tokens.messages import count_plain_text
from aforesaid.windows.sliding import ConversationWindow, SlidingLimits
from tests.processes.forking import failure_of


def calls_per_message(messages: int) -> float:
    """Return the function calls for each message that is added to a full window, on average."""
    window = ConversationWindow(SlidingLimits(max_tokens=1_000))
    count = 0

    def counting(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    said = [Message(role="user", content="hello", message_id=f"m{number}") for number in range(messages)]
    sys.setprofile(counting)
    try:
        for message in said:
            window.add(message, 50)
    finally:
        sys.setprofile(None)
    assert len(window) == 20
    return count / messages


def calls_to_count(text: str) -> int:
    """Return the calls, of Python and of C, that count the tokens of a message."""
    counter = counter_for("gpt-4")
    count_plain_text(counter, "user", "The tables are loaded.")
    count = 0

    def counting(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counting)
    try:
        count_plain_text(counter, "user", text)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.requirement("002-019")
def test_tokens_of_a_message_are_counted_in_a_few_calls_whatever_its_length() -> None:
    """A tenth of a millisecond is time for thousands of calls; the loop over the text runs in C."""
    short, long = (calls_to_count("Turn on the lights in the kitchen. " * times) for times in (1, 30))
    assert 0 < max(short, long) <= 200


@pytest.mark.requirement("001-010")
@pytest.mark.parametrize("url", ["memory://", "sqlite:///{}/memory.db", "file:{}/memory.json"])
async def test_an_open_memory_removes_expired_conversations_without_being_asked(
    url: str, tmp_path: Path
) -> None:
    clock = FixedClock()
    retention = aforesaid.Retention(sweep_every=timedelta(milliseconds=1))
    async with aforesaid.open(url.format(tmp_path), clock=clock, retention=retention) as memory:
        erin = memory.of("erin")
        old = await erin.add_message("kitchen", "user", "long ago")
        clock.advance(timedelta(days=20))
        young = await erin.add_message("hall", "user", "lately")
        clock.advance(timedelta(days=11))
        async with asyncio.timeout(120):
            while await erin.store.expired(by=clock(), limit=10):  # noqa: ASYNC110  a sweep sets no event
                await asyncio.sleep(0)
        # What expires later is still there, so the sweep removed one of the two.
        left = await erin.store.expired(by=clock() + timedelta(days=365), limit=10)
        assert [one.id for one in left] == [young.id] != [old.id]


@pytest.mark.requirement("002-022")
def test_an_eviction_costs_the_same_however_many_there_were() -> None:
    assert calls_per_message(4_000) <= calls_per_message(400) * 1.1


@pytest.mark.requirement("002-021")
def test_a_message_takes_about_a_kilobyte_in_memory() -> None:
    assert failure_of(_store_a_thousand_messages) == ""


def _store_a_thousand_messages() -> None:
    """Run in a process of its own: what other tests allocate meanwhile would count."""
    used = asyncio.run(_memory_of_messages(1_000))
    assert used / 1_000 < 2_000, used


async def _memory_of_messages(count: int) -> int:
    config = SlidingWindowConfig(sliding_window_max_tokens=1_000_000)
    memory = ConversationMemoryManager(config=config)
    await memory.add_message("warm", "user", "hello")
    tracemalloc.start()
    try:
        for number in range(count):
            await memory.add_message("conv123", "user", f"{number} " + "x" * 200)
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@pytest.mark.requirement("003-013")
async def test_every_phone_has_its_own_history_in_one_file(tmp_path: Path) -> None:
    async with aforesaid.open(f"file://{tmp_path}/conversations.json") as memory:
        history = ChatHistory(memory.of("household"))
        for phone in ("+15550100", "+15550101"):
            for number in range(2):
                await history.save_turn(phone, [{"role": "user", "content": f"{phone} {number}"}])
        for phone in ("+15550100", "+15550101"):
            found = await history.get_history(phone)
            assert [one["content"] for one in found] == [f"{phone} 0", f"{phone} 1"]
        assert await history.get_history("+15550102") == []
    assert [file.name for file in tmp_path.iterdir() if file.suffix == ".json"] == ["conversations.json"]
