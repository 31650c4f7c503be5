"""The sliding window, as printed."""

from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import pytest

from aforesaid.compat import ConversationMemoryManager
from aforesaid.memory.manager import ConversationManager
from aforesaid.settings import Settings, SlidingWindowConfig
from tests.acceptance.seeds.printed import printed, run
from tests.builders import Target


@pytest.mark.requirement("002-010")
def test_the_options_are_read_from_the_printed_yaml(tmp_path: Path) -> None:
    file = tmp_path / "configuration.yaml"
    changed = printed("002-01").replace("4000", "2000").replace("system: true", "system: false")
    file.write_text(changed, "utf-8")
    assert Settings.load(file=file, environ={}).sliding_window == SlidingWindowConfig(
        sliding_window_enable=True, sliding_window_max_tokens=2000, sliding_window_preserve_system=False
    )


def words(tokens: int) -> str:
    """Return a text that costs this many tokens as a message: three, its role, and one for each word."""
    return "one" + " one" * (tokens - 5)


@pytest.mark.requirement("002-001", "002-011", "002-018")
def test_the_oldest_message_is_evicted_as_in_the_example(target: Target) -> None:
    assert not iscoroutinefunction(ConversationMemoryManager.get_stats)
    lines = [line for line in printed("002-02").splitlines() if line]
    assert lines == [
        "Max tokens: 100",
        "Current: 85 tokens (5 messages)",
        "New message: 20 tokens",
        "Total: 105 tokens (exceeds limit)",
        "Action: Remove oldest user message (15 tokens)",
        "Result: 90 tokens (5 messages) ✓",
    ]

    async def scenario(manager: ConversationManager) -> None:
        config = SlidingWindowConfig(sliding_window_max_tokens=100)
        memory: Any = ConversationMemoryManager(manager, config=config)
        for number, tokens in enumerate((15, 17, 18, 18, 17)):
            await memory.add_message("conv123", "assistant" if number % 2 else "user", words(tokens))
        stats = memory.get_stats("conv123")
        assert (stats["current_tokens"], stats["message_count"]) == (85, 5)
        await memory.add_message("conv123", "assistant", words(20))
        stats = memory.get_stats("conv123")
        assert (stats["current_tokens"], stats["message_count"]) == (90, 5)

    target.run(scenario)


@pytest.mark.requirement("002-004", "002-015", "002-016")
def test_messages_are_retrieved_by_custom_tag(target: Target) -> None:
    async def scenario(manager: ConversationManager) -> None:
        memory = ConversationMemoryManager(manager)
        await memory.add_message("conv123", "user", "What's the weather?", {"context:weather"})
        names = await run(printed("002-03"), memory=memory)
        assert names["messages"] == [{"role": "user", "content": "Turn on the lights"}]

    target.run(scenario)


@pytest.mark.requirement("002-013", "002-014")
@pytest.mark.parametrize("block", ["002-04", "002-05", "002-06"])
def test_every_printed_tag_marks_a_message(target: Target, block: str) -> None:
    lines = [line for line in printed(block).splitlines() if line]

    async def scenario(manager: ConversationManager) -> None:
        memory = ConversationMemoryManager(manager)
        for number, line in enumerate(lines):
            tags = (await run(line))["tags"]
            await memory.add_message("conv123", "user", f"message {number}", tags)
            (found,) = await memory.get_messages("conv123", tag_filter=tags)
            assert found["content"] == f"message {number}"

    target.run(scenario)


@pytest.mark.requirement("002-015", "002-016", "002-017")
def test_the_printed_methods_add_return_and_reset(target: Target) -> None:
    async def scenario(manager: ConversationManager) -> None:
        memory = ConversationMemoryManager(manager)
        await run(printed("002-07"), memory=memory)
        await memory.add_message("conv123", "assistant", "Hello!", {"important"})
        assert (await run(printed("002-08"), memory=memory))["messages"] == [
            {"role": "assistant", "content": "Hello!"}
        ]
        assert [message["content"] for message in await memory.get_messages("conv123")] == ["Hello", "Hello!"]
        await run(printed("002-09"), memory=memory)
        assert await memory.get_messages("conv123") == []
        await memory.add_message("conv123", "user", "Hello again")
        await run(printed("002-12"), memory=memory, conv_id="conv123")
        assert await memory.get_messages("conv123") == []

    target.run(scenario)


async def five_messages(manager: ConversationManager) -> ConversationMemoryManager:
    memory = ConversationMemoryManager(manager)
    for role in ("user", "assistant", "user", "assistant", "user"):
        await memory.add_message("conv123", role, "word " * 30)
    return memory


@pytest.mark.requirement("002-018")
def test_statistics_have_the_printed_form(target: Target) -> None:
    assert not iscoroutinefunction(ConversationMemoryManager.get_stats)

    async def scenario(manager: ConversationManager) -> None:
        stats = (await run(printed("002-10"), memory=await five_messages(manager)))["stats"]
        tokens = stats["current_tokens"]
        assert stats == {
            "exists": True,
            "message_count": 5,
            "current_tokens": tokens,
            "max_tokens": 4000,
            "utilization": pytest.approx(100 * tokens / 4000),
            "tag_distribution": {"input": 3, "output": 2},
        }

    target.run(scenario)


@pytest.mark.requirement("002-018", "002-023")
def test_utilization_is_compared_with_ninety_percent(target: Target) -> None:
    assert not iscoroutinefunction(ConversationMemoryManager.get_stats)

    async def scenario(manager: ConversationManager) -> None:
        memory = await five_messages(manager)
        # The printed block contains only comments; Python requires a statement.
        names = await run(printed("002-11") + "    pass\n", memory=memory, conv_id="conv123")
        assert 0 < names["stats"]["utilization"] < 90

    target.run(scenario)
