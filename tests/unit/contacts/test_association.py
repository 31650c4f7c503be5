"""Conversations find their client by what is said, off the answer path; by hand they are linked or not."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import aforesaid
from aforesaid.contacts import ClientAssociationService
from aforesaid.contacts.association import UNLINKED_KIND, Association
from aforesaid.contacts.resources import ContactResources, IdentificationQueue
from aforesaid.errors import ContactNotFound, ConversationNotFound, InvalidInput, StoreUnavailable
from aforesaid.model.contacts import KIND
from aforesaid.model.conversations import Conversation
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.stores.memory import InMemoryBackend

Manager = aforesaid.ConversationManager


@pytest.fixture
async def memory() -> AsyncIterator[aforesaid.Memory]:
    async with aforesaid.open(
        "memory://",
        retention=aforesaid.Retention(sweep_every=None),
        models=aforesaid.Models(preload=False, embedder=None),
    ) as memory:
        yield memory


@pytest.fixture
def manager(memory: aforesaid.Memory) -> Manager:
    return memory.of("erin")


@pytest.fixture
def service(manager: Manager) -> ClientAssociationService:
    return ClientAssociationService(manager)


@pytest.fixture
async def conversation(manager: Manager) -> Conversation:
    return await manager.get_or_create_conversation("kitchen")


async def settled(manager: Manager, conversation: Conversation) -> Conversation:
    """The record when everything that was said has been looked through."""
    await manager.contact_resources.queue.wait_until_idle()
    return await manager.get_conversation(conversation.id)


async def test_a_conversation_that_names_a_client_is_linked(
    manager: Manager, conversation: Conversation
) -> None:
    johnson = await manager.clients.add("Emily Johnson")
    answer = await manager.add_message(
        conversation.id, "user", "What is the status of Emily Johnson's invoice?"
    )
    assert answer.client_id is None  # without waiting for it
    linked = await settled(manager, conversation)
    assert (linked.client_id, linked.client_name) == (johnson.id, "Emily Johnson")
    assert [one.id for one in (await manager.list(client_id=johnson.id)).conversations] == [conversation.id]


async def test_the_first_client_stays(manager: Manager, conversation: Conversation) -> None:
    ann = await manager.clients.add("Ann Oakley")
    await manager.clients.add("Robert Smith")
    for text in ("Ann Oakley called", "Robert Smith called"):
        await manager.add_message(conversation.id, "user", text)
        linked = await settled(manager, conversation)
    assert linked.client_id == ann.id


@pytest.mark.parametrize(
    "text", ["sorry, I mean Harold Finch", "not Ann Oakley, Harold Finch", "No, Harold Finch."]
)
async def test_a_correction_relinks(manager: Manager, conversation: Conversation, text: str) -> None:
    await manager.clients.add("Ann Oakley")
    finch = await manager.clients.add("Harold Finch")
    await manager.add_message(conversation.id, "user", "Call Ann Oakley")
    assert (await settled(manager, conversation)).client_name == "Ann Oakley"
    await manager.add_message(conversation.id, "user", text)
    linked = await settled(manager, conversation)
    assert (linked.client_id, linked.client_name) == (finch.id, "Harold Finch")


async def test_a_correction_in_the_same_batch_relinks(manager: Manager, conversation: Conversation) -> None:
    await manager.clients.add("Ann Oakley")
    finch = await manager.clients.add("Harold Finch")
    for text in ("Call Ann Oakley", "sorry, I mean Harold Finch"):
        await manager.add_message(conversation.id, "user", text)
    assert (await settled(manager, conversation)).client_id == finch.id


async def test_an_ambiguous_correction_removes_the_link_and_is_reported(
    manager: Manager, service: ClientAssociationService, conversation: Conversation
) -> None:
    for name in ("Ann Oakley", "Robert Smith", "Jane Smith"):
        await manager.clients.add(name)
    await manager.add_message(conversation.id, "user", "Call Ann Oakley")
    await settled(manager, conversation)
    await manager.add_message(conversation.id, "user", "sorry, I mean Smith")
    assert (await settled(manager, conversation)).client_id is None
    [mention] = await service.ambiguous_mentions()
    assert {one.contact.name for one in mention.candidates} == {"Robert Smith", "Jane Smith"}


async def test_a_correction_does_not_link_an_unlinked_conversation(
    manager: Manager, service: ClientAssociationService, conversation: Conversation
) -> None:
    await manager.clients.add("Ann Oakley")
    await service.unlink_conversation(conversation.id)
    await manager.add_message(conversation.id, "user", "sorry, I mean Ann Oakley")
    assert (await settled(manager, conversation)).client_id is None


@pytest.mark.parametrize("text", ["Smith called", "Robert Smith met Jane Smith", "Turn on the lights"])
async def test_no_client_is_guessed(manager: Manager, conversation: Conversation, text: str) -> None:
    await manager.clients.add("Robert Smith")
    await manager.clients.add("Jane Smith")
    await manager.add_message(conversation.id, "user", text)
    assert (await settled(manager, conversation)).client_id is None


async def test_only_what_the_user_says_counts(manager: Manager, conversation: Conversation) -> None:
    await manager.clients.add("Ann Oakley")
    result = [{"type": "tool_result", "tool_use_id": "t1", "content": "Ann Oakley"}]
    await manager.append(
        conversation.id,
        [
            Message(role="assistant", content="Ann Oakley called"),
            Message(role="system", content="Ann Oakley is a client"),
            Message(role="user", content=result, dialect="anthropic"),
        ],
    )
    assert (await settled(manager, conversation)).client_id is None


async def test_blocks_are_read_like_text(manager: Manager, conversation: Conversation) -> None:
    ann = await manager.clients.add("Ann Oakley")
    await manager.add_message(conversation.id, "user", [{"type": "text", "text": "Ann Oakley called"}])
    assert (await settled(manager, conversation)).client_id == ann.id


async def test_a_message_that_was_redacted_before_its_examination_links_no_client(
    manager: Manager, conversation: Conversation
) -> None:
    await manager.clients.add("Ann Oakley")
    robert = await manager.clients.add("Robert Smith")
    await manager.add_message(conversation.id, "user", "Ann Oakley called", message_id="m1")
    await manager.redact(conversation.id, "m1")
    await manager.add_message(conversation.id, "user", "Robert Smith called")
    assert (await settled(manager, conversation)).client_id == robert.id


async def test_a_message_that_is_redacted_while_its_link_is_made_links_no_client(
    memory: aforesaid.Memory, manager: Manager, conversation: Conversation
) -> None:
    class Redacting:
        """A store in which the message is redacted in the moment before its conversation is linked."""

        def __getattr__(self, name: str) -> Any:
            return getattr(manager.store, name)

        async def get_document(self, kind: str, key: str, **options: Any) -> Any:
            if kind == UNLINKED_KIND:
                await manager.redact(conversation.id, "m1")
            return await manager.store.get_document(kind, key, **options)

    await manager.clients.add("Ann Oakley")
    said = Message(role="user", content="Ann Oakley called", message_id="m1")
    await manager.store.append(conversation.id, [said])
    store: Any = Redacting()
    association = Association(store, "erin", memory.contact_resources)
    assert await association.link_by_messages(conversation.id, [said]) is None
    assert (await manager.get_conversation(conversation.id)).client_id is None


async def test_the_setting_turns_it_off() -> None:
    config = aforesaid.ConversationConfig(enable_client_association=False)
    manager = Manager(config=config)
    conversation = await manager.get_or_create_conversation("kitchen")
    await manager.clients.add("Ann Oakley")
    await manager.add_message(conversation.id, "user", "Ann Oakley called")
    assert (await settled(manager, conversation)).client_id is None


async def test_what_was_heard_is_taken_by_its_sound(manager: Manager, conversation: Conversation) -> None:
    for name in ("Sean Murphy", "Shaun Murphy"):
        await manager.clients.add(name)
    await manager.add_message(conversation.id, "user", "sean murphy called", content_type="audio")
    assert (await settled(manager, conversation)).client_id is None


async def test_linking_by_id_by_contact_by_match_and_by_text(
    manager: Manager, service: ClientAssociationService, conversation: Conversation
) -> None:
    ann = await manager.clients.add("Ann Oakley")
    match = await service.identify_client("Ann Oakley called")
    assert match is not None
    for client in (ann.id, ann, match, "Ann Oakley called"):
        linked = await service.link_conversation_to_client(conversation.id, client)
        assert linked is not None
        assert (linked.client_id, linked.client_name) == (ann.id, "Ann Oakley")
        assert (await service.unlink_conversation(conversation.id)).client_id is None


async def test_a_message_without_a_name_links_nothing(
    manager: Manager, service: ClientAssociationService, conversation: Conversation
) -> None:
    for name in ("Robert Smith", "Jane Smith"):
        await manager.clients.add(name)
    before = await manager.get_conversation(conversation.id)
    match = await service.identify_client("Smith called")
    assert match is not None
    for client in (match, "Smith called", "nobody at all"):
        assert await service.link_conversation_to_client(conversation.id, client) is None
    assert await manager.get_conversation(conversation.id) == before


async def test_an_unlinked_conversation_is_linked_by_hand_only(
    manager: Manager, service: ClientAssociationService, conversation: Conversation
) -> None:
    ann = await manager.clients.add("Ann Oakley")
    await service.link_conversation_to_client(conversation.id, ann.id)
    await service.unlink_conversation(conversation.id)
    await manager.add_message(conversation.id, "user", "Ann Oakley called")
    assert (await settled(manager, conversation)).client_id is None
    await service.link_conversation_to_client(conversation.id, ann.id)
    assert (await manager.get_conversation(conversation.id)).client_id == ann.id


async def test_errors_name_what_is_missing(
    manager: Manager, service: ClientAssociationService, conversation: Conversation
) -> None:
    ann = await manager.clients.add("Ann Oakley")
    with pytest.raises(ContactNotFound):
        await service.link_conversation_to_client(conversation.id, new_id())
    with pytest.raises(ConversationNotFound):
        await service.link_conversation_to_client(new_id(), ann.id)
    with pytest.raises(ConversationNotFound):
        await service.unlink_conversation(new_id())
    with pytest.raises(InvalidInput, match="text"):
        await service.identify_client(7)  # type: ignore[arg-type]


async def test_changed_contacts_are_found_at_once(
    manager: Manager, service: ClientAssociationService
) -> None:
    assert await service.identify_client("Ann Oakley called") is None
    ann = await manager.clients.add("Ann Oakley")
    assert await service.identify_client("Ann Oakley called") is not None
    await manager.clients.update(ann.id, name="Ann Porter")
    assert await service.identify_client("Oakley called") is None
    assert await service.identify_client("Ann Porter called") is not None
    await manager.clients.remove(ann.id)
    assert await service.identify_client("Ann Porter called") is None


async def test_contacts_of_others_are_never_named(memory: aforesaid.Memory) -> None:
    await memory.of("bob").clients.add("Ann Oakley")
    assert await ClientAssociationService(memory.of("erin")).identify_client("Ann Oakley called") is None


async def test_what_another_process_writes_is_found_when_the_index_is_read_again() -> None:
    now = 0.0
    backend = InMemoryBackend()
    resources = ContactResources(monotonic=lambda: now)
    store = backend.of("erin")
    manager = Manager(store, contact_resources=resources)
    service = ClientAssociationService(manager)
    other = Manager(store)
    bob = await manager.clients.add("Robert Smith")
    assert await service.identify_client("Robert Smith") is not None
    ann = await other.clients.add("Ann Oakley")
    await other.clients.remove(bob.id)
    assert await service.identify_client("Ann Oakley called") is None
    now = 61.0
    match = await service.identify_client("Ann Oakley called")
    assert match is not None
    assert match.client == ann
    assert await service.identify_client("Robert Smith") is None


async def test_a_damaged_contact_is_set_aside_and_the_others_found(
    manager: Manager, service: ClientAssociationService, caplog: pytest.LogCaptureFixture
) -> None:
    await manager.store.put_document(KIND, new_id(), b"damaged")
    await manager.store.put_document(KIND, "no id", b'{"name":"x","created_at":"2026-01-01T00:00:00Z"}')
    await manager.clients.add("Ann Oakley")
    assert await service.identify_client("Ann Oakley called") is not None
    assert caplog.text.count("skipped an unreadable contact") == 2


class _Broken(InMemoryBackend):
    """Fails at the first read of contacts."""

    class Store:
        def __init__(self, inner: object) -> None:
            self._inner = inner

        def __getattr__(self, name: str) -> object:
            return getattr(self._inner, name)

        async def documents(self, *_: object, **__: object) -> None:
            raise StoreUnavailable("away")


async def test_a_failure_is_logged_and_never_reaches_the_conversation(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = InMemoryBackend().of("erin")
    manager = Manager(_Broken.Store(store))  # type: ignore[arg-type]
    conversation = await manager.get_or_create_conversation("kitchen")
    await manager.add_message(conversation.id, "user", "Ann Oakley called")
    with caplog.at_level(logging.WARNING, "aforesaid.contacts"):
        assert (await settled(manager, conversation)).message_count == 1
    assert "to a client failed: away" in caplog.text


async def test_the_queue_is_bounded_and_the_oldest_goes(manager: Manager) -> None:
    ann = await manager.clients.add("Ann Oakley")
    resources = manager.contact_resources
    resources.queue = IdentificationQueue(resources, max_conversations=2)
    records = [await manager.get_or_create_conversation(f"room {number}") for number in range(3)]
    for record in records:
        await manager.add_message(record.id, "user", "Ann Oakley called")
    linked = [(await settled(manager, record)).client_id for record in records]
    assert linked == [None, ann.id, ann.id]


async def test_a_process_that_ends_at_once_links_what_was_said_in_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    async with aforesaid.open(
        url,
        retention=aforesaid.Retention(sweep_every=None),
        models=aforesaid.Models(preload=False, embedder=None),
    ) as memory:
        ann = await memory.of("erin").clients.add("Ann Oakley")
    async with aforesaid.open(
        url,
        retention=aforesaid.Retention(sweep_every=None),
        models=aforesaid.Models(preload=False, embedder=None),
    ) as memory:
        manager = memory.of("erin")
        conversation = await manager.get_or_create_conversation("kitchen")
        await manager.add_message(conversation.id, "user", "Ann Oakley called")
    async with aforesaid.open(
        url,
        retention=aforesaid.Retention(sweep_every=None),
        models=aforesaid.Models(preload=False, embedder=None),
    ) as memory:
        assert (await memory.of("erin").get_conversation(conversation.id)).client_id == ann.id


async def test_closing_makes_no_index_where_there_are_no_contacts(
    memory: aforesaid.Memory, manager: Manager, conversation: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    monkeypatch.setattr(ContactResources, "index_of", lambda *given: made.append(given))
    await manager.add_message(conversation.id, "user", "Ann Oakley called")
    await memory.contact_resources.close()
    assert made == []


async def test_closing_does_not_fail_with_the_store(caplog: pytest.LogCaptureFixture) -> None:
    manager = Manager(_Broken.Store(InMemoryBackend().of("erin")))  # type: ignore[arg-type]
    conversation = await manager.get_or_create_conversation("kitchen")
    await manager.add_message(conversation.id, "user", "Ann Oakley called")
    with caplog.at_level(logging.WARNING, "aforesaid.contacts"):
        await manager.contact_resources.close()
    assert "skipped client identification on close: away" in caplog.text


async def test_an_erased_owner_is_not_looked_for_any_more(
    manager: Manager, service: ClientAssociationService, conversation: Conversation
) -> None:
    await manager.clients.add("Ann Oakley")
    await service.identify_client("Ann Oakley")
    await manager.add_message(conversation.id, "user", "Ann Oakley called")
    await manager.erase()
    assert await service.identify_client("Ann Oakley called") is None
    assert (await manager.clients.list()).contacts == ()


async def test_many_conversations_at_once_are_each_linked_to_their_own_client(manager: Manager) -> None:
    contacts = [
        await manager.clients.add(f"Zacharias {name}") for name in ("Oakley", "Finch", "Marsh", "Vale")
    ]
    records = [await manager.get_or_create_conversation(contact.id) for contact in contacts]
    await asyncio.gather(
        *(
            manager.add_message(record.id, "user", f"I met {contact.name} today")
            for record, contact in zip(records, contacts, strict=True)
        )
    )
    assert [(await settled(manager, record)).client_id for record in records] == [one.id for one in contacts]


async def test_a_contact_removed_while_a_link_is_made_leaves_no_link(
    manager: Manager, service: ClientAssociationService, conversation: Conversation
) -> None:
    ann = await manager.clients.add("Ann Oakley")
    await manager.add_message(conversation.id, "user", "Ann Oakley called")
    await asyncio.gather(manager.contact_resources.queue.wait_until_idle(), manager.clients.remove(ann.id))
    record = await settled(manager, conversation)
    assert record.client_id is None


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("oak", ["Ann Oakley"]),
        ("an oakly", ["Ann Oakley"]),
        ("bob", ["Robert Smith"]),
        ("acme", ["Robert Smith"]),
        ("555", ["Robert Smith"]),
        ("example.org", ["Ann Oakley"]),
        ("", ["Ann Oakley", "Robert Smith"]),
        ("zzz", []),
    ],
)
async def test_contacts_are_found_by_parts_of_what_is_known(
    manager: Manager, query: str, names: list[str]
) -> None:
    await manager.clients.add("Robert Smith", company="Acme", phone="+1 555 0100")
    await manager.clients.add("Ann Oakley", email="ann@example.org")
    assert [one.name for one in await manager.clients.find(query)] == names


async def test_many_contacts_of_another_process_make_a_new_index_and_changes_meanwhile_stay() -> None:
    now = 0.0
    store = InMemoryBackend().of("erin")
    manager = Manager(store, contact_resources=ContactResources(monotonic=lambda: now))
    service = ClientAssociationService(manager)
    ann = await manager.clients.add("Ann Oakley")
    assert await service.identify_client("Ann Oakley called") is not None
    endings = [one + other for one in "bdfgklmn" for other in "aeiou"]
    others = [await Manager(store).clients.add(f"Zacharias Wex{ending}") for ending in endings]
    now = 61.0
    found, _, bo = await asyncio.gather(
        service.identify_client("Zacharias Wexbo called"),
        manager.clients.remove(ann.id),
        manager.clients.add("Bo Finch"),
    )
    assert found is not None
    assert await service.identify_client("Ann Oakley called") is None
    match = await service.identify_client("Bo Finch called")
    assert match is not None
    assert match.client == bo
    for contact in others:
        await Manager(store).clients.remove(contact.id)
    now = 122.0
    assert await service.identify_client("Zacharias Wexbo called") is None
