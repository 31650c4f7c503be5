"""The sliding window as its document prints it, on every store."""

import logging
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from tiktoken.model import MODEL_PREFIX_TO_ENCODING, MODEL_TO_ENCODING

import aforesaid
from aforesaid import ConversationManager, ConversationMemoryManager, SlidingWindowConfig
from aforesaid.errors import InvalidSetting
from aforesaid.memory import sliding as module
from aforesaid.model.messages import Role
from aforesaid.settings import Settings
from aforesaid.testing import FixedClock
from aforesaid.tokens import Estimator, counter_for
from aforesaid.tokens.exact import ENCODINGS
from aforesaid.tokens.messages import count_plain_text
from tests.builders import Target

STATS = {"exists", "message_count", "current_tokens", "max_tokens", "utilization", "tag_distribution"}


@pytest.fixture(autouse=True, scope="module")
def counter() -> None:
    """Load the counter before an event loop runs: loading blocks."""
    counter_for("gpt-4").count_text("")


def words_of(tokens: int, role: str = "user") -> str:
    """Return a text that costs exactly this many tokens as a message."""
    counter = counter_for("gpt-4")
    text = "hi" + " hi" * (tokens - count_plain_text(counter, role, "hi"))
    assert count_plain_text(counter, role, text) == tokens
    return text


def window_of(manager: ConversationManager, most: int = 100, **options: bool) -> ConversationMemoryManager:
    named = {f"sliding_window_{name}": value for name, value in options.items()}
    config = SlidingWindowConfig(sliding_window_max_tokens=most, **named)
    return ConversationMemoryManager(manager, config=config)


