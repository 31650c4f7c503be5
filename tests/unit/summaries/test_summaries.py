"""Summaries of what fell out of a window: made in the background, kept, and shown in its place."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import aforesaid
from aforesaid.agents import AgentSummarizer
from aforesaid.contracts import Document
from aforesaid.dialects import DialectName
from aforesaid.errors import (
    AgentUnavailable,
    ConversationNotFound,
    DocumentConflict,
    InvalidSetting,
    StoreClosed,
    StoreDamaged,
)
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.messages import Message
from aforesaid.settings import ConversationConfig
from aforesaid.summaries.service import AHEAD, KIND, Summary, decode_summary, heading, shortened
from aforesaid.summaries.summarizers import ExtractiveSummarizer, extract
from aforesaid.testing import FixedClock
from aforesaid.testing.validity import problems
from aforesaid.windows import WindowPolicy
from tests.builders import FEATURE_STORES, empty_url
from tests.doubles import Scripted
from tests.servers.remote import BEHIND, open_at

TEN = WindowPolicy(max_messages=10)
DIALECTS = ("plain", "anthropic", "openai_chat", "openai_responses")


@pytest.fixture(params=FEATURE_STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return empty_url(request.param, tmp_path, request)


@pytest.fixture
async def memory(url: str) -> AsyncIterator[aforesaid.Memory]:
    async with aforesaid.open(
        url,
        retention=aforesaid.Retention(sweep_every=None),
        models=aforesaid.Models(embedder=None, summarizer="extract"),
    ) as memory:
        yield memory


@pytest.fixture
def erin(memory: aforesaid.Memory) -> ConversationManager:
    return memory.of("erin")


async def talked(manager: ConversationManager, turns: int, *, start: int = 0) -> str:
    record = await manager.get_or_create_conversation("kitchen")
    said: list[Message] = []
    for number in range(start, start + turns):
        said.append(Message(role="user", content=f"Plant number {number} stands in room {number}."))
        said.append(Message(role="assistant", content="All right."))
    await manager.append(record.id, said)
    return record.id


async def shown(manager: ConversationManager, conversation_id: str, policy: WindowPolicy = TEN) -> Any:
    """The context, when its summary was made."""
    await manager.load_context(conversation_id, policy=policy)
    await manager._summary_resources.settled()
    return await manager.load_context(conversation_id, policy=policy)


async def test_a_close_that_is_cancelled_ends_what_runs_and_closes_the_store() -> None:
    class Endless:
        name = "endless"

        async def summarize(self, earlier: str, messages: Sequence[Message], *, max_tokens: int) -> str:
            await asyncio.Event().wait()
            raise AssertionError("nobody sets it")

    memory = await aforesaid.open("memory:", models=aforesaid.Models(embedder=None, summarizer=Endless()))
    conversation_id = await talked(memory.of("erin"), 20)
    await memory.of("erin").load_context(conversation_id, policy=TEN)
    assert "aforesaid-summary" in {task.get_name() for task in asyncio.all_tasks()}
    closing = asyncio.create_task(memory.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert not [name for task in asyncio.all_tasks() if "aforesaid" in (name := task.get_name())]
    with pytest.raises(StoreClosed):
        await memory.of("erin").get_conversation(conversation_id)


async def test_what_falls_out_of_the_window_is_summarized_in_its_place(erin: ConversationManager) -> None:
    conversation_id = await talked(erin, 20)
    context = await shown(erin, conversation_id)
    first, *rest = context.messages
    assert (first.role, first.tags) == ("system", ("summary",))
    assert first.content.startswith("Summary of the first 40 messages of this conversation (by extract).")
    assert "Plant number 3 stands in room 3." in first.content
    assert len(rest) == 10
    assert context.report.summarized == 30 + AHEAD
    assert context.report.tokens.summary > 0
    summary = await erin.summary(conversation_id)
    assert summary is not None
    assert (summary.messages, summary.by) == (40, "extract")


@pytest.mark.requirement("004-092")
async def test_it_is_in_the_metadata_of_the_conversation(erin: ConversationManager) -> None:
    conversation_id = await talked(erin, 20)
    assert (await erin.get_conversation(conversation_id))["summary"] is None
    summary = await erin.summarize(conversation_id, policy=TEN)
    assert summary is not None
    for record in (
        await erin.get_conversation(conversation_id),
        await erin.get_or_create_conversation("kitchen"),
    ):
        assert record["summary"] == record.summary == summary.text
    (first, *_) = await erin.messages(conversation_id, limit=1, offset=0)
    await erin.redact(conversation_id, str(first.message_id))
    assert (await erin.get_conversation(conversation_id)).summary is None


async def test_metadata_are_read_without_a_damaged_summary(erin: ConversationManager) -> None:
    conversation_id = await talked(erin, 1)
    await erin.store.put_document(KIND, "extract", b"{", conversation_id=conversation_id)
    assert (await erin.get_conversation(conversation_id)).summary is None


async def test_a_window_that_shows_everything_needs_none(erin: ConversationManager) -> None:
    conversation_id = await talked(erin, 5)
    context = await shown(erin, conversation_id)
    assert (len(context.messages), context.report.summarized) == (10, 0)
    assert await erin.summarize(conversation_id, policy=TEN) is None
    assert await erin.summary(conversation_id) is None


async def test_it_stays_while_the_window_moves_on_a_little_and_then_grows(erin: ConversationManager) -> None:
    conversation_id = await talked(erin, 10)
    summary = await erin.summarize(conversation_id, policy=TEN)
    assert summary is not None
    assert summary.messages == 20
    texts = set()
    for turn in range(5):
        await talked(erin, 1, start=10 + turn)
        context = await shown(erin, conversation_id)
        texts.add(str(context.messages[0].content))
    assert len(texts) == 1, "the same, byte for byte, for five turns"
    await talked(erin, 1, start=15)
    context = await shown(erin, conversation_id)
    assert context.report.summarized == 22 + AHEAD
    assert "Plant number 1 " in str(context.messages[0].content), "what was in it before"


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_it_is_valid_in_every_dialect_beside_notes(
    erin: ConversationManager, dialect: DialectName
) -> None:
    await erin.remember("I like tea")
    conversation_id = await talked(erin, 20)
    context = await shown(erin, conversation_id)
    assert [message.tags for message in context.messages[:2]] == [("notes",), ("summary",)]
    await erin.append(conversation_id, [Message(role="user", content="And now?")])
    request = await erin.load_request(conversation_id, dialect, policy=TEN)
    assert problems(request, dialect) == []
    assert "Summary of the first" in str(request)


async def test_it_counts_in_the_budget_of_the_whole_request(erin: ConversationManager) -> None:
    conversation_id = await talked(erin, 60)
    policy = WindowPolicy(max_tokens=400)
    context = await shown(erin, conversation_id, policy)
    use = context.report.tokens
    assert 0 < use.summary <= 100 + 8, "a quarter, and what a message costs by itself"
    assert use.total <= 400
    assert use.prompt == 0


async def test_windows_of_a_part_of_the_conversation_have_none(erin: ConversationManager) -> None:
    conversation_id = await talked(erin, 20)
    await shown(erin, conversation_id)
    for context in (
        await erin.load_context(conversation_id, "home_agent", policy=TEN),
        await erin.load_context(conversation_id, policy=WindowPolicy(max_messages=10, summary_tokens=0)),
    ):
        assert context.report.summarized == 0


async def test_it_goes_with_a_message_that_is_redacted(erin: ConversationManager) -> None:
    conversation_id = await talked(erin, 20)
    await shown(erin, conversation_id)
    (first, *_) = await erin.messages(conversation_id, limit=1, offset=0)
    assert first.message_id is not None
    await erin.redact(conversation_id, first.message_id)
    assert await erin.summary(conversation_id) is None
    summary = await erin.summarize(conversation_id, policy=TEN)
    assert summary is not None
    assert "number 0 " not in summary.text


@pytest.mark.parametrize(
    ("tag", "tagged", "policy"),
    [
        ("ephemeral", range(0, 100, 2), TEN),
        ("important", range(50, 67), WindowPolicy(max_messages=30, look_back=40)),
    ],
    ids=["ephemeral", "important"],
)
async def test_what_goes_before_its_turn_or_stays_beyond_it_leaves_no_gap(
    erin: ConversationManager, tag: str, tagged: range, policy: WindowPolicy
) -> None:
    record = await erin.get_or_create_conversation("kitchen")
    said = [Message(role="user", content=f"Plant number {n}.") for n in range(100)]
    tags = [(tag,) if n in tagged else () for n in range(100)]
    await erin.append(record.id, [one.with_(tags=its) for one, its in zip(said, tags, strict=True)])
    context = await shown(erin, record.id, policy)
    covered = context.report.summarized
    in_window = {message.content for message in context.messages}
    lost = [n for n in range(covered, 100) if said[n].content not in in_window]
    assert covered > 0
    assert not [n for n in lost if tag != "ephemeral" or n not in tagged]


async def test_it_says_what_was_heard_of_an_answer_that_was_cut_off(erin: ConversationManager) -> None:
    record = await erin.get_or_create_conversation("kitchen")
    answer = Message(
        role="assistant", content="The roof is fine. The insurance ends on Friday.", message_id="a1"
    )
    await erin.append(record.id, [Message(role="user", content="How is the roof?"), answer])
    await erin.interrupted(record.id, "a1", heard="The roof is fine.")
    await talked(erin, 10)
    summary = await erin.summarize(record.id, policy=TEN)
    assert summary is not None
    assert "The roof is fine." in summary.text
    assert "insurance" not in summary.text


class Slow:
    """Makes a summary on request."""

    name = "slow"

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()

    async def summarize(self, earlier: str, messages: Sequence[Message], *, max_tokens: int) -> str:
        self.begun.set()
        await self.may_end.wait()
        return " ".join(str(message.content) for message in messages)


async def test_a_message_that_is_redacted_meanwhile_is_in_no_summary(url: str) -> None:
    slow = Slow()
    async with aforesaid.open(
        url,
        retention=aforesaid.Retention(sweep_every=None),
        models=aforesaid.Models(embedder=None, summarizer=slow),
    ) as memory:
        erin = memory.of("erin")
        conversation_id = await talked(erin, 20)
        await erin.load_context(conversation_id, policy=TEN)
        await slow.begun.wait()
        (first, *_) = await erin.messages(conversation_id, limit=1, offset=0)
        assert first.message_id is not None
        await erin.redact(conversation_id, first.message_id)
        slow.may_end.set()
        await memory.summary_resources.settled()
        assert await erin.summary(conversation_id) is None


class Stepwise:
    """Makes a complete summary, each step on request."""

    name = "stepwise"

    def __init__(self) -> None:
        self.steps: asyncio.Queue[asyncio.Event] = asyncio.Queue()

    async def summarize(self, earlier: str, messages: Sequence[Message], *, max_tokens: int) -> str:
        may_end = asyncio.Event()
        self.steps.put_nowait(may_end)
        await may_end.wait()
        return " ".join([earlier, *(str(message.content) for message in messages)])


async def test_what_was_made_before_a_redaction_does_not_go_on_from_what_was_made_after_it(url: str) -> None:
    stepwise = Stepwise()
    async with aforesaid.open(
        url,
        retention=aforesaid.Retention(sweep_every=None),
        models=aforesaid.Models(embedder=None, summarizer=stepwise),
    ) as memory:
        erin = memory.of("erin")
        conversation_id = await talked(erin, 60)
        (first, *_) = await erin.messages(conversation_id, limit=1, offset=0)
        assert first.message_id is not None
        before = asyncio.create_task(erin.summarize(conversation_id, policy=TEN))
        (await stepwise.steps.get()).set()
        before_may_end = await stepwise.steps.get()
        await erin.redact(conversation_id, first.message_id)
        after = asyncio.create_task(erin.summarize(conversation_id, policy=TEN))
        (await stepwise.steps.get()).set()
        after_may_end = await stepwise.steps.get()
        before_may_end.set()
        with pytest.raises(DocumentConflict):
            await before
        after_may_end.set()
        summary = await after
        assert summary is not None
        assert "Plant number 0 " not in summary.text
        assert await erin.summary(conversation_id) == summary


async def test_no_turn_waits_for_a_summary_and_closing_ends_it(url: str) -> None:
    slow = Slow()
    async with aforesaid.open(
        url,
        retention=aforesaid.Retention(sweep_every=None),
        models=aforesaid.Models(embedder=None, summarizer=slow),
    ) as memory:
        erin = memory.of("erin")
        conversation_id = await talked(erin, 20)
        for _ in range(3):
            assert len(await erin.load_context(conversation_id, policy=TEN)) == 10
        await slow.begun.wait()


async def test_what_is_said_with_an_earlier_time_makes_it_void(url: str) -> None:
    telling = Slow()
    telling.may_end.set()
    async with aforesaid.open(
        url,
        retention=aforesaid.Retention(sweep_every=None),
        models=aforesaid.Models(embedder=None, summarizer=telling),
    ) as memory:
        erin = memory.of("erin")
        conversation_id = await talked(erin, 20)
        await shown(erin, conversation_id)
        early = Message(role="user", content="Before everything.", timestamp=FixedClock()())
        await erin.append(conversation_id, [early])
        await talked(erin, 20, start=20)
        summary = await erin.summarize(conversation_id, policy=TEN)
        assert summary is not None
        assert summary.text.startswith("Before everything.")


async def test_it_goes_with_the_conversation_and_belongs_to_one_owner(
    memory: aforesaid.Memory, erin: ConversationManager
) -> None:
    conversation_id = await talked(erin, 20)
    await shown(erin, conversation_id)
    with pytest.raises(ConversationNotFound):
        await memory.of("bob").summary(conversation_id)
    await erin.clear_history(conversation_id)
    assert await erin.summary(conversation_id) is None
    await erin.delete_conversation(conversation_id)
    with pytest.raises(ConversationNotFound):
        await erin.summarize(conversation_id)


async def test_it_is_the_same_behind_a_server() -> None:
    async with open_at(f"{BEHIND}memory://", embedder=None, summarizer="extract") as memory:
        erin = memory.of("erin")
        conversation_id = await talked(erin, 20)
        assert await erin.summary(conversation_id) is None
        summary = await erin.summarize(conversation_id, policy=TEN)
        assert summary is not None
        assert summary.messages == 40
        assert await erin.summary(conversation_id) == summary
        assert (await erin.get_conversation(conversation_id)).summary == summary.text
        assert (await erin.load_context(conversation_id, policy=TEN)).report.summarized == 40
        with pytest.raises(ConversationNotFound):
            await memory.of("bob").summary(conversation_id)


# Who makes them


async def test_a_model_may_make_them() -> None:
    agent = Scripted("Erin has many plants.", "Erin has very many plants.", name="scribe")
    async with aforesaid.open(
        "memory://",
        retention=aforesaid.Retention(sweep_every=None),
        models=aforesaid.Models(embedder=None, summarizer=AgentSummarizer(agent)),
    ) as memory:
        erin = memory.of("erin")
        conversation_id = await talked(erin, 20)
        context = await shown(erin, conversation_id)
        assert context.messages[0].content.endswith(
            "(by scribe). The oldest of them are not shown:\nErin has many plants."
        )
        asked = agent.asked[0]
        assert "180 words" in asked.system
        assert "User: Plant number 0 stands in room 0." in str(asked.messages[0].content)
        await talked(erin, 20, start=20)
        await shown(erin, conversation_id)
        assert "Erin has many plants." in str(agent.asked[1].messages[0].content), "made of the one before"


async def test_a_summarizer_that_fails_is_asked_again_later_and_the_context_is_there(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Scripted(AgentUnavailable("away"), ValueError("odd"), "At last.")
    async with aforesaid.open(
        "memory://",
        retention=aforesaid.Retention(sweep_every=None),
        models=aforesaid.Models(embedder=None, summarizer=AgentSummarizer(agent)),
    ) as memory:
        erin = memory.of("erin")
        conversation_id = await talked(erin, 20)
        for _ in range(3):
            assert len(await shown(erin, conversation_id)) == 10
        assert len(agent.asked) == 1, "left alone for a while"
        assert "AgentUnavailable" in caplog.text
        monkeypatch.setattr("aforesaid.summaries.service.TRY_AGAIN_SECONDS", 0.0)
        memory.summary_resources._failed.clear()
        assert len(await shown(erin, conversation_id)) == 10
        assert "At last." in str((await shown(erin, conversation_id)).messages[0].content)


async def test_an_empty_summary_is_none() -> None:
    with pytest.raises(AgentUnavailable, match="empty"):
        await AgentSummarizer(Scripted(" ")).summarize("", [], max_tokens=100)


async def test_by_default_nothing_is_summarized_and_a_setting_turns_it_on() -> None:
    async with aforesaid.open(
        "memory://", retention=aforesaid.Retention(sweep_every=None), models=aforesaid.Models(embedder=None)
    ) as memory:
        erin = memory.of("erin")
        conversation_id = await talked(erin, 20)
        assert (await shown(erin, conversation_id)).report.summarized == 0
        with pytest.raises(InvalidSetting, match="summarizer"):
            await erin.summarize(conversation_id)
    config = ConversationConfig.from_env({"CONVERSATION_SUMMARIES": "extract"})
    async with aforesaid.open(
        "memory://",
        config=config,
        retention=aforesaid.Retention(sweep_every=None),
        models=aforesaid.Models(embedder=None),
    ) as memory:
        erin = memory.of("erin")
        assert (await shown(erin, await talked(erin, 20))).report.summarized == 40
    with pytest.raises(InvalidSetting, match="summarizer"):
        aforesaid.open("memory://", models=aforesaid.Models(summarizer="abstract"))  # type: ignore[arg-type]


# The rules


def spoken(*texts: str) -> list[Message]:
    return [Message(role="user", content=text) for text in texts]


def test_the_sentences_that_say_most_are_quoted_in_their_order() -> None:
    chatter = ["Well, let us see then.", "What do you think about it?"] * 3
    facts = ["The bathroom tiles come from Porto.", "Porto delivers the bathroom tiles on 3 May."]
    text = extract("", spoken(chatter[0], facts[0], *chatter, facts[1]), max_tokens=30)
    assert text.splitlines() == [f"- User: {fact}" for fact in facts]


def test_what_was_kept_before_comes_first_and_nothing_is_said_twice() -> None:
    earlier = "- User: The bathroom tiles come from Porto."
    text = extract(
        earlier, spoken("The bathroom tiles come from Porto!", "The kitchen is blue."), max_tokens=100
    )
    assert text.splitlines() == [earlier, "- User: The kitchen is blue."]


@given(st.lists(st.text(max_size=200), max_size=12), st.text(max_size=200), st.integers(0, 120))
def test_any_messages_have_a_summary_within_its_budget(
    texts: list[str], earlier: str, max_tokens: int
) -> None:
    from aforesaid.tokens import RoughCounter

    text = extract(earlier, spoken(*texts), max_tokens=max_tokens)
    assert RoughCounter().count_text(text) <= max_tokens
    assert extract(earlier, spoken(*texts), max_tokens=max_tokens) == text


async def test_tools_and_instructions_are_not_quoted() -> None:
    messages = [
        Message(role="system", content="You must obey the manual."),
        Message(role="tool", content="A long result of a tool.", extra={"tool_call_id": "c"}),
        Message(role="assistant", content="The garden door is locked."),
    ]
    text = await ExtractiveSummarizer().summarize("", messages, max_tokens=100)
    assert text == "- Assistant: The garden door is locked."


def _summary(text: str) -> Summary:
    return Summary(text=text, by="x", messages=4, last_sequence=4, made_at=FixedClock()())


def test_a_summary_that_is_too_long_loses_its_beginning() -> None:
    summary = _summary("One is first. Two is second.\nThree is third.")

    def count(text: str) -> int:
        return len(text.split())

    resources = count(heading(summary))
    assert shortened(summary, tokens=resources + 9, count=count) == summary.rendered
    assert (
        shortened(summary, tokens=resources + 6, count=count)
        == f"{heading(summary)}\nTwo is second.\nThree is third."
    )
    assert shortened(summary, tokens=resources + 3, count=count) == f"{heading(summary)}\nThree is third."
    assert shortened(summary, tokens=resources, count=count) is None


def test_a_damaged_summary_is_reported() -> None:
    document = Document(kind=KIND, key="x", data=b"\xff", version=1, updated_at=FixedClock()())
    with pytest.raises(StoreDamaged, match="summary"):
        decode_summary(document)


async def test_a_damaged_summary_does_not_keep_anybody_from_answering(erin: ConversationManager) -> None:
    conversation_id = await talked(erin, 20)
    await erin.store.put_document(KIND, "extract", b"\xff", conversation_id=conversation_id)
    context = await erin.load_context(conversation_id, policy=TEN)
    assert (len(context), context.report.summarized) == (10, 0)


def test_a_sentence_is_not_broken_at_an_abbreviation() -> None:
    text = extract("", spoken("Use a flexible glue, e.g. Kerakoll H40, for the large tiles."), max_tokens=100)
    assert "e.g. Kerakoll H40, for the large tiles." in text
