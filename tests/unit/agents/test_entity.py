"""The entity-shaped face: an answer for an input, the last turns of its conversation, nothing of others."""

import asyncio
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest

import aforesaid
from aforesaid.agents import (
    AgenticLoop,
    ConversationEntity,
    ConversationInput,
    ConversationResult,
    InputContext,
)
from aforesaid.agents.tools import history_tool
from aforesaid.contracts import Ask
from aforesaid.dialects import meaning_of
from aforesaid.errors import AgentUnavailable, InvalidInput, InvalidSetting
from aforesaid.memory.manager import ConversationManager
from tests.doubles import InTurn, Scripted, calling
from tests.unit.agents.tools import registry


def says(text: str, conversation_id: str | None = "kitchen", **more: Any) -> ConversationInput:
    return ConversationInput(text=text, conversation_id=conversation_id, **more)


def texts(ask: Ask) -> list[str]:
    return [meaning_of(message).text for message in ask.messages]


def answering(count: int) -> Scripted:
    return Scripted(*(f"answer {number}" for number in range(count)))


async def talk(entity: ConversationEntity, count: int, conversation_id: str | None = "kitchen") -> None:
    for number in range(count):
        await entity.async_process(says(f"question {number}", conversation_id))


@pytest.fixture(params=["own", "manager", "memory"])
def where(request: pytest.FixtureRequest, memory: aforesaid.Memory) -> Any:
    """In the entity itself, with one owner, or with every user's own."""
    return {"own": None, "manager": memory.of("erin"), "memory": memory}[request.param]


async def test_an_input_is_answered_with_what_was_said_before(where: Any) -> None:
    agent = answering(2)
    entity = ConversationEntity(AgenticLoop(agent), memory=where)
    result = await entity.async_process(says("question 0"))
    assert isinstance(result, ConversationResult)
    assert (result.response_text, result.conversation_id) == ("answer 0", "kitchen")
    assert result.as_dict() == {
        "response": {
            "speech": {"plain": {"speech": "answer 0", "extra_data": None}},
            "card": {},
            "language": "en",
            "response_type": "query_answer",
            "data": {"targets": [], "success": [], "failed": []},
        },
        "conversation_id": "kitchen",
        "continue_conversation": False,
    }
    await entity.async_process(says("question 1"))
    assert texts(agent.asked[1]) == ["question 0", "answer 0", "question 1"]


async def test_conversations_know_nothing_of_each_other(where: Any) -> None:
    agent = answering(3)
    entity = ConversationEntity(AgenticLoop(agent), memory=where)
    await talk(entity, 2)
    await entity.async_process(says("hello", "garage"))
    assert texts(agent.asked[2]) == ["hello"]


async def test_twenty_turns_are_sent_along_by_default(where: Any) -> None:
    agent = answering(30)
    entity = ConversationEntity(AgenticLoop(agent), memory=where)
    await talk(entity, 25)
    sent = texts(agent.asked[24])
    assert sent[0] == "question 4"
    assert len(sent) == 41  # twenty questions, their answers, and what is asked now


@pytest.mark.parametrize(("turns", "first"), [(3, "question 7"), (0, "question 0")])
async def test_the_number_of_turns_is_a_choice_and_zero_keeps_all(where: Any, turns: int, first: str) -> None:
    agent = answering(11)
    entity = ConversationEntity(AgenticLoop(agent), memory=where, max_history_turns=turns)
    await talk(entity, 11)
    assert texts(agent.asked[10])[0] == first


async def test_turns_are_counted_whatever_tools_were_called() -> None:
    agent = Scripted()
    entity = ConversationEntity(AgenticLoop(agent), tools=registry(), max_history_turns=2)
    for number in range(4):
        agent.will([calling(*((f"c{number}{n}", "lights", {"room": "hall"}) for n in range(5))), "On."])
        await entity.async_process(says(f"question {number}"))
    assert [text for text in texts(agent.asked[-1]) if "question" in text] == [
        "question 1",
        "question 2",
        "question 3",
    ]