def test_the_documented_example_evicts_one_message_of_fifteen_tokens(
    target: Target, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(erin: ConversationManager) -> None:
        memory = window_of(erin)
        for tokens in (15, 20, 15, 20, 15):
            await memory.add_message("conv123", "user", words_of(tokens))
        before = memory.get_stats("conv123")
        assert (before["current_tokens"], before["message_count"]) == (85, 5)
        with caplog.at_level(logging.INFO, "aforesaid.sliding"):
            await memory.add_message("conv123", "user", words_of(20))
        after = memory.get_stats("conv123")
        assert (after["current_tokens"], after["message_count"]) == (90, 5)
        assert "evicted 1 messages with 15 tokens" in caplog.text
        kept = [message["content"] for message in await memory.get_messages("conv123")]
        assert kept == [words_of(tokens) for tokens in (20, 15, 20, 15, 20)]

    target.run(scenario)


def test_five_of_six_messages_remain_where_five_fit(target: Target) -> None:
    async def scenario(erin: ConversationManager) -> None:
        memory = window_of(erin, 50)
        for number in range(6):
            role: Role = "assistant" if number % 2 else "user"
            await memory.add_message("conv123", role, words_of(10, role))
        assert [message["role"] for message in await memory.get_messages("conv123")] == [
            "assistant",
            "user",
            "assistant",
            "user",
            "assistant",
        ]

    target.run(scenario)


def test_statistics_are_a_plain_call(target: Target) -> None:
    async def scenario(erin: ConversationManager) -> None:
        memory = ConversationMemoryManager(erin)
        assert memory.get_stats("conv123")["exists"] is False
        await memory.add_message("conv123", "user", "Hello", tags={"input", "greeting"})
        await memory.add_message("conv123", "assistant", "Hi.")
        stats = memory.get_stats("conv123")
        assert set(stats) == STATS
        assert stats["exists"] is True
        assert stats["message_count"] == 2
        assert stats["tag_distribution"] == {"greeting": 1, "input": 1, "output": 1}
        assert memory.get_stats("conv123")["utilization"] == 100 * stats["current_tokens"] / 4000
        await memory.reset_conversation("conv123")
        assert memory.get_stats("conv123")["exists"] is False
        assert memory.get_stats("conv123")["current_tokens"] == 0

    target.run(scenario)


def test_another_manager_finds_the_same_window_and_statistics(target: Target) -> None:
    """After a restart, and when another process adds messages."""

    async def scenario(erin: ConversationManager) -> None:
        memory, other = window_of(erin, 60), window_of(erin, 60)
        await memory.add_message("conv123", "system", "You are terse.")
        for number in range(8):
            await memory.add_message("conv123", "user", f"question {number}", tags={f"topic:{number % 2}"})
            await other.add_message("conv123", "assistant", f"answer {number}")
        messages = await memory.get_messages("conv123")
        assert messages[0]["content"] == "You are terse."
        assert messages[-1]["content"] == "answer 7"
        assert messages == await other.get_messages("conv123")
        assert memory.get_stats("conv123") == other.get_stats("conv123")
        fresh = window_of(erin, 60)
        assert fresh.get_stats("conv123")["exists"] is False
        assert await fresh.get_messages("conv123") == messages
        assert fresh.get_stats("conv123") == memory.get_stats("conv123")

    target.run(scenario)


def test_a_window_is_loaded_from_the_end_of_a_long_conversation(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_READ", 4)
    monkeypatch.setattr(module, "MARGIN", 1)

    async def scenario(erin: ConversationManager) -> None:
        memory = window_of(erin, 80)
        await memory.add_message("conv123", "system", "You are terse.")
        for number in range(30):
            await memory.add_message("conv123", "user", f"question {number}")
        messages = await memory.get_messages("conv123")
        assert messages[0]["content"] == "You are terse."
        assert await window_of(erin, 80).get_messages("conv123") == messages
        everything = window_of(erin, 80, enable=False)
        assert len(await everything.get_messages("conv123")) == 31
        assert everything.get_stats("conv123")["utilization"] > 100

    target.run(scenario)


def test_tool_messages_are_stored_like_any_other_role(target: Target) -> None:
    async def scenario(erin: ConversationManager) -> None:
        memory = ConversationMemoryManager(erin)
        await memory.add_message("conv123", "user", "How warm is it?")
        await memory.add_message("conv123", "tool", "21 degrees", tags={"tool_call"})
        await memory.add_message("conv123", "assistant", "21 degrees.")
        assert [message["role"] for message in await memory.get_messages("conv123")] == [
            "user",
            "tool",
            "assistant",
        ]
        assert await memory.get_messages("conv123", tag_filter={"tool_call"}) == [
            {"role": "tool", "content": "21 degrees"}
        ]
        assert memory.get_stats("conv123")["message_count"] == 3

        record = await erin.session("conv123")
        assert record is not None
        context = await erin.load_context(record.id, for_request=True)
        assert [message.role for message in context.messages] == ["user", "assistant"]
        (left_out,) = context.report.left_out
        assert (left_out.role, left_out.reason) == ("tool", "orphan")
        assert any("answers no call" in warning for warning in context.report.warnings)

    target.run(scenario)


def test_a_call_and_its_result_are_evicted_together(target: Target) -> None:
    call = {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "set_light", "arguments": "{}"}}
        ],
    }
    result = {"role": "tool", "tool_call_id": "call_1", "content": "done"}

    async def scenario(erin: ConversationManager) -> None:
        memory = window_of(erin, 60)
        await memory.add_message("conv123", "assistant", call)
        await memory.add_message("conv123", "tool", result)
        assert await memory.get_messages("conv123") == [call, result]
        while "tool" in (roles := [each["role"] for each in await memory.get_messages("conv123")]):
            assert "assistant" in roles
            await memory.add_message("conv123", "user", words_of(10))
        assert set(roles) == {"user"}

    target.run(scenario)


