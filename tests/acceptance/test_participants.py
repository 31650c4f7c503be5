"""Conversations of several people, on every store and through a server."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from aforesaid.errors import (
    AforesaidError,
    AssignmentConflict,
    ConversationNotFound,
    InvalidInput,
    NotAllowed,
    NotFound,
)
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.messages import Message
from tests.builders import Target

SECRET = "the aubergine plan"


async def meeting(manager: ConversationManager) -> str:
    """A conversation of Ann (manager), Bob (member) and a guest, with one message of Ann's."""
    record = await manager.get_or_create_conversation("meeting")
    await manager.set_participant(record.id, "ann", name="Ann", role="manager")
    await manager.set_participant(record.id, "bob", name="Bob")
    await manager.set_participant(record.id, "guest", role="guest")
    await manager.add_message(record.id, "user", f"Ann proposes {SECRET}", author="ann", message_id="m1")
    return record.id


def said(messages: list[Message]) -> list[Any]:
    return [message.content for message in messages]


def test_a_participant_has_their_conversations_and_no_others(target: Target) -> None:
    async def scenario(manager: ConversationManager) -> None:
        shared = await meeting(manager)
        private = (await manager.get_or_create_conversation("private")).id
        await manager.add_message(private, "user", f"nobody knows {SECRET}", message_id="p1")
        bob = manager.as_participant("bob")
        assert [one.id for one in (await bob.list()).conversations] == [shared]
        assert said(await bob.messages(shared)) == [f"Ann proposes {SECRET}"]
        found = await bob.search_history("aubergine plan", 10)
        assert len(found) == 1
        assert "proposes" in found[0]
        assert [one.id for one in await bob.search_conversations("aubergine")] == [shared]
        stranger = manager.as_participant("stranger")
        assert (await stranger.list()).conversations == ()
        assert await stranger.search_history("aubergine plan", 10) == []
        for attempt in (
            bob.get_conversation(private),
            bob.messages(private),
            bob.add_message(private, "user", "hello"),
            bob.update_metadata(private, subject="x"),
            bob.participants(private),
            stranger.messages(shared),
        ):
            with pytest.raises(ConversationNotFound):
                await attempt

    target.run(scenario)


def test_a_participant_watches_their_conversations_and_no_others(target: Target) -> None:
    async def scenario(manager: ConversationManager) -> None:
        shared = await meeting(manager)
        private = (await manager.get_or_create_conversation("private")).id
        seen = []
        async with manager.as_participant("bob").watch() as changes:
            await manager.add_message(private, "user", "hello")
            await manager.add_message(shared, "user", "hello", author="ann")
            while shared not in seen:
                seen.append((await asyncio.wait_for(anext(changes), 240)).conversation_id)
            assert private not in seen
            await manager.remove_participant(shared, "bob")
            while (change := await asyncio.wait_for(anext(changes), 240)).revision is not None:
                seen.append(change.conversation_id)
            assert change.conversation_id == shared
        assert private not in seen

    target.run(scenario)


def test_messages_of_a_participant_have_them_as_the_author(target: Target) -> None:
    async def scenario(manager: ConversationManager) -> None:
        shared = await meeting(manager)
        bob = manager.as_participant("bob")
        await bob.add_message(shared, "user", "I agree")
        async with bob.turn(shared) as turn:
            turn.user("and you?")
            turn.assistant("so do I")
        assert [one.author for one in await manager.messages(shared)] == ["ann", "bob", "bob", None]
        with pytest.raises(NotAllowed):
            await bob.add_message(shared, "user", "I am Ann", author="ann")
        with pytest.raises(InvalidInput, match="author"):
            await manager.add_message(shared, "user", "hello", author="stranger")
        assert len(await manager.messages(shared)) == 4

    target.run(scenario)


