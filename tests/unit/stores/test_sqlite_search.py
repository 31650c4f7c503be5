"""Search in SQLite is search; and what is its own: the tables, catching up, leaving no trace."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aforesaid.contracts import Backend, ConversationStore, Reindexable, Searchable, capability
from aforesaid.errors import AforesaidError, InvalidSetting
from aforesaid.model.conversations import started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.search.analysis import terms_of
from aforesaid.stores.sqlite import SQLiteBackend, search, workers
from aforesaid.stores.sqlite.search import INDEX_BATCH, REINDEX_BATCH, index_waiting
from aforesaid.stores.urls import backend_for
from aforesaid.testing import FixedClock, SearchContract
from aforesaid.testing.contract.search import check, entries_of, expected_matches, searched
from tests.examples import examples

HOUR = timedelta(hours=1)


class TestSQLiteSearch(SearchContract):
    @pytest.fixture
    async def backend(self, clock: FixedClock, tmp_path: Path) -> AsyncIterator[Backend]:
        backend = SQLiteBackend(str(tmp_path / "memory.db"), clock=clock)
        await backend.open()
        yield backend
        await backend.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


async def opened(path: Path, **options: Any) -> SQLiteBackend:
    backend = SQLiteBackend(str(path), synchronous="normal", **options)
    await backend.open()
    return backend


def user(content: str, **fields: Any) -> Message:
    return Message(role="user", content=content, **fields)


async def said(store: ConversationStore, *contents: str, **fields: Any) -> str:
    record = await store.create(started(new_id(), now=store.now(), **fields))
    for content in contents:
        await store.append(record.id, [user(content)])
    return record.id


async def sound(backend: SQLiteBackend) -> None:
    """The full-text table agrees with itself, and has every indexed term. Padding terms begin with `z`."""

    def work(db: apsw.Connection) -> tuple[int, int]:
        db.execute("INSERT INTO message_terms (message_terms) VALUES ('integrity-check')")
        kept: Any = db.execute("SELECT DISTINCT owner, terms FROM indexed WHERE length > 0").fetchall()
        terms = {f"{owner:015x}{term}" for owner, text in kept for term in text.split(" ")}
        found: Any = db.execute("SELECT count(*) FROM term_frequencies WHERE term < 'z'").get
        return len(terms), int(found)

    kept, found = await backend.writer.run(work)
    assert kept == found


async def indexed(backend: SQLiteBackend) -> int:
    return int(await backend.readers.run(lambda db: db.execute("SELECT count(*) FROM indexed").get))


async def at_rest(backend: SQLiteBackend, *, count: int) -> None:
    """Wait until so many messages went into the index by themselves."""
    async with asyncio.timeout(120):
        while await indexed(backend) < count:  # noqa: ASYNC110  it happens in a thread without an event
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("most", [1, 3, 100])
async def test_what_is_not_read_of_a_common_word_is_counted_all_the_same(
    path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Of a word in many messages only the newest are read; those that a rare word finds may have it too."""
    monkeypatch.setattr(search, "MAX_READ", most)
    backend = await opened(path)
    store = backend.of("erin")
    await said(store, "lamp lamp gate", *["lamp"] * 9, "lamp lamp lamp")
    await backend.catch_up()
    answer = await searched(store, "lamp", "gate", limit=2)
    assert answer.frequencies == (11, 1)
    assert [match.counts for match in answer.found] == [(2, 1), (3, 0)]
    await backend.close()


async def test_turns_are_found_before_and_after_they_go_into_the_index_in_a_moment_of_rest(
    path: Path,
) -> None:
    backend = await opened(path)
    erin = backend.of("erin")
    # A rest that comes early takes along what there is; the others are still worth another.
    for number in range(2 * INDEX_BATCH + 10):
        await said(erin, f"door {number} word{number % 7}")
        if number % 18 == 0:
            await check(erin, "door", "word3", str(number))
    await at_rest(backend, count=INDEX_BATCH)
    await check(erin, "door", "word3")
    await sound(backend)
    await backend.close()


