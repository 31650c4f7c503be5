"""What a turn costs on Redis: `python -m benchmarks.redis_turns`.

Starts a private server. Measures, in the same run and taking turns, so that a busy machine slows both alike:

- a turn of two messages through the store, against the least that anybody could do by hand: one
  pipeline of RPUSH and HSET with the same bytes, over the same driver;
- the same turn on conversations of 10, 1,000 and 100,000 messages: it must not grow.
"""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable

from redis.asyncio import Redis
from tests.servers.redis import running

from aforesaid.contracts import ConversationStore
from aforesaid.model.conversations import started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.model.wire import encode_message
from aforesaid.stores.redis import RedisBackend

ROUNDS = 3000
LENGTHS = (10, 1_000, 100_000)

TURN = [
    Message(role="user", content="Is the kitchen window closed, and how warm is it in there?"),
    Message(role="assistant", content="The kitchen window is closed. It is 21.5 degrees in the kitchen."),
]


async def main() -> None:
    with running() as port:
        url = f"redis://127.0.0.1:{port}/0"
        backend = RedisBackend(url)
        await backend.open()
        bare = Redis.from_url(url)
        try:
            store = backend.of("benchmark")
            await compare_with_bare(store, bare)
            await compare_lengths(store)
        finally:
            await bare.aclose()
            await backend.close()


async def compare_with_bare(store: ConversationStore, bare: Redis) -> None:
    record = await store.create(started(new_id(), now=store.now()))

    async def by_hand() -> None:
        bodies = [encode_message(message) for message in TURN]
        async with bare.pipeline(transaction=False) as pipe:
            pipe.rpush("bare:log", *bodies)
            pipe.hset("bare:record", mapping={"updated_at": time.time(), "count": 2, "last": "assistant"})
            await pipe.execute()

    ours, theirs = await alternating(lambda: store.append(record.id, TURN), by_hand)
    print(f"turn           p50 {ours[0]:6.0f} µs   p95 {ours[1]:6.0f} µs")
    print(f"RPUSH + HSET   p50 {theirs[0]:6.0f} µs   p95 {theirs[1]:6.0f} µs")
    print(f"ratio of p50       {ours[0] / theirs[0]:6.2f}")


async def compare_lengths(store: ConversationStore) -> None:
    ids = [await of_length(store, length) for length in LENGTHS]
    figures = await alternating(*(lambda one=one: store.append(one, TURN) for one in ids))
    for length, (median, high) in zip(LENGTHS, figures, strict=True):
        print(f"at {length:>7,} messages   p50 {median:6.0f} µs   p95 {high:6.0f} µs")
    print(f"longest to shortest    {figures[-1][0] / figures[0][0]:6.2f}")


async def of_length(store: ConversationStore, length: int) -> str:
    record = await store.create(started(new_id(), now=store.now()))
    for start in range(0, length, 1000):
        await store.append(record.id, (TURN * 500)[: min(1000, length - start)])
    return record.id


async def alternating(*contestants: Callable[[], Awaitable[object]]) -> list[tuple[float, float]]:
    """Median and 95th percentile of each, in microseconds."""
    taken: list[list[float]] = [[] for _ in contestants]
    for _ in range(ROUNDS):
        for contestant, times in zip(contestants, taken, strict=True):
            begin = time.perf_counter()
            await contestant()
            times.append((time.perf_counter() - begin) * 1e6)
    return [(statistics.median(times), statistics.quantiles(times, n=20)[-1]) for times in taken]


if __name__ == "__main__":
    asyncio.run(main())
