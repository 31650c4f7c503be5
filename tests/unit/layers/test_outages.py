"""LayerSetup: what is accepted, what is answered, and what is in the store when it is back."""

import asyncio
import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from itertools import chain, repeat
from typing import Any

import pytest

from aforesaid._internal.freshness import noting_freshness
from aforesaid.contracts import Appended, ConversationStore
from aforesaid.dialects.tombstones import tombstone_of
from aforesaid.errors import (
    ConversationNotFound,
    MessageConflict,
    SpoolFull,
    StoreClosed,
    StoreDamaged,
    StoreUnavailable,
)
from aforesaid.layers.resilient import dead_letters, resilient
from aforesaid.layers.resilient.replay import adopt, forget
from aforesaid.layers.resilient.spool import files
from aforesaid.model.conversations import Changes, Conversation, Page, Query, started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.telemetry import Telemetry
from tests.faults import Fault
from tests.unit.layers.conftest import LayerSetup


def user(content: object, **fields: object) -> Message:
    return Message(role="user", content=content, **fields)  # type: ignore[arg-type]


async def said(store: ConversationStore, conversation_id: str) -> list[object]:
    return [entry.message.content for entry in await store.page(conversation_id, limit=9999)]


async def new(store: ConversationStore) -> Conversation:
    return await store.create(started(new_id(), now=store.now()))


async def test_a_failure_that_passes_is_not_seen(setup: LayerSetup) -> None:
    store = setup.layer.of("erin")
    record = await new(store)
    setup.failing.faults("before", "before", None)
    with noting_freshness() as seen:
        await store.append(record.id, [user("hello")])
    assert not seen.degraded
    assert setup.layer.breaker.closed
    first, second = setup.seconds.slept
    assert 0 < first <= 0.1 < second <= 0.2 or first < second
    assert setup.layer.retries.value == 2


@pytest.mark.requirement("004-033")
async def test_a_write_that_keeps_failing_is_tried_three_times_with_growing_pauses(setup: LayerSetup) -> None:
    store = setup.layer.of("erin")
    record = await new(store)
    setup.failing.calls.clear()
    setup.failing.down()
    with noting_freshness() as seen:
        await store.append(record.id, [user("hello")])
    assert seen.degraded
    assert setup.failing.calls == ["append"] * 3
    first, second = setup.seconds.slept
    assert 0 < first <= second <= 4 * first


async def test_a_lost_answer_does_not_store_a_turn_twice(setup: LayerSetup) -> None:
    store = setup.layer.of("erin")
    record = await new(store)
    setup.failing.faults("after", None)
    done = await store.append(record.id, [user("hello"), user("again")])
    setup.failing.up()
    assert [entry.message.content for entry in done.new] == ["hello", "again"]
    assert all(entry.message.message_id is None for entry in done.new)
    assert await said(store, record.id) == ["hello", "again"]


async def test_a_conversation_whose_making_was_not_confirmed_is_there_once(setup: LayerSetup) -> None:
    store = setup.layer.of("erin")
    setup.failing.faults("after", None, None)
    record = await new(store)
    setup.failing.up()
    assert await store.get(record.id) == record


@pytest.mark.parametrize("error", [StoreDamaged, ConversationNotFound])
async def test_a_permanent_error_is_raised_at_once(setup: LayerSetup, error: type[Exception]) -> None:
    store = setup.layer.of("erin")
    record = await new(store)
    setup.failing.calls.clear()

    def plan(name: str) -> None:
        raise error("x")

    setup.failing.plan = plan
    with pytest.raises(error):
        await store.append(record.id, [user("hello")])
    assert setup.failing.calls == ["append"]
    assert setup.layer.breaker.closed


async def test_turns_are_accepted_and_read_while_the_store_is_away_and_are_in_it_later(
    setup: LayerSetup,
) -> None:
    store = setup.layer.of("erin")
    record = await new(store)
    await store.append(record.id, [user("before")])
    setup.failing.down()
    with noting_freshness() as seen:
        accepted = await store.append(record.id, [user("during", message_id="m1"), user("outage")])
    assert seen.degraded
    assert [entry.message.content for entry in accepted.new] == ["during", "outage"]
    assert accepted.conversation.message_count == 3
    with noting_freshness() as seen:
        assert await said(store, record.id) == ["before", "during", "outage"]
        assert [entry.message.content for entry in await store.tail(record.id, limit=2)] == [
            "during",
            "outage",
        ]
    assert seen.degraded
    assert store.degraded
    assert setup.layer.spool_depth == 1
    assert await said(setup.memory.of("erin"), record.id) == ["before"]

    assert await setup.back()
    with noting_freshness() as seen:
        assert await said(store, record.id) == ["before", "during", "outage"]
    assert not seen.degraded
    assert not store.degraded
    assert await said(setup.memory.of("erin"), record.id) == ["before", "during", "outage"]
    assert not list(setup.folder.glob("*.spool"))


