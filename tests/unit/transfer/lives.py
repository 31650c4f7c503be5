"""Stores with a past, and how to look at all that is in one."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from aforesaid.contracts import Backend, ConversationStore, Document, Entry
from aforesaid.model.conversations import Changes, Conversation, Query, started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.testing import FixedClock

OWNERS = ("erin", "{sam}:*", "ä" * 700)
DOCUMENTS = 2 * (4 + 40 + 1)
"""How many each owner has, with those of conversations."""
LONG = 2300
"""Messages in the longest conversation: more than two chunks."""


def user(content: Any, **fields: Any) -> Message:
    return Message(role="user", content=content, **fields)


async def live(backend: Backend, clock: FixedClock) -> None:
    """Give every owner conversations: empty, rewritten, bound, odd, old; and one of them a long one."""
    for owner in OWNERS:
        store = backend.of(owner)
        await store.create(started(new_id(), now=clock()))
        await store.create(started(new_id(), now=clock(), ttl=None, channel="phone", tags=("b", "a")))
        kitchen = await store.resume("kitchen", started(new_id(), now=clock(), ttl=timedelta(days=2)))
        await store.bind("ö" * 1024, kitchen.id)
        await store.append(kitchen.id, [user("gone", message_id="m1")])
        await store.rewrite(kitchen.id, [user("hello", message_id="m1", tokens={"estimate": 2})])
        changes = Changes(client_id=new_id(), client_name="Lee", subject="Dinner", notes="n", unread_count=5)
        await store.update(kitchen.id, changes)
        odd = await store.create(started(new_id(), now=clock()))
        await store.append(odd.id, odd_messages())
        await note(store, kitchen.id)
        clock.advance(timedelta(seconds=1))
    long = await backend.of("erin").create(started(new_id(), now=clock()))
    for first in range(0, LONG, 500):
        numbers = range(first, min(first + 500, LONG))
        turn = [user(number, message_id=f"m{number}") for number in numbers]
        await backend.of("erin").append(long.id, turn)


async def note(store: ConversationStore, conversation_id: str) -> None:
    """Documents of the owner and of a conversation: odd keys, many, empty and large ones."""
    for holder in (None, conversation_id):
        for key in ("a", "{t}:*", "\u2028", "é"):
            await store.put_document("note", key, key.encode(), conversation_id=holder)
            await store.put_document("note", key, b"\0\xff", conversation_id=holder)
        for number in range(40):
            await store.put_document("many", f"{number:03}", b"", conversation_id=holder)
        await store.put_document("vectors/x", "0", bytes(range(256)) * 400, conversation_id=holder)


def odd_messages() -> list[Message]:
    return [
        user("NUL \0 and half a pair \ud800"),
        user({"z": [1, 2.5, None, True, -0.0], "a": {"\ud83d": 2**70, "é": 10**-7}}),
        user("from the past", timestamp=datetime(1583, 1, 1, 1, 2, 3, 4, tzinfo=UTC), message_id="\u2028 id"),
        user(
            "from far away", timestamp=datetime(2026, 3, 1, tzinfo=timezone(timedelta(hours=5, minutes=45)))
        ),
        Message(role="tool", content=[], extra={"tool_call_id": "1\n2"}, dialect="openai_chat", tags=("t",)),
    ]


async def everything(backend: Backend) -> dict[str, Any]:
    """All that can be read in a store."""
    return {owner: await belongings(backend, owner) async for owner in backend.owners()}


async def belongings(backend: Backend, owner: str) -> dict[str, Any]:
    store = backend.of(owner)
    page = await store.find(Query(limit=1000))
    assert page.next is None
    conversations = {
        record.id: (
            record,
            [whole(entry) for entry in await store.page(record.id, limit=10_000)],
            await store.sessions(record.id),
            await documents(store, record.id),
        )
        for record in page.conversations
    }
    owned = await documents(store)
    return conversations | ({"documents": owned} if owned else {})


async def documents(store: ConversationStore, conversation_id: str | None = None) -> list[Document]:
    return [
        document
        for kind in await store.document_kinds(conversation_id=conversation_id)
        for document in await store.documents(kind, conversation_id=conversation_id, limit=1000)
    ]


def whole(entry: Entry) -> tuple[Any, ...]:
    """An entry with what is no part of a message's equality: tokens, and numbers as they were written."""
    return entry, entry.message.tokens, repr(entry.message.content)


async def conversation_with(backend: Backend, *contents: Any, owner: str = "erin") -> Conversation:
    """A conversation in which this was said, a turn for each."""
    store = backend.of(owner)
    record = await store.create(started(new_id(), now=store.now()))
    for content in contents:
        record = (await store.append(record.id, [user(content)])).conversation
    return record
