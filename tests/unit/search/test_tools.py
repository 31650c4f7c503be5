"""Tools that a model may call."""

import json
import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import aforesaid
from aforesaid.agents.tools import Tool, ToolRegistry, history_tool, history_tools
from aforesaid.dialects import ToolCall
from aforesaid.errors import InvalidInput
from aforesaid.memory.manager import ConversationManager

SCHEMA = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "minimum": 1, "maximum": 9},
        "word": {"type": "string", "enum": ["a", "b"]},
        "sure": {"type": "boolean"},
    },
    "required": ["n"],
}


async def _repeat(n: int, word: str = "a", sure: bool = True) -> str:
    if not sure:
        raise RuntimeError("not sure")
    return word * n


REPEAT = Tool(name="repeat", description="Repeat a word.", parameters=SCHEMA, run=_repeat)


def taking(schema: dict[str, Any]) -> Tool:
    """A tool that answers with what it was given."""

    async def answer(**given: Any) -> str:
        return str(given)

    return Tool(name="lights", description="", parameters={"type": "object", **schema}, run=answer)


@pytest.mark.parametrize(
    ("arguments", "text", "is_error"),
    [
        ({"n": 2}, "aa", False),
        ('{"n": 2, "word": "b"}', "bb", False),
        ({"n": 2.0}, "aa", False),
        ({"n": 2, "word": None}, "aa", False),
        ({}, "needs n", True),
        ("", "needs n", True),
        ({"n": "2"}, "must be of type integer", True),
        ({"n": True}, "must be of type integer", True),
        ({"n": 10}, "must be 1 to 9", True),
        ({"n": 1, "word": "c"}, "must be one of a, b", True),
        ({"n": 1, "sure": 1}, "must be of type boolean", True),
        ({"n": 1, "owner": "sam"}, "takes no owner", True),
        ("{", "not JSON", True),
        ("[]", "must be an object", True),
        ({"n": 1, "sure": False}, "repeat failed", True),
    ],
)
async def test_arguments_are_checked_and_errors_are_results(
    arguments: Any, text: str, is_error: bool
) -> None:
    outcome = await ToolRegistry([REPEAT]).dispatch("repeat", arguments)
    assert text in outcome.text
    assert outcome.is_error == is_error


@pytest.mark.parametrize(
    ("schema", "value", "text", "is_error"),
    [
        ({"type": ["string", "null"]}, "hall", "{'room': 'hall'}", False),
        ({"type": ["string", "null"]}, None, "{'room': None}", False),
        ({"type": ["string", "null"], "enum": ["hall"]}, None, "{'room': None}", False),
        ({"type": ["string", "null"]}, 5, "must be of type string or null", True),
        ({"type": ["string", "null"], "enum": ["hall"]}, "attic", "must be one of hall", True),
        ({"type": ["integer", "string"], "maximum": 3}, 2.0, "{'room': 2}", False),
        ({"type": ["integer", "string"], "maximum": 3}, 4, "must be", True),
        ({"type": ["integer", "null"]}, True, "must be of type integer or null", True),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, None, "{'room': None}", False),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "hall", "{'room': 'hall'}", False),
        ({"type": "string"}, None, "needs room", True),
        ({"type": "room"}, "hall", "{'room': 'hall'}", False),
        (True, "hall", "{'room': 'hall'}", False),
    ],
)
async def test_an_argument_may_be_of_several_types(
    schema: Any, value: Any, text: str, is_error: bool
) -> None:
    outcome = await ToolRegistry([taking({"properties": {"room": schema}, "required": ["room"]})]).dispatch(
        "lights", {"room": value}
    )
    assert text in outcome.text
    assert outcome.is_error == is_error


