"""What one side renders, the other reads back equal; and the bodies describe what is rendered."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from aforesaid import protocol
from aforesaid.contracts import Appended, Entry
from aforesaid.model.contexts import Context, Report
from aforesaid.model.conversations import Conversation, Page
from aforesaid.model.lifetimes import RetentionRules
from aforesaid.model.messages import Message
from aforesaid.protocol import bodies

IDS = st.uuids().map(str)
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
MOMENTS = st.datetimes(min_value=datetime(1990, 1, 1), max_value=datetime(2100, 1, 1), timezones=st.just(UTC))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
SPANS = st.none() | st.timedeltas(min_value=timedelta(seconds=1), max_value=timedelta(days=3650))
MESSAGES = st.builds(
    Message,
    role=st.sampled_from(["user", "assistant", "system", "tool"]),
    content=JSON,
    timestamp=MOMENTS,
    content_type=st.sampled_from(["text", "audio"]),
    agent_name=st.none() | TEXT,
    message_id=st.none() | IDS,
    tags=st.lists(TEXT, max_size=3).map(tuple),
    dialect=st.sampled_from(["plain", "anthropic"]),
    extra=st.just({}) | st.dictionaries(st.sampled_from(["name", "stop_reason"]), JSON, max_size=2),
)
RECORDS = st.builds(
    Conversation,
    id=IDS,
    created_at=MOMENTS,
    updated_at=MOMENTS,
    client_id=st.none() | IDS,
    subject=st.none() | TEXT,
    tags=st.lists(TEXT, max_size=3).map(tuple),
    last_message_at=st.none() | MOMENTS,
    unread_count=st.integers(0, 9),
    revision=st.integers(0, 2**40),
    ttl=SPANS,
    expires_at=st.none() | MOMENTS,
    messages=st.lists(MESSAGES, max_size=2).map(tuple),
)
ENTRIES = st.builds(
    Entry,
    conversation_id=IDS,
    sequence=st.integers(1, 2**40),
    revision=st.integers(0, 2**40),
    stored_at=MOMENTS,
    message=MESSAGES,
    unreadable=st.none() | TEXT,
)


def sent(document: Any) -> Any:
    return json.loads(protocol.to_json(document))


@given(RECORDS)
def test_a_conversation_comes_back_equal_and_is_as_described(record: Conversation) -> None:
    document = sent(protocol.conversation_document(record))
    assert protocol.conversation_of(document) == record
    described = msgspec.convert(document, bodies.ConversationBody)
    assert {*document, "degraded"} == set(described.__struct_fields__)


@given(st.lists(RECORDS, max_size=2), st.none() | TEXT)
def test_a_page_comes_back_equal(records: list[Conversation], after: str | None) -> None:
    page = Page(conversations=tuple(records), next=after)
    document = sent(protocol.page_document(page))
    assert protocol.page_of(document) == page
    msgspec.convert(document, bodies.ConversationsPage)


@given(RECORDS, st.lists(ENTRIES, max_size=2), st.lists(ENTRIES, max_size=2))
def test_what_an_append_did_comes_back_equal(
    record: Conversation, new: list[Entry], known: list[Entry]
) -> None:
    appended = Appended(conversation=record, new=tuple(new), known=tuple(known))
    document = sent(protocol.appended_document(appended))
    assert protocol.appended_of(document) == appended
    msgspec.convert(document, bodies.AppendedBody)


@given(st.lists(MESSAGES, max_size=3))
def test_a_context_comes_back_equal(messages: list[Message]) -> None:
    context = Context(messages=tuple(messages), report=Report(message_count=7, max_tokens=100))
    document = sent(protocol.context_document(context))
    assert protocol.context_of(document) == context
    msgspec.convert(document, bodies.ContextBody)


@given(
    st.builds(
        RetentionRules,
        owner=st.just(msgspec.UNSET) | SPANS,
        channels=st.dictionaries(st.sampled_from(["voice", "email"]), SPANS, max_size=2),
        tags=st.dictionaries(TEXT, SPANS, max_size=2),
        conversations=st.dictionaries(IDS, SPANS, max_size=2),
    )
)
def test_rules_come_back_equal(rules: RetentionRules) -> None:
    document = sent(protocol.rules_document(rules))
    assert protocol.rules_of(document) == rules
    msgspec.convert(document, bodies.RulesBody)


def test_half_of_a_surrogate_pair_crosses_the_wire_both_ways() -> None:
    body = protocol.to_json({"content": "half \ud83d of a pair"})
    assert protocol.from_json(body) == {"content": "half \ud83d of a pair"}
