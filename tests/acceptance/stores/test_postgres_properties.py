"""What must hold in PostgreSQL for any conversation, as properties."""

import asyncio
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.types.json import Jsonb

from aforesaid.memory.manager import ConversationManager
from aforesaid.model.conversations import started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.stores.postgres import PostgresBackend
from aforesaid.testing.machine import messages
from aforesaid.voice import VoiceAssistant
from tests.acceptance.test_channels import SOUND, Hears, supervisor_of
from tests.examples import examples

words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=30)
ANSWER = "ok"
PROPERTY = examples(100)


class StoreAndConnection:
    """A store and a plain connection, both for the same fresh owner."""

    def __init__(self, url: str) -> None:
        self.runner = asyncio.Runner()
        self.backend = PostgresBackend(url)
        self.runner.run(self.backend.open())
        self.plain: psycopg.Connection[Any] = psycopg.connect(url, autocommit=True)
        self.begin()

    def begin(self) -> None:
        owner = f"property-{new_id()}"
        self.store = self.backend.of(owner)
        self.plain.execute("SELECT set_config('aforesaid.owner', %s, false)", (owner,))

    def conversation(self, turn: list[Message]) -> str:
        record = self.runner.run(self.store.create(started(new_id(), now=self.store.now())))
        self.runner.run(self.store.append(record.id, turn))
        return record.id

    def read(self, conversation_id: str) -> list[Message]:
        entries = self.runner.run(self.store.page(conversation_id, limit=100))
        return [entry.message for entry in entries]

    def close(self) -> None:
        self.plain.close()
        self.runner.run(self.backend.close())
        self.runner.close()


@pytest.fixture(scope="module")
def both(postgres_url: str) -> Iterator[StoreAndConnection]:
    both = StoreAndConnection(postgres_url)
    yield both
    both.close()


def comparable(value: Any) -> Any:
    """The value as jsonb can hold it: NUL shows as U+FFFD, and 1e3 and 1000 are one number."""
    match value:
        case str():
            return value.replace("\0", "\ufffd")
        case bool():
            return value
        case int() | float():
            return float(value)
        case list():
            return [comparable(item) for item in value]
        case dict():
            return {comparable(key): comparable(item) for key, item in value.items()}
        case _:
            return value


async def by_turn(erin: ConversationManager, conversation_id: str, text: str) -> None:
    async with erin.turn(conversation_id) as turn:
        turn.user(text)
        turn.assistant(ANSWER)


async def by_message(erin: ConversationManager, conversation_id: str, text: str) -> None:
    await erin.add_message(conversation_id, "user", text)


async def by_agent(erin: ConversationManager, conversation_id: str, text: str) -> None:
    await supervisor_of(erin, ANSWER).process_query(text, "s", conversation_id)


async def by_voice(erin: ConversationManager, conversation_id: str, text: str) -> None:
    await VoiceAssistant(supervisor_of(erin, ANSWER), Hears(text)).handle_voice_input(SOUND, "s")


async def by_history(erin: ConversationManager, conversation_id: str, text: str) -> None:
    history = await erin.store.load(conversation_id)
    await erin.store.save(conversation_id, [*history, {"role": "user", "content": text}])


WAYS = {
    "turn": by_turn,
    "message": by_message,
    "agent": by_agent,
    "voice": by_voice,
    "history": by_history,
}
PATHS = (*WAYS, "sql")


def with_moment(document: dict[str, Any]) -> dict[str, Any]:
    return document | {"timestamp": datetime.fromisoformat(document["timestamp"])}


