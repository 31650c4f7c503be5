"""Search in PostgreSQL: the same terms as everywhere, found through an index under row-level security."""

import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from aforesaid.contracts import ConversationStore, Entry, Match, Matches, Position, Searchable
from aforesaid.errors import InvalidInput
from aforesaid.model.clock import system_clock
from aforesaid.model.conversations import Query, started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.search.analysis import indexed_terms
from aforesaid.search.bm25 import Scorer
from aforesaid.stores.postgres import PostgresBackend
from aforesaid.stores.postgres.rows import key_of
from aforesaid.stores.postgres.search import COMMON, MAX_FACTOR, plan
from aforesaid.stores.postgres.store import PostgresStore
from aforesaid.stores.postgres.terms import MAX_FREQUENCY, indexed, term_prefix
from aforesaid.testing import FixedClock
from tests.examples import examples
from tests.servers.postgres import Databases

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)
EVERYTHING = 10_000
HOSTILE = [
    "a b",
    " ",
    "",
    "\u2028",
    "a\nb",
    "a\0b",
    "\ud800",
    "a & b",
    "!a",
    "(a|b)",
    "a:*",
    "<->",
    "x" * 5_000,
]
HOSTILE += ["'", "''", "a'b", "\\", "a\\'b", "'|'", "%s", "$1", "door:2A", "🙂"]


@pytest.fixture
async def backend(postgres_url: str) -> AsyncIterator[PostgresBackend]:
    backend = PostgresBackend(postgres_url, clock=FixedClock(NOON))
    await backend.open()
    yield backend
    await backend.close()


@pytest.fixture
def store(backend: PostgresBackend) -> PostgresStore:
    return backend.of(f"searching-{new_id()}")


def user(content: Any, **fields: Any) -> Message:
    return Message(role="user", content=content, **fields)


async def conversation(store: ConversationStore, *contents: str, **fields: Any) -> str:
    record = await store.create(started(new_id(), now=store.now(), **fields))
    await store.append(record.id, [user(content) for content in contents])
    return record.id


async def entries_of(store: ConversationStore) -> list[Entry]:
    page = await store.find(Query(limit=100))
    return [entry for record in page.conversations for entry in await store.page(record.id, limit=EVERYTHING)]


def brute_force(entries: Sequence[Entry], terms: Sequence[str]) -> Matches:
    """What an index has to say, without one. The matches are in order of their places."""
    counts = {place: Counter(indexed_terms(entry.message)) for place, entry in enumerate(entries)}
    found = [
        Match(
            conversation_id=entry.conversation_id,
            position=entry.position,
            role=entry.message.role,
            counts=tuple(counts[place][term] for term in terms),
            length=counts[place].total(),
        )
        for place, entry in enumerate(entries)
        if any(term in counts[place] for term in terms)
    ]
    return Matches(
        found=tuple(sorted(found, key=place_of)),
        frequencies=tuple(sum(term in held for held in counts.values()) for term in terms),
        messages=sum(held.total() > 0 for held in counts.values()),
        terms=sum(held.total() for held in counts.values()),
    )


def place_of(match: Match) -> tuple[str, Position]:
    return match.conversation_id, match.position


async def in_order(store: PostgresStore, terms: Sequence[str], *, limit: int = EVERYTHING) -> Matches:
    known = await store.matches(terms, limit=limit)
    return Matches(
        found=tuple(sorted(known.found, key=place_of)),
        frequencies=known.frequencies,
        messages=known.messages,
        terms=known.terms,
    )


async def as_without_an_index(store: PostgresStore, *terms: str) -> Matches:
    known = await in_order(store, terms)
    assert known == brute_force(await entries_of(store), terms)
    return known


async def test_a_store_that_searches_says_so(store: PostgresStore) -> None:
    assert isinstance(store, Searchable)


