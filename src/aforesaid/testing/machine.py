"""State machine: run random operations on a store and on the in-memory model, and compare.

    TestMachine = store_machine(lambda clock: MyBackend(clock=clock)).TestCase

Both stores get the same ids and the same clock, so all results must be equal.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, rule

from aforesaid.contracts import (
    Backend,
    ConversationStore,
    Document,
    SnapshotReader,
    Tally,
    capability,
    parse_listing,
)
from aforesaid.errors import AforesaidError
from aforesaid.model.conversations import CHANNELS, VALUE_SETS, Changes, Query, started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import ROLES, Message
from aforesaid.stores.memory import InMemoryBackend
from aforesaid.testing.contract.base import FixedClock
from aforesaid.testing.contract.owners import shared_counts

OWNERS = ("ann", "bob")
SESSIONS = ("kitchen", "phone")

# Names and tags, where stores refuse NUL. Contents, below, may have it.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
moments = st.datetimes(datetime(2026, 2, 1), datetime(2026, 4, 1), timezones=st.just(UTC))
messages = st.builds(
    Message,
    role=st.sampled_from(ROLES),
    content=json_values,
    timestamp=st.none() | moments,
    content_type=st.sampled_from(["text", "audio"]),
    agent_name=st.none() | texts,
    author=st.none() | st.sampled_from(("ann", "bob")),
    # Few ids, so that repeated and conflicting messages are frequent.
    message_id=st.none() | st.sampled_from(["m1", "m2", "m3", "m4"]),
    tags=st.lists(texts, max_size=2).map(tuple),
    extra=st.dictionaries(st.text(max_size=4), json_values, max_size=2),
)
turns = st.lists(messages, max_size=4)
changes = st.builds(
    Changes,
    status=st.sampled_from(VALUE_SETS["status"]),
    subject=st.none() | texts,
    tags=st.lists(texts, max_size=3).map(tuple),
    ttl=st.none() | st.timedeltas(timedelta(minutes=1), timedelta(days=3)),
)
queries = st.builds(
    Query,
    status=st.none() | st.sampled_from(VALUE_SETS["status"]),
    channel=st.none() | st.sampled_from(CHANNELS),
    tags=st.lists(texts, max_size=2).map(tuple),
    date_from=st.none() | moments,
    date_to=st.none() | moments,
    limit=st.integers(1, 4),
)

# Prefixes of each other and separators of key-value stores: a store that joins parts without escaping
# fails.
kinds = st.sampled_from(["note", "note/", "vectors/a:b"])
places = st.tuples(kinds, st.sampled_from(["k", "k\x01", "{k}", "é"]))

Operation = Callable[[ConversationStore], Awaitable[Any]]


class StoreMachine(RuleBasedStateMachine):
    """Random operations on two stores. `store_machine` sets the store under test."""

    make_backend: Callable[[FixedClock], Backend]
    ids = Bundle("ids")

    def __init__(self) -> None:
        super().__init__()
        self.clock = FixedClock()
        # One loop for the whole run, because the pools of a store belong to a loop.
        self.runner = asyncio.Runner()
        self.model: Backend = InMemoryBackend(clock=self.clock)
        self.real = self.make_backend(self.clock)
        # Runs share one server, so each has its own owners.
        self.run_id = new_id()

    def teardown(self) -> None:
        self.runner.run(self.real.close())
        self.runner.close()

    @initialize()
    def open(self) -> None:
        self.runner.run(self.model.open())
        self.runner.run(self.real.open())

    def both(self, owner: str, operation: Operation) -> None:
        """Run the operation on both stores; results and errors must be equal."""
        name = f"{owner}-{self.run_id}"
        expected = self.outcome(operation, self.model.of(name))
        actual = self.outcome(operation, self.real.of(name))
        assert actual == expected

    def outcome(self, operation: Operation, store: ConversationStore) -> Any:
        async def attempt() -> Any:
            try:
                return await operation(store)
            except AforesaidError as error:
                # The messages too: users and clients see the same text on every store.
                return type(error), str(error)

        return self.runner.run(attempt())

    # Also backwards: clocks of machines differ, and administrators set them.
    @rule(step=st.timedeltas(timedelta(seconds=-30), timedelta(days=1)))
    def time_passes(self, step: timedelta) -> None:
        self.clock.advance(step)

    @rule(
        target=ids,
        owner=st.sampled_from(OWNERS),
        channel=st.sampled_from(CHANNELS),
        ttl=st.none() | st.timedeltas(timedelta(minutes=1), timedelta(days=3)),
    )
    def create(self, owner: str, channel: str, ttl: timedelta | None) -> str:
        record = started(new_id(), now=self.clock(), ttl=ttl, channel=channel)
        self.both(owner, lambda store: store.create(record))
        return record.id

    @rule(owner=st.sampled_from(OWNERS), session=st.sampled_from(SESSIONS), idle=st.none() | st.just(1))
    def resume(self, owner: str, session: str, idle: int | None) -> None:
        record = started(new_id(), now=self.clock())
        since = None if idle is None else self.clock() - timedelta(hours=idle)
        self.both(owner, lambda store: store.resume(session, record, active_since=since))

    @rule(owner=st.sampled_from(OWNERS), session=st.sampled_from(SESSIONS), conversation_id=ids)
    def bind(self, owner: str, session: str, conversation_id: str) -> None:
        self.both(owner, lambda store: store.bind(session, conversation_id))

    @rule(owner=st.sampled_from(OWNERS), session=st.sampled_from(SESSIONS))
    def look_up_session(self, owner: str, session: str) -> None:
        self.both(owner, lambda store: store.session(session))

    @rule(owner=st.sampled_from(OWNERS), session=st.sampled_from(SESSIONS))
    def unbind(self, owner: str, session: str) -> None:
        self.both(owner, lambda store: store.unbind(session))

    @rule(
        owner=st.sampled_from(OWNERS),
        conversation_id=ids,
        turn=turns,
        revision=st.none() | st.integers(0, 3),
    )
    def append(self, owner: str, conversation_id: str, turn: list[Message], revision: int | None) -> None:
        self.both(owner, lambda store: store.append(conversation_id, turn, expected_revision=revision))

    @rule(owner=st.sampled_from(OWNERS), conversation_id=ids, turn=turns)
    def rewrite(self, owner: str, conversation_id: str, turn: list[Message]) -> None:
        self.both(owner, lambda store: store.rewrite(conversation_id, turn))

    @rule(
        owner=st.sampled_from(OWNERS),
        conversation_id=ids,
        message=messages,
        revision=st.none() | st.integers(0, 3),
    )
    def replace(self, owner: str, conversation_id: str, message: Message, revision: int | None) -> None:
        self.both(owner, lambda store: store.replace(conversation_id, message, expected_revision=revision))

    @rule(owner=st.sampled_from(OWNERS), hours=st.integers(0, 48))
    def look_at_what_expires(self, owner: str, hours: int) -> None:
        by = self.clock() + timedelta(hours=hours)
        self.both(owner, lambda store: store.expired(by=by, limit=3))

    @rule(owner=st.sampled_from(OWNERS))
    def clear(self, owner: str) -> None:
        async def cleared(store: ConversationStore) -> Tally:
            return shared_counts(await store.clear())

        self.both(owner, cleared)

    @rule(owner=st.sampled_from(OWNERS), conversation_id=st.none() | ids)
    def tally(self, owner: str, conversation_id: str | None) -> None:
        async def tallied(store: ConversationStore) -> Tally:
            return shared_counts(await store.tally(conversation_id))

        self.both(owner, tallied)

    @rule(owner=st.sampled_from(OWNERS), conversation_id=ids, change=changes)
    def update(self, owner: str, conversation_id: str, change: Changes) -> None:
        self.both(owner, lambda store: store.update(conversation_id, change))

    @rule(owner=st.sampled_from(OWNERS), conversation_id=ids)
    def get(self, owner: str, conversation_id: str) -> None:
        self.both(owner, lambda store: store.get(conversation_id))

    @rule(owner=st.sampled_from(OWNERS), conversation_id=ids, limit=st.integers(0, 6))
    def read_back(self, owner: str, conversation_id: str, limit: int) -> None:
        async def tails(store: ConversationStore) -> Any:
            last = await store.tail(conversation_id, limit=limit)
            before = await store.tail(conversation_id, limit=2, before=last[0].position) if last else []
            return last, before

        self.both(owner, tails)

    @rule(
        owner=st.sampled_from(OWNERS),
        conversation_id=ids,
        limit=st.integers(0, 4),
        offset=st.integers(0, 4),
    )
    def read_page(self, owner: str, conversation_id: str, limit: int, offset: int) -> None:
        self.both(owner, lambda store: store.page(conversation_id, limit=limit, offset=offset))

    @rule(owner=st.sampled_from(OWNERS), conversation_id=ids, limit=st.integers(0, 6))
    def read_snapshot(self, owner: str, conversation_id: str, limit: int) -> None:
        """Compare a snapshot with the model's separate reads."""
        listing = parse_listing("note", None, None, 2)

        async def seen(store: ConversationStore) -> Any:
            reader = capability(store, SnapshotReader)
            if reader is not None:
                found = await reader.read_snapshot(conversation_id, front=2, tail=limit, documents=listing)
                return list(found.front), list(found.tail), list(found.documents)
            first = await store.page(conversation_id, limit=2)
            last = await store.tail(conversation_id, limit=limit)
            return first, last, await store.documents("note", limit=2)

        self.both(owner, seen)

    @rule(owner=st.sampled_from(OWNERS), query=queries)
    def find(self, owner: str, query: Query) -> None:
        async def two_pages(store: ConversationStore) -> Any:
            first = await store.find(query)
            # The second page without the filters: a cursor must not depend on the query that
            # returned it.
            rest = await store.find(Query(limit=9, after=first.next)) if first.next else None
            return first, rest

        self.both(owner, two_pages)

    @rule(owner=st.sampled_from(OWNERS), conversation_id=ids)
    def look_up_sessions(self, owner: str, conversation_id: str) -> None:
        self.both(owner, lambda store: store.sessions(conversation_id))

    @rule(conversation_id=ids, reverse=st.booleans(), first=st.integers(0, 4))
    def move(self, conversation_id: str, reverse: bool, first: int) -> None:
        """Restore one owner's conversation into the other's store, in two parts that may overlap."""
        giver, taker = OWNERS[::-1] if reverse else OWNERS
        given: list[Any] = []

        async def read(store: ConversationStore) -> Any:
            given[:] = await store.get(conversation_id), await store.page(conversation_id, limit=99)
            return tuple(given)

        async def restored(store: ConversationStore) -> Any:
            record, entries = given
            # The later part first, and one entry twice: an interrupted copy is repeated from
            # anywhere.
            await store.restore(record, entries[first:])
            await store.restore(record, entries[: first + 1])
            return await store.get(conversation_id), await store.page(conversation_id, limit=99)

        self.both(giver, read)
        if given:
            self.both(taker, restored)

    @rule(owner=st.sampled_from(OWNERS), conversation_id=ids)
    def load(self, owner: str, conversation_id: str) -> None:
        self.both(owner, lambda store: store.load(conversation_id))

    @rule(
        owner=st.sampled_from(OWNERS),
        place=places,
        holder=st.none() | ids,
        data=st.binary(max_size=4),
        version=st.none() | st.integers(0, 3),
    )
    def put_document(
        self, owner: str, place: tuple[str, str], holder: str | None, data: bytes, version: int | None
    ) -> None:
        self.both(
            owner,
            lambda store: store.put_document(*place, data, conversation_id=holder, expected_version=version),
        )

    @rule(owner=st.sampled_from(OWNERS), kind=kinds, holder=st.none() | ids, limit=st.integers(0, 3))
    def read_documents(self, owner: str, kind: str, holder: str | None, limit: int) -> None:
        async def read(store: ConversationStore) -> Any:
            page = await store.documents(kind, conversation_id=holder, limit=limit)
            rest = await store.documents(kind, conversation_id=holder, after=page[-1].key) if page else []
            single = await store.get_document(kind, "k", conversation_id=holder)
            return page, rest, single, await store.document_kinds(conversation_id=holder)

        self.both(owner, read)

    @rule(
        owner=st.sampled_from(OWNERS),
        place=places,
        holder=st.none() | ids,
        version=st.none() | st.integers(1, 3),
    )
    def delete_document(
        self, owner: str, place: tuple[str, str], holder: str | None, version: int | None
    ) -> None:
        self.both(
            owner,
            lambda store: store.delete_document(*place, conversation_id=holder, expected_version=version),
        )

    @rule(kind=kinds, holder=st.none() | ids, reverse=st.booleans())
    def move_documents(self, kind: str, holder: str | None, reverse: bool) -> None:
        """Restore one owner's documents into the other's store."""
        giver, taker = OWNERS[::-1] if reverse else OWNERS
        given: list[Document] = []

        async def read(store: ConversationStore) -> Any:
            given[:] = await store.documents(kind, conversation_id=holder)
            return tuple(given)

        self.both(giver, read)
        self.both(taker, lambda store: store.restore_documents(given))

    @rule()
    def list_owners(self) -> None:
        async def mine(backend: Backend) -> list[str]:
            return sorted([owner async for owner in backend.owners() if owner.endswith(self.run_id)])

        # Stores may list an owner whose conversations have all expired until a purge, so both purge
        # first.
        self.runner.run(self.model.purge_expired())
        self.runner.run(self.real.purge_expired())
        assert self.runner.run(mine(self.real)) == self.runner.run(mine(self.model))

    @rule(owner=st.sampled_from(OWNERS), conversation_id=ids, revision=st.none() | st.integers(0, 3))
    def delete(self, owner: str, conversation_id: str, revision: int | None) -> None:
        async def deleted(store: ConversationStore) -> Tally:
            return shared_counts(await store.delete(conversation_id, expected_revision=revision))

        self.both(owner, deleted)

    @rule(owner=st.sampled_from(OWNERS))
    def purge(self, owner: str) -> None:
        self.both(owner, lambda store: store.purge_expired())


def store_machine(make_backend: Callable[[FixedClock], Backend]) -> type[RuleBasedStateMachine]:
    """Return the machine for the backends that `make_backend` creates. Each run uses its own owners."""
    return type("StoreMachine", (StoreMachine,), {"make_backend": staticmethod(make_backend)})
