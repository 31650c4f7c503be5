"""Searching: for stores that are `Searchable`. What an index says is what the log says.

    class TestMySearch(SearchContract):
        @pytest.fixture
        async def backend(self, clock): ...

Every answer is compared with counting by hand over all that the owner has.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import cast

import pytest
from msgspec.structs import replace

from aforesaid.contracts import Backend, ConversationStore, Entry, Match, Matches, Position, Searchable
from aforesaid.errors import AforesaidError, InvalidInput
from aforesaid.model.conversations import Changes, Conversation, Query
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.search.analysis import indexed_terms, terms_of
from aforesaid.testing.clocks import FixedClock
from aforesaid.testing.contract.base import Contract, assistant, new_conversation, user

HOUR = timedelta(hours=1)
EVERYTHING = 100_000

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
"""Terms that no message can have, some with a meaning in somebody's query language."""


async def entries_of(store: ConversationStore) -> list[Entry]:
    """All that the owner has, expired conversations left out."""
    found: list[Entry] = []
    after = None
    while True:
        page = await store.find(Query(limit=100, after=after))
        for record in page.conversations:
            found += await store.page(record.id, limit=EVERYTHING)
        after = page.next
        if after is None:
            return found


def counted(entries: Sequence[Entry], terms: Sequence[str]) -> Matches:
    """What an index has to say, without one: everything that matches, in the order of places."""
    held = [Counter(indexed_terms(entry.message)) for entry in entries if entry.unreadable is None]
    found = [
        Match(
            conversation_id=entry.conversation_id,
            position=entry.position,
            role=entry.message.role,
            counts=tuple(counts[term] for term in terms),
            length=counts.total(),
        )
        for entry, counts in zip(entries, held, strict=True)
        if any(counts[term] for term in terms)
    ]
    return Matches(
        found=tuple(sorted(found, key=place_of)),
        frequencies=tuple(sum(term in counts for counts in held) for term in terms),
        messages=sum(counts.total() > 0 for counts in held),
        terms=sum(counts.total() for counts in held),
    )


def place_of(match: Match) -> tuple[str, Position]:
    return match.conversation_id, match.position


async def searched(store: ConversationStore, *terms: str, limit: int = EVERYTHING) -> Matches:
    return await cast(Searchable, store).matches(terms, limit=limit)


async def check(store: ConversationStore, *terms: str) -> Matches:
    """The index's answer, which must be what counting gives."""
    answer = await searched(store, *terms)
    in_order = replace(answer, found=tuple(sorted(answer.found, key=place_of)))
    assert in_order == counted(await entries_of(store), terms)
    return in_order


