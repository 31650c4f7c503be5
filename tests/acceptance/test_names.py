"""Any text names a conversation, in every method of a manager, on every store and through a server."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aforesaid.errors import AforesaidError, ArchiveNotFound, ConversationNotFound, InvalidId, InvalidSetting
from aforesaid.memory.interface import ManagerProtocol
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.ids import is_uuid, new_id
from aforesaid.model.messages import Message
from tests.builders import Target

NAMES = ("kitchen", "conv123", "01J9ZC3M8QK4T7V2XW5Y6B0NAD", "a/b ?#%&", "..", "Küche 🌷", "x" * 1024)

SAID = Message(role="user", content="more")

Use = Callable[[ManagerProtocol, str], Awaitable[Any]]


async def _turn(manager: ManagerProtocol, name: str) -> None:
    async with manager.turn(name) as turn:
        turn.user("more")


async def _watch(manager: ManagerProtocol, name: str) -> None:
    async with manager.watch(name):
        pass


async def _compare(manager: ManagerProtocol, name: str) -> None:
    branch = await manager.fork(name)
    await manager.compare(name, branch.id)
    await manager.compare(branch.id, name)


async def _merge(manager: ManagerProtocol, name: str) -> None:
    branch = await manager.fork(name)
    await manager.add_message(branch.id, "user", "more")
    await manager.merge(name, branch.id)


async def _with_other(manager: ManagerProtocol, name: str) -> str:
    """The name of another conversation."""
    await manager.get_conversation(name)
    other = f"next to {name}"
    await manager.add_message(other, "user", "hello")
    return other


async def _link(manager: ManagerProtocol, name: str) -> None:
    other = await _with_other(manager, name)
    await manager.link(name, other)
    assert [one.name for one in await manager.links(other)] == [name]


async def _unlink(manager: ManagerProtocol, name: str) -> None:
    await _link(manager, name)
    await manager.unlink(name, f"next to {name}")
    assert await manager.links(name) == []


async def _joined(manager: ManagerProtocol, name: str) -> None:
    await manager.set_participant(name, "p", name="Pat")
    assert [one.id for one in await manager.participants(name)] == ["p"]


async def _left(manager: ManagerProtocol, name: str) -> None:
    await manager.get_conversation(name)
    await _joined(manager, name)
    await manager.remove_participant(name, "p")


async def _read(manager: ManagerProtocol, name: str) -> None:
    await manager.get_conversation(name)
    await _joined(manager, name)
    await manager.mark_read_up_to(name, "m", participant_id="p")
    assert len(await manager.read_markers(name)) == 1
    assert await manager.unread(name, participant_id="p") == 1


async def _notified(manager: ManagerProtocol, name: str) -> None:
    await manager.get_conversation(name)
    await _joined(manager, name)
    await manager.set_notification_rule(name, "none", participant_id="p")
    assert await manager.notification_rule(name, participant_id="p") == "none"


USES: dict[str, Use] = {
    "assign": lambda manager, name: manager.assign(name, "erin"),
    "branches": lambda manager, name: manager.branches(name),
    "fork": lambda manager, name: manager.fork(name),
    "compare": _compare,
    "merge": _merge,
    "link": _link,
    "links": lambda manager, name: manager.links(name),
    "unlink": _unlink,
    "participants": lambda manager, name: manager.participants(name),
    "set_participant": _joined,
    "remove_participant": _left,
    "mark_read_up_to": _read,
    "read_markers": lambda manager, name: manager.read_markers(name),
    "unread": _read,
    "set_notification_rule": _notified,
    "notification_rule": _notified,
    "preview_redact": lambda manager, name: manager.preview_redact(name, "m"),
    "redact_everywhere": lambda manager, name: manager.redact_everywhere(name, "m"),
    "get_conversation": lambda manager, name: manager.get_conversation(name),
    "update_metadata": lambda manager, name: manager.update_metadata(name, subject="s"),
    "mark_read": lambda manager, name: manager.mark_read(name),
    "add_message": lambda manager, name: manager.add_message(name, "user", "more"),
    "append": lambda manager, name: manager.append(name, [SAID]),
    "turn": _turn,
    "rewrite_history": lambda manager, name: manager.rewrite_history(name, [SAID]),
    "put_document": lambda manager, name: manager.put_document("k", "d", b"1", conversation_id=name),
    "get_document": lambda manager, name: manager.get_document("k", "d", conversation_id=name),
    "list_documents": lambda manager, name: manager.list_documents("k", conversation_id=name),
    "delete_document": lambda manager, name: manager.delete_document("k", "d", conversation_id=name),
    "open_turn": lambda manager, name: manager.open_turn(name, [SAID]),
    "unanswered": lambda manager, name: manager.unanswered(name),
    "discard_turn": lambda manager, name: manager.discard_turn(name, "t"),
    "messages": lambda manager, name: manager.messages(name),
    "entries": lambda manager, name: manager.entries(name),
    "watch": _watch,
    "interrupted": lambda manager, name: manager.interrupted(name, "a", heard=5),
    "summary": lambda manager, name: manager.summary(name),
    "summarize": lambda manager, name: manager.summarize(name),
    "similar": lambda manager, name: manager.similar(name),
    "lifetime": lambda manager, name: manager.lifetime(name),
    "delete_conversation": lambda manager, name: manager.delete_conversation(name),
    "clear_history": lambda manager, name: manager.clear_history(name),
    "redact": lambda manager, name: manager.redact(name, "m"),
    "archive": lambda manager, name: manager.archive(name),
    "restore": lambda manager, name: manager.restore(name),
    "erase": lambda manager, name: manager.erase(name),
    "load_context": lambda manager, name: manager.load_context(name),
    "load_request": lambda manager, name: manager.load_request(name, "openai_chat", pending=[SAID]),
}
"""One call of each method that takes a conversation id. `associate_client` is with the contacts."""

CREATING = (
    *("update_metadata", "set_participant", "add_message", "append"),
    *("turn", "put_document", "open_turn"),
)

UNAVAILABLE = (InvalidSetting, ArchiveNotFound)
"""What a memory without archives or a summarizer raises for any conversation."""


def test_every_method_with_a_conversation_id_is_tested() -> None:
    found = {
        name
        for name, method in inspect.getmembers(ManagerProtocol, inspect.isfunction)
        if "conversation_id" in inspect.signature(method).parameters
    }
    assert found == {*USES, "associate_client"}


def test_a_name_works_in_every_method(target: Target) -> None:
    async def scenario(erin: ConversationManager) -> None:
        for method, use in USES.items():
            await erin.add_message(method, "user", "hello", message_id="m")
            await erin.add_message(method, "assistant", "hello there", message_id="a")
            record = await erin.get_conversation(method)
            assert is_uuid(record.id)
            assert record.name == method
            assert await erin.get_conversation(record.id) == record
            try:
                await use(erin, method)
            except UNAVAILABLE:
                continue
            gone = method in ("delete_conversation", "erase")
            listed = {one.name for one in (await erin.list(limit=100)).conversations}
            assert (method in listed) != gone, method

    target.run(scenario)


def test_writing_to_an_unknown_name_creates_the_conversation(target: Target) -> None:
    async def scenario(erin: ConversationManager) -> None:
        for method in CREATING:
            await USES[method](erin, method)
            assert (await erin.get_conversation(method)).name == method
            with pytest.raises(ConversationNotFound):
                await USES[method](erin, new_id())
        assert {one.name for one in (await erin.list()).conversations} == set(CREATING)

    target.run(scenario)


def test_reading_an_unknown_name_creates_nothing(target: Target) -> None:
    async def scenario(erin: ConversationManager) -> None:
        # A new name with a question is a request: that of the conversation's first turn.
        assert (await erin.load_request("nowhere", "openai_chat", pending=[SAID]))["messages"] != []
        for method in USES.keys() - {*CREATING, "load_request"}:
            by_name = await _outcome(USES[method], erin, "nowhere")
            assert by_name == await _outcome(USES[method], erin, new_id()), method
        with pytest.raises(ConversationNotFound, match="nowhere"):
            await erin.get_conversation("nowhere")
        assert (await erin.list()).conversations == ()

    target.run(scenario)


async def _outcome(use: Use, manager: ManagerProtocol, conversation_id: str) -> type | None:
    try:
        await use(manager, conversation_id)
    except AforesaidError as error:
        return type(error)
    return None


@pytest.mark.parametrize("name", NAMES)
def test_any_text_is_a_name(target: Target, name: str) -> None:
    async def scenario(erin: ConversationManager) -> None:
        stored = await erin.add_message(name, "user", "hello")
        again = await erin.add_message(name, "user", "again")
        assert stored.name == again.name == name
        assert [message.content for message in await erin.messages(name)] == ["hello", "again"]
        assert (await erin.get_conversation(stored.id)).name == name

    target.run(scenario)


@pytest.mark.parametrize("wrong", ["", "x" * 1025, "a\0b", "\ud800", 7, None])
def test_what_no_store_can_keep_is_refused(target: Target, wrong: Any) -> None:
    async def scenario(erin: ConversationManager) -> None:
        with pytest.raises(InvalidId, match="conversation_id"):
            await erin.add_message(wrong, "user", "hello")
        assert (await erin.list()).conversations == ()

    target.run(scenario)


def test_a_refused_write_creates_nothing(target: Target) -> None:
    async def scenario(erin: ConversationManager) -> None:
        with pytest.raises(AforesaidError):
            await erin.add_message("kitchen", "nobody", "hello")  # type: ignore[arg-type]
        with pytest.raises(ConversationNotFound):
            await erin.append("kitchen", [SAID], expected_revision=3)
        assert (await erin.list()).conversations == ()

    target.run(scenario)


def test_owners_with_the_same_name_have_different_conversations(target: Target) -> None:
    async def write(manager: ConversationManager) -> str:
        return (await manager.add_message("kitchen", "user", manager.owner)).id

    async def read(manager: ConversationManager) -> list[Any]:
        return [message.content for message in await manager.messages("kitchen")]

    owners = [f"owner-{new_id()}" for _ in range(2)]
    ids = [target.run_as(owner, write) for owner in owners]
    assert ids[0] != ids[1]
    assert [target.run_as(owner, read) for owner in owners] == [[owner] for owner in owners]


def test_a_name_survives_a_restart_and_is_gone_after_erasure(target: Target) -> None:
    owner = f"owner-{new_id()}"

    async def write(erin: ConversationManager) -> str:
        return (await erin.add_message("kitchen", "user", "hello")).id

    async def erase(erin: ConversationManager) -> None:
        assert (await erin.get_conversation("kitchen")).name == "kitchen"
        await erin.erase("kitchen")
        assert await erin.list() == type(await erin.list())(conversations=())

    made = target.run_as(owner, write)
    target.restart()
    target.run_as(owner, erase)
    assert target.run_as(owner, write) == made
