"""What search costs on PostgreSQL: a turn with and without it, and a query alone and among many owners.

python -m benchmarks.postgres_search [--url postgresql://…] [--turns 400] [--messages 100000] [--owners 1000]
"""

import argparse
import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from itertools import accumulate, product

import psycopg
from tests.servers.postgres import Databases

from aforesaid.contracts import Entry
from aforesaid.model.conversations import started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.stores.postgres import PostgresBackend
from aforesaid.stores.postgres.search import SearchIndex
from aforesaid.stores.postgres.store import PostgresStore
from aforesaid.stores.postgres.terms import Indexed
from benchmarks.postgres import BARE_TABLE, Bench, server, timed

WORDS = ["".join(letters) for letters in product("bdfglmprst", "aeiou", "bdkmnprtvz", "aeiou", "knrtx")]
SHARES = list(accumulate(1 / (place + 10) for place in range(len(WORDS))))
"""Words as people use them: the tenth a tenth as often as the first."""
QUESTIONS = {
    "rare words": (300, 900, 4000),
    "a common word among rare ones": (5, 300, 4000),
    "common words": (2, 3, 5),
}
LIMIT = 200


class Unindexed(SearchIndex):
    """An index that is not written: what a turn costs without search."""

    async def of(self, messages: Sequence[Message], bodies: Sequence[str], now: datetime) -> list[Indexed]:
        return [Indexed("", 0)] * len(messages)


def without_search(backend: PostgresBackend, owner: str) -> PostgresStore:
    store = backend.of(owner)
    store._log._index = Unindexed(backend, owner, owner)
    return store


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[PostgresBackend]:
    backend = PostgresBackend(url)
    await backend.open()
    try:
        yield backend
    finally:
        await backend.close()


async def turns(url: str, url_without: str, number: int) -> None:
    """A turn beside bare SQL, with the terms and without."""
    connecting = psycopg.AsyncConnection.connect(url_without, autocommit=True)
    async with opened(url) as backend, opened(url_without) as other_backend, await connecting as connection:
        await connection.execute(b"DROP INDEX aforesaid.messages_by_terms")
        await connection.execute(BARE_TABLE.encode())
        bench, other = Bench(backend, connection, number), Bench(other_backend, connection, number)
        other.store = without_search(other_backend, "bench")
        works = (
            bench.append(await bench.conversation(10)),
            other.append(await other.conversation(10)),
            bench.bare_three_trips(),
        )
        await timed(50, *works)
        ours, without, bare = await timed(number, *works)
    print(f"a turn of 2 messages, p50: {ours:.3f} ms")
    print(f"  without search:             {without:.3f} ms, so {ours / without:.2f} x")
    print(f"  bare BEGIN, INSERT, COMMIT: {bare:.3f} ms, so {ours / bare:.2f} x, or {without / bare:.2f} x")


def said(number: int, source: random.Random) -> list[Message]:
    """Messages of four to twenty words."""
    return [
        Message(
            role="assistant" if place % 2 else "user",
            content=" ".join(source.choices(WORDS, cum_weights=SHARES, k=source.randint(4, 20))),
        )
        for place in range(number)
    ]


async def fill(store: PostgresStore, messages: int, source: random.Random, *, each: int = 100) -> None:
    """Conversations of `each` messages."""
    for _ in range(max(messages // each, 1)):
        record = started(new_id(), now=store.now())
        entries = [
            Entry(
                conversation_id=record.id,
                sequence=sequence,
                revision=1,
                stored_at=store.now(),
                message=message.with_(timestamp=store.now()),
            )
            for sequence, message in enumerate(said(min(each, messages), source), 1)
        ]
        await store.restore(record, entries)


async def queries(store: PostgresStore, number: int) -> dict[str, float]:
    """The median milliseconds of each question."""
    took = {}
    for name, places in QUESTIONS.items():
        terms = [WORDS[place] for place in places]
        await store.matches(terms, limit=LIMIT)
        (took[name],) = await timed(number, lambda: store.matches(terms, limit=LIMIT))  # noqa: B023
    return took


async def vacuum(url: str) -> None:
    """As the server does by itself after a while."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(b"VACUUM ANALYZE")


async def searches(url: str, messages: int, owners: int, number: int) -> None:
    """Questions to one owner, alone and among others."""
    source = random.Random(1)
    async with opened(url) as backend:
        store = backend.of("ann")
        await fill(store, messages, source)
        await vacuum(url)
        alone = await queries(store, number)
        for owner in range(owners):
            await fill(backend.of(f"owner {owner}"), messages // 500, source)
        await vacuum(url)
        among = await queries(store, number)
        known = await store.matches([WORDS[place] for place in (2, 3, 5, 300, 900, 4000)], limit=0)
    print(f"{messages:,} messages of one owner; then {owners:,} more owners with {messages // 500:,} each")
    print(f"  messages that hold the words, from common to rare: {known.frequencies}")
    for name in QUESTIONS:
        ratio = among[name] / alone[name]
        print(f"  {name:32} {alone[name]:8.2f} ms alone {among[name]:8.2f} ms among: {ratio:.2f} x")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", help="a server to use, as its superuser, instead of a private one")
    parser.add_argument("--turns", type=int, default=400, help="turns to take the median of")
    parser.add_argument("--messages", type=int, default=100_000, help="messages of the owner who is asked")
    parser.add_argument(
        "--owners", type=int, default=1_000, help="other owners, each with a five-hundredth of that"
    )
    given = parser.parse_args()
    with server(given.url) as admin_url:
        databases = Databases(admin_url)
        try:
            asyncio.run(turns(databases.new(), databases.new(), given.turns))
            asyncio.run(searches(databases.new(), given.messages, given.owners, 30))
        finally:
            databases.drop()


if __name__ == "__main__":
    main()
