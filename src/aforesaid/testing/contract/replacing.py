"""Replacing and removing messages, and concurrent calls."""

import asyncio
from datetime import timedelta

import pytest

from aforesaid.contracts import (
    OPEN_TURNS,
    STATE,
    Backend,
    ConversationStore,
    Entry,
    Scrubbable,
    Tally,
    capability,
)
from aforesaid.errors import (
    ConversationNotFound,
    InvalidInput,
    MessageNotFound,
    RevisionConflict,
    StoreClosed,
)
from aforesaid.model.conversations import Conversation, Query
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message, Speech
from aforesaid.testing.contract.base import Contract, FixedClock, assistant, new_conversation, user
from aforesaid.testing.contract.owners import shared_counts

# Replacing messages, previewing a purge, clearing an owner, scrubbing.


HOUR = timedelta(hours=1)


class ReplacingContract(Contract):
    """`entry`, `replace`, `expired`, `clear`, conditional `delete`, and `scrub`."""

    async def test_find_an_entry_by_message_id(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        appended = await store.append(
            conversation.id, [user("one", message_id="m1"), assistant("two", message_id="m2")]
        )
        assert await store.entry(conversation.id, "m2") == appended.new[1]
        assert await store.entry(conversation.id, "m3") is None
        with pytest.raises(ConversationNotFound):
            await store.entry(new_id(), "m1")

    async def test_replace_keeps_sequence_and_time(
        self, store: ConversationStore, conversation: Conversation, clock: FixedClock
    ) -> None:
        at = clock() - timedelta(days=3)
        turn = [
            user("before", message_id="m1"),
            user("the secret", message_id="m2", timestamp=at, tags=("a",)),
            assistant("after", message_id="m3"),
        ]
        await store.append(conversation.id, turn)
        before = await store.page(conversation.id, limit=9)
        record = await store.get(conversation.id)
        clock.advance(HOUR)
        entry = await store.replace(conversation.id, user("[gone]", message_id="m2", tags=("b",)))
        after = await store.page(conversation.id, limit=9)
        assert [_place(one) for one in after] == [_place(one) for one in before]
        assert entry == after[0]
        assert entry.message == user("[gone]", message_id="m2", timestamp=at, tags=("b",))
        assert after[1:] == before[1:]
        assert record is not None
        changed = await store.get(conversation.id)
        assert changed is not None
        assert (entry.revision, changed.revision) == (record.revision + 1, record.revision + 1)
        assert changed.updated_at == clock()
        assert (changed.expires_at, changed.message_count) == (record.expires_at, 3)
        assert (changed.last_message_at, changed.last_message_from) == (
            record.last_message_at,
            record.last_message_from,
        )
        assert await store.entry(conversation.id, "m2") == entry

    async def test_append_after_replace(self, store: ConversationStore, conversation: Conversation) -> None:
        await store.append(conversation.id, [user("only", message_id="m1")])
        await store.replace(conversation.id, user("[gone]", message_id="m1"))
        appended = await store.append(conversation.id, [assistant("next")])
        assert appended.new[0].sequence == 2
        assert [one.message.content for one in await store.tail(conversation.id, limit=9)] == [
            "[gone]",
            "next",
        ]

    async def test_replace_deletes_derived_documents(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        await store.append(conversation.id, [user("the secret", message_id="m1")])
        await store.put_document("summaries", "1", b"the secret", conversation_id=conversation.id)
        await store.put_document("notes", "1", b"mine")
        await store.replace(conversation.id, user("[gone]", message_id="m1"))
        assert await store.document_kinds(conversation_id=conversation.id) == []
        assert await store.document_kinds() == ["notes"]

    async def test_replace_keeps_open_turns_and_state(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        """Open turns and an application's state are not derived from the log."""
        await store.append(conversation.id, [user("the secret", message_id="m1")])
        # Neighbours in alphabetical order: a store that compares prefixes keeps too much or too
        # little.
        kinds = ("open_turn", OPEN_TURNS, "open_turns2", "app/state", "app/state/x", "app/state0", "app/x")
        for kind in kinds:
            await store.put_document(kind, "q", b"words", conversation_id=conversation.id)
        await store.replace(conversation.id, user("[gone]", message_id="m1"))
        assert await store.document_kinds(conversation_id=conversation.id) == [STATE + "x", OPEN_TURNS]
        await store.rewrite(conversation.id, [])
        assert await store.document_kinds(conversation_id=conversation.id) == []

    async def test_replace_of_metadata_keeps_derived_documents(self, store: ConversationStore) -> None:
        conversation = await store.create(new_conversation(store))
        await store.append(conversation.id, [assistant("a long answer", message_id="m1")])
        await store.put_document("summary", "1", b"what was said", conversation_id=conversation.id)
        speech = Speech(spoken="a long answer", heard=6)
        labelled = assistant("a long answer", message_id="m1", speech=speech, tags=("cut",))
        entry = await store.replace(conversation.id, labelled)
        assert (entry.message.speech, entry.message.tags) == (speech, ("cut",))
        assert entry == await store.entry(conversation.id, "m1")
        kept = await store.get_document("summary", "1", conversation_id=conversation.id)
        assert kept is not None
        assert kept.data == b"what was said"

    async def test_invalid_replacements_are_refused(
        self, backend: Backend, store: ConversationStore, conversation: Conversation
    ) -> None:
        await store.append(conversation.id, [user("one", message_id="m1")])
        other = backend.of(f"another-{new_id()}")
        refusals: list[tuple[ConversationStore, str, Message, type[Exception]]] = [
            (store, conversation.id, user("x", message_id="m2"), MessageNotFound),
            (store, conversation.id, assistant("x", message_id="m1"), InvalidInput),
            (store, conversation.id, user("x"), InvalidInput),
            (store, new_id(), user("x", message_id="m1"), ConversationNotFound),
            (other, conversation.id, user("x", message_id="m1"), ConversationNotFound),
        ]
        for where, conversation_id, message, error in refusals:
            with pytest.raises(error):
                await where.replace(conversation_id, message)
        with pytest.raises(RevisionConflict):
            await store.replace(conversation.id, user("x", message_id="m1"), expected_revision=7)
        (entry,) = await store.page(conversation.id, limit=9)
        assert entry.message.content == "one"
        assert entry.revision == 1

    async def test_delete_checks_the_expected_revision(
        self, store: ConversationStore, conversation: Conversation, clock: FixedClock
    ) -> None:
        await store.append(conversation.id, [user("one")])
        with pytest.raises(RevisionConflict):
            await store.delete(conversation.id, expected_revision=0)
        assert len(await store.page(conversation.id, limit=9)) == 1
        await store.delete(conversation.id, expected_revision=1)
        assert await store.get(conversation.id) is None
        await store.delete(conversation.id, expected_revision=1)

    async def test_expired_lists_what_a_purge_will_remove(
        self, store: ConversationStore, clock: FixedClock
    ) -> None:
        lifetimes = (HOUR * 3, HOUR, None, HOUR * 2)
        records = [await store.create(new_conversation(store, ttl=ttl)) for ttl in lifetimes]
        assert await store.expired(by=clock()) == []
        soon = await store.expired(by=clock() + HOUR * 2)
        assert soon == [records[1], records[3]]
        assert await store.expired(by=clock() + HOUR * 9, limit=1) == [records[1]]
        clock.advance(HOUR * 2)
        assert await store.expired(by=clock()) == [records[1], records[3]]
        assert await store.purge_expired() == 2
        assert await store.expired(by=clock()) == []

    async def test_clear_removes_everything_of_one_owner(
        self, backend: Backend, store: ConversationStore, clock: FixedClock
    ) -> None:
        other = backend.of(f"another-{new_id()}")
        kept = await other.resume("kitchen", new_conversation(other))
        await other.append(kept.id, [user("mine")])
        for session in ("kitchen", "phone"):
            record = await store.resume(session, new_conversation(store, ttl=HOUR * 4, client_id=new_id()))
            await store.append(record.id, [user("one"), assistant("two")])
        over = await store.create(new_conversation(store, ttl=HOUR))
        await store.put_document("notes", "allergies", b"nuts")
        await store.put_document("summaries", "1", b"short", conversation_id=record.id)
        await other.put_document("notes", "allergies", b"none")
        clock.advance(HOUR)
        assert shared_counts(await store.clear()) == Tally(
            conversations=3, messages=4, sessions=2, documents={"notes": 1, "summaries": 1}
        )
        assert await store.document_kinds() == []
        assert (await store.find(Query())).conversations == ()
        assert await store.session("kitchen") is None
        assert await store.expired(by=clock() + HOUR * 9) == []
        assert await store.get(over.id) is None
        assert await store.clear() == await store.tally() == Tally()
        assert len(await other.page(kept.id, limit=9)) == 1
        assert await other.document_kinds() == ["notes"]
        assert await other.session("kitchen") is not None

    async def test_scrub_keeps_live_data(self, backend: Backend, store: ConversationStore) -> None:
        """Applies to backends with files; others have nothing to scrub."""
        record = await store.resume("kitchen", new_conversation(store))
        gone = await store.create(new_conversation(store))
        await store.append(record.id, [user("stays", message_id="m1")])
        await store.append(gone.id, [user("goes")])
        await store.put_document("notes", "1", b"stays")
        await store.delete(gone.id)
        before = await store.page(record.id, limit=9), await store.get_document("notes", "1")
        scrubbable = capability(backend, Scrubbable)
        if scrubbable is not None:
            # Scrubbing what is clean already must do nothing.
            for _ in range(2):
                assert await scrubbable.scrub("any owner") == ()
        assert (await store.page(record.id, limit=9), await store.get_document("notes", "1")) == before
        await store.append(record.id, [assistant("and goes on")])
        assert len(await store.tail(record.id, limit=9)) == 2


def _place(entry: Entry) -> tuple[object, ...]:
    return entry.sequence, entry.stored_at, entry.message.timestamp, entry.message.message_id


# Concurrent calls: nothing lost, nothing duplicated, no turn split, also after cancellation.


# More than the connections and threads of any store, so that some callers wait.
WRITERS = 50


class ConcurrencyContract(Contract):
    """Concurrent writers and readers, cancellation, and closing."""

    async def test_fifty_concurrent_writers_keep_every_turn_whole(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        async def write(writer: int) -> None:
            for turn in range(4):
                key = f"{writer}/{turn}"
                await store.append(
                    conversation.id, [user(key), assistant({"for": key}), assistant([key, "done"])]
                )

        await asyncio.gather(*(write(writer) for writer in range(WRITERS)))
        entries = await store.page(conversation.id, limit=1000)
        assert [entry.sequence for entry in entries] == list(range(1, WRITERS * 4 * 3 + 1))
        turns = [entries[start : start + 3] for start in range(0, len(entries), 3)]
        keys = [turn[0].message.content for turn in turns]
        assert len(set(keys)) == WRITERS * 4
        for key, turn in zip(keys, turns, strict=True):
            assert [entry.message.content for entry in turn] == [key, {"for": key}, [key, "done"]]
            assert len({entry.revision for entry in turn}) == 1
        record = await store.get(conversation.id)
        assert record is not None
        assert (record.message_count, record.revision) == (600, 200)

    async def test_one_of_many_conditional_writers_wins(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        attempts = [store.append(conversation.id, [user(n)], expected_revision=0) for n in range(10)]
        results = await asyncio.gather(*attempts, return_exceptions=True)
        assert sum(not isinstance(result, BaseException) for result in results) == 1
        assert sum(isinstance(result, RevisionConflict) for result in results) == 9
        assert len(await store.page(conversation.id, limit=100)) == 1

    async def test_the_same_turn_from_concurrent_writers_is_stored_once(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        turn = [user("hello", message_id="m1"), assistant("hi", message_id="m2")]
        results = await asyncio.gather(*(store.append(conversation.id, turn) for _ in range(20)))
        assert sum(len(result.new) for result in results) == 2
        assert len(await store.page(conversation.id, limit=100)) == 2

    async def test_cancelled_appends_store_a_whole_turn_or_nothing(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        async def write(number: int) -> None:
            await store.append(conversation.id, [user(number), assistant(number)])

        tasks = [asyncio.create_task(write(number)) for number in range(60)]
        for step, task in enumerate(tasks):
            if step % 3 == 0:
                await asyncio.sleep(0)  # let some of them get under way
            if step % 2:
                task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        stored = [entry.message.content for entry in await store.page(conversation.id, limit=1000)]
        assert stored[::2] == stored[1::2]
        assert len(set(stored)) == len(stored) // 2
        acknowledged = {number for number, result in enumerate(results) if result is None}
        assert acknowledged <= set(stored)

    async def test_concurrent_readers_see_whole_turns(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        async def write() -> None:
            for number in range(40):
                await store.append(conversation.id, [user(number), assistant(number)])

        writing = asyncio.create_task(write())
        while not writing.done():
            await asyncio.sleep(0)  # a store that never waits would keep the writer out
            seen = [entry.message.content for entry in await store.page(conversation.id, limit=1000)]
            assert seen[::2] == seen[1::2]
        await writing

    async def test_concurrent_writes_to_many_conversations(self, store: ConversationStore) -> None:
        records = [await store.create(new_conversation(store)) for _ in range(20)]
        await asyncio.gather(
            *(store.append(record.id, [user(f"{record.id} {n}")]) for record in records for n in range(10))
        )
        for record in records:
            entries = await store.page(record.id, limit=100)
            assert len(entries) == 10
            assert all(str(entry.message.content).startswith(record.id) for entry in entries)

    async def test_a_closed_backend_refuses_calls_and_can_be_closed_again(
        self, backend: Backend, store: ConversationStore, conversation: Conversation
    ) -> None:
        await backend.close()
        await backend.close()
        with pytest.raises(StoreClosed):
            await store.append(conversation.id, [user("late")])
        with pytest.raises(StoreClosed):
            await store.find(Query())
        await backend.open()
        assert await store.get(conversation.id) == conversation

    async def test_close_during_writes_keeps_acknowledged_turns(
        self, backend: Backend, store: ConversationStore, conversation: Conversation
    ) -> None:
        async def write(number: int) -> int:
            await store.append(conversation.id, [user(number), assistant(number)])
            return number

        tasks = [asyncio.create_task(write(number)) for number in range(40)]
        await asyncio.sleep(0)  # let them get under way
        await asyncio.gather(backend.close(), backend.close())
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [result for result in results if not isinstance(result, int | StoreClosed)] == []
        await backend.open()
        stored = [entry.message.content for entry in await store.page(conversation.id, limit=1000)]
        assert stored[::2] == stored[1::2]
        acknowledged = {result for result in results if isinstance(result, int)}
        assert acknowledged <= set(stored)
