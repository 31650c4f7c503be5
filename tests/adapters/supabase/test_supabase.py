"""A manager with a real client of Supabase, against a PostgREST-compatible server."""

import asyncio
import gc
import json
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from supabase import acreate_client

import aforesaid
from aforesaid import compat
from aforesaid.agents import AgenticLoop, Specialist
from aforesaid.errors import (
    ContactNotFound,
    ConversationNotFound,
    InvalidInput,
    InvalidSetting,
    MessageConflict,
    NotAllowed,
    NotAuthenticated,
    RevisionConflict,
    StoreUnavailable,
)
from aforesaid.layers.cached import CachedStore
from aforesaid.model.ids import conversation_key, new_id
from aforesaid.model.messages import Message
from tests.acceptance.seeds.printed import printed, run
from tests.doubles import Scripted
from tests.servers.supabase import token

# The client passes its own deprecated parameter on, and one without `close` leaves its connections open.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The '.*' parameter is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def user() -> str:
    """A user without data."""
    return f"user {new_id()}"


def contents(messages: Any) -> list[str]:
    return [message.content for message in messages]


@pytest.mark.requirement("004-001", "004-066")
async def test_a_conversation_is_a_row_of_the_view(clients: Any, user: str) -> None:
    client = clients(user)
    manager = compat.ConversationManager(client, context_window_size=2)
    assert manager.owner == user
    record = await manager.get_or_create_conversation("session 1", channel="voice")
    for number in range(3):
        await manager.add_message(record.id, "user", f"message {number}", content_type="audio")
    await manager.add_message(record.id, "assistant", "An answer", agent_name="supervisor_agent")
    row = client.schema("api").table("conversations").select("*").eq("id", record.id).single().execute().data
    assert contents(await manager.messages(record.id)) == [one["content"] for one in row["messages"]]
    assert (row["channel"], row["status"], row["last_message_from"]) == ("voice", "open", "assistant")
    assert (row["unread_count"], row["message_count"]) == (4, 4)
    assert row["messages"][-1]["agent_name"] == "supervisor_agent"
    assert contents((await manager.load_context(record.id)).messages) == ["message 2", "An answer"]
    again = await manager.get_or_create_conversation("session 1")
    assert (again.id, len(again.messages)) == (record.id, 2)


async def test_every_field_comes_back_unchanged(clients: Any, user: str) -> None:
    manager = compat.ConversationManager(clients(user))
    await manager.add_message("notes", "user", "a\u2028b 🎨 \\u0000 'quoted' \"double\" %_", tags=["x", "y"])
    await manager.append(
        "notes",
        [
            Message.from_dict(message)
            for message in (
                {"role": "user", "content": {"numbers": [1, 1.5, 2**50], "null": None}, "unknown": [1]},
                {"role": "assistant", "content": "", "timestamp": "2024-01-15T10:30:00+02:00"},
            )
        ],
    )
    first, second, third = await manager.messages("notes")
    assert (first.content, first.timestamp) == ("", datetime(2024, 1, 15, 8, 30, tzinfo=UTC))
    assert second.content == "a\u2028b 🎨 \\u0000 'quoted' \"double\" %_"
    assert second.tags == ("x", "y")
    assert third.content == {"numbers": [1, 1.5, 2**50], "null": None}


async def test_a_name_is_the_same_conversation_as_in_the_database(
    clients: Any, user: str, database: str
) -> None:
    manager = compat.ConversationManager(clients(user))
    await manager.add_message("kitchen", "user", "through Supabase")
    async with aforesaid.open(database) as memory:
        direct = memory.of(user)
        await direct.add_message("kitchen", "user", "directly")
        record = await direct.get_conversation("kitchen")
        assert (record.name, record.id) == ("kitchen", conversation_key("kitchen", owner=user).id)
        await direct.get_or_create_conversation("session 7")
    assert contents(await manager.messages("kitchen")) == ["through Supabase", "directly"]
    assert (await manager.get_conversation("kitchen")).name == "kitchen"
    assert await manager.session("session 7") is not None


@pytest.mark.requirement("004-072", "004-073")
async def test_a_loaded_conversation_is_cached_and_never_stale(clients: Any, user: str) -> None:
    manager, elsewhere = (compat.ConversationManager(clients(user)) for _ in range(2))
    assert isinstance(manager.store, CachedStore)
    inner: Any = manager.store.inner
    await manager.add_message("kitchen", "user", "first")
    await manager.load_context("kitchen")
    read: list[str] = []
    load = inner._load

    async def counting(conversation_id: str) -> Any:
        read.append(conversation_id)
        return await load(conversation_id)

    inner._load = counting
    assert contents((await manager.load_context("kitchen")).messages) == ["first"]
    assert read == [], "the messages are in memory"
    await elsewhere.add_message("kitchen", "user", "second")
    assert contents((await manager.load_context("kitchen")).messages) == ["first", "second"]
    uncached = compat.ConversationManager(clients(user), config=compat.ConversationConfig(cache_ttl=0))
    assert not isinstance(uncached.store, CachedStore)


