"""What PostgreSQL's extensions add where they are there, and that nothing is missing where they are not."""

import logging
import math
import re
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from struct import pack, unpack
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from aforesaid.contracts import Position, VectorMatch, VectorSearchable
from aforesaid.errors import InvalidInput
from aforesaid.model.conversations import started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.search.vectors import Block
from aforesaid.stores.postgres import PostgresBackend
from aforesaid.stores.postgres.schema import STEPS, Abilities
from aforesaid.stores.postgres.store import PostgresStore
from aforesaid.testing import FixedClock
from tests.examples import examples
from tests.servers.postgres import Databases

MODEL, KIND = "tiny", "vectors/tiny"


def with_vector(databases: Databases) -> str:
    """A database in which a superuser has created pgvector, as in most places that have it."""
    url = databases.new()
    admin = re.sub(r"/\w+$", url[url.rindex("/") :], databases.admin_url)
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION vector")
    return url


@pytest.fixture(scope="module")
def vector_url(databases: Databases) -> str:
    return with_vector(databases)


@pytest.fixture
async def backend(vector_url: str) -> AsyncIterator[PostgresBackend]:
    backend = PostgresBackend(vector_url, clock=FixedClock())
    await backend.open()
    yield backend
    await backend.close()


@pytest.fixture
def store(backend: PostgresBackend) -> PostgresStore:
    return backend.of(f"near-{new_id()}")


async def abilities(url: str) -> Abilities:
    backend = PostgresBackend(url)
    await backend.open()
    await backend.close()
    return backend.abilities


async def works(url: str) -> None:
    """The store stores and finds."""
    backend = PostgresBackend(url)
    await backend.open()
    store = backend.of("ann")
    record = await store.create(started(new_id(), now=store.now(), subject="a door"))
    await store.append(record.id, [Message(role="user", content="door")])
    assert (await store.matches(["door"], limit=1)).frequencies == (1,)
    await store.delete(record.id)
    await backend.close()


# Being there or not


async def test_trigrams_are_made_by_a_role_that_may_create_in_the_database(databases: Databases) -> None:
    url = databases.new()
    found = await abilities(url)
    assert found.trigrams
    assert await abilities(url) == found
    await works(url)


async def test_without_the_right_to_create_extensions_all_works_and_the_log_says_so(
    databases: Databases, caplog: pytest.LogCaptureFixture
) -> None:
    url = databases.new()
    name = url[url.rindex("/") + 1 :]
    with psycopg.connect(url, autocommit=True) as connection:
        for number, sql in STEPS:
            connection.execute(sql.encode())
            connection.execute("INSERT INTO aforesaid.migrations (version) VALUES (%s)", (number,))
    databases.run(f"ALTER DATABASE {name} OWNER TO CURRENT_USER")
    with caplog.at_level(logging.INFO, "aforesaid"):
        assert await abilities(url) == Abilities(trigrams=False, vectors=False)
    assert "pg_trgm is not used: this role may not create it" in caplog.text
    await works(url)


async def test_vectors_are_used_where_they_were_created(vector_url: str) -> None:
    assert (await abilities(vector_url)).vectors
    await works(vector_url)


async def test_what_a_superuser_makes_belongs_to_the_role_that_made_the_schema(databases: Databases) -> None:
    url = databases.new()
    with psycopg.connect(url, autocommit=True) as connection:
        for number, sql in STEPS:
            connection.execute(sql.encode())
            connection.execute("INSERT INTO aforesaid.migrations (version) VALUES (%s)", (number,))
    admin = re.sub(r"/\w+$", url[url.rindex("/") :], databases.admin_url)
    assert await abilities(admin) == Abilities(trigrams=True, vectors=True)
    backend = PostgresBackend(url)
    await backend.open()
    assert backend.abilities == Abilities(trigrams=True, vectors=True)
    await near_something(backend.of("ann"))
    await backend.close()
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute(
            "SELECT DISTINCT pg_get_userbyid(relowner) FROM pg_class"
            " WHERE relnamespace = 'aforesaid'::regnamespace"
        ).fetchall()
        assert found == [(url[url.rindex("/") + 1 :],)]


