"""The log: order, idempotence, atomic turns, revisions, tails, pages, content; `load` and `save`."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from aforesaid.contracts import ConversationStore, Position
from aforesaid.errors import InvalidInput, InvalidMessage, MessageConflict, RevisionConflict
from aforesaid.model.conversations import Conversation
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.testing.contract.base import Contract, FixedClock, assistant, contents, new_conversation, user

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

# Values that a text column, a JSON library or a database driver is known to change or refuse.
CONTENTS: list[Any] = [
    "",
    "plain",
    "NUL \0 and half a pair \ud800 and \udfff",
    "e\u0301 \u202e ﷽ 👩‍👩‍👧‍👦 \u0000\u001f\u007f\u2028",
    None,
    True,
    0,
    -(2**80),
    0.1 + 0.2,
    5e-324,
    1.7976931348623157e308,
    [],
    {},
    [[], {}, [None]],
    {"type": "text", "text": "x", "": {"\ud800": ["\0"]}, "unknown": {"deep": [1, {"er": None}]}},
    [{"type": "tool_use", "id": "t1", "name": "lights", "input": {"on": True, "level": 0.5}}],
]


class LogContract(Contract):
    """`append`, `tail`, `page`, `recent` and `rewrite`."""

    async def test_a_turn_reads_back_equal(
        self, store: ConversationStore, conversation: Conversation, clock: FixedClock
    ) -> None:
        turn = [
            user("is the door locked?", content_type="audio", tags=("input", "context:door")),
            Message(
                role="tool", content={"locked": True}, message_id="t1", extra={"name": "lock", "n": None}
            ),
            assistant("Yes.", agent_name="home", dialect="anthropic", tokens={"o200k_base": 2}),
        ]
        appended = await store.append(conversation.id, turn)
        entries = await store.page(conversation.id, limit=10)
        assert entries == list(appended.new)
        assert [entry.message for entry in entries] == [message.with_(timestamp=clock()) for message in turn]
        assert entries[2].message.tokens == {"o200k_base": 2}
        assert {(e.conversation_id, e.revision, e.stored_at) for e in entries} == {
            (conversation.id, 1, clock())
        }

    @pytest.mark.parametrize("content", CONTENTS, ids=lambda content: ascii(content)[:30])
    async def test_content_reads_back_equal(
        self, store: ConversationStore, conversation: Conversation, content: object
    ) -> None:
        await store.append(conversation.id, [user(content, extra={"also": content})])
        (entry,) = await store.tail(conversation.id, limit=1)
        assert entry.message.content == content
        assert type(entry.message.content) is type(content)
        assert entry.message.extra == {"also": content}

    async def test_huge_content_reads_back_equal(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        # Ten megabytes: more than the limits that some drivers and servers have by default.
        huge = "ä€😀x" * 1_000_000
        await store.append(conversation.id, [user(huge)])
        (entry,) = await store.tail(conversation.id, limit=1)
        assert entry.message.content == huge

    @pytest.mark.parametrize(
        "content",
        [float("nan"), float("inf"), b"bytes", {1: 2}, {"a": {"b": object()}}, {1, 2}, datetime.now(UTC)],
    )
    async def test_content_that_is_not_json_is_refused_and_nothing_is_stored(
        self, store: ConversationStore, conversation: Conversation, content: object
    ) -> None:
        with pytest.raises(InvalidMessage, match="content"):
            await store.append(conversation.id, [user("before"), user([content])])
        assert await store.page(conversation.id, limit=10) == []
        assert await store.get(conversation.id) == conversation

    async def test_later_changes_to_appended_content_are_not_stored(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        content = {"list": [1]}
        appended = await store.append(conversation.id, [user(content)])
        content["list"].append(2)
        # A store must not hand out the object that it keeps.
        appended.new[0].message.content["list"] = "changed"
        (entry,) = await store.tail(conversation.id, limit=1)
        entry.message.content["list"].append(3)
        (again,) = await store.tail(conversation.id, limit=1)
        assert again.message.content == {"list": [1]}

    async def test_messages_are_ordered_by_time_not_arrival(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        for minute in (3, 1, 2, 1, 0):
            stamp = NOON + timedelta(minutes=minute)
            await store.append(conversation.id, [user(f"{minute}", timestamp=stamp)])
        entries = await store.page(conversation.id, limit=10)
        assert contents(entries) == ["0", "1", "1", "2", "3"]
        assert [entry.sequence for entry in entries] == [5, 2, 4, 3, 1]
        assert contents(await store.tail(conversation.id, limit=2)) == ["2", "3"]

    async def test_timestamps_keep_their_time_zone(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        stamp = datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=timezone(timedelta(hours=5, minutes=30)))
        await store.append(conversation.id, [user("x", timestamp=stamp)])
        (entry,) = await store.tail(conversation.id, limit=1)
        assert entry.message.timestamp == stamp
        assert entry.message.timestamp is not None
        assert entry.message.timestamp.utcoffset() == timedelta(hours=5, minutes=30)

    async def test_a_utc_offset_with_seconds_keeps_the_instant(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        # Amsterdam until 1937. ISO 8601 has no seconds in offsets, so only the instant can survive.
        stamp = datetime(1930, 1, 1, 12, tzinfo=timezone(timedelta(minutes=19, seconds=32)))
        await store.append(conversation.id, [user("x", timestamp=stamp)])
        (entry,) = await store.tail(conversation.id, limit=1)
        assert entry.message.timestamp == stamp

    async def test_a_clock_set_back_does_not_reorder_messages(
        self, store: ConversationStore, conversation: Conversation, clock: FixedClock
    ) -> None:
        await store.append(conversation.id, [user("first")])
        clock.advance(-timedelta(seconds=30))
        await store.append(conversation.id, [user("second")])
        entries = await store.page(conversation.id, limit=10)
        assert contents(entries) == ["first", "second"]

    async def test_a_message_from_the_future_does_not_affect_later_timestamps(
        self, store: ConversationStore, conversation: Conversation, clock: FixedClock
    ) -> None:
        future = clock() + timedelta(days=365)
        await store.append(conversation.id, [user("future", timestamp=future)])
        await store.append(conversation.id, [user("now")])
        entries = await store.page(conversation.id, limit=10)
        assert contents(entries) == ["now", "future"]
        assert entries[0].message.timestamp == clock()

    async def test_append_updates_the_record(
        self, store: ConversationStore, conversation: Conversation, clock: FixedClock
    ) -> None:
        clock.advance(timedelta(minutes=1))
        appended = await store.append(conversation.id, [user("a"), assistant("b")])
        record = appended.conversation
        assert record == await store.get(conversation.id)
        assert (record.last_message_at, record.last_message_from) == (clock(), "assistant")
        assert (record.unread_count, record.message_count, record.revision) == (2, 2, 1)
        assert record.updated_at == clock()
        assert record.expires_at == clock() + timedelta(days=30)

    async def test_a_message_with_an_older_time_does_not_become_the_last(
        self, store: ConversationStore, conversation: Conversation, clock: FixedClock
    ) -> None:
        await store.append(conversation.id, [assistant("now")])
        old = clock() - timedelta(hours=1)
        appended = await store.append(conversation.id, [user("an hour ago", timestamp=old)])
        record = appended.conversation
        assert (record.last_message_at, record.last_message_from) == (clock(), "assistant")
        assert record.message_count == 2

    async def test_a_message_id_is_stored_once(
        self, store: ConversationStore, conversation: Conversation, clock: FixedClock
    ) -> None:
        first = await store.append(conversation.id, [user("hello", message_id="m1")])
        clock.advance(timedelta(seconds=1))
        second = await store.append(
            conversation.id, [user("hello", message_id="m1"), user("more", message_id="m2")]
        )
        assert second.known == first.new
        assert contents(list(second.new)) == ["more"]
        assert contents(await store.page(conversation.id, limit=10)) == ["hello", "more"]
        assert second.conversation.message_count == 2

    async def test_a_retry_may_contain_tuples_instead_of_lists(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        message = user({"pair": (1, (2, 3))}, message_id="m1")
        first = await store.append(conversation.id, [message])
        again = await store.append(conversation.id, [message])
        assert (len(first.new), len(again.new), len(again.known)) == (1, 0, 1)
        assert again.known[0].message.content == {"pair": [1, [2, 3]]}

    async def test_appending_a_stored_turn_again_changes_nothing(
        self, store: ConversationStore, conversation: Conversation, clock: FixedClock
    ) -> None:
        turn = [user("hello", message_id="m1"), assistant("hi", message_id="m2")]
        first = await store.append(conversation.id, turn, expected_revision=0)
        clock.advance(timedelta(seconds=1))
        again = await store.append(conversation.id, turn, expected_revision=0)
        assert again.conversation == first.conversation
        assert (again.new, again.known) == ((), first.new)

    async def test_a_repeated_id_in_one_turn_is_stored_once(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        message = user("hello", message_id="m1")
        appended = await store.append(conversation.id, [message, message])
        assert len(appended.new) == 1
        assert appended.known == appended.new
        assert appended.conversation.message_count == 1

    async def test_a_used_id_with_other_content_is_refused_and_nothing_is_stored(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        await store.append(conversation.id, [user("hello", message_id="m1")])
        before = await store.get(conversation.id)
        with pytest.raises(MessageConflict, match="m1"):
            await store.append(
                conversation.id, [user("new", message_id="m0"), user("HELLO", message_id="m1"), user("x")]
            )
        assert contents(await store.page(conversation.id, limit=10)) == ["hello"]
        assert await store.get(conversation.id) == before

    async def test_message_ids_are_unique_per_conversation_only(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        other = await store.create(new_conversation(store))
        await store.append(conversation.id, [user("here", message_id="m1")])
        appended = await store.append(other.id, [user("there", message_id="m1")])
        assert len(appended.new) == 1

    async def test_append_checks_the_expected_revision(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        first = await store.append(conversation.id, [user("a")], expected_revision=0)
        assert first.conversation.revision == 1
        with pytest.raises(RevisionConflict) as caught:
            await store.append(conversation.id, [user("b")], expected_revision=0)
        assert (caught.value.expected, caught.value.actual) == (0, 1)
        with pytest.raises(RevisionConflict):
            await store.rewrite(conversation.id, [], expected_revision=0)
        assert contents(await store.page(conversation.id, limit=10)) == ["a"]

    async def test_an_empty_turn_changes_nothing(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        appended = await store.append(conversation.id, [])
        assert appended.conversation == conversation
        assert (appended.new, appended.known) == ((), ())

    async def test_page_and_tail_respect_limit_and_offset(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        for number in range(10):
            await store.append(conversation.id, [user(number)])
        log = list(range(10))
        for limit in (0, 1, 3, 10, 99):
            assert contents(await store.tail(conversation.id, limit=limit)) == log[max(0, 10 - limit) :]
            for offset in (0, 1, 9, 10, 99):
                page = await store.page(conversation.id, limit=limit, offset=offset)
                assert contents(page) == log[offset : offset + limit]

    async def test_recent_reads_back_to_the_first_message(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        turn = [user(number, timestamp=NOON + timedelta(seconds=number // 3)) for number in range(11)]
        await store.append(conversation.id, turn)
        read: list[object] = []
        before: Position | None = None
        while tail := await store.tail(conversation.id, limit=4, before=before):
            read = contents(tail) + read
            before = tail[0].position
        assert read == list(range(11))

    @pytest.mark.parametrize("bad", [(2**70, 1), (1, 2**70), ("x", 1)])
    async def test_invalid_positions_are_refused(
        self, store: ConversationStore, conversation: Conversation, bad: Any
    ) -> None:
        with pytest.raises(InvalidInput, match="before"):
            await store.tail(conversation.id, limit=1, before=Position(*bad))

    @pytest.mark.parametrize("bad", [-1, 1.5, "3", None, True, 2**70])
    async def test_invalid_limits_and_offsets_are_refused(
        self, store: ConversationStore, conversation: Conversation, bad: Any
    ) -> None:
        with pytest.raises(InvalidInput, match="limit"):
            await store.tail(conversation.id, limit=bad)
        with pytest.raises(InvalidInput, match="limit"):
            await store.page(conversation.id, limit=bad)
        with pytest.raises(InvalidInput, match="offset"):
            await store.page(conversation.id, limit=1, offset=bad)

    async def test_rewrite_replaces_the_whole_log(
        self, store: ConversationStore, conversation: Conversation, clock: FixedClock
    ) -> None:
        await store.append(conversation.id, [user("a", message_id="m1"), user("b"), user("c")])
        clock.advance(timedelta(seconds=1))
        rewritten = await store.rewrite(conversation.id, [assistant("other", message_id="m1")])
        (entry,) = await store.page(conversation.id, limit=10)
        assert rewritten.new == (entry,)
        assert entry.message.content == "other"
        assert entry.sequence == 4
        record = rewritten.conversation
        assert record == await store.get(conversation.id)
        assert (record.message_count, record.unread_count, record.revision) == (1, 1, 2)
        assert (record.last_message_at, record.last_message_from) == (clock(), "assistant")

    async def test_rewrite_to_nothing_leaves_an_empty_conversation(
        self, store: ConversationStore, conversation: Conversation, clock: FixedClock
    ) -> None:
        await store.append(conversation.id, [user("a")])
        clock.advance(timedelta(seconds=1))
        record = (await store.rewrite(conversation.id, [])).conversation
        assert record == await store.get(conversation.id)
        assert (record.message_count, record.last_message_at, record.last_message_from) == (0, None, None)
        assert record.updated_at == clock()
        assert await store.page(conversation.id, limit=10) == []

    async def test_a_failed_rewrite_changes_nothing(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        await store.append(conversation.id, [user("a")])
        with pytest.raises(MessageConflict):
            await store.rewrite(conversation.id, [user("x", message_id="same"), user("y", message_id="same")])
        with pytest.raises(InvalidMessage):
            await store.rewrite(conversation.id, [user(float("nan"))])
        assert contents(await store.page(conversation.id, limit=10)) == ["a"]


class HistoriesContract(Contract):
    """`load` and `save`."""

    async def test_save_then_load(self, store: ConversationStore) -> None:
        conversation_id = new_id()
        assert await store.load(conversation_id) == []
        history: list[dict[str, Any]] = [
            {"role": "user", "content": "hi", "mood": {"unknown": True}},
            {"role": "assistant", "content": [{"type": "text", "text": "hello"}]},
        ]
        await store.save(conversation_id, history)
        loaded = await store.load(conversation_id)
        assert [
            {key: got[key] for key in given} for given, got in zip(history, loaded, strict=True)
        ] == history
        assert all(document["timestamp"] for document in loaded)

    async def test_save_of_an_extended_history_appends_only_new_messages(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        await store.append(conversation.id, [user("first")])
        history = await store.load(conversation.id)
        history.append({"role": "assistant", "content": "second"})
        await store.save(conversation.id, history)
        entries = await store.page(conversation.id, limit=10)
        assert [(e.sequence, e.message.content) for e in entries] == [(1, "first"), (2, "second")]

    async def test_save_of_a_different_history_replaces_it(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        await store.append(conversation.id, [user("first"), user("second")])
        await store.save(conversation.id, [{"role": "user", "content": "only"}])
        assert [document["content"] for document in await store.load(conversation.id)] == ["only"]
        await store.save(conversation.id, [])
        assert await store.load(conversation.id) == []

    @pytest.mark.parametrize(
        "bad", [{"content": "no role"}, {"role": "user"}, "text", {"role": "robot", "content": ""}]
    )
    async def test_save_of_a_malformed_history_changes_nothing(
        self, store: ConversationStore, conversation: Conversation, bad: Any
    ) -> None:
        await store.append(conversation.id, [user("first")])
        with pytest.raises(ValueError, match=r"message|role"):
            await store.save(conversation.id, [{"role": "user", "content": "first"}, bad])
        assert [document["content"] for document in await store.load(conversation.id)] == ["first"]

    async def test_load_and_save_raise_aforesaid_errors(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        with pytest.raises(InvalidMessage):
            await store.save(conversation.id, [{"role": "user", "content": b"bytes"}])
