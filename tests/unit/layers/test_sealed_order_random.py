"""Random histories of sealed logs: no false alarm in normal use, and no tampering that goes unseen."""

import json
import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from aforesaid.contracts import ConversationStore, Entry
from aforesaid.errors import AforesaidError
from aforesaid.layers.encrypted import EncryptedBackend
from aforesaid.layers.encrypted.rotation import rotate
from aforesaid.model.conversations import Changes, started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.stores.json_file import JsonFileBackend
from aforesaid.stores.memory import InMemoryBackend
from aforesaid.testing import FixedClock
from tests.builders import LAYER_STORES
from tests.encrypted_stores import inner_for, sealed_backend
from tests.stored_logs import RawLog, read_log, write_log
from tests.unit.layers.conftest import LayerSetup
from tests.unit.layers.test_sealed_order import with_times_in_bodies, words
from tests.unit.layers.test_sealed_outages import sealed_over

SECOND = timedelta(seconds=1)
STEPS = 40
TAMPERINGS = 15


class History:
    """One conversation, written by several processes, and the same in a plain store as a model."""

    def __init__(self, inner: EncryptedBackend, chance: random.Random, clock: FixedClock) -> None:
        self.chance = chance
        self.clock = clock
        self.owner = f"owner-{new_id()}"
        self.id = new_id()
        self.backends = [inner, *(sealed_backend(inner.inner) for _ in range(2))]
        self.model: ConversationStore = InMemoryBackend(clock=clock).of(self.owner)
        self.turns: list[list[Message]] = []
        self.number = 0

    @property
    def store(self) -> ConversationStore:
        """The store of one of the processes."""
        return self.chance.choice(self.backends).of(self.owner)

    async def begin(self) -> None:
        record = started(self.id, now=self.clock())
        for store in (self.model, self.store):
            await store.create(record)

    async def step(self) -> None:
        await self.chance.choices(
            [self.say, self.say_again, self.redact, self.describe, self.move, self.start_over, self.rotate],
            [12, 3, 4, 2, 2, 1, 1],
        )[0]()
        if self.chance.random() < 0.5:
            self.clock.advance(SECOND)

    async def say(self) -> None:
        turn = [self._message() for _ in range(self.chance.randrange(1, 4))]
        self.turns.append(turn)
        await self._append(turn)

    async def say_again(self) -> None:
        """A retry, or a turn of which some messages are stored already."""
        if not self.turns:
            return
        earlier = [one for one in self.chance.choice(self.turns) if one.message_id is not None]
        fresh = [self._message()] if self.chance.random() < 0.5 else []
        await self._append([*earlier, *fresh])

    async def _append(self, turn: Sequence[Message]) -> None:
        outcomes: list[object] = []
        for store in (self.model, self.store):
            try:
                done = await store.append(self.id, turn)
                outcomes.append(([shown(e) for e in done.new], [shown(e) for e in done.known]))
            except AforesaidError as error:
                outcomes.append(type(error).__name__)
        assert outcomes[0] == outcomes[1]

    async def redact(self) -> None:
        named = [
            e.message.message_id for e in await self.model.page(self.id, limit=999) if e.message.message_id
        ]
        if not named:
            return
        self.number += 1
        other = Message(role="user", content=f"[{self.number}]", message_id=self.chance.choice(named))
        for store in (self.model, self.store):
            await store.replace(self.id, other)

    async def describe(self) -> None:
        for store in (self.model, self.store):
            await store.update(self.id, Changes(subject="another"))

    async def move(self) -> None:
        """Out to an archive and back, in parts."""
        size = self.chance.randrange(1, 9)
        for store in (self.model, self.store):
            record = await store.get(self.id)
            entries = await store.page(self.id, limit=999)
            assert record is not None
            await store.delete(self.id)
            for first in range(0, max(1, len(entries)), size):
                await store.restore(record, entries[first : first + size])

    async def start_over(self) -> None:
        kept = [entry.message for entry in (await self.model.page(self.id, limit=999))[-3:]]
        for store in (self.model, self.store):
            await store.rewrite(self.id, kept)

    async def rotate(self) -> None:
        await rotate(self.backends[0], owner=self.owner, deep=True)

    def _message(self) -> Message:
        self.number += 1
        message_id = f"m{self.number}" if self.chance.random() < 0.6 else None
        words = f"message {self.number}"
        return Message(role="user", content=words, message_id=message_id, timestamp=self._time())

    def _time(self) -> datetime | None:
        """Mostly none; else late, the same as others, or ahead of its time."""
        if self.chance.random() < 0.5:
            return None
        return self.clock() + self.chance.randrange(-9, 3) * SECOND

    async def check(self) -> None:
        limit = self.chance.randrange(1, 30)
        offset = self.chance.randrange(0, 20)
        before = self.chance.choice(await self.model.page(self.id, limit=999) or [None])
        position = None if before is None else before.position
        for store in (self.store, sealed_backend(self.backends[0].inner).of(self.owner)):
            for found, right in (
                (await store.page(self.id, limit=999), await self.model.page(self.id, limit=999)),
                (await store.tail(self.id, limit=limit), await self.model.tail(self.id, limit=limit)),
                (
                    await store.page(self.id, limit=limit, offset=offset),
                    await self.model.page(self.id, limit=limit, offset=offset),
                ),
                (
                    await store.tail(self.id, limit=limit, before=position),
                    await self.model.tail(self.id, limit=limit, before=position),
                ),
            ):
                assert [entry.unreadable for entry in found] == [None] * len(right)
                assert [shown(entry) for entry in found] == [shown(entry) for entry in right]


