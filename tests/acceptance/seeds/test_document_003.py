"""The research on chat memory, as printed."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import aforesaid
from aforesaid.compat import ChatHistory
from aforesaid.memory.manager import ConversationManager
from aforesaid.testing import FixedClock
from tests.acceptance.seeds.printed import printed
from tests.builders import Target

STEPS: dict[str, Any] = {
    "user": {"role": "user", "content": "Find a recipe and save it."},
    "assistant(tool_use)": {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "call_{}", "name": "search", "input": {"q": "soup"}}],
    },
    "user(tool_result)": {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "call_{}", "content": "soup"}],
    },
    "assistant(text)": {"role": "assistant", "content": [{"type": "text", "text": "Saved."}]},
}


def printed_turn() -> list[dict[str, Any]]:
    """Return the messages of the printed turn; a result has the id of the call before it."""
    messages, calls = [], 0
    for step in printed("003-01").strip().removeprefix("Turn 1: ").split(" → "):
        calls += step == "assistant(tool_use)"
        message = dict(STEPS[step])
        if step.endswith(("(tool_use)", "(tool_result)")):
            (block,) = message["content"]
            filled = {key: f"call_{calls}" if value == "call_{}" else value for key, value in block.items()}
            message["content"] = [filled]
        messages.append(message)
    return messages


@pytest.mark.requirement("003-006", "003-007", "003-008", "003-011")
def test_tool_calls_and_results_are_part_of_one_turn(target: Target) -> None:
    async def scenario(manager: ConversationManager) -> None:
        history = ChatHistory(manager, max_turns=1)
        await history.save_turn("+15550100", [{"role": "user", "content": "Hi"}])
        await history.save_turn("+15550100", printed_turn())
        assert await history.get_history("+15550100") == printed_turn()

    target.run(scenario)


def long_turn(number: int) -> list[dict[str, Any]]:
    """Return a turn of about 3,000 tokens with a tool call, as the document estimates it."""
    call = {"type": "tool_use", "id": f"call_{number}", "name": "search", "input": {"q": "soup " * 20}}
    result = {"type": "tool_result", "tool_use_id": f"call_{number}", "content": f"result {number} " * 100}
    return [
        {"role": "user", "content": f"question {number} " + "about dinner " * 20},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
        {"role": "assistant", "content": [{"type": "text", "text": f"answer {number} " * 100}]},
    ]


@pytest.mark.requirement("003-003", "003-012")
async def test_the_file_stays_small_and_holds_only_the_last_turns(tmp_path: Path) -> None:
    file, clock = tmp_path / "conversations.json", FixedClock()
    async with aforesaid.open(f"file:{file}", clock=clock) as memory:
        history = ChatHistory(memory.of("household"))
        for number in range(25):
            for phone in ("+15550100", "+15550101"):
                await history.save_turn(phone, long_turn(number))
        assert len(await history.get_history("+15550100")) == 40
        assert file.stat().st_size < 100_000
        written = file.read_text("utf-8")
        assert "answer 15 " in written
        assert "answer 14 " not in written
        await history.save_turn("system", long_turn(99))
        assert "answer 99 " not in file.read_text("utf-8")
        clock.advance(timedelta(minutes=31))
        assert await history.get_history("+15550100") == []
        await memory.sweep()
    assert "answer" not in file.read_text("utf-8")