# Feature: conversation-context, Property 7: JSONB array storage
@PROPERTY
@given(turn=st.lists(messages.filter(lambda m: m.message_id is None), max_size=5))
def test_messages_are_a_jsonb_array_in_their_documented_form(
    both: StoreAndConnection, turn: list[Message]
) -> None:
    conversation_id = both.conversation(turn)
    found = both.plain.execute(
        "SELECT messages, jsonb_typeof(messages), pg_typeof(messages)::text"
        " FROM api.conversations WHERE id = %s",
        (conversation_id,),
    ).fetchall()
    ((shown, kind, column),) = found
    assert (kind, column) == ("array", "jsonb")
    expected = [message.to_dict() for message in both.read(conversation_id)]
    assert [with_moment(comparable(d)) for d in shown] == [with_moment(comparable(d)) for d in expected]


# Feature: conversation-context, Property 7: JSONB array storage
@PROPERTY
@given(
    documents=st.lists(
        st.fixed_dictionaries(
            {
                "role": st.sampled_from(["user", "assistant", "system", "tool"]),
                "content": words | st.lists(words),
            },
            optional={
                "agent_name": words,
                "content_type": st.just("audio"),
                "mood": words,
                "tags": st.lists(words),
            },
        ),
        max_size=4,
    )
)
def test_an_array_that_plain_sql_writes_reads_back_as_messages(
    both: StoreAndConnection, documents: list[dict[str, Any]]
) -> None:
    sql = "INSERT INTO api.conversations (messages) VALUES (%s) RETURNING id::text"
    ((conversation_id,),) = both.plain.execute(sql, (Jsonb(documents),)).fetchall()
    read = both.read(conversation_id)
    assert [message.with_(timestamp=None) for message in read] == [
        Message.from_dict(document) for document in documents
    ]


# Feature: conversation-context, Property 7: JSONB array storage
@PROPERTY
@given(said=st.lists(st.tuples(st.sampled_from(PATHS), words.filter(str.strip)), min_size=1, max_size=6))
def test_messages_of_every_path_appear_in_the_array(
    both: StoreAndConnection, said: list[tuple[str, str]]
) -> None:
    """Plain SQL sees what every call stores, and what SQL itself appends."""
    both.begin()
    erin = ConversationManager(both.store)
    conversation = both.runner.run(erin.get_or_create_conversation("s"))
    for path, text in said:
        if path == "sql":
            message = {"role": "user", "content": text}
            both.plain.execute(
                "UPDATE api.conversations SET messages = messages || %s WHERE id = %s",
                (Jsonb([message]), conversation.id),
            )
        else:
            both.runner.run(WAYS[path](erin, conversation.id, text))
    ((shown,),) = both.plain.execute(
        "SELECT messages FROM api.conversations WHERE id = %s", (conversation.id,)
    ).fetchall()
    asked = [document["content"] for document in shown if document["role"] == "user"]
    assert asked == [text.strip() if path == "voice" else text for path, text in said]
    assert [document["content_type"] for document in shown if document["role"] == "user"] == [
        "audio" if path == "voice" else "text" for path, _ in said
    ]


# Feature: conversation-context, Property 28: JSONB content search
@PROPERTY
@given(wanted=words, others=st.lists(words, max_size=3))
def test_content_is_found_inside_the_array(both: StoreAndConnection, wanted: str, others: list[str]) -> None:
    both.begin()
    spoken = {
        both.conversation(
            [Message(role="user", content=content), Message(role="assistant", content=ANSWER)]
        ): {
            content,
            ANSWER,
        }
        for content in (wanted, *others)
    }
    contained = both.plain.execute(
        "SELECT id::text FROM api.conversations WHERE messages @> %s", (Jsonb([{"content": wanted}]),)
    ).fetchall()
    assert {found for (found,) in contained} == {key for key, said in spoken.items() if wanted in said}
    searched = both.plain.execute(
        "SELECT id::text FROM api.conversations WHERE EXISTS ("
        " SELECT FROM jsonb_array_elements(messages) AS said WHERE strpos(said ->> 'content', %s) > 0)",
        (wanted,),
    ).fetchall()
    assert {found for (found,) in searched} == {
        key for key, said in spoken.items() if any(wanted in content for content in said)
    }
