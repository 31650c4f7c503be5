"""The manager: the one door, and what is its own beyond the store."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import aforesaid
from aforesaid.contracts import ConversationStore, Entry
from aforesaid.errors import (
    AforesaidError,
    ConversationNotFound,
    InvalidId,
    InvalidInput,
    MessageConflict,
    NothingToSend,
    StoreUnavailable,
)
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.conversations import Conversation
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.settings import ConversationConfig
from aforesaid.stores.memory import InMemoryBackend
from aforesaid.testing import FixedClock
from aforesaid.testing.validity import problems
from aforesaid.windows import WindowPolicy
from tests.builders import FEATURE_TARGETS, empty_url
from tests.servers.remote import open_at


@pytest.fixture(params=FEATURE_TARGETS)
async def memory(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[aforesaid.Memory]:
    url = empty_url(request.param, tmp_path, request)
    async with open_at(url, clock=FixedClock(), sweep_every=None) as opened:
        yield opened


@pytest.fixture
def erin(memory: aforesaid.Memory) -> ConversationManager:
    return memory.of("erin")


@pytest.fixture
async def kitchen(erin: ConversationManager) -> Conversation:
    return await erin.get_or_create_conversation("kitchen")


class TestTurns:
    async def test_a_turn_is_stored_when_its_block_ends(
        self, erin: ConversationManager, kitchen: Conversation
    ) -> None:
        async with erin.turn(kitchen.id) as turn:
            turn.user("is it raining?", content_type="audio")
            assert await erin.messages(kitchen.id) == []
            turn.assistant("No.", agent_name="weather")
        assert [m.content for m in await erin.messages(kitchen.id)] == ["is it raining?", "No."]
        assert turn.stored is not None
        assert len(turn.stored.new) == 2

    @pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt, asyncio.CancelledError])
    async def test_a_turn_that_fails_leaves_the_history_as_it_was(
        self, erin: ConversationManager, kitchen: Conversation, failure: type[BaseException]
    ) -> None:
        before = await erin.get_conversation(kitchen.id)
        with pytest.raises(failure):
            async with erin.turn(kitchen.id) as turn:
                turn.user("lost")
                raise failure
        assert await erin.messages(kitchen.id) == []
        assert await erin.get_conversation(kitchen.id) == before

    async def test_a_cancelled_turn_leaves_nothing(
        self, erin: ConversationManager, kitchen: Conversation
    ) -> None:
        started = asyncio.Event()

        async def answer() -> None:
            async with erin.turn(kitchen.id) as turn:
                turn.user("question")
                started.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(answer())
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await erin.messages(kitchen.id) == []

    async def test_an_empty_turn_stores_nothing(
        self, erin: ConversationManager, kitchen: Conversation
    ) -> None:
        async with erin.turn(kitchen.id) as turn:
            pass
        assert turn.stored is None

    async def test_a_turn_that_is_over_takes_nothing_more(
        self, erin: ConversationManager, kitchen: Conversation
    ) -> None:
        async with erin.turn(kitchen.id) as turn:
            turn.user("x")
        with pytest.raises(AforesaidError, match="over"):
            turn.user("y")

    async def test_the_context_of_a_turn_has_what_was_said_in_it(
        self, erin: ConversationManager, kitchen: Conversation
    ) -> None:
        await erin.add_message(kitchen.id, "user", "earlier")
        await erin.add_message(kitchen.id, "assistant", "yes?")
        async with erin.turn(kitchen.id) as turn:
            turn.user("now")
            assert (await turn.request("openai_chat"))["messages"] == [
                {"role": "user", "content": "earlier"},
                {"role": "assistant", "content": "yes?"},
                {"role": "user", "content": "now"},
            ]
            turn.assistant("done")

    async def test_a_turn_for_an_unknown_conversation_is_refused(self, erin: ConversationManager) -> None:
        with pytest.raises(ConversationNotFound):
            async with erin.turn(new_id()) as turn:
                turn.user("x")


class TestMessages:
    async def test_adding_returns_the_record_as_it_is_then(
        self, erin: ConversationManager, kitchen: Conversation
    ) -> None:
        record = await erin.add_message(kitchen.id, "user", "hello")
        assert record.with_(messages=()) == await erin.get_conversation(kitchen.id)
        assert (record["message_count"], record["messages"][0]["content"]) == (1, "hello")
        with pytest.raises(KeyError):
            record["nothing"]

    async def test_a_message_sent_twice_is_stored_once(
        self, erin: ConversationManager, kitchen: Conversation
    ) -> None:
        for _ in range(2):
            await erin.add_message(kitchen.id, "user", "hello", message_id="m1")
        with pytest.raises(MessageConflict):
            await erin.add_message(kitchen.id, "user", "other", message_id="m1")
        assert len(await erin.messages(kitchen.id)) == 1

    async def test_every_message_gets_an_id(self, erin: ConversationManager, kitchen: Conversation) -> None:
        await erin.add_message(kitchen.id, "user", "hello")
        await erin.add_message(kitchen.id, "user", "hello")
        ids = {message.message_id for message in await erin.messages(kitchen.id)}
        assert len(ids) == 2
        assert None not in ids

    @pytest.mark.parametrize(
        ("arguments", "named"),
        [
            ({"role": "robot", "content": "x"}, "role"),
            ({"role": "user", "content": object()}, "content|message"),
            ({"role": "user", "content": "x", "timestamp": "yesterday"}, "timestamp"),
            ({"role": "user", "content": "x", "tags": "abc"}, "tags"),
            ({"role": "user", "content": "x", "content_type": "smell"}, "content_type"),
        ],
    )
    async def test_bad_input_is_refused_by_name_and_nothing_is_stored(
        self, erin: ConversationManager, kitchen: Conversation, arguments: dict[str, Any], named: str
    ) -> None:
        with pytest.raises(InvalidInput, match=named):
            await erin.add_message(kitchen.id, **arguments)
        assert await erin.messages(kitchen.id) == []

    async def test_clearing_removes_the_messages_and_keeps_the_record(
        self, erin: ConversationManager, kitchen: Conversation
    ) -> None:
        await erin.update_metadata(kitchen.id, subject="kept")
        await erin.add_message(kitchen.id, "user", "gone")
        record = await erin.clear_history(kitchen.id)
        assert (record.subject, record.message_count) == ("kept", 0)
        assert await erin.messages(kitchen.id) == []
        assert (await erin.get_or_create_conversation("kitchen")).id == kitchen.id


class TestMetadata:
    async def test_none_leaves_a_field_and_clear_empties_it(
        self, erin: ConversationManager, kitchen: Conversation
    ) -> None:
        await erin.update_metadata(kitchen.id, subject="roof", tags=["a"], notes="n", assigned_to="sam")
        record = await erin.update_metadata(kitchen.id, status="pending")
        assert (record.subject, record.tags, record.notes) == ("roof", ("a",), "n")
        record = await erin.update_metadata(kitchen.id, clear=["subject", "tags"])
        assert (record.subject, record.tags, record.notes) == (None, (), "n")
        with pytest.raises(InvalidInput, match="clear must be one of"):
            await erin.update_metadata(kitchen.id, clear=["id"])

    async def test_reading_marks_as_read(self, erin: ConversationManager, kitchen: Conversation) -> None:
        await erin.add_message(kitchen.id, "user", "x")
        assert (await erin.mark_read(kitchen.id)).unread_count == 0

    async def test_a_client_id_is_a_uuid(self, erin: ConversationManager, kitchen: Conversation) -> None:
        with pytest.raises(InvalidId, match="client_id"):
            await erin.associate_client(kitchen.id, "johnson", "Johnson")

    async def test_a_client_given_later_is_linked_but_never_replaced(self, erin: ConversationManager) -> None:
        first, second = [(await erin.clients.add(name)).id for name in ("Ann", "Bea")]
        await erin.get_or_create_conversation("s")
        assert (await erin.get_or_create_conversation("s", client_id=first)).client_id == first
        assert (await erin.get_or_create_conversation("s", client_id=second)).client_id == first

    @pytest.mark.parametrize("channel", ["", "smoke signals", "x" * 33, None])
    async def test_a_channel_outside_its_set_is_refused(
        self, erin: ConversationManager, channel: Any
    ) -> None:
        with pytest.raises(InvalidInput, match="channel must be "):
            await erin.get_or_create_conversation("s", channel=channel)
        assert (await erin.list()).conversations == ()


class TestLifetimes:
    async def test_the_default_lifetime_is_thirty_days(self, memory: aforesaid.Memory) -> None:
        erin = memory.of("erin")
        record = await erin.get_or_create_conversation("s")
        assert record.ttl == timedelta(days=30)
        assert record.expires_at == record.created_at + timedelta(days=30)

    async def test_a_session_silent_for_too_long_starts_afresh(self) -> None:
        clock = FixedClock()
        async with aforesaid.open(clock=clock, idle_after=timedelta(minutes=30), ttl=None) as memory:
            erin = memory.of("erin")
            first = await erin.get_or_create_conversation("chat")
            clock.advance(timedelta(minutes=30))
            assert (await erin.get_or_create_conversation("chat")).id == first.id
            assert await erin.session("chat") == first
            clock.advance(timedelta(minutes=1))
            assert await erin.session("chat") is None
            second = await erin.get_or_create_conversation("chat")
            assert second.id != first.id
            assert await erin.get_conversation(first.id) == first

    async def test_purging_counts(self) -> None:
        clock = FixedClock()
        async with aforesaid.open(clock=clock, ttl=timedelta(hours=1)) as memory:
            for owner in ("erin", "sam"):
                await memory.of(owner).get_or_create_conversation("s")
            clock.advance(timedelta(hours=1))
            assert await memory.of("erin").purge_expired() == 1
            assert await memory.purge_expired() == 1


class Unloaded:
    """A counter that is not loaded: it must not be asked."""

    name = "words"

    def __init__(self) -> None:
        self.asked = 0

    def count_text(self, text: str) -> int:
        self.asked += 1
        return len(text.split())


class BrokenStore:
    """A store whose reads fail a number of times, in front of a real one."""

    def __init__(self, store: ConversationStore, *, failures: int) -> None:
        self._store = store
        self.failures = failures

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def recent(self, *args: Any, **kwargs: Any) -> list[Entry]:
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("the database is away")
        return await self._store.recent(*args, **kwargs)


class TestContexts:
    async def test_an_unknown_conversation_gives_an_empty_context_and_says_so(
        self, erin: ConversationManager
    ) -> None:
        context = await erin.load_context(new_id())
        assert len(context) == 0
        assert "there is no conversation" in context.report.warnings[0]

    async def test_a_malformed_id_is_an_error(self, erin: ConversationManager) -> None:
        with pytest.raises(InvalidId, match="conversation_id"):
            await erin.load_context("kitchen\0")

    @pytest.mark.parametrize(("failures", "degraded"), [(1, False), (2, True)])
    async def test_a_store_that_fails_is_asked_twice_and_never_blocks_the_agent(
        self, failures: int, degraded: bool
    ) -> None:
        store = InMemoryBackend().of("erin")
        erin = ConversationManager(BrokenStore(store, failures=failures))
        conversation = await erin.get_or_create_conversation("s")
        await erin.add_message(conversation.id, "user", "hello")
        context = await erin.load_context(conversation.id)
        assert context.report.degraded is degraded
        assert [m["content"] for m in context] == ([] if degraded else ["hello"])
        if degraded:
            assert context.report.warnings == ("the database is away",)
            assert context.report.nothing_to_send == "the database is away"

    async def test_what_is_being_said_is_a_valid_request_also_while_the_store_is_away(self) -> None:
        store = InMemoryBackend().of("erin")
        conversation = await ConversationManager(store).get_or_create_conversation("s")
        erin = ConversationManager(BrokenStore(store, failures=2))
        call = {"type": "tool_use", "id": "c1", "name": "switch", "input": {}}
        pending = erin.intake.messages([{"role": "user", "content": "lights on"}])
        pending += erin.intake.messages([{"role": "assistant", "content": [call]}], dialect="anthropic")
        request = await erin.load_request(conversation.id, "anthropic", pending=pending)
        assert problems(request, "anthropic") == []
        assert request["messages"][0] == {"role": "user", "content": "lights on"}

    async def test_a_request_without_anybodys_words_is_refused_before_it_is_sent(
        self, erin: ConversationManager, kitchen: Conversation
    ) -> None:
        with pytest.raises(NothingToSend, match="has no message that a model could answer"):
            await erin.load_request(kitchen.id, "anthropic")
        question = erin.intake.message("user", "is anybody there?")
        request = await erin.load_request(kitchen.id, "anthropic", pending=[question])
        assert request["messages"] == [{"role": "user", "content": "is anybody there?"}]
        await erin.append(kitchen.id, [question])
        policy = WindowPolicy(tags=("rare",))
        assert len(await erin.load_context(kitchen.id, policy=policy)) == 0
        with pytest.raises(NothingToSend, match="the tags rare"):
            await erin.load_request(kitchen.id, "openai_responses", policy=policy)
        with pytest.raises(NothingToSend, match="there is no conversation"):
            await erin.load_request(new_id(), "plain")

    async def test_a_turn_without_messages_has_no_request(
        self, erin: ConversationManager, kitchen: Conversation
    ) -> None:
        turn = erin.turn(kitchen.id)
        turn.system("be kind")
        with pytest.raises(NothingToSend):
            await turn.request("anthropic")
        turn.user("hello")
        assert (await turn.request("anthropic"))["messages"] == [{"role": "user", "content": "hello"}]

    @pytest.mark.parametrize("policy", [WindowPolicy(max_messages=5), WindowPolicy(max_tokens=50)])
    async def test_what_was_counted_when_it_was_stored_needs_no_counter(self, policy: WindowPolicy) -> None:
        """A process that has just started need not wait until its counter is loaded."""
        store = InMemoryBackend().of("erin")
        earlier = ConversationManager(store, counter=Unloaded())
        conversation = await earlier.get_or_create_conversation("s")
        await earlier.add_message(conversation.id, "user", "three words here")
        expected = await earlier.load_context(conversation.id, policy=policy)
        counter = Unloaded()
        erin = ConversationManager(store, counter=counter)
        assert await erin.load_context(conversation.id, policy=policy) == expected
        assert counter.asked == 0
        pending = [Message(role="user", content="not counted yet")]
        assert len(await erin.load_context(conversation.id, policy=policy, pending=pending)) == 2
        assert counter.asked

    async def test_a_window_of_no_size_is_the_whole_conversation(self) -> None:
        erin = ConversationManager(config=ConversationConfig(context_window_size=0))
        record = await erin.get_or_create_conversation("s1")
        for number in range(30):
            await erin.add_message(record.id, "user", str(number))
        assert len(await erin.load_context(record.id)) == 30
        assert len((await erin.get_or_create_conversation("s1")).messages) == 30

    async def test_agents_can_be_denied_their_own_view(self) -> None:
        erin = ConversationManager(config=ConversationConfig(enable_agent_filtering=False))
        conversation = await erin.get_or_create_conversation("s")
        await erin.add_message(conversation.id, "assistant", "a", agent_name="one")
        assert len(await erin.load_context(conversation.id, agent_name="two")) == 1

    async def test_a_context_reads_as_a_list(self, erin: ConversationManager, kitchen: Conversation) -> None:
        for number in range(3):
            await erin.add_message(kitchen.id, "user", number)
        context = await erin.load_context(kitchen.id)
        assert (len(context), context[0]["content"], context[-1]["content"]) == (3, 0, 2)
        assert [message["content"] for message in context[1:]] == [1, 2]


async def test_without_a_store_everything_is_in_memory() -> None:
    erin = ConversationManager()
    conversation = await erin.get_or_create_conversation("s")
    await erin.add_message(conversation.id, "user", "x")
    assert len(await erin.messages(conversation.id)) == 1


async def test_a_memory_can_be_awaited_and_closed_twice() -> None:
    memory = await aforesaid.open()
    await memory.of("erin").get_or_create_conversation("s")
    assert [owner async for owner in memory.owners()] == ["erin"]
    await memory.close()
    await memory.close()