async def test_what_a_process_keeps_is_bounded() -> None:
    entity = ConversationEntity(AgenticLoop(answering(12)), max_history_turns=3)
    await talk(entity, 12)
    manager = entity._manager
    assert isinstance(manager, ConversationManager)
    record = await manager.session("kitchen")
    assert record is not None
    assert record.message_count == 6


async def test_a_store_keeps_everything(memory: aforesaid.Memory) -> None:
    erin = memory.of("erin")
    entity = ConversationEntity(AgenticLoop(answering(12)), memory=erin, max_history_turns=3)
    await talk(entity, 12)
    record = await erin.session("kitchen")
    assert record is not None
    assert record.message_count == 24


async def test_history_outlives_the_entity(memory: aforesaid.Memory) -> None:
    agent = answering(2)
    await talk(ConversationEntity(AgenticLoop(agent), memory=memory), 1)
    await ConversationEntity(AgenticLoop(agent), memory=memory).async_process(says("and now?"))
    assert texts(agent.asked[1]) == ["question 0", "answer 0", "and now?"]


async def test_without_an_id_an_input_stands_alone(where: Any) -> None:
    agent = answering(2)
    entity = ConversationEntity(AgenticLoop(agent), memory=where)
    result = await entity.async_process(says("hello", None))
    assert result.conversation_id is None
    await entity.async_process(says("again", None))
    assert texts(agent.asked[1]) == ["again"]


async def test_an_id_is_made_where_that_is_asked_for(where: Any) -> None:
    agent = answering(3)
    entity = ConversationEntity(AgenticLoop(agent), memory=where, auto_create_conversation_id=True)
    first = await entity.async_process(says("question 0", None))
    assert first.conversation_id is not None
    assert UUID(first.conversation_id).version == 4
    await entity.async_process(says("question 1", first.conversation_id))
    assert texts(agent.asked[1]) == ["question 0", "answer 0", "question 1"]
    other = await entity.async_process(says("hello", None))
    assert other.conversation_id != first.conversation_id


async def test_a_failed_turn_is_said_sorry_for_and_leaves_history_as_it_was(where: Any) -> None:
    agent = Scripted("answer 0", AgentUnavailable("down"), RuntimeError("bug"), "answer 1")
    entity = ConversationEntity(AgenticLoop(agent), memory=where)
    await entity.async_process(says("question 0"))
    for _ in range(2):
        failed = await entity.async_process(says("does it work?", language="de"))
        assert failed.response_text.startswith("I'm sorry")
        assert failed.conversation_id == "kitchen"
        assert failed.as_dict()["response"]["response_type"] == "error"
        assert failed.as_dict()["response"]["data"] == {"code": "unknown"}
        assert failed.response.language == "de"
    await entity.async_process(says("question 1"))
    assert texts(agent.asked[3]) == ["question 0", "answer 0", "question 1"]


async def test_a_first_turn_that_fails_leaves_only_its_question(memory: aforesaid.Memory) -> None:
    erin = memory.of("erin")
    entity = ConversationEntity(AgenticLoop(Scripted()), memory=erin)
    await entity.async_process(says("hello"))
    (record,) = (await erin.list()).conversations
    assert record.message_count == 0
    (turn,) = await erin.unanswered(record.id)
    assert turn.messages[0].content == "hello"


