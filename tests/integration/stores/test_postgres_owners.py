"""Owners in PostgreSQL: what row-level security permits, for every role and every kind of query."""

import json
import random
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from msgspec import Struct
from psycopg.conninfo import conninfo_to_dict

from aforesaid.contracts import ConversationStore
from aforesaid.errors import ConversationNotFound, StoreError
from aforesaid.model.conversations import Changes, Conversation, Query, started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.model.participants import Participant, VisibleFrom
from aforesaid.stores.postgres import PostgresBackend
from aforesaid.stores.postgres.rows import Tags, key_of
from aforesaid.stores.postgres.terms import term_prefix
from tests.servers.postgres import Databases

SECRET = "the spare key is under the blue pot"


class OwnerDatabase(Struct, frozen=True, kw_only=True):
    """A database with two owners, and logins of every kind."""

    url: str
    database: str
    admin_url: str
    ids: dict[str, str]

    def as_role(self, role: str) -> str:
        parts = conninfo_to_dict(self.url)
        return f"postgresql://{role}:{role}@{parts['host']}:{parts['port']}/{self.database}"

    @contextmanager
    def connection(self, role: str) -> Iterator[psycopg.Connection[Any]]:
        with psycopg.connect(self.as_role(role), autocommit=True) as connection:
            yield connection


