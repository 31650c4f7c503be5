"""A failure injected under any layer reaches the caller as one of our errors, with its cause."""

import errno
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import apsw
import pytest

import aforesaid
from aforesaid.audit import AuditTrail
from aforesaid.contracts import Backend, ConversationStore, Document, Entry
from aforesaid.encryption import MasterKeys, WrappedKey
from aforesaid.errors import AforesaidError, KeyUnavailable, StoreError, StoreUnavailable
from aforesaid.layers.audited import audited
from aforesaid.layers.cached import Cache, cached
from aforesaid.layers.encrypted import Encryption, encrypted
from aforesaid.layers.resilient import Resilience, resilient
from aforesaid.layers.resilient.spool import files
from aforesaid.model.conversations import Changes, Conversation, Query, started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.stores.json_file import JsonFileBackend
from aforesaid.stores.memory import InMemoryBackend
from aforesaid.stores.sqlite import SQLiteBackend
from aforesaid.telemetry import Telemetry
from tests.embedders import WordEncoder
from tests.encrypted_stores import MASTER
from tests.faults import Failing
from tests.unit.layers.conftest import LayerSetup

Call = Callable[[ConversationStore, Conversation], Awaitable[Any]]
TURN = [Message(role="user", content="hello", message_id="m1")]


async def _authoritative(store: ConversationStore, record: Conversation) -> None:
    await (await store.authoritative()).get(record.id)


CALLS: dict[str, Call] = {
    "create": lambda s, _: s.create(started(new_id(), now=s.now())),
    "get": lambda s, r: s.get(r.id),
    "update": lambda s, r: s.update(r.id, Changes(subject="x")),
    "find": lambda s, _: s.find(Query()),
    "delete": lambda s, r: s.delete(r.id),
    "resume": lambda s, _: s.resume("kitchen", started(new_id(), now=s.now())),
    "session": lambda s, _: s.session("kitchen"),
    "bind": lambda s, r: s.bind("kitchen", r.id),
    "unbind": lambda s, _: s.unbind("kitchen"),
    "sessions": lambda s, r: s.sessions(r.id),
    "append": lambda s, r: s.append(r.id, TURN),
    "rewrite": lambda s, r: s.rewrite(r.id, TURN),
    "tail": lambda s, r: s.tail(r.id, limit=5),
    "recent": lambda s, r: s.recent(r.id, limit=5),
    "page": lambda s, r: s.page(r.id, limit=5),
    "entry": lambda s, r: s.entry(r.id, "m1"),
    "replace": lambda s, r: s.replace(r.id, TURN[0]),
    "put_document": lambda s, _: s.put_document("notes", "birthday", b"May 4"),
    "get_document": lambda s, _: s.get_document("notes", "birthday"),
    "documents": lambda s, _: s.documents("notes"),
    "document_kinds": lambda s, _: s.document_kinds(),
    "delete_document": lambda s, _: s.delete_document("notes", "birthday"),
    "restore_documents": lambda s, _: s.restore_documents([NOTE(s)]),
    "load": lambda s, r: s.load(r.id),
    "save": lambda s, r: s.save(r.id, [{"role": "user", "content": "hello"}]),
    "restore": lambda s, r: s.restore(r, []),
    "purge_expired": lambda s, _: s.purge_expired(),
    "expired": lambda s, _: s.expired(by=s.now()),
    "clear": lambda s, _: s.clear(),
    "tally": lambda s, _: s.tally(),
    "authoritative": _authoritative,
}  # fmt: skip


def NOTE(store: ConversationStore) -> Document:  # noqa: N802
    return Document(kind="notes", key="other", data=b"x", version=1, updated_at=store.now())


def resilient_around(inner: Backend, folder: Path, **settings: Any) -> Backend:
    return resilient(
        inner,
        folder=folder / "spool",
        resilience=Resilience(attempts=1, **settings),
        metrics=Telemetry(),
        background=False,
    )


LAYERS: dict[str, Callable[[Backend, Path], Backend]] = {
    "store": lambda inner, _: inner,
    "cached": lambda inner, _: cached(inner, Cache(watch=False)),
    "audited": lambda inner, folder: audited(inner, AuditTrail(folder / "audit.jsonl", sync="never")),
    "encrypted": lambda inner, _: encrypted(inner, Encryption(master=MasterKeys(MASTER), records=True)),
    "resilient": lambda inner, folder: resilient_around(inner, folder, policy="fail_closed"),
}
LAYERS["all"] = lambda inner, folder: LAYERS["audited"](
    LAYERS["cached"](LAYERS["encrypted"](LAYERS["resilient"](inner, folder), folder), folder), folder
)


def causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def disk_error(*_: Any, **__: Any) -> Any:
    raise OSError(errno.EIO, "Input/output error")


def comes_from(error: BaseException, driver: type[BaseException]) -> bool:
    return any(isinstance(cause, driver) for cause in causes(error))


def broken(name: str) -> Any:
    """As a store does with an error of its driver."""
    try:
        disk_error()
    except OSError as error:
        raise StoreUnavailable(f"{name} is not possible now") from error


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("layer", LAYERS)
async def test_every_call_through_every_layer_fails_in_our_words_with_the_cause(
    tmp_path: Path, layer: str, name: str
) -> None:
    failing = Failing(InMemoryBackend())
    backend = LAYERS[layer](failing, tmp_path)
    await backend.open()
    store = backend.of("erin")
    record = await store.create(started(new_id(), now=store.now()))
    await store.append(record.id, TURN)
    await store.put_document("notes", "birthday", b"May 4")
    failing.plan = broken
    with pytest.raises(StoreUnavailable, match="is not possible now") as caught:
        await CALLS[name](store, record)
    assert comes_from(caught.value, OSError)
    failing.up()
    await backend.close()


