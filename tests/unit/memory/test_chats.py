"""Chat history: whole turns in, the last ten out, ready to send to Anthropic."""

import asyncio
import base64
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aforesaid import ChatHistory, ConversationManager, Memory
from aforesaid.errors import ConversationNotFound, InvalidId, InvalidInput, InvalidMessage
from aforesaid.testing import FixedClock
from tests.builders import Target
from tests.examples import examples

PHONE = "+15551234567"
PHOTO = base64.b64encode(b"\x89PNG a recipe" * 100).decode()


def question(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def answer(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "text", "text": text}]}


def turn_with_tools(number: int) -> list[dict[str, Any]]:
    call = {"type": "tool_use", "id": f"toolu_{number}", "name": "search", "input": {"q": number}}
    result = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": f"found {number}"}
    return [
        question(f"find {number}"),
        {"role": "assistant", "content": [{"type": "text", "text": "Looking."}, call]},
        {"role": "user", "content": [result]},
        answer(f"here is {number}"),
    ]


async def test_turns_come_back_as_they_went_in(memory: Memory) -> None:
    chat = ChatHistory(memory.of("household"))
    turns = [turn_with_tools(1), [question("thanks"), answer("Any time.")]]
    for turn in turns:
        await chat.save_turn(PHONE, turn)
    assert await chat.get_history(PHONE) == [message for turn in turns for message in turn]


@pytest.mark.slow
async def test_sdk_objects_go_in_and_plain_dicts_come_out(memory: Memory) -> None:
    from anthropic.types import Message, TextBlock, ToolUseBlock, Usage

    chat = ChatHistory(memory.of("household"))
    called = [
        TextBlock(type="text", text="Looking."),
        ToolUseBlock(type="tool_use", id="toolu_1", name="search", input={"q": "soup"}),
    ]
    response = Message(
        id="msg_1",
        type="message",
        role="assistant",
        model="claude",
        content=[TextBlock(type="text", text="Soup it is.")],
        usage=Usage(input_tokens=1, output_tokens=1),
    )
    result = {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "soup"}],
    }
    await chat.save_turn(
        PHONE, [question("dinner?"), {"role": "assistant", "content": called}, result, response]
    )
    assert await chat.get_history(PHONE) == [
        question("dinner?"),
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Looking."},
                {"type": "tool_use", "id": "toolu_1", "name": "search", "input": {"q": "soup"}},
            ],
        },
        result,
        answer("Soup it is."),
    ]


@pytest.mark.parametrize("most", [1, 3, 10])
async def test_the_cap_counts_turns_not_messages(memory: Memory, most: int) -> None:
    chat = ChatHistory(memory.of("household"), max_turns=most)
    for number in range(15):
        await chat.save_turn(PHONE, turn_with_tools(number))
    expected = [message for number in range(15 - most, 15) for message in turn_with_tools(number)]
    assert await chat.get_history(PHONE) == expected


async def test_ten_turns_and_thirty_minutes_are_the_defaults(memory: Memory, clock: FixedClock) -> None:
    chat = ChatHistory(memory.of("household"))
    for number in range(12):
        await chat.save_turn(PHONE, turn_with_tools(number))
        clock.advance(timedelta(minutes=29, seconds=59))
    assert len(await chat.get_history(PHONE)) == 40
    clock.advance(timedelta(seconds=2))
    assert await chat.get_history(PHONE) == []


async def test_after_a_silence_the_next_message_starts_fresh(memory: Memory, clock: FixedClock) -> None:
    household = memory.of("household")
    chat = ChatHistory(household, idle_after=timedelta(minutes=5))
    first = await chat.save_turn(PHONE, [question("dinner?"), answer("Soup.")])
    clock.advance(timedelta(minutes=6))
    assert await chat.get_history(PHONE) == []
    second = await chat.save_turn(PHONE, [question("hi"), answer("Hello.")])
    assert first is not None
    assert second is not None
    assert first.conversation.id != second.conversation.id
    assert await chat.get_history(PHONE) == [question("hi"), answer("Hello.")]
    with pytest.raises(ConversationNotFound):
        await household.messages(first.conversation.id)


async def test_evicted_turns_leave_the_store(memory: Memory) -> None:
    household = memory.of("household")
    chat = ChatHistory(household, max_turns=2)
    for number in range(5):
        stored = await chat.save_turn(PHONE, turn_with_tools(number))
        assert stored is not None
        kept = [message for one in range(max(0, number - 1), number + 1) for message in turn_with_tools(one)]
        log = await household.messages(stored.conversation.id)
        assert [(message.role, message.content) for message in log] == [
            (message["role"], message["content"]) for message in kept
        ]


