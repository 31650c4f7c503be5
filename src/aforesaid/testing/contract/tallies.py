"""Tallies: removals are counted exactly by kind, and can be counted beforehand."""

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace

from aforesaid.contracts import Backend, ConversationStore, Tally
from aforesaid.errors import InvalidId, RevisionConflict
from aforesaid.model.conversations import Conversation
from aforesaid.model.ids import new_id
from aforesaid.testing.clocks import FixedClock
from aforesaid.testing.contract.base import Contract, assistant, new_conversation, user

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
            await store.tally("not an id")
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