async def test_where_turns_come_without_a_pause_they_take_the_oldest_along(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "IDLE_SECONDS", 60.0)
    monkeypatch.setattr(search, "MAX_WAITING", 2 * INDEX_BATCH)
    backend = await opened(path)
    await said(backend.of("erin"), *(f"door {number}" for number in range(4 * INDEX_BATCH)))
    assert await indexed(backend) >= 2 * INDEX_BATCH
    await check(backend.of("erin"), "door", "7")
    await sound(backend)
    await backend.close()


async def test_a_writer_of_many_messages_leaves_no_longer_index_queue_than_others(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "IDLE_SECONDS", 60.0)
    monkeypatch.setattr(search, "MAX_WAITING", 2 * INDEX_BATCH)
    backend = await opened(path)
    erin = backend.of("erin")
    conversation = await erin.create(started(new_id(), now=erin.now()))
    many = [Message(role="user", content=f"door {number}") for number in range(10 * INDEX_BATCH)]
    await erin.append(conversation.id, many)
    assert len(many) - await indexed(backend) < 2 * INDEX_BATCH
    await check(erin, "door", "7")
    await sound(backend)
    await backend.close()


async def test_a_search_takes_in_what_waits_when_it_is_much(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "IDLE_SECONDS", 60.0)
    backend = await opened(path)
    erin = backend.of("erin")
    await said(erin, *(f"door {number}" for number in range(3 * INDEX_BATCH)))
    assert await indexed(backend) < INDEX_BATCH
    await check(erin, "door", "0", str(3 * INDEX_BATCH - 1))
    assert await indexed(backend) == 3 * INDEX_BATCH
    await backend.close()