def shown(entry: Entry) -> tuple[object, ...]:
    message = entry.message
    return entry.sequence, entry.revision, message.content, message.timestamp, message.message_id


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("store", LAYER_STORES)
async def test_a_random_history_raises_no_alarm_and_hides_no_tampering(
    store: str, seed: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    chance, clock = random.Random(f"{store} {seed}"), FixedClock()
    backend = sealed_backend(inner_for(store, tmp_path, request, clock))
    await backend.open()
    history = History(backend, chance, clock)
    await history.begin()
    snapshots: list[RawLog] = []
    for step in range(STEPS):
        await history.step()
        if step % 4 == 0:
            await history.check()
            snapshots.append(await read_log(backend.inner, history.owner, history.id))
    await history.check()
    await _tamper(history, backend, chance, snapshots)
    await history.check()
    await history.store.clear()
    await backend.close()


async def _tamper(
    history: History, backend: EncryptedBackend, chance: random.Random, snapshots: Sequence[RawLog]
) -> None:
    truth = words(await history.store.page(history.id, limit=999))
    right = await read_log(backend.inner, history.owner, history.id)
    for _ in range(TAMPERINGS):
        wrong = tampered(right, chance, snapshots)
        if isinstance(backend.inner, JsonFileBackend):
            wrong = with_times_in_bodies(right, wrong)
            ids = [json.loads(row.body).get("message_id") for row in wrong.rows]
            if any(ids.count(one) > 1 for one in ids if one is not None):
                continue  # a file with an id twice is refused as a whole
        await write_log(backend.inner, history.owner, history.id, wrong)
        for store in (history.store, sealed_backend(backend.inner).of(history.owner)):
            for limit in (2, 5, 999):
                found = await store.tail(history.id, limit=limit)
                if all(entry.unreadable is None for entry in found):
                    assert words(found) == truth[-limit:]
                assert set(words(found)) <= set(truth)
    await write_log(backend.inner, history.owner, history.id, right)


def tampered(log: RawLog, chance: random.Random, snapshots: Sequence[RawLog]) -> RawLog:
    rows = list(log.rows)
    earlier = chance.choice(snapshots)
    a, b = chance.randrange(len(rows)), chance.randrange(len(rows))
    what = chance.randrange(8)
    if what == 0:
        del rows[a : a + chance.randrange(1, 4)]
    elif what == 1:
        last = max(row.sequence for row in rows)
        rows.append(rows[a]._replace(sequence=last + 1, at=rows[b].at + 1, message_id=None))
    elif what == 2:
        rows[a], rows[b] = rows[a]._replace(body=rows[b].body), rows[b]._replace(body=rows[a].body)
        if a != b:
            rows[a], rows[b] = (
                rows[a]._replace(message_id=log.rows[b].message_id),
                rows[b]._replace(message_id=log.rows[a].message_id),
            )
    elif what == 3:
        rows[a] = rows[a]._replace(at=rows[b].at + chance.choice([-1, 1]))
    elif what == 4:
        rows[a] = rows[a]._replace(revision=rows[a].revision + chance.choice([-1, 1]))
    elif what == 5:
        return RawLog(earlier.rows, log.head)
    elif what == 6:
        return RawLog(log.rows, earlier.head)
    else:
        before = {row.sequence: row for row in earlier.rows}
        rows = [before.get(row.sequence, row) for row in rows]
    return log.with_rows(*rows)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
async def test_turns_from_the_spool_raise_no_alarm(tmp_path: Path, seed: int) -> None:
    """Two processes write through outages; one of them keeps the other's conversation in mind."""
    chance, setup = random.Random(seed), LayerSetup(tmp_path)
    layer, outer = sealed_over(setup)
    elsewhere = sealed_backend(setup.memory)
    await outer.open()
    store, other = outer.of("erin"), elsewhere.of("erin")
    record = await store.create(started(new_id(), now=store.now()))
    said: set[object] = set()
    for number in range(40):
        what = chance.randrange(6)
        setup.clock.advance(SECOND * chance.randrange(2))
        if what == 0:
            setup.failing.down()
        elif what == 1:
            setup.failing.up()
            setup.seconds.now += 60
            await layer.recover()
        else:
            writer = store if what < 5 else other
            late = setup.clock() - SECOND * 5 if chance.random() < 0.2 else None
            message = Message(role="user", content=f"said {number}", timestamp=late)
            await writer.append(record.id, [message])
            said.add(message.content)
        await check_readable(store, record.id)
        await check_readable(other, record.id)
    setup.failing.up()
    setup.seconds.now += 60
    await layer.recover()
    assert layer.set_aside.value == 0
    for reader in (store, other):
        entries = await reader.page(record.id, limit=999)
        assert all(entry.unreadable is None for entry in entries)
        assert len(entries) == len(said)
        assert {entry.message.content for entry in entries} == said
    await outer.close()


async def check_readable(store: ConversationStore, conversation_id: str) -> None:
    try:
        entries = await store.tail(conversation_id, limit=20)
    except AforesaidError:
        return  # nothing is known of it while the store is away
    assert [entry.unreadable for entry in entries if entry.unreadable] == []
