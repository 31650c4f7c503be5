"""Three faces, one interface: the manager in this process, the one that awaits, the one that waits."""

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

from aforesaid.contacts.association import Association, AssociationProtocol
from aforesaid.contacts.book import Contacts, ContactsProtocol
from aforesaid.memory.interface import ManagerProtocol, MemoryProtocol
from aforesaid.memory.manager import ConversationManager
from aforesaid.memory.opening import Memory
from aforesaid.memory.turns import TurnInProgress
from aforesaid.remote import Client, RemoteManager, RemoteMemory, SyncManager, SyncTurn
from aforesaid.remote.managers import RemoteAssociation, RemoteContacts, SyncAssociation, SyncContacts
from aforesaid.remote.requests import OwnerCalls

NOT_CALLS = {
    *("turn", "watch", "idling_after", "counting_with", "calibrate", "now", "with_policy", "as_participant")
}
"""Methods that are no single call: each face has its own."""


def public(kind: type) -> dict[str, Callable[..., Any]]:
    return {name: member for name, member in inspect.getmembers(kind, callable) if not name.startswith("_")}


def parameters(method: Callable[..., Any]) -> list[tuple[str, Any, Any, str]]:
    """What a method takes, without `self`: names, kinds, defaults, and types as they are written."""
    given = list(inspect.signature(method).parameters.values())[1:]
    return [(one.name, one.kind, one.default, _written(one.annotation)) for one in given]


def _written(annotation: Any) -> str:
    """The type without the modules that its names are from."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b[a-z_]+\.(?=\w)", "", text)


# mypy proves by these functions that each class satisfies its protocol.


def a_local_manager(manager: ConversationManager) -> ManagerProtocol:
    return manager


def a_remote_manager(manager: RemoteManager) -> ManagerProtocol:
    return manager


def a_local_memory(memory: Memory) -> MemoryProtocol:
    return memory


def a_remote_memory(memory: RemoteMemory) -> MemoryProtocol:
    return memory


def local_contacts(contacts: Contacts) -> ContactsProtocol:
    return contacts


def remote_contacts(contacts: RemoteContacts) -> ContactsProtocol:
    return contacts


@pytest.mark.parametrize(
    ("protocol", "kind"),
    [
        (ManagerProtocol, ConversationManager),
        (ManagerProtocol, RemoteManager),
        (MemoryProtocol, Memory),
        (MemoryProtocol, RemoteMemory),
        (ContactsProtocol, Contacts),
        (ContactsProtocol, RemoteContacts),
    ],
)
def test_every_method_is_that_of_the_protocol(protocol: type, kind: type) -> None:
    for name, method in public(protocol).items():
        here = getattr(kind, name)
        assert parameters(here) == parameters(method), name
        assert inspect.iscoroutinefunction(here) == inspect.iscoroutinefunction(method), name


def test_a_protocol_has_every_method() -> None:
    assert public(ManagerProtocol).keys() == public(ConversationManager).keys()
    assert public(ContactsProtocol).keys() == public(Contacts).keys()


LOCAL = public(ConversationManager)
CALLS = sorted(LOCAL.keys() - NOT_CALLS)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("face", [OwnerCalls, RemoteManager, SyncManager])
def test_every_method_of_the_manager_is_there_with_its_signature(face: type, name: str) -> None:
    assert name in public(face), f"{face.__name__} has no {name}"
    assert parameters(getattr(face, name)) == parameters(LOCAL[name])


@pytest.mark.parametrize("name", CALLS)
def test_a_remote_manager_inherits_no_call(name: str) -> None:
    assert name in vars(RemoteManager), "inherited, it would look for a store here"
    assert inspect.iscoroutinefunction(getattr(RemoteManager, name))
    assert not inspect.iscoroutinefunction(getattr(SyncManager, name))
    assert getattr(RemoteManager, name).__doc__ == LOCAL[name].__doc__


@pytest.mark.parametrize("name", sorted(NOT_CALLS & LOCAL.keys()))
@pytest.mark.parametrize("face", [RemoteManager, SyncManager])
def test_what_is_no_call_has_the_same_signature_too(face: type, name: str) -> None:
    assert parameters(getattr(face, name)) == parameters(LOCAL[name])


def test_a_remote_manager_returns_what_a_local_one_returns() -> None:
    for name, method in LOCAL.items():
        remote = inspect.signature(getattr(RemoteManager, name)).return_annotation
        assert _written(remote) == _written(inspect.signature(method).return_annotation), name


def test_nothing_is_there_that_the_manager_has_not() -> None:
    assert public(RemoteManager).keys() == LOCAL.keys()
    assert public(SyncManager).keys() == LOCAL.keys()


def properties(kind: type) -> set[str]:
    found = inspect.getmembers(kind, lambda member: isinstance(member, property))
    return {name for name, _ in found if not name.startswith("_")}


def test_every_property_of_the_manager_is_there() -> None:
    assert properties(ConversationManager) <= properties(RemoteManager)
    assert not issubclass(RemoteManager, ConversationManager), "inherited, it would look for a store here"
    assert properties(ConversationManager) - {"degraded"} <= properties(SyncManager)


@pytest.mark.parametrize("name", sorted(public(Contacts)))
@pytest.mark.parametrize("face", [RemoteContacts, SyncContacts])
def test_contacts_have_the_same_methods(face: type, name: str) -> None:
    assert parameters(getattr(face, name)) == parameters(getattr(Contacts, name))
    assert name in vars(face) or name == "every", "inherited, it would look for a store here"


@pytest.mark.parametrize("name", sorted(public(AssociationProtocol)))
@pytest.mark.parametrize("face", [RemoteAssociation, SyncAssociation])
def test_an_association_has_the_same_methods(face: type, name: str) -> None:
    assert parameters(getattr(face, name)) == parameters(getattr(Association, name))
    assert getattr(face, name).__doc__ == getattr(Association, name).__doc__


def test_a_turn_has_the_same_methods_for_both() -> None:
    turn = public(TurnInProgress)
    assert public(SyncTurn).keys() == turn.keys()
    for name, method in turn.items():
        assert parameters(getattr(SyncTurn, name)) == parameters(method)


def test_every_method_of_a_memory_is_its_own_behind_a_server() -> None:
    inherited = public(Memory).keys() - vars(RemoteMemory).keys()
    assert inherited == set(), "inherited, it would look for a backend here"
    for name, method in public(Memory).items():
        assert parameters(getattr(RemoteMemory, name)) == parameters(method)


def test_a_client_that_waits_has_what_concerns_an_owner() -> None:
    assert public(Client).keys() == {"of", "owners", "start", "close"}
