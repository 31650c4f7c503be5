"""Search, for stores that implement `Searchable`: the index agrees with the log.

    class TestMySearch(SearchContract):
        @pytest.fixture
        async def backend(self, clock): ...

Every result is compared with counts over all of the owner's messages.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

import pytest
from msgspec.structs import replace

from aforesaid.contracts import (
    Backend,
    ConversationStore,
    Entry,
    Match,
    Matches,
    Position,
    Searchable,
    capability,
)
from aforesaid.errors import AforesaidError, InvalidInput
from aforesaid.model.conversations import Changes, Conversation, Query
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.search.analysis import indexed_terms, terms_of
from aforesaid.testing.contract.base import Contract, FixedClock, assistant, new_conversation, user

HOUR = timedelta(hours=1)
EVERYTHING = 100_000

# Terms that no message has, some with a meaning in a query language.
HOSTILE = (
    "",
    " ",
    "a b",
    "door window",
    "Slots",
    "\0",
    "a\0b",
    "\ud800",
    "\n",
    "\u2028",
    '"',
    '"door"',
    "'",
    "''",
    "door'",
    "\\",
    "*",
    "door*",
    "^door",
    "{door}",
    "(door",
    "door)",
    "door:door",
    "door OR window",
    "NEAR(door window)",
    "NOT",
    "AND",
    "-door",
    "door:*",
    "<->",
    "!door",
    "%s",
    "$1",
    "🙂",
    "x" * 5_000,
    "é" * 33,
)


async def entries_of(store: ConversationStore) -> list[Entry]:
    """Return all entries of the owner, except those of expired conversations."""
    found: list[Entry] = []
    after = None
    while True:
        page = await store.find(Query(limit=100, after=after))
        for record in page.conversations:
            found += await store.page(record.id, limit=EVERYTHING)
        after = page.next
        if after is None:
            return found


def expected_matches(entries: Sequence[Entry], terms: Sequence[str]) -> Matches:
    """Return the expected matches, computed without an index, in order."""
    term_counts = [Counter(indexed_terms(entry.message)) for entry in entries if entry.unreadable is None]
    found = [
        Match(
            conversation_id=entry.conversation_id,
            position=entry.position,
            role=entry.message.role,
            counts=tuple(counts[term] for term in terms),
            length=counts.total(),
        )
        for entry, counts in zip(entries, term_counts, strict=True)
        if any(counts[term] for term in terms)
    ]
    return Matches(
        found=tuple(sorted(found, key=sort_key)),
        frequencies=tuple(sum(term in counts for counts in term_counts) for term in terms),
        messages=sum(counts.total() > 0 for counts in term_counts),
        terms=sum(counts.total() for counts in term_counts),
    )


def sort_key(match: Match) -> tuple[str, Position]:
    return match.conversation_id, match.position


async def searched(store: ConversationStore, *terms: str, limit: int = EVERYTHING) -> Matches:
    return await index_of(store).matches(terms, limit=limit)


def index_of(store: ConversationStore) -> Searchable:
    index = capability(store, Searchable)
    assert index is not None
    return index


async def check(store: ConversationStore, *terms: str) -> Matches:
    """Return the index's matches after comparing them with the expected ones."""
    answer = await searched(store, *terms)
    in_order = replace(answer, found=tuple(sorted(answer.found, key=sort_key)))
    assert in_order == expected_matches(await entries_of(store), terms)
    return in_order


