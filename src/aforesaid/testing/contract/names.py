"""Names: any text is the id of a conversation in every method."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aforesaid.contracts import Backend, ConversationStore
from aforesaid.errors import ConversationNotFound
from aforesaid.model.conversations import Changes, Conversation, started
from aforesaid.model.ids import conversation_key, is_uuid, new_id
from aforesaid.testing.contract.base import Contract, user

NAMES = [
    "kitchen",
    "conv123",
    "01J9ZC3M8QK4T7V2XW5Y6B0NAD",
    "a/b ?#%",
    "'; DROP TABLE x; --",
    "*",
    "Küche 🌷",
    "x" * 1024,
]

Use = Callable[[ConversationStore, str], Awaitable[Any]]

USES: dict[str, Use] = {
    "get": lambda store, name: store.get(name),
    "update": lambda store, name: store.update(name, Changes(subject="s")),
    "delete": lambda store, name: store.delete(name),
    "bind": lambda store, name: store.bind("door", name),
    "sessions": lambda store, name: store.sessions(name),
    "append": lambda store, name: store.append(name, [user("more")]),
    "rewrite": lambda store, name: store.rewrite(name, [user("instead")]),
    "tail": lambda store, name: store.tail(name, limit=5),
    "recent": lambda store, name: store.recent(name, limit=5),
    "page": lambda store, name: store.page(name, limit=5),
    "entry": lambda store, name: store.entry(name, "m"),
    "replace": lambda store, name: store.replace(name, user("other", message_id="m")),
    "put_document": lambda store, name: store.put_document("k", "d", b"x", conversation_id=name),
    "get_document": lambda store, name: store.get_document("k", "d", conversation_id=name),
    "documents": lambda store, name: store.documents("k", conversation_id=name),
    "document_kinds": lambda store, name: store.document_kinds(conversation_id=name),
    "delete_document": lambda store, name: store.delete_document("k", "d", conversation_id=name),
    "tally": lambda store, name: store.tally(name),
    "load": lambda store, name: store.load(name),
    "save": lambda store, name: store.save(name, [{"role": "user", "content": "all"}]),
}
"""One call of each method that takes a conversation id."""

NO_ERROR = ("get", "delete", "tally", "load", "save")
"""Methods that accept an unknown conversation."""


def named(store: ConversationStore, name: str) -> Conversation:
    """Return a conversation with this name that is not stored yet."""
    key = conversation_key(name, owner=store.owner)
    return started(key.id, name=key.name, now=store.now())


class NamesContract(Contract):
    """A name instead of a UUID."""

    def test_every_method_with_a_conversation_id_is_tested(self) -> None:
        found = {
            name
            for name, method in inspect.getmembers(ConversationStore, inspect.isfunction)
            if "conversation_id" in inspect.signature(method).parameters
        }
        assert found == set(USES)

    async def test_the_record_has_the_callers_name(self, store: ConversationStore) -> None:
        for name in NAMES:
            record = await store.create(named(store, name))
            assert is_uuid(record.id)
            assert record.name == name
            assert await store.get(name) == await store.get(record.id) == record
            appended = await store.append(name, [user("hello")])
            assert appended.conversation.name == name
            changed = await store.update(name, Changes(subject="s"))
            assert (changed.id, changed.name) == (record.id, name)

    async def test_a_name_works_like_the_id_in_every_method(self, backend: Backend) -> None:
        """Of two owners, one is called with the name and one with the id; both end in the same state."""
        for method, use in USES.items():
            by_name, by_id = (backend.of(f"owner-{new_id()}") for _ in range(2))
            for store in (by_name, by_id):
                await store.create(named(store, "kitchen"))
                await store.append("kitchen", [user("hello", message_id="m")])
            await use(by_name, "kitchen")
            await use(by_id, conversation_key("kitchen", owner=by_id.owner).id)
            assert await _state(by_name) == await _state(by_id), method

    async def test_an_unknown_name_is_an_unknown_conversation(self, store: ConversationStore) -> None:
        for method, use in USES.items():
            if method in NO_ERROR:
                await use(store, method)
            else:
                with pytest.raises(ConversationNotFound):
                    await use(store, method)
            assert (await store.get(method) is not None) == (method == "save")

    async def test_saving_a_history_creates_the_named_conversation(self, store: ConversationStore) -> None:
        await store.save("conv123", [{"role": "user", "content": "hello"}])
        record = await store.get("conv123")
        assert record is not None
        assert record.name == "conv123"
        assert [message["content"] for message in await store.load("conv123")] == ["hello"]
        await store.delete("conv123")
        assert await store.load("conv123") == []

    async def test_owners_with_the_same_name_have_different_conversations(
        self, backend: Backend, store: ConversationStore
    ) -> None:
        other = backend.of(f"owner-{new_id()}")
        mine = await store.create(named(store, "kitchen"))
        assert await other.get("kitchen") is None
        theirs = await other.create(named(other, "kitchen"))
        assert mine.id != theirs.id
        assert await other.get(mine.id) is None

    async def test_names_are_exact(self, store: ConversationStore) -> None:
        names = ["kitchen", "Kitchen", "kitchen ", "e\u0301", "\u00e9"]
        ids = [(await store.create(named(store, name))).id for name in names]
        assert len(set(ids)) == len(names)

    async def test_restoring_keeps_the_name(self, store: ConversationStore) -> None:
        record = await store.create(named(store, "kitchen"))
        await store.delete(record.id)
        await store.restore(record, [])
        assert await store.get("kitchen") == record

    async def test_the_store_knows_its_owner(self, backend: Backend) -> None:
        name = f"owner-{new_id()}"
        assert backend.of(name).owner == name
        assert (await backend.of(name).authoritative()).owner == name


async def _state(store: ConversationStore) -> object:
    record = await store.get("kitchen")
    bound = await store.session("door")
    if record is None:
        return None, bound
    contents = [entry.message.content for entry in await store.page("kitchen", limit=9)]
    documents = await store.documents("k", conversation_id="kitchen")
    facts = record.name, record.subject, record.revision, record.message_count
    return facts, contents, [document.key for document in documents], bound is not None
