"""Classes of other projects, constructed and used as those projects and their tests do."""

from types import SimpleNamespace
from typing import Any

import pytest

from aforesaid.compat import (
    ChatterboxConversationEntity,
    ConversationInput,
    ConversationMemoryManager,
)
from aforesaid.errors import InvalidSetting


class Provider:
    """A model of that project: it answers with these results, one after the other."""

    def __init__(self, *results: Any) -> None:
        self.results = list(results)
        self.asked: list[tuple[list[dict[str, Any]], list[Any]]] = []

    async def complete(self, messages: list[dict[str, Any]], tools: list[Any]) -> Any:
        self.asked.append((list(messages), tools))
        result = self.results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result


def answer(text: str) -> Any:
    return SimpleNamespace(finish_reason="stop", content=text, tool_calls=[], raw_message={})


def call(name: str, **arguments: Any) -> Any:
    raw = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1"}]}
    calls = [SimpleNamespace(id="c1", name=name, arguments=arguments)]
    return SimpleNamespace(finish_reason="tool_calls", content=None, tool_calls=calls, raw_message=raw)


async def dispatch(name: str, arguments: dict[str, Any]) -> str:
    if name == "broken":
        raise ValueError("secret")
    return f"{name} of {arguments['city']}"


@pytest.mark.requirement("000-004", "000-011")
async def test_a_provider_is_asked_with_history_prompt_and_tools() -> None:
    weather = SimpleNamespace(name="weather")
    provider = Provider(call("weather", city="Rome"), answer("Sunny."), answer("Still sunny."))
    entity = ChatterboxConversationEntity(provider, dispatch, [weather], "Be brief.")
    result = await entity.async_process(ConversationInput("Weather in Rome?", conversation_id="kitchen"))
    assert (result.response_text, result.conversation_id, result.extra) == ("Sunny.", "kitchen", {})
    await entity.async_process(ConversationInput("And now?", conversation_id="kitchen"))
    first, second, third = provider.asked
    assert first == (
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Weather in Rome?"}],
        [weather],
    )
    assert second[0][-1] == {"role": "tool", "tool_call_id": "c1", "content": "weather of Rome"}
    assert third[0][1:] == [
        {"role": "user", "content": "Weather in Rome?"},
        {"role": "assistant", "content": "Sunny."},
        {"role": "user", "content": "And now?"},
    ]


async def test_a_tool_that_fails_is_a_result_and_too_many_calls_are_an_apology() -> None:
    provider = Provider(call("broken"), answer("It failed."))
    entity = ChatterboxConversationEntity(provider=provider, tool_dispatcher=dispatch)
    assert (await entity.async_process(ConversationInput("Do it"))).response_text == "It failed."
    assert provider.asked[1][0][-1]["content"] == "broken failed: ValueError"
    endless = Provider(*(call("weather", city="Rome") for _ in range(3)))
    entity = ChatterboxConversationEntity(endless, dispatch, max_iterations=2)
    result = await entity.async_process(ConversationInput("Do it", conversation_id="kitchen"))
    assert "sorry" in result.response_text
    assert len(endless.asked) == 2
    assert entity._histories == {}
    without = ChatterboxConversationEntity(Provider(call("weather", city="Rome")))
    assert "sorry" in (await without.async_process(ConversationInput("Do it"))).response_text


@pytest.mark.requirement("000-014", "000-017")
async def test_the_histories_are_shown_bounded_and_cleared_by_plain_calls() -> None:
    entity = ChatterboxConversationEntity(Provider(*map(answer, "abcdef")), max_history_turns=2)
    for text in ("1", "2", "3"):
        await entity.async_process(ConversationInput(text, conversation_id="kitchen"))
    assert [one["content"] for one in entity._histories["kitchen"]] == ["2", "b", "3", "c"]
    await entity.async_process(ConversationInput("4", conversation_id="hall"))
    entity.clear_history("kitchen")
    assert list(entity._histories) == ["hall"]
    entity.clear_all_history()
    assert entity._histories == {}
    provider = entity._loop.provider  # type: ignore[union-attr]
    await entity.async_process(ConversationInput("5", conversation_id="hall"))
    assert provider.asked[-1][0] == [{"role": "user", "content": "5"}]


@pytest.mark.requirement("000-006", "000-011")
async def test_a_failed_turn_names_its_conversation_and_leaves_the_history() -> None:
    provider = Provider(answer("One."), ConnectionError("secret"), RuntimeError("secret"), answer("Two."))
    entity = ChatterboxConversationEntity(provider, dispatch)
    for text in ("1", "2", "3", "4"):
        result = await entity.async_process(ConversationInput(text, conversation_id="kitchen"))
        assert result.conversation_id == "kitchen"
        assert ("sorry" in result.response_text) is (text in ("2", "3"))
        assert "secret" not in result.response_text
    assert [one["content"] for one in provider.asked[-1][0]] == ["1", "One.", "4"]
    assert [one["content"] for one in entity._histories["kitchen"]] == ["1", "One.", "4", "Two."]


@pytest.mark.requirement("000-013", "000-015")
async def test_a_limit_of_zero_keeps_every_turn_of_a_created_conversation() -> None:
    provider = Provider(*map(answer, "abcdefgh"))
    entity = ChatterboxConversationEntity(
        provider, dispatch, max_history_turns=0, auto_create_conversation_id=True
    )
    name = (await entity.async_process(ConversationInput("0"))).conversation_id
    assert name is not None
    assert len(name) == 36
    for number in range(1, 8):
        await entity.async_process(ConversationInput(str(number), conversation_id=name))
    assert len(provider.asked[-1][0]) == 15
    assert len(entity._histories[name]) == 16
    other = await entity.async_process(ConversationInput("without an answer left"))
    assert other.conversation_id not in (None, name)


@pytest.mark.requirement("002-015", "002-018")
async def test_a_window_takes_the_options_of_that_project() -> None:
    config = SimpleNamespace(
        chat_model="gpt-4o", sliding_window_enable=True, sliding_window_max_tokens=40, api_key="x"
    )
    memory = ConversationMemoryManager(hass=object(), config=config, logger=object())
    for number in range(10):
        await memory.add_message("conv1", "user", f"message number {number}", tags={"input"})
    await memory.add_message("conv2", "user", "hello")
    stats = memory.get_stats("conv1")
    assert (stats["max_tokens"], stats["exists"]) == (40, True)
    assert stats["current_tokens"] <= 40
    assert stats["message_count"] < 10
    assert set(memory.get_all_conversations()) == {"conv1", "conv2"}
    await memory.reset_conversation("conv2")
    assert memory.get_all_conversations() == ["conv1"]
    with pytest.raises(InvalidSetting):
        ConversationMemoryManager(config=SimpleNamespace(sliding_window_max_tokens=-1))
