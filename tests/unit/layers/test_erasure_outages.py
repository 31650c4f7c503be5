"""Erasing during an outage or a replay: refused without any change, or complete."""

import asyncio
import errno
from datetime import timedelta
from pathlib import Path

import pytest

from aforesaid import Models, Retention
from aforesaid.contracts import JOURNAL, CopyHolder
from aforesaid.errors import StoreError, StoreUnavailable
from aforesaid.layers.resilient import resilient
from aforesaid.layers.resilient.spool import files
from aforesaid.memory.opening import Memory
from aforesaid.model.conversations import Changes, started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.retention.erasure import KIND
from aforesaid.stores.memory import InMemoryBackend
from aforesaid.telemetry import Telemetry
from tests.unit.layers.conftest import LayerSetup


def found_in(folder: Path, text: bytes) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file() and text in path.read_bytes()]


async def test_an_erasure_that_is_refused_in_an_outage_changes_nothing(setup: LayerSetup) -> None:
    memory = Memory(
        setup.layer, retention=Retention(sweep_every=None), models=Models(preload=False, embedder=None)
    )
    erin = memory.of("erin")
    old = await erin.get_or_create_conversation("kitchen")
    await erin.add_message(old.id, "user", "said before")
    setup.failing.down()
    await erin.add_message(old.id, "user", "said in the outage")
    for conversation_id in (old.id, None):
        with pytest.raises(StoreUnavailable):
            await erin.erase(conversation_id)
    await erin.add_message(old.id, "user", "said after the refusal")
    assert await setup.back()
    await memory.sweep()
    assert [one.content for one in await erin.messages(old.id)] == [
        "said before",
        "said in the outage",
        "said after the refusal",
    ]
    assert await setup.memory.of(JOURNAL).documents(KIND) == []


async def test_an_erasure_during_replay_waits_for_it_and_erases_everything(setup: LayerSetup) -> None:
    memory = Memory(
        setup.layer, retention=Retention(sweep_every=None), models=Models(preload=False, embedder=None)
    )
    erin, bob = memory.of("erin"), memory.of("bob")
    old = await erin.get_or_create_conversation("kitchen")
    await erin.add_message(old.id, "user", "said before")
    theirs = await bob.get_or_create_conversation("kitchen")
    setup.failing.down()
    await erin.add_message(old.id, "user", "the secret")
    await bob.add_message(theirs.id, "user", "of another owner")
    setup.failing.up()
    setup.seconds.now += 60
    assert await setup.layer.connection.probe()
    receipt = await erin.erase()
    assert {"conversations": 1, "messages": 2, "sessions": 1}.items() <= receipt.erased.items()
    assert found_in(setup.folder, b"the secret") == []
    assert await setup.memory.of("erin").get(old.id) is None
    assert [one.content for one in await bob.messages(theirs.id)] == ["of another owner"]


@pytest.mark.parametrize("whole", [True, False], ids=["owner", "conversation"])
async def test_a_resumed_erasure_keeps_turns_that_were_acknowledged_since_it_began(
    setup: LayerSetup, whole: bool
) -> None:
    memory = Memory(
        setup.layer, retention=Retention(sweep_every=None), models=Models(preload=False, embedder=None)
    )
    erin = memory.of("erin")
    old = await erin.get_or_create_conversation("kitchen")
    await erin.add_message(old.id, "user", "the secret")
    await erin.update_metadata(old.id, subject="secret subject")
    setup.failing.plan = lambda name: "before" if name in ("delete", "clear") else None
    with pytest.raises(StoreUnavailable, match="has begun"):
        await erin.erase(None if whole else old.id)
    setup.failing.down()
    setup.clock.advance(timedelta(seconds=1))
    await erin.add_message(old.id, "user", "said since")
    assert await setup.back()
    await memory.sweep()
    assert [one.content for one in await erin.messages(old.id)] == ["said since"]
    assert (await erin.get_conversation(old.id)).subject is None
    assert await setup.memory.of(JOURNAL).documents(KIND) == []


async def test_the_layer_says_what_it_forgot(setup: LayerSetup) -> None:
    memory = Memory(
        setup.layer, retention=Retention(sweep_every=None), models=Models(preload=False, embedder=None)
    )
    erin = memory.of("erin")
    one = await erin.get_or_create_conversation("kitchen")
    other = await erin.get_or_create_conversation("phone")
    setup.failing.down()
    await erin.add_message(one.id, "user", "the secret")
    await erin.add_message(other.id, "user", "this stays")
    assert isinstance(setup.layer, CopyHolder)
    gone = await setup.layer.remove_copies("erin", one.id)
    assert gone == {"spool_entries": 1, "dead_letters": 0, "cached_copies": 1}
    assert found_in(setup.folder, b"the secret") == []
    assert not any((await setup.layer.remove_copies("nobody", None)).values())
    assert await setup.back()
    assert [message.content for message in await erin.messages(other.id)] == ["this stays"]