async def test_expired_turns_leave_the_store(memory: Memory, clock: FixedClock) -> None:
    household = memory.of("household")
    chat = ChatHistory(household)
    await chat.save_turn(PHONE, [question("dinner?"), answer("Soup.")])
    await chat.save_turn("+1555", [question("lunch?"), answer("Bread.")])
    clock.advance(timedelta(minutes=31))
    assert await chat.get_history(PHONE) == []
    assert await household.store.expired(by=clock()) == []
    assert await memory.sweep() == 0, "nothing is left, also of the other key"


async def test_histories_are_kept_on_request(memory: Memory, clock: FixedClock) -> None:
    household = memory.of("household")
    chat = ChatHistory(household, max_turns=1, keep=True)
    for number in range(3):
        await chat.save_turn(PHONE, turn_with_tools(number))
    assert await chat.get_history(PHONE) == turn_with_tools(2)
    clock.advance(timedelta(hours=1))
    assert await chat.get_history(PHONE) == []
    (record,) = (await household.list()).conversations
    assert record.message_count == 12


async def test_a_turn_that_comes_while_others_are_removed_stays(memory: Memory) -> None:
    chat = ChatHistory(memory.of("household"), max_turns=2)
    await asyncio.gather(*(chat.save_turn(PHONE, turn_with_tools(number)) for number in range(10)))
    history = await chat.get_history(PHONE)
    assert len(history) == 8
    await chat.save_turn(PHONE, turn_with_tools(99))
    assert (await chat.get_history(PHONE))[-4:] == turn_with_tools(99)


async def test_without_idle_expiry_a_history_goes_on(memory: Memory, clock: FixedClock) -> None:
    chat = ChatHistory(memory.of("household"), idle_after=None)
    await chat.save_turn(PHONE, [question("dinner?"), answer("Soup.")])
    clock.advance(timedelta(days=29))
    assert await chat.get_history(PHONE) == [question("dinner?"), answer("Soup.")]


async def test_a_photo_becomes_words(memory: Memory) -> None:
    chat = ChatHistory(memory.of("household"))
    source = {"type": "base64", "media_type": "image/png", "data": PHOTO}
    text = {"type": "text", "text": "what is this?"}
    await chat.save_turn(
        PHONE, [{"role": "user", "content": [{"type": "image", "source": source}, text]}, answer("A recipe.")]
    )
    assert await chat.get_history(PHONE) == [
        {"role": "user", "content": [{"type": "text", "text": "[Image sent: photo]"}, text]},
        answer("A recipe."),
    ]


async def test_what_the_system_sends_is_kept_out(memory: Memory, clock: FixedClock) -> None:
    household = memory.of("household")
    chat = ChatHistory(household)
    assert await chat.save_turn(PHONE, [question("daily plan"), answer("…")], sender="system") is None
    assert (await household.list()).conversations == ()
    await chat.save_turn(PHONE, [question("hi"), answer("Hello.")], sender="erin")
    clock.advance(timedelta(minutes=29))
    await chat.save_turn(PHONE, [question("daily plan"), answer("…")], sender="system")
    assert await chat.get_history(PHONE) == [question("hi"), answer("Hello.")]
    clock.advance(timedelta(minutes=2))
    assert await chat.get_history(PHONE) == [], "nor does it keep a conversation alive"


@pytest.mark.parametrize(
    "broken", [{"role": "narrator", "content": "x"}, {"content": "x"}, 7, {"role": "user"}]
)
async def test_a_turn_is_stored_whole_or_not_at_all(memory: Memory, broken: Any) -> None:
    chat = ChatHistory(memory.of("household"))
    await chat.save_turn(PHONE, [question("hi"), answer("Hello.")])
    with pytest.raises(InvalidInput):
        await chat.save_turn(PHONE, [question("and?"), broken])
    assert await chat.get_history(PHONE) == [question("hi"), answer("Hello.")]


async def test_clearing_removes_earlier_conversations_of_the_key_too(
    memory: Memory, clock: FixedClock
) -> None:
    household = memory.of("household")
    chat = ChatHistory(household)
    for number in range(3):
        await chat.save_turn(PHONE, turn_with_tools(number))
        clock.advance(timedelta(hours=1))
    await chat.save_turn("+1555", [question("mine"), answer("Yours.")])
    await chat.clear_history(PHONE)
    await chat.clear_history(PHONE)
    assert await chat.get_history(PHONE) == []
    assert len((await household.list()).conversations) == 1
    assert await chat.get_history("+1555") == [question("mine"), answer("Yours.")]


