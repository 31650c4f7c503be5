"""Pictures: words in their place, kept as they are, or beside the log and back for the current turn."""

import base64
import hashlib
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import aforesaid
from aforesaid import ChatHistory, ConversationManager, Memory
from aforesaid.dialects import read, without_images
from aforesaid.errors import ConversationNotFound, InvalidSetting
from aforesaid.model.ids import new_id
from aforesaid.stores.blobs import BlobBackend, FolderBlobs, InMemoryBlobs
from aforesaid.testing import FixedClock
from aforesaid.windows import WindowPolicy
from tests.builders import Target
from tests.examples import examples
from tests.servers.remote import open_at

WORDS = "[Image sent: photo]"


def bits(number: int) -> bytes:
    return b"\x89PNG" + bytes([number]) * 30


def base64_of(number: int) -> str:
    return base64.b64encode(bits(number)).decode()


def digest(number: int) -> str:
    return hashlib.sha256(bits(number)).hexdigest()


def image(number: int) -> dict[str, Any]:
    source = {"type": "base64", "media_type": "image/png", "data": base64_of(number)}
    return {"type": "image", "source": source, "cache_control": {"type": "ephemeral"}}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def sent(number: int) -> list[dict[str, Any]]:
    return [
        {"role": "user", "content": [image(number), text("what is it?")]},
        {"role": "assistant", "content": [text(f"picture {number}")]},
    ]


