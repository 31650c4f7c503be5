"""Every provider, through its SDK and a server of its kind, streamed and not: what is stored stays valid."""

import logging
from typing import get_args

import pytest

from aforesaid.agents import AgenticLoop, Specialist, answer_turn
from aforesaid.contracts import Agent, OnText
from aforesaid.dialects import DialectName, meaning_of
from aforesaid.errors import (
    AgentError,
    AgentRateLimited,
    AgentRefused,
    AgentRejected,
    AgentUnavailable,
    RequestTooLong,
    TooManySteps,
)
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.messages import Message
from aforesaid.testing.providers import Called, Fails, FakeProvider, Garbage, Refuses, Says, Silence
from aforesaid.testing.providers.provider import Kind
from aforesaid.testing.validity import problems
from tests.servers.providers import DIALECTS, KEY, Make
from tests.unit.agents.tools import meeting, registry

LIGHTS = Called("call_1", "lights", {"room": "kitchen"})
ALL_DIALECTS: tuple[DialectName, ...] = get_args(DialectName)


async def conversation(erin: ConversationManager) -> str:
    return (await erin.get_or_create_conversation("kitchen")).id


async def stored(erin: ConversationManager, conversation_id: str) -> list[Message]:
    """The log, which is a valid request of every provider."""
    messages = await erin.messages(conversation_id)
    for dialect in ALL_DIALECTS if messages else ():
        assert problems(await erin.load_request(conversation_id, dialect), dialect) == []
    return messages


def results_in(messages: list[Message]) -> list[tuple[str, str, bool]]:
    return [
        (result.call_id, str(result.content), result.is_error)
        for message in messages
        for result in meaning_of(message).results
    ]


async def test_an_answer_is_stored_with_its_question(
    agent: Agent, provider: FakeProvider, erin: ConversationManager, on_text: OnText | None, pieces: list[str]
) -> None:
    provider.will(Says("It is raining."))
    chat = await conversation(erin)
    specialist = Specialist(loop=AgenticLoop(agent, instructions="Be brief."))
    answer = await answer_turn(erin, chat, specialist, "How is the weather?", on_text=on_text)
    assert answer.text == "It is raining."
    assert answer.usage.input_tokens == 23
    assert answer.usage.output_tokens == 7
    assert "".join(pieces) == ("It is raining." if on_text else "")
    question, said = await stored(erin, chat)
    assert (question.role, question.content) == ("user", "How is the weather?")
    assert (said.role, said.dialect, said.agent_name) == ("assistant", agent.dialect, "assistant")
    assert meaning_of(said).text == "It is raining."
    assert "Be brief." in str(provider.requests[0])


async def test_calls_in_parallel_run_together_and_are_stored_in_the_providers_own_words(
    agent: Agent,
    kind: Kind,
    provider: FakeProvider,
    erin: ConversationManager,
    on_text: OnText | None,
) -> None:
    left, right = Called("call_l", "left"), Called("call_r", "right")
    provider.will(Says("I look.", (left, right, LIGHTS), thinking="hm"), Says("Both met."))
    chat = await conversation(erin)
    specialist = Specialist(loop=AgenticLoop(agent, tool_timeout=10), tools=registry(*meeting()))
    answer = await answer_turn(erin, chat, specialist, "Let them meet.", on_text=on_text)
    assert (answer.text, answer.steps) == ("Both met.", 2)
    messages = await stored(erin, chat)
    assert results_in(messages) == [
        ("call_l", "met", False),
        ("call_r", "met", False),
        ("call_1", "the lights in the kitchen are on", False),
    ]
    calls = [call for message in messages for call in meaning_of(message).calls]
    assert [(call.id, call.name) for call in calls] == [
        ("call_l", "left"),
        ("call_r", "right"),
        ("call_1", "lights"),
    ]
    assert {message.dialect for message in messages[1:]} == {DIALECTS[kind]}
    assert all((m.agent_name == "assistant") == (m.role == "assistant") for m in messages)
    assert provider.refused == []


