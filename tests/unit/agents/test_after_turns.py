"""What follows a turn is done soon, together with that of other turns, and before anything is removed."""

import asyncio

import pytest

from aforesaid.agents import AgenticLoop, Specialist, SupervisorAgent
from aforesaid.agents.sent_requests import KIND
from aforesaid.contracts import OPEN_TURNS, ConversationStore
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.messages import Message
from tests.doubles import Scripted

SECRET = "The safe code is 7788"


@pytest.fixture
def much_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is done by itself, however long a busy machine takes for a turn."""
    monkeypatch.setattr("aforesaid.intake.unstored_turns.LATER_SECONDS", 3600.0)


async def left_in(store: ConversationStore, conversation_id: str) -> str:
    """Return everything that the documents of a conversation contain."""
    kinds = await store.document_kinds(conversation_id=conversation_id)
    pages = [await store.documents(kind, conversation_id=conversation_id) for kind in kinds]
    return " ".join(document.data.decode(errors="replace") for page in pages for document in page)


def supervisor_of(manager: ConversationManager) -> SupervisorAgent:
    return SupervisorAgent(manager, [Specialist(loop=AgenticLoop(Scripted(*["Noted."] * 4)))])


@pytest.mark.usefixtures("much_later")
async def test_words_of_a_turn_are_nowhere_when_its_question_is_redacted_at_once(
    erin: ConversationManager,
) -> None:
    answer = await supervisor_of(erin).answer_query(SECRET, "kitchen")
    conversation_id = str(answer.conversation_id)
    assert SECRET in await left_in(erin.store, conversation_id), "the open turn is removed later"
    await erin.redact(conversation_id, str(answer.messages[0].message_id))
    assert SECRET not in await left_in(erin.store, conversation_id)
    await erin.unstored.later_is_done()
    assert SECRET not in await left_in(erin.store, conversation_id)


async def test_an_open_turn_that_a_dead_process_left_is_removed_with_its_words(
    erin: ConversationManager,
) -> None:
    conversation = await erin.get_or_create_conversation("s")
    question = Message(role="user", content=SECRET, message_id="q1")
    await erin.open_turn(conversation.id, [question])
    await erin.append(conversation.id, [question, Message(role="assistant", content="Noted.")])
    await erin.redact(conversation.id, "q1")
    assert SECRET not in await left_in(erin.store, conversation.id)
    assert await erin.unanswered(conversation.id) == []


@pytest.mark.usefixtures("much_later")
async def test_what_follows_several_turns_is_done_together(
    erin: ConversationManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor, together, most = supervisor_of(erin), 0, 0
    discard = erin.discard_turn

    async def slow(conversation_id: str, turn_id: str) -> bool:
        nonlocal together, most
        together += 1
        most = max(most, together)
        await asyncio.sleep(0)
        together -= 1
        return await discard(conversation_id, turn_id)

    monkeypatch.setattr(erin, "discard_turn", slow)
    answers = [await supervisor.answer_query(f"Question {number}?", "kitchen") for number in range(4)]
    assert most == 0, "no turn waits for it"
    await erin.unstored.later_is_done()
    assert most == 4
    conversation_id = str(answers[0].conversation_id)
    assert await erin.store.documents(OPEN_TURNS, conversation_id=conversation_id) == []
    kept = await erin.store.documents(KIND, conversation_id=conversation_id)
    assert {one.key for one in kept} == {answer.messages[-1].message_id for answer in answers}


async def test_it_is_done_without_anybody_asking(
    erin: ConversationManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed, discard = asyncio.Event(), erin.discard_turn

    async def noted(conversation_id: str, turn_id: str) -> bool:
        was_open = await discard(conversation_id, turn_id)
        closed.set()
        return was_open

    monkeypatch.setattr(erin, "discard_turn", noted)
    await supervisor_of(erin).answer_query(SECRET, "kitchen")
    async with asyncio.timeout(60):
        await closed.wait()


async def test_a_request_of_a_conversation_that_is_gone_is_not_kept(
    erin: ConversationManager, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await supervisor_of(erin).answer_query(SECRET, "kitchen")
    await erin.store.delete(str(answer.conversation_id))
    await erin.unstored.later_is_done()
    assert [record for record in caplog.records if record.levelname == "WARNING"] == []
