"""What a turn and a context cost as a conversation grows: `python -m benchmarks.growth`.

A turn: time, and bytes written to the write-ahead log. A context: time, by messages and by tokens.

Contexts compare like with like: their messages are so long that by either policy the window is cut
well within 100 messages, so that the shortest conversation gives as full a window as the longest,
and what differs is only the history behind it.
"""

import asyncio
import os
import tempfile
from functools import partial
from pathlib import Path

import apsw

import aforesaid
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.messages import Message
from aforesaid.windows import WindowPolicy
from benchmarks.measuring import micros, p50, side_by_side
from benchmarks.turns import ANSWER, QUESTION

SIZES = (10, 1_000, 100_000)
CONTEXT_SIZES = (100, 100_000, 1_000_000)
LONGER = 3
"""How much longer the messages are that contexts are made of: about 75 tokens each, 53 in a window."""
BATCH = 1_000
BUDGET = WindowPolicy(max_tokens=4_000)


async def filled(manager: ConversationManager, size: int, *, longer: int = 1) -> str:
    """A conversation of so many messages, so many times as long as the usual ones."""
    conversation = await manager.get_or_create_conversation(f"of {size}, {longer}")
    pair = [
        Message(role="user", content=QUESTION * longer),
        Message(role="assistant", content=ANSWER * longer),
    ]
    for start in range(0, size, BATCH):
        count = min(BATCH, size - start)
        await manager.append(conversation.id, (pair * (count // 2 + 1))[:count])
    return conversation.id


async def turn(manager: ConversationManager, conversation_id: str) -> None:
    async with manager.turn(conversation_id) as one:
        one.user(QUESTION)
        one.assistant(ANSWER)


async def bytes_a_turn(memory: aforesaid.Memory, wal: Path, conversation_id: str, turns: int = 100) -> float:
    """Bytes that a turn adds to the write-ahead log."""
    other = apsw.Connection(str(wal).removesuffix("-wal"))
    other.pragma("wal_checkpoint", "TRUNCATE")
    for _ in range(turns):
        await turn(memory.of("bench"), conversation_id)
    size = os.path.getsize(wal)
    other.close()
    return size / turns


async def main() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory.db"
        async with aforesaid.open(
            f"sqlite:///{path}", retention=aforesaid.Retention(sweep_every=None)
        ) as memory:
            manager = memory.of("bench")
            ids = {size: await filled(manager, size) for size in SIZES}
            turns = await side_by_side(
                {str(size): partial(turn, manager, ids[size]) for size in SIZES}, rounds=400
            )
            written = {
                size: await bytes_a_turn(memory, path.with_name("memory.db-wal"), ids[size]) for size in SIZES
            }
            print("one more turn (FULL)")
            for size in SIZES:
                time = micros(p50(turns[str(size)]))
                print(f"  at {size:>9,} messages  p50 {time:>9}  {written[size]:,.0f} bytes")
            contexts = await measure_contexts(manager)
    smallest, largest = str(SIZES[0]), str(SIZES[-1])
    return {
        "turn, 100,000 : 10 messages, time": p50(turns[largest]) / p50(turns[smallest]),
        "turn, 100,000 : 10 messages, bytes": written[SIZES[-1]] / written[SIZES[0]],
        **contexts,
    }


async def measure_contexts(manager: ConversationManager) -> dict[str, float]:
    ids = {size: await filled(manager, size, longer=LONGER) for size in CONTEXT_SIZES}
    smallest, *_, largest = CONTEXT_SIZES
    ratios = {}
    for name, policy in (("20 messages", None), ("4,000 tokens", BUDGET)):
        times = await side_by_side(
            {str(size): partial(manager.load_context, ids[size], policy=policy) for size in CONTEXT_SIZES},
            rounds=200,
        )
        print(f"context of {name}")
        for size in CONTEXT_SIZES:
            print(f"  at {size:>9,} messages  p50 {micros(p50(times[str(size)])):>9}")
        ratio = p50(times[str(largest)]) / p50(times[str(smallest)])
        ratios[f"context of {name}, 1,000,000 : 100 messages"] = ratio
    return ratios


if __name__ == "__main__":
    for name, ratio in asyncio.run(main()).items():
        print(f"{name:58} {ratio:.2f}")