async def test_a_first_turn_that_fails_removes_no_words_of_others(
    memory: aforesaid.Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    erin = memory.of("erin")
    await talk(ConversationEntity(AgenticLoop(answering(1)), memory=erin), 1)

    async def not_yet(*_: Any) -> None:
        """The session as it was a moment before the other turn was stored."""

    monkeypatch.setattr(erin, "session", not_yet)
    failed = await ConversationEntity(AgenticLoop(Scripted()), memory=erin).async_process(says("hello"))
    assert failed.response.response_type == "error"
    (record,) = (await erin.list()).conversations
    assert record.message_count == 2


async def test_a_first_turn_that_fails_takes_nothing_from_under_another(memory: aforesaid.Memory) -> None:
    agent = InTurn(AgentUnavailable("down"), "Noted.")
    entity = ConversationEntity(AgenticLoop(agent), memory=memory.of("erin"))
    turns = []
    for number in range(2):
        turns.append(asyncio.ensure_future(entity.async_process(says(f"question {number}"))))
        await agent.is_asked[number].wait()
    for turn, may_answer in zip(turns, agent.may_answer, strict=True):
        may_answer.set()
        await turn
    (record,) = (await memory.of("erin").list()).conversations
    assert record.message_count == 2
    assert turns[1].result().response_text == "Noted."


@pytest.mark.parametrize("text", ["", "  "])
async def test_nothing_said_is_no_turn(text: str) -> None:
    agent = answering(1)
    result = await ConversationEntity(AgenticLoop(agent)).async_process(says(text))
    assert result.response.response_type == "error"
    assert agent.asked == []


async def test_clearing_one_conversation_leaves_the_others(where: Any) -> None:
    agent = answering(6)
    entity = ConversationEntity(AgenticLoop(agent), memory=where)
    await talk(entity, 1, "kitchen")
    await talk(entity, 1, "garage")
    await entity.clear_history("kitchen")
    await entity.clear_history("nowhere")
    await entity.async_process(says("hello", "kitchen"))
    assert texts(agent.asked[2]) == ["hello"]
    await entity.async_process(says("hello", "garage"))
    assert len(texts(agent.asked[3])) == 3


async def test_a_conversation_can_be_cleared_for_one_user_alone(memory: aforesaid.Memory) -> None:
    agent = answering(4)
    entity = ConversationEntity(AgenticLoop(agent), memory=memory)
    ann, bob = (InputContext(user_id=name) for name in ("ann", "bob"))
    for who in (ann, bob):
        await entity.async_process(says("hello", context=who))
    await entity.clear_history("kitchen", says("Forget it all.", context=ann))
    for who in (ann, bob):
        await entity.async_process(says("again", context=who))
    assert [texts(ask) for ask in agent.asked[2:]] == [["again"], ["hello", "answer 1", "again"]]


async def test_clearing_a_conversation_leaves_what_others_have_under_its_name(
    memory: aforesaid.Memory,
) -> None:
    carol = memory.of("carol")
    record = await carol.get_or_create_conversation("kitchen")
    await carol.add_message(record.id, "user", "my own")
    entity = ConversationEntity(AgenticLoop(answering(1)), memory=memory)
    await talk(entity, 1, "kitchen")
    await entity.clear_history("kitchen")
    assert len(await carol.messages(record.id)) == 1
    assert (await memory.of("default").list()).conversations == ()


async def test_a_conversation_that_another_caller_began_is_cleared_where_the_entity_spoke_in_it(
    memory: aforesaid.Memory,
) -> None:
    erin = memory.of("erin")
    record = await erin.get_or_create_conversation("kitchen")
    await erin.add_message(record.id, "user", "hello")
    await erin.update_metadata(record.id, tags=["home"])
    entity = ConversationEntity(AgenticLoop(answering(1)), memory=erin)
    await talk(entity, 1, "kitchen")
    assert "home" in (await erin.get_conversation(record.id)).tags
    await entity.clear_history("kitchen")
    assert (await erin.list()).conversations == ()


async def test_clearing_everything_leaves_what_is_not_the_entitys(memory: aforesaid.Memory) -> None:
    erin = memory.of("erin")
    other = await erin.get_or_create_conversation("telephone")
    await erin.add_message(other.id, "user", "hello")
    agent = answering(4)
    entity = ConversationEntity(AgenticLoop(agent), memory=erin)
    await talk(entity, 1, "kitchen")
    await talk(entity, 1, "garage")
    await entity.clear_all_history()
    await entity.async_process(says("hello", "garage"))
    assert texts(agent.asked[2]) == ["hello"]
    assert len(await erin.messages(other.id)) == 1


async def test_users_and_devices_are_kept_apart(memory: aforesaid.Memory) -> None:
    agent = answering(5)
    entity = ConversationEntity(AgenticLoop(agent), memory=memory)
    whose: list[dict[str, Any]] = [
        {"context": InputContext(user_id="erin")},
        {"context": InputContext(user_id="sam")},
        {"device_id": "erin"},
        {},
    ]
    for number, who in enumerate(whose):
        await entity.async_process(says(f"hello {number}", **who))
    assert [texts(ask) for ask in agent.asked] == [[f"hello {number}"] for number in range(4)]
    owners = sorted([owner async for owner in memory.owners()])
    assert owners == ["default", "device:erin", "user:erin", "user:sam"]
    await entity.clear_all_history()
    assert [len((await memory.of(owner).list()).conversations) for owner in owners] == [0, 0, 0, 0]


async def test_tools_may_be_the_owners_own(memory: aforesaid.Memory) -> None:
    agent = Scripted("Noted.")
    entity = ConversationEntity(
        AgenticLoop(agent), memory=memory, tools=lambda manager: [history_tool(manager)]
    )
    await entity.async_process(says("My cat is called Ada.", "a"))
    agent.will([calling(("c1", "search_history", {"query": "cat"})), "Ada."])
    await entity.async_process(says("What is my cat called?", "b"))
    found = [str(message.content) for message in agent.asked[-1].messages if message.role == "tool"]
    assert "Ada" in found[0]
    agent.will([calling(("c2", "search_history", {"query": "cat"})), "I don't know."])
    await entity.async_process(says("What is my cat called?", "c", context=InputContext(user_id="sam")))
    found = [str(message.content) for message in agent.asked[-1].messages if message.role == "tool"]
    assert "Ada" not in found[0]


async def test_a_prompt_of_the_input_is_added() -> None:
    agent = answering(2)
    entity = ConversationEntity(AgenticLoop(agent, instructions="Be brief."))
    await entity.async_process(says("hello", extra_system_prompt="The doorbell rang."))
    await entity.async_process(says("hello"))
    assert [ask.system for ask in agent.asked] == ["Be brief.\n\nThe doorbell rang.", "Be brief."]


async def test_a_question_back_keeps_the_conversation_open() -> None:
    entity = ConversationEntity(AgenticLoop(Scripted("Which room?")))
    assert (await entity.async_process(says("Lights on"))).continue_conversation


async def test_an_input_of_home_assistants_own_will_do() -> None:
    @dataclass
    class TheirContext:
        user_id: str | None = "erin"

    @dataclass
    class TheirInput:
        text: str
        context: TheirContext = field(default_factory=TheirContext)
        conversation_id: str | None = "01HZX"
        device_id: str | None = None
        language: str = "en"

    result = await ConversationEntity(AgenticLoop(Scripted("Yes."))).async_process(TheirInput("Is it?"))
    assert (result.response_text, result.conversation_id) == ("Yes.", "01HZX")


async def test_many_conversations_at_once(where: Any) -> None:
    agent = answering(40)
    entity = ConversationEntity(AgenticLoop(agent), memory=where)
    await asyncio.gather(*(talk(entity, 2, f"room {number}") for number in range(10)))
    assert sorted(len(ask.messages) for ask in agent.asked) == [1] * 10 + [3] * 10


@pytest.mark.parametrize("turns", [-1, True, "20", None])
def test_settings_are_checked(turns: Any) -> None:
    with pytest.raises(InvalidSetting, match="max_history_turns"):
        ConversationEntity(AgenticLoop(Scripted()), max_history_turns=turns)


@pytest.mark.parametrize("bad", ["", None, 5])
async def test_a_conversation_to_clear_has_a_name(bad: Any) -> None:
    with pytest.raises(InvalidInput, match="conversation_id"):
        await ConversationEntity(AgenticLoop(Scripted())).clear_history(bad)
