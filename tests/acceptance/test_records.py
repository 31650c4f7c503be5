"""A conversation's record: what is in it, what it accepts, how it moves."""

from typing import Any

import pytest
from hypothesis import strategies as st

from aforesaid.errors import ContactNotFound, InvalidInput, shown
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.conversations import VALUE_SETS
from tests.builders import Target, add_client, client_ids, names, say, spoken, tags, value_of
from tests.examples import for_all

FIELDS = (
    "id client_id client_name subject channel status priority assigned_to messages last_message_at "
    "last_message_from unread_count tags notes created_at updated_at"
)


# Feature: conversation-context, Property 5: Client association storage
@for_all(client_id=client_ids, client_name=names)
def test_a_linked_client_is_stored(target: Target, client_id: str, client_name: str) -> None:
    async def scenario(erin: ConversationManager) -> None:
        conversation = await erin.get_or_create_conversation("s")
        await add_client(erin, client_id)
        linked = await erin.associate_client(conversation.id, client_id, client_name)
        assert (linked.client_id, linked.client_name) == (client_id, client_name)
        assert await erin.get_conversation(conversation.id) == linked

    target.run(scenario)


# Feature: conversation-context, Property 15: Client query retrieval
@for_all(
    clients=st.lists(client_ids, min_size=1, max_size=3, unique=True),
    linked=st.lists(st.none() | st.integers(0, 2), max_size=5),
)
def test_all_conversations_of_a_client_are_found(
    target: Target, clients: list[str], linked: list[int | None]
) -> None:
    links = [None if which is None else clients[which % len(clients)] for which in linked]

    async def scenario(erin: ConversationManager) -> None:
        made: dict[str | None, set[str]] = {}
        for known in clients:
            await add_client(erin, known)
        for number, client_id in enumerate(links):
            conversation = await erin.get_or_create_conversation(f"s{number}", client_id=client_id)
            made.setdefault(client_id, set()).add(conversation.id)
        for client_id in clients:
            page = await erin.list(client_id=client_id)
            assert {record.id for record in page.conversations} == made.get(client_id, set())

    target.run(scenario)


# Feature: conversation-context, Property 16: Separate conversations per client
@for_all(client_id=client_ids, count=st.integers(2, 3))
def test_conversations_of_one_client_are_separate(target: Target, client_id: str, count: int) -> None:
    async def scenario(erin: ConversationManager) -> None:
        ids = []
        await add_client(erin, client_id)
        for number in range(count):
            conversation = await erin.get_or_create_conversation(f"s{number}", client_id=client_id)
            await erin.add_message(conversation.id, "user", f"about {number}")
            ids.append(conversation.id)
        assert len(set(ids)) == count
        for number, conversation_id in enumerate(ids):
            (message,) = await erin.messages(conversation_id)
            assert message.content == f"about {number}"

    target.run(scenario)


# Feature: conversation-context, Property 17: Metadata initialization
@for_all(channel=value_of("channel"), client_id=st.none() | client_ids)
def test_every_field_is_initialised(target: Target, channel: Any, client_id: str | None) -> None:
    async def scenario(erin: ConversationManager) -> None:
        if client_id is not None:
            await add_client(erin, client_id)
        made = await erin.get_or_create_conversation("s", client_id=client_id, channel=channel)
        record = await erin.get_conversation(made.id)
        document = record.to_dict()
        assert set(FIELDS.split()) <= set(document)
        assert (record.channel, record.status, record.priority) == (channel, "open", "normal")
        assert (record.client_id, record.subject, record.assigned_to) == (client_id, None, None)
        assert (record.unread_count, record.tags, document["messages"]) == (0, (), [])
        assert record.created_at == record.updated_at or client_id is not None

    target.run(scenario)


