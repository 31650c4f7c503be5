"""Owners: isolation from each other, and exact counts of what is removed, by kind."""

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace

from aforesaid.contracts import Backend, ConversationStore, Tally
from aforesaid.errors import ConversationNotFound, InvalidId, RevisionConflict
from aforesaid.model.conversations import Changes, Conversation, Query
from aforesaid.model.ids import new_id
from aforesaid.testing.clocks import FixedClock
from aforesaid.testing.contract.base import Contract, assistant, new_conversation, user

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
MANY = 105
"""More than any store takes in one step."""


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
