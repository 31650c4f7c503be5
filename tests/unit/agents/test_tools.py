"""Tools with time limits, and how they are described."""

import asyncio
import threading
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal

import pytest

from aforesaid.agents.tools import Tool, ToolRegistry, tool
from aforesaid.errors import InvalidInput, InvalidSetting
from tests.unit.agents.tools import NOTHING, hangs, registry


async def test_a_tools_own_limit_goes_before_the_callers() -> None:
    outcome = await asyncio.wait_for(registry().dispatch("hangs", {}, within=3600), 240)
    assert outcome.is_error
    assert "0.01 seconds" in outcome.text


async def test_the_callers_limit_holds_where_a_tool_has_none() -> None:
    tools = ToolRegistry([Tool(name="hangs", description="", parameters=NOTHING, run=hangs)])
    outcome = await asyncio.wait_for(tools.dispatch("hangs", {}, within=0.01), 240)
    assert outcome.is_error


@pytest.mark.parametrize(
    ("answer", "text"), [(None, "null"), (5, "5"), ({"on": True}, '{"on":true}'), (["é"], '["é"]')]
)
async def test_an_answer_may_be_json(answer: Any, text: str) -> None:
    async def odd() -> Any:
        return answer

    outcome = await ToolRegistry([Tool(name="odd", description="", parameters=NOTHING, run=odd)]).dispatch(
        "odd"
    )
    assert (outcome.text, outcome.is_error) == (text, False)


async def test_an_answer_that_is_no_json_is_an_error() -> None:
    async def odd() -> Any:
        return object()

    outcome = await ToolRegistry([Tool(name="odd", description="", parameters=NOTHING, run=odd)]).dispatch(
        "odd"
    )
    assert outcome.is_error
    assert "must return text or JSON" in outcome.text


async def test_a_plain_function_is_a_tool() -> None:
    @dataclass
    class Line:
        text: str
        euros: float

    def send_invoice(
        client: Annotated[str, "The client's name"], lines: list[Line], due: date | None = None
    ) -> dict[str, Any]:
        """Send an invoice."""
        assert threading.current_thread() is not threading.main_thread(), "it must not block the event loop"
        return {"to": client, "total": sum(line.euros for line in lines), "due": due}

    @tool(repeatable=True)
    async def weather(city: str, days: Literal[1, 3] = 1) -> str:
        """Return the weather."""
        return f"{city}, {days}"

    tools = ToolRegistry([send_invoice, weather])
    assert tools.has_effects("send_invoice")
    assert not tools.has_effects("weather")
    assert not tools.has_effects("unknown")
    (invoice, _) = tools.definitions("plain")
    assert invoice["description"] == "Send an invoice."
    assert invoice["parameters"]["properties"]["client"] == {
        "type": "string",
        "description": "The client's name",
    }
    assert invoice["parameters"]["required"] == ["client", "lines"]
    given = {"client": "Lee", "lines": [{"text": "Tiles", "euros": 40}], "due": "2026-12-01"}
    sent = await tools.dispatch("send_invoice", given)
    assert sent.text == '{"to":"Lee","total":40.0,"due":"2026-12-01"}'
    assert (await tools.dispatch("weather", {"city": "Rome"})).text == "Rome, 1"
    for wrong in ({"client": "Lee", "lines": [{}]}, {"client": 5, "lines": []}, {"client": "Lee"}):
        assert (await tools.dispatch("send_invoice", wrong)).is_error


def test_a_function_without_a_description_or_schema_is_refused() -> None:
    def silent(a: str) -> str:
        return a

    def many(*texts: str) -> str:
        """Return all."""
        return " ".join(texts)

    def odd(a: Any, b: threading.Lock) -> str:
        """Return the text."""
        return f"{a}{b}"

    for function, words in ((silent, "docstring"), (many, "named arguments"), (odd, "no schema")):
        with pytest.raises(InvalidSetting, match=words):
            ToolRegistry([function])


def test_tools_are_described_in_every_dialect() -> None:
    for dialect in ("plain", "anthropic", "openai_chat", "openai_responses", "mcp"):
        described = registry().definitions(dialect)
        assert "lights" in str(described[0])
        assert "room" in str(described[0])
    with pytest.raises(InvalidInput, match="provider"):
        registry().definitions("klingon")
