"""Records, messages and contexts are the dicts and lists that the documents show."""

import copy
import json
import pickle
from collections.abc import Mapping, MutableSequence
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

from aforesaid.memory.manager import ConversationManager
from aforesaid.model.contexts import Context
from aforesaid.model.conversations import Conversation, started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.search.conversations import Excerpt, FoundConversation
from aforesaid.testing import FixedClock
from tests.builders import Target

BERLIN = ZoneInfo("Europe/Berlin")


def check_mapping(value: Any) -> None:
    """Every operation of a read-only dict gives what the same dict gives."""
    assert issubclass(type(value), Mapping)
    document = dict(value)
    assert type(document) is dict
    assert json.loads(json.dumps(document)) == document == value == document
    assert (value != document) is False
    assert (list(value), len(value), list(reversed(value))) == (
        list(document),
        len(document),
        list(reversed(document)),
    )
    assert (value.keys(), list(value.values()), value.items()) == (
        document.keys(),
        list(document.values()),
        document.items(),
    )
    assert {**value} == document == value | {} == {} | value
    for key, expected in document.items():
        assert key in value
        assert value[key] == expected == value.get(key)
    assert "no such key" not in value
    assert (value.get("no such key"), value.get("no such key", 7)) == (None, 7)
    with pytest.raises(KeyError, match="no such key"):
        value["no such key"]
    assert value != document | {"one": "more"}
    assert copy.deepcopy(value) == copy.copy(value) == pickle.loads(pickle.dumps(value)) == value


@pytest.mark.parametrize("kind", [Conversation, Message, FoundConversation, Excerpt])
def test_every_method_of_a_mapping_is_there(kind: type) -> None:
    assert issubclass(kind, Mapping)
    methods = [name for name, one in vars(Mapping).items() if callable(one)]
    assert [
        name for name in (*methods, "__getitem__", "__iter__", "__len__") if not hasattr(kind, name)
    ] == []


@pytest.mark.requirement("004-004", "004-012")
def test_a_record_is_a_dict(target: Target) -> None:
    async def scenario(erin: ConversationManager) -> None:
        rec = await erin.get_or_create_conversation("s")
        assert rec["messages"] == []
        await erin.add_message(rec["id"], "user", "What's the status?", content_type="audio")
        rec = await erin.get_or_create_conversation("s")
        assert rec["messages"][0]["content"] == "What's the status?"
        assert rec["messages"][0]["content_type"] == "audio"
        assert "id" in rec
        assert rec.get("subject", "none") is None
        check_mapping(rec)
        check_mapping(rec.messages[0])
        assert rec["messages"] == list(rec.messages)
        for changed in (
            await erin.update_metadata(rec["id"], status="pending", tags=["house"]),
            await erin.get_conversation(rec["id"]),
            (await erin.list()).conversations[0],
        ):
            check_mapping(changed)
            assert (changed["status"], changed["tags"]) == ("pending", ["house"])
            assert json.loads(json.dumps(changed)) == json.loads(json.dumps(changed, indent=1)) == changed

    target.run(scenario)


def test_a_record_is_read_only() -> None:
    record = started(new_id(), now=FixedClock()())
    changes: list[Any] = [
        lambda: record.update(status="closed"),
        lambda: record.__setitem__("status", "closed"),
        lambda: record.pop("status"),
        record.popitem,
        record.clear,
        lambda: record.setdefault("more", 1),
        lambda: record.__delitem__("status"),
        lambda: record.__ior__({"status": "closed"}),
    ]
    for change in changes:
        with pytest.raises(TypeError, match="read-only"):
            change()
    with pytest.raises(AttributeError):
        record.status = "closed"  # type: ignore[misc]
    with pytest.raises(TypeError, match="has the fields"):
        record.with_(colour="blue")
    assert record.status == "open"


def test_what_copies_the_memory_of_a_dict_or_list_misses_nothing() -> None:
    message = Message(role="user", content="hello")
    record = started(new_id(), now=FixedClock()()).with_(messages=(message,))
    copied = msgspec.json.decode(msgspec.json.encode(record))
    assert copied.keys() == record.keys()
    assert copied["messages"][0]["content"] == "hello"
    assert msgspec.json.decode(msgspec.json.encode(Context(messages=(message,))))[0]["content"] == "hello"


