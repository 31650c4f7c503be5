"""Contexts while the store is away: never late, never silent about what they are made from."""

from collections.abc import Coroutine
from typing import Any

import pytest

from aforesaid import contexts
from aforesaid.errors import StoreUnavailable
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.contexts import Context
from aforesaid.settings import ConversationConfig
from aforesaid.stores.memory import InMemoryBackend
from aforesaid.windows import WindowPolicy
from tests.faults import Failing
from tests.unit.layers.conftest import LayerSetup


async def test_a_context_is_made_from_the_last_known_state_and_the_spool(setup: LayerSetup) -> None:
    erin = ConversationManager(setup.layer.of("erin"))
    conversation = await erin.get_or_create_conversation("kitchen")
    await erin.add_message(conversation.id, "user", "before")
    setup.failing.down()
    async with erin.turn(conversation.id) as turn:
        turn.user("during")
        context = await turn.load_context()
        assert [message["content"] for message in context] == ["before", "during"]
        assert context.report.degraded
        assert any("is unavailable" in warning for warning in context.report.warnings)
        turn.assistant("answer")
    assert erin.degraded
    again = await erin.get_or_create_conversation("kitchen")
    assert again.id == conversation.id
    context = await erin.load_context(conversation.id)
    assert [message["content"] for message in context] == ["before", "during", "answer"]
    assert await setup.back()
    context = await erin.load_context(conversation.id)
    assert [message["content"] for message in context] == ["before", "during", "answer"]
    assert not context.report.degraded
    assert not erin.degraded


async def test_a_system_prompt_at_the_front_of_a_long_log_is_still_there(setup: LayerSetup) -> None:
    erin = ConversationManager(setup.layer.of("erin"))
    conversation = await erin.get_or_create_conversation("kitchen")
    await erin.add_message(conversation.id, "system", "be kind")
    for number in range(120):
        await erin.add_message(conversation.id, "user" if number % 2 == 0 else "assistant", str(number))
    policy = WindowPolicy(max_messages=20)
    await erin.load_context(conversation.id, policy=policy, for_request=True)
    setup.failing.down()
    await erin.add_message(conversation.id, "user", "during")
    context = await erin.load_context(conversation.id, policy=policy, for_request=True)
    messages = [message["content"] for message in context]
    assert messages[0] == "be kind"
    assert messages[-2:] == ["119", "during"]


async def test_without_the_layer_a_store_that_fails_twice_gives_this_turn_alone() -> None:
    failing = Failing(InMemoryBackend())
    erin = ConversationManager(failing.of("erin"))
    conversation = await erin.get_or_create_conversation("kitchen")
    await erin.add_message(conversation.id, "user", "before")
    failing.down()
    context = await erin.load_context(conversation.id)
    assert len(context) == 0
    assert context.report.degraded
    assert "failed before it began" in context.report.warnings[0]


async def test_a_store_that_hangs_does_not_hang_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    failing = Failing(InMemoryBackend())
    config = ConversationConfig(context_deadline=1)
    monkeypatch.setattr(ConversationConfig, "context_deadline", 0.02)
    erin = ConversationManager(failing.of("erin"), config=config)
    conversation = await erin.get_or_create_conversation("kitchen")
    failing.down("hang")
    async with erin.turn(conversation.id) as turn:
        turn.user("now")
        context = await turn.load_context()
        failing.up()
    assert [message["content"] for message in context] == ["now"]
    assert context.report.degraded
    assert "did not answer within" in context.report.warnings[0]


@pytest.mark.requirement("004-055")
@pytest.mark.parametrize(
    ("policy", "size", "spoken"),
    [
        (None, 5, "5 messages"),
        (WindowPolicy(max_tokens=1000), 5, "5 messages"),
        (WindowPolicy(max_messages=6), 1, "1 message"),
    ],
)
async def test_a_slow_store_reduces_the_window(
    monkeypatch: pytest.MonkeyPatch, policy: WindowPolicy | None, size: int, spoken: str
) -> None:
    waits: list[float | None] = []

    async def bounded(seconds: float | None, work: Coroutine[Any, Any, Context]) -> Context:
        waits.append(seconds)
        if len(waits) > 1:
            return await work
        work.close()
        raise TimeoutError

    for name in ("within", "promptly_within"):
        monkeypatch.setattr(contexts, name, bounded)
    erin = ConversationManager(config=ConversationConfig(context_deadline=4))
    for number in range(30):
        await erin.add_message("kitchen", "user", str(number))
    context = await erin.load_context("kitchen", policy=policy)
    assert [message["content"] for message in context] == [str(number) for number in range(30 - size, 30)]
    assert context.report.warnings == (f"the store is slow: the window was reduced to {spoken}",)
    assert waits == [2, 2], "both attempts share the deadline"
    assert len(await erin.load_context("kitchen")) == 20, "the next load is not reduced"


async def test_an_unknown_conversation_in_an_outage_says_so(setup: LayerSetup) -> None:
    erin = ConversationManager(setup.memory.of("erin"))
    conversation = await erin.get_or_create_conversation("kitchen")
    setup.failing.down()
    here = ConversationManager(setup.layer.of("erin"))
    context = await here.load_context(conversation.id)
    assert len(context) == 0
    assert context.report.degraded
    with pytest.raises(StoreUnavailable):
        await here.get_conversation(conversation.id)
