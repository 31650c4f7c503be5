"""A receipt counts every kind apart, on every store, sealed or not, also when another process finishes."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import aforesaid
from aforesaid import RetentionRules
from aforesaid.contacts.association import UNLINKED_KIND
from aforesaid.contracts import JOURNAL, Backend, Reindexable, Tally, capability
from aforesaid.encryption import MasterKeys
from aforesaid.errors import StoreUnavailable
from aforesaid.layers.cached import Cache
from aforesaid.layers.encrypted import Encryption
from aforesaid.memory.manager import ConversationManager
from aforesaid.memory.opening import Memory
from aforesaid.model.clock import system_clock
from aforesaid.model.contacts import KIND as CONTACTS
from aforesaid.model.conversations import Changes
from aforesaid.model.lifetimes import DOCUMENT_KIND as RETENTION
from aforesaid.notes.records import KIND as NOTES
from aforesaid.notes.records import Source
from aforesaid.retention.receipts import KINDS, Receipt, counts_of, digest_of, with_digest
from aforesaid.search.vectors import KIND_PREFIX
from aforesaid.server.routes.messages import KIND as IDEMPOTENCY
from aforesaid.stores.blobs import FolderBlobs
from aforesaid.summaries.service import KIND as SUMMARIES
from tests.integration.retention.test_interrupted_erasure import Failing
from tests.processes.erasing import killed_after
from tests.report import MATRIX
from tests.stored_files import ONE, STORES, StoreFiles, live, opened, store_files

KEYS = MasterKeys(b"k" * 32)


@pytest.fixture(params=STORES)
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreFiles]:
    with store_files(request.param, tmp_path, request) as files:
        yield files


async def lived(erin: ConversationManager) -> str:
    """Something of every kind that a store keeps; and an archive. Returns the conversation that stays."""
    backend = erin.scope.backend
    await erin.archive(await live(erin))
    conversation_id = await live(erin, session="kitchen")
    await erin.get_or_create_conversation("hall")
    await erin.clients.add("Ann")
    await erin.clients.add("Bob")
    await erin.set_retention(RetentionRules(owner=timedelta(days=90)))
    await erin.remember("likes tea", source=Source(conversation_id=conversation_id))
    await erin.remember("has a dog")
    store = erin.store
    for number in range(3):
        await store.put_document("vectors/model", str(number), b"\0" * 64, conversation_id=conversation_id)
    await store.put_document(IDEMPOTENCY, "k1", b"digest")
    await store.put_document("orders of Erin", "1", b"{}")
    await store.put_document("more", "1", b"{}")
    reindexable = capability(backend, Reindexable)
    if reindexable is not None:
        await reindexable.reindex()  # which SQLite does when there is more of it
    return conversation_id


OF_AN_OWNER = {
    "conversations": 2,
    "messages": 5,
    "sessions": 2,
    "index_entries": 5,
    "summaries": 1,
    "vector_blocks": 3,
    "notes": 3,
    "contacts": 3,
    "retention_rules": 1,
    "idempotency_keys": 1,
    "other_documents": 2,
    "archives": 1,
}
OF_A_CONVERSATION = {
    "conversations": 1,
    "messages": 5,
    "sessions": 1,
    "index_entries": 5,
    "summaries": 1,
    "vector_blocks": 3,
    "notes": 1,
}


def options(sealed: bool) -> dict[str, Any]:
    return {"encryption": KEYS} if sealed else {}


def besides(sealed: bool, *, whole: bool = True) -> dict[str, int]:
    """What depends on encryption: the keys, or the pictures, which stay in a sealed log."""
    return ({"keys": 1} if whole else {}) if sealed else {"blobs": 1}


def kept(receipt: Receipt) -> dict[str, int]:
    """All but copies in memory: how many there are depends on what was asked."""
    return {kind: count for kind, count in receipt.erased.items() if kind != "cached_copies"}


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
async def test_an_owner_is_counted_kind_by_kind(files: StoreFiles, tmp_path: Path, sealed: bool) -> None:
    async with opened(files, tmp_path, **options(sealed)) as memory:
        erin = memory.of("erin")
        await lived(erin)
        receipt = await erin.erase()
        assert kept(receipt) == OF_AN_OWNER | besides(sealed)
        assert "Erin" not in str(receipt)
        assert receipt.digest == digest_of(receipt)
        assert kept(await erin.erase()) == {}


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
async def test_a_conversation_is_counted_kind_by_kind(
    files: StoreFiles, tmp_path: Path, sealed: bool
) -> None:
    async with opened(files, tmp_path, **options(sealed)) as memory:
        erin = memory.of("erin")
        conversation_id = await lived(erin)
        receipt = await erin.erase(conversation_id)
        assert kept(receipt) == OF_A_CONVERSATION | besides(sealed, whole=False)
        assert kept(await erin.erase(conversation_id)) == {}
        (archive,) = await erin.archives()
        assert kept(await erin.erase(archive.conversation_id)) == {"archives": 1}


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
async def test_copies_are_counted(files: StoreFiles, tmp_path: Path, sealed: bool) -> None:
    async with opened(
        files, tmp_path, cache=Cache(), audit=tmp_path / "audit.log", **options(sealed)
    ) as memory:
        erin = memory.of("erin")
        conversation_id = await lived(erin)
        await erin.messages(conversation_id)
        await erin.notes()
        receipt = await erin.erase(conversation_id)
        assert receipt.erased["cached_copies"] >= 2  # the record, and a page of the log
        assert kept(receipt) == OF_A_CONVERSATION | besides(sealed, whole=False)


@pytest.mark.parametrize("files", ONE, indirect=True)
@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
@pytest.mark.parametrize("call", ["clear", "scrub"])
async def test_who_finishes_an_erasure_of_an_owner_counts_all_of_it(
    files: StoreFiles, tmp_path: Path, call: str, sealed: bool
) -> None:
    async with opened(files, tmp_path, **options(sealed)) as memory:
        if call == "scrub" and not hasattr(memory.backend, "scrub"):
            call = "clear"  # in memory there is nothing to scrub
        await lived(memory.of("erin"))
        with pytest.raises(StoreUnavailable):
            await beside(memory, Failing(memory.backend, call)).of("erin").erase()
        (receipt,) = await memory.resume_erasures()
        assert kept(receipt) == OF_AN_OWNER | besides(sealed)
        assert await innermost(memory.backend).of("erin").tally() == Tally(), "no keys either"
        assert await memory.resume_erasures() == []


async def damaged(erin: ConversationManager, inner: Any) -> None:
    """Three conversations and two notes, of each one that cannot be opened any more."""
    for number in range(3):
        record = await erin.get_or_create_conversation(f"room {number}")
        await erin.add_message(record.id, "user", "hello")
        await erin.update_metadata(record.id, subject="tea")
    await inner.update(record.id, Changes(subject="damaged"))
    await erin.remember("likes tea")
    note = await erin.remember("has a dog")
    await inner.put_document(NOTES, note.id, b"damaged")


@pytest.mark.parametrize("files", ONE, indirect=True)
@pytest.mark.parametrize("since", [False, True], ids=["nothing since", "something since"])
async def test_who_finishes_an_erasure_does_not_count_what_stays(
    files: StoreFiles, tmp_path: Path, since: bool
) -> None:
    async with opened(files, tmp_path, encryption=Encryption(master=KEYS, records=True)) as memory:
        erin, inner = memory.of("erin"), innermost(memory.backend).of("erin")
        await damaged(erin, inner)
        with pytest.raises(StoreUnavailable):
            await beside(memory, Failing(memory.backend, "clear")).of("erin").erase()
        if since:
            await erin.remember("has a cat")
        (receipt,) = await memory.resume_erasures()
        erased = {"conversations": 3, "messages": 3, "sessions": 3, "notes": 2, "keys": 1}
        if not since:
            assert kept(receipt) == erased
            assert receipt.remains == ()
            assert await inner.tally() == Tally()
        else:
            assert kept(receipt) == {"conversations": 2, "messages": 2, "sessions": 2, "notes": 1}
            (remains,) = receipt.remains
            assert "conversations: 1, messages: 1, sessions: 1, notes: 1" in remains
            assert [note.text for note in await erin.notes()] == ["has a cat"]


async def test_removals_are_counted_although_the_journal_could_not_be_written(
    files: StoreFiles, tmp_path: Path
) -> None:
    async with opened(files, tmp_path) as memory:
        await lived(memory.of("erin"))
        forgetful = Forgetful(memory.backend)
        with pytest.raises(StoreUnavailable):
            await beside(memory, forgetful).of("erin").erase()
        assert await memory.backend.of("erin").tally() == Tally()
        (receipt,) = await memory.resume_erasures()
        assert kept(receipt) == OF_AN_OWNER | besides(sealed=False)


@pytest.mark.slow
@pytest.mark.parametrize("files", ["file", "sqlite"] if MATRIX else ["sqlite"], indirect=True)
@pytest.mark.parametrize("step", ["noted", "held", "removed", "blobs", "scrubbed"])
async def test_who_finishes_what_a_killed_process_began_counts_all_of_it(
    files: StoreFiles, step: str, tmp_path: Path
) -> None:
    killed_after(step, files, tmp_path, "owner")
    memory = reopened(files, tmp_path)
    await memory.backend.open()
    try:
        (receipt,) = await memory.resume_erasures()
    finally:
        await memory.backend.close()
    # The index of a JSON file is in memory: it is gone with a process that was killed before it counted.
    index = {} if step == "noted" and files.url.startswith("file:") else {"index_entries": 5}
    assert kept(receipt) == index | {
        "conversations": 1,
        "messages": 5,
        "sessions": 1,
        "summaries": 1,
        "notes": 1,
        "contacts": 1,
        "blobs": 1,
        "archives": 1,
    }


async def test_what_cannot_be_read_is_erased_and_counted(tmp_path: Path, request: Any) -> None:
    from redis.asyncio import Redis

    with store_files("redis", tmp_path, request) as files:
        async with opened(files, tmp_path) as memory:
            erin = memory.of("erin")
            await live(erin)
            async with Redis.from_url(files.url) as server:
                (record,) = [key async for key in server.scan_iter(match="*:record")]
                await server.hset(record, "unread_count", "many")
                receipt = await erin.erase()
                assert receipt.erased["conversations"] == 1
                assert receipt.erased["messages"] == 5
                assert [key async for key in server.scan_iter(match="*:record")] == []
            assert files.found() == {}


def test_every_kind_of_document_of_our_own_is_counted_apart() -> None:
    ours = (UNLINKED_KIND, CONTACTS, RETENTION, NOTES, SUMMARIES, IDEMPOTENCY, f"{KIND_PREFIX}model")
    counts = counts_of(Tally(documents=dict.fromkeys((*ours, "somebody's"), 1)))
    assert {kind for kind, count in counts.items() if count} == {
        "client_links",
        "contacts",
        "idempotency_keys",
        "notes",
        "other_documents",
        "retention_rules",
        "summaries",
        "vector_blocks",
    }
    assert set(counts) <= set(KINDS)


def test_a_receipt_that_was_changed_shows_it() -> None:
    now = system_clock()
    receipt = with_digest(
        Receipt(owner="0" * 64, conversation_id=None, erased={"notes": 1, "messages": 2, "blobs": 0},
                started_at=now, finished_at=now)
    )  # fmt: skip
    assert list(receipt.erased.items()) == [("messages", 2), ("notes", 1)]
    assert digest_of(receipt) == receipt.digest
    assert digest_of(replace(receipt, erased={"messages": 3, "notes": 1})) != receipt.digest


class Forgetful:
    """A backend whose journal records the start and the earlier steps, but not the step of the store."""

    def __init__(self, inner: Backend) -> None:
        self._inner = inner
        self.cleared = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def of(self, owner: str) -> Any:
        return _ForgetfulStore(self, self._inner.of(owner), owner)


class _ForgetfulStore:
    def __init__(self, backend: Forgetful, inner: Any, owner: str) -> None:
        self._backend = backend
        self._inner = inner
        self._owner = owner

    async def authoritative(self) -> "_ForgetfulStore":
        return _ForgetfulStore(self._backend, await self._inner.authoritative(), self._owner)

    def __getattr__(self, name: str) -> Any:
        self._backend.cleared |= name == "clear"
        if self._owner == JOURNAL and name == "put_document" and self._backend.cleared:
            raise StoreUnavailable("the journal cannot be written, on purpose")
        return getattr(self._inner, name)


def innermost(backend: Any) -> Any:
    while inner := getattr(backend, "inner", None):
        backend = inner
    return backend


def beside(memory: Memory, backend: Any) -> Memory:
    """Another memory in the same places, with a backend that fails."""
    return Memory(
        backend,
        retention=aforesaid.Retention(sweep_every=None, archives=memory.archives),
        images=aforesaid.ImageOptions(blobs=memory.blobs),
        models=aforesaid.Models(embedder=None),
    )


def reopened(files: StoreFiles, folder: Path) -> Memory:
    return aforesaid.open(
        files.url,
        retention=aforesaid.Retention(sweep_every=None, archives=folder / "archives"),
        layers=aforesaid.Layers(resilience="off"),
        images=aforesaid.ImageOptions(policy="blobs", blobs=FolderBlobs(folder / "blobs")),
        models=aforesaid.Models(embedder=None),
    )
