"""Encryption around the resilient layer: the spool holds ciphertext, and what it holds opens in its place."""

import pytest

from aforesaid.contracts import ConversationStore
from aforesaid.errors import StoreUnavailable
from aforesaid.layers.encrypted import EncryptedBackend
from aforesaid.layers.resilient import ResilientBackend, resilient
from aforesaid.model.conversations import started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.telemetry import Telemetry
from tests.encrypted_stores import sealed_backend
from tests.unit.layers.conftest import LayerSetup


def user(content: object) -> Message:
    return Message(role="user", content=content)


def sealed_over(setup: LayerSetup) -> tuple[ResilientBackend, EncryptedBackend]:
    layer = resilient(
        setup.failing,
        folder=setup.folder,
        metrics=Telemetry(),
        clock=setup.seconds,
        sleep=setup.seconds.sleep,
        background=False,
        sealed=True,
    )
    return layer, sealed_backend(layer)


async def said(store: ConversationStore, conversation_id: str) -> list[object]:
    entries = await store.page(conversation_id, limit=999)
    assert all(entry.unreadable is None for entry in entries), [entry.unreadable for entry in entries]
    return [entry.message.content for entry in entries]


async def test_sealed_turns_are_accepted_and_open_in_their_places_later(setup: LayerSetup) -> None:
    layer, outer = sealed_over(setup)
    await outer.open()
    store = outer.of("erin")
    record = await store.create(started(new_id(), now=store.now()))
    await store.append(record.id, [user("before")])
    setup.failing.down()
    for number in range(5):
        await store.append(record.id, [user(f"secret {number}"), user("more")])
    fresh = await store.resume("kitchen", started(new_id(), now=store.now()))
    await store.append(fresh.id, [user("a new one")])
    content = b"".join(path.read_bytes() for path in setup.folder.glob("*.spool"))
    assert b"secret" not in content
    expected = ["before", *(text for n in range(5) for text in (f"secret {n}", "more"))]
    assert await said(store, record.id) == expected
    setup.failing.up()
    setup.seconds.now += 60
    assert await layer.recover()
    assert await said(store, record.id) == expected
    assert await said(store, fresh.id) == ["a new one"]
    await store.append(record.id, [user("after")])
    assert await said(store, record.id) == [*expected, "after"]
    await outer.close()


async def test_a_spooled_turn_goes_behind_the_turns_of_other_writers(setup: LayerSetup) -> None:
    layer, outer = sealed_over(setup)
    _, elsewhere = sealed_over(setup)
    await outer.open()
    store = outer.of("erin")
    record = await store.create(started(new_id(), now=store.now()))
    await store.append(record.id, [user("before")])
    setup.failing.down()
    await store.append(record.id, [user("during")])
    setup.failing.up()
    await elsewhere.open()
    await elsewhere.of("erin").append(record.id, [user("from elsewhere")])
    setup.seconds.now += 60
    assert await layer.recover()
    assert await said(store, record.id) == ["before", "from elsewhere", "during"]
    assert layer.set_aside.value == 0
    await store.append(record.id, [user("after")])
    assert await said(store, record.id) == ["before", "from elsewhere", "during", "after"]
    await outer.close()


async def test_where_a_log_ends_is_not_guessed(setup: LayerSetup) -> None:
    layer, outer = sealed_over(setup)
    await outer.open()
    store = outer.of("erin")
    record = await store.create(started(new_id(), now=store.now()))
    await store.append(record.id, [user("before")])
    later_layer, later = sealed_over(setup)
    await later.open()
    assert await later.of("erin").get(record.id) is not None
    setup.failing.down()
    with pytest.raises(StoreUnavailable):
        await later.of("erin").append(record.id, [user("during")])
    assert later_layer.spool_depth == layer.spool_depth == 0
    await later.close()
    await outer.close()
