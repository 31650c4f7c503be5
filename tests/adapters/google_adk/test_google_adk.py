"""Google ADK with Aforesaid as its session and memory service."""

import inspect
import random
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.memory.base_memory_service import BaseMemoryService
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig
from google.genai import types

import aforesaid
from aforesaid.adapters.google_adk import AforesaidMemoryService, AforesaidSessionService
from aforesaid.memory.interface import ManagerProtocol
from tests.adapters.checks import AdapterChecks, StateChecks, StatefulAdapter

WHERE: Any = {"app_name": "app", "user_id": "kim"}


class Scripted(BaseLlm):
    """A model that gives prepared answers."""

    model: str = "scripted"
    answers: list[Any] = []
    before: Any = None

    async def generate_content_async(self, *_: Any, **__: Any) -> AsyncGenerator[LlmResponse, None]:
        if self.before is not None:
            self.before()
        answer = self.answers.pop(0)
        part = types.Part(text=answer) if isinstance(answer, str) else types.Part(function_call=answer)
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def look(where: str) -> str:
    """Look somewhere."""
    return f"a rake in the {where}"


class GoogleAdapter(StatefulAdapter):
    before_answer: Callable[[], Any] | None = None

    def conversation(self, session: str) -> str:
        return f"google-adk/app/kim/{session}"

    async def say(self, manager: ManagerProtocol, session: str, question: str, answer: str) -> None:
        await self._run(manager, session, question, answer)

    async def call_tool(self, manager: ManagerProtocol, session: str) -> None:
        call = types.FunctionCall(id="c1", name="look", args={"where": "shed"})
        await self._run(manager, session, "What is in the shed?", call, "A rake.")

    async def _run(self, manager: ManagerProtocol, session: str, question: str, *answers: Any) -> None:
        service = AforesaidSessionService(manager)
        if await service.get_session(**WHERE, session_id=session) is None:
            await service.create_session(**WHERE, session_id=session)
        model = Scripted(answers=list(answers), before=self.before_answer)
        agent = LlmAgent(name="bot", model=model, tools=[look])
        runner = Runner(agent=agent, app_name="app", session_service=service)
        asked = types.Content(role="user", parts=[types.Part(text=question)])
        async for _ in runner.run_async(user_id="kim", session_id=session, new_message=asked):
            pass

    async def history(self, manager: ManagerProtocol, session: str) -> list[str]:
        found = await AforesaidSessionService(manager).get_session(**WHERE, session_id=session)
        events = [] if found is None else found.events
        return ["".join(part.text or "" for part in one.content.parts) for one in events if one.content]

    async def keep_state(self, manager: ManagerProtocol, session: str, word: str) -> None:
        service = AforesaidSessionService(manager)
        found = await service.get_session(**WHERE, session_id=session)
        assert found is not None
        await service.append_event(
            found, Event(author="bot", actions=EventActions(state_delta={"word": word}))
        )

    async def state(self, manager: ManagerProtocol, session: str) -> str:
        found = await AforesaidSessionService(manager).get_session(**WHERE, session_id=session)
        return "" if found is None else str(found.state)


class TestChecks(AdapterChecks, StateChecks):
    adapter = GoogleAdapter()


async def test_redacted_events_keep_their_author_and_their_calls() -> None:
    adapter = GoogleAdapter()
    async with aforesaid.open("memory://") as memory:
        kim, name = memory.of("kim"), adapter.conversation("s")
        await adapter.call_tool(kim, "s")
        service = AforesaidSessionService(kim)
        before = await service.get_session(**WHERE, session_id="s")
        for entry in await kim.entries(name):
            await kim.redact(name, str(entry.message.message_id))
        after = await service.get_session(**WHERE, session_id="s")
    assert before is not None
    assert after is not None
    assert [one.author for one in after.events] == [one.author for one in before.events]
    assert [_calls(one) for one in after.events] == [_calls(one) for one in before.events]
    assert "shed" not in str(after.events)


def _calls(event: Event) -> Any:
    calls = [(one.id, one.name) for one in event.get_function_calls()]
    return calls, [(one.id, one.name) for one in event.get_function_responses()]


def test_the_interfaces_are_complete() -> None:
    for ours, base in (
        (AforesaidSessionService, BaseSessionService),
        (AforesaidMemoryService, BaseMemoryService),
    ):
        assert not ours.__abstractmethods__
        for name, method in inspect.getmembers(base, inspect.isfunction):
            if name in vars(ours):
                wanted = set(inspect.signature(method).parameters)
                assert wanted <= set(inspect.signature(vars(ours)[name]).parameters), name


@pytest.mark.parametrize("seed", range(4))
async def test_random_operations_give_what_the_reference_gives(seed: int) -> None:
    choose = random.Random(seed)
    async with aforesaid.open("memory://") as memory:
        services = [InMemorySessionService(), AforesaidSessionService(memory.of("kim"))]
        for step in range(40):
            name, action = choose.choice("ab"), choose.choice(["create", "event", "event", "delete", "list"])
            key = choose.choice(["x", "user:y", "app:z", "temp:t"])
            outcomes = [await _act(service, action, name, key, step) for service in services]
            assert outcomes[0] == outcomes[1], (seed, step, action)


async def _act(service: Any, action: str, name: str, key: str, step: int) -> Any:
    where = {**WHERE, "session_id": name}
    try:
        if action == "create":
            session = await service.create_session(**where, state={key: step})
            return _plain(session)
        if action == "delete":
            return await service.delete_session(**where)
        if action == "list":
            found = (await service.list_sessions(app_name="app", user_id="kim")).sessions
            return sorted((one.id, sorted(one.state.items())) for one in found)
        session = await service.get_session(**where)
        if session is None:
            return None
        event = Event(
            id=f"e{step}",
            author="user",
            timestamp=1000.0 + step,
            content=types.Content(role="user", parts=[types.Part(text=f"said {step}")]),
            actions=EventActions(state_delta={key: step}),
        )
        await service.append_event(session, event)
        await service.append_event(session, Event(author="user", partial=True))
        config = GetSessionConfig(num_recent_events=step % 3)
        return [
            _plain(await service.get_session(**where)),
            _plain(await service.get_session(**where, config=config)),
        ]
    except (AlreadyExistsError, SessionNotFoundError, ValueError) as error:  # compared with the reference
        return type(error).__name__


def _plain(session: Any) -> Any:
    events = [one.model_dump(mode="json", exclude_none=True) for one in session.events]
    return session.id, sorted(session.state.items()), events


async def test_memory_searches_the_sessions_of_the_user() -> None:
    async with aforesaid.open("memory://", models=aforesaid.Models(embedder=None)) as memory:
        kim = memory.of("kim")
        await GoogleAdapter().say(kim, "s1", "Anna grows roses in her garden", "How nice.")
        service = AforesaidMemoryService(kim)
        found = await service.search_memory(**WHERE, query="roses")
        assert "roses" in found.memories[0].content.parts[0].text
        others = await service.search_memory(app_name="app", user_id="lee", query="roses")
        assert others.memories == []
        session = await AforesaidSessionService(kim).get_session(**WHERE, session_id="s1")
        assert session is not None
        await service.add_session_to_memory(session)
        assert len(await kim.messages("google-adk/app/kim/s1")) == 2
        await service.delete_memory(**WHERE, memory_id=found.memories[0].id)
        assert (await service.search_memory(**WHERE, query="roses")).memories == []