async def test_what_was_said_since_an_erasure_began_stays_in_the_spool(setup: LayerSetup) -> None:
    memory = Memory(
        setup.layer, retention=Retention(sweep_every=None), models=Models(preload=False, embedder=None)
    )
    erin = memory.of("erin")
    old = await erin.get_or_create_conversation("kitchen")
    setup.failing.down()
    await erin.add_message(old.id, "user", "the secret")
    began = erin.store.now()
    setup.clock.advance(timedelta(seconds=1))
    fresh = await erin.get_or_create_conversation("phone")
    await erin.add_message(fresh.id, "user", "said since")
    assert isinstance(setup.layer, CopyHolder)
    assert (await setup.layer.remove_copies("erin", None, until=began))["spool_entries"] == 1
    assert found_in(setup.folder, b"the secret") == []
    assert [one.content for one in await erin.messages(fresh.id)] == ["said since"]
    assert await setup.back()
    assert [one.content for one in await erin.messages(fresh.id)] == ["said since"]


async def test_an_erasure_reaches_the_spool_of_a_process_that_has_gone(setup: LayerSetup) -> None:
    memory = Memory(
        setup.layer, retention=Retention(sweep_every=None), models=Models(preload=False, embedder=None)
    )
    kept = await memory.of("bob").get_or_create_conversation("kitchen")
    setup.failing.down()
    other = setup.make()
    await other.open()
    theirs = Memory(other, retention=Retention(sweep_every=None), models=Models(preload=False, embedder=None))
    gone = await theirs.of("erin").get_or_create_conversation("kitchen")
    await theirs.of("erin").add_message(gone.id, "user", "the secret")
    await theirs.of("bob").add_message(kept.id, "user", "somebody else's")
    await other.close()
    await setup.memory.open()
    setup.failing.up()
    receipt = await memory.of("erin").erase()
    assert {"conversations": 1, "messages": 1}.items() <= receipt.erased.items()
    assert found_in(setup.folder, b"the secret") == []
    assert await setup.back()
    assert await setup.memory.of("erin").get(gone.id) is None
    assert [one.content for one in await memory.of("bob").messages(kept.id)] == ["somebody else's"]


async def test_an_erasure_is_not_done_while_a_spool_that_was_left_cannot_be_read(
    setup: LayerSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = Memory(
        setup.layer, retention=Retention(sweep_every=None), models=Models(preload=False, embedder=None)
    )
    setup.failing.down()
    other = setup.make()
    await other.open()
    theirs = Memory(other, retention=Retention(sweep_every=None), models=Models(preload=False, embedder=None))
    await theirs.of("erin").get_or_create_conversation("kitchen")
    await other.close()
    await setup.memory.open()
    setup.failing.up()

    def fail(*_: int) -> bytes:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(files, "_read", fail)
        with pytest.raises(StoreUnavailable, match="changed nothing"):
            await memory.of("erin").erase()
        assert await setup.back()
    assert (await memory.of("erin").erase()).erased["conversations"] == 1


async def test_scrubbing_takes_what_is_stored_by_now_out_of_the_spool(setup: LayerSetup) -> None:
    erin, bob = setup.layer.of("erin"), setup.layer.of("bob")
    hers = await erin.create(started(new_id(), now=erin.now()))
    his = await bob.create(started(new_id(), now=bob.now()))
    setup.failing.down()
    await erin.append(hers.id, [Message(role="user", content="the secret")])
    await bob.update(his.id, Changes(subject="still waits"))
    setup.failing.plan = lambda name: "before" if name == "update" else None
    setup.seconds.now += 60
    with pytest.raises(StoreError):
        await setup.layer.recover()
    assert len(await setup.memory.of("erin").tail(hers.id, limit=5)) == 1
    assert found_in(setup.folder, b"the secret")
    assert await setup.layer.scrub("erin") == ()
    assert found_in(setup.folder, b"the secret") == []
    assert await setup.back()
    stored = await setup.memory.of("bob").get(his.id)
    assert stored is not None
    assert stored.subject == "still waits"


async def test_a_receipt_names_the_parts_of_a_spool_that_cannot_be_read(setup: LayerSetup) -> None:
    memory = Memory(
        setup.layer, retention=Retention(sweep_every=None), models=Models(preload=False, embedder=None)
    )
    assert (await memory.of("erin").erase()).remains == ()
    damaged = setup.folder / "left-00000001.damaged"
    await asyncio.to_thread(setup.folder.mkdir, parents=True)
    await asyncio.to_thread(damaged.write_bytes, b"the secret")
    (remains,) = (await memory.of("erin").erase()).remains
    assert str(damaged) in remains


async def test_what_remains_in_the_store_is_named_through_the_layer(tmp_path: Path) -> None:
    class Scrubbed(InMemoryBackend):
        async def scrub(self, owner: str) -> tuple[str, ...]:
            return (f"a snapshot with {owner}",)

    layer = resilient(Scrubbed(), folder=tmp_path, background=False, metrics=Telemetry())
    await layer.open()
    assert await layer.scrub("erin") == ("a snapshot with erin",)
    await layer.close()