def test_ephemeral_messages_go_first_and_important_ones_last(target: Target) -> None:
    async def scenario(erin: ConversationManager) -> None:
        memory = window_of(erin, 40)
        for name, tags in (("a", {"important"}), ("b", set()), ("c", {"ephemeral"}), ("d", {"ephemeral"})):
            await memory.add_message("conv123", "user", f"{name} {words_of(9)}", tags=tags)
        left = []
        for number in range(4):
            await memory.add_message("conv123", "user", words_of(10))
            left.append("".join(each["content"][0] for each in await memory.get_messages("conv123")))
            assert memory.get_stats("conv123")["current_tokens"] <= 40, number
        assert left == ["abdh", "abhh", "ahhh", "ahhh"]

    target.run(scenario)


@pytest.mark.parametrize("preserve", [True, False])
def test_system_messages_stay_if_they_are_preserved(target: Target, preserve: bool) -> None:
    async def scenario(erin: ConversationManager) -> None:
        memory = window_of(erin, 50, preserve_system=preserve)
        await memory.add_message("conv123", "system", "You are terse.")
        for _ in range(6):
            await memory.add_message("conv123", "user", words_of(10))
        messages = await memory.get_messages("conv123")
        assert (messages[0]["role"] == "system") is preserve
        assert memory.get_stats("conv123")["tag_distribution"].get("system", 0) == preserve
        assert len(messages) == 5

    target.run(scenario)


async def test_an_expired_conversation_does_not_exist() -> None:
    clock = FixedClock()
    async with aforesaid.open(clock=clock) as memory:
        window = ConversationMemoryManager(memory.of("erin"))
        await window.add_message("conv123", "user", "hello")
        assert window.get_stats("conv123")["exists"]
        clock.advance(timedelta(days=31))
        assert not window.get_stats("conv123")["exists"]


async def test_without_extras_tokens_are_estimated_and_one_warning_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    module._warn_of_estimates.cache_clear()
    first, _ = ConversationMemoryManager(), ConversationMemoryManager(model="gpt-4o")
    assert caplog.text.count("tokens are estimated") == 1
    await first.add_message("conv123", "user", "Turn on the lights")
    estimated = first.get_stats("conv123")["current_tokens"]
    monkeypatch.undo()
    exact = ConversationMemoryManager()
    await exact.add_message("conv123", "user", "Turn on the lights")
    assert exact.get_stats("conv123")["current_tokens"] <= estimated <= 20


def test_every_openai_model_has_its_encoding_or_an_estimate() -> None:
    prefixes = {f"{prefix}:1": name for prefix, name in MODEL_PREFIX_TO_ENCODING.items()}
    for model, encoding in (MODEL_TO_ENCODING | prefixes).items():
        counter = counter_for(model)
        # The harmony encoding adds special tokens to o200k_base, which text does not contain.
        expected = {"o200k_harmony": "o200k_base"}.get(encoding, encoding)
        if expected in ENCODINGS:
            assert counter.name == expected, model
        else:
            assert isinstance(counter, Estimator), model


def test_the_documented_yaml_is_accepted(tmp_path: Path) -> None:
    file = tmp_path / "configuration.yaml"
    file.write_text(
        "# configuration.yaml (not recommended, use UI)\n"
        "azure_openai_sdk_conversation:\n"
        "  sliding_window_enable: true\n"
        "  sliding_window_max_tokens: 3000\n"
        "  sliding_window_preserve_system: false\n"
    )
    assert Settings.load(file=file, environ={}).sliding_window == SlidingWindowConfig(
        sliding_window_max_tokens=3000, sliding_window_preserve_system=False
    )
    file.write_text("azure_openai_sdk_conversation:\n  sliding_window_size: 3\n  url: memory://\n")
    with pytest.raises(InvalidSetting, match="unknown settings: sliding_window_size, url"):
        Settings.load(file=file, environ={})
    file.write_text("azure_openai_sdk_conversation: 4000\n")
    with pytest.raises(InvalidSetting, match="azure_openai_sdk_conversation must be a mapping"):
        Settings.load(file=file, environ={})
