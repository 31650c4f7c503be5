"""Sessions come and go; the conversation stays."""

from typing import Any

from hypothesis import strategies as st

from aforesaid.memory.manager import ConversationManager
from aforesaid.memory.sessions import RESERVED, SessionManager
from aforesaid.model.ids import new_id
from tests.builders import Target, forget, names, say, spoken
from tests.examples import also_for_all, for_all


# Feature: conversation-context, Property 4: Cross-session persistence
@for_all(said=spoken, restart=st.integers(0, 3).map(lambda number: number == 3))
def test_a_new_session_finds_the_history_after_a_restart(
    target: Target, said: list[Any], restart: bool
) -> None:
    owner = f"owner-{new_id()}"

    async def first(erin: ConversationManager) -> str:
        conversation = await erin.get_or_create_conversation("s")
        await say(erin, conversation.id, said)
        return conversation.id

    async def second(erin: ConversationManager) -> None:
        conversation = await erin.get_or_create_conversation("s")
        assert conversation.id == conversation_id
        context = await erin.load_context(conversation.id)
        assert [(m["role"], m["content"], m["content_type"]) for m in context] == said

    conversation_id = target.run_as(owner, first)
    target.run_elsewhere(owner, second)
    if restart:
        target.restart()
        target.run_as(owner, second)
    target.run_as(owner, forget)


# Feature: conversation-context, Property 11: Session initialization with history
@for_all(said=spoken, session=names)
def test_a_session_of_an_existing_conversation_starts_with_its_history(
    target: Target, said: list[Any], session: str
) -> None:
    async def scenario(erin: ConversationManager) -> None:
        conversation = await erin.get_or_create_conversation("earlier: " + session)
        await say(erin, conversation.id, said)
        await erin.store.bind(session, conversation.id)
        resumed = await erin.get_or_create_conversation(session)
        assert resumed.id == conversation.id
        assert [message.content for message in resumed.messages] == [content for _, content, _ in said]

    target.run(scenario)


# Feature: conversation-context, Property 13: Multi-session continuity
@for_all(sessions=st.lists(spoken, min_size=2, max_size=4))
def test_what_was_said_in_all_sessions_is_there(target: Target, sessions: list[list[Any]]) -> None:
    async def scenario(erin: ConversationManager) -> None:
        conversation = await erin.get_or_create_conversation("session 0")
        for number, said in enumerate(sessions):
            await erin.store.bind(f"session {number}", conversation.id)
            resumed = await erin.get_or_create_conversation(f"session {number}")
            await say(erin, resumed.id, said)
            await erin.store.unbind(f"session {number}")
        stored = await erin.messages(conversation.id, limit=1000)
        assert [message.content for message in stored] == [
            content for said in sessions for _, content, _ in said
        ]

    target.run(scenario)


# Feature: conversation-context, Property 24: Session-to-conversation mapping
@for_all(sessions=st.lists(names, min_size=1, max_size=5, unique=True))
def test_a_session_leads_to_its_conversation(target: Target, sessions: list[str]) -> None:
    async def scenario(erin: ConversationManager) -> None:
        made = {session: (await erin.get_or_create_conversation(session)).id for session in sessions}
        assert len(set(made.values())) == len(sessions)
        for session, conversation_id in made.items():
            bound = await erin.store.session(session)
            assert bound is not None
            assert bound.id == conversation_id
            assert (await erin.get_or_create_conversation(session)).id == conversation_id

    target.run(scenario)


sessions_ = names.filter(lambda name: not name.startswith(RESERVED))
channels = st.sampled_from(["voice", "text"])


# Feature: conversation-context, Property 11: Session initialization with history
@also_for_all(said=spoken, session=sessions_, channel=channels)
def test_a_session_asked_into_a_conversation_begins_with_its_history(
    target: Target, said: list[Any], session: str, channel: Any
) -> None:
    async def scenario(erin: ConversationManager) -> None:
        conversation = await erin.get_or_create_conversation("earlier: " + session)
        await say(erin, conversation.id, said)
        sessions = SessionManager(erin)
        begun = await sessions.create_session(session, channel, conversation_id=conversation.id)
        assert [message.content for message in begun.conversation.messages] == [text for _, text, _ in said]
        context = await sessions.load_session_context(session)
        assert [message["content"] for message in context] == [text for _, text, _ in said]

    target.run(scenario)


# Feature: conversation-context, Property 13: Multi-session continuity
@also_for_all(turns=st.lists(st.tuples(spoken, channels), min_size=2, max_size=4))
def test_sessions_of_one_device_go_on_with_one_conversation(
    target: Target, turns: list[tuple[list[Any], Any]]
) -> None:
    async def scenario(erin: ConversationManager) -> None:
        for number, (said, channel) in enumerate(turns):
            sessions = SessionManager(erin)  # as in another process: nothing is remembered but in the store
            begun = await sessions.create_session(f"session {number}", channel, device="kitchen")
            await say(erin, begun.conversation_id, said)
            await sessions.end_session(f"session {number}")
        stored = await erin.messages(begun.conversation_id, limit=1000)
        assert [message.content for message in stored] == [text for said, _ in turns for _, text, _ in said]
        assert len((await erin.list()).conversations) == 1

    target.run(scenario)


# Feature: conversation-context, Property 24: Session-to-conversation mapping
@also_for_all(
    sessions=st.lists(sessions_, min_size=1, max_size=4, unique=True), ended=st.sets(st.integers(0, 3))
)
def test_an_active_session_has_its_conversation_and_an_ended_one_has_none(
    target: Target, sessions: list[str], ended: set[int]
) -> None:
    async def scenario(erin: ConversationManager) -> None:
        manager = SessionManager(erin)
        made = {}
        for name in sessions:
            made[name] = (await manager.create_session(name)).conversation_id
            await say(erin, made[name], [("user", name, "text")])
        over = {name for number, name in enumerate(sessions) if number in ended}
        for name in over:
            await manager.end_session(name)
        assert len(set(made.values())) == len(sessions)
        found = {name: await SessionManager(erin).get_conversation_id(name) for name in sessions}
        assert found == {name: None if name in over else made[name] for name in sessions}
        again = {name: (await SessionManager(erin).create_session(name)).conversation_id for name in over}
        assert again == {name: made[name] for name in over}

    target.run(scenario)
