"""An agent without a policy gets a window that its model can read."""

from typing import Any

import pytest

from aforesaid import ConversationConfig, ConversationManager
from aforesaid.agents import AgenticLoop, Specialist, answer_turn
from aforesaid.agents.sent_requests import kept_request
from aforesaid.contracts.plugins import Ask, OnText, Reply
from aforesaid.model.messages import Message
from aforesaid.windows import WindowPolicy


class NamedModel:
    """An agent that says how many messages it received."""

    name = "counter"
    dialect = "plain"

    def __init__(self, model: Any) -> None:
        self.model = model

    async def reply(self, ask: Ask, *, on_text: OnText | None = None) -> Reply:
        text = str(len(ask.messages))
        return Reply(messages=(Message(role="assistant", content=text, agent_name=self.name),))

    async def close(self) -> None:
        """Nothing is open."""


async def used_policy(manager: ConversationManager, model: Any, policy: WindowPolicy | None = None) -> Any:
    specialist = Specialist(loop=AgenticLoop(NamedModel(model)), policy=policy)
    answer = await answer_turn(manager, "kitchen", specialist, "What is for dinner?")
    conversation = await manager.get_conversation("kitchen")
    await manager.unstored.later_is_done()
    return (await kept_request(manager.store, conversation.id, str(answer.messages[-1].message_id))).policy


@pytest.mark.parametrize(
    ("model", "budget"), [("gpt-4", 6_144), ("gpt-4o", 96_000), ("unheard-of", 8_000), (None, 8_000)]
)
async def test_the_budget_comes_from_the_model(model: str | None, budget: int) -> None:
    assert (await used_policy(ConversationManager(), model))["max_tokens"] == budget


async def test_a_setting_a_handle_and_a_specialist_each_replace_it() -> None:
    manager = ConversationManager(config=ConversationConfig(request_tokens=2_000))
    assert (await used_policy(manager, "gpt-4o"))["max_tokens"] == 2_000
    handle = manager.with_policy(WindowPolicy(max_tokens=1_500))
    assert (await used_policy(handle, "gpt-4o"))["max_tokens"] == 1_500
    assert (await used_policy(handle, "gpt-4o", WindowPolicy(max_tokens=1_000)))["max_tokens"] == 1_000