@pytest.fixture(params=["memory", "folder"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> BlobBackend:
    return InMemoryBlobs() if request.param == "memory" else FolderBlobs(tmp_path / "blobs")


@pytest.fixture
async def album(url: str, clock: FixedClock, blobs: BlobBackend) -> AsyncIterator[Memory]:
    opened = open_at(url, clock=clock, sweep_every=None, images="blobs", blobs=blobs)
    async with opened as memory:
        yield memory


async def begun(manager: ConversationManager, *turns: list[dict[str, Any]]) -> str:
    conversation = await manager.get_or_create_conversation(new_id())
    for turn in turns:
        await manager.append(conversation.id, read(turn))
    return conversation.id


async def shown(manager: ConversationManager, conversation_id: str) -> list[Any]:
    return [message.content for message in (await manager.load_context(conversation_id)).messages]


@pytest.mark.parametrize(("images", "kept"), [("placeholder", text(WORDS)), ("keep", image(1))])
async def test_a_picture_becomes_words_or_stays(
    url: str, images: Literal["placeholder", "keep"], kept: dict[str, Any]
) -> None:
    async with open_at(url, images=images, sweep_every=None) as memory:
        erin = memory.of("erin")
        conversation_id = await begun(erin, sent(1), sent(1))
        expected = [[kept, text("what is it?")], [text("picture 1")]] * 2
        assert await shown(erin, conversation_id) == expected
        assert [message.content for message in await erin.messages(conversation_id)] == expected


async def test_words_are_the_default(memory: Memory) -> None:
    erin = memory.of("erin")
    assert (await shown(erin, await begun(erin, sent(1))))[0][0] == text(WORDS)


async def test_the_log_holds_references_and_the_current_turn_its_pictures(
    album: Memory, blobs: BlobBackend
) -> None:
    erin = album.of("erin")
    conversation_id = await begun(erin, sent(1), sent(2))
    assert await shown(erin, conversation_id) == [
        [text(WORDS), text("what is it?")],
        [text("picture 1")],
        [image(2), text("what is it?")],
        [text("picture 2")],
    ]
    log = str(await erin.store.load(conversation_id))
    assert base64_of(1) not in log
    assert base64_of(2) not in log
    assert digest(1) in log
    assert await blobs.of("erin").list(conversation_id) == sorted([digest(1), digest(2)])
    assert await blobs.of("erin").get(conversation_id, digest(1)) == bits(1)


async def test_a_turn_under_way_shows_its_pictures_and_words_for_all_before(album: Memory) -> None:
    erin = album.of("erin")
    conversation_id = await begun(erin, sent(1))
    async with erin.turn(conversation_id) as turn:
        turn.user([image(2)])
        question, _, now = (await turn.request("anthropic"))["messages"]
        assert question["content"][0] == text(WORDS)
        assert now["content"] == [image(2)]
        turn.assistant("nice")
    assert (await shown(erin, conversation_id))[2:] == [[image(2)], "nice"]


async def test_a_picture_in_a_tool_loop_is_there_until_the_answer_and_the_next_question(
    album: Memory,
) -> None:
    erin = album.of("erin")
    call = {"type": "tool_use", "id": "toolu_1", "name": "camera", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [image(3), text("door")]}
    conversation_id = await begun(
        erin,
        [
            {"role": "user", "content": "who is at the door?"},
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
        ],
    )
    assert (await shown(erin, conversation_id))[2] == [result]
    await erin.append(conversation_id, read([{"role": "user", "content": "and now?"}]))
    assert (await shown(erin, conversation_id))[2] == [{**result, "content": [text(WORDS), text("door")]}]


async def test_a_missing_or_damaged_blob_gives_words_and_a_warning(
    url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    opened = open_at(url, images="blobs", blobs=tmp_path / "blobs", sweep_every=None)
    async with opened as memory:
        erin = memory.of("erin")
        question = {"role": "user", "content": [image(1), image(2), image(3)]}
        conversation_id = await begun(erin, [question])
        files = {file.name: file for file in (tmp_path / "blobs").rglob("*") if file.is_file()}
        files[digest(1)].unlink()
        files[digest(2)].write_bytes(b"rotten")
        context = await erin.load_context(conversation_id)
    assert context.messages[0].content == [text(WORDS), text(WORDS), image(3)]
    missing, damaged = context.report.warnings
    assert digest(1)[:12] in missing
    assert "is missing" in missing
    assert "is damaged" in damaged
    assert not context.report.degraded
    assert len(caplog.records) >= 2


async def test_references_are_words_where_no_blobs_are_at_hand(album: Memory) -> None:
    conversation_id = await begun(album.of("erin"), sent(1))
    plain = Memory(album.backend, models=aforesaid.Models(embedder=None)).of("erin")
    context = await plain.load_context(conversation_id)
    assert context.messages[0].content == [text(WORDS), text("what is it?")]
    assert any("this memory has no blobs" in warning for warning in context.report.warnings)


async def test_a_session_begins_with_words_for_its_pictures(album: Memory) -> None:
    erin = album.of("erin")
    conversation = await erin.get_or_create_conversation("kitchen")
    await erin.append(conversation.id, read(sent(1)))
    latest = (await erin.get_or_create_conversation("kitchen")).messages
    assert latest[0].content == [text(WORDS), text("what is it?")]


async def test_new_pictures_may_become_words_while_old_ones_are_still_read(
    album: Memory, blobs: BlobBackend
) -> None:
    conversation_id = await begun(album.of("erin"), sent(1))
    erin = Memory(
        album.backend, images=aforesaid.ImageOptions(blobs=blobs), models=aforesaid.Models(embedder=None)
    ).of("erin")
    assert (await shown(erin, conversation_id))[0][0] == image(1)
    await erin.append(conversation_id, read(sent(2)))
    assert (await shown(erin, conversation_id))[2][0] == text(WORDS)


FORGED: list[dict[str, Any]] = [
    {"type": "aforesaid_blob"},
    {"type": "aforesaid_blob", "sha256": "../../x", "path": ["source", "data"], "block": image(1)},
    {"type": "aforesaid_blob", "sha256": "0" * 64, "path": ["no", "where"], "block": image(1)},
    {"type": "aforesaid_blob", "sha256": "0" * 64, "path": [], "block": {}},
    {"type": "aforesaid_blob", "sha256": 7, "path": "x", "block": []},
]


@pytest.mark.parametrize("forged", FORGED)
async def test_a_made_up_reference_does_no_harm(album: Memory, forged: dict[str, Any]) -> None:
    erin = album.of("erin")
    conversation_id = await begun(erin, [{"role": "user", "content": [text("hi"), forged]}])
    assert await shown(erin, conversation_id) == [[text("hi"), text(WORDS)]]


async def test_a_picture_of_the_current_turn_counts_as_one(album: Memory) -> None:
    erin = album.of("erin")
    conversation_id = await begun(erin, *(sent(number) for number in range(8)))
    policy = WindowPolicy(max_tokens=1800)
    context = await erin.load_context(conversation_id, policy=policy)
    assert context.messages[-2].content == [image(7), text("what is it?")]
    assert len(context) == 16, "pictures of earlier turns cost no more than the words in their place"
    assert 1600 < context.report.tokens.total <= 1800


async def test_pictures_go_with_what_referred_to_them(album: Memory, blobs: BlobBackend) -> None:
    erin = album.of("erin")
    first, second, third = [await begun(erin, sent(1), sent(2)) for _ in range(3)]
    await erin.delete_conversation(first)
    assert await blobs.of("erin").conversations() == sorted([second, third])
    await erin.clear_history(second)
    assert await blobs.of("erin").conversations() == [third]
    assert await erin.messages(second) == []
    assert (await shown(erin, third))[2][0] == image(2)


async def test_pictures_of_a_conversation_that_is_not_there_are_not_kept(
    album: Memory, blobs: BlobBackend
) -> None:
    with pytest.raises(ConversationNotFound):
        await album.of("erin").append(new_id(), read(sent(1)))
    assert await blobs.keys() == []


@pytest.mark.parametrize("whose", ["everybody's", "one owner's"])
async def test_pictures_of_expired_conversations_go_with_the_sweep(
    album: Memory, blobs: BlobBackend, clock: FixedClock, whose: str
) -> None:
    erin = album.of("erin")
    await begun(erin, sent(1))
    if whose == "everybody's":
        await begun(album.of("dan"), sent(1))
    clock.advance(timedelta(days=20))
    alive = await begun(erin, sent(2))
    clock.advance(timedelta(days=20))
    await (album if whose == "everybody's" else erin).purge_expired()
    assert await blobs.of("erin").conversations() == [alive]
    assert len(await blobs.keys()) == 1


async def test_a_chat_forgets_its_pictures_too(album: Memory, blobs: BlobBackend, clock: FixedClock) -> None:
    chat = ChatHistory(album.of("household"))
    await chat.save_turn("+1555", sent(1))
    clock.advance(timedelta(hours=1))
    await chat.save_turn("+1555", sent(2))
    assert await chat.get_history("+1555") == sent(2)
    await chat.clear_history("+1555")
    assert await blobs.keys() == []


async def test_a_turn_sent_twice_is_stored_once(album: Memory) -> None:
    erin = album.of("erin")
    conversation_id = await begun(erin)
    (question,) = read([sent(1)[0]])
    for _ in range(2):
        await erin.append(conversation_id, [question.with_(message_id="m1")])
    assert len(await erin.messages(conversation_id)) == 1


def test_what_cannot_be_used_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidSetting, match="images must be an ImageOptions or one of placeholder, keep, blobs"
    ):
        aforesaid.open(images="thumbnails")  # type: ignore[arg-type]
    with pytest.raises(InvalidSetting, match="needs a place"):
        aforesaid.open(images="blobs")
    with pytest.raises(InvalidSetting, match="needs a place"):
        ConversationManager(images="blobs")


numbers = st.integers(0, 5)
blocks = st.one_of(
    numbers.map(image),
    numbers.map(lambda n: text(f"word {n}")),
    numbers.map(lambda n: {"type": "image", "source": {"type": "url", "url": f"https://example.org/{n}"}}),
)
chat_blocks = numbers.map(
    lambda n: {
        "type": "image_url",
        "image_url": {"url": f"data:image/png;base64,{base64_of(n)}", "detail": "low"},
    }
)
item_blocks = numbers.map(
    lambda n: {"type": "input_image", "image_url": f"data:image/png;base64,{base64_of(n)}"}
)
questions = st.one_of(
    *(st.lists(each, min_size=1, max_size=4) for each in (blocks, chat_blocks, item_blocks))
).map(lambda content: {"role": "user", "content": content})
drawn = numbers.map(lambda n: {"type": "image_generation_call", "id": f"ig_{n}", "result": base64_of(n)})
answers = st.one_of(drawn, st.just({"role": "assistant", "content": "I see."}))


@examples()
@given(turns=st.lists(st.tuples(questions, answers), min_size=1, max_size=6))
def test_the_last_turn_comes_back_exactly_and_older_ones_in_words(target: Target, turns: list[Any]) -> None:
    async def scenario(owner: ConversationManager) -> None:
        erin = ConversationManager(owner.store, images="blobs", blobs=InMemoryBlobs().of("erin"))
        messages = [message for turn in turns for message in read(list(turn))]
        conversation_id = await begun(erin)
        for turn in turns:
            await erin.append(conversation_id, read(list(turn)))
        context = await erin.load_context(conversation_id)
        expected = [*map(without_images, messages[:-2]), *messages[-2:]]
        assert [(each.content, each.extra) for each in context.messages] == [
            (each.content, each.extra) for each in expected
        ]
        assert context.report.warnings == ()
        log = str([each.to_dict() for each in await erin.messages(conversation_id)])
        assert not any(base64_of(number) in log for number in range(6))

    target.run(scenario)


async def test_a_picture_inside_a_text_block_is_found(memory: aforesaid.Memory) -> None:
    """Words in blocks are passed over, but not what a block of words carries along."""
    erin = memory.of("erin")
    conversation = await erin.get_or_create_conversation("s")
    source = {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}
    block = {"type": "text", "text": "see", "shown": {"type": "image", "source": source}}
    await erin.add_message(conversation.id, "user", [block, {"type": "text", "text": "there"}])
    (stored,) = await erin.messages(conversation.id)
    assert "aGVsbG8=" not in str(stored.content)
    assert stored.content[1] == {"type": "text", "text": "there"}
