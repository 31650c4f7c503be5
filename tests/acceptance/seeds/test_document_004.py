"""The design of the conversation context, as printed: the manager, sessions, agents and clients."""

import inspect
import json
from datetime import datetime
from typing import Any, Optional

import pytest

from aforesaid import compat
from aforesaid.agents import AgenticLoop, Specialist
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.messages import Message
from tests.acceptance.seeds.printed import parameters, printed, run
from tests.builders import Target
from tests.doubles import Scripted

IMPORTS: dict[str, Any] = {
    "Optional": Optional,
    "List": list,
    "datetime": datetime,
    "ConversationManager": compat.ConversationManager,
}

METHODS = {
    "__init__": "",
    "get_or_create_conversation": "",
    "load_context": "",
    "add_message": "",
    "associate_client": "",
    "update_metadata": "",
    "search_conversations": "",
}


SETTINGS = {"limit": compat.ConversationConfig().search_limit}
"""Parameters whose default is a setting."""


def with_marks(methods: dict[str, str]) -> list[Any]:
    return [
        pytest.param(name, marks=[pytest.mark.xfail(strict=True, reason=reason)] if reason else [])
        for name, reason in methods.items()
    ]


def assert_same_parameters(ours: Any, theirs: Any) -> None:
    """The printed parameters come first, in their order, with their defaults; others are by keyword."""
    expected = parameters(theirs)
    given = [(name, SETTINGS.get(name, default)) for name, default in parameters(ours)]
    assert given[: len(expected)] == expected
    more = list(inspect.signature(ours).parameters.values())[len(expected) :]
    assert all(one.kind is inspect.Parameter.KEYWORD_ONLY for one in more)


@pytest.mark.requirement("004-001", "004-003", "004-005", "004-007", "004-009", "004-010", "004-011")
@pytest.mark.parametrize("method", with_marks(METHODS))
async def test_the_manager_has_the_printed_parameters(method: str) -> None:
    theirs = (await run(printed("004-02"), **IMPORTS))["ConversationManager"]
    assert_same_parameters(getattr(compat.ConversationManager, method), getattr(theirs, method))


async def test_every_printed_method_of_the_manager_is_compared() -> None:
    theirs = (await run(printed("004-02"), **IMPORTS))["ConversationManager"]
    assert [name for name, one in vars(theirs).items() if inspect.isfunction(one)] == list(METHODS)


@pytest.mark.requirement("004-014", "004-015", "004-016", "004-017")
@pytest.mark.parametrize(
    "is_printed",
    [True, False],
    ids=["printed", "face"],
)
def test_a_session_leads_to_its_conversation(target: Target, is_printed: bool) -> None:
    async def scenario(manager: ConversationManager) -> None:
        names = await run(printed("004-03"), **IMPORTS)
        manages: Any = names["S2SSessionManager"] if is_printed else compat.S2SSessionManager
        sessions = manages(manager)
        await sessions.create_session("session 1")
        conversation_id = await sessions.get_conversation_id("session 1")
        assert sessions.session_to_conversation == {"session 1": conversation_id}
        await manager.add_message(conversation_id, "user", "hello")
        context = await sessions.load_session_context("session 1")
        assert [(message["role"], message["content"]) for message in context] == [("user", "hello")]
        assert await sessions.get_conversation_id("session 2") is None
        assert list(await sessions.load_session_context("session 2")) == []

    target.run(scenario)


@pytest.mark.requirement("004-006")
def test_the_context_of_an_unknown_session_equals_an_empty_list(target: Target) -> None:
    async def scenario(manager: ConversationManager) -> None:
        context: Any = await compat.S2SSessionManager(manager).load_session_context("session 2")
        assert context == []

    target.run(scenario)


@pytest.mark.requirement("004-018", "004-019", "004-020", "004-021", "004-022", "004-023")
@pytest.mark.parametrize(
    "is_printed",
    [True, False],
    ids=["printed", "face"],
)
def test_a_query_is_answered_with_its_context_and_stored(target: Target, is_printed: bool) -> None:
    asked: list[tuple[str, list[str]]] = []

    async def scenario(manager: ConversationManager) -> None:
        names = await run(printed("004-04"), **IMPORTS)
        supervises: Any = names["SupervisorAgent"] if is_printed else compat.SupervisorAgent

        class Supervisor(supervises):  # type: ignore[misc]
            session_manager = compat.S2SSessionManager(manager)
            agent_name = "supervisor_agent"

            async def _route_to_agent(self, query: str, context: Any) -> str:
                asked.append((query, [message["content"] for message in context]))
                return f"answer to {query}"

        record = await manager.get_or_create_conversation("session 1")
        supervisor = Supervisor(manager)
        assert await supervisor.process_query("one", "session 1") == "answer to one"
        assert await supervisor.process_query("two", "session 1", record["id"]) == "answer to two"
        assert asked == [("one", []), ("two", ["one", "answer to one"])]
        stored = [
            (message.role, message.content, message.agent_name, message.content_type)
            for message in await manager.messages(record["id"])
        ]
        assert stored == [
            ("user", "one", None, "text"),
            ("assistant", "answer to one", "supervisor_agent", "text"),
            ("user", "two", None, "text"),
            ("assistant", "answer to two", "supervisor_agent", "text"),
        ]

    target.run(scenario)