async def test_a_moment_of_rest_that_fails_is_logged_and_comes_again(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    backend = await opened(path)
    failed = threading.Event()

    def index_waiting_or_fail(db: apsw.Connection, most: int) -> int:
        if not failed.is_set():
            failed.set()
            raise apsw.FullError("database or disk is full")
        return index_waiting(db, most)

    monkeypatch.setattr(search, "index_waiting", index_waiting_or_fail)
    await said(backend.of("erin"), *(f"door {number}" for number in range(INDEX_BATCH)))
    assert await asyncio.to_thread(failed.wait, 240)
    await said(backend.of("erin"), "the last door")
    await at_rest(backend, count=INDEX_BATCH)
    assert "disk is full" in caplog.text
    await backend.close()


async def test_what_waited_when_a_process_ended_is_found_and_goes_in_later(path: Path) -> None:
    backend = await opened(path)
    await said(backend.of("erin"), "the door", "the window")
    await backend.close()
    backend = await opened(path)
    assert (await check(backend.of("erin"), "door", "window")).frequencies == (1, 1)
    await said(backend.of("erin"), "the lamp")
    await check(backend.of("erin"), "door", "window", "lamp")
    await at_rest(backend, count=2)
    await backend.close()


class TestOnAndOff:
    async def test_without_an_index_a_store_does_not_say_that_it_searches(self, path: Path) -> None:
        backend = await opened(path, search=False)
        assert capability(backend.of("erin"), Searchable) is None
        assert isinstance(backend, Reindexable)
        await backend.close()

    def test_the_url_says_which(self, path: Path) -> None:
        for option, searchable in (("", True), ("?search=on", True), ("?search=OFF", False)):
            backend = backend_for(f"sqlite:///{path}{option}")
            assert (capability(backend.of("erin"), Searchable) is not None) is searchable
        with pytest.raises(InvalidSetting, match="search"):
            backend_for(f"sqlite:///{path}?search=maybe")

    async def test_what_was_written_without_it_is_indexed_in_the_background_when_it_is_on(
        self, path: Path
    ) -> None:
        plain = await opened(path, search=False)
        for owner in ("erin", "sam"):
            for number in range(5):
                store = plain.of(owner)
                record = await store.create(started(new_id(), now=store.now()))
                turn = [user(f"door {number} {place}") for place in range(REINDEX_BATCH // 4)]
                await store.append(record.id, turn)
        await plain.close()
        backend = await opened(path)
        async with asyncio.timeout(120):
            while (await searched(backend.of("sam"), "door")).messages < 5 * (REINDEX_BATCH // 4):
                pass
        for owner in ("erin", "sam"):
            await check(backend.of(owner), "door", "3")
        await sound(backend)
        await backend.close()

    async def test_what_another_process_writes_without_it_is_caught_up_with(self, path: Path) -> None:
        backend, plain = await opened(path), await opened(path, search=False)
        erin = backend.of("erin")
        kept = await said(erin, "the door", "the lamp")
        other = plain.of("erin")
        await other.append(kept, [user("a window", message_id="m1")])
        gone = await said(other, "door and chair")
        assert (await check(erin, "door", "window", "chair")).frequencies == (2, 1, 1)
        describe: list[int] = []
        assert await backend.reindex(describe.append) == describe[-1] > 1
        assert (await check(erin, "door", "window", "chair")).frequencies == (2, 1, 1)
        await other.replace(kept, user("another thing", message_id="m1"))
        await other.delete(gone)
        assert (await searched(erin, "door", "window", "chair")).frequencies == (1, 0, 0)
        assert await backend.reindex() == 1
        await check(erin, "door", "window", "thing")
        assert await backend.reindex() == 0
        await sound(backend)
        await plain.close()
        await backend.close()

    async def test_catching_up_with_much_leaves_others_their_turns(self, path: Path) -> None:
        plain = await opened(path, search=False)
        store = plain.of("erin")
        record = await store.create(started(new_id(), now=store.now()))
        for _ in range(4):
            await store.append(record.id, [user("door and window") for _ in range(REINDEX_BATCH)])
        backend = await opened(path)
        steps: list[int] = []
        done, _ = await asyncio.gather(backend.reindex(steps.append), said(backend.of("sam"), *["lamp"] * 5))
        assert steps == sorted(steps)
        assert max((b - a for a, b in zip([0, *steps], steps, strict=False)), default=0) <= REINDEX_BATCH
        await backend.reindex()
        assert done <= 4 * REINDEX_BATCH
        await check(backend.of("erin"), "door")
        await plain.close()
        await backend.close()

    async def test_what_cannot_be_read_is_passed_over(self, path: Path) -> None:
        plain = await opened(path, search=False)
        await said(plain.of("erin"), "the door", "the window")
        await plain.writer.run(
            lambda db: db.execute("UPDATE messages SET body = '{' WHERE body LIKE '%door%'").fetchall()
        )
        await plain.close()
        backend = await opened(path)
        await backend.reindex()
        assert (await searched(backend.of("erin"), "door", "window")).frequencies == (0, 1)
        assert await backend.reindex() == 0
        await backend.close()


class TestNoTrace:
    @pytest.mark.parametrize("how", ["delete", "rewrite", "replace", "clear", "purge"])
    async def test_words_that_were_deleted_leave_the_files(self, path: Path, how: str) -> None:
        clock = FixedClock()
        backend = await opened(path, clock=clock)
        erin = backend.of("erin")
        kept = await said(erin, *(f"lampshade{number} beside" for number in range(INDEX_BATCH)), ttl=None)
        record = await erin.create(started(new_id(), now=clock(), ttl=HOUR))
        for number in range(INDEX_BATCH * 2):
            await erin.append(record.id, [user(f"quuxword{number} wibblewobble", message_id=f"m{number}")])
        await backend.catch_up()
        assert b"wibblewobbl" in raw(path)
        match how:
            case "delete":
                await erin.delete(record.id)
            case "rewrite":
                await erin.rewrite(record.id, [])
            case "replace":
                for number in range(INDEX_BATCH * 2):
                    await erin.replace(record.id, user("[gone]", message_id=f"m{number}"))
            case "clear":
                await erin.clear()
            case _:
                clock.advance(HOUR)
                assert await erin.purge_expired() == 1
        await backend.scrub("erin")
        left = raw(path)
        assert b"wibblewobbl" not in left
        assert b"quuxword" not in left
        if how != "clear":
            assert b"lampshad" in left
            assert (await searched(erin, "lampshade3")).found[0].conversation_id == kept
        await sound(backend)
        await backend.close()


def raw(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in path.parent.iterdir())


words = st.sampled_from(
    ["door", "window", "running", "Straße", "门窗户", "the", "café", "2024", "", "x" * 99]
)
texts = st.lists(words, max_size=6).map(" ".join)
messages = st.builds(
    Message,
    role=st.sampled_from(["user", "assistant", "system", "tool"]),
    content=texts,
    message_id=st.none() | st.sampled_from(["m1", "m2", "m3"]),
)
turns = st.lists(messages, max_size=4)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.integers(0, 2), turns),
        st.tuples(st.just("rewrite"), st.integers(0, 2), turns),
        st.tuples(st.just("replace"), st.integers(0, 2), messages),
        st.tuples(st.just("delete"), st.integers(0, 2), st.none()),
        st.tuples(st.just("move"), st.integers(0, 2), st.integers(0, 3)),
        st.tuples(st.just("wait"), st.integers(0, 2), st.none()),
        st.tuples(st.just("purge"), st.integers(0, 2), st.none()),
        st.tuples(st.just("index"), st.integers(0, 2), st.none()),
        st.tuples(st.just("catch up"), st.integers(0, 2), st.none()),
    ),
    max_size=16,
)


@settings(examples(40), suppress_health_check=list(HealthCheck))
@given(played=steps, asked=st.lists(texts, max_size=3), limit=st.integers(0, 5))
async def test_after_any_history_the_numbers_are_those_of_the_log(
    tmp_path: Path, played: Sequence[tuple[str, int, Any]], asked: list[str], limit: int
) -> None:
    clock = FixedClock()
    backend = SQLiteBackend(str(tmp_path / f"{new_id()}.db"), clock=clock, synchronous="normal")
    await backend.open()
    ids = [new_id() for _ in range(3)]
    for owner in ("ann", "bob"):
        for place, conversation_id in enumerate(ids):
            await backend.of(owner).create(
                started(conversation_id, now=clock(), ttl=(None, HOUR, HOUR * 3)[place])
            )
    for what, which, value in played:
        try:
            await _play(backend, clock, what, ids[which], value)
        except AforesaidError:
            continue  # refused, and so nothing has happened
    terms = [term for text in asked for term in terms_of(text)]
    for owner in ("ann", "bob"):
        await check(backend.of(owner), *terms)
        best = await searched(backend.of(owner), *terms, limit=limit)
        everything = expected_matches(await entries_of(backend.of(owner)), terms).found
        assert len(best.found) == min(limit, len(everything))
        assert set(best.found) <= set(everything)
    await sound(backend)
    await backend.close()


async def _play(
    backend: SQLiteBackend, clock: FixedClock, what: str, conversation_id: str, value: Any
) -> None:
    store = backend.of("ann")
    match what:
        case "say":
            await store.append(conversation_id, value)
        case "rewrite":
            await store.rewrite(conversation_id, value)
        case "replace":
            await store.replace(conversation_id, value)
        case "delete":
            await store.delete(conversation_id)
        case "move":
            record = await store.get(conversation_id)
            if record is not None:
                entries = await store.page(conversation_id, limit=100)
                await backend.of("bob").restore(record, entries[value:])
        case "wait":
            clock.advance(HOUR)
        case "purge":
            await store.purge_expired()
        case "index":
            await backend.writer.run(lambda db: index_waiting(db, 3))
        case _:
            await backend.reindex()