async def test_a_service_uses_what_the_schema_has(vector_url: str, databases: Databases) -> None:
    role = f"serving_{new_id()[-12:]}"
    databases.role(role)
    await abilities(vector_url)
    with psycopg.connect(vector_url, autocommit=True) as connection:
        connection.execute("SELECT aforesaid.admit(%s, p_service => true)", (role,))
    url = databases.url(role, vector_url[vector_url.rindex("/") + 1 :])
    assert (await abilities(url)).vectors
    await works(url)


async def test_those_who_were_admitted_before_use_vectors_that_came_after(databases: Databases) -> None:
    url = databases.new()
    await abilities(url)
    roles = {held_to: f"serving_{new_id()[-12:]}" for held_to in (None, "ann")}
    with psycopg.connect(url, autocommit=True) as connection:
        for held_to, role in roles.items():
            databases.role(role)
            connection.execute("SELECT aforesaid.admit(%s, %s, true)", (role, held_to))
    admin = re.sub(r"/\w+$", url[url.rindex("/") :], databases.admin_url)
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    assert (await abilities(url)).vectors
    for role in roles.values():
        backend = PostgresBackend(databases.url(role, url[url.rindex("/") + 1 :]))
        await backend.open()
        assert backend.abilities.vectors
        await near_something(backend.of("ann"))
        await backend.close()
    with psycopg.connect(databases.url(roles["ann"], url[url.rindex("/") + 1 :])) as connection:
        connection.execute("SELECT aforesaid.set_owner('bob')")
        assert connection.execute("SELECT count(*) FROM aforesaid.vectors").fetchone() == (0,)


async def near_something(store: PostgresStore) -> None:
    there = await said(store, 1)
    await put(store, there, [(1, [1.0, 0.0])])
    found = await store.nearest(MODEL, [1.0, 0.0], limit=1)
    assert found is not None
    assert [near.position.sequence for near in found] == [1]


# Trigrams


async def test_a_role_that_is_not_bound_searches_the_trigram_index(databases: Databases) -> None:
    url = databases.new()
    assert (await abilities(url)).trigrams
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET aforesaid.owner = 'ann'")
        connection.execute(
            "INSERT INTO aforesaid.conversations (owner, id, channel, status, priority, tags, unread_count,"
            " message_count, revision, created_at, updated_at, subject, client_name)"
            " SELECT 'ann', gen_random_uuid(), 'text', 'open', 'low', '{}', 0, 0, 0, now(), now(),"
            " 'kitchen number ' || n, 'client number ' || n FROM generate_series(10001, 22000) AS n"
        )
        connection.execute("VACUUM ANALYZE aforesaid.conversations")
        bound = connection.execute(WHERE_11717).fetchall()
    admin = re.sub(r"/\w+$", url[url.rindex("/") :], databases.admin_url)
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute("SET aforesaid.owner = 'ann'")
        assert connection.execute(WHERE_11717).fetchall() == bound == [(1,)]
        for column in ("subject", "client_name"):
            for table in ("api.conversations", "aforesaid.conversations"):
                shown = plan_of(connection, f"SELECT id FROM {table} WHERE {column} ILIKE '%number 11717%'")
                assert f"Bitmap Index Scan on conversations_by_{column}" in shown, shown
                assert f"Index Cond: ({column} ~~* '%number 11717%'::text)" in shown


WHERE_11717 = "SELECT count(*) FROM api.conversations WHERE subject ILIKE '%NUMBER 11717%'"


def plan_of(connection: psycopg.Connection[Any], sql: str) -> str:
    return "\n".join(line for (line,) in connection.execute(f"EXPLAIN {sql}".encode()).fetchall())


# Vectors


async def said(store: PostgresStore, number: int, **fields: Any) -> str:
    record = await store.create(started(new_id(), now=store.now(), **fields))
    await store.append(record.id, [Message(role="user", content=f"thing {place}") for place in range(number)])
    return record.id


