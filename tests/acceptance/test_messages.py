"""What a message is, and that it comes back as it was."""

from datetime import datetime
from typing import Any

import pytest
from hypothesis import strategies as st

from aforesaid.errors import InvalidInput
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.messages import ROLES
from tests.builders import (
    Target,
    content_types,
    contents,
    json_contents,
    moments,
    names,
    roles,
)
from tests.examples import for_all


# Feature: conversation-context, Property 6: Message structure validation
@for_all(role=st.sampled_from(ROLES), content=contents, invalid=names.filter(lambda name: name not in ROLES))
def test_a_message_has_role_content_and_a_moment_with_its_zone(
    target: Target, role: Any, content: str, invalid: Any
) -> None:
    async def scenario(erin: ConversationManager) -> None:
        conversation = await erin.get_or_create_conversation("s")
        await erin.add_message(conversation.id, role, content)
        with pytest.raises(InvalidInput, match="role"):
            await erin.add_message(conversation.id, invalid, content)
        (document,) = await erin.store.load(conversation.id)
        assert document["role"] == role
        assert document["content"] == content
        assert datetime.fromisoformat(document["timestamp"]).tzinfo is not None

    target.run(scenario)


# Feature: conversation-context, Property 8: Optional metadata support
@for_all(
    agent_name=st.none() | names,
    content_type=st.none() | content_types,
    message_id=st.none() | names,
    tags=st.none() | st.lists(names, max_size=3, unique=True),
)
def test_metadata_are_stored_and_none_is_required(
    target: Target, agent_name: str | None, content_type: Any, message_id: str | None, tags: list[str] | None
) -> None:
    given_fields = {
        "agent_name": agent_name,
        "content_type": content_type,
        "message_id": message_id,
        "tags": tags,
    }
    fields: dict[str, Any] = {name: value for name, value in given_fields.items() if value is not None}

    async def scenario(erin: ConversationManager) -> None:
        conversation = await erin.get_or_create_conversation("s")
        await erin.add_message(conversation.id, "assistant", "x", **fields)
        (message,) = await erin.messages(conversation.id)
        assert message.agent_name == agent_name
        assert message.content_type == (content_type or "text")
        assert list(message.tags) == (tags or [])
        assert message.message_id == message_id or (message_id is None and message.message_id)

    target.run(scenario)


# Feature: conversation-context, Property 9: Chronological message ordering
@for_all(stamps=st.lists(st.tuples(moments, content_types), min_size=1, max_size=12))
def test_messages_read_in_order_of_time_whatever_order_they_came_in(
    target: Target, stamps: list[Any]
) -> None:
    async def scenario(erin: ConversationManager) -> list[tuple[datetime, int]]:
        conversation = await erin.get_or_create_conversation("s")
        for number, (stamp, content_type) in enumerate(stamps):
            await erin.add_message(
                conversation.id, "user", number, timestamp=stamp, content_type=content_type
            )
        stored = await erin.messages(conversation.id)
        return [(message.timestamp, message.content) for message in stored if message.timestamp]

    read = target.run(scenario)
    assert read == sorted(((stamp, number) for number, (stamp, _) in enumerate(stamps)))


long_texts = st.builds(
    lambda unit, times, end: unit * times + end,
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20),
    st.integers(200, 5000),
    st.text(max_size=10),
)
"""Up to 100,000 characters, any of Unicode, NUL and line separators among them."""


# Feature: conversation-context, Property 10: Content preservation
@for_all(
    role=roles,
    content=json_contents | long_texts,
    extra=st.dictionaries(st.text(max_size=6), json_contents, max_size=3),
)
def test_content_comes_back_exactly(target: Target, role: Any, content: Any, extra: dict[str, Any]) -> None:
    from aforesaid.model.messages import Message

    async def scenario(erin: ConversationManager) -> None:
        conversation = await erin.get_or_create_conversation("s")
        await erin.append(conversation.id, [Message(role=role, content=content, extra=extra)])
        (message,) = await erin.messages(conversation.id)
        assert message.content == content
        assert repr(message.content) == repr(content)
        assert message.extra == extra

    target.run(scenario)
