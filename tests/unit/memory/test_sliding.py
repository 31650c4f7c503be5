"""The sliding window: the newest messages that fit a token budget, whatever the store."""

import asyncio
import logging
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aforesaid import ConversationManager, ConversationMemoryManager, Memory, SlidingWindowConfig
from aforesaid.dialects import meaning_of, read
from aforesaid.errors import InvalidId, InvalidInput, InvalidSetting
from aforesaid.settings import Settings
from aforesaid.testing import FixedClock
from aforesaid.tokens import count_message, count_tools, counter_for, ready
from tests.builders import Target, contents, names
from tests.examples import examples

STATS = {"exists", "message_count", "current_tokens", "max_tokens", "utilization", "tag_distribution"}
LIGHTS = {
    "type": "function",
    "function": {"name": "set_light", "parameters": {"type": "object", "properties": {}}},
}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "set_light", "arguments": "{}"}}
    ],
}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "done"}


def sized(most: int, **options: bool) -> SlidingWindowConfig:
    named = {f"sliding_window_{name}": value for name, value in options.items()}
    return SlidingWindowConfig(sliding_window_max_tokens=most, **named)


def cost(message: dict[str, Any]) -> int:
    (parsed,) = read(message)
    return count_message(counter_for("cl100k_base"), parsed, meaning_of(parsed))


def texts(messages: list[dict[str, Any]]) -> list[Any]:
    return [message["content"] for message in messages]


async def exchange(sliding: ConversationMemoryManager, numbers: range, name: str = "conv123") -> None:
    for number in numbers:
        await sliding.add_message(name, "user", f"question {number}")
        await sliding.add_message(name, "assistant", f"answer {number}")