def test_roles_limit_what_a_participant_may_do(target: Target) -> None:
    async def scenario(manager: ConversationManager) -> None:
        shared = await meeting(manager)
        ann, bob, guest = map(manager.as_participant, ("ann", "bob", "guest"))
        with pytest.raises(NotAllowed):
            await guest.add_message(shared, "user", "hello")
        await ann.set_participant(shared, "guest", may_write=True)
        await guest.add_message(shared, "user", "hello", message_id="g1")
        with pytest.raises(NotAllowed):
            await bob.set_participant(shared, "bob", role="manager")
        with pytest.raises(NotAllowed):
            await bob.delete_conversation(shared)
        with pytest.raises(NotAllowed):
            await bob.redact(shared, "m1")
        await guest.redact(shared, "g1")
        await ann.remove_participant(shared, "bob")
        with pytest.raises(ConversationNotFound):
            await bob.messages(shared)
        roles = {one.id: one.role for one in await manager.participants(shared)}
        assert roles == {"ann": "manager", "bob": "left", "guest": "guest"}
        with pytest.raises(NotFound):
            await manager.remove_participant(shared, "stranger")
        for refused in (bob.erase(), ann.purge_expired(), ann.erase_participant("bob")):
            with pytest.raises(AforesaidError):
                await refused

    target.run(scenario)


def test_a_participant_reads_from_joining_on(target: Target, tmp_path: Path) -> None:
    async def scenario(manager: ConversationManager) -> None:
        shared = await meeting(manager)
        await manager.add_message(shared, "user", f"more about {SECRET}", author="ann")
        await manager.set_participant(shared, "carol", name="Carol", history="from_now")
        await manager.add_message(shared, "user", "welcome, Carol", author="ann")
        carol = manager.as_participant("carol")
        assert said(await carol.messages(shared)) == ["welcome, Carol"]
        assert said(await carol.messages(shared, 10, 0)) == ["welcome, Carol"]
        assert (await carol.get_conversation(shared)).message_count == 1
        context = await carol.load_context(shared)
        assert SECRET not in str([message.content for message in context.messages])
        assert await carol.search_history(SECRET, 10) == []
        assert await carol.search_conversations("aubergine") == []
        with pytest.raises(NotFound):
            await carol.redact(shared, "m1")
        await carol.export(tmp_path / "carol")
        exported = [path.read_bytes() for path in (tmp_path / "carol").rglob("*") if path.is_file()]
        assert any(b"welcome, Carol" in content for content in exported)
        assert not any(SECRET.encode() in content for content in exported)
        await manager.set_participant(shared, "carol", history="all")
        assert len(await carol.messages(shared)) == 3

    target.run(scenario)


def test_erasing_a_person_takes_their_words_and_nothing_else(target: Target) -> None:
    async def scenario(manager: ConversationManager) -> None:
        shared = await meeting(manager)
        await manager.add_message(shared, "user", "I agree", author="bob", message_id="b1")
        await manager.mark_read_up_to(shared, "m1", participant_id="ann")
        await manager.assign(shared, "ann")
        receipt = await manager.erase_participant("ann")
        assert receipt.erased["messages"] == 1
        assert receipt.erased["participants"] == 1
        assert receipt.remains == ()
        entries = await manager.messages(shared)
        assert said(entries) == ["[redacted]", "I agree"]
        assert [one.author for one in entries] == [None, "bob"]
        assert [one.id for one in await manager.participants(shared)] == ["bob", "guest"]
        assert await manager.read_markers(shared) == []
        assert (await manager.get_conversation(shared)).assigned_to is None
        assert await manager.search_history("aubergine", 10) == []
        assert (await manager.erase_participant("ann")).erased == {}

    target.run(scenario)


