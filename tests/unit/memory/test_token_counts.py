"""A message is counted when it is stored, and never again, on whichever store."""

import asyncio
import logging
import sys
import threading

import pytest

import aforesaid
from aforesaid import ConversationManager, Memory
from aforesaid._internal.bounded import BoundedDict
from aforesaid.dialects import meaning_of
from aforesaid.errors import AforesaidError
from aforesaid.model.messages import Message
from aforesaid.stores.memory import InMemoryBackend
from aforesaid.tokens import ExactCounter, count_message, counter_for, default_counter, messages, ready
from aforesaid.windows import WindowPolicy

BUDGET = WindowPolicy(max_tokens=200, prompt_tokens=20)
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "set_light", "arguments": '{"on": true}'}}
    ],
}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "the light in the hall is on"}


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every text that is counted exactly from now on; nothing is remembered from before."""
    texts: list[str] = []
    count_text = ExactCounter.count_text

    def noticed(self: ExactCounter, text: str) -> int:
        texts.append(text)
        return count_text(self, text)

    monkeypatch.setattr(ExactCounter, "count_text", noticed)
    monkeypatch.setattr(messages, "_cache", BoundedDict(messages.CACHE_SIZE))
    return texts


async def talked(erin: ConversationManager, turns: int = 12) -> str:
    """A conversation with questions, tool loops and answers."""
    conversation = await erin.get_or_create_conversation("kitchen")
    for number in range(turns):
        async with erin.turn(conversation.id) as turn:
            turn.user(f"is the light {number} on?")
            turn.add([CALL, RESULT])
            turn.assistant([{"type": "text", "text": f"number {number} is on"}])
    return conversation.id


async def test_loading_a_window_with_a_budget_counts_nothing(memory: Memory, counted: list[str]) -> None:
    conversation_id = await talked(memory.of("erin"))
    counted.clear()
    context = await memory.of("erin").load_context(conversation_id, policy=BUDGET)
    assert counted == []
    assert context.report.counter == "o200k_base"
    assert context.report.left_out
    assert len(context) > 4


async def test_what_is_stored_and_used_is_the_exact_count(memory: Memory) -> None:
    erin = memory.of("erin")
    conversation_id = await talked(erin, turns=2)
    messages = await erin.messages(conversation_id)
    exact = [count_message(ExactCounter("o200k_base"), m, meaning_of(m)) for m in messages]
    assert [message.tokens for message in messages] == [{"o200k_base": count} for count in exact]
    context = await erin.load_context(conversation_id, policy=WindowPolicy(max_tokens=10_000))
    assert context.report.tokens.total == sum(exact)


async def test_without_a_budget_the_report_adds_up_what_was_stored(
    memory: Memory, counted: list[str]
) -> None:
    erin = memory.of("erin")
    conversation_id = await talked(erin)
    counted.clear()
    context = await erin.load_context(conversation_id)
    assert context.report.tokens.total == sum(message.tokens["o200k_base"] for message in context.messages)
    assert counted == []


async def test_a_count_of_another_counter_is_not_taken_for_ones_own(
    memory: Memory, counted: list[str]
) -> None:
    """Messages that were stored for another model are counted once in a process, and both counts hold."""
    erin = memory.of("erin")
    conversation_id = await talked(erin.counting_with(counter_for("gpt-4")), turns=2)
    policy = WindowPolicy(max_tokens=10_000)
    counted.clear()
    first = await erin.load_context(conversation_id, policy=policy)
    assert counted
    counted.clear()
    assert await memory.of("erin").load_context(conversation_id, policy=policy) == first
    theirs = await erin.counting_with(counter_for("gpt-4")).load_context(conversation_id, policy=policy)
    assert counted == []
    assert (first.report.counter, theirs.report.counter) == ("o200k_base", "cl100k_base")
    stored = await erin.messages(conversation_id)
    assert theirs.report.tokens.total == sum(message.tokens["cl100k_base"] for message in stored)
    assert first.report.tokens.total == sum(
        count_message(ExactCounter("o200k_base"), message, meaning_of(message)) for message in stored
    )


async def test_what_an_estimator_learns_is_applied_to_what_was_counted_before(
    memory: Memory, counted: list[str]
) -> None:
    erin = memory.of("erin").counting_with(counter_for("claude-sonnet-4-5"))
    conversation_id = await talked(erin, turns=2)
    policy = WindowPolicy(max_tokens=10_000)
    before = await erin.load_context(conversation_id, policy=policy)
    usage = {"input_tokens": 2 * before.report.tokens.total}
    assert erin.calibrate(before, usage) == 2.0
    counted.clear()
    after = await erin.load_context(conversation_id, policy=policy)
    assert counted == []
    assert (before.report.counter, after.report.counter) == ("estimate", "estimate@2.00")
    assert after.report.tokens.total == 2 * before.report.tokens.total
    assert erin.calibrate(after, usage) == 2.0, "now it is right"
    await erin.add_message(conversation_id, "user", "thank you")
    assert all(set(message.tokens) == {"estimate"} for message in await erin.messages(conversation_id))


async def test_an_exact_counter_has_nothing_to_learn(memory: Memory) -> None:
    erin = memory.of("erin")
    conversation_id = await talked(erin, turns=1)
    assert erin.calibrate(await erin.load_context(conversation_id), {"input_tokens": 9}) is None


async def test_what_is_pending_is_counted_once_however_often_it_is_looked_at(
    memory: Memory, counted: list[str]
) -> None:
    erin = memory.of("erin")
    conversation_id = await talked(erin, turns=1)
    async with erin.turn(conversation_id) as turn:
        turn.user("and the one in the hall?")
        counted.clear()
        first = await turn.load_context()
        assert counted == ["and the one in the hall?"]
        assert await turn.load_context() == first
        assert len(counted) == 1


class Slow:
    """A counter that takes its time to load."""

    name = "slow"

    def __init__(self) -> None:
        self.may_go_on = threading.Event()
        self.loading = threading.Event()

    def count_text(self, text: str) -> int:
        self.loading.set()
        assert self.may_go_on.wait(timeout=60)
        return len(text)


async def test_opening_does_not_wait_for_the_counter_and_the_first_message_does() -> None:
    counter = Slow()
    async with Memory(
        InMemoryBackend(), models=aforesaid.Models(tokenizer=counter, embedder=None, preload=True)
    ) as memory:
        erin = memory.of("erin")
        conversation = await erin.get_or_create_conversation("kitchen")
        assert await asyncio.to_thread(counter.loading.wait, 60), "loading began without being asked"
        adding = asyncio.create_task(erin.add_message(conversation.id, "user", "hello"))
        for _ in range(5):
            await asyncio.sleep(0)  # the loop goes on
        assert not adding.done()
        counter.may_go_on.set()
        await adding
        (message,) = await erin.messages(conversation.id)
        assert message.tokens == {"slow": 3 + len("user") + len("hello")}


async def test_a_memory_can_be_closed_while_its_counter_loads() -> None:
    counter = Slow()
    async with Memory(
        InMemoryBackend(), models=aforesaid.Models(tokenizer=counter, embedder=None, preload=True)
    ):
        assert await asyncio.to_thread(counter.loading.wait, 60)
    counter.may_go_on.set()


async def test_a_memory_for_a_moment_loads_nothing_that_it_does_not_need() -> None:
    counter = Slow()
    async with Memory(
        InMemoryBackend(), models=aforesaid.Models(tokenizer=counter, preload=False, embedder=None)
    ) as memory:
        await memory.of("erin").get_or_create_conversation("kitchen")
    assert not counter.loading.is_set()


class Broken:
    """A counter that cannot be loaded."""

    name = "broken"

    def __init__(self) -> None:
        self.tried = 0

    def count_text(self, text: str) -> int:
        self.tried += 1
        raise AforesaidError("the ranks are not those that were expected")


async def test_what_cannot_be_counted_is_stored_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    counter = Broken()
    erin = ConversationManager(counter=counter)
    conversation = await erin.get_or_create_conversation("kitchen")
    with caplog.at_level(logging.WARNING):
        await erin.add_message(conversation.id, "user", "hello")
        await erin.add_message(conversation.id, "user", "anybody there?")
    assert "messages are not counted: the ranks are not those" in caplog.text
    assert [message.tokens for message in await erin.messages(conversation.id)] == [{}, {}]
    context = await erin.load_context(conversation.id)
    assert (len(context), context.report.counter, context.report.tokens.total) == (2, None, 0)
    with pytest.raises(AforesaidError, match="the ranks are not those"):
        await erin.load_context(conversation.id, policy=BUDGET)
    assert counter.tried == 1, "it is not tried again and again"


async def test_without_tiktoken_an_estimate_is_stored_and_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    assert default_counter().name == "estimate_by_characters"
    async with aforesaid.open() as memory:
        erin = memory.of("erin")
        conversation_id = await talked(erin, turns=1)
        messages = await erin.messages(conversation_id)
        assert all(set(message.tokens) == {"estimate_by_characters"} for message in messages)
        monkeypatch.setattr("aforesaid.tokens.messages.count", None)  # nothing may call it now
        context = await erin.load_context(conversation_id, policy=BUDGET)
        assert context.report.tokens.total == 20 + sum(
            message.tokens["estimate_by_characters"] for message in messages
        )


async def test_a_count_is_of_the_words_it_was_made_for() -> None:
    message = Message(role="user", content="hello", tokens={"o200k_base": 7})
    assert message.with_(content="goodbye").tokens == {}
    assert message.with_(tags=("greeting",)).tokens == {"o200k_base": 7}
    assert message.with_(content="bye", tokens={"o200k_base": 5}).tokens == {"o200k_base": 5}


async def test_only_so_many_counts_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "_cache", BoundedDict(3))
    await ready(default_counter())
    cost = messages.costs_by(default_counter())
    words = [Message(role="user", content=f"hello {number}") for number in range(10)]
    assert [cost(message) for message in words] == [cost(message) for message in words]
    assert len(messages._cache) == 3


def test_a_picture_is_not_read_to_be_recognised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "_cache", BoundedDict(messages.CACHE_SIZE))
    source = {"type": "base64", "media_type": "image/png", "data": "A" * messages.LARGEST_BLOCKS}
    picture = Message(role="user", content=[{"type": "image", "source": source}], dialect="anthropic")
    cost = messages.costs_by(ExactCounter("o200k_base"))
    assert cost(picture) == cost(picture) > 1000
    assert messages._cache == {}


def test_a_number_of_too_many_digits_to_be_remembered_is_counted() -> None:
    cost = messages.costs_by(ExactCounter("o200k_base"))
    message = Message(role="tool", content={"found": 10**400})
    assert cost(message) == cost(message) > 100
