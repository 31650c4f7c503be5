"""Encryption around the resilient layer: turns are accepted while the store is away, sealed in the spool."""

from aforesaid.contracts import Scrubbable, Sealable, capability
from aforesaid.model.conversations import started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from tests.encrypted_stores import sealed_backend
from tests.unit.layers.conftest import LayerSetup


def said(number: int, **fields: object) -> Message:
    return Message(role="user", content=f"secret {number}", **fields)  # type: ignore[arg-type]


async def test_turns_during_an_outage_are_sealed_in_the_spool_and_readable_afterwards(
    setup: LayerSetup,
) -> None:
    backend = sealed_backend(setup.layer)
    store = backend.of("erin")
    assert capability(store.inner, Sealable) is not None
    record = await store.create(started(new_id(), now=setup.clock()))
    await store.append(record.id, [said(1, message_id="m1")])
    setup.failing.down()
    for number in (2, 3):
        await store.append(record.id, [said(number, message_id=f"m{number}"), said(10 + number)])
    assert store.degraded
    assert await contents(store, record.id) == ["secret 1", "secret 2", "secret 12", "secret 3", "secret 13"]
    spooled = b"".join(file.read_bytes() for file in setup.folder.rglob("*") if file.is_file())
    assert b"aforesaid/sealed" in spooled
    assert b"secret" not in spooled
    # Meanwhile another process, which reaches the store, wrote as well.
    other = sealed_backend(setup.memory).of("erin")
    await other.append(record.id, [said(9)])
    assert await setup.back()
    fresh = sealed_backend(setup.memory).of("erin")
    entries = await fresh.page(record.id, limit=99)
    assert sorted(str(entry.message.content) for entry in entries if not entry.unreadable) == sorted(
        ["secret 1", "secret 2", "secret 12", "secret 3", "secret 13", "secret 9"]
    )
    await store.append(record.id, [said(4), said(2, message_id="m2")])
    assert (await contents(fresh, record.id))[-1] == "secret 4"


async def contents(store: object, conversation_id: str) -> list[object]:
    entries = await store.page(conversation_id, limit=99)  # type: ignore[attr-defined]
    assert all(entry.unreadable is None for entry in entries)
    return [entry.message.content for entry in entries]


async def test_scrubbing_reaches_the_store_through_every_layer(tmp_path: object, setup: LayerSetup) -> None:
    from aforesaid.layers.cached import Cache, cached
    from aforesaid.stores.urls import backend_for

    inner = backend_for(f"sqlite:///{tmp_path}/memory.db")
    assert capability(inner, Scrubbable) is not None
    layered = cached(sealed_backend(inner), Cache())
    scrubbable = capability(layered, Scrubbable)
    assert scrubbable is not None
