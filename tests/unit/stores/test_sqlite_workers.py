"""What the writing thread promises when many turns are under way, and what it remembers between them."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from aforesaid.contracts import ConversationStore, Entry
from aforesaid.errors import ConversationNotFound, MessageConflict, RevisionConflict, StoreUnavailable
from aforesaid.model.conversations import Changes, started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.stores._worker import Job
from aforesaid.stores.sqlite import SQLiteBackend
from aforesaid.stores.sqlite.connections import connect
from aforesaid.stores.sqlite.search import Indexer
from aforesaid.stores.sqlite.workers import Writer
from aforesaid.testing import FixedClock

SECONDS = 120
"""Far longer than anything here takes; only what hangs meets it."""
COUNT = "SELECT count(*) FROM messages JOIN conversations AS c ON c.pk = conversation WHERE c.id = ?"


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "memory.db")


@pytest.fixture
async def backend(path: str, clock: FixedClock) -> AsyncIterator[SQLiteBackend]:
    backend = SQLiteBackend(path, clock=clock)
    await backend.open()
    yield backend
    await backend.close()


@pytest.fixture
async def other(path: str, clock: FixedClock, backend: SQLiteBackend) -> AsyncIterator[SQLiteBackend]:
    """The same file opened once more, as another process would."""
    other = SQLiteBackend(path, clock=clock)
    await other.open()
    yield other
    await other.close()


async def conversation(store: ConversationStore, **fields: Any) -> str:
    return (await store.create(started(new_id(), now=store.now(), **fields))).id


def said(content: object, **fields: Any) -> list[Message]:
    return [Message(role="user", content=content, **fields)]


class TestWhoIsToldWhen:
    async def test_what_is_acknowledged_is_committed(self, backend: SQLiteBackend, path: str) -> None:
        store = backend.of("erin")
        ids = [await conversation(store) for _ in range(40)]
        witness = connect(path, synchronous="full")

        async def talk(conversation_id: str) -> None:
            for number in range(10):
                stored = await store.append(conversation_id, said(number, message_id=f"{number}"))
                found = witness.execute(COUNT, (conversation_id,)).get
                assert found == number + 1 == stored.conversation.message_count

        await asyncio.gather(*map(talk, ids))
        witness.close()

    async def test_a_committed_turn_does_not_wait_for_slow_work_behind_it(
        self, backend: SQLiteBackend
    ) -> None:
        store = backend.of("erin")
        conversation_id = await conversation(store)
        release = threading.Event()
        slow = await _at_the_next_commit(
            backend, lambda: backend.writer.run(lambda _: release.wait(SECONDS)), lambda: None
        )
        await asyncio.wait_for(store.append(conversation_id, said("quick")), SECONDS / 2)
        release.set()
        assert await slow[0]

    async def test_a_committed_turn_does_not_wait_while_another_process_holds_the_file(
        self, backend: SQLiteBackend, path: str
    ) -> None:
        store = backend.of("erin")
        conversation_id = await conversation(store)
        holder = connect(path, synchronous="full")
        behind = await _at_the_next_commit(
            backend,
            lambda: store.append(conversation_id, said("behind")),
            lambda: holder.execute("BEGIN IMMEDIATE"),
        )
        await asyncio.wait_for(store.append(conversation_id, said("first")), SECONDS / 2)
        holder.execute("ROLLBACK")
        holder.close()
        await behind[0]
        assert [e.message.content for e in await store.page(conversation_id, limit=9)] == ["first", "behind"]


async def _at_the_next_commit(
    backend: SQLiteBackend, work: Callable[[], Coroutine[Any, Any, Any]], act: Callable[[], object]
) -> list[asyncio.Task[Any]]:
    """After the next commit, before its callers are notified: put work into the queue, and act.

    The task of that work is in the list by then.
    """
    loop = asyncio.get_running_loop()
    armed, accepted = threading.Event(), threading.Event()
    begun: list[asyncio.Task[Any]] = []

    def begin() -> None:
        begun.append(loop.create_task(work()))
        loop.call_soon(accepted.set)  # after the first step of the task, which hands the work over

    def committed(*_: object) -> int:
        if armed.is_set() and not accepted.is_set():
            loop.call_soon_threadsafe(begin)
            assert accepted.wait(SECONDS)
            act()
        return apsw.SQLITE_OK

    await backend.writer.run(lambda db: db.set_wal_hook(committed))
    armed.set()
    return begun


@asynccontextmanager
async def writer_held(backend: SQLiteBackend) -> AsyncIterator[None]:
    """While this lasts the writing thread is busy, and what is handed to it waits."""
    begun, release = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def hold(_: apsw.Connection) -> None:
        loop.call_soon_threadsafe(begun.set)
        assert release.wait(SECONDS)

    holding = asyncio.create_task(backend.writer.run(hold))
    await begun.wait()
    yield
    release.set()
    await holding


def _following(entry: Entry, *contents: str) -> list[Entry]:
    return [
        replace(entry, sequence=entry.sequence + number, message=entry.message.with_(content=content))
        for number, content in enumerate(contents, 1)
    ]


class TestAFileThatIsHeld:
    async def test_a_turn_waits_for_it_no_longer_than_anything_else(
        self, path: str, backend: SQLiteBackend
    ) -> None:
        store = backend.of("erin")
        conversation_id = await conversation(store)
        attempts: list[int] = []

        def impatient(attempt: int) -> bool:
            attempts.append(attempt)
            return False

        await backend.writer.run(lambda db: db.set_busy_handler(impatient))
        holder = connect(path, synchronous="full")
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable):
            await store.append(conversation_id, said("held up"))
        assert attempts == [0]
        holder.execute("ROLLBACK")
        holder.close()
        await store.append(conversation_id, said("at last"))
        assert [e.message.content for e in await store.page(conversation_id, limit=9)] == ["at last"]

    async def test_a_turn_is_acknowledged_while_the_index_waits_for_the_file(
        self, path: str, backend: SQLiteBackend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = backend.of("erin")
        conversation_id = await conversation(store)
        holder = connect(path, synchronous="full")
        turn_begins = threading.Event()

        def late(indexer: Indexer) -> bool:
            """Lock the file for another connection once the turn is committed, and report work as overdue."""
            if holder.in_transaction or not turn_begins.is_set():
                return False
            holder.execute("BEGIN IMMEDIATE")
            return True

        monkeypatch.setattr(Indexer, "is_overdue", property(late))
        turn_begins.set()
        await asyncio.wait_for(store.append(conversation_id, said("stored")), SECONDS / 4)
        assert holder.in_transaction
        holder.execute("ROLLBACK")
        holder.close()


async def test_a_batch_of_which_all_was_cancelled_does_nothing(
    backend: SQLiteBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = backend.of("erin")
    conversation_id = await conversation(store)
    batches: list[int] = []
    commit = Writer._commit

    def counted(writer: Writer, jobs: list[Job]) -> None:
        batches.append(len(jobs))
        commit(writer, jobs)

    async with writer_held(backend):
        monkeypatch.setattr(Writer, "_commit", counted)
        turn = asyncio.create_task(store.append(conversation_id, said("never mind")))
        await asyncio.sleep(0)
        turn.cancel()
        await asyncio.wait([turn])
    await store.append(conversation_id, said("after"))
    assert batches == [1]


class TestWhatIsRemembered:
    async def test_a_turn_follows_what_another_process_wrote(
        self, backend: SQLiteBackend, other: SQLiteBackend
    ) -> None:
        here, there = backend.of("erin"), other.of("erin")
        conversation_id = await conversation(here)
        for number in range(6):
            stored = await (there if number % 3 == 2 else here).append(conversation_id, said(number))
            assert (stored.conversation.revision, stored.new[0].sequence) == (number + 1, number + 1)
        entries = await here.page(conversation_id, limit=9)
        assert [entry.message.content for entry in entries] == list(range(6))
        assert await here.get(conversation_id) == await there.get(conversation_id)

    async def test_a_turn_is_refused_after_another_process_removed_the_conversation(
        self, backend: SQLiteBackend, other: SQLiteBackend, clock: FixedClock
    ) -> None:
        store = backend.of("erin")
        conversation_id = await conversation(store)
        await store.append(conversation_id, said("here"))
        await other.of("erin").delete(conversation_id)
        zoe = other.of("zoe")
        hers = await conversation(zoe)  # which takes the key that has become free, and is as long
        await zoe.append(hers, said("mine"))
        clock.advance(timedelta(seconds=1))
        with pytest.raises(ConversationNotFound):
            await store.append(conversation_id, said("gone"))
        assert [entry.message.content for entry in await zoe.page(hers, limit=9)] == ["mine"]

    async def test_a_turn_keeps_what_another_process_changed_in_the_record(
        self, backend: SQLiteBackend, other: SQLiteBackend
    ) -> None:
        here, there = backend.of("erin"), other.of("erin")
        conversation_id = await conversation(here)
        await here.append(conversation_id, said("one"))
        await there.update(conversation_id, Changes(unread_count=0))
        stored = await here.append(conversation_id, said("two"))
        assert (stored.conversation.unread_count, stored.conversation.revision) == (1, 3)
        assert await here.get(conversation_id) == stored.conversation

    async def test_a_turn_follows_what_another_process_has_put_in_the_place_of_the_record(
        self, backend: SQLiteBackend, other: SQLiteBackend, clock: FixedClock
    ) -> None:
        """The same revision, by chance, in another log."""
        here, there = backend.of("erin"), other.of("erin")
        conversation_id = await conversation(here)
        stored = await here.append(conversation_id, said("one"))
        longer = [*(await here.page(conversation_id, limit=9)), *_following(stored.new[0], "two", "three")]
        await there.delete(conversation_id)
        await there.restore(stored.conversation.with_(message_count=3), longer)
        clock.advance(timedelta(seconds=1))
        stored = await here.append(conversation_id, said("four"))
        assert (stored.conversation.message_count, stored.new[0].sequence) == (4, 4)
        entries = await here.page(conversation_id, limit=9)
        assert [entry.message.content for entry in entries] == ["one", "two", "three", "four"]

    async def test_a_turn_is_refused_after_another_process_gave_the_conversation_to_another_owner(
        self, backend: SQLiteBackend, other: SQLiteBackend
    ) -> None:
        """Under the same id and key, and with everything else as it was."""
        erin, zoe = backend.of("erin"), other.of("zoe")
        conversation_id = await conversation(erin)
        stored = await erin.append(conversation_id, said("one"))
        entries = await erin.page(conversation_id, limit=9)
        await other.of("erin").delete(conversation_id)
        await zoe.restore(stored.conversation, entries)
        with pytest.raises(ConversationNotFound):
            await erin.append(conversation_id, said("two"))
        assert [entry.message.content for entry in await zoe.page(conversation_id, limit=9)] == ["one"]

    async def test_a_turn_goes_by_the_record_that_another_process_made_anew(
        self, backend: SQLiteBackend, other: SQLiteBackend
    ) -> None:
        """As long as the one before, and with another lifetime."""
        here, there = backend.of("erin"), other.of("erin")
        conversation_id = await conversation(here)
        await here.append(conversation_id, said("one"))
        await there.delete(conversation_id)
        anew = started(conversation_id, now=there.now(), ttl=timedelta(days=1), subject="anew")
        await there.create(anew)
        await there.append(conversation_id, said("another one"))
        stored = (await here.append(conversation_id, said("two"))).conversation
        assert (stored.subject, stored.expires_at) == ("anew", there.now() + timedelta(days=1))
        assert await there.get(conversation_id) == stored

    async def test_a_turn_goes_by_the_record_that_another_process_put_back(
        self, backend: SQLiteBackend, other: SQLiteBackend
    ) -> None:
        """Of the same revision and moments, as after a key was changed."""
        here, there = backend.of("erin"), other.of("erin")
        conversation_id = await conversation(here)
        record = (await here.append(conversation_id, said("one"))).conversation
        await there.restore(record.with_(unread_count=0, subject="sealed anew"), [])
        stored = (await here.append(conversation_id, said("two"))).conversation
        assert (stored.subject, stored.unread_count) == ("sealed anew", 1)
        assert await there.get(conversation_id) == stored

    async def test_nothing_is_remembered_of_a_file_that_was_closed(self, tmp_path: Path) -> None:
        """Another may have come in its place, with another owner's conversation under the same key."""
        here, there = (SQLiteBackend(str(tmp_path / name), search=False) for name in ("here", "there"))
        await here.open()
        await there.open()
        conversation_id, hers = await conversation(here.of("erin")), await conversation(there.of("zoe"))
        await here.of("erin").append(conversation_id, said("one"))
        await there.of("zoe").append(hers, said("mine"))
        await here.close()
        await there.close()
        (tmp_path / "there").replace(tmp_path / "here")
        await here.open()
        with pytest.raises(ConversationNotFound):
            await here.of("erin").append(conversation_id, said("two"))
        assert [entry.message.content for entry in await here.of("zoe").page(hers, limit=9)] == ["mine"]
        await here.close()

    async def test_a_turn_sees_what_was_changed_between(self, backend: SQLiteBackend) -> None:
        store = backend.of("erin")
        conversation_id = await conversation(store)
        await store.append(conversation_id, said("one"))
        await store.update(conversation_id, Changes(subject="keys", unread_count=0))
        stored = await store.append(conversation_id, said("two"))
        assert (stored.conversation.subject, stored.conversation.unread_count) == ("keys", 1)
        await store.rewrite(conversation_id, said("anew"))
        stored = await store.append(conversation_id, said("three"))
        assert (stored.conversation.message_count, stored.new[0].sequence) == (2, 4)
        assert stored.conversation == await store.get(conversation_id)

    async def test_a_turn_that_was_undone_is_forgotten(self, backend: SQLiteBackend) -> None:
        store = backend.of("erin")
        conversation_id = await conversation(store)
        turns = [
            store.append(conversation_id, said(number), expected_revision=7 if number == 5 else None)
            for number in range(6)
        ]
        *stored, refused = await asyncio.gather(*turns, return_exceptions=True)
        assert isinstance(refused, RevisionConflict)
        assert [one.new[0].sequence for one in stored] == [1, 2, 3, 4, 5]  # type: ignore[union-attr]
        after = await store.append(conversation_id, said("after"), expected_revision=5)
        assert after.new[0].sequence == 6
        assert after.conversation == await store.get(conversation_id)

    async def test_a_conversation_that_expired_since_the_last_turn_is_not_there(
        self, backend: SQLiteBackend, clock: FixedClock
    ) -> None:
        store = backend.of("erin")
        conversation_id = await conversation(store, ttl=timedelta(hours=1))
        await store.append(conversation_id, said("in time"))
        clock.advance(timedelta(hours=1))
        with pytest.raises(ConversationNotFound):
            await store.append(conversation_id, said("too late"))

    async def test_a_known_message_among_new_ones_leaves_no_gap(self, backend: SQLiteBackend) -> None:
        store = backend.of("erin")
        conversation_id = await conversation(store)
        await store.append(conversation_id, said("one", message_id="1"))
        again = await store.append(
            conversation_id,
            [*said("zero", message_id="0"), *said("one", message_id="1"), *said("two", message_id="2")],
        )
        assert [entry.sequence for entry in again.new] == [2, 3]
        assert [entry.sequence for entry in again.known] == [1]
        assert again.conversation == await store.get(conversation_id)
        assert again.conversation.message_count == 3