@pytest.mark.requirement("004-041")
def test_an_unknown_client_is_refused(target: Target) -> None:
    async def scenario(erin: ConversationManager) -> None:
        contact = await erin.clients.add("Ann")
        await erin.clients.remove(contact.id)
        with pytest.raises(ContactNotFound, match=contact.id):
            await erin.get_or_create_conversation("s", client_id=contact.id)
        assert (await erin.list()).conversations == ()
        conversation = await erin.get_or_create_conversation("s")
        with pytest.raises(ContactNotFound):
            await erin.get_or_create_conversation("s", client_id=contact.id)
        with pytest.raises(ContactNotFound):
            await erin.associate_client(conversation.id, contact.id, "Ann")
        with pytest.raises(ContactNotFound):
            await erin.associate_client("unknown", contact.id, "Ann")
        records = (await erin.list()).conversations
        assert [(record.id, record.client_id) for record in records] == [(conversation.id, None)]

    target.run(scenario)


@pytest.mark.requirement("004-041")
def test_deleting_a_contact_sets_the_client_to_null(target: Target) -> None:
    async def scenario(erin: ConversationManager) -> None:
        contact = await erin.clients.add("Ann")
        conversation = await erin.get_or_create_conversation("s", client_id=contact.id)
        assert conversation.client_id == contact.id
        await erin.clients.remove(contact.id)
        assert (await erin.get_conversation(conversation.id)).client_id is None

    target.run(scenario)


def check_set(target: Target, field: str, valid: str, invalid: str) -> None:
    async def scenario(erin: ConversationManager) -> None:
        conversation = await erin.get_or_create_conversation("s")
        changed = await erin.update_metadata(conversation.id, **{field: valid})  # type: ignore[arg-type]
        assert changed[field] == valid
        with pytest.raises(InvalidInput) as caught:
            await erin.update_metadata(conversation.id, **{field: invalid})  # type: ignore[arg-type]
        for part in (field, shown(invalid), *VALUE_SETS[field]):
            assert part in str(caught.value)
        assert await erin.get_conversation(conversation.id) == changed

    target.run(scenario)


# Feature: conversation-context, Property 18: Status value validation
@for_all(valid=value_of("status"), invalid=names.filter(lambda name: name not in VALUE_SETS["status"]))
def test_a_status_is_one_of_its_set(target: Target, valid: str, invalid: str) -> None:
    check_set(target, "status", valid, invalid)


# Feature: conversation-context, Property 19: Priority value validation
@for_all(valid=value_of("priority"), invalid=names.filter(lambda name: name not in VALUE_SETS["priority"]))
def test_a_priority_is_one_of_its_set(target: Target, valid: str, invalid: str) -> None:
    check_set(target, "priority", valid, invalid)


# Feature: conversation-context, Property 20: Metadata updates on message addition
@for_all(said=spoken)
def test_the_record_moves_with_every_message(target: Target, said: list[Any]) -> None:
    async def scenario(erin: ConversationManager) -> None:
        conversation = await erin.get_or_create_conversation("s")
        before = conversation
        for number, one in enumerate(said, start=1):
            await say(erin, conversation.id, [one])
            record = await erin.get_conversation(conversation.id)
            (latest,) = await erin.messages(conversation.id, limit=1, offset=number - 1)
            assert (record.last_message_from, record.last_message_at) == (one[0], latest.timestamp)
            assert (record.unread_count, record.message_count) == (number, number)
            assert record.updated_at >= before.updated_at
            assert record.revision == before.revision + 1
            before = record

    target.run(scenario)


# Feature: conversation-context, Property 21: Tag array storage
@for_all(first=tags, second=tags)
def test_tags_are_stored_in_order(target: Target, first: list[str], second: list[str]) -> None:
    async def scenario(erin: ConversationManager) -> None:
        conversation = await erin.get_or_create_conversation("s")
        for given_tags in (first, second):
            await erin.update_metadata(conversation.id, tags=given_tags)
            record = await erin.get_conversation(conversation.id)
            assert list(record.tags) == given_tags
            for tag in given_tags:
                page = await erin.list(tags=[tag])
                assert [found.id for found in page.conversations] == [conversation.id]

    target.run(scenario)