def test_every_method_of_a_store_is_among_the_calls() -> None:
    methods = {name for name, value in vars(ConversationStore).items() if iscoroutinefunction(value)}
    assert methods == set(CALLS)


# The drivers themselves


async def test_a_disk_error_under_the_json_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = JsonFileBackend(tmp_path / "memory.json")
    await backend.open()
    store = backend.of("erin")
    monkeypatch.setattr(os, "fsync", disk_error)
    with pytest.raises(StoreError) as caught:
        await store.create(started(new_id(), now=store.now()))
    assert comes_from(caught.value, OSError)
    monkeypatch.undo()
    await backend.close()


class _FailingVfs(apsw.VFS):
    """Reads and writes until it is switched to a broken disk."""

    broken = False

    def __init__(self) -> None:
        self.base = apsw.vfs_names()[0]
        super().__init__("failing", base=self.base)

    def xOpen(self, name: Any, flags: Any) -> apsw.VFSFile:  # noqa: N802
        return _FailingFile(self, name, flags)


class _FailingFile(apsw.VFSFile):
    def __init__(self, vfs: _FailingVfs, name: Any, flags: Any) -> None:
        self._vfs = vfs
        super().__init__(vfs.base, name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        if self._vfs.broken:
            raise apsw.IOError("disk I/O error")
        super().xWrite(data, offset)


async def test_a_disk_error_under_sqlite(tmp_path: Path) -> None:
    vfs = _FailingVfs()
    apsw.set_default_vfs("failing")
    try:
        backend = SQLiteBackend(str(tmp_path / "memory.db"))
        await backend.open()
        store = backend.of("erin")
        vfs.broken = True
        with pytest.raises(StoreError) as caught:
            await store.create(started(new_id(), now=store.now()))
        assert comes_from(caught.value, apsw.Error)
        vfs.broken = False
        await backend.close()
    finally:
        apsw.set_default_vfs(vfs.base)
        vfs.unregister()


async def test_a_disk_error_under_the_spool(setup: LayerSetup, monkeypatch: pytest.MonkeyPatch) -> None:
    store = setup.layer.of("erin")
    record = await store.create(started(new_id(), now=store.now()))
    setup.failing.down()
    monkeypatch.setattr(files, "_sync", disk_error)
    with pytest.raises(StoreUnavailable) as caught:
        await store.append(record.id, TURN)
    assert comes_from(caught.value, OSError)
    monkeypatch.undo()
    await store.append(record.id, TURN)
    assert await setup.back()
    assert len(await setup.memory.of("erin").tail(record.id, limit=5)) == 1


async def test_a_disk_error_under_the_dead_letters_keeps_the_turn_in_the_spool(
    setup: LayerSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = setup.layer.of("erin")
    record = await store.create(started(new_id(), now=store.now()))
    setup.failing.down()
    await store.append(record.id, TURN)
    await setup.memory.of("erin").delete(record.id)
    monkeypatch.setattr(os, "fsync", disk_error)
    with pytest.raises(StoreError) as caught:
        await setup.back()
    assert comes_from(caught.value, OSError)
    assert setup.layer.spool_depth == 1
    monkeypatch.undo()
    assert await setup.back()


async def test_a_disk_error_under_the_audit_trail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = LAYERS["audited"](InMemoryBackend(), tmp_path)
    await backend.open()
    store = backend.of("erin")
    monkeypatch.setattr(os, "write", disk_error)
    with pytest.raises(StoreError) as caught:
        await store.create(started(new_id(), now=store.now()))
    assert comes_from(caught.value, OSError)
    monkeypatch.undo()
    await backend.close()


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[aforesaid.Memory]:
    async with aforesaid.open(
        "memory://",
        retention=aforesaid.Retention(sweep_every=None, archives=tmp_path / "archives"),
        models=aforesaid.Models(embedder=WordEncoder()),
    ) as memory:
        yield memory


async def test_a_disk_error_under_the_archives(
    memory: aforesaid.Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    erin = memory.of("erin")
    conversation = await erin.get_or_create_conversation("kitchen")
    await erin.add_message(conversation.id, "user", "hello")
    monkeypatch.setattr(os, "fsync", disk_error)
    with pytest.raises(StoreError) as caught:
        await erin.archive(conversation.id)
    assert comes_from(caught.value, OSError)
    monkeypatch.undo()
    entries: list[Entry] = await memory.backend.of("erin").tail(conversation.id, limit=5)
    assert len(entries) == 1, "it has not left the store"


async def test_an_encoder_that_fails_leaves_a_search_by_words(
    memory: aforesaid.Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    erin = memory.of("erin")
    conversation = await erin.get_or_create_conversation("kitchen")
    await erin.add_message(conversation.id, "user", "The key is under the flowerpot.")
    monkeypatch.setattr(WordEncoder, "embed", disk_error)
    found = await erin.search("flowerpot")
    assert "flowerpot" in found.passages[0].text
    assert "the encoder failed" in (found.note or "")


class _UnreachableKeys(MasterKeys):
    """A key service that cannot be reached."""

    async def wrap(self, key: bytes, *, bound_to: bytes) -> WrappedKey:
        raise ConnectionRefusedError("the key service")


async def test_a_key_service_that_cannot_be_reached() -> None:
    backend = encrypted(InMemoryBackend(), Encryption(master=_UnreachableKeys(MASTER)))
    await backend.open()
    store = backend.of("erin")
    with pytest.raises(KeyUnavailable) as caught:
        await store.create(started(new_id(), now=store.now()))
    assert comes_from(caught.value, ConnectionRefusedError)
    assert isinstance(caught.value, AforesaidError)
    await backend.close()