async def test_a_turn_with_half_a_surrogate_pair_blocks_no_other_turn(setup: LayerSetup) -> None:
    erin, bob = setup.layer.of("erin"), setup.layer.of("bob")
    hers, his = await new(erin), await new(bob)
    setup.failing.down()
    await erin.append(hers.id, [user("half of one: \ud83d")])
    await erin.append(hers.id, [user("then another")])
    await bob.append(his.id, [user("of somebody else")])
    assert (await forget(setup.layer, "bob"))["spool_entries"] == 1
    assert await setup.back()
    assert await said(setup.memory.of("erin"), hers.id) == ["half of one: \ud83d", "then another"]


async def test_what_a_caller_changes_afterwards_is_not_what_was_known(setup: LayerSetup) -> None:
    store = setup.layer.of("erin")
    record = await new(store)
    content = {"list": [1]}
    done = await store.append(record.id, [user(content)])
    content["list"].append(2)
    done.new[0].message.content["list"] = "changed"
    setup.failing.down()
    (entry,) = await store.tail(record.id, limit=1)
    entry.message.content["list"].append(3)
    (again,) = await store.tail(record.id, limit=1)
    assert again.message.content == {"list": [1]}


async def test_what_the_store_has_said_is_gone_is_not_known_any_more(setup: LayerSetup) -> None:
    store, elsewhere = setup.layer.of("erin"), setup.memory.of("erin")
    deleted, missed, cleared = await new(store), await new(store), await new(store)
    for record in (deleted, missed, cleared):
        await store.append(record.id, [user("my PIN"), user("is 1234")])
        await store.page(record.id, limit=5)
    await store.bind("kitchen", cleared.id)
    await store.put_document("notes", "door", b"1234")
    await elsewhere.delete(deleted.id)
    await elsewhere.delete(missed.id)
    await elsewhere.rewrite(cleared.id, [])
    await elsewhere.unbind("kitchen")
    await elsewhere.delete_document("notes", "door")
    assert await store.get(deleted.id) is None
    with pytest.raises(ConversationNotFound):
        await store.append(missed.id, [user("more")])
    assert await store.tail(cleared.id, limit=5) == []
    assert await store.session("kitchen") is None
    assert await store.get_document("notes", "door") is None
    setup.failing.down()
    for ask in (
        store.get(deleted.id),
        store.get(missed.id),
        store.session("kitchen"),
        store.get_document("notes", "door"),
    ):
        with pytest.raises(StoreUnavailable):
            await ask
    assert await store.tail(cleared.id, limit=5) == []
    assert await store.page(cleared.id, limit=5) == []


async def test_an_answer_that_a_deletion_has_overtaken_is_not_remembered(setup: LayerSetup) -> None:
    store = setup.layer.of("erin")
    record, other = await new(store), await new(store)
    await store.append(record.id, [user("my PIN is 1234")])
    await store.put_document("notes", "door", b"1234")
    answered, deleted = asyncio.Barrier(5), asyncio.Event()
    go = setup.failing.go

    async def slowly(name: str, call: Any) -> Any:
        answer = await go(name, call)
        await answered.wait()
        await deleted.wait()
        return answer

    setup.failing.go = slowly  # type: ignore[method-assign]
    asking = [
        asyncio.create_task(store.get(record.id)),
        asyncio.create_task(store.tail(record.id, limit=5)),
        asyncio.create_task(store.get_document("notes", "door")),
        asyncio.create_task(store.append(other.id, [user("this stays")])),
    ]
    await answered.wait()
    setup.failing.go = go  # type: ignore[method-assign]
    await store.delete(record.id)
    await store.delete_document("notes", "door")
    deleted.set()
    await asyncio.gather(*asking)
    setup.failing.down()
    for ask in (store.get(record.id), store.tail(record.id, limit=5), store.get_document("notes", "door")):
        with pytest.raises(StoreUnavailable):
            await ask
    assert await said(store, other.id) == ["this stays"]


