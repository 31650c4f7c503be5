"""`api.conversations` is the documented table, for anybody who speaks SQL."""

import json
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, LiteralString
from uuid import uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb

from aforesaid.contacts.book import Contacts
from aforesaid.contracts import ConversationStore
from aforesaid.errors import InvalidInput
from aforesaid.model.conversations import (
    LONGEST_TTL,
    MOST_UNREAD,
    VALUE_SETS,
    Changes,
    Conversation,
    expiry,
    started,
)
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message, Speech
from aforesaid.stores.postgres import PostgresBackend

COLUMNS = [
    *(
        "id",
        "client_id",
        "client_name",
        "subject",
        "channel",
        "status",
        "priority",
        "assigned_to",
        "messages",
    ),
    *("last_message_at", "last_message_from", "unread_count", "tags", "notes", "created_at", "updated_at"),
    *("name", "revision", "message_count"),
]
HELLO = {"role": "user", "content": "hello", "timestamp": "2026-03-01T09:30:00+02:00"}


@pytest.fixture
async def backend(postgres_url: str) -> AsyncIterator[PostgresBackend]:
    backend = PostgresBackend(postgres_url)
    await backend.open()
    yield backend
    await backend.close()


@pytest.fixture
def owner() -> str:
    return f"owner-{new_id()}"


@pytest.fixture
def store(backend: PostgresBackend, owner: str) -> ConversationStore:
    return backend.of(owner)