def block(vectors: Sequence[tuple[int, Sequence[float]]], *, model: str = MODEL) -> Block:
    numbers = [number for _, vector in vectors for number in vector]
    return Block(
        model=model,
        dimension=len(vectors[0][1]),
        begun=1,
        sequences=[sequence for sequence, _ in vectors],
        micros=[sequence * 10 for sequence, _ in vectors],
        roles=[0] * len(vectors),
        lengths=[2] * len(vectors),
        matrix=pack(f"<{len(numbers)}e", *numbers),
    )


async def put(store: PostgresStore, there: str, vectors: Sequence[tuple[int, Sequence[float]]]) -> None:
    made = block(vectors)
    await store.put_document(KIND, made.key, made.encode(), conversation_id=there)


async def sequences_near(store: PostgresStore, vector: Sequence[float], **options: Any) -> list[int]:
    found = await store.nearest(MODEL, vector, **({"limit": 9} | options))
    assert found is not None
    return [near.position.sequence for near in found]


async def test_a_store_that_compares_vectors_says_so(store: PostgresStore) -> None:
    assert isinstance(store, VectorSearchable)
    assert await store.nearest(MODEL, [1.0], limit=9) == []


async def test_without_pgvector_the_answer_is_unknown(databases: Databases) -> None:
    backend = PostgresBackend(databases.new())
    await backend.open()
    if not backend.abilities.vectors:
        assert await backend.of("ann").nearest(MODEL, [1.0], limit=9) is None
    backend.abilities = Abilities()
    assert await backend.of("ann").nearest(MODEL, [1.0], limit=9) is None
    await backend.close()


async def test_the_nearest_comes_first(store: PostgresStore) -> None:
    there = await said(store, 3)
    await put(store, there, [(1, [0.0, 1.0]), (2, [1.0, 0.0]), (3, [1.0, 1.0])])
    found = await store.nearest(MODEL, [1.0, 0.0], limit=2)
    assert found is not None
    assert found[0] == VectorMatch(conversation_id=there, position=Position(20, 2), similarity=1.0)
    assert found[1].position == Position(30, 3)
    assert found[1].similarity == pytest.approx(math.sqrt(0.5))
    assert await sequences_near(store, [1.0, 0.0], around=[0.9, 0.9]) == [2, 1, 3]


async def test_what_was_written_since_is_compared(store: PostgresStore) -> None:
    there = await said(store, 3)
    await put(store, there, [(1, [0.0, 1.0])])
    assert await sequences_near(store, [1.0, 0.0]) == [1]
    await put(store, there, [(1, [0.0, 1.0]), (2, [1.0, 0.0])])  # the same document, grown
    await put(store, there, [(3, [1.0, 0.1])])
    assert await sequences_near(store, [1.0, 0.0]) == [2, 3, 1]
    await put(store, there, [(1, [1.0, 0.0])])  # and shrunk
    assert await sequences_near(store, [1.0, 0.0]) == [1, 3]


async def test_vectors_go_with_their_documents(store: PostgresStore, vector_url: str) -> None:
    clock = store._database.clock
    assert isinstance(clock, FixedClock)
    ids = [await said(store, 1) for _ in range(3)]
    brief = await said(store, 1, ttl=timedelta(hours=1))
    for there in (*ids, brief):
        await put(store, there, [(1, [1.0, 0.0])])
    assert len(await sequences_near(store, [1.0, 0.0])) == 4
    await store.delete(ids[0])
    await store.rewrite(ids[1], [Message(role="user", content="something else")])
    assert len(await sequences_near(store, [1.0, 0.0])) == 2
    clock.advance(timedelta(hours=2))
    assert len(await sequences_near(store, [1.0, 0.0])) == 1
    await store.purge_expired()
    await store.delete_document(KIND, block([(1, [1.0, 0.0])]).key, conversation_id=ids[2])
    assert await sequences_near(store, [1.0, 0.0]) == []
    with psycopg.connect(vector_url) as connection:
        connection.execute("SELECT aforesaid.set_owner(%s)", (store._connection.name,))
        assert connection.execute("SELECT count(*) FROM aforesaid.vectors").fetchone() == (0,)