async def test_turns_keep_the_moment_at_which_they_were_accepted(setup: LayerSetup) -> None:
    store = setup.layer.of("erin")
    record = await new(store)
    setup.failing.down()
    moment = setup.clock()
    await store.append(record.id, [user("during")])
    setup.clock.advance(timedelta(hours=2))
    await setup.back()
    (entry,) = await store.tail(record.id, limit=5)
    assert entry.message.timestamp == moment
    assert entry.message.message_id is None


async def test_the_breaker_keeps_callers_from_a_store_that_is_away(setup: LayerSetup) -> None:
    store = setup.layer.of("erin")
    record = await new(store)
    setup.failing.down()
    await store.append(record.id, [user(0)])
    setup.failing.calls.clear()
    for number in range(1, 5):
        await store.append(record.id, [user(number)])
    await store.tail(record.id, limit=3)
    assert setup.failing.calls == []
    setup.seconds.now += 60
    assert not await setup.layer.recover()
    assert setup.failing.calls == ["get"], "one probe"
    assert await setup.back()
    assert await said(store, record.id) == [0, 1, 2, 3, 4]


async def test_a_store_that_hangs_is_given_up_on(setup: LayerSetup) -> None:
    layer = setup.make(read_deadline=0.2, write_deadline=0.2)
    await layer.open()
    store = layer.of("erin")
    record = await new(store)
    await store.append(record.id, [user("before")])
    setup.failing.down("hang")
    await store.append(record.id, [user("during")])
    assert await said(store, record.id) == ["before", "during"]
    assert not layer.breaker.closed
    setup.failing.up()
    setup.seconds.now += 60
    assert await layer.recover()
    assert await said(setup.memory.of("erin"), record.id) == ["before", "during"]
    await layer.close()


async def test_a_driver_that_takes_its_time_to_be_cancelled_does_not_hold_anybody_up(
    setup: LayerSetup,
) -> None:
    layer = setup.make(read_deadline=0.2, write_deadline=0.2)
    await layer.open()
    store = layer.of("erin")
    record = await new(store)
    ended = asyncio.Event()
    real = setup.failing.go

    async def stubborn(name: str, call: Any) -> Any:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await ended.wait()  # as if the server were asked to cancel, and did not answer
            raise

    setup.failing.go = stubborn  # type: ignore[method-assign]
    async with asyncio.timeout(120):
        await store.append(record.id, [user("during")])
        assert await said(store, record.id) == ["during"]
    setup.failing.go = real  # type: ignore[method-assign]
    ended.set()
    setup.seconds.now += 60
    assert await layer.recover()
    assert await said(setup.memory.of("erin"), record.id) == ["during"]
    await layer.close()


async def test_a_new_session_is_accepted_during_an_outage(setup: LayerSetup) -> None:
    setup.failing.down()
    store = setup.layer.of("erin")
    fresh = [started(new_id(), now=store.now(), channel="text") for _ in range(3)]
    records = await asyncio.gather(*(store.resume("kitchen", one) for one in fresh))
    assert len({record.id for record in records}) == 1
    record = records[0]
    await store.append(record.id, [user("hello")])
    await store.update(record.id, Changes(subject="Dinner"))
    again = await store.resume("kitchen", started(new_id(), now=store.now()))
    assert (again.id, again.subject, again.message_count) == (record.id, "Dinner", 1)
    await store.bind("phone", record.id)
    await store.unbind("kitchen")
    assert await setup.back()
    inner = setup.memory.of("erin")
    assert await inner.session("kitchen") is None
    bound = await inner.session("phone")
    assert bound is not None
    assert (bound.id, bound.subject, bound.message_count, bound.channel) == (record.id, "Dinner", 1, "text")


async def test_a_session_that_was_acknowledged_in_an_outage_stays_where_it_is(setup: LayerSetup) -> None:
    inner = setup.memory.of("erin")
    older = await inner.resume("kitchen", started(new_id(), now=inner.now()))
    setup.failing.down()
    store = setup.layer.of("erin")
    record = await store.resume("kitchen", started(new_id(), now=store.now()))
    assert record.id != older.id
    assert await setup.back()
    bound = await inner.session("kitchen")
    assert bound is not None
    assert bound.id == record.id
    assert await inner.get(older.id) == older


async def test_a_session_of_which_the_store_had_made_one_half_is_made_whole(setup: LayerSetup) -> None:
    """The answer was lost of a store that creates in one step and binds in the next."""
    inner = setup.memory.of("erin")
    outage: Iterator[Fault] = chain(["after"], repeat("before"))
    setup.failing.plan = lambda name: next(outage)
    store = setup.layer.of("erin")
    record = await store.resume("kitchen", started(new_id(), now=store.now()))
    await inner.unbind("kitchen")
    assert await setup.back()
    assert await inner.session("kitchen") == record
    assert (await setup.layer.health()).dead_letters == 0