class Plain:
    """A client that knows nothing of Aforesaid."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection

    def all(self, sql: LiteralString, *values: object) -> list[dict[str, Any]]:
        with self.connection.cursor(row_factory=psycopg.rows.dict_row) as cursor:
            cursor.execute(sql, values)
            return cursor.fetchall() if cursor.description else []

    def one(self, sql: LiteralString, *values: object) -> dict[str, Any]:
        (row,) = self.all(sql, *values)
        return row


@pytest.fixture
def plain(backend: PostgresBackend, postgres_url: str, owner: str) -> Iterator[Plain]:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("SELECT set_config('aforesaid.owner', %s, false)", (owner,))
        yield Plain(connection)


def inserted(plain: Plain, *messages: dict[str, Any]) -> dict[str, Any]:
    return plain.one(
        "INSERT INTO api.conversations (messages) VALUES (%s) RETURNING *", Jsonb(list(messages))
    )


async def created(store: ConversationStore, **metadata: Any) -> Conversation:
    return await store.create(started(new_id(), now=store.now(), **metadata))


def test_the_columns_are_the_documented_ones(plain: Plain) -> None:
    found = plain.all(
        "SELECT column_name FROM information_schema.columns"
        " WHERE table_schema = 'api' AND table_name = 'conversations' ORDER BY ordinal_position"
    )
    assert [row["column_name"] for row in found] == COLUMNS


@pytest.mark.requirement("004-063")
@pytest.mark.parametrize(
    "column", ["client_id", "status", "priority", "channel", "last_message_at", "created_at"]
)
def test_the_documented_columns_have_an_index(plain: Plain, column: str) -> None:
    """Each begins with the owner, because row-level security adds the owner to every query."""
    found = plain.all(
        "SELECT indexdef FROM pg_indexes WHERE schemaname = 'aforesaid' AND tablename = 'conversations'"
    )
    assert [row for row in found if f"(owner, {column}" in row["indexdef"]]


def test_an_insert_that_says_nothing_gets_every_default(plain: Plain) -> None:
    row = plain.one("INSERT INTO api.conversations DEFAULT VALUES RETURNING *")
    assert list(row) == COLUMNS
    assert (row["channel"], row["status"], row["priority"]) == ("voice", "open", "normal")
    assert (row["messages"], row["tags"], row["unread_count"]) == ([], [], 0)
    assert row["created_at"] == row["updated_at"]
    assert [row["last_message_at"], row["last_message_from"], row["client_id"]] == [None, None, None]


async def test_what_plain_sql_inserts_is_a_conversation_like_any_other(
    plain: Plain, store: ConversationStore
) -> None:
    row = plain.one(
        "INSERT INTO api.conversations (channel, status, subject, tags, messages)"
        " VALUES ('voice', 'open', 'Roof', '{a,b}', %s) RETURNING *",
        Jsonb([HELLO, {"role": "assistant", "content": [{"type": "text", "text": "hi"}], "mood": None}]),
    )
    record = await store.get(str(row["id"]))
    assert record is not None
    assert (record.subject, record.tags, record.message_count, record.unread_count) == (
        "Roof",
        ("a", "b"),
        2,
        2,
    )
    assert record.ttl == timedelta(days=30)
    assert record.expires_at == row["created_at"] + timedelta(days=30)
    first, second = (entry.message for entry in await store.page(record.id, limit=10))
    assert first == Message.from_dict(HELLO)
    assert second.content == [{"type": "text", "text": "hi"}]
    assert second.extra == {"mood": None}
    assert second.timestamp == row["created_at"]
    assert (row["last_message_at"], row["last_message_from"]) == (row["created_at"], "assistant")


async def test_the_view_shows_messages_in_their_documented_form(
    plain: Plain, store: ConversationStore
) -> None:
    record = await created(store)
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    heard = Speech(spoken="one two", heard=3)
    later = Message(
        role="assistant", content={"a": [1, None]}, timestamp=noon, agent_name="home", speech=heard
    )
    earlier = Message(
        role="user",
        content="first",
        timestamp=noon - timedelta(hours=1),
        content_type="audio",
        message_id="m1",
        tags=("input",),
        dialect="anthropic",
        extra={"cache": {"x": 1}, "role": "ignored"},
        speech=Speech(confidence=0.5, language="en"),
        tokens={"o200k_base": 3},
    )
    await store.append(record.id, [later, earlier, Message(role="tool", extra={"name": "lock"})])
    shown = plain.one("SELECT messages FROM api.conversations WHERE id = %s", record.id)["messages"]
    expected = [entry.message.to_dict() for entry in await store.page(record.id, limit=10)]
    for document in (*shown, *expected):
        document["timestamp"] = datetime.fromisoformat(document["timestamp"])
    assert shown == expected
    assert [document["content"] for document in shown] == ["first", {"a": [1, None]}, None]


async def test_how_a_message_sounded_goes_in_by_plain_sql(plain: Plain, store: ConversationStore) -> None:
    speeches = [
        {"confidence": 0.5, "language": "en"},
        {"confidence": 0, "spoken": None},
        {"spoken": "one two", "heard": 3},
        {"spoken": "héllo", "heard": 5},
    ]
    row = inserted(plain, *({"role": "assistant", "content": "x", "speech": one} for one in speeches))
    entries = await store.page(str(row["id"]), limit=10)
    assert [entry.message.speech for entry in entries] == [Speech(**one) for one in speeches]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("NUL \0 here", "NUL \ufffd here"),
        ("\0\0", "\ufffd\ufffd"),
        ("half \ud800 pair", "half \ufffd pair"),
        ("other half \udfff.", "other half \ufffd."),
        ("\ud800 next to a whole one 😀 \0", "\ufffd next to a whole one 😀 \ufffd"),
        ("a backslash and u0000: \\u0000", "a backslash and u0000: \\u0000"),
        ("\\\0", "\\\ufffd"),
        ({"\0": ["\ud83d"]}, {"\ufffd": ["\ufffd"]}),
        ("\x01\x1f", "\x01\x1f"),
        (-(2**80), -(2**80)),
    ],
    ids=ascii,
)
async def test_what_jsonb_cannot_hold_is_shown_and_kept(
    plain: Plain, store: ConversationStore, content: object, expected: object
) -> None:
    record = await created(store)
    await store.append(record.id, [Message(role="user", content=content)])
    (shown,) = plain.one("SELECT messages FROM api.conversations WHERE id = %s", record.id)["messages"]
    assert shown["content"] == expected
    # Appending by plain SQL, and even rewriting, leaves the body as it is.
    plain.all(
        "UPDATE api.conversations SET messages = messages || %s", Jsonb([{"role": "user", "content": "x"}])
    )
    plain.all("UPDATE api.conversations SET messages = messages - 1")
    assert [entry.message.content for entry in await store.page(record.id, limit=9)] == [content]


async def test_an_append_by_plain_sql_inserts_only_what_is_new(
    plain: Plain, store: ConversationStore
) -> None:
    record = await created(store)
    await store.append(record.id, [Message(role="user", content="one")])
    before = await store.page(record.id, limit=10)
    added = [
        {"role": "assistant", "content": "two", "agent_name": "home"},
        {"role": "user", "content": "three"},
    ]
    row = plain.one(
        "UPDATE api.conversations SET messages = messages || %s WHERE id = %s RETURNING *",
        Jsonb(added),
        record.id,
    )
    after = await store.page(record.id, limit=10)
    assert after[:1] == before
    assert [entry.sequence for entry in after] == [1, 2, 3]
    assert [document["content"] for document in row["messages"]] == ["one", "two", "three"]
    assert (row["last_message_from"], row["unread_count"]) == ("user", 3)
    now = await store.get(record.id)
    assert now is not None
    assert (now.message_count, now.last_message_at) == (3, row["last_message_at"])


async def test_the_documented_read_then_update_works(plain: Plain, store: ConversationStore) -> None:
    row = inserted(plain, HELLO)
    message = {"role": "assistant", "content": "hi", "timestamp": datetime.now(UTC).isoformat()}
    plain.all(
        "UPDATE api.conversations SET messages = %s, last_message_at = %s, last_message_from = %s,"
        " updated_at = 'now' WHERE id = %s",
        Jsonb([*row["messages"], message]),
        message["timestamp"],
        message["role"],
        row["id"],
    )
    record = await store.get(str(row["id"]))
    assert record is not None
    assert record.last_message_at == datetime.fromisoformat(message["timestamp"])
    assert (record.last_message_from, record.message_count) == ("assistant", 2)


def test_two_who_append_at_once_lose_nothing(plain: Plain, postgres_url: str, owner: str) -> None:
    row = inserted(plain, HELLO)
    append: LiteralString = "UPDATE api.conversations SET messages = messages || %s WHERE id = %s"
    with psycopg.connect(postgres_url) as other:
        other.execute("SELECT set_config('aforesaid.owner', %s, false)", (owner,))
        other.commit()
        # Both have read the same messages before either of them writes.
        other.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
        seen = other.execute("SELECT jsonb_array_length(messages) FROM api.conversations").fetchone()
        plain.all(append, Jsonb([{"role": "user", "content": "mine"}]), row["id"])
        other.execute(append, (Jsonb([{"role": "user", "content": "yours"}]), row["id"]))
        other.commit()
    assert seen == (1,)
    contents = [
        document["content"] for document in plain.one("SELECT messages FROM api.conversations")["messages"]
    ]
    assert contents == ["hello", "mine", "yours"]


async def test_another_history_takes_the_place_of_the_old(plain: Plain, store: ConversationStore) -> None:
    row = inserted(plain, HELLO, {"role": "assistant", "content": "wrong"})
    plain.all("UPDATE api.conversations SET messages = messages - 1 WHERE id = %s", row["id"])
    (entry,) = await store.page(str(row["id"]), limit=10)
    assert entry.message == Message.from_dict(HELLO)
    plain.all("UPDATE api.conversations SET messages = '[]'")
    assert await store.page(str(row["id"]), limit=10) == []
    record = await store.get(str(row["id"]))
    assert record is not None
    assert (record.last_message_at, record.message_count) == (None, 0)


async def test_metadata_is_updated_and_only_what_changes(plain: Plain, store: ConversationStore) -> None:
    record = await created(store, subject="old", tags=("a",))
    row = plain.one(
        "UPDATE api.conversations SET status = 'resolved', priority = 'high', notes = 'n', unread_count = 0,"
        " tags = tags || '{b}' WHERE id = %s RETURNING *",
        record.id,
    )
    assert (row["status"], row["priority"], row["subject"], row["tags"]) == (
        "resolved",
        "high",
        "old",
        ["a", "b"],
    )
    changed = await store.get(record.id)
    assert changed is not None
    assert (changed.status, changed.notes, changed.tags) == ("resolved", "n", ("a", "b"))
    assert changed.revision == record.revision + 1


def test_subjects_and_contents_can_be_searched(plain: Plain) -> None:
    plain.all("INSERT INTO api.conversations (subject) VALUES ('The ROOF leaks'), ('Garden')")
    inserted(
        plain,
        {"role": "user", "content": "the kitchen light"},
        {"role": "assistant", "content": {"on": True}},
    )
    assert len(plain.all("SELECT id FROM api.conversations WHERE subject ILIKE %s", "%roof%")) == 1
    contained = Jsonb([{"content": "the kitchen light"}])
    assert len(plain.all("SELECT id FROM api.conversations WHERE messages @> %s", contained)) == 1
    path = '$[*].content ? (@ like_regex "KITCHEN" flag "i")'
    assert len(plain.all("SELECT id FROM api.conversations WHERE messages @? %s", path)) == 1
    row = plain.one(
        "SELECT messages -> 1 -> 'content' ->> 'on' AS lit FROM api.conversations WHERE subject IS NULL"
    )
    assert row["lit"] == "true"


async def test_deleting_removes_the_whole_conversation(plain: Plain, store: ConversationStore) -> None:
    row = inserted(plain, HELLO)
    await store.bind("kitchen", str(row["id"]))
    gone = plain.all("DELETE FROM api.conversations WHERE id = %s RETURNING id, subject", row["id"])
    assert [found["id"] for found in gone] == [row["id"]]
    assert await store.get(str(row["id"])) is None
    assert await store.session("kitchen") is None
    assert plain.one("SELECT count(*) AS n FROM aforesaid.messages")["n"] == 0


@pytest.mark.parametrize("field", ["status", "priority"])
def test_values_outside_their_set_are_refused(plain: Plain, field: LiteralString) -> None:
    for value in VALUE_SETS[field]:
        plain.all(f"INSERT INTO api.conversations ({field}) VALUES (%s)", value)
    with pytest.raises(psycopg.errors.CheckViolation, match=field):
        plain.all(f"INSERT INTO api.conversations ({field}) VALUES ('lost')")
    with pytest.raises(psycopg.errors.CheckViolation, match=field):
        plain.all(f"UPDATE api.conversations SET {field} = 'lost'")


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"content": "no role"}, "role"),
        ({"role": "robot", "content": "x"}, "role"),
        ({"role": 1, "content": "x"}, "role"),
        ({"role": "user"}, "content"),
        ("text", "object"),
        ({"role": "user", "content": "x", "timestamp": "2026-03-01T09:30:00"}, "time zone"),
        ({"role": "user", "content": "x", "timestamp": "yesterday"}, "ISO 8601"),
        ({"role": "user", "content": "x", "timestamp": 7}, "timestamp"),
        ({"role": "user", "content": "x", "content_type": "video"}, "content_type"),
        ({"role": "user", "content": "x", "message_id": ""}, "message_id"),
        ({"role": "user", "content": "x", "message_id": 5}, "message_id"),
        ({"role": "user", "content": "x", "agent_name": ["a"]}, "agent_name"),
        ({"role": "user", "content": "x", "tags": "a"}, "tags"),
        ({"role": "user", "content": "x", "tags": ["a", 1]}, "tags"),
        ({"role": "user", "content": "x", "speech": "loud"}, "speech"),
        ({"role": "user", "content": "x", "speech": []}, "speech"),
        ({"role": "user", "content": "x", "speech": {"loud": True}}, "speech"),
        ({"role": "user", "content": "x", "speech": {"confidence": 1.5}}, "speech"),
        ({"role": "user", "content": "x", "speech": {"confidence": "high"}}, "speech"),
        ({"role": "user", "content": "x", "speech": {"language": ["en"]}}, "speech"),
        ({"role": "user", "content": "x", "speech": {"heard": 1}}, "speech"),
        ({"role": "user", "content": "x", "speech": {"spoken": "one", "heard": 4}}, "speech"),
        ({"role": "user", "content": "x", "speech": {"spoken": "one", "heard": 1.5}}, "speech"),
        ({"role": "user", "content": "x", "timestamp": "0001-01-01T00:00:00+14:00"}, "years 1 to 9999"),
        ({"role": "user", "content": "x", "timestamp": "9999-12-31T23:59:59-01:00"}, "years 1 to 9999"),
        ({"role": "user", "content": json.loads("[" * 600 + "]" * 600)}, "nested too deep"),
    ],
    ids=lambda value: str(value)[:60],
)
async def test_a_message_that_is_none_is_refused_and_nothing_changes(
    plain: Plain, store: ConversationStore, bad: Any, said: str
) -> None:
    row = inserted(plain, HELLO)
    with pytest.raises(psycopg.errors.CheckViolation, match=said):
        plain.all("UPDATE api.conversations SET messages = messages || %s", Jsonb([HELLO, bad]))
    with pytest.raises(psycopg.errors.CheckViolation, match=said):
        inserted(plain, bad)
    assert len(plain.all("SELECT id FROM api.conversations")) == 1
    assert len(await store.page(str(row["id"]), limit=10)) == 1
    with pytest.raises(psycopg.errors.CheckViolation, match="array"):
        plain.all("UPDATE api.conversations SET messages = '{}'")


@pytest.mark.parametrize(
    "timestamp",
    [
        *("2026-03-01T09:30:00Z", "2026-03-01T09:30:00.123456+05:30", "2026-03-01 09:30:00+00"),
        *(
            "2026-03-01T09:30+0100",
            "2026-12-31T23:59:60Z",
            "2026-03-01T24:00:00Z",
            "2026-03-01T09:30:00.1234567Z",
        ),
    ],
)
async def test_every_timestamp_that_goes_in_can_be_read_back(
    plain: Plain, store: ConversationStore, timestamp: str
) -> None:
    row = inserted(plain, HELLO | {"timestamp": timestamp})
    (entry,) = await store.page(str(row["id"]), limit=1)
    assert entry.message.timestamp == row["last_message_at"]


async def test_message_ids_are_idempotency_keys_here_too(plain: Plain, store: ConversationStore) -> None:
    known = HELLO | {"message_id": "m1"}
    row = inserted(plain, known, known)
    append: LiteralString = "UPDATE api.conversations SET messages = messages || %s"
    plain.all(append, Jsonb([known, {"role": "user", "content": "more"}]))
    assert [e.message.content for e in await store.page(str(row["id"]), limit=9)] == ["hello", "more"]
    with pytest.raises(psycopg.errors.UniqueViolation, match="m1"):
        plain.all(append, Jsonb([known | {"content": "other"}]))
    assert (await store.append(str(row["id"]), [Message.from_dict(known)])).new == ()


def test_contacts_are_kept_and_conversations_outlive_them(plain: Plain) -> None:
    contact = plain.one(
        "INSERT INTO api.contacts (name, email) VALUES ('Ann', 'ann@example.org') RETURNING *"
    )
    assert {"id", "name", "email", "created_at"} <= set(contact)
    row = plain.one(
        "INSERT INTO api.conversations (client_id, client_name) VALUES (%s, 'Ann') RETURNING *", contact["id"]
    )
    assert row["client_id"] == contact["id"]
    assert plain.one("UPDATE api.contacts SET name = 'Anna' RETURNING name")["name"] == "Anna"
    assert (
        plain.one("DELETE FROM api.contacts WHERE id = %s RETURNING id", contact["id"])["id"] == contact["id"]
    )
    left = plain.one("SELECT client_id, client_name FROM api.conversations")
    assert left == {"client_id": None, "client_name": "Ann"}


def test_deleting_a_contact_below_the_view_clears_the_reference_as_well(plain: Plain) -> None:
    contact = plain.one("INSERT INTO api.contacts (name) VALUES ('Bo') RETURNING id")
    plain.all("INSERT INTO api.conversations (client_id) VALUES (%s)", contact["id"])
    plain.all("DELETE FROM aforesaid.contacts WHERE id = %s", contact["id"])
    assert plain.one("SELECT client_id FROM api.conversations") == {"client_id": None}


def test_a_client_without_a_contact_is_refused_by_plain_sql(plain: Plain) -> None:
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        plain.all("INSERT INTO api.conversations (client_id) VALUES (%s)", uuid4())


async def test_a_client_that_the_store_names_waits_to_be_described(
    plain: Plain, store: ConversationStore
) -> None:
    record = await created(store)
    client, other = new_id(), new_id()
    await store.update(record.id, Changes(client_id=client, client_name="Ann"))
    await created(store, client_id=other)
    assert plain.all("SELECT id FROM api.contacts") == []
    plain.all("INSERT INTO api.contacts (id, name) VALUES (%s, 'Ann Smith')", client)
    assert await Contacts(store).get(client) in (await Contacts(store).list()).contacts
    with pytest.raises(psycopg.errors.UniqueViolation, match="already"):
        plain.all("INSERT INTO api.contacts (id, name) VALUES (%s, 'Ann Smith')", client)
    plain.all("DELETE FROM api.contacts WHERE id = %s", client)
    unlinked = await store.get(record.id)
    assert unlinked is not None
    assert (unlinked.client_id, unlinked.client_name) == (None, "Ann")


async def test_plain_sql_and_the_store_see_the_same_contacts(plain: Plain, store: ConversationStore) -> None:
    contacts = Contacts(store)
    ann = await contacts.add("Ann", nicknames=["Nan"], company="Acme", email="a@b.c", phone="12", notes="n")
    shown = plain.one("SELECT * FROM api.contacts")
    assert {
        "id": str(shown["id"]),
        **{field: shown[field] for field in ("name", "company", "email", "phone")},
    } == {
        "id": ann.id,
        "name": "Ann",
        "company": "Acme",
        "email": "a@b.c",
        "phone": "12",
    }
    assert (shown["nicknames"], shown["notes"], shown["created_at"]) == (["Nan"], "n", ann.created_at)
    plain.all("UPDATE api.contacts SET phone = '34', nicknames = '{Nan,Annie}'")
    changed = await contacts.get(ann.id)
    assert (changed.phone, changed.nicknames, changed.version) == ("34", ("Nan", "Annie"), 2)
    renamed = await contacts.update(ann.id, name="Anna")
    assert plain.one("SELECT name, phone FROM api.contacts") == {"name": "Anna", "phone": "34"}
    assert renamed.version == 3
    plain.all("INSERT INTO api.contacts DEFAULT VALUES")
    assert sorted(one.name for one in (await contacts.list()).contacts) == ["", "Anna"]
    plain.all("DELETE FROM api.contacts")
    assert (await contacts.list()).contacts == ()


async def test_a_sealed_contact_has_no_columns_for_plain_sql(plain: Plain, store: ConversationStore) -> None:
    key = new_id()
    await store.put_document("contacts", key, b"sealed")
    assert plain.one("SELECT id::text, name, email FROM api.contacts") == {
        "id": key,
        "name": None,
        "email": None,
    }
    plain.all("UPDATE api.contacts SET name = 'Ann'")
    assert (await Contacts(store).get(key)).name == "Ann"


async def test_what_has_expired_is_not_shown_and_its_id_is_free(
    plain: Plain, store: ConversationStore
) -> None:
    long_ago = store.now() - timedelta(days=40)
    over = await store.create(started(new_id(), now=long_ago, ttl=timedelta(days=30)))
    assert plain.all("SELECT id FROM api.conversations") == []
    row = plain.one("INSERT INTO api.conversations (id) VALUES (%s) RETURNING id", over.id)
    assert str(row["id"]) == over.id


def test_a_default_lifetime_can_be_set(plain: Plain) -> None:
    plain.connection.execute("SELECT set_config('aforesaid.default_ttl', '1 day', false)")
    plain.all("INSERT INTO api.conversations (subject) VALUES ('short')")
    plain.connection.execute("SELECT set_config('aforesaid.default_ttl', 'never', false)")
    plain.all("INSERT INTO api.conversations (subject) VALUES ('kept')")
    found = plain.all("SELECT subject, ttl, expires_at - created_at AS left FROM aforesaid.conversations")
    assert {row["subject"]: (row["ttl"], row["left"]) for row in found} == {
        "short": (timedelta(days=1), timedelta(days=1)),
        "kept": (None, None),
    }


def test_an_id_does_not_change_and_an_id_is_taken_once(plain: Plain) -> None:
    row = inserted(plain)
    with pytest.raises(psycopg.errors.CheckViolation, match="id"):
        plain.all("UPDATE api.conversations SET id = %s", uuid4())
    with pytest.raises(psycopg.errors.UniqueViolation):
        plain.all("INSERT INTO api.conversations (id) VALUES (%s)", row["id"])


@pytest.mark.parametrize(
    ("column", "value"),
    [("created_at", "infinity"), ("created_at", "10000-01-01"), ("tags", "{a,NULL}"), ("tags", "{{a},{b}}")],
)
def test_what_the_store_could_not_read_back_is_refused(
    plain: Plain, column: LiteralString, value: str
) -> None:
    inserted(plain)
    with pytest.raises(psycopg.errors.CheckViolation):
        plain.all(f"INSERT INTO api.conversations ({column}) VALUES (%s)", value)
    with pytest.raises(psycopg.errors.CheckViolation):
        plain.all(f"UPDATE api.conversations SET {column} = %s", value)


async def test_a_count_larger_than_the_column_is_shown_as_the_largest(
    plain: Plain, store: ConversationStore
) -> None:
    record = await created(store)
    await store.update(record.id, Changes(unread_count=MOST_UNREAD))
    await store.append(record.id, [Message(role="user", content="one more")])
    assert plain.one("SELECT unread_count FROM api.conversations") == {"unread_count": 2**31 - 1}


@pytest.mark.parametrize("hours", [14, -14])
async def test_a_moment_that_utc_cannot_tell_is_refused(store: ConversationStore, hours: int) -> None:
    zone = timezone(timedelta(hours=hours))
    edge = (datetime.min if hours > 0 else datetime.max).replace(tzinfo=zone)
    with pytest.raises(InvalidInput, match="timestamp"):
        Message(role="user", content="x", timestamp=edge)
    record = await created(store)
    for moment in (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)):
        await store.append(record.id, [Message(role="user", content="x", timestamp=moment)])
    assert len(await store.page(record.id, limit=5)) == 2


@pytest.mark.parametrize("ttl", [LONGEST_TTL, timedelta(microseconds=1)])
async def test_lifetimes_of_any_length_are_kept(store: ConversationStore, ttl: timedelta) -> None:
    record = await created(store)
    changed = await store.update(record.id, Changes(ttl=ttl))
    assert changed.ttl == ttl
    assert changed.expires_at == expiry(ttl, now=changed.updated_at)
