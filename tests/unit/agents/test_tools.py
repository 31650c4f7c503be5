"""Tools with time limits, and how they are described."""

import asyncio
from typing import Any

import pytest

from aforesaid.agents.tools import Tool, ToolRegistry
from aforesaid.errors import InvalidInput
from tests.unit.agents.tools import NOTHING, hangs, registry


async def test_a_tools_own_limit_goes_before_the_callers() -> None:
    outcome = await asyncio.wait_for(registry().dispatch("hangs", {}, within=3600), 60)
    assert outcome.is_error
    assert "0.01 seconds" in outcome.text


async def test_the_callers_limit_holds_where_a_tool_has_none() -> None:
    tools = ToolRegistry([Tool(name="hangs", description="", parameters=NOTHING, run=hangs)])
    outcome = await asyncio.wait_for(tools.dispatch("hangs", {}, within=0.01), 60)
    assert outcome.is_error


@pytest.mark.parametrize("answer", [None, 5, {"on": True}])
async def test_an_answer_that_is_no_text_is_an_error(answer: Any) -> None:
    async def odd() -> Any:
        return answer

    outcome = await ToolRegistry([Tool(name="odd", description="", parameters=NOTHING, run=odd)]).dispatch(
        "odd"
    )
    assert outcome.is_error
    assert "must return text" in outcome.text


def test_tools_are_described_in_every_dialect() -> None:
    for dialect in ("plain", "anthropic", "openai_chat", "openai_responses", "mcp"):
        described = registry().definitions(dialect)
        assert "lights" in str(described[0])
        assert "room" in str(described[0])
    with pytest.raises(InvalidInput, match="provider"):
        registry().definitions("klingon")