async def test_what_nothing_is_known_of_is_not_made_up(setup: LayerSetup) -> None:
    inner = setup.memory.of("erin")
    record = await new(inner)
    setup.failing.down()
    store = setup.layer.of("erin")
    for read in (store.get(record.id), store.tail(record.id, limit=1), store.session("kitchen")):
        with pytest.raises(StoreUnavailable):
            await read
    with pytest.raises(StoreUnavailable):
        await store.update(record.id, Changes(subject="x"))
    assert await store.find(Query()) == Page(conversations=(), degraded=True)
    # A turn is accepted all the same: whether the conversation is there, the store will say.
    await store.append(record.id, [user("during")])
    for read in (store.get(record.id), store.tail(record.id, limit=9), store.page(record.id, limit=9)):
        with pytest.raises(StoreUnavailable):
            await read
    assert [entry.message.content for entry in await store.recent(record.id, limit=9)] == ["during"]
    assert await setup.back()
    assert await said(inner, record.id) == ["during"]


async def test_what_cannot_be_promised_is_refused_and_changes_nothing(setup: LayerSetup) -> None:
    store = setup.layer.of("erin")
    record = await new(store)
    await store.append(record.id, [user("before")])
    setup.failing.down()
    await store.append(record.id, [user("during")])
    for attempt in (
        store.delete(record.id),
        store.rewrite(record.id, []),
        store.append(record.id, [user("x")], expected_revision=2),
        store.update(record.id, Changes(subject="x"), expected_revision=2),
        store.replace(record.id, user("x", message_id="m1")),
        store.restore(record, []),
        store.restore_documents([]),
        store.delete_document("notes", "birthday"),
        store.documents("notes"),
        store.document_kinds(),
        store.expired(by=store.now()),
        store.purge_expired(),
        store.clear(),
        setup.layer.purge_expired(),
    ):
        with pytest.raises(
            StoreUnavailable, match="store is unavailable: append failed before it began"
        ) as refused:
            await attempt
        assert "append failed" in str(refused.value.__cause__)
    assert await said(store, record.id) == ["before", "during"]
    assert await setup.back()
    assert await said(store, record.id) == ["before", "during"]


async def test_ids_are_checked_against_what_is_known(setup: LayerSetup) -> None:
    store = setup.layer.of("erin")
    record = await new(store)
    await store.append(record.id, [user("hello", message_id="m1")])
    setup.failing.down()
    again = await store.append(record.id, [user("hello", message_id="m1")])
    assert again.new == ()
    with pytest.raises(MessageConflict):
        await store.append(record.id, [user("other", message_id="m1")])
    await store.append(record.id, [user("new", message_id="m2")])
    await store.append(record.id, [user("new", message_id="m2")])
    assert await setup.back()
    assert await said(store, record.id) == ["hello", "new"]


async def test_fail_closed_accepts_and_answers_nothing(setup: LayerSetup) -> None:
    layer = setup.make(policy="fail_closed")
    await layer.open()
    store = layer.of("erin")
    record = await new(store)
    setup.failing.down()
    for attempt in (store.append(record.id, [user("x")]), store.get(record.id), store.find(Query())):
        with pytest.raises(StoreUnavailable):
            await attempt
    assert not setup.folder.exists()
    setup.failing.up()
    setup.seconds.now += 60
    assert await layer.recover()
    assert await store.get(record.id) == record
    await layer.close()


async def test_a_store_that_is_away_from_the_start(setup: LayerSetup) -> None:
    setup.failing.down()
    layer = setup.make()
    await layer.open()
    store = layer.of("ann")
    record = await store.resume("kitchen", started(new_id(), now=store.now()))
    await store.append(record.id, [user("hello")])
    setup.failing.up()
    setup.seconds.now += 60
    assert await layer.recover()
    assert await said(setup.memory.of("ann"), record.id) == ["hello"]
    await layer.close()