async def test_restored_documents_are_compared(store: PostgresStore) -> None:
    there = await said(store, 2)
    await put(store, there, [(1, [1.0, 0.0])])
    assert await sequences_near(store, [1.0, 0.0]) == [1]
    (document,) = await store.documents(KIND, conversation_id=there)
    await store.restore_documents([replace(document, data=block([(2, [1.0, 0.0])]).encode())])
    assert await sequences_near(store, [1.0, 0.0]) == [2]


async def test_models_lengths_and_owners_never_meet(backend: PostgresBackend, store: PostgresStore) -> None:
    there = await said(store, 3)
    await put(store, there, [(1, [1.0, 0.0])])
    await put(store, there, [(2, [1.0, 0.0, 0.0])])
    other = block([(3, [1.0, 0.0])], model="other")
    await store.put_document("vectors/other", other.key, other.encode(), conversation_id=there)
    assert await sequences_near(store, [1.0, 0.0]) == [1]
    assert await sequences_near(store, [1.0, 0.0, 0.0]) == [2]
    assert await backend.of(f"other-{new_id()}").nearest(MODEL, [1.0, 0.0], limit=9) == []


@pytest.mark.parametrize("data", [b"", b"nonsense", block([(1, [math.inf, 0.0])]).encode()], ids=str)
async def test_a_block_that_cannot_be_read_is_left_out(store: PostgresStore, data: bytes) -> None:
    there = await said(store, 2)
    await store.put_document(KIND, "0000000000000001", data, conversation_id=there)
    await put(store, there, [(2, [1.0, 0.0])])
    assert await sequences_near(store, [1.0, 0.0]) == [2]


@pytest.mark.parametrize(
    "options", [{"vector": []}, {"vector": [math.nan]}, {"around": [1.0]}, {"limit": -1}], ids=str
)
async def test_what_is_no_vector_is_refused(store: PostgresStore, options: dict[str, Any]) -> None:
    asked: dict[str, Any] = {"vector": [1.0, 0.0], "limit": 1}
    with pytest.raises(InvalidInput, match=next(iter(options))):
        await store.nearest(MODEL, **(asked | options))


# The same numbers in half, single and double precision: the server counts in single, and what is left
# of two that nearly cancel out would be mostly rounding.
VECTOR = st.lists(st.integers(-40, 40).map(lambda n: n / 8), min_size=3, max_size=3)


@settings(examples(25), suppress_health_check=list(HealthCheck))
@given(vectors=st.lists(VECTOR, min_size=1, max_size=40), asked=VECTOR.filter(any), around=st.none() | VECTOR)
async def test_nearness_is_the_cosine(
    vector_url: str, vectors: list[list[float]], asked: list[float], around: list[float] | None
) -> None:
    backend = PostgresBackend(vector_url)
    await backend.open()
    store = backend.of(f"cosine-{new_id()}")
    there = await said(store, len(vectors))
    await put(store, there, list(enumerate(vectors, 1)))
    found = await store.nearest(MODEL, asked, limit=99, around=around)
    assert found is not None
    kept = {near.position.sequence: near.similarity for near in found}
    cosines = {
        sequence: cosine(halves(vector), asked, around or [0.0] * 3)
        for sequence, vector in enumerate(vectors, 1)
    }
    expected = {sequence: value for sequence, value in cosines.items() if value is not None}
    assert kept == pytest.approx(expected, abs=1e-5)
    assert [near.similarity for near in found] == sorted(kept.values(), reverse=True)
    await backend.close()


def halves(vector: Sequence[float]) -> list[float]:
    return list(unpack(f"<{len(vector)}e", pack(f"<{len(vector)}e", *vector)))


def cosine(one: Sequence[float], other: Sequence[float], around: Sequence[float]) -> float | None:
    a = [x - z for x, z in zip(one, around, strict=True)]
    b = [y - z for y, z in zip(other, around, strict=True)]
    lengths = math.hypot(*a) * math.hypot(*b)
    return sum(x * y for x, y in zip(a, b, strict=True)) / lengths if lengths else None