class SearchContract(Contract):
    """The contract of `matches`."""

    async def test_the_store_is_searchable(self, store: ConversationStore) -> None:
        assert capability(store, Searchable) is not None

    async def test_an_empty_store_has_no_matches(self, store: ConversationStore) -> None:
        nothing = Matches(found=(), frequencies=(0, 0), messages=0, terms=0)
        assert await searched(store, "door", "window") == nothing

    async def test_counts_agree_with_the_log(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        await store.append(
            conversation.id,
            [
                user("the door, the door and the window"),
                assistant("Is the Door locked?", agent_name="Hall"),
                user([{"type": "text", "text": "une fenêtre déjà fermée"}]),
                user("門は閉まっていますか"),
                Message(role="system", content="door door door"),
                user("the of and"),
                user(""),
                user({"not": "a text"}),
            ],
        )
        known = await check(store, "door", "window", "nothing", "deja", "閉ま")
        assert known.frequencies == (2, 1, 0, 1, 1)
        assert (2, 1, 0, 0, 0) in [match.counts for match in known.found]
        assert {match.role for match in known.found} == {"user", "assistant"}

    async def test_repeated_and_empty_terms(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        await store.append(conversation.id, [user("door door"), user("window")])
        twice = await check(store, "door", "window", "door")
        assert twice.frequencies == (1, 1, 1)
        none = await check(store)
        assert (none.found, none.frequencies) == ((), ())
        assert none.messages == 2

    async def test_terms_are_opaque(self, store: ConversationStore, conversation: Conversation) -> None:
        said = [user(f"{term} door window") for term in HOSTILE if "\ud800" not in term]
        await store.append(conversation.id, said)
        known = await check(store, *HOSTILE, "door")
        assert known.frequencies == (*(0,) * len(HOSTILE), len(said))
        for term in HOSTILE:
            assert (await searched(store, term)).found == ()

    async def test_limit_returns_the_best_matches(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        for first in range(0, 60, 10):
            turn = [user(f"lamp number {number}") for number in range(first, first + 10)]
            await store.append(conversation.id, turn)
        appended = await store.append(conversation.id, [user("the kettle beside the lamp")])
        best = appended.new[0].position
        for limit in (1, 7, 60):
            known = await searched(store, "lamp", "kettl", limit=limit)
            assert len(known.found) == limit
            assert known.found[0].position == best
            assert (known.frequencies, known.messages) == ((61, 1), 61)
        assert (await searched(store, "lamp", limit=0)).found == ()
        for wrong in (-1, True, "1", 1.5):
            with pytest.raises(InvalidInput):
                await index_of(store).matches(["lamp"], limit=wrong)  # type: ignore[arg-type]

    async def test_a_repeated_turn_is_indexed_once(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        turn = [user("door", message_id="m1"), assistant("window", message_id="m2")]
        for _ in range(2):
            await store.append(conversation.id, turn)
        await store.append(conversation.id, [*turn, user("door again", message_id="m3")])
        assert (await check(store, "door", "window")).frequencies == (2, 1)

    async def test_a_refused_turn_is_not_indexed(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        await store.append(conversation.id, [user("door", message_id="m1")])
        for turn in ([user("window"), user("other", message_id="m1")], [user("window")]):
            with pytest.raises(AforesaidError):
                await store.append(conversation.id, turn, expected_revision=None if len(turn) > 1 else 9)
        assert (await check(store, "door", "window", "other")).frequencies == (1, 0, 0)

    async def test_rewritten_replaced_and_deleted_messages_are_not_found(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        other = await store.create(new_conversation(store))
        await store.append(other.id, [user("door and lamp")])
        await store.append(conversation.id, [user("door", message_id="m1"), user("window")])
        await store.replace(conversation.id, user("[gone] lamp", message_id="m1"))
        assert (await check(store, "door", "window", "lamp")).frequencies == (1, 1, 2)
        await store.rewrite(conversation.id, [user("chair")])
        assert (await check(store, "door", "window", "lamp", "chair")).frequencies == (1, 0, 1, 1)
        await store.rewrite(conversation.id, [])
        await store.append(conversation.id, [user("table")])
        await store.delete(other.id)
        assert (await check(store, "door", "lamp", "chair", "tabl")).frequencies == (0, 0, 0, 1)
        await store.clear()
        nothing = Matches(found=(), frequencies=(0,), messages=0, terms=0)
        assert await searched(store, "tabl") == nothing

    async def test_a_longer_rewritten_history_is_indexed_from_its_start(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        await store.append(conversation.id, [user("door")])
        assert (await check(store, "door")).frequencies == (1,)
        await store.rewrite(conversation.id, [user("window"), user("lamp"), user("chair")])
        assert (await check(store, "door", "window", "lamp", "chair")).frequencies == (0, 1, 1, 1)

    async def test_expired_messages_do_not_count_even_before_a_purge(
        self, store: ConversationStore, conversation: Conversation, clock: FixedClock
    ) -> None:
        short = await store.create(new_conversation(store, ttl=HOUR))
        await store.append(short.id, [user("door and window"), assistant("door")])
        await store.append(conversation.id, [user("door")])
        assert (await check(store, "door", "window")).frequencies == (3, 1)
        clock.advance(HOUR)
        known = await check(store, "door", "window")
        assert (known.frequencies, known.messages) == ((1, 0), 1)
        assert len((await searched(store, "door", limit=1)).found) == 1
        await store.purge_expired()
        assert await check(store, "door", "window") == known
        again = await store.create(new_conversation(store).with_(id=short.id))
        await store.append(again.id, [user("window")])
        assert (await check(store, "door", "window")).frequencies == (1, 1)

    async def test_restored_messages_are_found(
        self, backend: Backend, store: ConversationStore, conversation: Conversation, clock: FixedClock
    ) -> None:
        await store.append(conversation.id, [user("door", message_id="m1"), user("window"), user("lamp")])
        record = await store.get(conversation.id)
        entries = await store.page(conversation.id, limit=9)
        assert record is not None
        other_store = backend.of(f"elsewhere-{new_id()}")
        for part in (entries[1:], entries[:2], entries):
            await other_store.restore(record, part)
            await check(other_store, "door", "window", "lamp")
        assert (await check(other_store, "door", "window", "lamp")).frequencies == (1, 1, 1)
        clock.advance(timedelta(days=31))
        alive = record.with_(expires_at=clock() + HOUR)
        await other_store.restore(alive, [replace(entries[0], message=entries[0].message)])
        assert (await check(other_store, "door", "window")).frequencies == (1, 0)

    async def test_other_owners_do_not_affect_counts(
        self, backend: Backend, store: ConversationStore, conversation: Conversation
    ) -> None:
        await store.append(conversation.id, [user("door and window")])
        before = await check(store, "door", "window", "lamp")
        other = backend.of(f"other-{new_id()}")
        record = await other.create(new_conversation(other))
        for number in range(20):
            await other.append(record.id, [user(f"door window lamp {number}")])
        assert await check(store, "door", "window", "lamp") == before
        assert (await check(other, "door")).frequencies == (20,)
        await other.clear()
        assert await check(store, "door", "window", "lamp") == before

    async def test_concurrent_turns_are_all_found(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        other = await store.create(new_conversation(store))
        turns = [
            store.append(record.id, [user(f"door {number}"), assistant("window")])
            for number in range(20)
            for record in (conversation, other)
        ]
        await asyncio.gather(*turns)
        assert (await check(store, "door", "window")).frequencies == (40, 40)

    @pytest.mark.parametrize("seed", range(4))
    async def test_counts_agree_with_the_log_after_random_operations(
        self, backend: Backend, store: ConversationStore, clock: FixedClock, seed: int
    ) -> None:
        operations = _RandomOperations(store, backend.of(f"elsewhere-{new_id()}"), clock, random.Random(seed))
        for _ in range(12):
            for _ in range(6):
                await operations.run_one()
            for one in (operations.store, operations.other_store):
                await check(one, *operations.some_terms())


class _RandomOperations:
    """Random operations on the stores of two owners."""

    words = ("door", "window", "lamp", "kettle", "the", "Straße", "门窗", "running", "x" * 70)

    def __init__(
        self,
        store: ConversationStore,
        other_store: ConversationStore,
        clock: FixedClock,
        chance: random.Random,
    ) -> None:
        self.store = store
        self.other_store = other_store
        self._clock = clock
        self._chance = chance
        self._ids: list[str] = []

    def some_terms(self) -> list[str]:
        return [term for word in self._words(5) for term in terms_of(word)]

    async def run_one(self) -> None:
        choices = (self._create, self._say, self._say, self._say, self._change, self._end, self._move)
        with suppress(AforesaidError):  # an operation on a missing conversation changes nothing
            await self._chance.choice(choices)()

    async def _create(self) -> None:
        ttl = self._chance.choice((None, HOUR, HOUR * 8))
        record = await self.store.create(new_conversation(self.store, ttl=ttl))
        self._ids.append(record.id)

    async def _say(self) -> None:
        turn = [self._message() for _ in range(self._chance.randint(1, 4))]
        await self.store.append(self._some_id(), turn)

    async def _change(self) -> None:
        match self._chance.randint(0, 2):
            case 0:
                await self.store.rewrite(self._some_id(), [self._message()])
            case 1:
                await self.store.replace(self._some_id(), user(" ".join(self._words(3)), message_id="m1"))
            case _:
                await self.store.update(self._some_id(), Changes(ttl=HOUR * 3))

    async def _end(self) -> None:
        match self._chance.randint(0, 3):
            case 0:
                await self.store.delete(self._some_id())
            case 1:
                await self.store.purge_expired()
            case _:
                self._clock.advance(HOUR)

    async def _move(self) -> None:
        record = await self.store.get(self._some_id())
        if record is not None:
            entries = await self.store.page(record.id, limit=100)
            await self.other_store.restore(record, entries[self._chance.randint(0, 3) :])

    def _some_id(self) -> str:
        return self._chance.choice(self._ids) if self._ids else new_id()

    def _message(self) -> Message:
        said = " ".join(self._words(self._chance.randint(0, 8)))
        role = self._chance.choice(("user", "assistant", "tool", "system"))
        message_id = self._chance.choice((None, None, "m1", "m2"))
        return Message(role=role, content=said, message_id=message_id)  # type: ignore[arg-type]

    def _words(self, count: int) -> list[str]:
        return self._chance.choices(self.words, k=count)
