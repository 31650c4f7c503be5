"""After an erasure the text is nowhere in the files of the store."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from aforesaid.contracts import JOURNAL
from aforesaid.encryption import MasterKeys
from aforesaid.errors import ConversationNotFound
from aforesaid.layers.cached import Cache
from aforesaid.retention.erasure import KIND
from aforesaid.retention.receipts import Receipt, digest_of
from tests.stored_files import (
    ARGUMENTS,
    BLOB,
    CLIENT,
    CONTENT,
    MARKS,
    NOTE,
    ONE,
    REMARK,
    RESULT,
    SESSION,
    STORES,
    SUBJECT,
    TAG,
    StoreFiles,
    live,
    opened,
    store_files,
)


@pytest.fixture(params=STORES)
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreFiles]:
    with store_files(request.param, tmp_path, request) as files:
        yield files


def counted(receipt: Receipt) -> dict[str, int]:
    """What was erased, without copies in memory and indexes: which there are depends on the store."""
    passing = ("cached_copies", "index_entries")
    return {kind: count for kind, count in receipt.erased.items() if kind not in passing}


ON_DISK = [store for store in STORES if store != "memory"]


@pytest.mark.parametrize("files", ON_DISK, indirect=True)
async def test_what_is_stored_can_be_found_in_the_files(files: StoreFiles, tmp_path: Path) -> None:
    """Else the tests below would prove nothing."""
    async with opened(files, tmp_path) as memory:
        await live(memory.of("erin"))
        assert set(files.found()) >= set(MARKS)


async def test_an_owner_is_erased_without_residue(files: StoreFiles, tmp_path: Path) -> None:
    async with opened(files, tmp_path) as memory:
        erin, bob = memory.of("erin"), memory.of("bob")
        first = await live(erin)
        await erin.archive(first)
        second = await live(erin, session="kitchen")
        kept = await bob.get_or_create_conversation("kitchen")
        await bob.add_message(kept.id, "user", "mine")
        files.settle()
        receipt = await erin.erase()
        assert counted(receipt) == {
            "archives": 1,
            "contacts": 1,
            "blobs": 1,
            "conversations": 1,
            "messages": 5,
            "notes": 1,
            "sessions": 1,
            "summaries": 1,
        }
        assert receipt.remains == ()
        assert receipt.digest == digest_of(receipt)
        assert not any(mark in str(receipt) for mark in (*MARKS, "erin"))
        assert files.found() == {}
        assert await erin.store.get(second) is None
        assert [owner async for owner in memory.owners()] == ["bob"]
        assert await memory.backend.of(JOURNAL).documents(KIND) == []
        assert len(await bob.messages(kept.id)) == 1
    assert files.found() == {}


async def test_a_conversation_is_erased_without_residue(files: StoreFiles, tmp_path: Path) -> None:
    async with opened(files, tmp_path) as memory:
        erin = memory.of("erin")
        gone = await live(erin)
        kept = await erin.get_or_create_conversation("kitchen")
        await erin.add_message(kept.id, "user", "this stays")
        await erin.store.delete_document("notes", NOTE)
        receipt = await erin.erase(gone)
        assert counted(receipt) == {
            "blobs": 1,
            "conversations": 1,
            "messages": 5,
            "sessions": 1,
            "summaries": 1,
        }
        assert receipt.conversation_id == gone
        assert files.found() == {}
        assert [message.content for message in await erin.messages(kept.id)] == ["this stays"]


@pytest.mark.parametrize("files", ONE, indirect=True)
@pytest.mark.parametrize("scope", ["owner", "conversation"])
async def test_what_is_encrypted_is_erased_without_residue(
    files: StoreFiles, tmp_path: Path, scope: str
) -> None:
    async with opened(files, tmp_path, encryption=MasterKeys(b"k" * 32)) as memory:
        erin = memory.of("erin")
        archived = await live(erin)
        await erin.archive(archived)
        conversation_id = await live(erin, session="kitchen")
        if scope == "owner":
            assert (await erin.erase()).remains == ()
        else:
            await erin.store.delete_document("notes", NOTE)
            await erin.erase(archived)
            await erin.erase(conversation_id)
        assert files.found() == {}
        assert await erin.archives() == []
        fresh = await erin.get_or_create_conversation("a new beginning")
        await erin.add_message(fresh.id, "user", "hello again")
        assert [message.content for message in await erin.messages(fresh.id)] == ["hello again"]


async def test_copies_in_a_cache_and_a_spool_go_too(files: StoreFiles, tmp_path: Path) -> None:
    async with opened(files, tmp_path, cache=Cache(), audit=tmp_path / "audit.log") as memory:
        erin = memory.of("erin")
        conversation_id = await live(erin)
        assert len(await erin.messages(conversation_id)) == 5
        assert await erin.search_history(CONTENT) != []
        receipt = await erin.erase()
        assert receipt.remains == ()
        assert await erin.search_history(CONTENT) == []
        trail = (tmp_path / "audit.log").read_bytes()
        assert b'"erase"' in trail, "what was done stays known; what was said does not"
        with pytest.raises(ConversationNotFound):
            await erin.messages(conversation_id)
        assert files.found() == {}


@pytest.mark.parametrize("files", ["file", "sqlite"], indirect=True)
@pytest.mark.parametrize("how", ["delete", "clear", "purge", "redact"])
async def test_embedded_stores_leave_no_text_after_any_deletion(
    files: StoreFiles, tmp_path: Path, how: str
) -> None:
    async with opened(files, tmp_path) as memory:
        erin = memory.of("erin")
        gone = await live(erin)
        await erin.store.delete_document("notes", NOTE)
        match how:
            case "delete":
                await erin.delete_conversation(gone)
                assert files.found() == {}
            case "clear":
                await erin.clear_history(gone)
                said = {CONTENT, ARGUMENTS, RESULT, BLOB, NOTE}
                assert not said & set(files.found())
            case "purge":
                await memory.backend.purge_expired(erin.store.now() + timedelta(days=40))
                await memory.purge_expired()
                assert files.found() == {}
            case "redact":
                for message in await erin.messages(gone):
                    assert message.message_id is not None
                    await erin.redact(gone, message.message_id)
                assert not {CONTENT, ARGUMENTS, RESULT, BLOB, NOTE} & set(files.found())
                assert {SUBJECT, CLIENT, REMARK, SESSION, TAG} <= set(files.found())


@pytest.mark.parametrize("files", ["redis", "postgres"], indirect=True)
async def test_a_redaction_can_reach_the_files_of_a_server(files: StoreFiles, tmp_path: Path) -> None:
    async with opened(files, tmp_path) as memory:
        erin = memory.of("erin")
        conversation_id = await live(erin)
        await erin.store.delete_document("notes", NOTE)
        for message in await erin.messages(conversation_id):
            assert message.message_id is not None
            await erin.redact(conversation_id, message.message_id, scrub=True)
        assert not {CONTENT, ARGUMENTS, RESULT, BLOB, NOTE} & set(files.found())


@pytest.mark.parametrize("files", ONE, indirect=True)
async def test_an_erasure_of_what_is_not_there_says_so(files: StoreFiles, tmp_path: Path) -> None:
    async with opened(files, tmp_path) as memory:
        receipt: Any = await memory.of("nobody").erase()
        assert receipt.erased == {}
        receipt = await memory.of("nobody").erase("0193b0f0-0000-7000-8000-00000000000f")
        assert receipt.erased == {}