async def test_the_next_process_adopts_what_is_left(setup: LayerSetup) -> None:
    store = setup.layer.of("erin")
    record = await new(store)
    setup.failing.down()
    for number in range(5):
        setup.clock.advance(timedelta(seconds=1))
        await store.append(record.id, [user(number, message_id=f"m{number}")])
    await setup.layer.close()
    assert len(list(setup.folder.glob("*.spool"))) == 1

    layer = setup.make()
    await layer.open()
    adopted = layer.of("erin")
    assert layer.spool_depth == 5
    with pytest.raises(StoreUnavailable):
        await said(adopted, record.id)  # what was said before is not known here
    assert [entry.message.content for entry in await adopted.recent(record.id, limit=9)] == [0, 1, 2, 3, 4]
    await adopted.append(record.id, [user(5)])
    setup.failing.up()
    setup.seconds.now += 60
    assert await layer.recover()
    assert await said(setup.memory.of("erin"), record.id) == [0, 1, 2, 3, 4, 5]
    assert not list(setup.folder.glob("*.spool"))
    await layer.close()


@pytest.mark.parametrize("owner", ["carol", None])
async def test_what_cannot_be_read_is_set_aside_and_the_rest_is_adopted(
    setup: LayerSetup, owner: str | None
) -> None:
    store = setup.layer.of("erin")
    record = await new(store)
    setup.failing.down()
    await store.append(record.id, [user("hello")])
    await setup.layer.close()
    newer = {"owner": owner, "at": "2026-01-01T00:00:00Z", "action": {"type": "of a newer release"}}
    left = files.SpoolFiles(setup.folder, limit=10**6)
    await asyncio.to_thread(left.append, [json.dumps(newer).encode()])
    await asyncio.to_thread(left.close)
    setup.layer = setup.make()
    await setup.layer.open()
    assert await setup.back()
    assert await said(setup.memory.of("erin"), record.id) == ["hello"]
    assert not list(setup.folder.glob("*.spool"))
    assert (await setup.layer.health()).dead_letters == 1
    (line,) = (setup.folder / dead_letters.NAME).read_text().splitlines()
    assert json.loads(line)["owner"] == owner
    assert "of a newer release" in line
    assert (await forget(setup.layer, "carol"))["dead_letters"] == (owner is not None)


async def test_an_adoption_whose_caller_was_cancelled_loses_nothing(setup: LayerSetup) -> None:
    record = await new(setup.layer.of("erin"))
    setup.failing.down()
    other = setup.make()
    await other.open()
    await other.of("erin").append(record.id, [user("hello")])
    await other.close()
    await setup.memory.open()
    adopting = asyncio.create_task(adopt(setup.layer))
    await asyncio.sleep(0)
    adopting.cancel()
    assert await adopt(setup.layer) == 0
    assert setup.layer.spool_depth == 1
    assert await setup.back()
    assert await said(setup.memory.of("erin"), record.id) == ["hello"]


async def test_a_spool_that_is_in_use_is_left_alone(setup: LayerSetup) -> None:
    store = setup.layer.of("erin")
    record = await new(store)
    setup.failing.down()
    await store.append(record.id, [user("mine")])
    other = setup.make()
    await other.open()
    assert other.spool_depth == 0
    await other.close()
    await setup.memory.open()  # the store is one for both here
    assert await setup.back()
    assert await said(store, record.id) == ["mine"]


async def test_new_turns_flow_behind_the_backlog_and_overtake_nothing(setup: LayerSetup) -> None:
    store = setup.layer.of("erin")
    records = [await new(store) for _ in range(3)]
    setup.failing.down()
    for number in range(200):
        await store.append(records[number % 3].id, [user(number), user(-number)])
    setup.failing.up()
    setup.seconds.now += 60
    recovering = asyncio.create_task(setup.layer.recover())
    number = 200
    while not recovering.done():
        await store.append(records[number % 3].id, [user(number), user(-number)])
        number += 1
        await asyncio.sleep(0)
    assert await recovering
    assert number > 202, "new turns were accepted while the backlog was taken in"
    for start, record in enumerate(records):
        expected = [sign * n for n in range(start, number, 3) for sign in (1, -1)]
        assert await said(setup.memory.of("erin"), record.id) == expected


async def test_a_store_that_goes_away_again_during_replay(setup: LayerSetup) -> None:
    store = setup.layer.of("erin")
    record = await new(store)
    setup.failing.down()
    for number in range(50):
        await store.append(record.id, [user(number)])
    appends = 0

    def plan(name: str) -> Fault:
        nonlocal appends
        appends += name == "append"
        return "after" if appends > 20 else None

    setup.failing.plan = plan
    setup.seconds.now += 60
    with pytest.raises(StoreUnavailable):
        await setup.layer.recover()
    await store.append(record.id, [user(50)])
    assert await said(store, record.id) == list(range(51))
    assert await setup.back()
    assert await said(store, record.id) == list(range(51))


