"""Any arguments of a tool call get a result, and never another owner's words."""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

import aforesaid
from aforesaid.agents.tools import ToolRegistry, history_tools
from tests.examples import examples

SECRET = "marzipan"
Call: TypeAlias = Callable[[Any], str]

anything = st.text(st.characters(codec=None), max_size=40) | st.sampled_from(
    (SECRET, "", "\0", "\ud800", "' OR 1=1 --", '"', "a* NEAR(b) ^c", "猫" * 500, "ก" * 500, "word " * 3_000)
)
value = anything | st.none() | st.booleans() | st.integers() | st.floats() | st.lists(anything, max_size=2)
calls = st.fixed_dictionaries(
    {"query": anything},
    optional={
        "max_results": st.integers(1, 20) | value,
        "role": st.sampled_from(("user", "assistant", "tool")) | value,
        "date_from": st.dates().map(str) | st.datetimes().map(str) | value,
        "date_to": st.dates().map(str) | st.datetimes().map(str) | value,
        "tag": anything,
        "channel": st.sampled_from(("voice", "text")) | value,
        "owner": st.just("sam"),
    },
)


@pytest.fixture(scope="module")
def call() -> Iterator[Call]:
    """Calls of one owner's tool, in a store with another owner's secret; with the bundled encoder."""
    with asyncio.Runner() as runner:
        memory, tools = runner.run(_opened())

        def run(arguments: Any) -> str:
            return runner.run(tools.dispatch("search_history", arguments)).text

        yield run
        runner.run(memory.close())


async def _opened() -> tuple[aforesaid.Memory, ToolRegistry]:
    memory = await aforesaid.open("memory://", retention=aforesaid.Retention(sweep_every=None))
    for owner, said in (("erin", "My bicycle is red"), ("sam", f"The {SECRET} is under the bed")):
        manager = memory.of(owner)
        record = await manager.get_or_create_conversation("s")
        await manager.update_metadata(record.id, subject=said, tags=[said[:20]])
        await manager.add_message(record.id, "user", said)
    assert memory.search_resources.indexer is not None
    await memory.search_resources.indexer.wait_until_idle()
    return memory, history_tools(memory.of("erin"))


@examples(1_000)
@given(arguments=calls)
def test_no_call_fails_and_none_reaches_another_owner(call: Call, arguments: dict[str, Any]) -> None:
    describe = call(arguments)
    assert describe
    assert describe != "search_history failed"
    assert "under the bed" not in describe
    assert "under the bed" not in call(json.dumps(arguments))