async def test_numbers_are_those_of_the_log(store: PostgresStore) -> None:
    first = await conversation(
        store, "the door, the door and the window", "is the Door locked?", "good night"
    )
    await conversation(store, "une porte, déjà fermée", "門は閉まっていますか")
    known = await as_without_an_index(store, "door", "window", "nothing", "deja", "閉ま")
    assert known.frequencies == (2, 1, 0, 1, 1)
    assert [match.counts for match in known.found if match.conversation_id == first] == [
        (2, 1, 0, 0, 0),
        (1, 0, 0, 0, 0),
    ]


async def test_the_best_comes_first(store: PostgresStore) -> None:
    contents = [f"lamp number {number}" for number in range(30)]
    contents += ["lamp and kettle", "lamp lamp lamp", "kettle " + "and so on, with many more words " * 9]
    await conversation(store, *contents)
    known = await store.matches(["lamp", "kettl"], limit=3)
    assert [match.counts for match in known.found] == [(1, 1), (0, 1), (3, 0)]
    assert known.frequencies == (32, 2)


@settings(examples(25), suppress_health_check=list(HealthCheck))
@given(
    said=st.lists(st.lists(st.sampled_from(["lamp", "door", "kettle", "bulb"]), max_size=9), max_size=30),
    limit=st.integers(1, 9),
)
async def test_those_that_are_left_out_score_no_better(
    postgres_url: str, said: list[list[str]], limit: int
) -> None:
    """By the one rule that scores, however often a message contains a term."""
    backend = PostgresBackend(postgres_url)
    await backend.open()
    store = backend.of(f"best-{new_id()}")
    await conversation(store, *(" ".join(words) for words in said))
    terms = ["door", "kettl", "nothing"]
    known, everything = await store.matches(terms, limit=limit), await store.matches(terms, limit=EVERYTHING)
    score = Scorer(everything, len(terms))
    scores = sorted((score(match) for match in everything.found), reverse=True)
    kept = [score(match) for match in known.found]
    assert kept == pytest.approx(scores[:limit], abs=1e-5)
    await backend.close()


async def test_terms_may_be_repeated_and_in_any_order(store: PostgresStore) -> None:
    await conversation(store, "door window")
    known = await store.matches(["window", "nowhere", "door", "window"], limit=9)
    assert known.frequencies == (1, 0, 1, 1)
    assert [match.counts for match in known.found] == [(1, 0, 1, 1)]


@pytest.mark.parametrize("limit", [0, 1, 2])
async def test_no_more_than_the_limit(store: PostgresStore, limit: int) -> None:
    await conversation(store, "door", "door", "door")
    known = await store.matches(["door"], limit=limit)
    assert len(known.found) == limit
    assert known.frequencies == (3,)


async def test_a_limit_that_is_none_is_refused(store: PostgresStore) -> None:
    with pytest.raises(InvalidInput, match="limit"):
        await store.matches(["door"], limit=-1)


async def test_a_search_without_any_message_finds_nothing(store: PostgresStore) -> None:
    assert await store.matches(["door"], limit=9) == Matches(found=(), frequencies=(0,), messages=0, terms=0)
    assert await store.matches([], limit=9) == Matches(found=(), frequencies=(), messages=0, terms=0)


@pytest.mark.parametrize(
    "term",
    HOSTILE,
    ids=lambda term: ascii(term)[:20],
)
async def test_a_term_that_no_message_has_is_found_nowhere(store: PostgresStore, term: str) -> None:
    await conversation(store, "a door, a b")
    known = await store.matches([term, "door"], limit=9)
    assert known.frequencies == (0, 1)
    assert [match.counts for match in known.found] == [(0, 1)]


async def test_ten_thousand_terms_are_a_query(store: PostgresStore) -> None:
    await conversation(store, "word7 word77 word777")
    known = await store.matches([f"word{number}" for number in range(10_000)], limit=9)
    assert sum(known.frequencies) == 3
    assert sum(known.found[0].counts) == 3


