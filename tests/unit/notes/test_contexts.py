"""Notes in contexts: in every later conversation, within a budget, valid in every dialect, byte for byte."""

from typing import Any

import pytest

import aforesaid
from aforesaid.agents import AgenticLoop, ConversationEntity, ConversationInput, Specialist, answer_turn
from aforesaid.agents.toolbox import note_tools, owner_tools
from aforesaid.contracts import ConversationStore, parse_listing
from aforesaid.dialects import DialectName
from aforesaid.errors import StoreUnavailable
from aforesaid.memory.chats import ChatHistory
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.messages import Message
from aforesaid.notes.records import HEADING, KIND, Source
from aforesaid.settings import ConversationConfig
from aforesaid.testing.validity import problems
from aforesaid.windows import WindowPolicy
from tests.doubles import Scripted, calling
from tests.servers.remote import open_at

DIM = "The bedroom lights are dim at 9 pm"
DIALECTS = ("plain", "anthropic", "openai_chat", "openai_responses")
QUESTION = Message(role="user", content="Good evening", message_id="q1")


async def conversation(manager: ConversationManager, session: str = "kitchen", turns: int = 1) -> str:
    record = await manager.get_or_create_conversation(session)
    for number in range(turns):
        messages = [
            Message(role="user", content=f"Question {number}"),
            Message(role="assistant", content="Yes."),
        ]
        await manager.append(record.id, messages)
    return record.id


async def test_a_note_is_in_the_context_of_every_later_conversation(erin: ConversationManager) -> None:
    note = await erin.remember(DIM)
    for session in ("kitchen", "hall"):
        context = await erin.load_context(await conversation(erin, session))
        assert [message.role for message in context.messages] == ["system", "user", "assistant"]
        assert context.messages[0].content == f"{HEADING}\n- {DIM} (2026-03-01)"
        assert context.report.notes == (note.id,)
        assert context.report.notes_left_out == ()
        assert context.report.tokens.notes > 0
        assert context.report.stable_prefix >= 1
    first = await erin.first_context([QUESTION])
    assert [message.role for message in first.messages] == ["system", "user"]
    assert first.report.notes == (note.id,)


