"""Notes of an owner, on every store."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

import aforesaid
from aforesaid.errors import InvalidInput, NoteNotFound
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.messages import Message
from aforesaid.notes.records import KIND, MOST_EARLIER, Note, Source
from aforesaid.testing import FixedClock
from tests.embedders import WordEncoder
from tests.servers.remote import open_at

DIM = "The bedroom lights are dim at 9 pm"
LATER = "The bedroom lights are dim at 10 pm"


def texts(notes: list[Note]) -> list[str]:
    return [note.text for note in notes]


async def test_a_note_is_there_in_another_session_and_after_a_restart(url: str, clock: FixedClock) -> None:
    async with open_at(url, clock=clock, sweep_every=None, embedder=None) as memory:
        note = await memory.of("erin").remember(DIM, tags=["home"])
        assert await memory.of("erin").notes() == [note]
        assert await memory.of("erin").get_note(note.id) == note
    if not url.startswith("memory:"):
        async with open_at(url, clock=clock, sweep_every=None, embedder=None) as memory:
            assert await memory.of("erin").notes() == [note]
            assert await memory.of("bob").notes() == []


async def test_a_later_note_replaces_and_the_earlier_one_is_history(erin: ConversationManager) -> None:
    first = await erin.remember(DIM)
    second = await erin.remember(LATER)
    await erin.remember("Half past nine", subject="lights, bedroom")
    third = (await erin.notes())[0]
    assert third.text == "Half past nine"
    assert await erin.notes() == [third]
    history = await erin.notes(history=True)
    assert [(note.id, note.replaced_by) for note in history] == [
        (first.id, third.id),
        (second.id, third.id),
        (third.id, None),
    ]
    assert (await erin.get_note(first.id)).replaced_by == third.id


async def test_the_same_note_said_again_is_the_one_that_is_there(erin: ConversationManager) -> None:
    first = await erin.remember(DIM)
    assert await erin.remember(DIM) == first
    assert await erin.notes(history=True) == [first]


async def test_the_history_of_a_subject_has_an_end(erin: ConversationManager) -> None:
    for number in range(MOST_EARLIER + 3):
        await erin.remember(f"My name is number {number}")
    history = texts(await erin.notes(history=True))
    assert len(history) == MOST_EARLIER + 1
    assert history[-1] == f"My name is number {MOST_EARLIER + 2}"


async def test_two_who_replace_at_once_lose_nothing(erin: ConversationManager) -> None:
    await asyncio.gather(*(erin.remember(f"My name is number {number}") for number in range(8)))
    assert len(await erin.notes()) == 1
    assert len(await erin.notes(history=True)) == 8


async def test_a_note_expires_and_a_purge_removes_it(
    memory: aforesaid.Memory, erin: ConversationManager, clock: FixedClock
) -> None:
    await erin.remember("I am in Rome", expires=timedelta(days=3))
    kept = await erin.remember(DIM)
    clock.advance(timedelta(days=3))
    assert await erin.notes(history=True) == [kept]
    assert await erin.recall("Rome") == []
    assert len(await erin.store.documents(KIND)) == 2
    assert await memory.purge_expired() == 0, "no conversation"
    assert [document.key for document in await erin.store.documents(KIND)] == [kept.id]


async def test_an_owner_purges_their_own(erin: ConversationManager, clock: FixedClock) -> None:
    await erin.remember("I am in Rome", expires=clock.now + timedelta(hours=1))
    clock.advance(timedelta(hours=2))
    await erin.purge_expired()
    assert await erin.store.documents(KIND) == []


async def test_recall_finds_by_words_and_tag_or_gives_the_latest(erin: ConversationManager) -> None:
    await erin.remember(DIM, tags=["home"])
    await erin.remember("I am allergic to peanuts", subject="allergies")
    assert texts(await erin.recall("when are the lights dim?")) == [DIM]
    assert texts(await erin.recall()) == ["I am allergic to peanuts", DIM]
    assert texts(await erin.recall(limit=1)) == ["I am allergic to peanuts"]
    assert texts(await erin.recall(tag="home")) == [DIM]
    assert await erin.recall("bicycle") == []


async def test_recall_finds_by_meaning_where_there_is_an_encoder(url: str) -> None:
    async with open_at(url, sweep_every=None, embedder=WordEncoder()) as memory:
        erin = memory.of("erin")
        await erin.remember("My automobile stays outside")
        await erin.remember("Sport is on Mondays")
        assert texts(await erin.recall("car")) == ["My automobile stays outside"]
        assert texts(await erin.recall("car")) == ["My automobile stays outside"], (
            "and again, from what is held"
        )


async def test_forgetting_takes_the_note_with_its_history(erin: ConversationManager) -> None:
    await erin.remember(DIM)
    second = await erin.remember(LATER)
    other = await erin.remember("I like tea")
    assert await erin.forget("bathroom lights") == []
    assert await erin.forget("the bedroom lights") == [second]
    assert await erin.notes(history=True) == [other]
    assert await erin.forget(other.id) == [other]
    assert await erin.store.documents(KIND) == []


async def test_a_replaced_note_can_be_forgotten_alone(erin: ConversationManager) -> None:
    first = await erin.remember(DIM)
    second = await erin.remember(LATER)
    assert [note.id for note in await erin.forget(first.id)] == [first.id]
    assert await erin.notes(history=True) == [second]
    with pytest.raises(NoteNotFound, match=first.id):
        await erin.get_note(first.id)


async def test_bad_input_is_refused_and_changes_nothing(erin: ConversationManager) -> None:
    note = await erin.remember(DIM)
    for refused in (
        erin.remember(""),
        erin.remember(DIM, subject=""),
        erin.remember(LATER, expires="yesterday"),
        erin.remember(LATER, expires=timedelta(0)),
        erin.remember(LATER, tags="home"),
        erin.remember(LATER, source="m1"),  # type: ignore[arg-type]
        erin.forget(" "),
        erin.recall("x", limit=0),
    ):
        with pytest.raises(InvalidInput):
            await refused
    assert await erin.notes(history=True) == [note]


async def test_a_note_that_cannot_be_read_is_set_aside(
    erin: ConversationManager, caplog: pytest.LogCaptureFixture
) -> None:
    note = await erin.remember(DIM)
    await erin.store.put_document(KIND, "broken", b"\xff")
    assert await erin.notes() == [note]
    assert "a note cannot be read and is skipped" in caplog.text


# What goes with what


async def said(manager: ConversationManager, session: str) -> Source:
    record = await manager.get_or_create_conversation(session)
    await manager.append(record.id, [Message(role="user", content=DIM, message_id=f"m-{session}")])
    return Source(conversation_id=record.id, message_id=f"m-{session}")


async def test_a_note_keeps_its_source_and_outlives_it(erin: ConversationManager) -> None:
    source = await said(erin, "kitchen")
    note = await erin.remember(DIM, source=source)
    assert source.conversation_id is not None
    await erin.delete_conversation(source.conversation_id)
    assert await erin.notes() == [note]
    assert note.source == source


async def test_the_source_may_be_the_name_of_a_conversation(
    memory: aforesaid.Memory, erin: ConversationManager
) -> None:
    await erin.add_message("kitchen", "user", DIM, message_id="m1")
    note = await erin.remember(DIM, source=Source(conversation_id="kitchen", message_id="m1"))
    record = await erin.get_conversation("kitchen")
    assert note.source == Source(conversation_id=record.id, message_id="m1")
    bobs = await memory.of("bob").remember("I like tea", source=Source(conversation_id="kitchen"))
    await erin.redact("kitchen", "m1")
    assert await erin.notes() == []
    assert await memory.of("bob").notes() == [bobs], "the same name is another conversation of another owner"


async def test_erasing_a_conversation_erases_notes_made_from_it(erin: ConversationManager) -> None:
    source, other = await said(erin, "kitchen"), await said(erin, "hall")
    await erin.remember(DIM, source=source)
    kept = await erin.remember("I like tea", source=other)
    receipt = await erin.erase(source.conversation_id)
    assert receipt.erased["notes"] == 1
    assert await erin.notes(history=True) == [kept]


async def test_redacting_a_message_forgets_notes_made_from_it(erin: ConversationManager) -> None:
    source = await said(erin, "kitchen")
    await erin.remember(DIM, source=source)
    kept = await erin.remember("I like tea", source=Source(conversation_id=source.conversation_id))
    assert source.conversation_id is not None
    assert source.message_id is not None
    await erin.redact(source.conversation_id, source.message_id)
    assert await erin.notes() == [kept]


async def test_notes_go_with_their_owner_and_come_back_from_an_export(
    memory: aforesaid.Memory, erin: ConversationManager, tmp_path: Path
) -> None:
    await erin.remember(DIM)
    await erin.remember(LATER)
    bobs = await memory.of("bob").remember("I like tea")
    before = await erin.notes(history=True)
    await erin.export(tmp_path / "folder")
    await erin.erase()
    assert await erin.notes(history=True) == []
    await erin.import_(tmp_path / "folder")
    assert await erin.notes(history=True) == before
    assert await memory.of("bob").notes() == [bobs]


async def test_what_the_redact_function_hides_stays_hidden(tmp_path: Path) -> None:
    def hide(message: Message) -> Message | None:
        words = str(message.content)
        return None if "secret" in words else message.with_(content=words.replace("1234", "…"))

    async with aforesaid.open(
        "memory://",
        retention=aforesaid.Retention(sweep_every=None),
        models=aforesaid.Models(embedder=None),
        redact=hide,
    ) as memory:
        erin = memory.of("erin")
        note = await erin.remember("The door code is 1234")
        assert note.text == "The door code is …"
        with pytest.raises(InvalidInput, match="redact"):
            await erin.remember("a secret")


async def test_notes_are_sealed_where_the_store_is_encrypted(tmp_path: Path) -> None:
    from aforesaid.encryption import generate_master_key

    path = tmp_path / "memory.db"
    async with aforesaid.open(
        f"sqlite:///{path}",
        retention=aforesaid.Retention(sweep_every=None),
        layers=aforesaid.Layers(encryption=generate_master_key()),
        models=aforesaid.Models(embedder=None),
    ) as memory:
        await memory.of("erin").remember("The door code is 1234 at Hollyhock", subject="Hollyhock door")
        assert texts(await memory.of("erin").recall("hollyhock")) == ["The door code is 1234 at Hollyhock"]
    written = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"ollyhock" not in written