@pytest.mark.requirement("004-006")
def test_a_context_is_a_list(target: Target) -> None:
    async def scenario(erin: ConversationManager) -> None:
        rec = await erin.get_or_create_conversation("s")
        assert await erin.load_context(rec["id"]) == []
        for content in ("one", "two", "three"):
            await erin.add_message(rec["id"], "user", content)
        question = {"role": "user", "content": "four"}

        async def context() -> Context:
            return await erin.load_context(rec["id"])

        assert [one["content"] for one in await context() + [question]] == ["one", "two", "three", "four"]
        assert [one["content"] for one in [question] + await context()] == ["four", "one", "two", "three"]
        assert [one["content"] for one in (await context())[-2:]] == ["two", "three"]
        assert [one["content"] for one in reversed(await context())] == ["three", "two", "one"]
        assert json.loads(json.dumps(await context())) == await context()
        assert json.loads(json.dumps(await context() + [question], indent=1)) == [*await context(), question]
        assert await context() == [dict(one) for one in (await context()).messages]
        assert (await context())[0].keys() >= {"role", "content", "timestamp"}
        assert all(type(one) is dict for one in [*await context(), *(await context()).copy()])
        loaded = await context()
        assert copy.deepcopy(loaded) == copy.copy(loaded) == pickle.loads(pickle.dumps(loaded)) == loaded
        assert isinstance(loaded, MutableSequence)

    target.run(scenario)


def test_a_changed_context_changes_no_other(target: Target) -> None:
    async def scenario(erin: ConversationManager) -> None:
        rec = await erin.get_or_create_conversation("s")
        await erin.add_message(rec["id"], "user", "one")
        for _ in range(3):  # the second and third come from a cache, where the store has one
            context = await erin.load_context(rec["id"])
            context.append({"role": "user", "content": "more"})
            assert [one["content"] for one in context] == ["one", "more"]
            context[0]["content"] = "changed"
            assert [one["content"] for one in context] == ["changed", "more"]
            assert [one.content for one in context.messages] == ["one"]

    target.run(scenario)


@pytest.mark.requirement("004-008")
def test_adding_a_message_returns_the_record_with_the_latest_messages(target: Target) -> None:
    async def scenario(erin: ConversationManager) -> None:
        rec = await erin.get_or_create_conversation("s")
        size = erin.config.context_window_size
        for number in range(size + 2):
            updated = await erin.add_message(rec["id"], "user", f"message {number}")
            expected = [f"message {one}" for one in range(number + 1)][-size:]
            assert [message["content"] for message in updated["messages"]] == expected
        assert updated == await erin.get_or_create_conversation("s")
        again = await erin.add_message(rec["id"], "user", "twice", message_id="m")
        assert await erin.add_message(rec["id"], "user", "twice", message_id="m") == again
        assert [message["content"] for message in again["messages"]].count("twice") == 1

    target.run(scenario)


@pytest.mark.requirement("004-011", "004-012")
def test_conversations_are_searched_by_position(target: Target) -> None:
    async def scenario(erin: ConversationManager) -> None:
        client = (await erin.clients.add("Robert Johnson")).id
        rec = await erin.get_or_create_conversation("s", client)
        await erin.update_metadata(rec["id"], status="pending", subject="The Johnson house")
        for number in range(3):
            rec = await erin.add_message(rec["id"], "user", f"Paint number {number}")
        await erin.get_or_create_conversation("other")
        at = rec.last_activity.astimezone(BERLIN)
        before, after = at - timedelta(minutes=1), at + timedelta(minutes=1)
        (found,) = await erin.search_conversations("paint", client, "pending", before, after, 50)
        check_mapping(found)
        assert {key: found[key] for key in rec} == dict(rec)
        assert json.loads(json.dumps([found]))[0]["excerpts"][0]["text"].startswith("Paint number")
        early, late = before.replace(tzinfo=None), after.replace(tzinfo=None)
        for query in ("paint", None):
            found = (
                await erin.search_conversations(query, client, "pending", early, late, 50, timezone=BERLIN)
            )[0]
            assert (found["client_id"], found["last_message_at"]) == (client, rec["last_message_at"])
            assert found["messages"] == rec["messages"]
        assert await erin.search_conversations("paint", client, "pending", late, timezone=BERLIN) == []

    target.run(scenario)
