"""Participants: stored with the record, filtered by listings; authors of messages."""

import asyncio
from datetime import timedelta

from aforesaid.contracts import ConversationStore
from aforesaid.errors import RevisionConflict
from aforesaid.model.conversations import Changes, Conversation, Query
from aforesaid.model.participants import Participant, VisibleFrom
from aforesaid.testing.contract.base import Contract, FixedClock, assistant, new_conversation, user

ANN = Participant(id="ann", name="Ann Łukasz 😀", role="manager")
BOB = Participant(id="bob@example.org", role="guest", may_write=True, visible_from=VisibleFrom(12, 3))
BOT = Participant(id="bot", name="Bot", kind="agent")


async def with_participants(store: ConversationStore, *participants: Participant) -> Conversation:
    """Return a stored conversation with these participants."""
    return await store.create(new_conversation(store, participants=participants))


class ParticipantsContract(Contract):
    """`Conversation.participants`, `Query.participant` and `Message.author`."""

    async def test_participants_read_back_equal(self, store: ConversationStore) -> None:
        joined = ANN.with_(joined_at=store.now())
        record = await with_participants(store, joined, BOB, BOT)
        stored = await store.get(record.id)
        assert stored is not None
        assert stored.participants == (joined, BOB, BOT)

    async def test_an_update_replaces_the_participants(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        changed = await store.update(conversation.id, Changes(participants=(ANN, BOB)))
        assert changed.participants == (ANN, BOB)
        assert changed.revision == conversation.revision + 1
        emptied = await store.update(conversation.id, Changes(participants=()))
        assert emptied.participants == ()
        assert await store.get(conversation.id) == emptied

    async def test_other_writes_leave_the_participants(self, store: ConversationStore) -> None:
        record = await with_participants(store, ANN, BOB)
        await store.update(record.id, Changes(subject="leeks"))
        stored = await store.append(record.id, [user("hello", author="ann", message_id="m1")])
        assert stored.conversation.participants == (ANN, BOB)
        await store.replace(record.id, user("hallo", author="ann", message_id="m1"))
        await store.rewrite(record.id, [user("again", author="ann")])
        after = await store.get(record.id)
        assert after is not None
        assert after.participants == (ANN, BOB)

    async def test_a_session_returns_the_participants(self, store: ConversationStore) -> None:
        record = await store.resume("kitchen", new_conversation(store, participants=(ANN,)))
        found = await store.session("kitchen")
        assert found is not None
        assert found.participants == record.participants == (ANN,)

    async def test_find_filters_by_participant(self, store: ConversationStore, clock: FixedClock) -> None:
        of_ann = await with_participants(store, ANN)
        clock.advance(timedelta(seconds=1))
        of_both = await with_participants(store, ANN, BOB)
        await store.create(new_conversation(store))

        async def found(participant: str) -> list[str]:
            page = await store.find(Query(participant=participant))
            return [record.id for record in page.conversations]

        assert await found("ann") == [of_both.id, of_ann.id]
        assert await found("bob@example.org") == [of_both.id]
        assert await found("an") == []
        assert await found('ann" or 1=1') == []

    async def test_find_leaves_out_conversations_that_the_participant_left(
        self, store: ConversationStore
    ) -> None:
        record = await with_participants(store, ANN, BOB.with_(role="left"))
        assert (await store.find(Query(participant=BOB.id))).conversations == ()
        assert [one.id for one in (await store.find(Query(participant="ann"))).conversations] == [record.id]

    async def test_find_by_participant_pages(self, store: ConversationStore, clock: FixedClock) -> None:
        mine = set()
        for number in range(5):
            mine.add((await with_participants(store, ANN)).id)
            await with_participants(store, BOB.with_(id=f"bob{number}"))
            clock.advance(timedelta(seconds=1))
        found: list[str] = []
        after: str | None = None
        while True:
            page = await store.find(Query(participant="ann", limit=2, after=after))
            found += [record.id for record in page.conversations]
            if (after := page.next) is None:
                break
        assert len(found) == 5
        assert set(found) == mine

    async def test_participants_of_another_owner_are_unknown(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        await store.update(conversation.id, Changes(participants=(ANN,)))
        assert (await store.find(Query(participant="bob@example.org"))).conversations == ()

    async def test_an_author_reads_back_equal(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        turn = [user("hello", author="ann", message_id="m1"), assistant("hi", author="bot", agent_name="b")]
        await store.append(conversation.id, turn)
        entries = await store.page(conversation.id, limit=10)
        assert [entry.message.author for entry in entries] == ["ann", "bot"]
        found = await store.entry(conversation.id, "m1")
        assert found is not None
        assert found.message.author == "ann"

    async def test_restoring_keeps_participants_and_authors(self, store: ConversationStore) -> None:
        record = await with_participants(store, ANN, BOB)
        await store.append(record.id, [user("hello", author="ann")])
        whole = await store.get(record.id)
        entries = await store.page(record.id, limit=10)
        assert whole is not None
        await store.delete(record.id)
        await store.restore(whole, entries)
        assert await store.get(record.id) == whole
        assert [entry.message.author for entry in await store.page(record.id, limit=10)] == ["ann"]

    async def test_concurrent_changes_of_participants_lose_none(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        async def join(participant: Participant) -> None:
            while True:
                record = await store.get(conversation.id)
                assert record is not None
                changes = Changes(participants=(*record.participants, participant))
                try:
                    await store.update(conversation.id, changes, expected_revision=record.revision)
                except RevisionConflict:
                    continue
                return

        await asyncio.gather(*(join(Participant(id=f"p{number}")) for number in range(5)))
        record = await store.get(conversation.id)
        assert record is not None
        assert {one.id for one in record.participants} == {f"p{number}" for number in range(5)}

    async def test_concurrent_turns_of_several_people_lose_nothing_and_stay_whole(
        self, store: ConversationStore
    ) -> None:
        people = [Participant(id=f"p{number}") for number in range(4)]
        record = await with_participants(store, *people)

        async def speak(author: str) -> None:
            for number in range(3):
                turn = f"{author}/{number}"
                await store.append(
                    record.id,
                    [
                        user(f"{turn} asks", author=author, message_id=f"{turn}/1"),
                        assistant(f"{turn} answered", author="bot", message_id=f"{turn}/2"),
                    ],
                )

        await asyncio.gather(*(speak(one.id) for one in people))
        ids = [entry.message.message_id or "" for entry in await store.page(record.id, limit=100)]
        assert len(ids) == 24
        for asked, answered in zip(ids[::2], ids[1::2], strict=True):
            assert asked.removesuffix("/1") == answered.removesuffix("/2")
