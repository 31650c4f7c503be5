"""Microsoft agent-framework with Aforesaid as its history provider."""

import inspect
import random
from collections.abc import Callable
from typing import Any

import pytest
from agent_framework import (
    Agent,
    BaseChatClient,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    HistoryProvider,
    InMemoryHistoryProvider,
    Message,
    tool,
)

import aforesaid
from aforesaid.adapters.agent_framework import AforesaidHistoryProvider
from aforesaid.memory.interface import ManagerProtocol
from tests.adapters.checks import Adapter, AdapterChecks


class Scripted(FunctionInvocationLayer, BaseChatClient):
    """A model that gives prepared answers."""

    def __init__(self, *answers: Any, before: Callable[[], Any] = lambda: None) -> None:
        super().__init__()
        self.answers = list(answers)
        self.before = before

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **_: Any) -> Any:
        async def answer() -> ChatResponse:
            self.before()
            content = self.answers.pop(0)
            return ChatResponse(messages=[Message(role="assistant", contents=[content])])

        return answer()


@tool(approval_mode="never_require")
def look(where: str) -> str:
    """Look somewhere."""
    return f"a rake in the {where}"


class MicrosoftAdapter(Adapter):
    before_answer: Callable[[], Any] = staticmethod(lambda: None)

    def conversation(self, session: str) -> str:
        return f"agent-framework/{session}"

    async def say(self, manager: ManagerProtocol, session: str, question: str, answer: str) -> None:
        await self._run(manager, session, question, answer)

    async def call_tool(self, manager: ManagerProtocol, session: str) -> None:
        call = Content.from_function_call("c1", "look", arguments='{"where": "shed"}')
        await self._run(manager, session, "What is in the shed?", call, "A rake.")

    async def _run(self, manager: ManagerProtocol, session: str, question: str, *answers: Any) -> None:
        client = Scripted(*answers, before=self.before_answer)
        agent = Agent(client=client, tools=[look], context_providers=[AforesaidHistoryProvider(manager)])
        await agent.run(question, session=agent.create_session(session_id=session))

    async def history(self, manager: ManagerProtocol, session: str) -> list[str]:
        return [one.text for one in await AforesaidHistoryProvider(manager).get_messages(session)]


class TestChecks(AdapterChecks):
    adapter = MicrosoftAdapter()


def test_the_interface_is_complete() -> None:
    assert not getattr(AforesaidHistoryProvider, "__abstractmethods__", ())
    reference = inspect.getmembers(InMemoryHistoryProvider, inspect.isfunction)
    overridden = {name for name, method in reference if method.__qualname__.startswith("InMemory")}
    assert overridden <= set(vars(AforesaidHistoryProvider))
    for name in ("get_messages", "save_messages"):
        ours = inspect.signature(getattr(AforesaidHistoryProvider, name)).parameters
        wanted = inspect.signature(getattr(HistoryProvider, name)).parameters
        assert {each for each in wanted if each != "kwargs"} <= set(ours)


@pytest.mark.parametrize("seed", range(5))
async def test_random_operations_give_what_the_reference_gives(seed: int) -> None:
    """New messages, replays of the last ones, calls and results, in two sessions."""
    choose = random.Random(seed)
    states: dict[str, Any] = {"a": {}, "b": {}}
    reference = InMemoryHistoryProvider()
    async with aforesaid.open("memory://") as memory:
        ours = AforesaidHistoryProvider(memory.of("kim"))
        for step in range(30):
            name = choose.choice("ab")
            state: dict[str, Any] = states[name]
            stored = state.get("messages", [])
            replayed = stored[len(stored) - choose.randint(0, min(3, len(stored))) :]
            saved = [*replayed, *(_message(choose, f"{step}.{number}") for number in range(2))]
            await reference.save_messages(name, saved, state=state)
            await ours.save_messages(name, saved, state={})
            for session in "ab":
                wanted = await reference.get_messages(session, state=states[session])
                found = await ours.get_messages(session)
                assert [one.to_dict() for one in found] == [one.to_dict() for one in wanted], (seed, step)


def _message(choose: random.Random, name: str) -> Message:
    contents: Any = choose.choice(
        [
            [f"text {name}"],
            ["", f"ä\u2028 {name}"],
            [Content.from_function_call(name, "look", arguments='{"where": "shed"}')],
            [Content.from_function_result(name, result="a rake")],
            [Content.from_uri("https://example.org/x.png", media_type="image/png"), name],
        ]
    )
    # The messages that a client repeats have ids.
    return Message(role=choose.choice(["user", "assistant"]), contents=contents, message_id=f"m{name}")


async def test_a_message_that_is_saved_again_is_stored_once() -> None:
    async with aforesaid.open("memory://") as memory:
        provider = AforesaidHistoryProvider(memory.of("kim"))
        message = Message(role="user", contents=["hi"], message_id="m1")
        await provider.save_messages("s", [message])
        await provider.save_messages("s", [message, Message(role="user", contents=["hi"])])
        await provider.save_messages("s", [Message(role="user", contents=["hi"])])
        found = await provider.get_messages("s")
        assert [one.text for one in found] == ["hi", "hi", "hi"]
        assert found[0].to_dict() == message.to_dict()
        with pytest.raises(aforesaid.errors.InvalidInput, match="session"):
            await provider.get_messages(None)
