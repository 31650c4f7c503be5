"""The loop by itself: what it asks, what it gives back, and what it leaves behind."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aforesaid.agents import AgenticLoop, Answer
from aforesaid.agents.tools import Tool
from aforesaid.contracts import Ask, OnText, Reply, Usage
from aforesaid.dialects import meaning_of, write
from aforesaid.errors import AgentUnavailable, InvalidInput, TooManySteps
from aforesaid.model.contexts import Context
from aforesaid.model.messages import Message
from aforesaid.testing.validity import problems
from tests.doubles import Scripted, calling
from tests.unit.agents.tools import NOTHING, registry


async def test_history_goes_before_the_question() -> None:
    agent = Scripted("Fine.")
    history = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hello!"}]
    answer = await AgenticLoop(agent).run("How are you?", history)
    assert [message.content for message in agent.asked[0].messages] == ["Hello.", "Hello!", "How are you?"]
    assert [message.content for message in answer.messages] == ["How are you?", "Fine."]


async def test_history_may_be_a_context_or_dicts_of_a_provider() -> None:
    agent = Scripted("One.", "Two.")
    context = Context(messages=(Message(role="user", content="Hello."),))
    await AgenticLoop(agent).run("A?", context)
    await AgenticLoop(agent).run("B?", [{"role": "user", "content": [{"type": "text", "text": "Hi."}]}])
    assert meaning_of(agent.asked[0].messages[0]).text == "Hello."
    assert agent.asked[1].messages[0].dialect == "anthropic"


async def test_every_message_of_a_turn_has_an_id_and_answers_name_the_agent() -> None:
    agent = Scripted(calling(("c1", "lights", {"room": "hall"})), "On.", name="home")
    answer = await AgenticLoop(agent).run("Lights?", (), registry())
    assert len({message.message_id for message in answer.messages}) == 4
    assert [message.agent_name for message in answer.messages] == [None, "home", None, "home"]


@pytest.mark.parametrize("call_id", ["c1", ""])
async def test_calls_of_one_reply_with_one_id_have_a_result_each(call_id: str) -> None:
    agent = Scripted(calling(*((call_id, "lights", {"room": room}) for room in ("hall", "attic"))), "On.")
    answer = await AgenticLoop(agent).run("Lights?", (), registry())
    _, reply, *results, _ = map(meaning_of, answer.messages)
    rooms = {call.id: call.arguments["room"] for call in reply.calls}
    assert len(rooms) == 2
    for result in (result for meaning in results for result in meaning.results):
        assert result.content == f"the lights in the {rooms.pop(result.call_id)} are on"
    assert rooms == {}
    for dialect in ("plain", "anthropic", "openai_chat", "openai_responses"):
        assert problems(write(agent.asked[1].messages, dialect), dialect) == []


async def test_what_is_said_before_a_call_is_no_part_of_the_answer() -> None:
    agent = Scripted(calling(("c1", "lights", {"room": "hall"}), text="Let me look."), "On.")
    answer = await AgenticLoop(agent).run("Lights?", (), registry())
    assert answer.text == "On."
    assert meaning_of(answer.messages[1]).text == "Let me look."


async def test_a_pause_is_gone_on_from() -> None:
    paused = Reply(
        messages=(Message(role="assistant", content="First,"),), stop="pause", usage=Usage(input_tokens=2)
    )
    agent = Scripted(paused, "second.")
    answer = await AgenticLoop(agent).run("Tell me.")
    assert (answer.text, answer.steps, answer.usage.input_tokens) == ("First,\nsecond.", 2, 2)


async def test_the_last_step_may_not_call() -> None:
    reply = calling(("c1", "lights", {"room": "hall"}))
    agent = Scripted(reply, reply)
    with pytest.raises(TooManySteps, match="2 steps"):
        await AgenticLoop(agent, max_steps=2).run("Lights?", (), registry())
    assert [ask.may_call for ask in agent.asked] == [True, False]


@pytest.mark.parametrize("bad", ["", "   ", None, 5])
async def test_a_question_has_words(bad: Any) -> None:
    with pytest.raises(InvalidInput, match="user_text"):
        await AgenticLoop(Scripted()).run(bad)


@pytest.mark.parametrize("options", [{"max_steps": 0}, {"max_steps": True}, {"at_once": "8"}])
def test_limits_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(options))):
        AgenticLoop(Scripted(), **options)


async def test_only_so_many_tools_run_at_once() -> None:
    running, most = 0, 0

    async def busy() -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(5):
            await asyncio.sleep(0)
        running -= 1
        return "done"

    tool = Tool(name="busy", description="", parameters=NOTHING, run=busy)
    agent = Scripted(calling(*((f"c{n}", "busy", {}) for n in range(9))), "Done.")
    await AgenticLoop(agent, at_once=3).run("Go.", (), [tool])
    assert most == 3


async def test_cancelling_a_turn_cancels_its_tools() -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def patient() -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return ""

    tool = Tool(name="patient", description="", parameters=NOTHING, run=patient)
    turn = asyncio.ensure_future(AgenticLoop(Scripted(calling(("c1", "patient", {})))).run("Go.", (), [tool]))
    await started.wait()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    await asyncio.wait_for(cancelled.wait(), 240)


async def test_a_tool_that_will_not_be_cancelled_is_left_behind() -> None:
    freed = asyncio.Event()

    async def stubborn() -> str:
        while not freed.is_set():
            try:
                await freed.wait()
            except asyncio.CancelledError:
                continue
        return "at last"

    tool = Tool(name="stubborn", description="", parameters=NOTHING, run=stubborn)
    agent = Scripted(calling(("c1", "stubborn", {})), "Never mind.")
    answer = await AgenticLoop(agent, tool_timeout=0.01).run("Go.", (), [tool])
    freed.set()
    assert answer.text == "Never mind."


async def test_a_tool_that_cancels_itself_does_not_cancel_the_turn() -> None:
    async def gone() -> str:
        raise asyncio.CancelledError

    tool = Tool(name="gone", description="", parameters=NOTHING, run=gone)
    answer = await AgenticLoop(Scripted(calling(("c1", "gone", {})), "Odd.")).run("Go.", (), [tool])
    assert answer.text == "Odd."
    assert "gone was cancelled" in str(answer.messages[2].content)


async def test_streaming_gives_pieces_and_then_the_answer() -> None:
    loop = AgenticLoop(Scripted("All is well."))
    async with aclosing(loop.stream("How is it?")) as stream:
        *pieces, answer = [piece async for piece in stream]
    assert pieces == ["All", "is", "well."]
    assert isinstance(answer, Answer)
    assert answer.text == "All is well."


async def test_leaving_a_stream_early_cancels_the_turn() -> None:
    ended = asyncio.Event()

    class Endless(Scripted):
        async def reply(self, ask: Ask, *, on_text: OnText | None = None) -> Reply:
            assert on_text is not None
            on_text("Well")
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            raise AssertionError

    async with aclosing(AgenticLoop(Endless()).stream("Tell me.")) as stream:
        assert await anext(stream) == "Well"
    assert ended.is_set()


async def test_a_stream_that_fails_raises() -> None:
    async with aclosing(AgenticLoop(Scripted(AgentUnavailable("gone"))).stream("Hm?")) as stream:
        with pytest.raises(AgentUnavailable, match="gone"):
            await anext(stream)


names = st.sampled_from(["lights", "broken", "hangs", "nowhere"])
steps = st.lists(st.lists(names, min_size=1, max_size=4), max_size=4)


@given(steps=steps, dialect=st.sampled_from(["plain", "anthropic", "openai_chat", "openai_responses"]))
def test_whatever_is_called_a_turn_is_a_valid_request_everywhere(
    steps: list[list[str]], dialect: str
) -> None:
    number = iter(range(100))
    replies = [
        calling(
            *((f"call_{next(number)}", name, {"room": "hall"} if name == "lights" else {}) for name in called)
        )
        for called in steps
    ]
    agent = Scripted(*replies, "Done.")
    answer = asyncio.run(AgenticLoop(agent).run("Do it all.", (), registry()))
    calls = [call.id for message in answer.messages for call in meaning_of(message).calls]
    results = [result.call_id for message in answer.messages for result in meaning_of(message).results]
    assert calls == results
    assert problems(write(answer.messages, dialect), dialect) == []
