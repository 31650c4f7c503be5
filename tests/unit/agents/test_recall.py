"""The recall agent: answers from one owner's history, with citations, without a model."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import aforesaid
from aforesaid.agents import RecallAgent, SupervisorAgent, answer_turn, assistant_for
from aforesaid.agents.configured import Assistants, agent_for
from aforesaid.agents.loop import AgenticLoop
from aforesaid.agents.recall import LABEL, when
from aforesaid.contracts import Agent, Ask
from aforesaid.errors import InvalidInput, InvalidSetting
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.messages import Message, words_of
from aforesaid.notes.records import Source
from aforesaid.settings import AgentConfig, Settings
from aforesaid.testing import FixedClock
from aforesaid.testing.providers import FakeProvider, Says
from aforesaid.testing.validity import problems
from tests.report import MATRIX

MONDAY = datetime(2026, 3, 2, 9, 30, tzinfo=UTC)
TILES = "The bathroom tiles are from Porto."


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock(MONDAY)


@pytest.fixture(params=["memory", "sqlite"] if MATRIX else ["sqlite"])
async def memory(
    request: pytest.FixtureRequest, tmp_path: Path, clock: FixedClock
) -> AsyncIterator[aforesaid.Memory]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/memory.db?synchronous=normal"
    async with aforesaid.open(
        url,
        retention=aforesaid.Retention(sweep_every=None),
        models=aforesaid.Models(embedder=None),
        clock=clock,
    ) as memory:
        yield memory


def assistant(manager: ConversationManager) -> SupervisorAgent:
    return Assistants(timezone=UTC).of(manager)


async def test_it_quotes_what_was_said_with_the_day_and_the_place(
    erin: ConversationManager, clock: FixedClock
) -> None:
    await assistant(erin).process_query(TILES, "monday")
    said_in = await erin.session("monday")
    assert said_in is not None
    clock.advance(timedelta(days=1))
    answer = await assistant(erin).process_query("What did I say about the bathroom tiles?", "tuesday")
    assert answer == (
        f"{LABEL}\n- Yesterday you said: “{TILES}” [1]\nSources: [1] conversation {said_in.id}, message 1"
    )
    clock.advance(timedelta(days=2))
    answer = await assistant(erin).process_query("What did I say about the bathroom tiles?", "thursday")
    assert "On Monday you said" in answer, "neither its own answers nor earlier questions are quoted"
    assert answer.count("[1]") == 2
    assert "[2]" not in answer


async def test_a_user_who_asks_for_their_questions_gets_them(
    erin: ConversationManager, clock: FixedClock
) -> None:
    """Questions are no answers, but where they are what is looked for."""
    await assistant(erin).process_query("What is the weather in Topeka?", "monday")
    await assistant(erin).process_query("The weather in Topeka is fine.", "monday")
    clock.advance(timedelta(days=1))
    for session in ("tuesday", "again"):
        answer = await assistant(erin).process_query("When did I ask about the weather in Topeka?", session)
        assert answer.startswith(f"{LABEL}\n- Yesterday you asked: “What is the weather in Topeka?” [1]\n")
        assert "[2]" not in answer


async def test_it_says_plainly_that_it_finds_nothing(erin: ConversationManager) -> None:
    answer = await assistant(erin).process_query("What did I say about bicycles?", "s")
    assert answer == (
        "I find nothing about “bicycles” in what was said here. I only recall; there is no model behind me."
    )


async def test_it_greets_and_says_what_it_is(erin: ConversationManager) -> None:
    for greeting in ("hello", "who are you?"):
        assert "model" in await assistant(erin).process_query(greeting, "s")
    for said in ("thanks", "bye", "never mind", TILES):
        assert await assistant(erin).process_query(said, "s")


async def test_it_never_quotes_another_owner(memory: aforesaid.Memory) -> None:
    await assistant(memory.of("erin")).process_query(TILES, "s")
    await memory.of("erin").remember("The bathroom tiles cost 900")
    answer = await assistant(memory.of("bob")).process_query("What did I say about the bathroom tiles?", "s")
    assert "nothing" in answer
    assert "Porto" not in answer


async def test_it_knows_the_days_of_the_calendar(erin: ConversationManager, clock: FixedClock) -> None:
    await assistant(erin).process_query(TILES, "s")
    clock.advance(timedelta(days=2))
    await assistant(erin).process_query("The kitchen tiles are from Delft.", "s")
    clock.advance(timedelta(days=1))
    ask = assistant(erin).process_query
    assert "Porto" in await ask("what did we talk about last Monday?", "s")
    assert "Delft" not in await ask("what did I say about tiles last Monday?", "s")
    assert "Delft" in await ask("what did I say about tiles yesterday?", "s")
    elsewhere = await ask("what did I say about tiles last Tuesday?", "s")
    assert "Not then" in elsewhere
    assert "Porto" in elsewhere
    assert "nothing" in await ask("what did we talk about last Tuesday?", "s")


async def test_it_makes_notes_that_know_where_they_were_said(erin: ConversationManager) -> None:
    ask = assistant(erin).process_query
    assert await ask("Remember that the bedroom lights are dim at 9 pm.", "s") == (
        "I will remember: The bedroom lights are dim at 9 pm"
    )
    (note,) = await erin.notes()
    record = await erin.session("s")
    assert record is not None
    log = await erin.messages(record.id)
    assert note.source == Source(conversation_id=record.id, message_id=log[0].message_id)
    assert [message.role for message in log] == ["user", "assistant", "tool", "assistant"]
    for dialect in ("anthropic", "openai_chat", "openai_responses", "plain"):
        assert problems(await erin.load_request(record.id, dialect), dialect) == []
    assert "dim at 9 pm" in await ask("what are the bedroom lights like?", "s")
    assert "dim at 9 pm" in await ask("what do you know about me?", "s")
    assert "It replaces: The bedroom lights are dim" in await ask("remember the bedroom lights are off", "s")


async def test_it_forgets_on_request(erin: ConversationManager) -> None:
    ask = assistant(erin).process_query
    await ask("remember that the bedroom lights are dim at 9 pm", "s")
    assert "Tell me what" in await ask("forget everything", "s")
    assert "no such note" in await ask("forget the garden", "s")
    assert len(await erin.notes()) == 1
    assert await ask("forget the bedroom lights", "s") == "Forgotten: 1 note and 4 messages."
    assert await erin.notes() == []
    assert "nothing" in await ask("what are the bedroom lights like?", "s")
    assert "nothing yet" in await ask("what do you know about me?", "s")


async def test_without_tools_it_does_the_same_itself(erin: ConversationManager) -> None:
    agent = RecallAgent(erin, timezone=UTC)
    loop = AgenticLoop(agent)
    assert "I will remember: I like tea" in (await loop.run("remember that I like tea")).text
    assert len(await erin.notes()) == 1
    assert "Forgotten: 1 note" in (await loop.run("forget I like tea")).text
    assert "no such note" in (await loop.run("forget I like tea")).text


async def test_a_note_that_cannot_be_made_is_reported(erin: ConversationManager) -> None:
    answer = await assistant(erin).process_query(f"remember that {'x ' * 1200}", "s")
    assert "I could not do that: text must have at most 2,000 characters" in answer
    assert await erin.notes() == []


async def test_what_it_says_is_streamed(erin: ConversationManager) -> None:
    pieces: list[str] = []
    answer = await assistant(erin).process_query("hello", "s", on_text=pieces.append)
    assert len(pieces) > 10
    assert "".join(pieces) == answer


async def test_who_asks_nothing_gets_an_error(erin: ConversationManager) -> None:
    with pytest.raises(InvalidInput, match="question"):
        await RecallAgent(erin).reply(Ask(messages=(Message(role="assistant", content="x"),)))


@pytest.mark.parametrize(
    ("before", "words"),
    [
        (timedelta(minutes=5), "Today, 5 minutes ago,"),
        (timedelta(days=1), "Yesterday"),
        (timedelta(days=3), "On Friday"),
        (timedelta(days=7), "On Monday, 23 February"),
        (timedelta(days=400), "On Sunday, 26 January 2025"),
    ],
)
def test_when_it_was_as_people_say_it(before: timedelta, words: str) -> None:
    assert when(MONDAY - before, MONDAY) == words


# Which assistant the settings name


async def test_without_a_provider_the_recall_agent_answers(erin: ConversationManager) -> None:
    specialist = Assistants().specialist(erin)
    agent: Agent = specialist.loop.agent
    assert isinstance(agent, RecallAgent)
    assert [tool.name for tool in specialist.tools] == ["search_history", "remember", "recall", "forget"]
    assert "recall" in await assistant_for(erin).process_query("hello", "s")
    await agent.close()


@pytest.mark.slow
async def test_the_settings_name_a_provider(erin: ConversationManager) -> None:
    async with FakeProvider("anthropic") as provider:
        provider.will(Says("Hello Erin."))
        environ = {
            "AFORESAID_PROVIDER": "anthropic",
            "AFORESAID_MODEL": "claude-fake",
            "AFORESAID_PROVIDER_URL": provider.url,
            "AFORESAID_PROVIDER_KEY": "sk-test",
            "AFORESAID_INSTRUCTIONS": "Be brief.",
        }
        assistants = Assistants(Settings.load(environ=environ).agent)
        assert assistants.uses_model
        await erin.remember("I like tea")
        assert await assistants.of(erin).process_query("hello", "s") == "Hello Erin."
        sent = provider.requests[-1]
        assert sent["system"][0]["text"] == "Be brief."
        assert "I like tea" in sent["system"][1]["text"]
        assert {tool["name"] for tool in sent["tools"]} >= {"search_history", "remember", "forget"}
        await assistants.close()


@pytest.mark.parametrize("provider", ["openai", "openai_responses", "bedrock", "anthropic"])
async def test_every_provider_can_be_named_and_needs_a_model(provider: str) -> None:
    agent = agent_for(AgentConfig(provider=provider, model="m", provider_url="http://127.0.0.1:9"))
    assert agent is not None
    await agent.close()
    with pytest.raises(InvalidSetting, match="AFORESAID_MODEL"):
        agent_for(AgentConfig(provider=provider))


async def test_a_provider_that_is_none_names_its_variable() -> None:
    with pytest.raises(InvalidSetting, match="AFORESAID_PROVIDER"):
        Settings.load(environ={"AFORESAID_PROVIDER": "oracle"})


async def test_a_turn_of_the_recall_agent_is_a_turn_like_any_other(erin: ConversationManager) -> None:
    record = await erin.get_or_create_conversation("s")
    answer = await answer_turn(erin, record.id, Assistants().specialist(erin), TILES)
    assert answer.steps == 1
    assert [message.agent_name for message in await erin.messages(record.id)] == [None, "recall"]


async def test_what_was_said_without_a_note_is_forgotten_after_a_confirmation(
    erin: ConversationManager,
) -> None:
    ask = assistant(erin).process_query
    await ask("I am allergic to walnuts.", "monday")
    await ask("Walnuts are trees.", "monday")
    answer = await ask("Forget my allergy", "tuesday")
    assert "I am allergic to walnuts." in answer
    assert "Walnuts are trees" not in answer
    assert "Shall I delete this permanently?" in answer
    assert await ask("no", "tuesday") == "Nothing is deleted."
    await ask("Forget my allergy", "tuesday")
    assert "Forgotten: 0 notes" in await ask("yes, delete it", "tuesday")
    said = [words_of(message) for one in ("monday", "tuesday") for message in await _log(erin, one)]
    assert not [words for words in said if "allerg" in words]
    assert any("Walnuts are trees." in words for words in said)


async def test_what_cannot_be_found_is_not_forgotten_and_another_way_is_named(
    erin: ConversationManager,
) -> None:
    ask = assistant(erin).process_query
    await ask("I am allergic to walnuts.", "monday")
    answer = await ask("Forget my illness", "monday")
    assert "I find nothing about “my illness”" in answer
    assert "redact the message" in answer
    assert "Shall I delete" not in answer


async def _log(manager: ConversationManager, session: str) -> list[Message]:
    record = await manager.session(session)
    assert record is not None
    return await manager.messages(record.id)


@pytest.mark.parametrize("said", ["Ann comes for dinner on Friday.", "Remember that Ann comes on Friday."])
async def test_a_day_in_a_question_can_be_the_day_that_was_spoken_about(
    said: str, erin: ConversationManager, clock: FixedClock
) -> None:
    ask = assistant(erin).process_query
    clock.advance(-timedelta(days=3))  # the Friday before
    await ask("Sam comes for lunch tomorrow.", "s")
    clock.advance(timedelta(days=3))
    await ask(said, "s")
    clock.advance(timedelta(days=1))
    answer = await ask("Who comes on Friday?", "s")
    assert "Ann comes" in answer
    assert "Sam" not in answer
    words = await ask("What did I say about who comes on Friday?", "s")
    assert "Sam comes" in words
    assert "Ann" not in words
