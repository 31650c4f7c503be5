"""Numbers about conversations, on every store and through a server."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import aforesaid
from aforesaid.analytics.records import ROLL_UPS, ROWS
from aforesaid.analytics.reports import Analytics
from aforesaid.encryption import MasterKeys
from aforesaid.errors import InvalidInput, NotAllowed
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.messages import Message, Role
from tests.builders import Target

SECRET = "the aubergine plan"
NOW = datetime.now(UTC)
FROM = NOW - timedelta(days=10)


def said(role: Role, hours_ago: float, **fields: str) -> Message:
    return Message(role=role, content=SECRET, timestamp=NOW - timedelta(hours=hours_ago), **fields)  # type: ignore[arg-type]


async def week(manager: ConversationManager) -> None:
    """A question that a person answers after an hour, and one without an answer."""
    await manager.set_participant("answered", "sam", kind="person")
    await manager.append("answered", [said("user", 50), said("assistant", 49, author="sam")])
    await manager.append("answered", [said("user", 26), said("assistant", 24, agent_name="bot")])
    await manager.assign("answered", "Sam")
    await manager.update_metadata("answered", status="closed", channel="email")
    await manager.append("waiting", [said("user", 30)])


def test_numbers_of_a_period(target: Target) -> None:
    async def scenario(manager: ConversationManager) -> None:
        await week(manager)
        found = await manager.analytics(FROM)
        counts = found.total.counts
        assert (counts["opened"], counts["closed"], counts["assigned"]) == (2, 1, 1)
        assert (counts["messages_in"], counts["messages_out_person"]) == (3, 1)
        assert found.total.shares["automation"] == 0
        assert found.total.shares["unresolved"] == 0.5
        first = found.total.distributions["first_response_by_person"]
        assert abs(first.p50 - 3_600_000) < 360_000
        assert found.total.distributions["reply_time"].count == 2
        by_channel = {
            one.value: one.counts["messages_in"] for one in (await manager.analytics(by="channel")).groups
        }
        assert by_channel == {"email": 2, "text": 1} or by_channel == {"email": 2, "voice": 1}
        by_agent = {one.value for one in (await manager.analytics(by="agent")).groups}
        assert by_agent == {"Sam", None}
        only = await manager.analytics(FROM, by="day", agent="Sam")
        assert sum(one.counts["messages_in"] for one in only.groups) == 2
        days = [str(one.value) for one in (await manager.analytics(FROM, by="day")).groups]
        assert days == sorted(days)
        assert len(found.to_csv().splitlines()) == 2

    target.run(scenario)


def test_counting_again_changes_nothing_and_an_erasure_takes_its_numbers(target: Target) -> None:
    async def scenario(manager: ConversationManager) -> None:
        await week(manager)
        before = await manager.analytics(FROM, by="day")
        assert (await manager.analytics(FROM, by="day")).groups == before.groups
        assert await manager.recompute_analytics() == 2
        assert (await manager.analytics(FROM, by="day")).groups == before.groups
        await manager.append("waiting", [said("assistant", 1)])
        counts = (await manager.analytics(FROM)).total.counts
        assert counts["answers"] == before.total.counts["answers"] + 1
        await manager.delete_conversation("waiting")
        assert (await manager.analytics(FROM)).total.counts == counts, "a deletion leaves the numbers"
        await manager.erase("answered")
        left = (await manager.analytics(FROM)).total.counts
        assert (left["opened"], left["messages_in"], left["closed"]) == (1, 1, 0)
        await manager.recompute_analytics(keep_removed=False)
        assert (await manager.analytics(FROM)).total.counts["opened"] == 0

    target.run(scenario)


def test_history_from_before_the_events_and_messages_with_earlier_times(target: Target) -> None:
    async def scenario(manager: ConversationManager) -> None:
        await manager.append("c", [said("user", 5), said("assistant", 4)])
        assert (await manager.analytics(FROM)).total.counts["answers"] == 1
        await manager.append("c", [said("user", 100), said("assistant", 99)])
        await manager.recompute_analytics()
        found = (await manager.analytics(FROM)).total
        assert found.counts["answers"] == 2
        assert found.counts["opened"] == 1
        assert found.distributions["reply_time"].count == 2
        await manager.clear_history("c")
        await manager.recompute_analytics()
        assert (await manager.analytics(FROM)).total.counts["answers"] == 0

    target.run(scenario)


def test_roll_ups_contain_no_words(stored_target: Target) -> None:
    async def scenario(manager: ConversationManager) -> None:
        await week(manager)
        await manager.analytics(FROM)
        kinds = [ROWS, *(f"{ROLL_UPS}{name}" for name in ("all", "channel", "client", "agent"))]
        stored = [one for kind in kinds for one in await manager.store.documents(kind, limit=1000)]
        assert stored
        assert not any(SECRET.encode() in one.data for one in stored)
        ids = [record.id for record in (await manager.list()).conversations]
        assert not any(one.encode() in document.data for one in ids for document in stored)
        await manager.erase()
        assert await manager.store.document_kinds() == []

    stored_target.run(scenario)


def test_a_message_that_branches_share_or_merge_counts_once(target: Target) -> None:
    async def scenario(manager: ConversationManager) -> None:
        async with manager.turn("roof") as turn:
            turn.user("When will the roof be repaired?")
            turn.assistant("On Friday.")
        for _ in range(5):
            branch = await manager.fork("roof")
        async with manager.turn(branch.id) as turn:
            turn.user("Is Thursday possible?")
            turn.assistant("Yes.")
        for _ in range(2):
            await manager.merge("roof", branch.id)
        for _ in range(2):
            counts = (await manager.analytics()).total.counts
            assert (counts["messages_in"], counts["messages_out_assistant"], counts["turns"]) == (2, 2, 2)
            assert (counts["opened"], counts["merged"]) == (6, 1)
            assert await manager.recompute_analytics() == 6
        topics = await manager.topic_report()
        assert topics.conversations == 2
        assert topics.new_terms == ()
        assert (topics.repeats.questions, topics.repeats.repeated) == (2, 0)

    target.run(scenario)


def test_wrong_arguments(target: Target) -> None:
    async def scenario(manager: ConversationManager) -> None:
        for wrong, field in (
            ({"by": "moon"}, "by"),
            ({"by": "agent", "channel": "email"}, "by"),
            ({"channel": "email", "agent": "Sam"}, "agent"),
            ({"date_from": NOW, "date_to": FROM}, "date_from"),
            ({"date_from": "yesterday-ish"}, "date_from"),
            ({"channel": "no channel"}, "channel"),
            ({"client_id": "no uuid"}, "client_id"),
        ):
            with pytest.raises(InvalidInput) as caught:
                await manager.analytics(**wrong)
            assert caught.value.field == field
        await manager.set_participant("c", "ann")
        for attempt in (
            manager.as_participant("ann").analytics(),
            manager.as_participant("ann").recompute_analytics(),
        ):
            with pytest.raises(NotAllowed):
                await attempt

    target.run(scenario)


async def test_the_sweep_counts_before_it_purges(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    layers = aforesaid.Layers(encryption=MasterKeys(b"k" * 32), audit=tmp_path / "audit")
    async with aforesaid.open(url, layers=layers, retention=aforesaid.Retention(sweep_every=None)) as memory:
        manager = memory.of("erin")
        await week(manager)
        await memory.sweep()
        counted: Analytics = await manager.analytics(FROM, fresh=False)
        assert counted.total.counts["opened"] == 2
        assert counted.groups == ()


def test_requests_and_searches_of_a_period(target: Target) -> None:
    async def scenario(manager: ConversationManager) -> None:
        await manager.append("roof", [said("user", 2), said("assistant", 1)])
        await manager.remember("Erin prefers tea.")
        question = Message(role="user", content="When do you come?")
        await manager.load_request("roof", "plain", pending=[question])
        await manager.search_history("aubergine")
        await manager.search_history("zeppelin")
        found = (await manager.analytics()).total
        names = ("requests", "searches", "notes_made", "notes_used")
        assert [found.counts[name] for name in names] == [1, 2, 1, 1]
        assert found.shares["left_out"] == 0
        assert found.shares["searches_without_result"] == 0.5
        assert found.distributions["request_tokens"].count == 1
        groups = (await manager.analytics(by="channel")).groups
        assert {one.value: one.counts["searches"] for one in groups if one.counts["searches"]} == {None: 2}
        assert [one.counts["requests"] for one in groups if one.value is not None] == [1]
        await manager.erase("roof")
        assert (await manager.analytics()).total.counts["requests"] == 0

    target.run(scenario)


def test_topics_of_a_period_and_what_is_new(target: Target) -> None:
    async def scenario(manager: ConversationManager) -> None:
        await manager.set_topic("roofs", ["The roof leaks.", "Water comes through the roof."])
        await manager.set_topic("bills", ["I have a question about my invoice."])
        assert [one.name for one in await manager.topics()] == ["bills", "roofs"]
        await manager.clients.add("Harold Finch")
        for number in range(40):
            old = [
                Message(
                    role="user",
                    content="My invoice is wrong again, please send another one.",
                    timestamp=NOW - timedelta(days=40),
                )
            ]
            await manager.append(f"old-{number}", old)
        for number in range(10):
            words = "The roof leaks, and the boiler hums, said Finch."
            new = [Message(role="user", content=words, timestamp=NOW - timedelta(hours=number))]
            await manager.append(f"new-{number}", new)
        await manager.append("rare", [said("user", 1)])
        found = await manager.topic_report()
        assert {one.name: one.conversations for one in found.topics} == {"roofs": 10, "bills": 0}
        assert (found.conversations, found.other, found.left_out) == (11, 1, False)
        terms = {one.term for one in found.new_terms}
        assert "boiler" in terms
        assert not terms & {"finch", "aubergine"}
        for number in range(6):
            await manager.erase(f"new-{number}")
        after = await manager.topic_report()
        assert {one.name: one.conversations for one in after.topics}["roofs"] == 4
        assert after.new_terms == ()
        assert await manager.delete_topic("roofs")
        assert not await manager.delete_topic("roofs")
        assert (await manager.topic_report(limit=2)).left_out
        with pytest.raises(InvalidInput, match="examples"):
            await manager.set_topic("x", [])

    target.run(scenario)


def test_questions_asked_again_are_counted_until_they_are_erased(target: Target) -> None:
    async def scenario(manager: ConversationManager) -> None:
        words = "When will my new roof tiles arrive?"
        for days, name in ((9, "oldest"), (3, "first"), (1, "again"), (0.5, "once more")):
            at = NOW - timedelta(days=days)
            turn = [
                Message(role="user", content=words, timestamp=at),
                Message(role="assistant", content="Soon.", timestamp=at + timedelta(seconds=1)),
            ]
            await manager.append(name, turn)
        found = await manager.topic_report(NOW - timedelta(days=2), NOW)
        assert (found.repeats.questions, found.repeats.repeated, found.repeats.share) == (2, 2, 1.0)
        assert "repeated questions,,2,,1.0" in found.to_csv()
        assert "repeated questions by channel,text,2,,1.0" in found.to_csv()
        assert [one.repeated for one in found.repeats.by["agent"]] == [2]
        await manager.erase("first")
        after = await manager.topic_report(NOW - timedelta(days=2), NOW)
        assert (after.repeats.questions, after.repeats.repeated) == (2, 1)

    target.run(scenario)
