"""An answer that was cut off: all that was generated is kept, and a model sees what was heard."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import aforesaid
from aforesaid.contracts import Entry
from aforesaid.dialects import DIALECTS, DialectName, cut_at_interruption, meaning_of, read
from aforesaid.dialects.edits import interruption_mark
from aforesaid.errors import ConversationNotFound, InvalidInput, MessageNotFound
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message, Speech
from aforesaid.model.wire import decode_message, encode_message
from aforesaid.spoken_answers import spoken_form
from aforesaid.testing.validity import problems
from aforesaid.windows import WindowPolicy, build_window
from tests.builders import FEATURE_TARGETS, empty_url
from tests.examples import examples
from tests.servers.remote import open_at
from tests.unit.windows.logs import histories, policies, words
from tests.unit.windows.test_validity import check_valid

ANSWER = "The Johnson house is **in progress**. The painters come on Monday, and the roof is next."
SPOKEN = "The Johnson house is in progress. The painters come on Monday, and the roof is next."


@pytest.fixture(params=FEATURE_TARGETS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return empty_url(request.param, tmp_path, request)


@pytest.fixture
def owner() -> str:
    return f"erin-{new_id()}"


@pytest.fixture
async def erin(url: str, owner: str) -> AsyncIterator[ConversationManager]:
    async with open_at(url, sweep_every=None, embedder=None) as memory:
        yield memory.of(owner)
        await memory.of(owner).store.clear()


def marked(heard: int) -> str:
    """Return the mark of an answer of which the user heard so much."""
    return interruption_mark(SPOKEN[heard:])


async def answered(erin: ConversationManager, answer: Message | None = None) -> str:
    conversation = await erin.get_or_create_conversation("s")
    said = answer or Message(role="assistant", content=ANSWER, message_id="a")
    await erin.append(conversation.id, [Message(role="user", content="And the Johnson house?"), said])
    return conversation.id


async def test_all_three_are_kept_and_the_window_shows_what_was_heard(erin: ConversationManager) -> None:
    conversation_id = await answered(erin)
    noted = await erin.interrupted(conversation_id, "a", heard="The Johnson house is in progress. Th")
    assert noted.speech == Speech(spoken=SPOKEN, heard=33)
    (_, kept) = await erin.messages(conversation_id)
    assert (kept.content, kept.speech) == (ANSWER, noted.speech)
    context = await erin.load_context(conversation_id)
    assert context[-1]["content"] == f"The Johnson house is in progress. {marked(33)}"


async def test_it_survives_a_restart(url: str, owner: str) -> None:
    async with open_at(url, sweep_every=None, embedder=None) as memory:
        conversation_id = await answered(memory.of(owner))
        await memory.of(owner).interrupted(conversation_id, "a", heard=33)
        if not url.startswith("memory:"):
            await memory.close()
            memory = await open_at(url, sweep_every=None, embedder=None)
        (_, kept) = await memory.of(owner).messages(conversation_id)
        assert (kept.content, kept.speech) == (ANSWER, Speech(spoken=SPOKEN, heard=33))
        assert (await memory.of(owner).load_context(conversation_id))[-1]["content"].endswith(marked(33))
        await memory.of(owner).store.clear()
        await memory.close()


@pytest.mark.parametrize(
    ("heard", "shown"),
    [
        (0, marked(0)),
        (2, marked(0)),
        (5, f"The {marked(3)}"),
        ("the  johnson house", f"The Johnson house {marked(17)}"),
        (len(SPOKEN), ANSWER),
        (SPOKEN, ANSWER),
    ],
)
async def test_only_whole_words_count(heard: int | str, shown: str) -> None:
    erin = ConversationManager()
    conversation_id = await answered(erin)
    noted = await erin.interrupted(conversation_id, "a", heard=heard)
    assert noted.speech is not None
    assert noted.speech.interrupted == (shown != ANSWER)
    assert (await erin.load_context(conversation_id))[-1]["content"] == shown


async def test_the_last_report_holds_and_the_same_one_changes_nothing() -> None:
    erin = ConversationManager()
    conversation_id = await answered(erin)
    await erin.interrupted(conversation_id, "a", heard=5)
    once = await erin.interrupted(conversation_id, "a", heard=17)
    before = await erin.get_conversation(conversation_id)
    assert await erin.interrupted(conversation_id, "a", heard=17) == once
    assert await erin.get_conversation(conversation_id) == before


async def test_a_turn_that_is_sent_again_after_the_interruption_is_known() -> None:
    erin = ConversationManager()
    conversation_id = await answered(erin)
    await erin.interrupted(conversation_id, "a", heard=5)
    again = await erin.append(conversation_id, [Message(role="assistant", content=ANSWER, message_id="a")])
    assert [entry.message.speech for entry in again.known] == [Speech(spoken=SPOKEN, heard=3)]


async def test_what_cannot_have_been_spoken_is_refused(erin: ConversationManager) -> None:
    conversation_id = await answered(erin)
    await erin.append(conversation_id, [Message(role="user", content="stop", message_id="u")])
    before = await erin.messages(conversation_id)
    for message_id, heard, kind, named in (
        ("u", 0, InvalidInput, "message_id"),
        ("none", 0, MessageNotFound, "none"),
        ("a", -1, InvalidInput, "heard"),
        ("a", 1000, InvalidInput, "heard"),
        ("a", True, InvalidInput, "heard"),
        ("a", "something else", InvalidInput, "heard"),
    ):
        with pytest.raises(kind, match=named):
            await erin.interrupted(conversation_id, message_id, heard=heard)
    with pytest.raises(ConversationNotFound):
        await erin.interrupted(new_id(), "a", heard=0)
    assert await erin.messages(conversation_id) == before


async def test_what_is_said_meanwhile_is_kept(erin: ConversationManager) -> None:
    conversation_id = await answered(erin)
    said = [Message(role="user", content=f"{number}", message_id=f"n{number}") for number in range(8)]
    await asyncio.gather(
        *(erin.append(conversation_id, [message]) for message in said),
        *(erin.interrupted(conversation_id, "a", heard=33) for _ in range(3)),
    )
    stored = await erin.messages(conversation_id)
    assert {message.content for message in said} <= {message.content for message in stored}
    assert [m.speech for m in stored if m.message_id == "a"] == [Speech(spoken=SPOKEN, heard=33)]


async def test_a_redacted_answer_keeps_none_of_its_words(erin: ConversationManager) -> None:
    conversation_id = await answered(erin)
    await erin.interrupted(conversation_id, "a", heard=33)
    await erin.redact(conversation_id, "a")
    assert "Johnson" not in str((await erin.messages(conversation_id))[1])


BLOCKS: dict[str, Any] = {
    "plain": {"role": "assistant", "content": ANSWER},
    "anthropic": {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": ANSWER[:40], "citations": [{"type": "char_location"}]},
            {"type": "text", "text": ANSWER[40:]},
        ],
    },
    "openai_chat": {"role": "assistant", "content": ANSWER, "audio": {"id": "1", "transcript": ANSWER}},
    "openai_responses": {
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "id": "msg_1",
        "content": [{"type": "output_text", "text": ANSWER, "annotations": [{"type": "url_citation"}]}],
    },
}


@pytest.mark.parametrize("source", BLOCKS)
@pytest.mark.parametrize("target", DIALECTS)
async def test_in_every_dialect_the_words_end_where_they_were_heard(source: str, target: DialectName) -> None:
    erin = ConversationManager()
    (answer,) = read(BLOCKS[source], dialect=source)
    conversation_id = await answered(erin, answer.with_(message_id="a"))
    await erin.interrupted(conversation_id, "a", heard=33)
    pending = [Message(role="user", content="go on")]
    request = await erin.load_request(conversation_id, target, pending=pending)
    assert problems(request, target) == []
    text = str(request)
    assert "The Johnson house is in progress. [interrupted; the user did not hear:" in text
    assert text.count("Monday") == 1, "only as words that were not heard"


@examples(200)
@given(data=st.data(), policy=policies())
def test_any_history_with_interruptions_is_valid(data: st.DataObject, policy: WindowPolicy) -> None:
    def cut(entry: Entry) -> Entry:
        spoken = spoken_form(meaning_of(entry.message).text)
        if entry.message.role != "assistant" or not spoken:
            return entry
        speech = Speech(spoken=spoken, heard=data.draw(st.none() | st.integers(0, len(spoken))))
        return replace(entry, message=entry.message.with_(speech=speech))

    entries = [cut(entry) for entry in data.draw(histories()).entries]
    check_valid(build_window(entries, policy, cost=words), entries, policy)


speeches = st.builds(
    lambda spoken, share, confidence, language: Speech(
        spoken=spoken,
        heard=None if spoken is None or share is None else int(len(spoken) * share),
        confidence=confidence,
        language=language,
    ),
    st.none() | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20),
    st.none() | st.floats(0, 1),
    st.none() | st.floats(0, 1),
    st.none() | st.sampled_from(["en", "de-CH"]),
)


@given(speech=speeches, content=st.text())
def test_how_it_sounded_comes_back(speech: Speech, content: str) -> None:
    message = Message(role="assistant", content=content, speech=speech)
    assert decode_message(encode_message(message)) == message
    assert Message.from_dict(message.to_dict()) == message
    assert cut_at_interruption(message).role == "assistant"


@pytest.mark.parametrize(
    "fields",
    [
        {"confidence": 1.1},
        {"confidence": float("nan")},
        {"confidence": True},
        {"confidence": "sure"},
        {"heard": 1},
        {"heard": 4, "spoken": "one"},
        {"heard": -1, "spoken": "one"},
        {"spoken": "a\0b"},
        {"language": 7},
    ],
)
def test_what_no_speech_can_be_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=r"speech\."):
        Speech(**fields)
    with pytest.raises(InvalidInput, match=r"speech\."):
        Message.from_dict({"role": "user", "content": "x", "speech": fields})


@pytest.mark.parametrize("speech", ["loud", 7, {"loud": True}, [1]])
def test_a_speech_of_another_conversation_is_refused(speech: Any) -> None:
    with pytest.raises(InvalidInput, match="speech"):
        Message.from_dict({"role": "user", "content": "x", "speech": speech})


async def test_what_was_heard_is_carried_along(tmp_path: Path) -> None:
    """Through an archive and back, and in an owner's folder to another store."""
    url = f"sqlite:///{tmp_path}/memory.db"
    async with aforesaid.open(
        url,
        retention=aforesaid.Retention(archives=tmp_path / "archives"),
        models=aforesaid.Models(embedder=None),
    ) as memory:
        erin, bob = memory.of("erin"), memory.of("bob")
        conversation_id = await answered(erin)
        await erin.interrupted(conversation_id, "a", heard=33)
        before = await erin.messages(conversation_id)
        await erin.archive(conversation_id)
        await erin.restore(conversation_id)
        assert await erin.messages(conversation_id) == before
        await erin.export(tmp_path / "erin")
        await bob.import_(tmp_path / "erin")
        assert await bob.messages(conversation_id) == before
        assert before[1].speech == Speech(spoken=SPOKEN, heard=33)
