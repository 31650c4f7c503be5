"""An erasure that is cut short is resumed, wherever it was cut."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from aforesaid import ImageOptions, Models, Retention
from aforesaid.contracts import JOURNAL, Backend
from aforesaid.errors import StoreUnavailable
from aforesaid.memory.opening import Memory
from aforesaid.retention.erasure import KIND
from aforesaid.retention.receipts import Receipt
from aforesaid.stores.sqlite import SQLiteBackend
from tests.processes.erasing import killed_after
from tests.report import MATRIX
from tests.stored_files import ONE, STORES, StoreFiles, live, opened, store_files

STEPS = ("noted", "held", "removed", "blobs", "held again", "unnamed", "scrubbed")


@pytest.fixture(params=STORES)
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreFiles]:
    with store_files(request.param, tmp_path, request) as files:
        yield files


@pytest.mark.slow
@pytest.mark.parametrize("files", ["file", "sqlite"], indirect=True)
@pytest.mark.parametrize("step", STEPS)
async def test_a_killed_erasure_of_an_owner_is_finished_on_opening(
    files: StoreFiles, step: str, tmp_path: Path
) -> None:
    killed_after(step, files, tmp_path, "owner")
    async with opened(files, tmp_path) as memory:
        assert files.found() == {}
        assert [owner async for owner in memory.owners()] == []
        assert await memory.backend.of(JOURNAL).documents(KIND) == []
        assert await memory.of("erin").archives() == []
    assert files.found() == {}


@pytest.mark.slow
@pytest.mark.parametrize("files", ["file", "sqlite"], indirect=True)
@pytest.mark.parametrize("step", ["noted", "removed", "scrubbed"])
async def test_a_killed_erasure_of_a_conversation_is_finished_on_opening(
    files: StoreFiles, step: str, tmp_path: Path
) -> None:
    conversation_id, archived = killed_after(step, files, tmp_path, "conversation")
    async with opened(files, tmp_path) as memory:
        erin = memory.of("erin")
        assert await erin.store.get(conversation_id) is None
        assert [one.conversation_id for one in await erin.archives()] == [archived]
        await erin.erase(archived)
        assert files.found() == {}


class Failing:
    """A backend of which one call fails once: nothing is forged, the store behind it is real."""

    def __init__(self, inner: Backend, failing: str) -> None:
        self._inner = inner
        self.failing: str | None = failing

    def __getattr__(self, name: str) -> Any:
        if name == self.failing:
            self._fail()
        return getattr(self._inner, name)

    def of(self, owner: str) -> Any:
        return _FailingStore(self, self._inner.of(owner)) if owner != JOURNAL else self._inner.of(owner)

    def _fail(self) -> None:
        self.failing = None
        raise StoreUnavailable("the store failed on purpose")


class _FailingStore:
    def __init__(self, backend: Failing, inner: Any) -> None:
        self._backend = backend
        self._inner = inner

    async def authoritative(self) -> "_FailingStore":
        return _FailingStore(self._backend, await self._inner.authoritative())

    def __getattr__(self, name: str) -> Any:
        if name == self._backend.failing:
            self._backend._fail()
        return getattr(self._inner, name)


@pytest.mark.parametrize("files", ["redis", "postgres"], indirect=True)
@pytest.mark.parametrize("call", ["clear", "scrub"] if MATRIX else ["scrub"])
async def test_an_erasure_that_fails_is_finished_by_the_sweep(
    files: StoreFiles, call: str, tmp_path: Path
) -> None:
    async with opened(files, tmp_path) as memory:
        await live(memory.of("erin"))
        failing = Memory(
            Failing(memory.backend, call),
            retention=Retention(sweep_every=None, archives=memory.archives),
            images=ImageOptions(blobs=memory.blobs),
            models=Models(embedder=None),
        )
        with pytest.raises(StoreUnavailable):
            await failing.of("erin").erase()
        assert files.found() != {}
        await memory.sweep()
        assert files.found() == {}
        assert await memory.backend.of(JOURNAL).documents(KIND) == []


@pytest.mark.parametrize("files", ONE, indirect=True)
async def test_what_was_made_since_is_no_part_of_a_resumed_erasure(files: StoreFiles, tmp_path: Path) -> None:
    async with opened(files, tmp_path) as memory:
        erin = memory.of("erin")
        old = await live(erin)
        failing = Memory(
            Failing(memory.backend, "clear"),
            retention=Retention(sweep_every=None),
            models=Models(embedder=None),
        )
        with pytest.raises(StoreUnavailable):
            await failing.of("erin").erase()
        fresh = await erin.get_or_create_conversation("a new beginning")
        await erin.add_message(fresh.id, "user", "hello again")
        await erin.store.put_document("notes", "new", b"stays")
        (receipt,) = await memory.resume_erasures()
        assert receipt.erased["conversations"] == 1
        assert await erin.store.get(old) is None
        assert len(await erin.messages(fresh.id)) == 1
        assert await erin.store.get_document("notes", "new") is not None


@pytest.mark.parametrize("files", ONE, indirect=True)
@pytest.mark.parametrize("whole", [True, False], ids=["owner", "conversation"])
async def test_what_was_imported_since_is_no_part_of_a_resumed_erasure(
    files: StoreFiles, whole: bool, tmp_path: Path
) -> None:
    async with opened(files, tmp_path) as memory:
        erin = memory.of("erin")
        archived = await live(erin)
        await erin.archive(archived)
        conversation_id = await live(erin, session="kitchen")
        await erin.export(tmp_path / "export")
        failing = Memory(
            Failing(memory.backend, "scrub"),
            retention=Retention(sweep_every=None, archives=memory.archives),
            images=ImageOptions(blobs=memory.blobs),
            models=Models(embedder=None),
        )
        with pytest.raises(StoreUnavailable):
            await failing.of("erin").erase(None if whole else conversation_id)
        assert await erin.store.get(conversation_id) is None
        await erin.import_(tmp_path / "export")
        held = await erin.store.tally()
        (receipt,) = await memory.resume_erasures()
        assert receipt.erased["conversations"] == 1
        assert await erin.store.tally() == held
        assert len(await erin.messages(conversation_id)) == 5
        assert [one.conversation_id for one in await erin.archives()] == [archived]


class Pausing:
    """A backend that runs something after a scrub, before the erasure goes on."""

    def __init__(self, inner: Any, meanwhile: Callable[[], Awaitable[object]]) -> None:
        self._inner = inner
        self._meanwhile = meanwhile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def scrub(self, owner: str | None = None) -> tuple[str, ...]:
        remains: tuple[str, ...] = await self._inner.scrub(owner)
        await self._meanwhile()
        return remains


@pytest.mark.parametrize("files", ONE, indirect=True)
@pytest.mark.parametrize("call", ["clear", "scrub"])
async def test_an_erasure_that_ends_leaves_a_later_one_in_the_journal(
    files: StoreFiles, call: str, tmp_path: Path
) -> None:
    """The later one begins after the first has scrubbed, and fails before the first is done."""
    async with opened(files, tmp_path) as memory:
        erin = memory.of("erin")

        def beside(backend: Any) -> Memory:
            return Memory(
                backend,
                retention=Retention(sweep_every=None, archives=memory.archives),
                images=ImageOptions(blobs=memory.blobs),
                models=Models(embedder=None),
            )

        async def fail_to_erase() -> None:
            await live(erin, session="since")
            with pytest.raises(StoreUnavailable, match="the next sweep continues it"):
                await beside(Failing(memory.backend, call)).of("erin").erase()

        await live(erin)
        await beside(Pausing(memory.backend, fail_to_erase)).of("erin").erase()
        assert len(await memory.backend.of(JOURNAL).documents(KIND)) == 1
        await memory.sweep()
        assert files.found() == {}
        assert await memory.backend.of(JOURNAL).documents(KIND) == []


@pytest.mark.slow
@pytest.mark.parametrize("files", ONE, indirect=True)
@pytest.mark.parametrize("step", ["noted", "removed", "unnamed"])
async def test_an_erasure_that_is_killed_beside_another_is_resumed(
    files: StoreFiles, step: str, tmp_path: Path
) -> None:
    async with opened(files, tmp_path) as memory:

        async def killed() -> None:
            await asyncio.to_thread(killed_after, step, files, tmp_path, "owner")

        await live(memory.of("erin"))
        pausing = Memory(
            Pausing(memory.backend, killed),
            retention=Retention(sweep_every=None, archives=memory.archives),
            images=ImageOptions(blobs=memory.blobs),
            models=Models(embedder=None),
        )
        await pausing.of("erin").erase()
        await memory.sweep()
        assert files.found() == {}
        assert [owner async for owner in memory.owners()] == []
        assert await memory.backend.of(JOURNAL).documents(KIND) == []


async def test_concurrent_erasures_and_sweeps_leave_nothing(files: StoreFiles, tmp_path: Path) -> None:
    async with opened(files, tmp_path) as memory:
        erin = memory.of("erin")
        conversation_id = await live(erin)
        scopes = [None, None, conversation_id, conversation_id]
        receipts, *resumed = await asyncio.gather(
            asyncio.gather(*(erin.erase(scope) for scope in scopes)),
            memory.resume_erasures(),
            memory.resume_erasures(),
        )
        assert [receipt.remains for receipt in receipts] == [()] * 4
        assert resumed == [[], []], "no running erasure was taken for an interrupted one"
        assert files.found() == {}
        assert await memory.backend.of(JOURNAL).documents(KIND) == []


@pytest.mark.parametrize("files", ["sqlite"], indirect=True)
async def test_a_reader_of_an_old_state_is_waited_for_or_reported(files: StoreFiles, tmp_path: Path) -> None:
    async with opened(files, tmp_path) as memory:
        assert isinstance(memory.backend, SQLiteBackend)
        memory.backend.erasure_wait = 0.2
        erin = memory.of("erin")
        await live(erin)
        reader = apsw.Connection(str(tmp_path / "store" / "memory.db"))
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM messages").get == 5
        receipt: Receipt = await erin.erase()
        assert len(receipt.remains) == 1
        assert "in use by a reader" in receipt.remains[0]
        assert files.found() != {}
        reader.execute("COMMIT")
        reader.close()
        await memory.sweep()
        assert files.found() == {}