def test_a_read_marker_never_moves_back_and_leaves_the_revision(target: Target) -> None:
    async def scenario(manager: ConversationManager) -> None:
        shared = await meeting(manager)
        for number in range(2, 6):
            await manager.add_message(shared, "user", "more", author="ann", message_id=f"m{number}")
        before = (await manager.get_conversation(shared)).revision
        bob = manager.as_participant("bob")
        assert await bob.unread(shared) == 5
        await asyncio.gather(*(bob.mark_read_up_to(shared, f"m{number}") for number in (4, 2, 3, 1)))
        (marker,) = await manager.read_markers(shared)
        assert (marker.participant_id, marker.message_id) == ("bob", "m4")
        assert await bob.unread(shared) == 1
        assert await manager.unread(shared, participant_id="ann") == 0
        assert (await manager.get_conversation(shared)).revision == before
        guest = manager.as_participant("guest")
        await guest.mark_read_up_to(shared, "m5", private=True)
        assert [one.participant_id for one in await bob.read_markers(shared)] == ["bob"]
        assert [one.participant_id for one in await guest.read_markers(shared)] == ["bob", "guest"]
        with pytest.raises(NotAllowed):
            await bob.mark_read_up_to(shared, "m5", participant_id="ann")
        with pytest.raises(InvalidInput, match="participant_id"):
            await manager.mark_read_up_to(shared, "m5")
        with pytest.raises(NotFound):
            await bob.mark_read_up_to(shared, "m9")

    target.run(scenario)


def test_one_of_two_agents_takes_a_conversation_and_the_other_learns_who(target: Target) -> None:
    async def scenario(manager: ConversationManager) -> None:
        shared = await meeting(manager)
        outcomes = await asyncio.gather(
            manager.assign(shared, "sam"), manager.assign(shared, "kim"), return_exceptions=True
        )
        conflicts = [one for one in outcomes if isinstance(one, AssignmentConflict)]
        assert len(conflicts) == 1
        holder = (await manager.get_conversation(shared)).assigned_to
        assert conflicts[0].actual == holder
        assert (await manager.assign(shared, None, expected=holder)).assigned_to is None

    target.run(scenario)


def test_several_people_write_at_once_and_no_turn_is_split(target: Target) -> None:
    async def scenario(manager: ConversationManager) -> None:
        shared = await meeting(manager)
        people = [f"p{number}" for number in range(4)]
        await asyncio.gather(*(manager.set_participant(shared, one) for one in people))
        assert {one.id for one in await manager.participants(shared)} >= set(people)

        async def speak(participant: str) -> None:
            handle = manager.as_participant(participant)
            for number in range(3):
                async with handle.turn(shared) as turn:
                    turn.user(f"{participant}/{number}")
                    turn.assistant(f"{participant}/{number}")

        await asyncio.gather(*map(speak, people))
        messages = (await manager.messages(shared, 100))[1:]
        assert len(messages) == 24
        for asked, answered in zip(messages[::2], messages[1::2], strict=True):
            assert (asked.role, answered.role) == ("user", "assistant")
            assert asked.content == answered.content

    target.run(scenario)


def test_a_participant_is_notified_once_by_their_rule(target: Target) -> None:
    async def scenario(manager: ConversationManager) -> None:
        shared = await meeting(manager)
        await manager.add_message(shared, "user", "what do you think, @Bob?", author="ann", message_id="m2")
        await manager.add_message(shared, "user", "I agree", author="bob", message_id="m3")
        bob = manager.as_participant("bob")
        waiting = await bob.notifications()
        assert [(one.message_id, one.mentioned) for one in waiting] == [("m1", False), ("m2", True)]
        taken = await asyncio.gather(*(bob.take_notifications() for _ in range(4)))
        assert [one.message_id for found in taken for one in found] == ["m1", "m2"]
        assert await bob.notifications() == []
        await bob.set_notification_rule(shared, "mentions")
        await manager.add_message(shared, "user", "never mind", author="ann", message_id="m4")
        await manager.add_message(shared, "user", "@bob: yes?", author="ann", message_id="m5")
        assert [one.message_id for one in await manager.notifications(participant_id="bob")] == ["m5"]
        await bob.mark_read_up_to(shared, "m5")
        assert await bob.take_notifications() == []
        await bob.set_notification_rule(shared, "none")
        await manager.add_message(shared, "user", "@bob!", author="ann")
        assert await bob.notifications() == []
        guest = manager.as_participant("guest")
        assert len(await guest.take_notifications(limit=2)) == 2
        assert len(await guest.notifications()) == 4
        for refused in (
            bob.notifications(participant_id="ann"),
            bob.take_notifications(participant_id="ann"),
        ):
            with pytest.raises(NotAllowed):
                await refused
        with pytest.raises(InvalidInput, match="participant_id"):
            await manager.notifications()

    target.run(scenario)
