"""What a turn and a context cost as a conversation grows: `python -m benchmarks.growth`.

A turn: time, and bytes written to the write-ahead log. A context: time, by messages and by tokens.
"""

import asyncio
import os
import tempfile
from functools import partial
from pathlib import Path

import apsw

import recollect
from benchmarks.measuring import micros, p50, side_by_side
from benchmarks.turns import ANSWER, QUESTION
from recollect.manager import ConversationManager
from recollect.messages import Message
from recollect.windows import WindowPolicy

SIZES = (10, 1_000, 100_000)
LARGEST = 1_000_000
BATCH = 1_000
BUDGET = WindowPolicy(max_tokens=4_000)


async def filled(manager: ConversationManager, size: int) -> str:
    """A conversation of so many messages."""
    conversation = await manager.get_or_create_conversation(f"of {size}")
    pair = [Message(role="user", content=QUESTION), Message(role="assistant", content=ANSWER)]
    for start in range(0, size, BATCH):
        count = min(BATCH, size - start)
        await manager.append(conversation.id, (pair * (count // 2 + 1))[:count])
    return conversation.id


async def turn(manager: ConversationManager, conversation_id: str) -> None:
    async with manager.turn(conversation_id) as one:
        one.user(QUESTION)
        one.assistant(ANSWER)


async def bytes_a_turn(memory: recollect.Memory, wal: Path, conversation_id: str, turns: int = 100) -> float:
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
        async with recollect.open(f"sqlite:///{path}", model="o200k_base", sweep_every=None) as memory:
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
            contexts = await measure_contexts(manager, {100: await filled(manager, 100), **ids})
    smallest, largest = str(SIZES[0]), str(SIZES[-1])
    return {
        "turn, 100,000 : 10 messages, time": p50(turns[largest]) / p50(turns[smallest]),
        "turn, 100,000 : 10 messages, bytes": written[SIZES[-1]] / written[SIZES[0]],
        **contexts,
    }


async def measure_contexts(manager: ConversationManager, ids: dict[int, str]) -> dict[str, float]:
    ids[LARGEST] = await filled(manager, LARGEST)
    sizes = (100, 100_000, LARGEST)
    ratios = {}
    for name, policy in (("20 messages", None), ("4,000 tokens", BUDGET)):
        times = await side_by_side(
            {str(size): partial(manager.load_context, ids[size], policy=policy) for size in sizes},
            rounds=200,
        )
        print(f"context of {name}")
        for size in sizes:
            print(f"  at {size:>9,} messages  p50 {micros(p50(times[str(size)])):>9}")
        ratios[f"context of {name}, 1,000,000 : 100 messages"] = p50(times[str(LARGEST)]) / p50(times["100"])
    return ratios


if __name__ == "__main__":
    for name, ratio in asyncio.run(main()).items():
        print(f"{name:58} {ratio:.2f}")