async def test_all_notes_are_read_where_they_fill_more_than_a_page(
    erin: ConversationManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aforesaid.contexts.FIRST_PAGE", parse_listing(KIND, None, None, 2))
    notes = [await erin.remember(f"Plant {number} stands in room {number}") for number in range(5)]
    report = (await erin.load_context(await conversation(erin))).report
    assert sorted(report.notes + report.notes_left_out) == sorted(note.id for note in notes)


async def test_without_notes_nothing_is_added(erin: ConversationManager) -> None:
    context = await erin.load_context(await conversation(erin))
    assert [message.role for message in context.messages] == ["user", "assistant"]
    assert (context.report.notes, context.report.tokens.notes) == ((), 0)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_notes_are_part_of_the_system_prompt_in_every_dialect(
    erin: ConversationManager, dialect: DialectName
) -> None:
    await erin.remember(DIM)
    conversation_id = await conversation(erin)
    await erin.append(conversation_id, [Message(role="user", content="And now?")])
    request = await erin.load_request(conversation_id, dialect)
    assert problems(request, dialect) == []
    if dialect == "anthropic":
        assert isinstance(request["system"], str)
        assert DIM in request["system"]
    else:
        messages = request.get("messages") or request["input"]
        assert messages[0]["role"] == "system"
        assert DIM in str(messages[0]["content"])


async def test_notes_stand_behind_the_prompt_of_the_log(erin: ConversationManager) -> None:
    await erin.remember(DIM)
    record = await erin.get_or_create_conversation("kitchen")
    await erin.append(record.id, [Message(role="system", content="Be brief."), QUESTION])
    context = await erin.load_context(record.id)
    assert [message.role for message in context.messages] == ["system", "system", "user"]
    assert context.messages[0].content == "Be brief."


async def test_the_front_of_a_request_stays_until_a_note_changes(erin: ConversationManager) -> None:
    await erin.remember(DIM)
    await erin.remember("I like tea")
    conversation_id = await conversation(erin)
    before = (await erin.load_context(conversation_id)).messages[0]
    await conversation(erin)
    assert (await erin.load_context(conversation_id)).messages[0] == before
    await erin.remember("I like cake")
    after = (await erin.load_context(conversation_id)).messages[0]
    assert str(after.content).startswith(str(before.content))
    assert after != before


async def test_what_does_not_fit_is_reported(erin: ConversationManager) -> None:
    notes = [await erin.remember(f"Fact {number}: {'word ' * 20}") for number in range(8)]
    conversation_id = await conversation(erin)
    context = await erin.load_context(conversation_id, policy=WindowPolicy(notes_tokens=120))
    report = context.report
    assert 0 < len(report.notes) < 8
    assert {*report.notes, *report.notes_left_out} == {note.id for note in notes}
    assert report.notes[-1] == notes[-1].id, "the latest go before"
    assert report.tokens.notes <= 120 + 8, "and what a message costs by itself"
    none = await erin.load_context(conversation_id, policy=WindowPolicy(notes_tokens=0))
    assert (none.report.notes, none.report.notes_left_out) == ((), ())


async def test_notes_count_in_the_budget_of_the_whole_request(erin: ConversationManager) -> None:
    conversation_id = await conversation(erin, turns=40)
    policy = WindowPolicy(max_tokens=200, retention_ratio=1.0)
    without = await erin.load_context(conversation_id, policy=policy)
    await erin.remember(DIM)
    context = await erin.load_context(conversation_id, policy=policy)
    tokens = context.report.tokens
    assert tokens.total <= 200
    assert tokens.prompt == 0
    assert tokens.notes <= 50, "a quarter of it at most"
    assert tokens.history < without.report.tokens.history


async def test_the_setting_leaves_notes_out(url: str) -> None:
    config = ConversationConfig(notes_tokens=0)
    async with open_at(url, config=config, sweep_every=None, embedder=None) as memory:
        erin = memory.of("erin")
        await erin.remember(DIM)
        assert (await erin.load_context(await conversation(erin))).report.notes == ()


async def test_an_agents_own_view_has_notes_too(erin: ConversationManager) -> None:
    await erin.remember(DIM)
    context = await erin.load_context(await conversation(erin), "home_agent")
    assert context.report.notes


async def test_no_owner_sees_another_owners_notes(memory: aforesaid.Memory) -> None:
    await memory.of("erin").remember(DIM)
    bob = memory.of("bob")
    assert (await bob.load_context(await conversation(bob))).report.notes == ()


async def test_a_store_that_fails_over_notes_does_not_keep_anybody_from_answering(
    erin: ConversationManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    await erin.remember(DIM)
    conversation_id = await conversation(erin)

    async def fail(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("away")

    store: ConversationStore = erin.store
    monkeypatch.setattr(type(store), "documents", fail)
    monkeypatch.setattr(type(store), "read_snapshot", fail, raising=False)
    context = await erin.load_context(conversation_id)
    assert len(context) == 3
    assert any("last known state" in warning for warning in context.report.warnings)
    erin.notes_cache.drop("erin")
    context = await erin.load_context(conversation_id)
    assert len(context) == 2
    assert any("could not be read" in warning for warning in context.report.warnings)


async def test_faces_that_give_back_what_was_added_add_nothing(erin: ConversationManager) -> None:
    await erin.remember(DIM)
    chats = ChatHistory(erin, dialect="openai_chat")
    await chats.save_turn("k", [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}])
    assert [message["role"] for message in await chats.get_history("k")] == ["user", "assistant"]


# In the hands of agents


async def test_a_model_remembers_and_the_note_knows_where_it_was_said(erin: ConversationManager) -> None:
    agent = Scripted(calling(("c1", "remember", {"text": DIM, "subject": "bedroom lights"})), "I will.")
    conversation_id = await conversation(erin)
    specialist = Specialist(loop=AgenticLoop(agent), tools=owner_tools(erin))
    await answer_turn(erin, conversation_id, specialist, QUESTION)
    (note,) = await erin.notes()
    assert (note.text, note.subject) == (DIM, "bedroom lights")
    assert note.source == Source(conversation_id=conversation_id, message_id="q1")
    second = await conversation(erin, "hall")
    agent.will(["Hello."])
    await answer_turn(erin, second, specialist, "Good evening")
    assert DIM in str(agent.asked[-1].messages[0].content)


async def test_an_entity_knows_the_notes_from_the_first_word_on(memory: aforesaid.Memory) -> None:
    agent = Scripted("One.", "Two.", "Three.")
    entity = ConversationEntity(AgenticLoop(agent), memory=memory, tools=owner_tools)
    await memory.of("default").remember(DIM)
    for conversation_id in ("c1", "c1", None):
        await entity.async_process(ConversationInput(text="Good evening", conversation_id=conversation_id))
    for ask in agent.asked:
        assert ask.messages[0].role == "system"
        assert sum(DIM in str(message.content) for message in ask.messages) == 1


@pytest.mark.parametrize("forgetting", ["redact", "erase"])
async def test_a_note_of_an_entitys_first_turn_goes_with_what_it_was_made_from(
    memory: aforesaid.Memory, forgetting: str
) -> None:
    agent = Scripted(calling(("c1", "remember", {"text": "My PIN is 4711"})), "Noted.")
    entity = ConversationEntity(AgenticLoop(agent), memory=memory, tools=owner_tools)
    await entity.async_process(ConversationInput(text="Remember my PIN 4711", conversation_id="c1"))
    owner = memory.of("default")
    record = await owner.session("c1")
    assert record is not None
    question = (await owner.messages(record.id))[0]
    (note,) = await owner.notes()
    assert note.source == Source(conversation_id=record.id, message_id=question.message_id)
    if forgetting == "redact":
        await owner.redact(record.id, question.message_id or "")
    else:
        await owner.erase(record.id)
    assert await owner.notes() == []


async def test_an_entity_that_lets_go_of_old_turns_keeps_no_notes_in_its_log() -> None:
    agent = Scripted(*(f"Answer {number}." for number in range(6)))
    entity = ConversationEntity(AgenticLoop(agent), tools=owner_tools, max_history_turns=1)
    manager = entity._manager
    assert isinstance(manager, ConversationManager)
    await manager.remember(DIM)
    for _ in range(6):
        await entity.async_process(ConversationInput(text="Good evening", conversation_id="c1"))
    record = await manager.session("c1")
    assert record is not None
    assert [message.role for message in await manager.messages(record.id)] == ["user", "assistant"]


async def call(manager: ConversationManager, name: str, **arguments: Any) -> tuple[str, bool]:
    outcome = await owner_tools(manager).dispatch(name, arguments)
    return outcome.text, outcome.is_error


async def test_the_tools_say_what_they_did(erin: ConversationManager) -> None:
    text, failed = await call(erin, "remember", text=DIM, tags=["home"], expires="2026-03-02")
    assert (text.startswith(f"Remembered: {DIM} (noted 2026-03-01, id "), failed) == (True, False)
    (note,) = await erin.notes()
    assert note.expires_at is not None
    text, _ = await call(erin, "remember", text="The bedroom lights are off")
    assert f"It replaces: {DIM}" in text
    assert "The bedroom lights are off" in (await call(erin, "recall", query="lights"))[0]
    assert await call(erin, "recall", query="bicycle") == ("No notes found.", False)
    assert await call(erin, "forget", what="the garden") == ("There is no such note.", False)
    assert await call(erin, "forget", what="bedroom lights") == ("Forgotten: 1 note and 0 messages.", False)
    assert await erin.notes() == []


async def test_a_model_that_writes_nonsense_gets_an_error(erin: ConversationManager) -> None:
    for name, arguments in (
        ("remember", {}),
        ("remember", {"text": "?"}),
        ("remember", {"text": DIM, "tags": [1]}),
        ("remember", {"text": DIM, "expires": "soon"}),
        ("remember", {"text": DIM, "owner": "bob"}),
        ("recall", {"limit": 0}),
        ("forget", {"what": " "}),
    ):
        _, failed = await call(erin, name, **arguments)
        assert failed, (name, arguments)
    assert await erin.notes() == []


def test_the_owner_is_no_argument() -> None:
    for tool in note_tools(ConversationManager()):
        assert "owner" not in tool.parameters["properties"]
