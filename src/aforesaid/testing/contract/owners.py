"""Owners: isolation from each other, exact counts of what is removed; names as ids of conversations."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from aforesaid.contracts import Backend, ConversationStore, Tally
from aforesaid.errors import ConversationNotFound, InvalidId, RevisionConflict
from aforesaid.model.conversations import Changes, Conversation, Query, started
from aforesaid.model.ids import conversation_key, is_uuid, new_id
from aforesaid.testing.contract.base import Contract, FixedClock, assistant, new_conversation, user

# Owners: isolation from each other, and exact counts of what is removed, by kind.


HOSTILE = [
    "a",
    "a:b",
    "a:",
    ":b",
    "../x",
    "*",
    "%",
    "_",
    "{t}",
    "A",
    "а",
    "a ",
    "'",
    '"',
    "x" * 1024,
    "😀",
    "?",
    "[a]",
]


class OwnersContract(Contract):
    """Isolation between owners."""

    async def test_another_owners_conversation_looks_absent(
        self, backend: Backend, store: ConversationStore, conversation: Conversation
    ) -> None:
        await store.append(conversation.id, [user("secret", message_id="m1")])
        await store.bind("kitchen", conversation.id)
        before = await store.get(conversation.id)
        stranger = backend.of(f"stranger-{new_id()}")
        assert await stranger.get(conversation.id) is None
        assert await stranger.session("kitchen") is None
        assert (await stranger.find(Query())).conversations == ()
        assert await stranger.load(conversation.id) == []
        await stranger.delete(conversation.id)
        await stranger.unbind("kitchen")
        assert await stranger.purge_expired() == 0
        for attempt in (
            stranger.append(conversation.id, [user("intrusion", message_id="m1")]),
            stranger.rewrite(conversation.id, []),
            stranger.update(conversation.id, Changes(subject="mine now")),
            stranger.tail(conversation.id, limit=1),
            stranger.page(conversation.id, limit=1),
            stranger.bind("kitchen", conversation.id),
        ):
            with pytest.raises(ConversationNotFound) as theirs:
                await attempt
            missing = ConversationNotFound(conversation.id)
            assert str(theirs.value) == str(missing)
        assert await store.get(conversation.id) == before
        assert [entry.message.content for entry in await store.page(conversation.id, limit=5)] == ["secret"]
        assert await store.session("kitchen") == before

    async def test_two_owners_may_use_the_same_ids(
        self, backend: Backend, store: ConversationStore, conversation: Conversation
    ) -> None:
        other = backend.of(f"other-{new_id()}")
        await other.create(conversation)
        await store.append(conversation.id, [user("mine", message_id="m1")])
        await other.append(conversation.id, [user("yours", message_id="m1")])
        assert [entry.message.content for entry in await store.page(conversation.id, limit=5)] == ["mine"]
        await other.delete(conversation.id)
        assert [entry.message.content for entry in await store.page(conversation.id, limit=5)] == ["mine"]

    async def test_owner_names_are_opaque(self, backend: Backend) -> None:
        prefix = new_id()
        made = {}
        for name in HOSTILE:
            store = backend.of(f"{name}{prefix}"[-1024:])
            made[name] = await store.resume(name, new_conversation(store))
        for name in HOSTILE:
            store = backend.of(f"{name}{prefix}"[-1024:])
            page = await store.find(Query())
            assert [record.id for record in page.conversations] == [made[name].id]
            assert await store.session(name) == made[name]

    @pytest.mark.parametrize("owner", ["", "x" * 1025, "a\0b", "\udfff", None, 7, b"erin"])
    async def test_invalid_owners_are_refused(self, backend: Backend, owner: object) -> None:
        with pytest.raises(InvalidId, match="owner"):
            backend.of(owner)  # type: ignore[arg-type]

    async def test_a_backend_lists_its_owners(self, backend: Backend) -> None:
        names = {f"listed-{number}-{new_id()}" for number in range(3)}
        names |= {f" {new_id()}", f"\U0010ffff\U0010ffff{new_id()}"}  # at both ends of any order
        for name in names:
            store = backend.of(name)
            await store.create(new_conversation(store))
        backend.of(f"silent-{new_id()}")
        listed = [owner async for owner in backend.owners()]
        assert names <= set(listed)
        assert len(listed) == len(set(listed))
        assert not any(owner.startswith("silent-") for owner in listed)


HOUR = timedelta(hours=1)
# More than any store takes in one step.
MANY = 105


def shared_counts(tally: Tally) -> Tally:
    """Return the counts that all stores share. Counts of indexes and keys differ by store."""
    assert 0 <= tally.index_entries <= tally.messages
    return replace(tally, index_entries=0, keys=0)


class TallyContract(Contract):
    """The counts of `tally`, `delete` and `clear`."""

    async def test_tally_counts_everything_of_a_conversation(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        other = await store.resume("hall", new_conversation(store))
        await fill(store, other)
        await fill(store, conversation)
        for session in ("kitchen", "phone", "moved"):
            await store.bind(session, conversation.id)
        await store.bind("moved", other.id)
        await store.put_document("notes", "allergies", b"nuts")
        holds = Tally(conversations=1, messages=3, sessions=2, documents={"summaries": 2, "vectors/x": 1})
        assert shared_counts(await store.tally(conversation.id)) == holds
        assert shared_counts(await store.delete(conversation.id)) == holds
        assert await store.tally(conversation.id) == Tally()
        assert await store.delete(conversation.id) == Tally()
        assert shared_counts(await store.tally(other.id)) == holds

    async def test_tally_counts_an_owner_by_kind(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        await fill(store, conversation)
        await fill(store, await store.resume("kitchen", new_conversation(store)))
        for number in range(3):
            await store.put_document("notes", str(number), b"a note")
        await store.put_document("contacts", new_id(), b'{"name":"Ann"}')
        await store.put_document("summaries", "of everything", b"short")
        holds = Tally(
            conversations=2,
            messages=6,
            sessions=1,
            documents={"contacts": 1, "notes": 3, "summaries": 5, "vectors/x": 2},
        )
        assert shared_counts(await store.tally()) == holds
        assert shared_counts(await store.clear()) == holds
        assert await store.tally() == Tally()

    async def test_tally_includes_expired_conversations(
        self, store: ConversationStore, clock: FixedClock
    ) -> None:
        over = await store.resume("kitchen", new_conversation(store, ttl=HOUR))
        await fill(store, over)
        clock.advance(HOUR)
        holds = Tally(conversations=1, messages=3, sessions=1, documents={"summaries": 2, "vectors/x": 1})
        assert shared_counts(await store.tally(over.id)) == shared_counts(await store.tally()) == holds
        assert shared_counts(await store.delete(over.id)) == holds

    async def test_tally_excludes_what_is_missing_or_kept(
        self, backend: Backend, store: ConversationStore, conversation: Conversation
    ) -> None:
        await fill(store, conversation)
        stranger = backend.of(f"another-{new_id()}")
        assert await stranger.tally(conversation.id) == await stranger.tally() == Tally()
        assert await stranger.delete(conversation.id) == await stranger.clear() == Tally()
        with pytest.raises(RevisionConflict):
            await store.delete(conversation.id, expected_revision=99)
        with pytest.raises(InvalidId):
            await store.tally("no\0id")
        assert (await store.tally()).messages == 3

    async def test_tally_counts_more_conversations_than_one_batch(self, store: ConversationStore) -> None:
        await asyncio.gather(*(store.create(new_conversation(store)) for _ in range(MANY)))
        holds = Tally(conversations=MANY)
        assert shared_counts(await store.tally()) == holds
        assert shared_counts(await store.clear()) == holds


async def fill(store: ConversationStore, conversation: Conversation) -> None:
    """Add three messages, and three documents of two kinds."""
    await store.append(conversation.id, [user("one"), assistant("two"), user("three")])
    for kind, key in (("summaries", "1"), ("summaries", "2"), ("vectors/x", "1")):
        await store.put_document(kind, key, b"derived", conversation_id=conversation.id)


# Names: any text is the id of a conversation in every method.


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

# One call of each method that takes a conversation id.
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

# Methods that accept an unknown conversation.
NO_ERROR = ("get", "delete", "tally", "load", "save")


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
