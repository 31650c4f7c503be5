"""The research on chat memory, as printed."""

from typing import Any

import pytest

from aforesaid.compat import ChatHistory
from aforesaid.memory.manager import ConversationManager
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