async def test_what_the_store_refuses_later_is_set_aside_and_the_rest_goes_on(setup: LayerSetup) -> None:
    store = setup.layer.of("erin")
    gone, kept = await new(store), await new(store)
    setup.failing.down()
    await store.append(gone.id, [user("lost cause", message_id="m1")])
    await store.append(kept.id, [user("good")])
    await setup.memory.of("erin").delete(gone.id)
    assert await setup.back()
    assert await said(store, kept.id) == ["good"]
    (line,) = (setup.folder / dead_letters.NAME).read_text().splitlines()
    letter = json.loads(line)
    assert (letter["owner"], letter["conversation_id"]) == ("erin", gone.id)
    assert letter["error"] == "ConversationNotFound"
    (body,) = letter["operation"]["action"]["bodies"]
    assert json.loads(body)["content"] == "lost cause"
    assert setup.layer.set_aside.value == 1
    assert await asyncio.to_thread(dead_letters.count, setup.folder) == 1


async def test_words_that_were_redacted_meanwhile_do_not_become_a_dead_letter(setup: LayerSetup) -> None:
    store, elsewhere = setup.layer.of("erin"), setup.memory.of("erin")
    record = await new(store)
    setup.failing.down("after")
    await store.append(record.id, [user("my PIN is 1234", message_id="m1"), user("thanks", message_id="m2")])
    setup.failing.down()
    await store.append(record.id, [user("my PIN is 1234", message_id="m1"), user("bye", message_id="m3")])
    stored = await elsewhere.entry(record.id, "m1")
    assert stored is not None
    await elsewhere.replace(record.id, tombstone_of(stored.message))
    assert await setup.back()
    assert await said(elsewhere, record.id) == ["[redacted]", "thanks", "bye"]
    assert (await setup.layer.health()).dead_letters == 0


async def test_a_message_whose_id_another_one_took_meanwhile_is_set_aside(setup: LayerSetup) -> None:
    store, elsewhere = setup.layer.of("erin"), setup.memory.of("erin")
    record = await new(store)
    setup.failing.down()
    await store.append(record.id, [user("said during the outage", message_id="m1"), user("and this")])
    await elsewhere.append(record.id, [user("said elsewhere", message_id="m1")])
    assert await setup.back()
    assert await said(elsewhere, record.id) == ["said elsewhere"]
    (line,) = (setup.folder / dead_letters.NAME).read_text().splitlines()
    letter = json.loads(line)
    assert letter["error"] == "MessageConflict"
    contents = [json.loads(body)["content"] for body in letter["operation"]["action"]["bodies"]]
    assert contents == ["said during the outage", "and this"]


async def test_a_conversation_that_is_damaged_in_the_store_holds_nothing_else_up(setup: LayerSetup) -> None:
    store = setup.layer.of("erin")
    damaged, good = await new(store), await new(store)
    setup.failing.down()
    await store.append(damaged.id, [user("lost cause")])
    await store.update(good.id, Changes(status="pending"))
    await store.append(good.id, [user("good")])
    faults = iter([StoreDamaged("somebody else's key")])

    def plan(name: str) -> Fault:
        if name == "append" and (error := next(faults, None)):
            raise error
        return None

    setup.failing.plan = plan
    setup.seconds.now += 60
    assert await setup.layer.recover()
    assert await said(setup.memory.of("erin"), good.id) == ["good"]
    assert (await setup.layer.health()).dead_letters == 1
    await store.delete(damaged.id)
    assert (await setup.layer.health()).dead_letters == 0


async def test_a_full_spool_refuses_clearly_and_keeps_what_it_has(setup: LayerSetup) -> None:
    layer = setup.make(spool_limit=2000)
    await layer.open()
    store = layer.of("erin")
    record = await new(store)
    setup.failing.down()
    accepted: list[object] = []
    with pytest.raises(SpoolFull, match="2,000 bytes"):
        for number in range(100):
            await store.append(record.id, [user(number)])
            accepted.append(number)
    assert accepted
    assert await said(store, record.id) == accepted
    setup.failing.up()
    setup.seconds.now += 60
    assert await layer.recover()
    assert await said(store, record.id) == accepted
    await store.append(record.id, [user("room again")])
    await layer.close()


