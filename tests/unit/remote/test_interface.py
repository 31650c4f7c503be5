"""Local and remote managers and memories implement one interface."""

import inspect
from typing import Any

import pytest

import aforesaid
from aforesaid import ConversationManager
from aforesaid.contacts.book import Contacts, ContactsProtocol
from aforesaid.memory.interface import ManagerProtocol, MemoryProtocol
from aforesaid.remote import RemoteManager, RemoteMemory, SyncManager
from aforesaid.remote.contacts import RemoteContacts, SyncContacts


# mypy proves by these functions that each class satisfies its protocol.
def a_local_manager(manager: ConversationManager) -> ManagerProtocol:
    return manager


def a_remote_manager(manager: RemoteManager) -> ManagerProtocol:
    return manager


def a_local_memory(memory: aforesaid.Memory) -> MemoryProtocol:
    return memory


def a_remote_memory(memory: RemoteMemory) -> MemoryProtocol:
    return memory


def local_contacts(contacts: Contacts) -> ContactsProtocol:
    return contacts


def remote_contacts(contacts: RemoteContacts) -> ContactsProtocol:
    return contacts


def members(kind: type) -> dict[str, Any]:
    return {name: inspect.getattr_static(kind, name) for name in dir(kind) if not name.startswith("_")}


def methods(kind: type) -> dict[str, list[inspect.Parameter]]:
    """The public methods with their parameters, by name, kind and default."""
    return {
        name: [
            parameter.replace(annotation=inspect.Parameter.empty)
            for parameter in inspect.signature(member).parameters.values()
        ]
        for name, member in members(kind).items()
        if inspect.isfunction(member)
    }


@pytest.mark.parametrize(
    ("protocol", "kind"),
    [
        (ManagerProtocol, ConversationManager),
        (ManagerProtocol, RemoteManager),
        (ManagerProtocol, SyncManager),
        (MemoryProtocol, aforesaid.Memory),
        (MemoryProtocol, RemoteMemory),
        (ContactsProtocol, Contacts),
        (ContactsProtocol, RemoteContacts),
        (ContactsProtocol, SyncContacts),
    ],
)
def test_every_method_has_the_parameters_of_the_protocol(protocol: type, kind: type) -> None:
    wanted = methods(protocol)
    found = methods(kind)
    assert {name: found.get(name) for name in wanted} == wanted


@pytest.mark.parametrize("name", methods(ManagerProtocol))
def test_a_method_is_awaited_where_the_protocols_is(name: str) -> None:
    is_awaited = inspect.iscoroutinefunction(members(ManagerProtocol)[name])
    assert inspect.iscoroutinefunction(members(ConversationManager)[name]) == is_awaited
    assert inspect.iscoroutinefunction(members(RemoteManager)[name]) == is_awaited
    assert not inspect.iscoroutinefunction(members(SyncManager)[name])


def test_the_protocol_has_every_method_of_a_manager() -> None:
    assert set(methods(ConversationManager)) == set(methods(ManagerProtocol))
    assert set(methods(RemoteManager)) == set(methods(ManagerProtocol))
    assert set(methods(SyncManager)) == set(methods(ManagerProtocol))


def test_a_remote_manager_returns_what_a_local_one_returns() -> None:
    for name in methods(ManagerProtocol):
        local, remote = members(ConversationManager)[name], members(RemoteManager)[name]
        returned = inspect.signature(remote).return_annotation
        assert returned == inspect.signature(local).return_annotation, name
