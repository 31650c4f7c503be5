"""Read markers, notifications, assignment and events: what people need in one conversation, on any store."""

import asyncio
from datetime import timedelta

import pytest

from aforesaid.analytics.records import EVENTS
from aforesaid.contracts import ConversationStore
from aforesaid.errors import AssignmentConflict
from aforesaid.memory.manager import ConversationManager
from aforesaid.memory.notification_log import NotificationLog
from aforesaid.model.conversations import Conversation
from aforesaid.model.participants import participant_in
from aforesaid.testing.contract.base import Contract, FixedClock, user
from aforesaid.testing.contract.participants import ANN, BOB, with_participants


async def meeting(store: ConversationStore, *message_ids: str) -> tuple[ConversationManager, Conversation]:
    """Return a manager, and a conversation of two people in which Ann wrote these messages."""
    manager = ConversationManager(store)
    record = await with_participants(store, ANN.with_(visible_from=None), BOB.with_(visible_from=None))
    for message_id in message_ids:
        await say(manager, record, message_id)
    return manager, record


async def say(
    manager: ConversationManager, record: Conversation, message_id: str, text: str = "hello"
) -> None:
    await manager.append(record.id, [user(text, author=ANN.id, message_id=message_id)])


class CollaborationContract(Contract):
    """Read markers, notifications, assignment, and events with their numbers. They need documents with
    compare-and-swap and `Query.participant`, which every store has.
    """

    async def test_a_read_marker_moves_forward_only_and_leaves_the_revision(
        self, store: ConversationStore
    ) -> None:
        manager, record = await meeting(store, "m1", "m2", "m3")
        before = await store.get(record.id)
        assert await manager.unread(record.id, participant_id=BOB.id) == 3
        marks = [("m2", False), ("m1", False), ("m2", True)]
        for message_id, private in marks:
            await manager.mark_read_up_to(record.id, message_id, participant_id=BOB.id, private=private)
        assert await manager.read_markers(record.id) == [], "only Bob sees a private marker"
        (marker,) = await manager.as_participant(BOB.id).read_markers(record.id)
        assert (marker.participant_id, marker.message_id) == (BOB.id, "m2")
        assert await manager.unread(record.id, participant_id=BOB.id) == 1
        assert await manager.unread(record.id, participant_id=ANN.id) == 0
        assert await store.get(record.id) == before

    async def test_of_two_devices_the_farther_read_marker_stays(self, store: ConversationStore) -> None:
        manager, record = await meeting(store, "m1", "m2", "m3")
        marks = [manager.mark_read_up_to(record.id, f"m{n}", participant_id=BOB.id) for n in (3, 1, 2)]
        await asyncio.gather(*marks)
        assert [one.message_id for one in await manager.read_markers(record.id)] == ["m3"]

    async def test_a_notification_is_taken_once_and_cleared_by_reading(
        self, store: ConversationStore
    ) -> None:
        manager, record = await meeting(store, "m1", "m2")
        assert await manager.notifications(participant_id=ANN.id) == []
        assert [one.message_id for one in await manager.notifications(participant_id=BOB.id)] == ["m1", "m2"]
        takers = [manager.take_notifications(participant_id=BOB.id) for _ in range(3)]
        taken = [one.message_id for found in await asyncio.gather(*takers) for one in found]
        assert taken == ["m1", "m2"]
        await say(manager, record, "m3")
        await manager.mark_read_up_to(record.id, "m3", participant_id=BOB.id)
        assert await manager.take_notifications(participant_id=BOB.id) == []

    async def test_the_rule_decides_of_what_a_participant_is_notified(self, store: ConversationStore) -> None:
        manager, record = await meeting(store)
        assert await manager.notification_rule(record.id, participant_id=BOB.id) == "all"
        await manager.set_notification_rule(record.id, "mentions", participant_id=BOB.id)
        await say(manager, record, "m1")
        await say(manager, record, "m2", f"look, @{BOB.id}")
        assert [one.message_id for one in await manager.notifications(participant_id=BOB.id)] == ["m2"]
        await manager.set_notification_rule(record.id, "none", participant_id=BOB.id)
        assert await manager.notifications(participant_id=BOB.id) == []

    async def test_a_claim_ends_by_itself_and_a_late_confirmation_has_no_effect(
        self, store: ConversationStore, clock: FixedClock
    ) -> None:
        _, record = await meeting(store, "m1")
        stored = await store.get(record.id)
        assert stored is not None
        bob = participant_in(stored.participants, BOB.id)
        assert bob is not None
        log = NotificationLog(store)
        first = await log.claim(stored, bob, limit=9, lease=timedelta(seconds=30))
        assert first is not None
        assert await log.claim(stored, bob, limit=9) is None, "a delivery is in progress"
        clock.advance(timedelta(seconds=31))
        second = await log.claim(stored, bob, limit=9)
        assert second is not None
        assert [one.id for one in second.notifications] == [one.id for one in first.notifications]
        assert not await log.confirm(first)
        assert await log.confirm(second)
        assert await log.claim(stored, bob, limit=9) is None

    async def test_of_two_agents_that_take_a_conversation_one_succeeds(
        self, store: ConversationStore
    ) -> None:
        manager, record = await meeting(store)
        agents = ("ann", "eve")
        done = await asyncio.gather(
            *(manager.assign(record.id, agent) for agent in agents), return_exceptions=True
        )
        (conflict,) = [one for one in done if isinstance(one, AssignmentConflict)]
        stored = await store.get(record.id)
        assert stored is not None
        assert stored.assigned_to == conflict.actual
        with pytest.raises(AssignmentConflict):
            await manager.assign(record.id, "tom", expected=None)
        assert (await manager.assign(record.id, "tom", expected=stored.assigned_to)).assigned_to == "tom"

    async def test_markers_and_rules_end_with_their_conversation(self, store: ConversationStore) -> None:
        manager, record = await meeting(store, "m1")
        await manager.mark_read_up_to(record.id, "m1", participant_id=BOB.id)
        await manager.set_notification_rule(record.id, "none", participant_id=BOB.id)
        await store.delete(record.id)
        assert not (await store.tally()).documents

    async def test_events_are_counted_once_and_end_with_their_conversation(
        self, store: ConversationStore
    ) -> None:
        manager, record = await meeting(store, "m1")
        await manager.assign(record.id, ANN.id)
        for status in ("closed", "open", "resolved"):
            await manager.update_metadata(record.id, status=status)
        for _ in range(2):
            counts = (await manager.analytics()).total.counts
            assert (counts["opened"], counts["messages_in"], counts["assigned"]) == (1, 1, 1)
            assert (counts["closed"], counts["reopened"]) == (2, 1)
        assert (await store.tally(record.id)).documents[EVENTS] == 1
        await store.delete(record.id)
        assert EVENTS not in (await store.tally()).documents
        assert (await manager.analytics()).total.counts["closed"] == 2, "numbers outlive the conversation"
