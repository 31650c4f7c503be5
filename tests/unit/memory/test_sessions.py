"""Sessions begin and end, by voice and by text; their conversation is found again, on every store."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

import aforesaid
from aforesaid.errors import ConversationNotFound, InvalidId, InvalidInput
from aforesaid.memory.manager import ConversationManager
from aforesaid.memory.sessions import SessionManager, SessionPolicy, Swept
from aforesaid.model.conversations import Changes
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.testing.contract.base import FixedClock
from tests.servers.remote import open_at


@pytest.fixture
async def erin(url: str, clock: FixedClock) -> AsyncIterator[ConversationManager]:
    async with open_at(
        url, clock=clock, sweep_every=None, embedder=None, resilience="off", cache="off"
    ) as memory:
        manager = memory.of(f"erin-{new_id()}")
        yield manager
        await manager.store.clear()


async def say(erin: ConversationManager, conversation_id: str, text: str = "hello") -> None:
    await erin.append(conversation_id, [Message(role="user", content=text)])


async def test_a_session_begins_in_a_new_conversation(erin: ConversationManager) -> None:
    sessions = SessionManager(erin)
    session = await sessions.create_session("s1", channel="voice")
    assert session.resumed is None
    assert session.conversation.channel == "voice"
    assert await sessions.get_conversation_id("s1") == session.conversation_id
    assert await sessions.get_conversation_id("s2") is None


async def test_an_open_session_is_found_by_its_id_in_another_process(erin: ConversationManager) -> None:
    first = await SessionManager(erin).create_session("s1")
    await say(erin, first.conversation_id)
    again = await SessionManager(erin).create_session("s1", channel="text")
    assert (again.conversation_id, again.resumed) == (first.conversation_id, "session")
    assert [message.content for message in again.conversation.messages] == ["hello"]


async def test_an_ended_session_has_no_conversation_until_it_begins_again(erin: ConversationManager) -> None:
    sessions = SessionManager(erin)
    first = await sessions.create_session("s1")
    await say(erin, first.conversation_id)
    ended = await sessions.end_session("s1")
    assert ended is not None
    assert ended.id == first.conversation_id
    assert await sessions.get_conversation_id("s1") is None
    assert (await sessions.load_session_context("s1")).report.nothing_to_send == "there is no session 's1'"
    again = await sessions.create_session("s1")
    assert (again.conversation_id, again.resumed) == (first.conversation_id, "session")
    assert await sessions.end_session("never") is None


async def test_without_the_way_by_session_id_a_session_begins_anew(erin: ConversationManager) -> None:
    sessions = SessionManager(erin, SessionPolicy(resume=()))
    first = await sessions.create_session("s1")
    await say(erin, first.conversation_id)
    again = await sessions.create_session("s1")
    assert again.conversation_id != first.conversation_id
    assert again.resumed is None


async def test_a_device_goes_on_within_the_idle_time(erin: ConversationManager, clock: FixedClock) -> None:
    sessions = SessionManager(erin, SessionPolicy(idle_after=timedelta(minutes=30)))
    first = await sessions.create_session("morning", device="kitchen")
    await say(erin, first.conversation_id)
    await sessions.end_session("morning")
    clock.advance(timedelta(minutes=29))
    second = await sessions.create_session("soon after", channel="text", device="kitchen")
    assert (second.conversation_id, second.resumed) == (first.conversation_id, "device")
    assert (await sessions.create_session("elsewhere", device="bedroom")).resumed is None
    clock.advance(timedelta(minutes=2))
    third = await sessions.create_session("too late", device="kitchen")
    assert third.conversation_id != first.conversation_id
    await say(erin, third.conversation_id)
    assert (await sessions.create_session("next", device="kitchen")).conversation_id == third.conversation_id


async def test_the_owners_latest_conversation_where_the_policy_says_so(
    erin: ConversationManager, clock: FixedClock
) -> None:
    sessions = SessionManager(erin, SessionPolicy(resume=("session", "device", "owner")))
    first = await sessions.create_session("phone", device="phone")
    await say(erin, first.conversation_id)
    second = await sessions.create_session("desk", device="desk")
    assert (second.conversation_id, second.resumed) == (first.conversation_id, "owner")
    clock.advance(timedelta(hours=1))
    assert (await sessions.create_session("car", device="car")).resumed is None


async def test_a_conversation_is_gone_on_with_when_asked_for_by_id(
    erin: ConversationManager, clock: FixedClock
) -> None:
    sessions = SessionManager(erin.idling_after(timedelta(minutes=5)))
    old = await sessions.create_session("s1", device="kitchen")
    await say(erin, old.conversation_id)
    clock.advance(timedelta(days=3))
    asked = await sessions.create_session("s2", device="kitchen", conversation_id=old.conversation_id)
    assert (asked.conversation_id, asked.resumed) == (old.conversation_id, "id")
    assert await sessions.get_conversation_id("s2") == old.conversation_id
    assert [message["content"] for message in await sessions.load_session_context("s2")] == ["hello"]
    with pytest.raises(ConversationNotFound):
        await sessions.create_session("s3", conversation_id=new_id())
    assert await sessions.get_conversation_id("s3") is None


async def test_a_mapping_that_leads_nowhere_makes_a_new_conversation(erin: ConversationManager) -> None:
    sessions = SessionManager(erin)
    first = await sessions.create_session("s1", device="kitchen")
    await say(erin, first.conversation_id)
    await erin.delete_conversation(first.conversation_id)
    assert await sessions.get_conversation_id("s1") is None
    made = await sessions.conversation_of("s1")
    assert made != first.conversation_id
    assert await sessions.conversation_of("s1") == made
    assert (await sessions.create_session("s2", device="kitchen")).resumed is None


async def test_an_expired_conversation_is_not_gone_on_with(
    erin: ConversationManager, clock: FixedClock
) -> None:
    sessions = SessionManager(erin)
    first = await sessions.create_session("s1")
    await say(erin, first.conversation_id)
    clock.advance(timedelta(days=31))
    again = await sessions.create_session("s1")
    assert again.conversation_id != first.conversation_id
    assert again.resumed is None


async def test_voice_and_text_land_in_one_thread(erin: ConversationManager) -> None:
    sessions = SessionManager(erin)
    spoken = await sessions.create_session("microphone", channel="voice", device="phone")
    await erin.add_message(spoken.conversation_id, "user", "by voice", content_type="audio")
    typed = await sessions.create_session("keyboard", channel="text", device="phone")
    await erin.add_message(typed.conversation_id, "user", "by text")
    context = await sessions.load_session_context("microphone")
    assert [(m["content"], m["content_type"]) for m in context] == [
        ("by voice", "audio"),
        ("by text", "text"),
    ]
    assert await sessions.sessions_of(spoken.conversation_id) == ["keyboard", "microphone"]


async def test_a_session_in_which_nothing_was_said_leaves_nothing(erin: ConversationManager) -> None:
    sessions = SessionManager(erin)
    silent = await sessions.create_session("s1", device="kitchen")
    assert await sessions.end_session("s1") is None
    assert await erin.store.get(silent.conversation_id) is None
    noted = await sessions.create_session("s2")
    await erin.store.update(noted.conversation_id, Changes(subject="the roof"))
    assert await sessions.end_session("s2") is not None
    shared = await sessions.create_session("s3")
    await sessions.create_session("s4", conversation_id=shared.conversation_id)
    assert await sessions.end_session("s3") is not None


async def test_sessions_without_an_end_are_swept(erin: ConversationManager, clock: FixedClock) -> None:
    sessions = SessionManager(erin)
    spoken, silent, alive = [await sessions.create_session(name) for name in ("spoken", "silent", "alive")]
    await say(erin, spoken.conversation_id)
    clock.advance(timedelta(days=2))
    await say(erin, alive.conversation_id)
    assert await sessions.sweep() == Swept(sessions=2, conversations=1)
    assert await sessions.get_conversation_id("spoken") is None
    assert await erin.store.get(silent.conversation_id) is None
    assert await sessions.get_conversation_id("alive") == alive.conversation_id
    assert await sessions.sweep() == Swept()
    again = await sessions.create_session("spoken")
    assert again.conversation_id == spoken.conversation_id


@pytest.mark.requirement("004-046")
async def test_begin_resumption_end_and_sweep_of_a_session_are_logged(
    erin: ConversationManager, clock: FixedClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="aforesaid.sessions")
    sessions = SessionManager(erin)
    session = await sessions.create_session("kitchen tablet")
    await say(erin, session.conversation_id)
    await sessions.create_session("kitchen tablet")
    await sessions.end_session("kitchen tablet")
    await sessions.create_session("hall")
    clock.advance(timedelta(days=2))
    await sessions.sweep()
    logged = [record.getMessage() for record in caplog.records if record.name == "aforesaid.sessions"]
    assert logged == [
        "a session began",
        "a session began",
        "a session ended",
        "a session began",
        "an abandoned session was ended",
    ]
    assert "kitchen tablet" not in caplog.text


async def test_beginning_a_session_sweeps_now_and_then(erin: ConversationManager, clock: FixedClock) -> None:
    sessions = SessionManager(erin)
    await sessions.create_session("left open")
    clock.advance(timedelta(days=2))
    await sessions.create_session("another")
    assert await sessions.get_conversation_id("left open") is None


async def test_a_session_that_goes_on_with_an_old_conversation_is_not_swept(
    erin: ConversationManager, clock: FixedClock
) -> None:
    sessions = SessionManager(erin)
    old = await sessions.create_session("tab")
    await say(erin, old.conversation_id)
    clock.advance(timedelta(days=3))
    await sessions.create_session("tab")
    await sessions.create_session("desk", conversation_id=old.conversation_id)
    clock.advance(timedelta(hours=2))
    assert await SessionManager(erin).sweep() == Swept()
    assert await sessions.sessions_of(old.conversation_id) == ["desk", "tab"]
    clock.advance(timedelta(hours=23))
    assert await SessionManager(erin).sweep() == Swept(sessions=2)


async def test_names_that_others_gave_their_conversations_are_not_swept(
    erin: ConversationManager, clock: FixedClock
) -> None:
    kitchen = await erin.get_or_create_conversation("kitchen")
    await say(erin, kitchen.id)
    desk = await SessionManager(erin).create_session("desk", conversation_id=kitchen.id)
    clock.advance(timedelta(days=2))
    assert await SessionManager(erin).sweep() == Swept(sessions=1)
    assert await SessionManager(erin).sessions_of(desk.conversation_id) == ["kitchen"]
    assert (await erin.get_or_create_conversation("kitchen")).id == kitchen.id


async def test_a_session_leaves_only_the_note_where_to_go_on(erin: ConversationManager) -> None:
    sessions = SessionManager(erin)
    for _ in range(3):
        session = await sessions.create_session("s1")
        await say(erin, session.conversation_id)
    await sessions.end_session("s1")
    assert len(await erin.store.sessions(session.conversation_id)) == 1


async def test_one_sweep_an_hour_is_enough_for_all_who_come(clock: FixedClock) -> None:
    async with aforesaid.open(
        "memory://", retention=aforesaid.Retention(sweep_every=None), clock=clock
    ) as memory:
        await SessionManager(memory.of("erin")).create_session("left open")
        clock.advance(timedelta(days=1))
        await SessionManager(memory.of("erin")).create_session("another")
        assert await SessionManager(memory.of("erin")).get_conversation_id("left open") is None
        await SessionManager(memory.of("erin")).create_session("left open, too")
        clock.advance(timedelta(days=1, minutes=30))
        memory.of("erin").session_sweeps["erin"] = clock() - timedelta(minutes=59)
        await SessionManager(memory.of("erin")).create_session("a third")
        assert await SessionManager(memory.of("erin")).get_conversation_id("left open, too") is not None


@pytest.mark.parametrize("together", ["the session", "the device"])
async def test_those_who_come_at_once_share_a_conversation(erin: ConversationManager, together: str) -> None:
    def begin(number: int) -> Any:
        sessions = SessionManager(erin)
        if together == "the session":
            return sessions.create_session("door")
        return sessions.create_session(f"s{number}", device="door")

    begun = await asyncio.gather(*(begin(number) for number in range(12)))
    assert len({session.conversation_id for session in begun}) == 1


@pytest.mark.parametrize("session_id", ["", "a\0b", "x" * 1025, "\x1fended:s", None])
async def test_what_is_no_session_id_is_refused(session_id: Any) -> None:
    sessions = SessionManager(ConversationManager())
    for call in (sessions.create_session, sessions.get_conversation_id, sessions.end_session):
        with pytest.raises(InvalidId, match="session_id"):
            await call(session_id)


async def test_long_names_are_names_like_others() -> None:
    sessions = SessionManager(ConversationManager())
    made = [await sessions.create_session("x" * 1023 + end, device="y" * 1023 + end) for end in "ab"]
    for session in made:
        await say(sessions.conversation_manager, session.conversation_id)
        await sessions.end_session(session.session_id)
    again = [await sessions.create_session("x" * 1023 + end) for end in "ab"]
    assert [session.conversation_id for session in again] == [session.conversation_id for session in made]


async def test_bad_values_are_refused_and_named() -> None:
    sessions = SessionManager(ConversationManager())
    with pytest.raises(InvalidInput, match="channel"):
        await sessions.create_session("s", channel="by telepathy")
    with pytest.raises(InvalidId, match="device"):
        await sessions.create_session("s", device="")
    assert await sessions.get_conversation_id("s") is None
    for bad in ({"resume": ("device", "device")}, {"resume": ("luck",)}, {"idle_after": None}):
        with pytest.raises(InvalidInput, match=next(iter(bad))):
            SessionPolicy(**bad)


async def test_names_of_another_owner_lead_nowhere() -> None:
    async with aforesaid.open("memory://", retention=aforesaid.Retention(sweep_every=None)) as memory:
        erin, bob = SessionManager(memory.of("erin")), SessionManager(memory.of("bob"))
        hers = await erin.create_session("s", device="speaker")
        his = await bob.create_session("s", device="speaker")
        assert his.conversation_id != hers.conversation_id
        with pytest.raises(ConversationNotFound):
            await bob.create_session("t", conversation_id=hers.conversation_id)
