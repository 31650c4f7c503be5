"""The sweep: many at once, beside writers, and nothing is lost or counted twice."""

import asyncio
import logging
import random
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import aforesaid
from aforesaid.contracts import ConversationStore
from aforesaid.encryption import MasterKeys
from aforesaid.errors import ConversationNotFound, StoreUnavailable
from aforesaid.layers.encrypted import Encryption
from aforesaid.memory.options import Retention
from aforesaid.model.conversations import started
from aforesaid.model.ids import new_id
from aforesaid.model.lifetimes import Archiving
from aforesaid.model.messages import Message
from aforesaid.retention.rules import JITTER, pause, sweep_forever, sweep_once
from aforesaid.stores.blobs import FolderBlobStore
from aforesaid.testing import FixedClock
from tests.servers.remote import open_at
from tests.unit.retention.test_archives import everything, live

TTL = timedelta(hours=1)
WRITERS = 10
ROUNDS = 6
"""Rounds of half a lifetime: what is not written to in two of them expires."""


class Writer:
    """Writes to a few conversations, and knows what was acknowledged in each."""

    def __init__(self, store: ConversationStore, number: int) -> None:
        self._store = store
        self._random = random.Random(number)
        self.said: dict[str, list[str]] = {}
        self.lost = 0

    async def work(self) -> None:
        for conversation_id in self._random.sample(sorted(self.said), k=len(self.said) // 2):
            await self._say(conversation_id)
        made = await self._store.create(started(new_id(), now=self._store.now(), ttl=TTL))
        self.said[made.id] = []
        await self._say(made.id)

    async def _say(self, conversation_id: str) -> None:
        message_id = new_id()
        try:
            message = Message(role="user", content="x", message_id=message_id)
            await self._store.append(conversation_id, [message])
        except ConversationNotFound:
            del self.said[conversation_id]  # purged before it was written to: nothing was acknowledged
            self.lost += 1
        else:
            self.said[conversation_id].append(message_id)
            # Written to after whatever any sweeper decided: it is there, with all that was said.
            there = await self._store.page(conversation_id, limit=1000)
            assert [entry.message.message_id for entry in there] == self.said[conversation_id]


async def test_two_sweepers_and_ten_writers(memory: aforesaid.Memory, clock: FixedClock) -> None:
    backend = memory.backend
    writers = [Writer(backend.of(f"owner-{number % 3}"), number) for number in range(WRITERS)]
    removed = 0

    async def sweeper(ahead: timedelta) -> int:
        # Ahead of the writers: to it they are expired, to writers they are not, until one of them is first.
        return await backend.purge_expired(clock() + ahead)

    for _ in range(ROUNDS):
        work = [writer.work() for writer in writers]
        purges = [sweeper(TTL * 0.6), sweeper(TTL * 0.6)]
        *_, one, other = await asyncio.gather(*work, *purges)
        assert isinstance(one, int)
        assert isinstance(other, int)
        removed += one + other
        clock.advance(TTL * 0.5)
    clock.advance(TTL)
    removed += await backend.purge_expired()
    made = WRITERS * ROUNDS
    assert removed == made, "each conversation is removed once, and counted once"
    assert await memory.would_purge() == []


@pytest.mark.parametrize("records", [False, True], ids=["messages sealed", "records sealed"])
async def test_an_owner_without_a_key_does_not_prevent_the_sweep_of_others(
    tmp_path: Path, clock: FixedClock, records: bool
) -> None:
    def opened(*keys: bytes) -> aforesaid.Memory:
        return aforesaid.open(
            f"sqlite:///{tmp_path}/memory.db",
            retention=Retention(
                archiving=Archiving(after=TTL), sweep_every=None, archives=tmp_path / "archives"
            ),
            layers=aforesaid.Layers(encryption=Encryption(master=MasterKeys(*keys), records=records)),
            models=aforesaid.Models(embedder=None),
            clock=clock,
        )

    async with opened(b"a" * 32) as memory:
        aaron = memory.of("aaron")
        kept = await aaron.get_or_create_conversation("kitchen")
        await aaron.add_message(kept.id, "user", "hello")
        await aaron.update_metadata(kept.id, subject="tea")
        await aaron.remember("likes tea")
    async with opened(b"z" * 32, b"a" * 32) as memory:
        await memory.of("zoe").get_or_create_conversation("kitchen")
    async with opened(b"z" * 32) as memory:
        zoe = memory.of("zoe")
        old = await zoe.get_or_create_conversation("kitchen")
        await zoe.add_message(old.id, "user", "hello")
        brief = await zoe.get_or_create_conversation("hall")
        await zoe.update_metadata(brief.id, ttl=TTL)
        note = await zoe.remember("has a dog", expires=TTL)
        clock.advance(2 * TTL)
        assert await memory.sweep() == 1
        assert [one.conversation_id for one in await zoe.archives()] == [old.id]
        assert await zoe.store.get_document("notes", note.id) is None
        assert (await memory.backend.of("aaron").tally()).messages == 1


async def test_a_sweep_that_fails_is_logged_and_the_next_one_tries_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Failing:
        calls = 0

        async def sweep(self) -> int:
            self.calls += 1
            if self.calls == 1:
                raise StoreUnavailable("the disk is full")
            return 3

    failing = Failing()
    with caplog.at_level(logging.INFO, "aforesaid.retention"):
        assert await sweep_once(failing) == 0
        assert await sweep_once(failing) == 3
    assert [record.getMessage() for record in caplog.records] == [
        "sweep failed: the disk is full",
        "sweep removed 3 expired conversations",
    ]


async def test_sweeps_go_on_after_a_failure_until_they_are_cancelled() -> None:
    swept = asyncio.Event()

    class Counting:
        calls = 0

        async def sweep(self) -> int:
            self.calls += 1
            if self.calls == 1:
                raise StoreUnavailable("not now")
            swept.set()
            return 0

    task = asyncio.create_task(sweep_forever(Counting(), every=timedelta(microseconds=1)))
    async with asyncio.timeout(120):
        await swept.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_sweeps_are_uneven() -> None:
    pauses: Sequence[float] = [pause(timedelta(seconds=100)) for _ in range(200)]
    assert all(100 * (1 - JITTER) <= one <= 100 * (1 + JITTER) for one in pauses)
    assert max(pauses) - min(pauses) > 50


async def test_the_sweep_archives_and_deletes_by_age(url: str, clock: FixedClock, tmp_path: Path) -> None:
    retention = Retention(
        archiving=Archiving(after=timedelta(days=10), delete_after=timedelta(days=40)),
        archives=tmp_path / "archives",
        sweep_every=None,
    )
    async with open_at(url, clock=clock, ttl=None, retention=retention) as memory:
        erin = memory.of("erin")
        old = await erin.get_or_create_conversation("old")
        await erin.add_message(old.id, "user", "long ago")
        clock.advance(timedelta(days=9))
        young = await erin.get_or_create_conversation("young")
        await erin.add_message(young.id, "user", "lately")
        await memory.sweep()
        assert await erin.archives() == []
        clock.advance(timedelta(days=2))
        await asyncio.gather(memory.sweep(), memory.sweep())
        assert [one.conversation_id for one in await erin.archives()] == [old.id]
        assert await erin.store.get(old.id) is None
        assert await erin.store.get(young.id) is not None
        clock.advance(timedelta(days=30))
        await memory.sweep()
        assert [one.conversation_id for one in await erin.archives()] == [young.id]


@pytest.mark.parametrize("way", ["import", "restore"])
async def test_pictures_on_their_way_in_are_left_alone(
    memory: aforesaid.Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    erin = memory.of("erin")
    conversation_id = await live(erin)
    before = await everything(erin, conversation_id)
    if way == "import":
        await erin.export(tmp_path / "export")
        await erin.erase()
    else:
        await erin.archive(conversation_id)
    put = FolderBlobStore.put
    served = getattr(memory, "served", None)
    storing = memory if served is None else served.memory
    """The memory on whose event loop images are stored: a server's own, where there is one."""

    async def put_and_sweep(self: FolderBlobStore, *given: Any) -> None:
        await put(self, *given)
        await storing.purge_expired()

    monkeypatch.setattr(FolderBlobStore, "put", put_and_sweep)
    if way == "import":
        await erin.import_(tmp_path / "export")
    else:
        await erin.restore(conversation_id)
    assert await everything(erin, conversation_id) == before