@pytest.mark.requirement("004-024", "004-025", "004-026")
@pytest.mark.parametrize(
    "method",
    ["__init__", "identify_client", "link_conversation_to_client"],
)
async def test_the_client_association_has_the_printed_parameters(method: str) -> None:
    theirs = (await run(printed("004-05"), **IMPORTS))["ClientAssociationService"]
    assert_same_parameters(getattr(compat.ClientAssociationService, method), getattr(theirs, method))


@pytest.mark.requirement("004-009", "004-026")
def test_the_printed_association_links_a_client(target: Target) -> None:
    async def scenario(manager: ConversationManager) -> None:
        printed_class: Any = (await run(printed("004-05"), **IMPORTS))["ClientAssociationService"]
        contact = await manager.clients.add("Robert Johnson")

        class Service(printed_class):  # type: ignore[misc]
            async def identify_client(self, message_content: str) -> dict[str, Any] | None:
                known = "Johnson" in message_content
                return {"id": contact.id, "name": contact.name} if known else None

        service = Service(None, manager)
        record = await manager.get_or_create_conversation("s")
        assert await service.link_conversation_to_client(record["id"], "What about the house?") is None
        linked = await service.link_conversation_to_client(record["id"], "The Johnson house, please")
        assert (linked["client_id"], linked["client_name"]) == (contact.id, "Robert Johnson")

    target.run(scenario)


def value_of(key: str, value: Any) -> Any:
    """Return a value for comparison: `Z` and `+00:00` are the same zone."""
    return datetime.fromisoformat(value) if key == "timestamp" else value


@pytest.mark.requirement("004-030")
def test_messages_have_the_printed_structure(target: Target) -> None:
    messages = json.loads(printed("004-06"))

    async def scenario(manager: ConversationManager) -> None:
        record = await manager.get_or_create_conversation("s")
        await manager.append(record["id"], [Message.from_dict(message) for message in messages])
        context = await manager.load_context(record["id"])
        for message, given in zip(context, messages, strict=True):
            assert {key: value_of(key, message[key]) for key in given} == {
                key: value_of(key, value) for key, value in given.items()
            }

    target.run(scenario)


@pytest.mark.requirement("004-004", "004-031")
def test_a_record_has_the_printed_fields(target: Target) -> None:
    fields = eval(printed("004-07"))

    async def scenario(manager: ConversationManager) -> None:
        record = await manager.get_or_create_conversation("s")
        assert {name for name in fields if name in record.to_dict()} == set(fields)
        for name in ("channel", "status", "priority"):
            assert record[name] in fields[name].split(" | ")
        assert (record["unread_count"], list(record["messages"])) == (0, [])

    target.run(scenario)


@pytest.mark.requirement("004-032")
@pytest.mark.parametrize("size", [1, 2, 20])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 25])
async def test_a_context_window_returns_the_most_recent_messages(size: int, count: int) -> None:
    theirs = (await run(printed("004-08"), List=list))["ContextWindow"]
    messages = [{"role": "user", "content": str(number)} for number in range(count)]
    assert compat.ContextWindow(size).apply(messages) == theirs(size).apply(messages)
    assert compat.ContextWindow().size == theirs().size == 20


@pytest.mark.requirement("004-074", "004-075")
def test_a_spoken_question_is_stored_once(target: Target) -> None:
    async def scenario(manager: ConversationManager) -> None:
        async def transcribe_audio(audio_data: bytes) -> str:
            assert audio_data == b"sound"
            return "What's the status?"

        sessions = compat.S2SSessionManager(manager)
        await sessions.create_session("session 1")
        specialist = Specialist(loop=AgenticLoop(Scripted("In progress.")))
        names = await run(
            printed("004-14"),
            transcribe_audio=transcribe_audio,
            session_manager=sessions,
            conversation_manager=manager,
            supervisor_agent=compat.SupervisorAgent(manager, [specialist]),
        )
        assert await names["handle_voice_input"](b"sound", "session 1") == "In progress."
        conversation_id = await sessions.get_conversation_id("session 1")
        assert conversation_id is not None
        assert [(one.role, one.content_type) for one in await manager.messages(conversation_id)] == [
            ("user", "audio"),
            ("assistant", "text"),
        ]

    target.run(scenario)