async def test_the_next_turn_goes_on_from_stored_calls(
    agent: Agent, provider: FakeProvider, erin: ConversationManager, on_text: OnText | None
) -> None:
    provider.will(Says("", (LIGHTS,), thinking="hm"), Says("On."), Says("Still on."))
    chat = await conversation(erin)
    specialist = Specialist(loop=AgenticLoop(agent), tools=registry())
    await answer_turn(erin, chat, specialist, "Are the lights on?", on_text=on_text)
    answer = await answer_turn(erin, chat, specialist, "And now?", on_text=on_text)
    assert answer.text == "Still on."
    assert "the lights in the kitchen are on" in str(provider.requests[2])
    assert provider.refused == []


async def test_an_agent_without_tools_goes_on_where_tools_were_called(
    agent: Agent, provider: FakeProvider, erin: ConversationManager, on_text: OnText | None
) -> None:
    provider.will(Says("", (LIGHTS,)), Says("On."), Says("You are welcome."))
    chat = await conversation(erin)
    await answer_turn(erin, chat, Specialist(loop=AgenticLoop(agent), tools=registry()), "Lights?")
    answer = await answer_turn(erin, chat, Specialist(loop=AgenticLoop(agent)), "Thanks.", on_text=on_text)
    assert answer.text == "You are welcome."
    assert provider.refused == []