class SearchContract(Contract):
    async def test_a_store_that_searches_says_so(self, store: ConversationStore) -> None:
        assert isinstance(store, Searchable)

    async def test_nothing_is_found_where_nothing_is(self, store: ConversationStore) -> None:
        nothing = Matches(found=(), frequencies=(0, 0), messages=0, terms=0)
        assert await searched(store, "door", "window") == nothing

    async def test_the_numbers_are_those_of_the_log(
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

    async def test_a_term_may_be_asked_for_twice_or_not_at_all(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        await store.append(conversation.id, [user("door door"), user("window")])
        twice = await check(store, "door", "window", "door")
        assert twice.frequencies == (1, 1, 1)
        none = await check(store)
        assert (none.found, none.frequencies) == ((), ())
        assert none.messages == 2

    async def test_any_term_is_safe(self, store: ConversationStore, conversation: Conversation) -> None:
        said = [user(f"{term} door window") for term in HOSTILE if "\ud800" not in term]
        await store.append(conversation.id, said)
        known = await check(store, *HOSTILE, "door")
        assert known.frequencies == (*(0,) * len(HOSTILE), len(said))
        for term in HOSTILE:
            assert (await searched(store, term)).found == ()

    async def test_only_so_many_are_found_and_the_best_are(
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
                await cast(Searchable, store).matches(["lamp"], limit=wrong)  # type: ignore[arg-type]

    async def test_a_turn_that_is_told_twice_counts_once(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        turn = [user("door", message_id="m1"), assistant("window", message_id="m2")]
        for _ in range(2):
            await store.append(conversation.id, turn)
        await store.append(conversation.id, [*turn, user("door again", message_id="m3")])
        assert (await check(store, "door", "window")).frequencies == (2, 1)

    async def test_what_is_refused_is_not_found(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        await store.append(conversation.id, [user("door", message_id="m1")])
        for turn in ([user("window"), user("other", message_id="m1")], [user("window")]):
            with pytest.raises(AforesaidError):
                await store.append(conversation.id, turn, expected_revision=None if len(turn) > 1 else 9)
        assert (await check(store, "door", "window", "other")).frequencies == (1, 0, 0)

    async def test_what_is_rewritten_replaced_or_deleted_is_not_found(
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

    async def test_a_history_that_is_rewritten_as_a_longer_one_is_found_from_its_start(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        await store.append(conversation.id, [user("door")])
        assert (await check(store, "door")).frequencies == (1,)
        await store.rewrite(conversation.id, [user("window"), user("lamp"), user("chair")])
        assert (await check(store, "door", "window", "lamp", "chair")).frequencies == (0, 1, 1, 1)

    async def test_what_has_expired_counts_nowhere_also_before_the_sweep(
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
        again = await store.create(replace(new_conversation(store), id=short.id))
        await store.append(again.id, [user("window")])
        assert (await check(store, "door", "window")).frequencies == (1, 1)

    async def test_what_is_restored_is_found(
        self, backend: Backend, store: ConversationStore, conversation: Conversation, clock: FixedClock
    ) -> None:
        await store.append(conversation.id, [user("door", message_id="m1"), user("window"), user("lamp")])
        record = await store.get(conversation.id)
        entries = await store.page(conversation.id, limit=9)
        assert record is not None
        elsewhere = backend.of(f"elsewhere-{new_id()}")
        for part in (entries[1:], entries[:2], entries):
            await elsewhere.restore(record, part)
            await check(elsewhere, "door", "window", "lamp")
        assert (await check(elsewhere, "door", "window", "lamp")).frequencies == (1, 1, 1)
        clock.advance(timedelta(days=31))
        alive = replace(record, expires_at=clock() + HOUR)
        await elsewhere.restore(alive, [replace(entries[0], message=entries[0].message)])
        assert (await check(elsewhere, "door", "window")).frequencies == (1, 0)

    async def test_others_change_no_number(
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

    async def test_turns_that_meet_are_all_found(
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
    async def test_whatever_happens_the_numbers_are_those_of_the_log(
        self, backend: Backend, store: ConversationStore, clock: FixedClock, seed: int
    ) -> None:
        life = _Life(store, backend.of(f"elsewhere-{new_id()}"), clock, random.Random(seed))
        for _ in range(12):
            for _ in range(6):
                await life.something_happens()
            for one in (life.store, life.elsewhere):
                await check(one, *life.some_terms())


class _Life:
    """Random things that happen to two owners."""

    words = ("door", "window", "lamp", "kettle", "the", "Straße", "门窗", "running", "x" * 70)

    def __init__(
        self,
        store: ConversationStore,
        elsewhere: ConversationStore,
        clock: FixedClock,
        chance: random.Random,
    ) -> None:
        self.store = store
        self.elsewhere = elsewhere
        self._clock = clock
        self._chance = chance
        self._ids: list[str] = []

    def some_terms(self) -> list[str]:
        return [term for word in self._words(5) for term in terms_of(word)]

    async def something_happens(self) -> None:
        happenings = (self._create, self._say, self._say, self._say, self._change, self._end, self._move)
        with suppress(AforesaidError):  # what was not there any more, or not yet: nothing has happened then
            await self._chance.choice(happenings)()

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
            await self.elsewhere.restore(record, entries[self._chance.randint(0, 3) :])

    def _some_id(self) -> str:
        return self._chance.choice(self._ids) if self._ids else new_id()

    def _message(self) -> Message:
        said = " ".join(self._words(self._chance.randint(0, 8)))
        role = self._chance.choice(("user", "assistant", "tool", "system"))
        message_id = self._chance.choice((None, None, "m1", "m2"))
        return Message(role=role, content=said, message_id=message_id)  # type: ignore[arg-type]

    def _words(self, count: int) -> list[str]:
        return self._chance.choices(self.words, k=count)
