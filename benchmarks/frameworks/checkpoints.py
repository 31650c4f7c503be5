"""Compare a turn through our saver with one through LangGraph's `AsyncSqliteSaver`, in one run.

    python -m benchmarks.frameworks.checkpoints [MESSAGES]

It prints the factors of time and size for a thread of 10,000 messages, or of another length, and fails if a
turn through our saver is not 50 times faster, or does not store 100 times less. Only the calls of the savers
are measured, by processor time, and each saver's best turn counts. They run on a loop of their own while the
graph waits: otherwise its work on the state would count as theirs.
"""

import asyncio
import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from aforesaid._internal.portal import Portal
from benchmarks.frameworks.__main__ import WORKER, python_of
from benchmarks.peers.environments import ROOT, environment

LENGTH = 10_000
TURNS = 8
FASTER = 50
SMALLER = 100
THREAD: Any = {"configurable": {"thread_id": "t"}}


def compared(folder: Path, length: int) -> dict[str, float]:
    """Return by which factors a turn through our saver is faster and smaller, and the times."""
    ours_at, theirs_at = folder / "ours.db", folder / "theirs.db"
    portal, stack = Portal(), AsyncExitStack()
    try:
        ours, theirs = portal.run(_savers(stack, ours_at, theirs_at))
        our_time, our_bytes = asyncio.run(_turn(ours, portal, ours_at, length))
        their_time, their_bytes = asyncio.run(_turn(theirs, portal, theirs_at, length))
        portal.run(stack.aclose())
    finally:
        portal.close()
    return {
        "faster": round(their_time / our_time, 1),
        "smaller": round(their_bytes / max(our_bytes, 1), 1),
        "our_ms": round(our_time * 1000, 2),
        "their_ms": round(their_time * 1000, 2),
        "our_bytes": our_bytes / TURNS,
        "their_bytes": their_bytes / TURNS,
    }


async def _savers(stack: AsyncExitStack, ours: Path, theirs: Path) -> tuple[Any, Any]:
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    import aforesaid
    from aforesaid.adapters.langgraph import AforesaidSaver

    memory = aforesaid.open(f"sqlite:///{ours}", models=aforesaid.Models(embedder=None))
    manager = (await stack.enter_async_context(memory)).of("kim")
    saver = await stack.enter_async_context(AsyncSqliteSaver.from_conn_string(str(theirs)))
    return AforesaidSaver(manager), saver


async def _turn(saver: Any, portal: Portal, path: Path, length: int) -> tuple[float, int]:
    """Return the seconds of the best turn after a history of this length, and the bytes of all turns."""
    from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
    from langgraph.graph import START, MessagesState, StateGraph

    spent = _timed(saver, portal)
    builder: Any = StateGraph(MessagesState)
    builder.add_node("model", lambda _: {"messages": [AIMessage(content="z" * 80)]})
    builder.add_edge(START, "model")
    graph = builder.compile(checkpointer=saver)
    before: list[BaseMessage] = []
    for number in range(length // 2):
        before += [HumanMessage(content=f"question {number} " + "x" * 80), AIMessage(content="y" * 80)]
    await graph.aupdate_state(THREAD, {"messages": before}, as_node="model")
    await graph.ainvoke({"messages": [HumanMessage(content="warm")]}, THREAD)
    size, turns = _stored_bytes(path), []
    for number in range(TURNS):
        spent.clear()
        await graph.ainvoke({"messages": [HumanMessage(content=f"turn {number}")]}, THREAD)
        turns.append(sum(spent))
    return min(turns), _stored_bytes(path) - size


def _timed(saver: Any, portal: Portal) -> list[float]:
    """Return the list to which each asynchronous call of the saver adds its processor time."""
    spent: list[float] = []

    def timed(original: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Awaitable[Any]]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            began = time.process_time()
            try:
                return portal.run(original(*args, **kwargs))
            finally:
                spent.append(time.process_time() - began)

        return call

    for name in ("aget_tuple", "aput", "aput_writes"):
        setattr(saver, name, timed(getattr(saver, name)))
    return spent


def _stored_bytes(path: Path) -> int:
    """Return the bytes of the pages in use."""
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        pages, free, size = (
            db.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
    return int((pages - free) * size)


def main(length: int) -> int:
    """Compare the savers in LangGraph's environment; return whether ours is not as good as promised."""
    python = python_of("langgraph")
    if not python.exists():
        print("NOT RUN: `make test-adapters ADAPTERS=langgraph` creates the environment of LangGraph")
        return 0
    command = [str(python), "-W", "ignore", "-m", "benchmarks.frameworks.checkpoints", WORKER, str(length)]
    done = subprocess.run(command, check=True, cwd=ROOT, env=environment(), stdout=subprocess.PIPE)
    found = json.loads(done.stdout.splitlines()[-1])
    print(json.dumps({"messages": length, **found}))
    return int(found["faster"] < FASTER or found["smaller"] < SMALLER)


if __name__ == "__main__":
    if sys.argv[1:2] == [WORKER]:
        with tempfile.TemporaryDirectory() as name:
            print(json.dumps(compared(Path(name), int(sys.argv[2]))))
    else:
        sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else LENGTH))