async def test_many_terms_that_occur_are_a_query(store: PostgresStore) -> None:
    await conversation(store, " ".join(f"word{number}" for number in range(2_000)))
    known = await as_without_an_index(store, *(f"word{number}" for number in range(2_000)))
    assert sum(known.frequencies) == 2_000


async def test_a_word_that_is_repeated_without_end(store: PostgresStore) -> None:
    await conversation(store, "kettle " * (MAX_FREQUENCY + 10) + "end")
    known = await store.matches(["kettl", "end"], limit=9)
    assert known.found[0].counts == (MAX_FREQUENCY, 1)
    assert known.terms == MAX_FREQUENCY + 11 + len(indexed_terms(user("x", timestamp=NOON))) - 1


async def test_a_message_of_more_words_than_the_index_holds_is_stored(store: PostgresStore) -> None:
    """What is beyond the end of the index is not found; the message is there all the same."""
    words = [f"word{number}" for number in range(120_000)]
    conversation_id = await conversation(store, " ".join(words), "word119999")
    known = await store.matches(["word1", "word119999"], limit=9)
    assert known.frequencies == (1, 1)
    assert max(match.length for match in known.found) > 120_000
    assert len(await store.page(conversation_id, limit=9)) == 2


async def test_what_is_gone_is_not_found(store: PostgresStore, backend: PostgresBackend) -> None:
    ids = [await conversation(store, f"door number {number}", "window") for number in range(3)]
    await store.delete(ids[0])
    assert (await as_without_an_index(store, "door")).frequencies == (2,)
    await store.rewrite(ids[1], [user("window"), user("a kettle")])
    assert (await as_without_an_index(store, "door", "kettl")).frequencies == (1, 1)
    await store.rewrite(ids[2], [])
    assert await as_without_an_index(store, "door") == Matches(
        found=(), frequencies=(0,), messages=2, terms=sum(map(_terms_at_noon, ("window", "a kettle")))
    )


def _terms_at_noon(content: str) -> int:
    return len(indexed_terms(user(content, timestamp=NOON)))


async def test_what_was_replaced_is_found_by_its_new_words(store: PostgresStore) -> None:
    there = await conversation(store, "door")
    await store.append(there, [user("kettle and kettle", message_id="m1"), user("lamp", message_id="m2")])
    await store.replace(there, user("window", message_id="m1"))
    assert (await as_without_an_index(store, "kettl", "window")).frequencies == (0, 1)
    await store.replace(there, user("", message_id="m2"))
    assert (await as_without_an_index(store, "lamp")).messages == 2
    await store.replace(there, user("lamp again", message_id="m2"))
    assert (await as_without_an_index(store, "lamp")).frequencies == (1,)


async def test_another_stored_form_is_found_by_what_it_says(store: PostgresStore) -> None:
    there = await conversation(store, "door", "kettle")
    entries = await store.page(there, limit=9)
    forms = [replace(entry, message=entry.message.with_(content="window")) for entry in entries[:1]]
    assert await store.reseal(there, forms) == 1
    assert (await as_without_an_index(store, "door", "kettl", "window")).frequencies == (0, 1, 1)


async def test_what_has_expired_does_not_count(postgres_url: str) -> None:
    clock = FixedClock(NOON)
    backend = PostgresBackend(postgres_url, clock=clock)
    await backend.open()
    store = backend.of(f"expiring-{new_id()}")
    await conversation(store, "door", "door", ttl=timedelta(hours=1))
    kept = await conversation(store, "door")
    assert (await as_without_an_index(store, "door")).frequencies == (3,)
    clock.advance(timedelta(hours=2))
    known = await as_without_an_index(store, "door")
    assert known.frequencies == (1,)
    assert [match.conversation_id for match in known.found] == [kept]
    await store.purge_expired()
    assert await as_without_an_index(store, "door") == known
    await backend.close()