@pytest.mark.parametrize(
    ("allowed", "value", "text", "is_error"),
    [
        (True, "hall", "{'room': 'hall'}", False),
        ({}, "hall", "{'room': 'hall'}", False),
        ({"type": "string"}, "hall", "{'room': 'hall'}", False),
        ({"type": "string"}, 5, "must be of type string", True),
        (False, "hall", "takes no room", True),
    ],
)
async def test_names_beyond_the_schema_are_taken_where_it_says_so(
    allowed: Any, value: Any, text: str, is_error: bool
) -> None:
    outcome = await ToolRegistry([taking({"additionalProperties": allowed})]).dispatch(
        "lights", {"room": value}
    )
    assert text in outcome.text
    assert outcome.is_error == is_error


async def test_an_unknown_tool_is_a_result() -> None:
    outcome = await ToolRegistry([REPEAT]).dispatch("delete_everything", {})
    assert outcome.is_error
    assert "repeat" in outcome.text


def test_a_name_is_given_once_and_fits_every_provider() -> None:
    registry = ToolRegistry([REPEAT])
    with pytest.raises(InvalidInput, match="already"):
        registry.register(REPEAT)
    with pytest.raises(InvalidInput, match="name"):
        ToolRegistry([Tool(name="two words", description="", parameters={}, run=_repeat)])
    with pytest.raises(InvalidInput, match="provider"):
        registry.definitions("llama")


def test_definitions_have_the_form_of_each_provider() -> None:
    registry = ToolRegistry([REPEAT])
    (anthropic,) = registry.definitions("anthropic")
    assert anthropic == {"name": "repeat", "description": "Repeat a word.", "input_schema": SCHEMA}
    (chat,) = registry.definitions("openai_chat")
    assert chat["function"]["parameters"] == SCHEMA
    (responses,) = registry.definitions("openai_responses")
    assert (responses["type"], responses["name"]) == ("function", "repeat")
    (mcp,) = registry.definitions("mcp")
    assert mcp["inputSchema"] == SCHEMA
    assert json.dumps([anthropic, chat, responses, mcp])


def sdk_type(provider: str) -> Any:
    """What a provider's own library takes a tool to be. Importing one takes seconds: only when asked for."""
    if provider == "anthropic":
        from anthropic.types import ToolParam

        return ToolParam
    if provider == "openai_chat":
        from openai.types.chat import ChatCompletionToolParam

        return ChatCompletionToolParam
    from openai.types.responses import FunctionToolParam

    return FunctionToolParam


@pytest.mark.parametrize("provider", ["anthropic", "openai_chat", "openai_responses"])
async def test_definitions_pass_the_types_of_the_provider(erin: ConversationManager, provider: Any) -> None:
    from pydantic import TypeAdapter, with_config

    declared = with_config(extra="forbid")(sdk_type(provider))
    (definition,) = history_tools(erin).definitions(provider)
    assert TypeAdapter(declared).validate_python(definition) == definition


async def test_the_schema_says_what_the_tool_takes_and_nothing_about_its_owner(
    erin: ConversationManager,
) -> None:
    """As MCP has it: an object with named properties, each described by JSON schema."""
    (definition,) = history_tools(erin).definitions("mcp")
    schema = definition["inputSchema"]
    assert set(definition) == {"name", "description", "inputSchema"}
    assert (schema["type"], schema["additionalProperties"]) == ("object", False)
    assert set(schema["properties"]) == {
        "query", "max_results", "role", "date_from", "date_to", "tag", "min_relevance", "channel",
        "conversation_id", "message"
    }  # fmt: skip
    assert all(each["type"] in ("string", "integer", "number") for each in schema["properties"].values())


@pytest.fixture
async def erin() -> Any:
    async with aforesaid.open(
        "memory://", retention=aforesaid.Retention(sweep_every=None), models=aforesaid.Models(embedder=None)
    ) as memory:
        for owner, text in (("erin", "My bicycle is red"), ("sam", "My bicycle is a secret")):
            manager = memory.of(owner)
            conversation = await manager.get_or_create_conversation("s")
            said_at = datetime(2026, 3, 10, 23, 30, tzinfo=UTC)
            await manager.add_message(conversation.id, "user", text, timestamp=said_at)
        yield memory.of("erin")


