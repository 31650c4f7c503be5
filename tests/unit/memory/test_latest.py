"""`add_message` returns the latest messages, read from the store only where it must."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

import aforesaid
from aforesaid.memory.latest import LONGEST_TEXT
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.messages import Message
from aforesaid.stores.memory import InMemoryBackend
from tests.faults import Failing


class Counted:
    """Two managers of one owner: one counts its reads, the other is another process."""

    def __init__(self) -> None:
        store = InMemoryBackend()
        self.failing = Failing(store)
        self.memory = aforesaid.Memory(self.failing, models=aforesaid.Models(embedder=None))
        self.erin = self.memory.of("erin")
        self.elsewhere = ConversationManager(store.of("erin"))

    async def add(self, text: object, **more: Any) -> list[object]:
        self.failing.calls.clear()
        record = await self.erin.add_message("kitchen", "user", text, **more)
        return [message.content for message in record.messages]

    @property
    def reads(self) -> int:
        return self.failing.calls.count("tail")

    async def check(self) -> None:
        """Compare the record of the next message with the store."""
        said = await self.add("next")
        stored = await self.elsewhere.messages("kitchen", limit=1000)
        assert said == [message.content for message in stored][-20:]


@pytest.fixture
async def here() -> AsyncIterator[Counted]:
    counted = Counted()
    async with counted.memory:
        yield counted


@pytest.mark.requirement("004-008")
async def test_a_conversation_in_progress_is_not_read_again(here: Counted) -> None:
    for number in range(30):
        said = await here.add(f"message {number}")
        assert said == [f"message {one}" for one in range(max(0, number - 19), number + 1)]
        assert here.reads == 0
    await here.check()


async def test_a_conversation_of_another_process_is_read_once(here: Counted) -> None:
    for number in range(25):
        await here.elsewhere.add_message("kitchen", "user", f"message {number}")
    assert len(await here.add("first here")) == 20
    assert here.reads == 1
    await here.add("second here")
    assert here.reads == 0
    await here.check()


async def change_nothing(_: Counted) -> None: ...


async def append_elsewhere(here: Counted) -> None:
    await here.elsewhere.add_message("kitchen", "user", "from elsewhere")


async def change_metadata(here: Counted) -> None:
    await here.elsewhere.update_metadata("kitchen", status="closed")


async def redact(here: Counted) -> None:
    (first, *_) = await here.elsewhere.messages("kitchen")
    await here.elsewhere.redact("kitchen", str(first.message_id))


async def start_again(here: Counted) -> None:
    count = (await here.elsewhere.get_conversation("kitchen")).message_count
    await here.elsewhere.delete_conversation("kitchen")
    for number in range(count):
        await here.elsewhere.add_message("kitchen", "user", f"anew {number}")


async def rewrite(here: Counted) -> None:
    await here.erin.rewrite_history("kitchen", [Message(role="user", content="rewritten")])


async def erase(here: Counted) -> None:
    await here.erin.erase("kitchen")


async def add_earlier(here: Counted) -> None:
    long_ago = here.erin.now() - timedelta(days=1)
    await here.erin.add_message("kitchen", "user", "earlier", timestamp=long_ago)


@pytest.mark.parametrize(
    "change",
    [
        *(change_nothing, append_elsewhere, change_metadata, redact),
        *(start_again, rewrite, erase, add_earlier),
    ],
)
async def test_whatever_happens_the_latest_messages_are_those_of_the_store(
    here: Counted, change: Any
) -> None:
    for number in range(3):
        await here.add(f"message {number}")
    await change(here)
    await here.check()
    await here.check()


@pytest.mark.parametrize("text", ["x" * (LONGEST_TEXT + 1), [{"type": "text", "text": "parts"}]])
async def test_long_and_mutable_messages_are_read_again(here: Counted, text: object) -> None:
    await here.add("first")
    await here.add(text)
    await here.add("third")
    assert here.reads == 1


async def test_a_message_sent_twice_is_returned_once(here: Counted) -> None:
    await here.add("first", message_id="m1")
    assert await here.add("second", message_id="m2") == ["first", "second"]
    assert await here.add("second", message_id="m2") == ["first", "second"]
    await here.check()


async def test_a_read_that_fails_is_no_error(here: Counted) -> None:
    await here.elsewhere.add_message("kitchen", "user", "first")
    here.failing.plan = lambda name: "before" if name == "tail" else None
    assert await here.add("second") == ["second"]


async def test_an_erasure_counts_and_removes_the_messages_in_memory(here: Counted) -> None:
    await here.add("first")
    assert await here.memory.latest.remove_copies("bob", None) == {"cached_copies": 0}
    assert await here.memory.latest.remove_copies("erin", None) == {"cached_copies": 1}