async def test_turns_saved_at_once_do_not_mix(memory: Memory) -> None:
    chat = ChatHistory(memory.of("household"), max_turns=0)
    turns = [turn_with_tools(number) for number in range(20)]
    await asyncio.gather(*(chat.save_turn(PHONE, turn) for turn in turns))
    history = await chat.get_history(PHONE)
    saved = [history[at : at + 4] for at in range(0, len(history), 4)]
    assert sorted(saved, key=str) == sorted(turns, key=str)


async def test_another_dialect_comes_out_converted(memory: Memory) -> None:
    household = memory.of("household")
    await ChatHistory(household).save_turn(PHONE, turn_with_tools(1))
    roles = [each["role"] for each in await ChatHistory(household, dialect="openai_chat").get_history(PHONE)]
    assert roles == ["user", "assistant", "tool", "assistant"]


async def test_the_channel_is_noted(memory: Memory) -> None:
    chat = ChatHistory(memory.of("household"), channel="phone")
    saved = await chat.save_turn(PHONE, [question("hi"), answer("Hello.")])
    assert saved is not None
    assert saved.conversation.channel == "phone"


async def test_what_cannot_be_used_is_refused(memory: Memory) -> None:
    chat = ChatHistory(memory.of("household"))
    with pytest.raises(InvalidMessage, match="a turn needs messages"):
        await chat.save_turn(PHONE, [])
    with pytest.raises(InvalidId):
        await chat.save_turn("", [question("hi")])
    with pytest.raises(InvalidId):
        await chat.get_history("")
    with pytest.raises(InvalidId):
        await chat.clear_history("")
    with pytest.raises(InvalidInput, match="dialect must be one of"):
        ChatHistory(dialect="latin")
    with pytest.raises(InvalidInput, match="max_turns"):
        ChatHistory(max_turns=-1)


async def test_without_a_manager_it_is_kept_in_memory() -> None:
    chat = ChatHistory()
    await chat.save_turn(PHONE, [question("hi"), answer("Hello.")])
    assert await chat.get_history(PHONE) == [question("hi"), answer("Hello.")]


steps = st.lists(st.sampled_from(["plain", "tools"]), min_size=1, max_size=14)


@examples()
@given(kinds=steps, most=st.integers(1, 12))
def test_a_history_is_the_last_turns_and_nothing_else(target: Target, kinds: list[str], most: int) -> None:
    turns = [
        turn_with_tools(number) if kind == "tools" else [question(f"q {number}"), answer(f"a {number}")]
        for number, kind in enumerate(kinds)
    ]

    async def scenario(owner: ConversationManager) -> None:
        chat = ChatHistory(owner, max_turns=most)
        for turn in turns:
            await chat.save_turn(PHONE, turn)
        assert await chat.get_history(PHONE) == [message for turn in turns[-most:] for message in turn]

    target.run(scenario)


async def test_a_turn_under_the_key_system_is_not_stored() -> None:
    chat = ChatHistory()
    assert await chat.save_turn("system", [question("Send the daily plan."), answer("Good morning!")]) is None
    assert await chat.get_history("system") == []


async def test_a_turn_that_starts_before_the_limit_stays_in_its_conversation(
    memory: Memory, clock: FixedClock
) -> None:
    household = memory.of("household")
    chat = ChatHistory(household)
    await chat.save_turn(PHONE, [question("one"), answer("1")])
    clock.advance(timedelta(minutes=29, seconds=50))
    assert len(await chat.get_history(PHONE)) == 2
    clock.advance(timedelta(seconds=20))
    await chat.save_turn(PHONE, [question("two"), answer("2")])
    assert len(await chat.get_history(PHONE)) == 4
    assert len((await household.list()).conversations) == 1
    clock.advance(timedelta(minutes=31))
    assert await chat.get_history(PHONE) == []
    await chat.save_turn(PHONE, [question("three"), answer("3")])
    assert len(await chat.get_history(PHONE)) == 2


async def test_history_that_is_submitted_again_is_stored_once(memory: Memory) -> None:
    chat = ChatHistory(memory.of("household"))
    turns = [turn_with_tools(1), [question("thanks"), answer("Any time.")], [question("on"), answer("Done.")]]
    for number, turn in enumerate(turns):
        before = await chat.get_history(PHONE)
        await chat.save_turn(PHONE, [*(before if number else []), *turn])
    whole = [message for turn in turns for message in turn]
    assert await chat.get_history(PHONE) == whole
    await chat.save_turn(PHONE, [question("on"), answer("Done.")])
    assert await chat.get_history(PHONE) == [*whole, question("on"), answer("Done.")], "a turn is said again"