@pytest.mark.requirement("004-067")
async def test_concurrent_clients_lose_nothing(clients: Any, user: str) -> None:
    managers = [compat.ConversationManager(clients(user)) for _ in range(4)]
    await managers[0].add_message("shared", "user", "first")

    async def write(number: int) -> None:
        for count in range(8):
            await managers[number].add_message("shared", "user", f"{number}/{count}")

    await asyncio.gather(*(write(number) for number in range(4)))
    stored = contents(await managers[0].messages("shared", limit=100))
    assert sorted(stored) == sorted(
        ["first", *(f"{number}/{count}" for number in range(4) for count in range(8))]
    )
    record = await managers[1].get_conversation("shared")
    assert (record.message_count, record.unread_count) == (33, 33)


async def test_one_session_gets_one_conversation(clients: Any, user: str) -> None:
    managers = [compat.ConversationManager(clients(user)) for _ in range(4)]
    records = await asyncio.gather(*(manager.get_or_create_conversation("s") for manager in managers))
    assert len({record.id for record in records}) == 1
    assert len((await managers[0].list()).conversations) == 1


async def test_a_replaced_message_does_not_undo_a_concurrent_one(clients: Any, user: str) -> None:
    managers = [compat.ConversationManager(clients(user)) for _ in range(2)]
    await managers[0].add_message("shared", "user", "a secret", message_id="secret")
    writes = [managers[1].add_message("shared", "user", str(number)) for number in range(5)]
    await asyncio.gather(managers[0].redact("shared", "secret"), *writes)
    stored = contents(await managers[0].messages("shared"))
    assert "a secret" not in stored
    assert {str(number) for number in range(5)} <= set(stored)


async def test_another_user_sees_nothing(clients: Any, user: str) -> None:
    record = await compat.ConversationManager(clients(user)).get_or_create_conversation("s")
    other = compat.ConversationManager(clients(f"{user} 2"))
    with pytest.raises(ConversationNotFound):
        await other.get_conversation(record.id)
    with pytest.raises(ConversationNotFound):
        await other.add_message(record.id, "user", "hello")
    await other.delete_conversation(record.id)
    assert (await other.list()).conversations == ()
    assert await other.session("s") is None
    assert (await compat.ConversationManager(clients(user)).get_conversation(record.id)).id == record.id


async def test_an_async_client_works_too(server: str, user: str) -> None:
    client = await acreate_client(server, token(user))
    manager = compat.ConversationManager(client)
    await manager.add_message("kitchen", "user", "hello")
    assert contents(await manager.messages("kitchen")) == ["hello"]
    await client.postgrest.aclose()


async def test_metadata_lists_and_search(clients: Any, user: str) -> None:
    manager = compat.ConversationManager(clients(user))
    painting = await manager.get_or_create_conversation("1", channel="text")
    await manager.add_message(painting.id, "user", "I need a quote for painting my house")
    plumbing = await manager.get_or_create_conversation("2")
    await manager.add_message(plumbing.id, "user", "The tap drips")
    updated = await manager.update_metadata(painting.id, "pending", "high", "Painting", ["quote", "house"])
    assert (updated.status, updated.priority, updated.tags) == ("pending", "high", ("quote", "house"))
    assert [one.id for one in (await manager.list(status="pending")).conversations] == [painting.id]
    assert [one.id for one in (await manager.list(tags=["house"])).conversations] == [painting.id]
    page = await manager.list(limit=1)
    assert [one.id for one in page.conversations] == [plumbing.id]
    assert [one.id for one in (await manager.list(limit=1, after=page.next)).conversations] == [painting.id]
    assert [one.id for one in await manager.search_conversations("painting")] == [painting.id]
    with pytest.raises(RevisionConflict):
        await manager.update_metadata(painting.id, "open", expected_revision=0)
    cleared = await manager.update_metadata(painting.id, clear=["subject", "tags"])
    assert (cleared.subject, cleared.tags) == (None, ())
    await manager.delete_conversation(painting.id)
    assert await manager.session("1") is None


@pytest.mark.requirement("004-009")
async def test_contacts_are_rows_too(clients: Any, user: str) -> None:
    client = clients(user)
    manager = compat.ConversationManager(client)
    contact = await manager.clients.add("Robert Johnson", nicknames=["Bob"])
    rows = client.schema("api").table("contacts").select("*").execute().data
    assert [(row["id"], row["name"], row["nicknames"]) for row in rows] == [
        (contact.id, "Robert Johnson", ["Bob"])
    ]
    record = await manager.get_or_create_conversation("s", client_id=contact.id)
    linked = await manager.associate_client(record.id, contact.id, contact.name)
    assert (linked.client_id, linked.client_name) == (contact.id, "Robert Johnson")
    changed = await manager.clients.update(contact.id, company="Johnson & Sons")
    assert (changed.company, changed.name) == ("Johnson & Sons", "Robert Johnson")
    with pytest.raises(ContactNotFound):
        await manager.associate_client(record.id, new_id(), "Nobody")
    await manager.clients.remove(contact.id)
    assert (await manager.get_conversation(record.id)).client_id is None