async def test_messages_come_back_ready_for_a_model(memory: Memory) -> None:
    sliding = ConversationMemoryManager(memory.of("erin"))
    await sliding.add_message("conv123", "system", "You are terse.")
    await sliding.add_message("conv123", "user", "Hello", tags={"input", "greeting"})
    await sliding.add_message("conv123", "assistant", "Hi.")
    assert await sliding.get_messages("conv123") == [
        {"role": "system", "content": "You are terse."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi."},
    ]


async def test_the_oldest_go_first_and_only_as_many_as_must(memory: Memory) -> None:
    await ready(counter_for("cl100k_base"))
    one = cost({"role": "user", "content": "question 1"}) + cost({"role": "assistant", "content": "answer 1"})
    sliding = ConversationMemoryManager(memory.of("erin"), config=sized(3 * one))
    await exchange(sliding, range(1, 4))
    assert len(await sliding.get_messages("conv123")) == 6
    await exchange(sliding, range(4, 5))
    kept = texts(await sliding.get_messages("conv123"))
    assert kept == ["question 2", "answer 2", "question 3", "answer 3", "question 4", "answer 4"]


@pytest.mark.parametrize("preserve", [True, False])
async def test_system_messages_stay_if_they_are_to(memory: Memory, preserve: bool) -> None:
    sliding = ConversationMemoryManager(memory.of("erin"), config=sized(60, preserve_system=preserve))
    await sliding.add_message("conv123", "system", "You are terse.")
    await exchange(sliding, range(50))
    messages = await sliding.get_messages("conv123")
    assert ("You are terse." in texts(messages)) is preserve
    assert texts(messages)[-1] == "answer 49"
    assert sum(map(cost, messages)) <= 60


async def test_disabled_the_window_keeps_everything(memory: Memory) -> None:
    sliding = ConversationMemoryManager(memory.of("erin"), config=sized(50, enable=False))
    await exchange(sliding, range(100))
    assert len(await sliding.get_messages("conv123")) == 200
    stats = sliding.get_stats("conv123")
    assert stats["message_count"] == 200
    assert stats["utilization"] > 100


async def test_evictions_are_logged(memory: Memory, caplog: pytest.LogCaptureFixture) -> None:
    sliding = ConversationMemoryManager(memory.of("erin"), config=sized(60))
    with caplog.at_level(logging.INFO, "aforesaid"):
        await exchange(sliding, range(20))
    evicted = [record for record in caplog.records if "evicted 1 messages with" in record.getMessage()]
    assert len(evicted) == 40 - len(await sliding.get_messages("conv123"))


async def test_tools_count_against_the_budget(memory: Memory) -> None:
    await ready(counter_for("cl100k_base"))
    counted = count_tools(counter_for("cl100k_base"), [LIGHTS])
    by_definition = ConversationMemoryManager(memory.of("erin"), config=sized(100), tools=[LIGHTS])
    by_number = ConversationMemoryManager(memory.of("erin"), config=sized(100), tools=counted)
    without = ConversationMemoryManager(memory.of("erin"), config=sized(100))
    await exchange(without, range(20))
    assert await by_definition.get_messages("conv123") == await by_number.get_messages("conv123")
    assert len(await by_number.get_messages("conv123")) < len(await without.get_messages("conv123"))
    assert by_definition.get_stats("conv123")["current_tokens"] == counted + sum(
        map(cost, await by_definition.get_messages("conv123"))
    )


@pytest.mark.parametrize("tools", [5000, 0])
async def test_a_fixed_part_that_does_not_fit_is_warned_of_and_never_gives_nothing(
    memory: Memory, caplog: pytest.LogCaptureFixture, tools: int
) -> None:
    sliding = ConversationMemoryManager(memory.of("erin"), config=sized(40), tools=tools)
    await sliding.add_message("conv123", "system", "Be kind. " * 50)
    await exchange(sliding, range(3))
    with caplog.at_level(logging.WARNING, "aforesaid"):
        messages = await sliding.get_messages("conv123")
    assert texts(messages)[-1] == "answer 2"
    assert any("alone need" in record.getMessage() for record in caplog.records)


async def test_a_call_is_never_parted_from_its_result(memory: Memory) -> None:
    sliding = ConversationMemoryManager(memory.of("erin"), config=sized(70))
    await sliding.add_message("conv123", "user", "lights on", tags={"context:lights"})
    await sliding.add_message("conv123", "assistant", CALL)
    await sliding.add_message("conv123", "tool", RESULT, tags={"tool_call"})
    assert await sliding.get_messages("conv123") == [{"role": "user", "content": "lights on"}, CALL, RESULT]
    assert await sliding.get_messages("conv123", tag_filter={"tool_call"}) == [CALL, RESULT]
    for number in range(12):
        await exchange(sliding, range(number, number + 1))
        roles = [message["role"] for message in await sliding.get_messages("conv123")]
        assert roles.count("tool") == sum(1 for each in await sliding.get_messages("conv123") if each == CALL)
    assert "tool" not in roles


async def test_a_tag_filter_selects_messages_with_any_of_the_tags(memory: Memory) -> None:
    sliding = ConversationMemoryManager(memory.of("erin"))
    await sliding.add_message("conv123", "system", "prompt")
    await sliding.add_message("conv123", "user", "lights on", tags={"input", "home_automation"})
    await sliding.add_message("conv123", "assistant", "done", tags=["home_automation"])
    await sliding.add_message("conv123", "user", "will it rain?", tags={"context:weather"})
    assert texts(await sliding.get_messages("conv123", tag_filter={"home_automation"})) == [
        "lights on",
        "done",
    ]
    assert texts(await sliding.get_messages("conv123", {"system", "context:weather"})) == [
        "prompt",
        "will it rain?",
    ]
    assert texts(await sliding.get_messages("conv123", tag_filter={"input"})) == [
        "lights on",
        "will it rain?",
    ]
    assert await sliding.get_messages("conv123", tag_filter={"unheard of"}) == []


async def test_important_messages_outlast_others_and_ephemeral_ones_go_first(memory: Memory) -> None:
    sliding = ConversationMemoryManager(memory.of("erin"), config=sized(90))
    await sliding.add_message("conv123", "user", "I am allergic to nuts", tags={"important"})
    await sliding.add_message("conv123", "assistant", "noted")
    await sliding.add_message("conv123", "user", "what is the time?", tags={"ephemeral"})
    await sliding.add_message("conv123", "assistant", "nine", tags={"ephemeral"})
    await exchange(sliding, range(8))
    kept = texts(await sliding.get_messages("conv123"))
    assert "I am allergic to nuts" in kept
    assert "what is the time?" not in kept


async def test_stats_have_the_documented_form(memory: Memory) -> None:
    sliding = ConversationMemoryManager(memory.of("erin"))
    await sliding.add_message("conv123", "user", "lights on", tags={"input", "home"})
    await sliding.add_message("conv123", "assistant", "done")
    await sliding.add_message("conv123", "user", "thanks")
    stats = sliding.get_stats("conv123")
    assert set(stats) == STATS
    assert stats["exists"] is True
    assert stats["message_count"] == 3
    assert stats["max_tokens"] == 4000
    assert stats["utilization"] == pytest.approx(100 * stats["current_tokens"] / 4000)
    assert stats["tag_distribution"] == {"home": 1, "input": 2, "output": 1}


async def test_an_unknown_conversation_has_no_messages_and_stats_that_say_so(memory: Memory) -> None:
    sliding = ConversationMemoryManager(memory.of("erin"))
    assert await sliding.get_messages("nobody") == []
    assert sliding.get_stats("nobody") == {
        "exists": False,
        "message_count": 0,
        "current_tokens": 0,
        "max_tokens": 4000,
        "utilization": 0.0,
        "tag_distribution": {},
    }
    assert await sliding.get_all_conversations() == []


async def test_a_reset_conversation_starts_over(memory: Memory) -> None:
    sliding = ConversationMemoryManager(memory.of("erin"))
    await exchange(sliding, range(2))
    await exchange(sliding, range(1), "another")
    await sliding.reset_conversation("conv123")
    await sliding.reset_conversation("conv123")
    assert await sliding.get_messages("conv123") == []
    assert sliding.get_stats("conv123")["exists"] is False
    assert await sliding.get_all_conversations() == ["another"]
    await sliding.add_message("conv123", "user", "again")
    assert texts(await sliding.get_messages("conv123")) == ["again"]


async def test_a_reset_reaches_what_was_said_before_a_silence(memory: Memory, clock: FixedClock) -> None:
    erin = memory.of("erin").idling_after(timedelta(minutes=30))
    sliding = ConversationMemoryManager(erin)
    await exchange(sliding, range(1))
    clock.advance(timedelta(hours=1))
    assert await sliding.get_messages("conv123") == []
    await exchange(sliding, range(1))
    await sliding.reset_conversation("conv123")
    assert (await erin.list()).conversations == ()
    assert await sliding.get_all_conversations() == []


async def test_a_message_that_meets_a_reset_begins_the_conversation_anew(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reset comes between finding the conversation and writing to it."""
    erin = memory.of("erin")
    sliding = ConversationMemoryManager(erin)
    await exchange(sliding, range(1))
    append = erin.store.append

    async def after_a_reset(conversation_id: str, *given: Any, **options: Any) -> Any:
        monkeypatch.undo()
        await sliding.reset_conversation("conv123")
        return await append(conversation_id, *given, **options)

    monkeypatch.setattr(erin.store, "append", after_a_reset)
    await sliding.add_message("conv123", "user", "hello again")
    assert texts(await sliding.get_messages("conv123")) == ["hello again"]


async def test_all_conversations_are_listed_by_the_ids_they_were_given(
    memory: Memory, clock: FixedClock
) -> None:
    erin = memory.of("erin")
    sliding = ConversationMemoryManager(erin)
    ids = [f"room:{number} ü" for number in range(230)]
    for name in ids:
        await sliding.add_message(name, "user", "hello")
        clock.advance(timedelta(seconds=1))
    await erin.get_or_create_conversation("not of this face")
    assert await sliding.get_all_conversations() == ids[::-1]
    assert await ConversationMemoryManager(memory.of("dan")).get_all_conversations() == []


async def test_a_conversation_that_the_manager_began_goes_on_here(memory: Memory) -> None:
    erin = memory.of("erin")
    begun = await erin.get_or_create_conversation("conv123")
    await erin.add_message(begun.id, "user", "hello")
    sliding = ConversationMemoryManager(erin)
    await sliding.add_message("conv123", "assistant", "hi")
    assert texts(await sliding.get_messages("conv123")) == ["hello", "hi"]
    assert await sliding.get_all_conversations() == ["conv123"]


async def test_owners_do_not_see_each_other(memory: Memory) -> None:
    hers = ConversationMemoryManager(memory.of("erin"))
    his = ConversationMemoryManager(memory.of("dan"))
    await hers.add_message("conv123", "user", "a secret")
    assert await his.get_messages("conv123") == []
    await his.reset_conversation("conv123")
    assert texts(await hers.get_messages("conv123")) == ["a secret"]


async def test_tokens_are_counted_once_when_a_message_comes_in(memory: Memory) -> None:
    erin = memory.of("erin")
    await ConversationMemoryManager(erin).add_message("conv123", "user", "hello there")
    record = await erin.session("conv123")
    assert record is not None
    (message,) = await erin.messages(record.id)
    assert message.tokens == {counter_for("gpt-4").name: cost({"role": "user", "content": "hello there"})}
    assert erin.intake.counter.name == "o200k_base", "the manager itself counts as before"


async def test_a_smaller_retention_ratio_keeps_the_front_still(memory: Memory) -> None:
    def fronts(sliding: ConversationMemoryManager) -> set[str]:
        return {str(first) for first in seen[sliding]}

    exact = ConversationMemoryManager(memory.of("erin"), config=sized(200))
    steady = ConversationMemoryManager(memory.of("erin"), config=sized(200), retention_ratio=0.5)
    seen: dict[ConversationMemoryManager, list[Any]] = {exact: [], steady: []}
    for number in range(60):
        await exchange(exact, range(number, number + 1))
        await exact.add_message("conv123", "assistant", "and more")
        for sliding, firsts in seen.items():
            firsts.append((await sliding.get_messages("conv123"))[0])
    assert len(fronts(steady)) < len(fronts(exact)) / 2


async def test_options_come_from_the_environment_and_from_yaml(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("sliding_window_max_tokens: 55\nsliding_window_preserve_system: false\n")
    environ = {"SLIDING_WINDOW_MAX_TOKENS": "66"}
    config = (await asyncio.to_thread(Settings.load, file=file, environ=environ)).sliding_window
    assert config == sized(66, preserve_system=False)
    sliding = ConversationMemoryManager(config=config)
    await exchange(sliding, range(20))
    stats = sliding.get_stats("conv123")
    assert 0 < stats["current_tokens"] <= stats["max_tokens"] == 66


@pytest.mark.slow
async def test_what_a_process_holds_is_bounded_and_the_window_is_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Without a store, what no window can reach goes; the system prompt stays, and so does the window."""
    own = ConversationMemoryManager(config=sized(80))
    given = ConversationMemoryManager(ConversationManager(), config=sized(80))
    with caplog.at_level(logging.INFO, "aforesaid.sliding"):
        for sliding in (own, given):
            await sliding.add_message("conv123", "system", "You are terse.")
            await exchange(sliding, range(4200))
            await sliding.add_message("conv123", "user", "one more")
    messages = await own.get_messages("conv123")
    assert messages == await given.get_messages("conv123")
    assert texts(messages)[0] == "You are terse."
    assert texts(messages)[-1] == "one more"
    counts = []
    for sliding in (own, given):
        record = await sliding._manager.session("conv123")
        assert record is not None
        counts.append(record.message_count)
    assert counts[0] < 8192 < counts[1]
    assert len([record for record in caplog.records if "no window can reach" in record.getMessage()]) == 1


async def test_what_cannot_be_used_is_refused(memory: Memory) -> None:
    sliding = ConversationMemoryManager(memory.of("erin"))
    with pytest.raises(InvalidId):
        await sliding.add_message("", "user", "hello")
    with pytest.raises(InvalidInput, match="role must be one of"):
        await sliding.add_message("conv123", "narrator", "hello")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="tags must be a list"):
        await sliding.add_message("conv123", "user", "hello", tags="input")
    with pytest.raises(InvalidInput, match="tag_filter must be a list"):
        await sliding.get_messages("conv123", tag_filter="input")
    assert await sliding.get_all_conversations() == []
    with pytest.raises(InvalidSetting, match="sliding_window_max_tokens"):
        ConversationMemoryManager(config=sized(0))
    with pytest.raises(InvalidSetting, match="tools_tokens"):
        ConversationMemoryManager(tools=-1)
    with pytest.raises(InvalidInput, match="dialect must be one of"):
        ConversationMemoryManager(dialect="anthropic")  # type: ignore[arg-type]


spoken = st.lists(
    st.tuples(
        st.sampled_from(["user", "assistant", "system"]),
        contents,
        st.sets(st.sampled_from(["input", "important", "ephemeral", "context:lights"]), max_size=2),
    ),
    min_size=1,
    max_size=25,
)


def least(given: list[dict[str, Any]], *, preserve: bool) -> int:
    """What is always in: the newest message with the system's behind it, and what is preserved."""
    newest = max((at for at, each in enumerate(given) if each["role"] != "system"), default=len(given) - 1)
    kept = [each["role"] == "system" for each in given[:newest]] if preserve else [False] * newest
    return sum(cost(each) for each, stays in zip(given, [*kept, *[True] * len(given)], strict=False) if stays)


@examples()
@given(said=spoken, most=st.integers(20, 200), tools=st.integers(0, 30), preserve=st.booleans(), name=names)
def test_a_window_is_within_its_budget_and_its_stats_agree(
    target: Target, said: list[Any], most: int, tools: int, preserve: bool, name: str
) -> None:
    async def scenario(erin: ConversationManager) -> None:
        config = sized(most, preserve_system=preserve)
        sliding = ConversationMemoryManager(erin, config=config, tools=tools, dialect="plain")
        for role, content, tags in said:
            await sliding.add_message(name, role, content, tags)
        stats = sliding.get_stats(name)
        messages = await sliding.get_messages(name)
        assert stats["exists"]
        assert stats["message_count"] == len(messages) > 0
        assert stats["current_tokens"] == tools + sum(map(cost, messages))
        assert stats["utilization"] == 100 * stats["current_tokens"] / most
        assert sum(stats["tag_distribution"].get(tag, 0) for tag in ("output", "system")) <= len(messages)
        given = [{"role": role, "content": content} for role, content, _ in said]
        assert all(message in given for message in messages)
        if tools + least(given, preserve=preserve) <= most:
            assert stats["current_tokens"] <= most

    target.run(scenario)


@examples()
@given(
    said=spoken, wanted=st.sets(st.sampled_from(["input", "output", "system", "context:lights"]), min_size=1)
)
def test_a_filter_gives_exactly_what_has_one_of_the_tags(
    target: Target, said: list[Any], wanted: set[str]
) -> None:
    built_in = {"user": "input", "assistant": "output", "system": "system"}

    async def scenario(erin: ConversationManager) -> None:
        sliding = ConversationMemoryManager(erin, config=sized(100, enable=False), dialect="plain")
        for role, content, tags in said:
            await sliding.add_message("s", role, content, tags)
        messages = await sliding.get_messages("s", tag_filter=wanted)
        assert messages == [
            {"role": role, "content": content}
            for role, content, tags in said
            if {*tags, built_in[role]} & wanted
        ]

    target.run(scenario)
