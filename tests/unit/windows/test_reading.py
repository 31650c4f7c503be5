"""A window read from a store is the window over the whole log, and costs what the window costs."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aforesaid.contracts import Entry, Position
from aforesaid.errors import ConversationNotFound
from aforesaid.model.contexts import Context
from aforesaid.model.conversations import started
from aforesaid.model.messages import Message
from aforesaid.stores.memory import InMemoryBackend, InMemoryStore
from aforesaid.testing import FixedClock
from aforesaid.testing.contract.base import START
from aforesaid.windows import LogEnds, WindowPolicy, build_window, initial_read_sizes, read_ends, read_window
from aforesaid.windows.build import HEAD
from aforesaid.windows.reader import MARGIN
from tests.examples import examples
from tests.unit.windows.logs import (
    History,
    assistant,
    blocks,
    calls,
    found,
    histories,
    policies,
    result,
    said,
    system,
    text,
    use,
    user,
    words,
)

pytestmark = pytest.mark.slow

CONVERSATION = "00000000-0000-7000-8000-000000000001"


class CountingStore(InMemoryStore):
    """A store that counts what is read."""

    def __init__(self, backend: InMemoryBackend) -> None:
        super().__init__(backend, "erin")
        self.read = 0

    async def tail(self, conversation_id: str, *, limit: int, before: Position | None = None) -> list[Entry]:
        entries = await super().tail(conversation_id, limit=limit, before=before)
        self.read += len(entries)
        return entries


async def store_with(messages: Sequence[Message]) -> CountingStore:
    store = CountingStore(InMemoryBackend(clock=FixedClock()))
    await store.create(started(CONVERSATION, now=store.now()))
    await store.append(CONVERSATION, messages)
    return store


async def ends_of(store: InMemoryStore, policy: WindowPolicy, tail: int | None) -> LogEnds:
    """The ends of the log, with so many entries in the first tail, if not as many as the policy wants."""
    look = initial_read_sizes(policy)
    if tail is not None:
        look = look._replace(tail=min(tail, policy.reach) if policy.has_limit else tail)
    return await read_ends(store, CONVERSATION, look)


def compared(context: Context) -> tuple[object, ...]:
    report = context.report
    return (
        context.messages,
        report.tokens,
        report.stable_prefix,
        report.interrupted,
        report.shortened,
        report.nothing_to_send,
        report.warnings,
    )


exact_policies = policies(for_request=False, max_turns=None, max_tokens=None, count_retention_ratio=1.0)


@given(
    messages=histories(turns=(0, 40)),
    policy=policies(look_back=2) | policies(look_back=20) | exact_policies,
    first=st.sampled_from((1, 8, 64)),
)
@examples(300)
def test_reading_tails_gives_the_window_over_the_whole_log(
    messages: History, policy: WindowPolicy, first: int
) -> None:
    async def both() -> tuple[Context, Context, list[Entry]]:
        store = await store_with(messages)
        everything = await store.page(CONVERSATION, limit=10_000)
        return (
            await read_window(
                store, CONVERSATION, policy, cost=words, ends=await ends_of(store, policy, first)
            ),
            build_window(everything, policy, cost=words),
            everything,
        )

    read, built, everything = asyncio.run(both())
    assert compared(read) == compared(built)
    assert read.report.message_count == built.report.message_count == len(messages)
    held = {message.timestamp for message in read.messages}
    assert read.report.not_read <= len(messages) - len(held)
    # Who does not read as far back takes a result that came long after its call for an orphan, and what was
    # ephemeral to have gone as such.
    describe = {one.sequence for one in read.report.left_out if one.reason in ("orphan", "ephemeral")}
    since = {entry.sequence for entry in everything[read.report.before_window :]} - describe
    reasons = {one.reason for one in built.report.left_out if one.sequence in since}
    assert reasons.isdisjoint({"turns", "messages", "tokens"}), "what a limit left out is before the window"


@st.composite
def stored_and_pending(draw: st.DrawFn) -> tuple[list[Message], list[Message]]:
    """A history, part of it stored, some of that with times of its own, and the rest pending."""
    messages = list(draw(histories(turns=(0, 20))))
    at = draw(st.integers(0, len(messages)))
    if draw(st.booleans()):
        return messages[:at], messages[at:]
    return draw(timed(messages[:at])), messages[at:]


@st.composite
def timed(draw: st.DrawFn, messages: Sequence[Message]) -> list[Message]:
    """The messages, some of them with times before now, in any order."""
    minutes = draw(st.lists(st.integers(-40, 2), min_size=len(messages), max_size=len(messages)))
    return [
        message.with_(timestamp=START + timedelta(minutes=minute)) if minute < 0 else message
        for message, minute in zip(messages, minutes, strict=True)
    ]


any_policy = st.sampled_from((0, 2, 20)).flatmap(
    lambda look_back: st.sampled_from((1, 2, 3, 5, 9, 17, 40, 4096)).flatmap(
        lambda reach: (
            policies(look_back=look_back, reach=reach)
            | policies(
                for_request=False, max_turns=None, max_tokens=None, count_retention_ratio=1.0, reach=reach
            )
        )
    )
)
first_tails = st.none() | st.sampled_from((1, 4, 16))


@given(parts=stored_and_pending(), policy=any_policy, first=first_tails)
@examples(700)
def test_pending_messages_give_the_window_that_they_give_once_stored(
    parts: tuple[list[Message], list[Message]], policy: WindowPolicy, first: int | None
) -> None:
    """However little may be looked at: what is pending counts among the newest messages."""
    stored, pending = parts

    async def both() -> tuple[Context, Context]:
        store = await store_with(stored)
        ends = await ends_of(store, policy, first)
        read = await read_window(store, CONVERSATION, policy, cost=words, pending=pending, ends=ends)
        await store.append(CONVERSATION, pending)
        everything = await store.page(CONVERSATION, limit=10_000)
        return read, build_window(everything, policy, cost=words)

    read, built = asyncio.run(both())
    assert compared(read) == compared(built)
    assert read.report.message_count == built.report.message_count == len(stored) + len(pending)


@given(data=st.data(), parts=stored_and_pending(), policy=any_policy, first=first_tails)
@examples(300)
def test_pending_messages_stand_behind_all_that_is_stored_whatever_their_times(
    data: st.DataObject, parts: tuple[list[Message], list[Message]], policy: WindowPolicy, first: int | None
) -> None:
    stored, pending = parts
    early = data.draw(timed(pending))

    async def both() -> tuple[Context, Context]:
        store = await store_with(stored)
        ends = await ends_of(store, policy, first)
        return (
            await read_window(store, CONVERSATION, policy, cost=words, pending=early, ends=ends),
            await read_window(store, CONVERSATION, policy, cost=words, pending=pending, ends=ends),
        )

    told_when, describe = asyncio.run(both())
    assert said(told_when.messages) == said(describe.messages)
    assert told_when.report == describe.report


@pytest.mark.parametrize("years", [-1, 1])
async def test_a_question_is_the_last_whatever_time_it_brings(years: int) -> None:
    """A call that follows has none, and what is stored may be of a time to come."""
    store = await store_with(chat(15))
    await store.append(CONVERSATION, [assistant("soon").with_(timestamp=START + timedelta(hours=1))])
    question = user("and now?").with_(timestamp=START + years * timedelta(days=365))
    policy = WindowPolicy(for_request=True, max_messages=4)
    turn = [question, calls("c1"), result("c1")]
    context = await read_window(store, CONVERSATION, policy, cost=words, pending=turn)
    assert said(context.messages)[-4:] == ["soon", "and now?", "c1?", "c1!"]


async def test_a_pending_message_is_not_taken_for_one_that_was_stored_with_an_early_time() -> None:
    """The highest number in the log is that of the rule at its front, which was brought in last."""
    store = await store_with([])
    await store.rewrite(CONVERSATION, chat(30))
    await store.rewrite(CONVERSATION, chat(30)[1:])
    await store.append(CONVERSATION, [system("a rule").with_(timestamp=START - timedelta(days=1))])
    policy = WindowPolicy(for_request=True, max_messages=4, look_back=0)
    context = await read_window(store, CONVERSATION, policy, cost=words, pending=[user("and now?")])
    assert said(context.messages)[0] == "a rule"
    assert said(context.messages)[-1] == "and now?"


async def test_a_turn_is_not_judged_before_the_turn_before_it_is_known() -> None:
    """How round the start at 135 is depends on the one at 129, which the first tail does not show."""
    messages = [
        *(assistant("before") for _ in range(128)),
        user("q129", "x"),
        assistant("a130"),
        user("q131"),
        *(assistant("more", "x") for _ in range(3)),
        user("q135", "x"),
        assistant("a136"),
        user("q137", "x"),
        assistant("a138", "x"),
    ]
    store = await store_with(messages)
    policy = WindowPolicy(max_tokens=8, retention_ratio=0.25, tags=("x",), look_back=0)
    context = await read_window(store, CONVERSATION, policy, cost=words, ends=await ends_of(store, policy, 8))
    assert said(context.messages) == ["q137", "a138"]
    assert store.read > 8


async def test_a_result_whose_call_is_before_the_window_is_before_it_too() -> None:
    """Neither the window shows it, nor would a summary of what is before the call."""
    messages = [*chat(10), calls("c1"), *chat(1)[1:], result("c1"), user("and now?")]
    store = await store_with(messages)
    policy = WindowPolicy(max_turns=1, look_back=0)
    context = await read_window(store, CONVERSATION, policy, cost=words, ends=await ends_of(store, policy, 5))
    assert store.read < len(messages)
    assert said(context.messages) == ["you are a house", "and now?"]
    assert context.report.before_window == len(messages) - 1


@pytest.mark.parametrize("first", [5, 6, 27], ids=["from the question", "from the call", "everything"])
async def test_results_in_front_of_the_first_question_are_before_the_window(first: int) -> None:
    """They stand in one message: the question is shown, and its other half a summary must tell."""
    asked = blocks("user", found("c1"), text("and now?"))
    passing = blocks("assistant", use("c2")).with_(tags=("ephemeral",))
    loop = [passing, blocks("user", found("c2")), blocks("assistant", use("c3")), blocks("user", found("c3"))]
    store = await store_with([*chat(10), blocks("assistant", use("c1")), asked, *loop])
    policy = WindowPolicy(for_request=True, max_messages=2, tags=("output",), look_back=0)
    ends = await ends_of(store, policy, first)
    context = await read_window(store, CONVERSATION, policy, cost=words, ends=ends)
    assert said(context.messages) == ["and now?", "c3?", "c3!"]
    assert context.report.before_window == 23


def chat(turns: int) -> list[Message]:
    pairs = ((user(f"question {n}"), assistant(f"answer {n}")) for n in range(turns))
    return [system("you are a house"), *(message for pair in pairs for message in pair)]


@pytest.mark.parametrize(
    "policy",
    [
        WindowPolicy(max_turns=20),
        WindowPolicy(for_request=True, max_messages=20),
        WindowPolicy(max_tokens=400),
    ],
    ids=["turns", "messages", "tokens"],
)
async def test_what_is_read_does_not_depend_on_the_length_of_the_log(policy: WindowPolicy) -> None:
    amounts = []
    for turns in (500, 5000):
        store = await store_with(chat(turns))
        context = await read_window(store, CONVERSATION, policy, cost=words)
        assert said(context.messages)[0] == "you are a house"
        assert said(context.messages)[-1] == f"answer {turns - 1}"
        assert context.report.not_read == 2 * turns + 1 - len(context.messages) - len(context.report.left_out)
        amounts.append(store.read)
    assert amounts[0] == amounts[1] <= 512


async def test_without_a_limit_everything_is_read() -> None:
    store = await store_with(chat(300))
    context = await read_window(store, CONVERSATION, WindowPolicy(), cost=words)
    assert len(context) == 601
    assert context.report.not_read == 0


async def test_a_filter_that_passes_over_everything_looks_no_further_than_its_reach() -> None:
    store = await store_with([user("the first", "rare"), *chat(1000)])
    policy = WindowPolicy(for_request=True, max_messages=5, tags=("rare",), reach=300)
    context = await read_window(store, CONVERSATION, policy, cost=words)
    assert store.read == 300
    assert context.messages == ()
    assert "300" in context.report.warnings[0]


async def test_important_messages_are_found_within_the_look_back() -> None:
    messages = chat(400)
    messages[700] = messages[700].with_(tags=("important",))
    store = await store_with(messages)
    near = WindowPolicy(for_request=True, max_messages=20, look_back=100)
    far = WindowPolicy(for_request=True, max_messages=20, look_back=60)
    kept = await read_window(store, CONVERSATION, near, cost=words)
    assert said(kept.messages)[:2] == ["you are a house", "answer 349"]
    assert len(kept) == 21
    gone = await read_window(store, CONVERSATION, far, cost=words)
    assert "answer 349" not in said(gone.messages)
    assert gone.report.look_back == 60


async def test_a_conversation_that_is_not_there_is_not_found() -> None:
    store = CountingStore(InMemoryBackend(clock=FixedClock()))
    with pytest.raises(ConversationNotFound):
        await read_window(store, CONVERSATION, WindowPolicy(max_turns=3), cost=words)


@pytest.mark.parametrize(
    ("policy", "most"),
    [
        (WindowPolicy(for_request=True, max_messages=20), 20 + 16 + MARGIN),
        (WindowPolicy(max_turns=10), 20 + 16 + MARGIN),
        (WindowPolicy(max_tokens=300), 100 + 16 + 2 * MARGIN),
    ],
    ids=["messages", "turns", "tokens"],
)
async def test_little_more_is_read_than_the_window_and_its_look_back(policy: WindowPolicy, most: int) -> None:
    """Tokens: of short messages, which the first tail cannot expect, the second reads what is missing."""
    store = await store_with(chat(1000))
    context = await read_window(store, CONVERSATION, policy, cost=words)
    assert len(context) > 20
    assert store.read <= most


async def test_long_messages_are_not_read_in_hundreds() -> None:
    store = await store_with([message.with_(content="word " * 500) for message in chat(500)])
    context = await read_window(store, CONVERSATION, WindowPolicy(max_tokens=4000), cost=words)
    assert 4 <= len(context) <= 8
    assert store.read <= 4000 / 100 + 16 + MARGIN


@pytest.mark.parametrize("opening", [0, 1, 2, 3, 20])
async def test_system_messages_at_the_front_are_found_from_afar(opening: int) -> None:
    rules = [system(f"rule {n}") for n in range(opening)]
    store = await store_with([*rules, *chat(300)[1:]])
    policy = WindowPolicy(for_request=True, max_messages=2)
    context = await read_window(store, CONVERSATION, policy, cost=words)
    assert said(context.messages)[:-2] == [f"rule {n}" for n in range(min(opening, HEAD))]
    everything = await store.page(CONVERSATION, limit=10_000)
    assert compared(context) == compared(build_window(everything, policy, cost=words))


@pytest.mark.parametrize("turns", [2, 300])
async def test_pending_messages_count_as_said_however_long_the_log_is(turns: int) -> None:
    store = await store_with(chat(turns))
    policy = WindowPolicy(for_request=True, max_messages=4)
    context = await read_window(store, CONVERSATION, policy, cost=words, pending=[user("and now?")])
    assert said(context.messages)[-1] == "and now?"
    assert context.report.message_count == 2 * turns + 2
