"""Forgetting covers notes, calls, results, echoes, summaries and vectors."""

import pytest

from aforesaid.agents import AgenticLoop, Specialist, SupervisorAgent
from aforesaid.agents.toolbox import owner_tools
from aforesaid.errors import InvalidInput, MessageNotFound
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.messages import Message, words_of
from tests.doubles import Scripted, calling

CODE = "The safe code is 7788"


async def talk(erin: ConversationManager) -> SupervisorAgent:
    """Two conversations in which an assistant repeats the user's words."""
    agent = Scripted(
        calling(("c1", "remember", {"text": CODE, "subject": "safe code"})),
        "I will remember that the safe code is 7788.",
        "It is sunny.",
        calling(("c2", "recall", {"query": "safe code"})),
        "The code is 7788.",
        calling(("c3", "forget", {"what": "safe code"})),
        "It is forgotten.",
        "I do not know it.",
    )
    specialist = Specialist(loop=AgenticLoop(agent), tools=owner_tools(erin))
    supervisor = SupervisorAgent(erin, [specialist])
    await supervisor.process_query("Remember that the safe code is 7788", "s1")
    await supervisor.process_query("How is the weather?", "s1")
    await supervisor.process_query("What is the safe code?", "s2")
    return supervisor


async def everything(erin: ConversationManager) -> str:
    records = (await erin.list()).conversations
    logs = [words_of(message) for record in records for message in await erin.messages(record.id)]
    return "\n".join(logs)


async def test_forgetting_leaves_no_trace_of_the_content(erin: ConversationManager) -> None:
    supervisor = await talk(erin)
    assert (await everything(erin)).count("7788") >= 5
    assert await supervisor.process_query("Forget the safe code", "s1") == "It is forgotten."
    said = await everything(erin)
    assert "7788" not in said
    assert "It is sunny." in said, "other messages stay"
    assert "Forgotten: 1 note and" in said
    assert all("7788" not in snippet for snippet in await erin.search_history("safe code 7788"))
    assert await erin.notes() == []


async def test_a_preview_changes_nothing_and_a_receipt_has_no_content(erin: ConversationManager) -> None:
    await talk(erin)
    before = await everything(erin)
    preview = await erin.preview_forget("safe code")
    assert [note.text for note in preview.notes] == [CODE]
    assert await everything(erin) == before
    receipt = await erin.forget_everywhere("safe code")
    assert (receipt.notes, receipt.messages) == (1, len(preview.messages))
    assert receipt.conversations == 2
    assert "7788" not in str(receipt)
    assert (await erin.preview_forget("safe code")).messages == ()


async def test_redacting_a_message_covers_what_repeats_it(erin: ConversationManager) -> None:
    await talk(erin)
    record = await erin.session("s1")
    assert record is not None
    first = (await erin.messages(record.id))[0]
    receipt = await erin.redact_everywhere(record.id, str(first.message_id))
    assert receipt.messages >= 5
    assert "7788" not in await everything(erin)
    with pytest.raises(MessageNotFound):
        await erin.redact_everywhere(record.id, "unknown")


async def test_a_number_alone_is_found_in_another_conversation(erin: ConversationManager) -> None:
    await erin.remember(CODE, subject="safe code")
    await erin.add_message("tuesday", "user", "I opened it with 7788, the cat watched")
    await erin.add_message("tuesday", "user", "the number of the bus is 77")
    preview = await erin.preview_forget("safe code")
    assert [repeat.text for repeat in preview.messages] == ["I opened it with 7788, the cat watched"]
    assert (await erin.forget_everywhere("safe code")).messages == 1
    assert "7788" not in await everything(erin)
    assert "bus is 77" in await everything(erin)


async def test_redacting_a_message_everywhere_removes_notes_that_repeat_it(erin: ConversationManager) -> None:
    await erin.remember(CODE, subject="safe code")
    await erin.add_message("monday", "user", "the code of the safe is 7788", message_id="m1")
    preview = await erin.preview_redact("monday", "m1")
    assert ([note.text for note in preview.notes], len(preview.messages)) == ([CODE], 1)
    receipt = await erin.redact_everywhere("monday", "m1", scrub=True)
    assert (receipt.notes, receipt.messages) == (1, 1)
    assert await erin.notes() == []


async def test_every_planted_repetition_is_found_in_a_long_history(erin: ConversationManager) -> None:
    """More messages are similar to the content than any search would return."""
    await erin.remember("The alarm password is hunter42 or else 7788", subject="alarm")
    planted = []
    for day in range(150):
        other = [f"the alarm password is not {word}" for word in ("sesame", "swordfish", "rosebud")]
        repeats = day % 10 == 7
        text = ("it was hunter42 again" if day % 20 == 7 else "7788 worked") if repeats else "lunch at noon"
        planted += [f"day {day}"] if repeats else []
        messages = [Message(role="user", content=each) for each in (*other, text)]
        await erin.append((await erin.get_or_create_conversation(f"day {day}")).id, messages)
    preview = await erin.preview_forget("alarm")
    assert len(preview.messages) == len(planted) == 15
    assert {repeat.text for repeat in preview.messages} == {"it was hunter42 again", "7788 worked"}
    assert (await erin.forget_everywhere("alarm")).messages == 15
    said = await everything(erin)
    assert "7788" not in said
    assert "hunter42" not in said
    assert "lunch at noon" in said


async def test_what_is_kept_stays(erin: ConversationManager) -> None:
    note = await erin.remember(CODE, subject="safe code")
    await erin.add_message("monday", "user", "the code of the safe is 7788", message_id="m1")
    await erin.add_message("tuesday", "user", "7788 worked", message_id="m2")
    receipt = await erin.redact_everywhere("monday", "m1", keep=[note.id, "m2"])
    assert (receipt.notes, receipt.messages) == (0, 1)
    assert [one.id for one in await erin.notes()] == [note.id]
    assert "7788 worked" in await everything(erin)
    with pytest.raises(InvalidInput, match="keep contains the message to redact"):
        await erin.redact_everywhere("monday", "m1", keep=["m1"])
    assert (await erin.forget_everywhere("safe code", keep=["m2"])).messages == 0
    assert "7788 worked" in await everything(erin)
    assert await erin.notes() == []


SHORT = {
    "I am allergic to walnuts": "You asked me to remember: “I am allergic to walnuts”",
    "My bike is in the cellar": "Your bike is in the cellar, as you said.",
    "I like leeks": "You like leeks.",
    "I am vegetarian": "I found this: “I am vegetarian” (yesterday)",
}


@pytest.mark.parametrize("note", SHORT)
async def test_a_short_note_is_forgotten_where_it_is_repeated(note: str, erin: ConversationManager) -> None:
    await erin.remember(note, subject="it")
    await erin.add_message("monday", "assistant", SHORT[note])
    await erin.add_message("monday", "user", "Is the walnut table in the cellar? Are leeks food?")
    preview = await erin.preview_forget("it")
    assert [repeat.text for repeat in preview.messages] == [SHORT[note]]
    assert (await erin.forget_everywhere("it")).messages == 1
    assert SHORT[note] not in await everything(erin)
    assert "walnut table" in await everything(erin)


async def test_a_redacted_message_is_no_search_result(erin: ConversationManager) -> None:
    await erin.add_message("monday", "user", "The walnut tree has to go", message_id="m1")
    await erin.add_message("monday", "user", "The walnut table stays", message_id="m2")
    assert len(await erin.search_history("walnut")) == 2
    await erin.redact("monday", "m1")
    (found,) = await erin.search_history("walnut")
    assert "table" in found
    assert all("[redacted]" not in passage for passage in await erin.search_history("redacted"))