async def test_what_is_restored_is_found_once(store: PostgresStore) -> None:
    there = await conversation(store, "door", "window")
    record = await store.get(there)
    entries = await store.page(there, limit=9)
    assert record is not None
    await store.delete(there)
    for part in (entries[:1], entries, entries):
        await store.restore(record, part)
    assert (await as_without_an_index(store, "door")).messages == 2


async def test_another_owner_makes_no_difference(backend: PostgresBackend, store: PostgresStore) -> None:
    await conversation(store, "door")
    alone = await store.matches(["door"], limit=9)
    other = backend.of(f"other-{new_id()}")
    await conversation(other, *["door"] * 50)
    assert await store.matches(["door"], limit=9) == alone
    assert (await other.matches(["door"], limit=9)).frequencies == (50,)


@pytest.mark.parametrize("owner", ["x" * 900, "sha256/x", "Ann", "ann ", "o'ann", "ä%_\\", "🙂"])
async def test_any_owner_can_search(backend: PostgresBackend, owner: str) -> None:
    store = backend.of(f"{owner}-{new_id()}")
    await conversation(store, "door")
    assert (await as_without_an_index(store, "door")).frequencies == (1,)


async def test_marks_are_those_of_the_schema(postgres_url: str, backend: PostgresBackend) -> None:
    with psycopg.connect(postgres_url) as connection:
        for owner in ("ann", "🙂", key_of("x" * 1_000)):
            found = connection.execute("SELECT aforesaid.term_prefix(%s)", (owner,)).fetchone()
            assert found == (term_prefix(owner),)


async def test_what_plain_sql_wrote_is_found(backend: PostgresBackend, postgres_url: str) -> None:
    backend.clock = system_clock
    store = backend.of(f"plain-{new_id()}")
    there = await conversation(store, "door")
    said = [{"role": "user", "content": "door and window"}, {"role": "assistant", "content": "the kettle"}]
    with psycopg.connect(postgres_url, autocommit=True) as connection, connection.transaction():
        connection.execute("SELECT aforesaid.set_owner(%s)", (store._connection.name,))
        connection.execute("INSERT INTO api.conversations (messages) VALUES (%s)", (json.dumps(said),))
        connection.execute(
            "UPDATE api.conversations SET messages = messages || %s WHERE id = %s", (json.dumps(said), there)
        )
    record = await store.get(there)
    assert record is not None
    assert record.message_count == 3
    known = await as_without_an_index(store, "door", "kettl", "window")
    assert known.frequencies == (3, 2, 2)
    assert await store.get(there) == record  # its revision has not moved
    assert await as_without_an_index(store, "door", "kettl", "window") == known


async def test_a_turn_across_midnight_is_found_by_the_day_it_has(postgres_url: str) -> None:
    midnight = datetime(2026, 5, 5, tzinfo=UTC)
    clock = FixedClock(midnight + timedelta(seconds=20))
    backend = PostgresBackend(postgres_url, clock=clock)
    await backend.open()
    store = backend.of(f"late-{new_id()}")
    there = await conversation(store, "door")
    clock.advance(timedelta(seconds=-40))  # another machine, whose clock is behind
    await store.append(there, [user("window")])
    known = await as_without_an_index(store, "5", "4")
    assert known.frequencies == (2, 0)
    await backend.close()


# Everything that changes a log, in any order, and the same numbers as without an index

WORDS = st.sampled_from(["door", "lamp", "window", "kettle", "the", "été", "門は"])
SAID = st.lists(st.lists(WORDS, max_size=5).map(" ".join), max_size=4)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["create", "append", "rewrite", "delete", "restore", "expire", "sql", "purge"]),
        st.integers(0, 3),
        SAID,
    ),
    max_size=12,
)