async def test_forgetting_removes_every_trace_of_an_owner_from_the_disk(setup: LayerSetup) -> None:
    erin, ann = setup.layer.of("erin"), setup.layer.of("ann")
    hers, theirs = await new(erin), await new(ann)
    other = await new(erin)
    setup.failing.down()
    await erin.append(hers.id, [user("a secret")])
    await erin.append(other.id, [user("a second one")])
    await ann.append(theirs.id, [user("not a word")])
    assert (await forget(setup.layer, "erin", hers.id))["spool_entries"] == 1
    content = b"".join(path.read_bytes() for path in setup.folder.glob("*.spool"))
    assert b"a secret" not in content
    assert b"a second one" in content
    assert (await forget(setup.layer, "erin"))["spool_entries"] == 1
    content = b"".join(path.read_bytes() for path in setup.folder.glob("*.spool"))
    assert b"second" not in content
    assert b"not a word" in content
    await ann.append(theirs.id, [user("more")])
    assert await setup.back()
    assert await said(setup.memory.of("ann"), theirs.id) == ["not a word", "more"]
    assert await said(setup.memory.of("erin"), hers.id) == []


async def test_forgetting_reaches_the_dead_letters(setup: LayerSetup) -> None:
    store = setup.layer.of("erin")
    record = await new(store)
    setup.failing.down()
    await store.append(record.id, [user("a secret")])
    await setup.memory.of("erin").delete(record.id)
    assert await setup.back()
    assert await asyncio.to_thread(dead_letters.count, setup.folder) == 1
    assert (await forget(setup.layer, "erin"))["dead_letters"] == 1
    assert await asyncio.to_thread(dead_letters.count, setup.folder) == 0


async def test_forgetting_reaches_the_dead_letters_of_another_process(setup: LayerSetup) -> None:
    other = setup.make()
    await other.open()
    setup.failing.down()
    await setup.layer.of("erin").append(new_id(), [user("lost cause")])
    assert await setup.back()
    assert (await forget(other, "erin"))["dead_letters"] == 1
    assert await asyncio.to_thread(dead_letters.count, setup.folder) == 0


async def test_cancelled_callers_leave_whole_turns_or_none(setup: LayerSetup) -> None:
    store = setup.layer.of("erin")
    record = await new(store)
    setup.failing.down()
    await store.append(record.id, [user("first"), user("first")])
    tasks = [
        asyncio.create_task(store.append(record.id, [user(number), user(number)])) for number in range(60)
    ]
    for step, task in enumerate(tasks):
        if step % 3 == 0:
            await asyncio.sleep(0)
        if step % 2:
            task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert await setup.back()
    stored = await said(store, record.id)
    assert stored[::2] == stored[1::2]
    assert len(set(stored)) == len(stored) // 2
    acknowledged = {number for number, result in enumerate(results) if isinstance(result, Appended)}
    assert acknowledged <= set(stored)


async def test_a_write_that_is_cancelled_on_its_way_to_the_disk_keeps_its_place(
    setup: LayerSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = setup.layer.of("erin")
    record = await new(store)
    setup.failing.down()
    syncing, may_end = threading.Event(), threading.Event()

    def sync(_: int) -> None:
        syncing.set()
        assert may_end.wait(240)

    monkeypatch.setattr(files, "_sync", sync)
    doomed = asyncio.create_task(store.update(record.id, Changes(status="resolved")))
    assert await asyncio.to_thread(syncing.wait, 240)
    doomed.cancel()
    await asyncio.gather(doomed, return_exceptions=True)
    setup.failing.up()
    later = asyncio.create_task(store.update(record.id, Changes(status="closed")))
    await asyncio.sleep(0)
    may_end.set()
    await later
    assert setup.layer.spool_depth == 2
    assert await setup.back()
    stored = await setup.memory.of("erin").get(record.id)
    assert stored is not None
    assert stored.status == "closed"
    assert not list(setup.folder.glob("*.spool"))


async def test_closing_while_turns_are_being_accepted_keeps_every_acknowledged_one(setup: LayerSetup) -> None:
    store = setup.layer.of("erin")
    record = await new(store)
    setup.failing.down()
    tasks = [asyncio.create_task(store.append(record.id, [user(number)])) for number in range(50)]
    await asyncio.sleep(0)
    await setup.layer.close()
    await setup.layer.close()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(result, Appended | StoreClosed) for result in results)
    with pytest.raises(StoreClosed):
        await store.append(record.id, [user("late")])
    layer = setup.make()
    await layer.open()
    setup.failing.up()
    setup.seconds.now += 60
    assert await layer.recover()
    stored = set(await said(layer.of("erin"), record.id))
    assert {n for n, result in enumerate(results) if isinstance(result, Appended)} <= stored
    await layer.close()