@pytest.fixture(scope="module")
def empty_database(databases: Databases) -> OwnerDatabase:
    url = databases.new()
    database = str(conninfo_to_dict(url)["dbname"])
    admin = conninfo_to_dict(databases.admin_url) | {"dbname": database}
    for role in ("ann_login", "gateway", "service", "stranger"):
        databases.role(f"{database}_{role}")
    admin_url = psycopg.conninfo.make_conninfo("", **admin)
    with psycopg.connect(admin_url, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION vector")
    return OwnerDatabase(url=url, database=database, admin_url=admin_url, ids={})


@pytest.fixture
async def two_owners(empty_database: OwnerDatabase) -> AsyncIterator[OwnerDatabase]:
    """Ann and Bob each have a conversation; Bob's holds a secret."""
    backend = PostgresBackend(empty_database.url)
    await backend.open()
    ids = {}
    for name, words in (("ann", "nothing to hide"), ("bob", SECRET)):
        store = backend.of(name)
        record = await store.create(
            started(new_id(), now=store.now(), subject=words, client_id=new_id(), notes=words)
        )
        await store.append(record.id, [Message(role="user", content=words, message_id="m1")])
        await store.bind("kitchen", record.id)
        await store.put_document("note", "k", words.encode())
        await store.put_document("note", "k", words.encode(), conversation_id=record.id)
        ids[name] = record.id
    database = empty_database.database
    with psycopg.connect(empty_database.url, autocommit=True) as connection:
        connection.execute("SELECT aforesaid.admit(%s, 'ann')", (f"{database}_ann_login",))
        connection.execute("SELECT aforesaid.admit(%s)", (f"{database}_gateway",))
        connection.execute("SELECT aforesaid.admit(%s, p_service => true)", (f"{database}_service",))
    yield OwnerDatabase(
        url=empty_database.url, database=database, admin_url=empty_database.admin_url, ids=ids
    )
    for name, conversation_id in ids.items():
        await backend.of(name).delete(conversation_id)
        await backend.of(name).delete_document("note", "k")
    await backend.close()


@pytest.fixture
async def backend(two_owners: OwnerDatabase) -> AsyncIterator[PostgresBackend]:
    backend = PostgresBackend(two_owners.url)
    await backend.open()
    yield backend
    await backend.close()


ATTACKS: dict[str, list[str]] = {
    "asks": ["TABLE api.conversations", "TABLE api.contacts"],
    "says that it is bob": ["SET aforesaid.owner = 'bob'", "TABLE api.conversations"],
    "says so for a transaction": [
        "DO $$ BEGIN PERFORM set_config('aforesaid.owner', 'bob', false); END $$",
        "SELECT messages FROM api.conversations",
    ],
    "forges a token": ['SET request.jwt.claims = \'{"sub": "bob"}\'', "TABLE api.conversations"],
    "forges an old token": ["SET request.jwt.claim.sub = 'bob'", "TABLE api.conversations"],
    "speaks for bob": ["BEGIN", "SELECT aforesaid.set_owner('bob')", "TABLE api.conversations", "COMMIT"],
    "looks below the view": [
        "SET aforesaid.owner = 'bob'",
        "TABLE aforesaid.conversations",
        "TABLE aforesaid.messages",
        "TABLE aforesaid.contacts",
        "TABLE aforesaid.sessions",
        "TABLE aforesaid.documents",
        "SELECT owner, conversation_id FROM aforesaid.documents",
    ],
    "looks into the partitions": [
        f"TABLE aforesaid.{table}_{part:02}" for table in ("messages", "documents") for part in range(16)
    ],
    "writes documents": [
        "SET aforesaid.owner = 'bob'",
        "DELETE FROM aforesaid.documents",
        "DELETE FROM aforesaid.documents WHERE owner = 'bob'",
        "UPDATE aforesaid.documents SET data = ''",
        "INSERT INTO aforesaid.documents (owner, kind, key, version, updated_at, data)"
        " VALUES ('bob', 'note', 'x', 1, now(), '')",
    ],
    "turns security off": ["SET row_security = off", "TABLE aforesaid.messages", "TABLE api.conversations"],
    "calls itself an operator": ["SET aforesaid.operator = 'on'", "TABLE aforesaid.messages"],
    "calls the operators' functions": [
        "SELECT * FROM aforesaid.owners_after('', 100, '{}')",
        "SELECT aforesaid.purge('infinity', 100)",
        "SELECT aforesaid.admit(current_user::name, 'bob')",
        "SELECT aforesaid.admit(current_user::name)",
        "TABLE api.conversations",
    ],
    "makes the filter talk": [
        "CREATE FUNCTION pg_temp.leak(text) RETURNS boolean COST 0.0000001 LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE NOTICE '%', $1; RETURN true; END $$",
        "SELECT count(*) FROM aforesaid.messages WHERE pg_temp.leak(body)",
        "SELECT count(*) FROM api.conversations WHERE pg_temp.leak(messages::text) AND pg_temp.leak(subject)",
    ],
    "makes the filter fail": [
        "SELECT count(*) FROM aforesaid.messages WHERE body::integer = 1",
        "SELECT count(*) FROM aforesaid.conversations WHERE subject::integer = 1",
        "SELECT count(*) FROM api.conversations WHERE (messages -> 0 ->> 'content')::uuid IS NULL",
    ],
    "takes bob's row": [
        "UPDATE aforesaid.conversations SET owner = 'ann' WHERE owner = 'bob' RETURNING *",
        "UPDATE aforesaid.messages SET owner = 'ann' WHERE owner = 'bob' RETURNING *",
        "TABLE api.conversations",
    ],
    "gives bob a row": [
        "UPDATE aforesaid.conversations SET owner = 'bob' RETURNING *",
        "INSERT INTO aforesaid.contacts (owner, name) VALUES ('bob', 'mallory') RETURNING *",
        "INSERT INTO aforesaid.messages"
        " SELECT 'bob', '{bob}', now(), 99, 'user', NULL, 1, now(), '{{}}' RETURNING *",
    ],
    "updates by id": [
        "UPDATE api.conversations SET subject = 'mine' WHERE id = '{bob}' RETURNING *",
        "UPDATE api.conversations SET messages = '[]' WHERE id = '{bob}' RETURNING *",
        "DELETE FROM api.conversations WHERE id = '{bob}' RETURNING *",
        "DELETE FROM aforesaid.conversations WHERE id = '{bob}' RETURNING *",
    ],
    "uses the store's function": [
        "SELECT * FROM aforesaid.turn('bob', 'bob', '{bob}', now(), NULL, false, NULL, NULL,"
        ' \'{{user}}\', NULL, NULL, ARRAY[\'{{"role": "user", "content": "forged"}}\'])',
        "SELECT * FROM aforesaid.turn(NULL, 'bob', '{bob}', now(), NULL, true, NULL, NULL,"
        " '{{}}', NULL, NULL, '{{}}')",
        "SELECT aforesaid.known_ids_differ('bob', '{bob}', ARRAY['m1'], NULL, NULL)",
        "SELECT aforesaid.store_messages('bob', '{bob}', '[]', true)",
    ],
    "meets bob's id": [
        "INSERT INTO api.conversations (id) VALUES ('{bob}') RETURNING *",
        "INSERT INTO aforesaid.conversations (owner, id, channel, status, priority, tags, unread_count,"
        " message_count, revision, created_at, updated_at)"
        " VALUES ('bob', '{bob}', 'text', 'open', 'low', '{{}}', 0, 0, 0, now(), now())"
        " ON CONFLICT (owner, id) DO UPDATE SET subject = 'mine' RETURNING *",
        "DELETE FROM api.conversations WHERE id = '{bob}'",
    ],
    "copies the table": [
        "CREATE TEMPORARY TABLE loot AS TABLE aforesaid.messages",
        "TABLE loot",
        "SELECT query_to_xml('TABLE aforesaid.messages', true, false, '')",
        "SELECT * FROM aforesaid.messages TABLESAMPLE SYSTEM (100)",
    ],
    "reads the statistics": [
        "SELECT * FROM pg_stats WHERE schemaname = 'aforesaid'",
        "SELECT * FROM pg_statistic",
        "SELECT query FROM pg_stat_activity",
        "EXPLAIN (ANALYZE, VERBOSE) SELECT * FROM aforesaid.messages WHERE owner = 'bob'",
    ],
    "becomes somebody else": [
        "SET ROLE {database}",
        "SET SESSION AUTHORIZATION {database}",
        "SET ROLE {database}_service",
        "TABLE aforesaid.messages",
    ],
    "changes the rules": [
        "ALTER TABLE aforesaid.messages DISABLE ROW LEVEL SECURITY",
        "ALTER TABLE aforesaid.messages NO FORCE ROW LEVEL SECURITY",
        "DROP POLICY own_rows ON aforesaid.messages",
        "CREATE POLICY mine ON aforesaid.messages USING (true)",
        "CREATE OR REPLACE FUNCTION aforesaid.current_owner() RETURNS text LANGUAGE sql RETURN 'bob'",
        "TRUNCATE aforesaid.messages CASCADE",
        "GRANT {database} TO CURRENT_USER",
        "TABLE aforesaid.messages",
    ],
    "shadows the function": [
        "CREATE FUNCTION pg_temp.key_of(text) RETURNS text LANGUAGE sql AS $$ SELECT 'bob' $$",
        "CREATE FUNCTION pg_temp.current_setting(text, boolean) RETURNS text LANGUAGE sql RETURN 'bob'",
        "SET search_path = pg_temp, aforesaid, pg_catalog",
        "SELECT * FROM api.conversations",
        "UPDATE api.conversations SET notes = 'x' RETURNING *",
    ],
    "keeps a plan from before": [
        "SET aforesaid.owner = 'ann'",
        "PREPARE look AS SELECT * FROM aforesaid.messages",
        "EXECUTE look",
        "SET aforesaid.owner = 'bob'",
        "EXECUTE look",
    ],
    "joins with its own": [
        "SELECT m.* FROM api.conversations AS c"
        " RIGHT JOIN aforesaid.messages AS m ON m.conversation_id <> c.id",
        "SELECT * FROM aforesaid.messages WHERE conversation_id = '{bob}' FOR UPDATE",
        "MERGE INTO aforesaid.conversations AS c USING (VALUES ('bob')) AS v (o) ON c.owner = v.o"
        " WHEN MATCHED THEN UPDATE SET subject = 'mine'",
    ],
    "searches bob's words": [
        "SET aforesaid.owner = 'bob'",
        "SET aforesaid.terms = 'spare key blue pot'",
        *(f"TABLE aforesaid.messages_{part:02}" for part in range(16)),
        "SELECT terms FROM aforesaid.messages",
        "SELECT * FROM ts_stat('SELECT terms FROM aforesaid.messages')",
        "SELECT * FROM aforesaid.term_frequencies('bob', 'bob', now(), ARRAY['spare', 'pot'])",
        "SELECT * FROM aforesaid.matching_messages('bob', 'bob', ARRAY['spare'], ARRAY['spare'], ARRAY[1.0],"
        " 1, 1, 1, '{{}}', 9)",
    ],
    "asks what is near": [
        "SET aforesaid.owner = 'bob'",
        "TABLE aforesaid.vectors",
        "SELECT * FROM aforesaid.nearest('bob', 'bob', now(), 'vectors/x', 1, '[1]', NULL, 9)",
    ],
    "looks through a view of its own": [
        "CREATE TEMPORARY VIEW mine AS SELECT * FROM aforesaid.messages",
        "SET aforesaid.owner = 'bob'",
        "TABLE mine",
        "CREATE VIEW api.mine AS SELECT * FROM aforesaid.messages",
    ],
}


def attack(connection: psycopg.Connection[Any], two_owners: OwnerDatabase, statements: list[str]) -> str:
    """Everything that an attacker gets to see: rows, notices, errors."""
    seen: list[str] = []
    connection.add_notice_handler(lambda notice: seen.append(str(notice.message_primary)))
    for statement in statements:
        sql = statement.replace("{bob}", two_owners.ids["bob"]).replace("{database}", two_owners.database)
        try:
            cursor = connection.execute(sql.replace("{{", "{").replace("}}", "}").encode())
            seen.append(repr(cursor.fetchall()) if cursor.description else str(cursor.rowcount))
        except psycopg.Error as error:
            seen.append(str(error))
    return "\n".join(seen)


@pytest.mark.parametrize("statements", ATTACKS.values(), ids=ATTACKS)
async def test_a_login_that_is_held_to_ann_gets_nothing_of_bob(
    two_owners: OwnerDatabase, backend: PostgresBackend, statements: list[str]
) -> None:
    bob = backend.of("bob")
    before = await bob.get(two_owners.ids["bob"]), await bob.page(two_owners.ids["bob"], limit=10)
    with two_owners.connection(f"{two_owners.database}_ann_login") as connection:
        connection.execute("SET aforesaid.owner = 'ann'")
        seen = attack(connection, two_owners, statements)
    assert SECRET not in seen
    assert "'bob'" not in seen.replace("owner = 'bob'", "")
    assert (await bob.get(two_owners.ids["bob"]), await bob.page(two_owners.ids["bob"], limit=10)) == before
    assert (await bob.find(Query())).conversations == (before[0],)
    assert await bob.session("kitchen") == before[0]
    for holder in (None, two_owners.ids["bob"]):
        (note,) = await bob.documents("note", conversation_id=holder)
        assert note.data == SECRET.encode()


async def test_a_login_lets_go_what_was_derived_from_a_history_that_it_replaces_and_nothing_else(
    two_owners: OwnerDatabase, backend: PostgresBackend
) -> None:
    ann = backend.of("ann")
    with two_owners.connection(f"{two_owners.database}_ann_login") as connection:
        connection.execute("SET aforesaid.owner = 'ann'")
        for refused in (b"TABLE aforesaid.documents", b"UPDATE aforesaid.documents SET version = 9"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(refused)
        connection.execute("DELETE FROM aforesaid.documents WHERE conversation_id IS NULL")
        assert len(await ann.documents("note")) == 1
        connection.execute("""UPDATE api.conversations SET messages = '[{"role": "user", "content": "x"}]'""")
    assert await ann.document_kinds(conversation_id=two_owners.ids["ann"]) == []
    assert len(await ann.documents("note")) == 1


async def test_a_service_keeps_documents(two_owners: OwnerDatabase) -> None:
    backend = PostgresBackend(two_owners.as_role(f"{two_owners.database}_service"))
    await backend.open()
    ann = backend.of("ann")
    for holder in (None, two_owners.ids["ann"]):
        put = await ann.put_document("note", "k", b"new", conversation_id=holder, expected_version=1)
        assert await ann.documents("note", conversation_id=holder) == [put]
    await backend.close()


ASKED = [
    "SET enable_seqscan = off",  # few rows, and the index shall be asked all the same
    "SET aforesaid.owner = '{owner}'",
    "SET aforesaid.terms = '{word}'",
    *(f"TABLE aforesaid.messages_{part:02}" for part in range(16)),
    "SELECT * FROM aforesaid.term_frequencies('{owner}', '{owner}', now(), ARRAY['{word}'])",
    "SELECT count(*) FROM aforesaid.messages WHERE terms @@ plainto_tsquery('simple', '{mark}{word}')",
    "{explain} SELECT * FROM aforesaid.messages"
    " WHERE owner = 'bob' AND terms @@ aforesaid.search_query('bob')",
    "{explain} SELECT * FROM aforesaid.messages WHERE terms @@ aforesaid.search_query('bob')",
    "{explain} SELECT * FROM aforesaid.{part} WHERE owner = 'bob'",
    "{explain} SELECT * FROM aforesaid.{part}",
    "SET aforesaid.terms = 'x'' | ''{mark}{word}'",
    "{explain} SELECT * FROM aforesaid.{part}",
]
"""If anything leaked, answers would differ for a word that bob has said and a word without any match."""
EXPLAIN = "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF)"


@pytest.mark.parametrize("service", [False, True], ids=["login", "service"])
@pytest.mark.parametrize("owner", ["ann", "bob"])
def test_no_role_learns_which_words_bob_has_said(
    two_owners: OwnerDatabase, databases: Databases, service: bool, owner: str
) -> None:
    """Neither a login nor a service that is held to ann."""
    role = f"{two_owners.database}_asks_{owner}_{service:d}"
    databases.role(role)
    with psycopg.connect(two_owners.url, autocommit=True) as connection:
        connection.execute("SELECT aforesaid.admit(%s, 'ann', %s)", (role, service))
        ((part,),) = connection.execute("SELECT aforesaid.partition_of('bob')").fetchall()
    seen = []
    for word in ("spare", "zebra"):
        given = {"word": word, "owner": owner, "part": part, "mark": term_prefix("bob"), "explain": EXPLAIN}
        with two_owners.connection(role) as connection:
            seen.append(
                attack(connection, two_owners, [sql.format(**given) for sql in ASKED]).replace(word, "…")
            )
    assert seen[0] == seen[1]
    assert ("permission denied for table messages_" in seen[0]) is not service


@pytest.mark.parametrize(
    "terms", ["x' | '{bob}spare", "{bob}spare", "' {bob}spare", "\\' | {bob}spare", "!x :* & ("]
)
def test_whatever_is_sought_is_sought_among_ones_own_words(two_owners: OwnerDatabase, terms: str) -> None:
    """The index is only ever asked for terms with the mark of the owner in the policy."""
    with two_owners.connection(f"{two_owners.database}_gateway") as connection, connection.transaction():
        connection.execute(
            "SELECT set_config('aforesaid.terms', %s, true)", (terms.replace("{bob}", term_prefix("bob")),)
        )
        sought = connection.execute("SELECT aforesaid.search_query('ann')::text").fetchall()[0][0]
    lexemes = re.findall(r"'((?:[^']|'')*)'", sought)
    assert len(lexemes) == len(terms.split(" "))
    assert all(lexeme.startswith(term_prefix("ann")) for lexeme in lexemes)


def test_the_same_questions_show_bob_what_is_his(two_owners: OwnerDatabase) -> None:
    with two_owners.connection(f"{two_owners.database}_gateway") as connection:
        connection.execute("SET aforesaid.owner = 'bob'")
        for name in ("asks", "looks below the view", "makes the filter talk", "makes the filter fail"):
            assert SECRET in attack(connection, two_owners, ATTACKS[name]), name


def test_a_login_that_is_held_to_ann_can_do_all_that_ann_can(two_owners: OwnerDatabase) -> None:
    with two_owners.connection(f"{two_owners.database}_ann_login") as connection:
        assert connection.execute("SELECT subject FROM api.conversations").fetchall() == []
        connection.execute("SET aforesaid.owner = 'ann'")
        assert connection.execute("SELECT subject FROM api.conversations").fetchall() == [
            ("nothing to hide",)
        ]
        made = connection.execute(
            'INSERT INTO api.conversations (messages) VALUES (\'[{"role": "user", "content": "hi"}]\')'
            " RETURNING id"
        ).fetchall()
        connection.execute(
            "UPDATE api.conversations SET messages = messages || messages WHERE id = %s", made[0]
        )
        connection.execute("DELETE FROM api.conversations WHERE id = %s", made[0])


def test_a_login_without_grants_may_not_read(two_owners: OwnerDatabase) -> None:
    with two_owners.connection(f"{two_owners.database}_stranger") as connection:
        connection.execute("SET aforesaid.owner = 'bob'")
        for table in (b"api.conversations", b"api.contacts", b"aforesaid.messages", b"aforesaid.messages_00"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(b"TABLE " + table)


@pytest.mark.parametrize(
    ("settings", "subjects"),
    [
        ({}, []),
        ({"aforesaid.owner": ""}, []),
        ({"aforesaid.owner": "bob"}, [SECRET]),
        ({"request.jwt.claims": '{"sub": "ann", "role": "authenticated"}'}, ["nothing to hide"]),
        ({"request.jwt.claims": '{"role": "anon"}'}, []),
        ({"request.jwt.claims": '{"sub": ""}'}, []),
        ({"request.jwt.claims": '{"sub": "b%"}'}, []),
        ({"request.jwt.claim.sub": "ann"}, ["nothing to hide"]),
        # What the gateway has checked stands above what a statement says.
        ({"request.jwt.claims": '{"sub": "ann"}', "aforesaid.owner": "bob"}, ["nothing to hide"]),
        ({"request.jwt.claim.sub": "ann", "aforesaid.owner": "bob"}, ["nothing to hide"]),
    ],
    ids=str,
)
def test_a_gateway_shows_each_what_is_theirs(
    two_owners: OwnerDatabase, settings: dict[str, str], subjects: list[str]
) -> None:
    with two_owners.connection(f"{two_owners.database}_gateway") as connection, connection.transaction():
        for name, value in settings.items():
            connection.execute("SELECT set_config(%s, %s, true)", (name, value))
        found = connection.execute("SELECT subject FROM api.conversations").fetchall()
        assert [subject for (subject,) in found] == subjects
        assert connection.execute("SELECT count(*) FROM aforesaid.messages").fetchone() == (len(subjects),)


def test_a_token_that_is_none_shows_nothing(two_owners: OwnerDatabase) -> None:
    with two_owners.connection(f"{two_owners.database}_gateway") as connection:
        connection.execute("SET request.jwt.claims = 'not json'")
        with pytest.raises(psycopg.errors.InvalidTextRepresentation):
            connection.execute("TABLE api.conversations")


def test_a_write_without_an_owner_is_refused(two_owners: OwnerDatabase) -> None:
    with (
        two_owners.connection(f"{two_owners.database}_gateway") as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege, match="this session has no owner"),
    ):
        connection.execute("INSERT INTO api.conversations DEFAULT VALUES")


def test_the_role_that_made_the_schema_sees_no_more_than_others(two_owners: OwnerDatabase) -> None:
    with psycopg.connect(two_owners.url, autocommit=True) as connection:
        for table in (
            b"aforesaid.conversations",
            b"aforesaid.messages",
            b"aforesaid.sessions",
            b"aforesaid.contacts",
        ):
            assert connection.execute(b"TABLE " + table).fetchall() == []
        connection.execute("SET aforesaid.operator = 'on'")
        assert connection.execute("SELECT count(*) FROM aforesaid.conversations").fetchone() == (2,)


def test_the_view_is_one_owners_also_for_a_superuser(two_owners: OwnerDatabase) -> None:
    with psycopg.connect(two_owners.admin_url, autocommit=True) as connection:
        assert connection.execute("TABLE api.conversations").fetchall() == []
        connection.execute("SET aforesaid.owner = 'ann'")
        assert connection.execute("SELECT subject FROM api.conversations").fetchall() == [
            ("nothing to hide",)
        ]


def test_every_table_is_guarded_and_every_view_asks_with_the_askers_rights(two_owners: OwnerDatabase) -> None:
    with psycopg.connect(two_owners.url) as connection:
        unguarded = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'aforesaid'::regnamespace"
            " AND relkind IN ('r', 'p') AND NOT (relrowsecurity AND relforcerowsecurity)"
        ).fetchall()
        assert sorted(unguarded) == [("migrations",), ("notification_key",)]  # neither has an owner
        views = connection.execute(
            "SELECT relname, reloptions FROM pg_class"
            " WHERE relnamespace = 'api'::regnamespace AND relkind = 'v' ORDER BY relname"
        ).fetchall()
        options = ["security_invoker=true"]
        names = ("contacts", "conversation_sessions", "conversations")
        assert views == [(name, options) for name in names]
        open_to_all = connection.execute(
            "SELECT proname FROM pg_proc WHERE pronamespace = 'aforesaid'::regnamespace"
            " AND prosecdef AND has_function_privilege('public', oid, 'EXECUTE')"
        ).fetchall()
        assert open_to_all == []


async def test_a_service_without_rights_on_the_schema_can_open_and_use_it(two_owners: OwnerDatabase) -> None:
    backend = PostgresBackend(two_owners.as_role(f"{two_owners.database}_service"))
    await backend.open()
    store = backend.of("carl")
    record = await store.resume("hall", started(new_id(), now=store.now(), ttl=timedelta(days=1)))
    await store.append(record.id, [Message(role="user", content="hi")])
    assert len(await store.tail(record.id, limit=5)) == 1
    assert {owner async for owner in backend.owners()} == {"ann", "bob", "carl"}
    assert await backend.purge_expired(store.now() + timedelta(days=2)) == 1
    assert await store.get(record.id) is None
    await backend.close()


async def test_a_role_without_any_rights_gets_an_error_that_names_the_missing_grants(
    two_owners: OwnerDatabase,
) -> None:
    backend = PostgresBackend(two_owners.as_role(f"{two_owners.database}_stranger"))
    with pytest.raises(StoreError, match=r"aforesaid\.admit"):
        await backend.open()


async def test_operators_functions_leave_no_door_open(two_owners: OwnerDatabase) -> None:
    with two_owners.connection(f"{two_owners.database}_service") as connection, connection.transaction():
        assert len(connection.execute("SELECT * FROM aforesaid.owners_after('', 10, '{}')").fetchall()) == 2
        assert connection.execute("SELECT count(*) FROM aforesaid.conversations").fetchone() == (0,)
        assert connection.execute("SELECT current_setting('aforesaid.operator', true)").fetchone() == ("",)


def long_name(seed: int) -> str:
    """1,024 characters that take 4 bytes each and do not compress: far more than an index entry holds."""
    source = random.Random(seed)
    return "".join(chr(source.randrange(0x20000, 0x2A000)) for _ in range(1024))


async def written(store: ConversationStore, session: str, message_id: str) -> Conversation:
    record = await store.resume(session, started(new_id(), now=store.now()))
    message = Message(role="user", content="long", message_id=message_id)
    assert len((await store.append(record.id, [message])).new) == 1
    assert len((await store.append(record.id, [message])).known) == 1
    return record


async def test_names_too_long_for_an_index_are_names_like_any_other(
    two_owners: OwnerDatabase, backend: PostgresBackend
) -> None:
    one, two = long_name(1), long_name(2)
    first = await written(backend.of(one), long_name(3), long_name(4))
    second = await written(backend.of(two), long_name(3), long_name(4))
    bound = await backend.of(one).session(long_name(3))
    assert bound is not None
    assert bound.id == first.id
    assert first.id != second.id
    assert {one, two} <= {owner async for owner in backend.owners()}
    with two_owners.connection(f"{two_owners.database}_gateway") as connection:
        connection.execute("SELECT set_config('aforesaid.owner', %s, false)", (one,))
        found = connection.execute("SELECT id::text FROM api.conversations").fetchall()
        assert found == [(first.id,)]
    for name, record in ((one, first), (two, second)):
        await backend.of(name).delete(record.id)


async def test_no_owner_can_take_the_name_of_a_digest(backend: PostgresBackend) -> None:
    victim = backend.of(long_name(5))
    record = await written(victim, "s", "m")
    impostor = backend.of(key_of(long_name(5)))
    assert await impostor.get(record.id) is None
    with pytest.raises(ConversationNotFound):
        await impostor.append(record.id, [Message(role="user", content="x")])
    made = await written(impostor, "s", "m")
    assert key_of(long_name(5)) in {owner async for owner in backend.owners()}
    await impostor.delete(made.id)
    await victim.delete(record.id)


@pytest.mark.parametrize(
    "name", ["a", "x" * 512, "x" * 513, "é" * 256, "é" * 257, "sha256/", "sha256/abc", "漢" * 900]
)
def test_python_and_sql_agree_on_keys(two_owners: OwnerDatabase, name: str) -> None:
    with psycopg.connect(two_owners.url) as connection:
        assert connection.execute("SELECT aforesaid.key_of(%s)", (name,)).fetchone() == (key_of(name),)
        tag = connection.execute("SELECT aforesaid.tag('secret', 'owner', %s)", (name,))
        assert tag.fetchone() == (Tags(b"secret").owner(name),)


async def test_a_token_of_a_participant_shows_their_conversations_from_where_they_joined(
    two_owners: OwnerDatabase, backend: PostgresBackend
) -> None:
    store, shared = backend.of("bob"), two_owners.ids["bob"]
    (first,) = await store.tail(shared, limit=1)
    since = VisibleFrom(first.position.micros, first.sequence + 1)
    people = (
        Participant(id="dan"),
        Participant(id="eve", visible_from=since),
        Participant(id="fay", role="left"),
    )
    await store.update(shared, Changes(participants=people))
    await store.append(shared, [Message(role="user", content="welcome, Eve", author="dan")])
    seen = {"dan": (1, 2), "eve": (1, 1), "fay": (0, 0), "stranger": (0, 0), "": (1, 2)}
    with two_owners.connection(f"{two_owners.database}_gateway") as connection:
        for participant, (conversations, messages) in seen.items():
            with connection.transaction():
                claims = json.dumps({"sub": "bob", "participant": participant})
                connection.execute("SELECT set_config('request.jwt.claims', %s, true)", (claims,))
                found = connection.execute("SELECT messages FROM api.conversations").fetchall()
                assert [len(one) for (one,) in found] == [messages] * conversations
                contacts = connection.execute("SELECT count(*) FROM api.contacts").fetchone()
                sessions = connection.execute("SELECT count(*) FROM aforesaid.sessions").fetchone()
                assert sessions == (conversations,)
                if participant:
                    assert contacts == (0,)
        with connection.transaction(), pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(
                "SELECT set_config('request.jwt.claims', %s, true)",
                (json.dumps({"sub": "bob", "participant": "stranger"}),),
            )
            connection.execute("INSERT INTO api.conversations (subject) VALUES ('mine')")