@settings(examples(40), suppress_health_check=list(HealthCheck))
@given(steps=STEPS)
async def test_whatever_happens_to_a_log_its_index_follows(
    postgres_url: str, steps: list[tuple[str, int, list[str]]]
) -> None:
    clock = FixedClock(datetime.now(UTC))
    backend = PostgresBackend(postgres_url, clock=clock)
    await backend.open()
    store = backend.of(f"steps-{new_id()}")
    ids = [await conversation(store) for _ in range(2)]
    for step, which, contents in steps:
        await _take(backend, store, ids, step, ids[which % len(ids)], contents)
    terms = ["door", "lamp", "kettl", "ete", "門は", "user"]
    assert await in_order(store, terms) == brute_force(await entries_of(store), terms)
    await backend.close()


async def _take(
    backend: PostgresBackend, store: PostgresStore, ids: list[str], step: str, there: str, contents: list[str]
) -> None:
    messages = [user(content) for content in contents]
    record = await store.get(there)
    if step == "purge":
        await store.purge_expired()
    elif step == "create" or record is None:
        ids.append(await conversation(store, *contents))
    elif step == "append":
        await store.append(there, messages)
    elif step == "rewrite":
        await store.rewrite(there, messages)
    elif step == "delete":
        await store.delete(there)
    elif step == "restore":
        entries = await store.page(there, limit=99)
        await store.delete(there)
        await store.restore(record, entries)
    elif step == "expire":
        await store.restore(record.with_(expires_at=store.now() - timedelta(1)), [])
    elif step == "sql":
        said = json.dumps([{"role": "user", "content": content} for content in contents])
        async with backend.connection() as connection, connection.transaction():
            await connection.execute("SELECT aforesaid.set_owner(%s)", (store._connection.name,))
            await connection.execute(
                b"UPDATE api.conversations SET messages = messages || %s WHERE id = %s", (said, there)
            )


# Which terms bring candidates


@given(
    terms=st.dictionaries(st.text("abc", min_size=1, max_size=4), st.integers(0, 50), max_size=6),
    worst=st.floats(0, 20),
    limit=st.integers(1, 60),
)
def test_terms_that_bring_no_candidates_could_not_win(
    terms: dict[str, int], worst: float, limit: int
) -> None:
    asked = plan(list(terms), list(terms.values()), 50)
    assert asked.frequencies == sorted(number for number in terms.values() if number)
    needed = asked.needed(worst)
    assert MAX_FACTOR * sum(asked.weights[needed:]) <= worst or needed == len(asked.terms)
    first = asked.first_try(limit)
    assert first == len(asked.terms) or asked.frequencies[first - 1] >= limit


def test_a_term_that_very_many_hold_brings_none_beside_a_rarer_one() -> None:
    asked = plan(["2026", "topeka"], [COMMON + 1, 3], COMMON * 2)
    assert asked.terms == ["topeka", "2026"]
    assert asked.needed(0.0) == 1
    assert plan(["2026"], [COMMON + 1], COMMON * 2).needed(0.0) == 1


def test_a_term_keeps_how_often_it_occurs() -> None:
    assert indexed("m+", user("lamp two two three three three", timestamp=NOON)).vector.split()[:3] == [
        "m+lamp:1D",
        "m+two:2C",
        "m+three:3B",
    ]


# The index is used


async def plan_of(connection: psycopg.AsyncConnection[Any], sql: str) -> str:
    cursor = await connection.execute(b"EXPLAIN " + sql.encode())
    return "\n".join(line for (line,) in await cursor.fetchall())


@pytest.fixture(scope="module")
def busy_url(databases: Databases) -> str:
    return databases.new()


@pytest.fixture
async def busy(busy_url: str) -> AsyncIterator[PostgresBackend]:
    """Enough messages that reading them all would be the wrong plan."""
    backend = PostgresBackend(busy_url)
    await backend.open()
    store = backend.of("ann")
    if (await store.matches(["door"], limit=0)).messages == 0:
        for number in range(4):
            contents = [f"something about thing{place} in room{number}" for place in range(1_000)]
            await conversation(store, *contents, subject=f"about room {number}")
        async with backend.connection() as connection:
            await connection.execute("ANALYZE aforesaid.messages")
    yield backend
    await backend.close()