class TestTurnsThatArePutTogether:
    """While the writing thread is held, turns gather; then they go into one transaction."""

    async def together(self, backend: SQLiteBackend, turns: list[Coroutine[Any, Any, Any]]) -> list[Any]:
        commits: list[object] = []

        def committed(*describe: object) -> int:
            commits.append(describe)
            return apsw.SQLITE_OK

        await backend.writer.run(lambda db: db.set_wal_hook(committed))
        async with writer_held(backend):
            tasks = [asyncio.create_task(turn) for turn in turns]
            await asyncio.sleep(0)
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert len(commits) < len(turns), "they were not put together"
        return done

    async def test_turns_of_one_conversation_follow_each_other(self, backend: SQLiteBackend) -> None:
        store = backend.of("erin")
        first, second = await conversation(store), await conversation(store)
        turns = [
            store.append(first if number % 3 else second, [*said(f"q{number}"), *said(f"a{number}")])
            for number in range(61)
        ]
        stored = await self.together(backend, turns)
        for conversation_id in (first, second):
            mine = [one for one in stored if one.conversation.id == conversation_id]
            assert [one.conversation.revision for one in mine] == list(range(1, len(mine) + 1))
            assert [one.conversation.message_count for one in mine] == list(range(2, 2 * len(mine) + 1, 2))
            page = await store.page(conversation_id, limit=1000)
            assert page == [entry for one in mine for entry in one.new]
            assert [entry.sequence for entry in page] == list(range(1, len(page) + 1))
            assert await store.get(conversation_id) == mine[-1].conversation

    async def test_what_fails_among_them_fails_alone(self, backend: SQLiteBackend) -> None:
        store = backend.of("erin")
        conversation_id = await conversation(store)
        await store.append(conversation_id, said("known", message_id="known"))
        turns = [
            store.append(conversation_id, said("first", message_id="1")),
            store.append(conversation_id, said("known", message_id="known")),
            store.append(conversation_id, said("other words", message_id="known")),
            store.append(new_id(), said("nowhere")),
            store.append(conversation_id, said("too late"), expected_revision=1),
            backend.of("mallory").append(conversation_id, said("not hers")),
            store.append(conversation_id, said("last", message_id="2")),
        ]
        first, known, conflict, nowhere, late, foreign, last = await self.together(backend, turns)
        assert [entry.message.content for entry in first.new + last.new] == ["first", "last"]
        assert (len(known.new), len(known.known)) == (0, 1)
        assert isinstance(conflict, MessageConflict)
        assert isinstance(nowhere, ConversationNotFound)
        assert isinstance(late, RevisionConflict)
        assert isinstance(foreign, ConversationNotFound)
        page = await store.page(conversation_id, limit=9)
        assert [entry.message.content for entry in page] == ["known", "first", "last"]
        assert (await store.get(conversation_id)) == last.conversation

    async def test_a_transaction_that_the_engine_undid_by_itself_is_forgotten(
        self, backend: SQLiteBackend
    ) -> None:
        """A full disk: SQLite rolls back, and what was remembered of those turns must go as well."""
        store = backend.of("erin")
        conversation_id = await conversation(store)
        await store.append(conversation_id, said("before"))

        def pages(db: apsw.Connection, most: str) -> int:
            return int(db.execute(f"PRAGMA max_page_count = {most}").fetchone()[0])  # type: ignore[index]

        now = await backend.writer.run(lambda db: pages(db, "1"))
        big = [store.append(conversation_id, said("x" * 100_000)) for _ in range(5)]
        refused = await self.together(backend, big)
        assert all(isinstance(one, StoreUnavailable) for one in refused), refused
        await backend.writer.run(lambda db: pages(db, str(now * 1000)))
        stored = await store.append(conversation_id, said("after"))
        assert stored.conversation.message_count == 2
        assert [entry.sequence for entry in await store.page(conversation_id, limit=9)] == [1, 2]