async def test_messages_are_stored_once(clients: Any, user: str) -> None:
    manager = compat.ConversationManager(clients(user))
    for _ in range(2):
        await manager.add_message("k", "user", "hello", message_id="one")
    assert contents(await manager.messages("k")) == ["hello"]
    with pytest.raises(MessageConflict):
        await manager.add_message("k", "user", "other words", message_id="one")
    assert contents(await manager.messages("k")) == ["hello"]


async def test_a_turn_is_answered_and_stored(clients: Any, user: str) -> None:
    manager = compat.ConversationManager(clients(user))
    specialist = Specialist(loop=AgenticLoop(Scripted("In progress.")))
    supervisor = compat.SupervisorAgent(manager, [specialist])
    assert "In progress." in str(await supervisor.process_query("What's the status?", "session 1"))
    record = await manager.session("session 1")
    assert record is not None
    assert contents(await manager.messages(record.id)) == ["What's the status?", "In progress."]


async def test_what_has_no_view_is_refused(clients: Any, user: str) -> None:
    manager = compat.ConversationManager(clients(user))
    await manager.add_message("k", "user", "hello")
    for refused in (
        manager.remember("The kitchen is blue"),
        manager.purge_expired(),
        manager.update_metadata("k", ttl=timedelta(days=1)),
    ):
        with pytest.raises(InvalidInput, match="PostgreSQL URL"):
            await refused


async def test_a_client_without_a_user_is_refused(clients: Any, user: str) -> None:
    with pytest.raises(InvalidSetting, match="has no user"):
        compat.ConversationManager(clients(None))
    with pytest.raises(NotAllowed):
        await compat.ConversationManager(clients(user, role="anon")).list()
    with pytest.raises((NotAuthenticated, StoreUnavailable)):
        await compat.ConversationManager(clients(user, seconds=-60)).list()


async def test_a_client_that_changes_its_user_is_refused(clients: Any, user: str) -> None:
    client = clients(user)
    manager = compat.ConversationManager(client)
    client.postgrest.auth(token(f"{user} 2"))
    with pytest.raises(InvalidSetting, match="another user"):
        await manager.list()


async def test_a_server_that_is_away_is_unavailable(user: str) -> None:
    from supabase import create_client

    manager = compat.ConversationManager(create_client("http://127.0.0.1:1", token(user)))
    with pytest.raises(StoreUnavailable):
        await manager.list()


@pytest.mark.requirement("004-066", "004-110")
async def test_the_printed_client_is_created_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, server: str, user: str
) -> None:
    monkeypatch.setenv("SUPABASE_URL", server)
    monkeypatch.setenv("SUPABASE_KEY", token(user))
    client = (await run(printed("004-09"), os=os))["get_supabase_client"]()
    manager = compat.ConversationManager(client, context_window_size=20)
    assert (manager.config.context_window_size, manager.owner) == (20, user)
    ours = compat.get_supabase_client()
    assert ours.table("conversations").select("id").execute().data == []
    client.postgrest.aclose()
    ours.postgrest.aclose()
    monkeypatch.delenv("SUPABASE_KEY")
    with pytest.raises(InvalidSetting, match="SUPABASE_KEY"):
        compat.get_supabase_client()


def test_the_documented_example_runs(
    monkeypatch: pytest.MonkeyPatch, server: str, user: str, capsys: pytest.CaptureFixture[str]
) -> None:
    page = Path(aforesaid.__file__).parents[2] / "docs" / "how-to" / "supabase.md"
    example = re.search(r"^```py\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert example is not None
    monkeypatch.setenv("SUPABASE_URL", server)
    monkeypatch.setenv("SUPABASE_KEY", token(user))
    exec(example[1], {})
    assert "painting my house" in capsys.readouterr().out
    gc.collect()  # the example leaves its client open, and the warning belongs to this test


@pytest.mark.requirement("004-111")
async def test_a_watch_of_the_database_reports_what_a_client_writes(
    clients: Any, user: str, database: str
) -> None:
    manager = compat.ConversationManager(clients(user))
    record = await manager.get_or_create_conversation("s")
    async with aforesaid.open(database) as memory, memory.of(user).watch(record.id) as changes:
        await manager.add_message(record.id, "user", "hello")
        change = await asyncio.wait_for(anext(changes), 60)
        assert change.conversation_id == record.id
        assert contents(await memory.of(user).messages(record.id)) == ["hello"]


@pytest.mark.requirement("004-066", "004-067")
async def test_the_printed_queries_run(clients: Any, user: str) -> None:
    client = clients(user)  # its tables are those of `public`, where a view leads to `api`
    manager = compat.ConversationManager(client)
    record = await manager.get_or_create_conversation("s")
    await manager.update_metadata(record.id, subject="Painting a house")
    new = json.loads(printed("004-06"))[0]
    names = await run(
        printed("004-10"), supabase=client, conversation_id=record.id, new_message=new, query="painting"
    )
    assert [row["id"] for row in names["results"].data] == [record.id]
    assert contents(await manager.messages(record.id)) == [new["content"]]
    assert len((await manager.list()).conversations) == 2
