"""An erased owner's name is nowhere: not in the files of the store, in log lines, metrics or the receipt."""

import logging
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import msgspec
import pytest

from aforesaid import ImageOptions, Models, Retention
from aforesaid.contracts import JOURNAL
from aforesaid.encryption import MasterKeys
from aforesaid.errors import StoreUnavailable
from aforesaid.memory.opening import Memory
from aforesaid.retention.erasure import KIND, Intent, erase
from aforesaid.telemetry import telemetry
from tests.integration.retention.test_interrupted_erasure import STEPS, Failing
from tests.processes.erasing import killed_after
from tests.stored_files import EMBEDDED, END, ONE, STORES, StoreFiles, live, opened, store_files

OWNER = f"somebody-{END}"


@pytest.fixture(params=STORES)
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreFiles]:
    with store_files(request.param, tmp_path, request) as files:
        yield files


@pytest.mark.parametrize(
    ("files", "sealed"),
    [*product(STORES, ["plain"]), *product(ONE, ["sealed"])],
    indirect=["files"],
)
async def test_an_erasure_leaves_no_name(
    files: StoreFiles, tmp_path: Path, sealed: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="aforesaid")
    options = {"encryption": MasterKeys(b"k" * 32)} if sealed == "sealed" else {}
    async with opened(files, tmp_path, **options) as memory:
        await live(memory.of(OWNER))
        await memory.of(OWNER).set_webhook(f"person-{END}", f"https://example.org/{END}")
        receipt = await memory.of(OWNER).erase()
        assert receipt.remains == ()
        assert files.found() == {}
    assert files.found() == {}
    assert END not in str(receipt)
    assert END not in caplog.text
    assert END not in str(telemetry.samples())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "step"),
    [*product(EMBEDDED, STEPS), *product(sorted({"redis", "postgres"} - set(EMBEDDED)), ["removed"])],
    indirect=["files"],
)
async def test_a_killed_erasure_leaves_no_name_once_it_is_resumed(
    files: StoreFiles, step: str, tmp_path: Path
) -> None:
    killed_after(step, files, tmp_path, "owner", owner=OWNER)
    async with opened(files, tmp_path) as memory:
        assert await memory.backend.of(JOURNAL).documents(KIND) == []
        assert [owner async for owner in memory.owners()] == []
        assert files.found() == {}


@pytest.mark.parametrize("files", ONE, indirect=True)
async def test_the_journal_forgets_the_name_before_the_files_are_scrubbed(
    files: StoreFiles, tmp_path: Path
) -> None:
    async with opened(files, tmp_path) as memory:
        await live(memory.of(OWNER))
        failing = Memory(
            Failing(memory.backend, "scrub"),
            retention=Retention(sweep_every=None, archives=memory.archives),
            images=ImageOptions(blobs=memory.blobs),
            models=Models(embedder=None),
        )
        with pytest.raises(StoreUnavailable):
            await failing.of(OWNER).erase()
        (entry,) = await memory.backend.of(JOURNAL).documents(KIND)
        assert END.encode() not in entry.data
        (receipt,) = await memory.resume_erasures()
        assert receipt.erased["conversations"] == 1
        assert receipt.remains == ()
        assert files.found() == {}
        assert await memory.resume_erasures() == []


@pytest.mark.parametrize("files", ONE, indirect=True)
async def test_the_receipt_of_a_resumed_erasure_names_the_same_digest(
    files: StoreFiles, tmp_path: Path
) -> None:
    async with opened(files, tmp_path) as memory:
        await live(memory.of(OWNER))
        journal = memory.backend.of(JOURNAL)
        receipt = await erase(memory.scope(OWNER))
        intent = Intent(owner=None, digest=receipt.owner, conversation_id=None, started_at=receipt.started_at)
        await journal.put_document(KIND, intent.key, msgspec.json.encode(intent))
        (resumed,) = await memory.resume_erasures()
        assert resumed.owner == receipt.owner
        assert await journal.documents(KIND) == []
