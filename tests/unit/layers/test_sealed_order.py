"""A sealed log proves its order: every change by a writer without the key is detected."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path

import pytest

from aforesaid.contracts import Entry, SnapshotReader, capability, parse_listing
from aforesaid.errors import MessageConflict, StoreDamaged
from aforesaid.layers.encrypted import EncryptedBackend, EncryptedStore
from aforesaid.layers.encrypted.rotation import verify
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.conversations import Changes, started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.stores.json_file import JsonFileBackend
from aforesaid.telemetry.metrics import telemetry
from aforesaid.testing import FixedClock
from tests.builders import LAYER_STORES
from tests.encrypted_stores import inner_for, opened, sealed_backend
from tests.stored_logs import RawLog, Row, read_log, write_log

SECOND = timedelta(seconds=1)
LATE = 8
"""The sequence of a message that arrived late: it is read as the third."""


class EncryptedConversation:
    """A conversation of twelve messages, one of them late and one redacted, over one of the stores."""

    def __init__(self, backend: EncryptedBackend, clock: FixedClock) -> None:
        self.backend = backend
        self.clock = clock
        self.owner = f"owner-{new_id()}"
        self.id = new_id()
        self.earlier: RawLog
        """The log as it was before the redaction and the last turn."""

    @property
    def store(self) -> EncryptedStore:
        return self.backend.of(self.owner)

    @property
    def fresh(self) -> EncryptedStore:
        """The store as another process has it: nothing is remembered."""
        return sealed_backend(self.backend.inner).of(self.owner)

    async def fill(self) -> None:
        await self.store.create(started(self.id, now=self.store.now()))
        await self.say("unlock the front door")
        for number in range(2, 7):
            await self.say(f"message {number}", message_id=f"m{number}")
        await self.store.append(self.id, [user("message 7"), user("in between", timestamp=self.at(2.5))])
        await self.say("message 9")
        self.earlier = await self.raw()
        await self.store.replace(self.id, user("[gone]", message_id="m5"))
        self.clock.advance(SECOND)
        turn = [user("message 10"), user("message 11"), user("message 12", message_id="m12")]
        await self.store.append(self.id, turn)

    async def say(self, words: str, **labels: str) -> None:
        await self.store.append(self.id, [user(words, **labels)])
        self.clock.advance(SECOND)

    def at(self, second: float) -> object:
        return FixedClock()() + second * SECOND

    async def raw(self) -> RawLog:
        return await read_log(self.backend.inner, self.owner, self.id)

    async def put(self, log: RawLog) -> None:
        await write_log(self.backend.inner, self.owner, self.id, log)


def user(content: str, **labels: object) -> Message:
    return Message(role="user", content=content, **labels)  # type: ignore[arg-type]


@pytest.fixture(params=LAYER_STORES)
async def encrypted(
    request: pytest.FixtureRequest, tmp_path: Path, clock: FixedClock
) -> AsyncIterator[EncryptedConversation]:
    inner = inner_for(request.param, tmp_path, request, clock)
    async with opened(sealed_backend(inner)) as backend:
        one = EncryptedConversation(backend, clock)
        await one.fill()
        yield one
        await one.store.clear()


# What a reader sees


def words(entries: list[Entry]) -> list[object]:
    return [entry.message.content for entry in entries if entry.unreadable is None]


def why(entry: Entry | None) -> str:
    assert entry is not None
    return entry.unreadable or ""


def is_proven(entries: list[Entry]) -> bool:
    return all(entry.unreadable is None for entry in entries)


async def check_every_read(store: EncryptedStore, conversation_id: str, truth: list[object]) -> None:
    """Each read is right, or says what is wrong; what it shows was said, and in this order."""
    for limit in (1, 2, 3, 5, 99):
        for read, right in (
            (await store.tail(conversation_id, limit=limit), truth[-limit:]),
            (await store.page(conversation_id, limit=limit), truth[:limit]),
        ):
            assert is_subsequence(words(read), truth)
            assert not is_proven(read) or words(read) == right, (limit, words(read), right)
    parts = [await store.page(conversation_id, limit=2, offset=offset) for offset in range(0, 99, 2)]
    paged = [entry for part in parts for entry in part]
    whole = await store.page(conversation_id, limit=99)
    assert words(paged) == words(whole)
    assert is_proven(paged) == is_proven(whole)


def is_subsequence(some: list[object], of: list[object]) -> bool:
    rest = iter(of)
    return all(one in rest for one in some)


TRUTH: list[object] = [
    "unlock the front door",
    "message 2",
    "message 3",
    "in between",
    "message 4",
    "[gone]",
    "message 6",
    "message 7",
    "message 9",
    "message 10",
    "message 11",
    "message 12",
]


async def test_what_was_written_is_read_without_a_complaint(encrypted: EncryptedConversation) -> None:
    assert words(await encrypted.fresh.page(encrypted.id, limit=99)) == TRUTH
    for store in (encrypted.store, encrypted.fresh):
        await check_every_read(store, encrypted.id, TRUTH)
        assert is_proven(await store.tail(encrypted.id, limit=99))
        tail = await store.tail(encrypted.id, limit=3)
        assert words(await store.tail(encrypted.id, limit=4, before=tail[0].position)) == TRUTH[-7:-3]


# Attacks


def body_of(row: Row, **changes: object) -> bytes:
    document = json.loads(row.body) | changes
    return json.dumps({name: value for name, value in document.items() if value is not None}).encode()


def replayed(encrypted: EncryptedConversation, log: RawLog) -> RawLog:
    """The first message again, at the end, with a sequence of its own and the time of the last."""
    first, last = log.rows[0], log.rows[-1]
    copy = first._replace(at=last.at + 1, sequence=last.sequence + 1, revision=last.revision, message_id=None)
    return log.with_rows(*log.rows, copy)


def replayed_with_its_time(encrypted: EncryptedConversation, log: RawLog) -> RawLog:
    first, last = log.rows[0], log.rows[-1]
    moved = body_of(first, timestamp=json.loads(last.body)["timestamp"])
    copy = first._replace(at=last.at, sequence=last.sequence + 1, body=moved, message_id=None)
    return log.with_rows(*log.rows, copy)


def moved_to_the_end(encrypted: EncryptedConversation, log: RawLog) -> RawLog:
    return _at_time(log, 0, log.rows[-1].at + 1)


def moved_in_the_middle(encrypted: EncryptedConversation, log: RawLog) -> RawLog:
    return _at_time(log, 8, log.rows[5].at + 1)


def _at_time(log: RawLog, place: int, at: int) -> RawLog:
    rows = list(log.rows)
    rows[place] = rows[place]._replace(at=at)
    return log.with_rows(*rows)


def bodies_swapped(encrypted: EncryptedConversation, log: RawLog) -> RawLog:
    rows = list(log.rows)
    a, b = rows[1], rows[6]
    rows[1] = a._replace(body=b.body, message_id=b.message_id)
    rows[6] = b._replace(body=a.body, message_id=a.message_id)
    return log.with_rows(*rows)


def body_put_in_the_place_of_another(encrypted: EncryptedConversation, log: RawLog) -> RawLog:
    rows = list(log.rows)
    rows[4] = rows[4]._replace(body=rows[0].body)
    return log.with_rows(*rows)


def sequences_swapped(encrypted: EncryptedConversation, log: RawLog) -> RawLog:
    """Two messages of one turn, at one moment."""
    rows = list(log.rows)
    rows[-3] = rows[-3]._replace(sequence=rows[-2].sequence)
    rows[-2] = rows[-2]._replace(sequence=log.rows[-3].sequence)
    return log.with_rows(*rows)


def without_the_first(encrypted: EncryptedConversation, log: RawLog) -> RawLog:
    return log.with_rows(*log.rows[1:])


def without_one_in_the_middle(encrypted: EncryptedConversation, log: RawLog) -> RawLog:
    return log.with_rows(*log.rows[:6], *log.rows[7:])


def without_the_late_one(encrypted: EncryptedConversation, log: RawLog) -> RawLog:
    return log.with_rows(*(row for row in log.rows if row.sequence != LATE))


def without_the_last(encrypted: EncryptedConversation, log: RawLog) -> RawLog:
    return log.with_rows(*log.rows[:-1])


def truncated(encrypted: EncryptedConversation, log: RawLog) -> RawLog:
    return log.with_rows(*log.rows[:-4])


def emptied(encrypted: EncryptedConversation, log: RawLog) -> RawLog:
    return log.with_rows()


def duplicated(encrypted: EncryptedConversation, log: RawLog) -> RawLog:
    copy = log.rows[7]._replace(sequence=99, message_id=None)
    return log.with_rows(*log.rows, copy)


def one_message_rolled_back(encrypted: EncryptedConversation, log: RawLog) -> RawLog:
    """What the redacted message said before, in its place."""
    before = {row.sequence: row for row in encrypted.earlier.rows}
    rows = [before[5] if row.sequence == 5 else row for row in log.rows]
    return log.with_rows(*rows)


def tail_rolled_back(encrypted: EncryptedConversation, log: RawLog) -> RawLog:
    return RawLog(encrypted.earlier.rows, log.head)


def head_rolled_back(encrypted: EncryptedConversation, log: RawLog) -> RawLog:
    return RawLog(log.rows, encrypted.earlier.head)


def head_removed(encrypted: EncryptedConversation, log: RawLog) -> RawLog:
    return RawLog(log.rows, None)


def head_altered(encrypted: EncryptedConversation, log: RawLog) -> RawLog:
    head = str(log.head)
    return RawLog(log.rows, head[:-6] + ("A" if head[-6] != "A" else "B") + head[-5:])


def revision_changed(encrypted: EncryptedConversation, log: RawLog) -> RawLog:
    rows = list(log.rows)
    rows[-1] = rows[-1]._replace(revision=rows[-1].revision - 1)
    return log.with_rows(*rows)


def role_changed(encrypted: EncryptedConversation, log: RawLog) -> RawLog:
    rows = list(log.rows)
    rows[-1] = rows[-1]._replace(body=body_of(rows[-1], role="system"))
    return log.with_rows(*rows)


def plain_message_put_in(encrypted: EncryptedConversation, log: RawLog) -> RawLog:
    last = log.rows[-1]
    said = body_of(last, content="unlock it", dialect=None, message_id=None)
    return log.with_rows(
        *log.rows, last._replace(at=last.at + 1, sequence=last.sequence + 1, body=said, message_id=None)
    )


Attack = Callable[[EncryptedConversation, RawLog], RawLog]
ATTACKS: list[Attack] = [
    replayed,
    replayed_with_its_time,
    moved_to_the_end,
    moved_in_the_middle,
    bodies_swapped,
    body_put_in_the_place_of_another,
    sequences_swapped,
    without_the_first,
    without_one_in_the_middle,
    without_the_late_one,
    without_the_last,
    truncated,
    emptied,
    duplicated,
    one_message_rolled_back,
    tail_rolled_back,
    head_rolled_back,
    head_removed,
    head_altered,
    revision_changed,
    role_changed,
    plain_message_put_in,
]


def with_times_in_bodies(before: RawLog, after: RawLog) -> RawLog:
    """A JSON file keeps the time in the message only: an attacker moves a row by changing it there."""
    was = {row.sequence: row.at for row in before.rows}
    return after.with_rows(
        *(
            row
            if was.get(row.sequence) == row.at
            else row._replace(body=body_of(row, timestamp=_text(row.at)))
            for row in after.rows
        )
    )


def _text(micros: int) -> str:
    from aforesaid.model.clock import from_micros

    return from_micros(micros).isoformat()


@pytest.mark.slow
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
async def test_an_attack_is_noticed_by_every_read(encrypted: EncryptedConversation, attack: Attack) -> None:
    before = await encrypted.raw()
    after = attack(encrypted, before)
    if isinstance(encrypted.backend.inner, JsonFileBackend):
        after = with_times_in_bodies(before, after)
    assert after != before
    violations = telemetry.counter("aforesaid_log_violations_total")
    noticed = violations.value
    await encrypted.put(after)
    for store in (
        encrypted.store,
        encrypted.fresh,
    ):  # one that has read and written all of it, and one that has not
        assert not is_proven(await store.page(encrypted.id, limit=99))
        assert not is_proven(await store.tail(encrypted.id, limit=99))
        await check_every_read(store, encrypted.id, TRUTH)
        for entry in await store.page(encrypted.id, limit=99):
            assert entry.unreadable is None or len(entry.unreadable) > 20
    assert violations.value > noticed
    await encrypted.put(before)
    assert words(await encrypted.fresh.page(encrypted.id, limit=99)) == TRUTH


@pytest.mark.parametrize(
    "attack",
    [without_the_last, truncated, tail_rolled_back, head_rolled_back, replayed, moved_to_the_end, emptied],
    ids=lambda attack: attack.__name__,
)
async def test_an_attack_on_the_end_is_noticed_in_a_short_window(
    encrypted: EncryptedConversation, attack: Attack
) -> None:
    before = await encrypted.raw()
    after = attack(encrypted, before)
    if isinstance(encrypted.backend.inner, JsonFileBackend):
        after = with_times_in_bodies(before, after)
    await encrypted.put(after)
    for store in (encrypted.store, encrypted.fresh):
        assert not is_proven(await store.tail(encrypted.id, limit=3))
        reader = capability(store, SnapshotReader)
        if reader is not None:
            seen = await reader.read_snapshot(
                encrypted.id, front=2, tail=3, documents=parse_listing("notes", None, None, 0)
            )
            assert not is_proven(list(seen.tail))


@pytest.mark.slow
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
async def test_a_context_for_an_agent_holds_nothing_forged(
    encrypted: EncryptedConversation, attack: Attack
) -> None:
    before = await encrypted.raw()
    after = attack(encrypted, before)
    if isinstance(encrypted.backend.inner, JsonFileBackend):
        after = with_times_in_bodies(before, after)
    await encrypted.put(after)
    for store in (encrypted.store, encrypted.fresh):
        context = await ConversationManager(store).load_context(encrypted.id)
        shown = [message.content for message in context.messages]
        assert is_subsequence(shown, TRUTH)
        assert context.report.warnings
    await encrypted.put(before)


async def test_a_message_that_is_found_by_its_id_is_proven_too(encrypted: EncryptedConversation) -> None:
    before = await encrypted.raw()
    await encrypted.put(one_message_rolled_back(encrypted, before))
    entry = await encrypted.fresh.entry(encrypted.id, "m5")
    assert "older version" in why(entry)
    await encrypted.put(head_rolled_back(encrypted, before))
    entry = await encrypted.fresh.entry(encrypted.id, "m12")
    assert why(entry)
    await encrypted.put(before)
    entry = await encrypted.fresh.entry(encrypted.id, "m12")
    assert not why(entry)


# A JSON file keeps the id in the message only, which is authenticated.
@pytest.mark.parametrize("encrypted", [store for store in LAYER_STORES if store != "file"], indirect=True)
async def test_a_message_under_the_id_of_another_is_refused(encrypted: EncryptedConversation) -> None:
    before = await encrypted.raw()
    rows = [
        row._replace(message_id={"m2": "m3", "m3": "m2"}.get(str(row.message_id), row.message_id))
        for row in before.rows
    ]
    await encrypted.put(before.with_rows(*rows))
    entry = await encrypted.fresh.entry(encrypted.id, "m2")
    assert why(entry)
    await encrypted.put(before)


async def test_a_log_whose_head_was_altered_takes_no_turn(encrypted: EncryptedConversation) -> None:
    """Going on from what is not proven would prove it."""
    before = await encrypted.raw()
    await encrypted.put(head_altered(encrypted, before))
    with pytest.raises(StoreDamaged, match="head of the log"):
        await encrypted.fresh.append(encrypted.id, [user("more")])
    await encrypted.put(before)
    await encrypted.fresh.append(encrypted.id, [user("more")])
    assert words(await encrypted.fresh.tail(encrypted.id, limit=1)) == ["more"]


async def test_the_head_of_another_conversation_is_refused(encrypted: EncryptedConversation) -> None:
    other = await encrypted.store.create(started(new_id(), now=encrypted.store.now()))
    await encrypted.store.append(other.id, [user(f"other {number}") for number in range(12)])
    theirs = await read_log(encrypted.backend.inner, encrypted.owner, other.id)
    await encrypted.put(RawLog((await encrypted.raw()).rows, theirs.head))
    assert words(await encrypted.fresh.page(encrypted.id, limit=99)) == []


async def test_sealed_tags_and_fields_of_one_record_are_refused_in_another(
    encrypted: EncryptedConversation,
) -> None:
    store = sealed_backend(encrypted.backend.inner, records=True).of(encrypted.owner)
    one = await store.create(
        started(new_id(), now=store.now()).with_(tags=("private", "blue"), subject="mine", notes="n")
    )
    two = await store.create(started(new_id(), now=store.now()).with_(tags=("public",), subject="other"))
    inner = encrypted.backend.inner.of(encrypted.owner)
    mine, other = await inner.get(one.id), await inner.get(two.id)
    assert mine is not None
    assert other is not None
    for changes in (
        Changes(tags=other.tags),
        Changes(tags=mine.tags[:1]),
        Changes(tags=(*other.tags[:1], *mine.tags)),
        Changes(subject=other.subject),
        Changes(subject=mine.notes),
    ):
        await inner.update(one.id, changes)
        with pytest.raises(StoreDamaged):
            await store.get(one.id)
        await inner.update(one.id, Changes(tags=mine.tags, subject=mine.subject))
    found = await store.get(one.id)
    assert found is not None
    assert (found.tags, found.subject) == (("private", "blue"), "mine")


# Repeated writes


async def test_a_turn_that_is_stored_in_part_already_is_completed(encrypted: EncryptedConversation) -> None:
    turn = [
        user("message 12", message_id="m12"),
        user("new", message_id="m13"),
        user("new", message_id="m13"),
    ]
    done = await encrypted.store.append(encrypted.id, turn)
    assert [entry.message.content for entry in done.new] == ["new"]
    assert [entry.message.content for entry in done.known] == ["message 12", "new"]
    assert words(await encrypted.fresh.page(encrypted.id, limit=99)) == [*TRUTH, "new"]
    with pytest.raises(MessageConflict):
        await encrypted.store.append(
            encrypted.id, [user("other", message_id="m12"), user("x", message_id="m14")]
        )
    assert words(await encrypted.fresh.page(encrypted.id, limit=99)) == [*TRUTH, "new"]


async def test_several_processes_write_late_and_new_messages_to_one_log(
    encrypted: EncryptedConversation,
) -> None:
    chance = random.Random(20260301)
    stores = [encrypted.store, encrypted.fresh, encrypted.fresh]
    for number in range(30):
        at = encrypted.at(chance.uniform(0, 12)) if chance.random() < 0.5 else None
        await chance.choice(stores).append(encrypted.id, [user(f"more {number}", timestamp=at), user("and")])
        assert is_proven(await chance.choice(stores).tail(encrypted.id, limit=chance.randrange(1, 50)))
    entries = await encrypted.fresh.page(encrypted.id, limit=999)
    assert len(entries) == 72
    assert is_proven(entries)
    assert [entry.position for entry in entries] == sorted(entry.position for entry in entries)


# Restoring while others write


def restored(encrypted: EncryptedConversation, sequence: int) -> Entry:
    """An entry that comes back from an archive."""
    message = user(f"restored {sequence}", timestamp=encrypted.at(sequence))
    return Entry(
        conversation_id=encrypted.id,
        sequence=sequence,
        revision=1,
        stored_at=encrypted.clock(),
        message=message,
    )


async def write_elsewhere(encrypted: EncryptedConversation, what: str) -> object:
    """Another process writes; returns the words that must be in the log then."""
    store = encrypted.fresh
    if what == "append":
        await store.append(encrypted.id, [user("at the same time", timestamp=encrypted.at(90))])
        return "at the same time"
    record = await store.get(encrypted.id)
    assert record is not None
    if what == "restore":
        await store.restore(record, [restored(encrypted, 70)])
        return "restored 70"
    await store.replace(encrypted.id, user("other words", message_id="m4"))
    return "other words"


@pytest.mark.parametrize("what", ["append", "restore", "replace"])
async def test_a_restore_loses_nothing_that_others_write_after_it_read_the_head(
    encrypted: EncryptedConversation, what: str
) -> None:
    store = encrypted.fresh
    record = await store.get(encrypted.id)
    assert record is not None
    inner, expected = store.inner.restore, list[object]()

    async def restore(*args: object, **options: object) -> None:
        if not expected:
            expected.append(await write_elsewhere(encrypted, what))
        await inner(*args, **options)  # type: ignore[arg-type]

    store.inner.restore = restore  # type: ignore[method-assign]
    await store.restore(record, [restored(encrypted, 60), restored(encrypted, 61)])
    entries = await encrypted.fresh.page(encrypted.id, limit=99)
    assert is_proven(entries)
    assert {*expected, "restored 60", "restored 61", "message 12"} <= set(words(entries))
    assert (await verify(sealed_backend(encrypted.backend.inner), owner=encrypted.owner)).violated == ()


async def test_a_replacement_loses_nothing_that_is_restored_after_it_read_the_head(
    encrypted: EncryptedConversation,
) -> None:
    """A restore brings the record back with its old revision, so that the revision alone shows nothing."""
    store = encrypted.fresh
    inner, done = store.inner.replace, list[object]()

    async def replace_later(*args: object, **options: object) -> Entry:
        if not done:
            done.append(await write_elsewhere(encrypted, "restore"))
        return await inner(*args, **options)  # type: ignore[arg-type]

    store.inner.replace = replace_later  # type: ignore[method-assign]
    await store.replace(encrypted.id, user("other words", message_id="m4"))
    entries = await encrypted.fresh.page(encrypted.id, limit=99)
    assert is_proven(entries)
    assert {"other words", "restored 70"} <= set(words(entries))


async def test_restores_and_turns_of_several_processes_lose_nothing(encrypted: EncryptedConversation) -> None:
    record = await encrypted.store.get(encrypted.id)
    assert record is not None
    # Far apart: a turn takes the next sequence, and a restore skips sequences that are taken.
    sequences = [1000 * number for number in range(1, 5)]
    restores = [encrypted.fresh.restore(record, [restored(encrypted, sequence)]) for sequence in sequences]
    turns = [encrypted.fresh.append(encrypted.id, [user(f"said {number}")]) for number in range(4)]
    await asyncio.gather(*restores, *turns)
    entries = await encrypted.fresh.page(encrypted.id, limit=99)
    assert is_proven(entries)
    said = {f"said {number}" for number in range(4)}
    assert said | {f"restored {sequence}" for sequence in sequences} <= set(words(entries))


# Repair


@pytest.mark.parametrize(
    "attack",
    [replayed, without_the_last, one_message_rolled_back, moved_to_the_end, head_rolled_back],
    ids=lambda attack: attack.__name__,
)
async def test_a_log_that_was_altered_is_found_and_repaired(
    encrypted: EncryptedConversation, attack: Attack
) -> None:
    before = await encrypted.raw()
    after = attack(encrypted, before)
    if isinstance(encrypted.backend.inner, JsonFileBackend):
        after = with_times_in_bodies(before, after)
    await encrypted.put(after)
    proven = words(await encrypted.fresh.page(encrypted.id, limit=99))
    found = await verify(sealed_backend(encrypted.backend.inner), owner=encrypted.owner)
    assert [one.conversation_id for one in found.violated] == [encrypted.id]
    repaired = await verify(sealed_backend(encrypted.backend.inner), owner=encrypted.owner, repair=True)
    assert [one.repaired for one in repaired.violated] == [True]
    assert (await verify(sealed_backend(encrypted.backend.inner), owner=encrypted.owner)).violated == ()
    entries = await encrypted.fresh.page(encrypted.id, limit=99)
    assert is_proven(entries)
    assert words(entries) == proven
    await encrypted.fresh.append(encrypted.id, [user("goes on")])
    assert words(await encrypted.fresh.tail(encrypted.id, limit=1)) == ["goes on"]


async def test_a_log_of_which_nothing_is_proven_is_not_repaired_away(
    encrypted: EncryptedConversation,
) -> None:
    before = await encrypted.raw()
    await encrypted.put(head_altered(encrypted, before))
    found = await verify(sealed_backend(encrypted.backend.inner), owner=encrypted.owner, repair=True)
    assert [one.repaired for one in found.violated] == [False]
    await encrypted.put(before)
    assert (await verify(sealed_backend(encrypted.backend.inner), owner=encrypted.owner)).violated == ()