async def test_who_is_cancelled_while_closing_lets_go_of_spool_and_store(setup: LayerSetup) -> None:
    store = setup.layer.of("erin")
    record = await new(store)
    setup.failing.down()
    await store.append(record.id, [user("hello")])
    asked = asyncio.Event()

    def silent(name: str) -> Fault:
        asked.set()
        return "hang"

    setup.failing.plan = silent
    setup.layer.breaker.probe_succeeded()
    closing = asyncio.create_task(setup.layer.close())
    await asked.wait()  # it hands over what it has
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert setup.memory.closed
    setup.failing.up()
    setup.layer = setup.make()
    await setup.layer.open()
    assert setup.layer.spool_depth == 1
    assert await setup.layer.recover()
    assert await said(setup.memory.of("erin"), record.id) == ["hello"]


async def test_closing_hands_over_what_a_well_store_can_have(setup: LayerSetup) -> None:
    store = setup.layer.of("erin")
    record = await new(store)
    setup.failing.down()
    await store.append(record.id, [user("hello")])
    setup.failing.up()
    setup.layer.breaker.probe_succeeded()
    await setup.layer.close()
    await setup.memory.open()
    assert await said(setup.memory.of("erin"), record.id) == ["hello"]


async def test_the_layer_recovers_by_itself(setup: LayerSetup) -> None:
    """With its own keeper, on the real clock: no caller uses `recover`."""
    layer = resilient(setup.failing, folder=setup.folder, metrics=Telemetry())
    await layer.open()
    store = layer.of("erin")
    record = await new(store)
    setup.failing.down()
    await store.append(record.id, [user("hello")])
    setup.failing.up()
    queue = layer.queues["erin"]
    async with asyncio.timeout(120):
        await queue.drained.wait()
    assert await said(setup.memory.of("erin"), record.id) == ["hello"]
    await layer.close()


async def test_the_numbers_tell_how_it_goes(setup: LayerSetup) -> None:
    def number(name: str) -> float:
        (value,) = [one.value for one in setup.metrics.samples() if one.name == f"aforesaid_{name}"]
        return value

    store = setup.layer.of("erin")
    record = await new(store)
    assert (number("breaker_state"), number("spool_operations"), number("spool_bytes")) == (0, 0, 0)
    setup.failing.down()
    await store.append(record.id, [user("a secret")])
    setup.clock.advance(timedelta(seconds=7))
    await store.get(record.id)
    assert (number("breaker_state"), number("spool_operations")) == (2, 1)
    assert number("spool_bytes") > 100
    assert number("spool_oldest_seconds") == 7
    assert number("retries_total") == 2
    assert number("degraded_reads_total") == 2
    assert await setup.back()
    assert (number("breaker_state"), number("spool_operations"), number("spool_oldest_seconds")) == (0, 0, 0)
    assert number("spool_replayed_total") == 1


async def test_events_say_what_happened_and_nothing_that_was_said(
    setup: LayerSetup, caplog: pytest.LogCaptureFixture
) -> None:
    store = setup.layer.of("erin")
    record = await new(store)
    with caplog.at_level("INFO", "aforesaid"):
        setup.failing.down()
        await store.append(record.id, [user("a secret")])
        await setup.memory.of("erin").delete(record.id)
        assert await setup.back()
    events = [getattr(one, "event", None) for one in caplog.records]
    assert events == ["breaker_open", "breaker_half_open", "breaker_closed", "dead_letter"]
    assert not any("a secret" in str(vars(one)) for one in caplog.records)


async def test_a_note_is_accepted_in_an_outage_and_what_is_derived_is_not(setup: LayerSetup) -> None:
    store = setup.layer.of("erin")
    record = await new(store)
    first = await store.put_document("notes", "birthday", b"May 4")
    setup.failing.down()
    second = await store.put_document("notes", "birthday", b"May 5")
    assert (first.version, second.version) == (1, 2)
    held = await store.get_document("notes", "birthday")
    assert held is not None
    assert held.data == b"May 5"
    for attempt in (
        store.put_document("vectors", "1", b"x", conversation_id=record.id),
        store.put_document("notes", "other", b"x", expected_version=0),
        store.delete_document("notes", "birthday"),
    ):
        with pytest.raises(StoreUnavailable):
            await attempt
    for read in (store.get_document("notes", "never seen"), store.documents("notes")):
        with pytest.raises(StoreUnavailable):
            await read
    assert await setup.back()
    (stored,) = await setup.memory.of("erin").documents("notes")
    assert (stored.data, stored.version) == (b"May 5", 2)