async def test_history_is_searched_for_its_owner_only(erin: ConversationManager) -> None:
    tools = history_tools(erin)
    outcome = await tools.dispatch("search_history", {"query": "bicycle", "max_results": 9})
    assert "My bicycle is red" in outcome.text
    assert "secret" not in outcome.text
    for name in ("owner", "user_id", "manager"):
        refused = await tools.dispatch("search_history", {"query": "bicycle", name: "sam"})
        assert refused.is_error
    (definition,) = tools.definitions("mcp")
    assert "owner" not in json.dumps(definition["inputSchema"]["properties"])


async def test_days_are_those_of_the_asker(erin: ConversationManager) -> None:
    tools = history_tools(erin, timezone=timezone(timedelta(hours=1)))
    found = await tools.dispatch("search_history", {"date_from": "2026-03-11", "date_to": "2026-03-11"})
    assert "Wednesday 11 March 2026, 00:30" in found.text
    nothing = await tools.dispatch("search_history", {"date_to": "2026-03-10"})
    assert nothing.text == "There are no earlier messages that match these filters."
    wrong = await tools.dispatch("search_history", {"date_to": "next week"})
    assert wrong.is_error


async def test_nothing_found_is_said_in_words_that_a_model_can_pass_on(erin: ConversationManager) -> None:
    nothing = await history_tools(erin).dispatch("search_history", {"query": "quantum physics"})
    assert nothing.text == (
        "Nothing about this was said in the earlier conversations. Tell the user that you found nothing "
        "about it.\n\n(Searched by words only: messages in other words may be missing.)"
    )


async def test_a_quotation_can_be_cited_and_opened(erin: ConversationManager) -> None:
    tools = history_tools(erin)
    found = await tools.dispatch("search_history", {"query": "bicycle"})
    place = re.search(r"conversation ([0-9a-f-]+), message (\d+)\]", found.text)
    assert place is not None
    given = {"conversation_id": place[1], "message": int(place[2])}
    opened = await tools.dispatch("search_history", given)
    assert f"[message {place[2]} · " in opened.text
    assert "My bicycle is red" in opened.text
    for wrong in (given | {"message": 999}, {"message": 1}, {"conversation_id": place[1]}):
        assert (await tools.dispatch("search_history", wrong)).is_error


async def test_another_owners_quotation_cannot_be_opened() -> None:
    async with aforesaid.open("memory://", models=aforesaid.Models(embedder=None)) as memory:
        secret = await memory.of("sam").get_or_create_conversation("s")
        await memory.of("sam").add_message(secret.id, "user", "a secret")
        given = {"conversation_id": secret.id, "message": 1}
        outcome = await history_tools(memory.of("erin")).dispatch("search_history", given)
    assert outcome.is_error
    assert "a secret" not in outcome.text


async def test_a_result_states_what_did_not_fit(erin: ConversationManager) -> None:
    conversation = await erin.get_or_create_conversation("long")
    for number in range(9):
        text = f"The bicycle shop number {number} repairs a bicycle of any kind. " * 12
        await erin.add_message(conversation.id, "user", text)
    tool = history_tool(erin, max_tokens=400)
    text = await tool.run(query="bicycle shop", max_results=9)
    assert "more did not fit" in text


@pytest.mark.parametrize("dialect", ["anthropic", "openai_chat", "openai_responses"])
async def test_a_call_is_answered_in_its_dialect(erin: ConversationManager, dialect: str) -> None:
    call = ToolCall(id="c1", name="search_history", arguments='{"query": "bicycle"}')
    message = await history_tools(erin).answer(call, dialect)
    assert message.dialect == dialect
    assert "My bicycle is red" in json.dumps(message.to_dict())