@pytest.mark.parametrize(
    ("called", "describe"),
    [
        (Called("call_1", "broken"), "broken failed"),
        (Called("call_1", "hangs"), "hangs timed out after 0.01 seconds"),
        (Called("call_1", "nowhere"), "there is no tool 'nowhere'"),
        (Called("call_1", "lights", {"room": 5}), "room must be of type string; got 5"),
    ],
    ids=["fails", "hangs", "unknown", "wrong"],
)
async def test_an_error_in_a_tool_is_sent_to_the_model(
    agent: Agent,
    provider: FakeProvider,
    erin: ConversationManager,
    on_text: OnText | None,
    called: Called,
    describe: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    provider.will(Says("", (called,)), Says("That did not work."))
    chat = await conversation(erin)
    specialist = Specialist(loop=AgenticLoop(agent), tools=registry())
    with caplog.at_level(logging.CRITICAL, "aforesaid.tools"):
        answer = await answer_turn(erin, chat, specialist, "Try.", on_text=on_text)
    assert answer.text == "That did not work."
    ((_, text, _),) = results_in(await stored(erin, chat))
    assert describe in text
    assert "hunter2" not in text
    assert describe in str(provider.requests[1]).replace("\\", "")


async def test_a_rate_limit_is_waited_for_as_the_provider_says(
    make: Make, provider: FakeProvider, erin: ConversationManager, on_text: OnText | None, kind: Kind
) -> None:
    provider.will(Fails(429, "slow down", "rate_limit_error", retry_after=0.001), Says("Here I am."))
    chat = await conversation(erin)
    specialist = Specialist(loop=AgenticLoop(make(retries=1)))
    answer = await answer_turn(erin, chat, specialist, "Hello?", on_text=on_text)
    assert answer.text == "Here I am."
    assert len(provider.requests) == 2
    assert len(await stored(erin, chat)) == 2


async def test_a_rate_limit_that_stays_is_an_error_and_leaves_no_trace(
    agent: Agent, provider: FakeProvider, erin: ConversationManager, on_text: OnText | None, kind: Kind
) -> None:
    provider.will(Says("", (LIGHTS,)), Fails(429, "slow down", "rate_limit_error", retry_after=7))
    chat = await conversation(erin)
    specialist = Specialist(loop=AgenticLoop(agent), tools=registry())
    with pytest.raises(AgentRateLimited) as caught:
        await answer_turn(erin, chat, specialist, "Hello?", on_text=on_text)
    assert caught.value.retry_after == (None if kind == "bedrock" else 7)
    assert await stored(erin, chat) == []


LONG = "it is all rather long"


@pytest.mark.parametrize("ending", ["breaks", "stops"])
async def test_a_broken_answer_is_an_error_and_leaves_only_what_was_heard(
    agent: Agent, provider: FakeProvider, erin: ConversationManager, on_text: OnText | None, ending: str
) -> None:
    provider.will(Says("Well, ", (LIGHTS,)), Says(LONG, ending=ending))  # type: ignore[arg-type]
    chat = await conversation(erin)
    specialist = Specialist(loop=AgenticLoop(agent), tools=registry())
    with pytest.raises(AgentUnavailable):
        await answer_turn(erin, chat, specialist, "Hello?", on_text=on_text)
    heard = [meaning_of(message).text for message in await stored(erin, chat)]
    if on_text is None:
        assert heard == []
    else:
        words, mark, _ = heard[-1].partition(" [incomplete: the model did not answer]")
        assert heard[0] == "Hello?"
        assert words
        assert LONG.startswith(words)
        assert mark
    provider.will(Says("Now."))
    await answer_turn(erin, chat, specialist, "Again?", on_text=on_text)
    assert [meaning_of(message).text for message in await stored(erin, chat)] == [*heard, "Again?", "Now."]


@pytest.mark.parametrize("words", ["I will not do that.", ""])
async def test_a_refusal_is_an_error_and_leaves_no_trace(
    agent: Agent, provider: FakeProvider, erin: ConversationManager, on_text: OnText | None, words: str
) -> None:
    provider.will(Refuses(words))
    chat = await conversation(erin)
    with pytest.raises(AgentRefused) as caught:
        await answer_turn(erin, chat, Specialist(loop=AgenticLoop(agent)), "Do it.", on_text=on_text)
    assert caught.value.words == words
    assert await stored(erin, chat) == []


async def test_an_endless_loop_must_answer_and_is_then_given_up(
    agent: Agent, provider: FakeProvider, erin: ConversationManager, on_text: OnText | None, kind: Kind
) -> None:
    provider.will(*(Says("", (Called(f"call_{n}", "lights", {"room": "hall"}),)) for n in range(3)))
    chat = await conversation(erin)
    specialist = Specialist(loop=AgenticLoop(agent, max_steps=3), tools=registry())
    with pytest.raises(TooManySteps):
        await answer_turn(erin, chat, specialist, "Go on.", on_text=on_text)
    assert len(provider.requests) == 3
    choices = ["none" in str(body.get("tool_choice", "")) for body in provider.requests]
    describe = ["Do not call any tool" in str(body.get("system", "")) for body in provider.requests]
    assert (describe if kind == "bedrock" else choices) == [False, False, True]
    assert await stored(erin, chat) == []


async def test_an_answer_that_runs_out_of_room_is_kept_and_says_so(
    agent: Agent, provider: FakeProvider, erin: ConversationManager, on_text: OnText | None
) -> None:
    provider.will(Says("Once upon a", out_of_room=True))
    chat = await conversation(erin)
    answer = await answer_turn(erin, chat, Specialist(loop=AgenticLoop(agent)), "Tell.", on_text=on_text)
    assert (answer.text, answer.complete) == ("Once upon a", False)
    assert len(await stored(erin, chat)) == 2


async def test_a_call_that_runs_out_of_room_is_not_run(
    agent: Agent, provider: FakeProvider, erin: ConversationManager, on_text: OnText | None
) -> None:
    cut = Called("call_2", "lights", '{"room": "kitch')
    provider.will(Says("", (LIGHTS, cut), out_of_room=True), Says("Sorry."))
    chat = await conversation(erin)
    specialist = Specialist(loop=AgenticLoop(agent), tools=registry())
    answer = await answer_turn(erin, chat, specialist, "Both rooms?", on_text=on_text)
    assert answer.text == "Sorry."
    first, second = results_in(await stored(erin, chat))
    assert first[:2] == ("call_1", "the lights in the kitchen are on")
    assert "cut off" in second[1]


async def test_garbled_arguments_are_reported_to_the_model(
    agent: Agent, provider: FakeProvider, erin: ConversationManager, on_text: OnText | None, kind: Kind
) -> None:
    provider.will(Says("", (Called("call_1", "lights", '{"room": kitchen}'),)), Says("I see."))
    chat = await conversation(erin)
    specialist = Specialist(loop=AgenticLoop(agent), tools=registry())
    try:
        answer = await answer_turn(erin, chat, specialist, "Lights?", on_text=on_text)
    except AgentUnavailable:
        # Anthropic's SDK reads the arguments of a stream itself, and gives up the whole reply.
        assert kind == "anthropic"
        assert await stored(erin, chat) == []
        return
    assert answer.text == "I see."
    assert len(results_in(await stored(erin, chat))) == 1


@pytest.mark.parametrize(
    ("fails", "error"),
    [
        (Fails(401, f"bad key {KEY}", "authentication_error"), AgentRejected),
        (Fails(400, "prompt is too long", "invalid_request_error"), RequestTooLong),
        (Fails(500, "oops", "api_error"), AgentUnavailable),
        (Fails(529, "overloaded", "overloaded_error"), AgentUnavailable),
    ],
    ids=["key", "long", "fault", "overloaded"],
)
async def test_errors_of_the_provider_are_ours_and_say_no_secret(
    agent: Agent,
    provider: FakeProvider,
    on_text: OnText | None,
    fails: Fails,
    error: type[AgentError],
    caplog: pytest.LogCaptureFixture,
) -> None:
    provider.will(fails)
    with caplog.at_level(logging.DEBUG, "aforesaid"), pytest.raises(error) as caught:
        await AgenticLoop(agent).run("Hello?", on_text=on_text)
    assert type(caught.value) is error
    assert caught.value.status in (fails.status, 413 if error is RequestTooLong else fails.status)
    assert KEY not in f"{caught.value!r} {vars(caught.value)}"
    assert KEY not in caplog.text
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


async def test_an_error_inside_a_stream_is_ours(
    make: Make, provider: FakeProvider, streaming: bool, kind: Kind
) -> None:
    if not streaming:
        provider.will(Fails(500, "overloaded", "overloaded_error"))
    else:
        provider.will(Fails(500, "overloaded", "overloaded_error", inside=True))
    with pytest.raises(AgentUnavailable, match="overloaded"):
        await AgenticLoop(make()).run("Hello?", on_text=(lambda _: None) if streaming else None)


async def test_a_provider_that_is_silent_is_given_up(
    make: Make, provider: FakeProvider, on_text: OnText | None
) -> None:
    provider.will(Silence())
    with pytest.raises(AgentUnavailable):
        await AgenticLoop(make(timeout=0.05)).run("Hello?", on_text=on_text)


async def test_a_provider_that_is_not_there_is_an_error(
    agent: Agent, provider: FakeProvider, on_text: OnText | None
) -> None:
    await provider.__aexit__(None, None, None)
    with pytest.raises(AgentUnavailable):
        await AgenticLoop(agent).run("Hello?", on_text=on_text)


@pytest.mark.parametrize(
    "garbage",
    [
        Garbage("<html>Please log in to this network.</html>"),
        Garbage("{}", "application/json"),
        Garbage('{"choices": null, "content": 5, "output": "x"}', "application/json"),
        Garbage("[]", "application/json"),
        Garbage("{", "application/json"),
        Garbage("data: {}\n\n", "text/event-stream"),
        Garbage("data: {\n\n", "text/event-stream"),
    ],
    ids=["page", "empty", "odd", "list", "broken", "empty event", "broken event"],
)
async def test_what_is_no_reply_is_an_error(
    agent: Agent, provider: FakeProvider, on_text: OnText | None, garbage: Garbage
) -> None:
    provider.will(garbage)
    with pytest.raises(AgentUnavailable):
        await AgenticLoop(agent).run("Hello?", on_text=on_text)


async def test_an_empty_answer_is_an_error(
    agent: Agent, provider: FakeProvider, on_text: OnText | None
) -> None:
    provider.will(Says(""))
    with pytest.raises(AgentUnavailable):
        await AgenticLoop(agent).run("Hello?", on_text=on_text)
