"""Redaction, archives, exports and erasure of what is encrypted."""

import contextlib
import gzip
import lzma
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import aforesaid
from aforesaid.encryption import MasterKeys, ProviderSealer
from aforesaid.layers.encrypted import EncryptedBackend, Encryption
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.ids import new_id
from aforesaid.stores.memory import InMemoryBackend
from aforesaid.transfer.archives import ArchiveFolder
from tests.builders import LAYER_STORES, empty_url
from tests.encrypted_stores import MASTER, OTHER_MASTER

SECRET = "the alarm code is marzipan"


class Kept:
    def __init__(self, memory: aforesaid.Memory) -> None:
        self.memory = memory
        self.owner = f"owner-{new_id()}"
        self.erin: ConversationManager = memory.of(self.owner)

    async def said(self) -> tuple[str, str]:
        record = await self.erin.get_or_create_conversation("kitchen")
        await self.erin.add_message(record.id, "user", SECRET, message_id="m1")
        await self.erin.add_message(record.id, "assistant", "noted", message_id="m2")
        return record.id, "m1"

    @property
    def backend(self) -> EncryptedBackend:
        assert isinstance(self.memory.backend, EncryptedBackend)
        return self.memory.backend


@pytest.fixture(params=LAYER_STORES)
async def kept(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Kept]:
    async with aforesaid.open(
        empty_url(request.param, tmp_path, request),
        retention=aforesaid.Retention(archives=tmp_path / "archives", sweep_every=None),
        layers=aforesaid.Layers(
            encryption=Encryption(master=MasterKeys(MASTER), records=True), resilience="off"
        ),
        models=aforesaid.Models(embedder=None),
    ) as memory:
        yield Kept(memory)


async def contents(erin: ConversationManager, conversation_id: str) -> list[object]:
    return [message.content for message in await erin.messages(conversation_id)]


async def test_a_message_is_redacted(kept: Kept) -> None:
    conversation_id, message_id = await kept.said()
    await kept.erin.redact(conversation_id, message_id)
    first, second = await contents(kept.erin, conversation_id)
    assert "marzipan" not in str(first)
    assert second == "noted"
    await kept.erin.erase()


def _says(file: Path, words: bytes) -> bool:
    """Whether a file says this, also where it is compressed."""
    data = file.read_bytes()
    if words in data:
        return True
    starts = [at for at in range(len(data)) if data[at : at + 2] in (b"\x1f\x8b", b"\x78\x9c", b"\xfd7")]
    return any(words in _inflated(data[at:]) for at in starts)


def _inflated(data: bytes) -> bytes:
    for inflate in (gzip.decompress, zlib.decompress, lzma.decompress):
        with contextlib.suppress(Exception):
            return inflate(data)
    return b""


async def test_a_conversation_is_archived_and_comes_back_and_is_sealed_meanwhile(
    kept: Kept, tmp_path: Path
) -> None:
    conversation_id, _ = await kept.said()
    await kept.erin.archive(conversation_id)
    assert await kept.erin.store.get(conversation_id) is None
    files = [file for file in (tmp_path / "archives").rglob("*") if file.is_file()]
    assert files
    assert not any(_says(file, b"alarm code") for file in files)
    await kept.erin.restore(conversation_id)
    assert await contents(kept.erin, conversation_id) == [SECRET, "noted"]
    await kept.erin.erase()


async def test_an_archive_that_needs_another_master_key_does_not_block_the_rest(tmp_path: Path) -> None:
    def memory_with(master: bytes) -> contextlib.AbstractAsyncContextManager[aforesaid.Memory]:
        return aforesaid.open(
            f"sqlite:///{tmp_path}/memory.db",
            retention=aforesaid.Retention(
                archives=ArchiveFolder(tmp_path / "archives", sealer=ProviderSealer(MasterKeys(master))),
                sweep_every=None,
            ),
            layers=aforesaid.Layers(encryption=Encryption(master=MasterKeys(master, MASTER))),
            models=aforesaid.Models(embedder=None),
        )

    async with memory_with(MASTER) as memory:
        kept = Kept(memory)
        archived, _ = await kept.said()
        await kept.erin.archive(archived)
        await kept.said()
    async with memory_with(OTHER_MASTER) as memory:
        manifest = await memory.of(kept.owner).export(tmp_path / "mine")
    assert manifest.unreadable == (archived,)
    assert manifest.counts["messages"] == 2


async def test_what_is_exported_is_in_plain_words(kept: Kept, tmp_path: Path) -> None:
    await kept.said()
    await kept.erin.export(tmp_path / "mine")
    text = b"".join(file.read_bytes() for file in (tmp_path / "mine").rglob("*") if file.is_file())
    assert b"marzipan" in text
    assert b"aforesaid/sealed" not in text
    assert b'"keys"' not in text
    await kept.erin.erase()


async def test_a_keyring_of_its_own_is_scrubbed_too(tmp_path: Path) -> None:
    class Snapshotting(InMemoryBackend):
        async def scrub(self, owner: str) -> tuple[str, ...]:
            return (f"a snapshot with the keys of {owner}",)

    async with aforesaid.open(
        f"sqlite:///{tmp_path}/memory.db",
        retention=aforesaid.Retention(sweep_every=None),
        layers=aforesaid.Layers(encryption=Encryption(master=MasterKeys(MASTER), keyring=Snapshotting())),
        models=aforesaid.Models(embedder=None),
    ) as memory:
        kept = Kept(memory)
        await kept.said()
        receipt = await kept.erin.erase()
    assert receipt.remains == (f"a snapshot with the keys of {kept.owner}",)


async def test_an_erased_owner_leaves_no_key_and_starts_with_a_new_one(kept: Kept) -> None:
    conversation_id, _ = await kept.said()
    inner = kept.backend.inner.of(kept.owner)
    before = await inner.get_document("keys", "data")
    receipt = await kept.erin.erase()
    assert receipt.remains == ()
    assert await inner.get_document("keys", "data") is None
    assert kept.owner not in [owner async for owner in kept.memory.owners()]
    again, _ = await kept.said()
    assert again != conversation_id
    assert await contents(kept.erin, again) == [SECRET, "noted"]
    after = await inner.get_document("keys", "data")
    assert before is not None
    assert after is not None
    assert before.data != after.data
    await kept.erin.erase()