async def test_the_index_is_searched_under_row_level_security(
    busy: PostgresBackend, busy_url: str, databases: Databases
) -> None:
    roles = {pinned: f"{busy_url.rpartition('/')[2]}_{pinned}" for pinned in ("free", "held")}
    async with await psycopg.AsyncConnection.connect(busy_url, autocommit=True) as connection:
        for pinned, role in roles.items():
            databases.role(role)
            held_to = "ann" if pinned == "held" else None
            await connection.execute("SELECT aforesaid.admit(%s, %s, true)", (role, held_to))
    for asking in (None, *roles.values()):
        url = busy_url if asking is None else databases.url(asking, busy_url.rpartition("/")[2])
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            await connection.execute("SET aforesaid.owner = 'ann'; SET aforesaid.terms = 'thing7 room1'")
            cursor = await connection.execute("SELECT aforesaid.partition_of('ann')")
            ((part,),) = await cursor.fetchall()
            shown = await plan_of(connection, f"SELECT count(*) FROM aforesaid.{part} WHERE owner = 'ann'")
            assert f"Bitmap Index Scan on {part}_terms_idx" in shown, (asking, shown)
            assert "Index Cond: (terms @@" in shown
        backend = PostgresBackend(url)
        await backend.open()
        known = await backend.of("ann").matches(["thing7", "room1"], limit=1)
        assert known.frequencies == (4, 1_000)
        await backend.close()


async def test_a_superuser_finds_the_same_through_the_index(
    busy: PostgresBackend, busy_url: str, databases: Databases
) -> None:
    """Row-level security does not bind it, so no policy searches for it."""
    url = re.sub(r"/\w+$", busy_url[busy_url.rindex("/") :], databases.admin_url)
    backend = PostgresBackend(url)
    await backend.open()
    await conversation(backend.of("super"), "thing7 thing7", "door")
    await conversation(backend.of("another"), "thing7", "thing7")
    known = await as_without_an_index(backend.of("super"), "thing7", "door")
    assert known.frequencies == (1, 1)
    async with backend.connection() as connection:
        cursor = await connection.execute(
            "SELECT aforesaid.partition_of('ann'), aforesaid.search_condition('messages_00')"
        )
        ((part, search),) = await cursor.fetchall()
        await connection.execute("SET aforesaid.terms = 'thing7'")
        sql = f"SELECT count(*) FROM aforesaid.{part} AS m WHERE m.owner = 'ann' {search}"
        shown = await plan_of(connection, sql.replace("$1", "'ann'"))
        assert f"Bitmap Index Scan on {part}_terms_idx" in shown, shown
    await backend.close()


async def test_the_partitions_show_nothing_but_what_is_sought(busy: PostgresBackend, busy_url: str) -> None:
    async with await psycopg.AsyncConnection.connect(busy_url, autocommit=True) as connection:
        cursor = await connection.execute("SELECT aforesaid.partition_of('ann')")
        ((part,),) = await cursor.fetchall()
        for settings_, number in (
            ({"aforesaid.owner": "ann"}, 0),
            ({"aforesaid.owner": "ann", "aforesaid.terms": "thing7"}, 4),
            ({"aforesaid.owner": "bob", "aforesaid.terms": "thing7"}, 0),
            ({"aforesaid.terms": "thing7"}, 0),
            ({"aforesaid.owner": "ann", "aforesaid.terms": "x ' | ! thing7"}, 4),
            ({"aforesaid.owner": "ann", "aforesaid.terms": "!x"}, 0),
            ({"aforesaid.operator": "on", "aforesaid.terms": "thing7"}, 0),
        ):
            async with connection.transaction():
                for name, value in settings_.items():
                    await connection.execute("SELECT set_config(%s, %s, true)", (name, value))
                cursor = await connection.execute(f"SELECT count(*) FROM aforesaid.{part}".encode())
                assert await cursor.fetchone() == (number,), settings_
