"""Compare each framework's own store with our adapter on the same work: `python -m benchmarks.frameworks`.

Every framework runs in its test environment (`make test-adapters` creates them). The page
docs/internals/frameworks.md has a row per framework and length: the best of several turns, a load in a new
process's state, the bytes of a turn, and how many of two writers' turns are there afterwards.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.peers.environments import ROOT, environment

PAGE = ROOT / "docs" / "internals" / "frameworks.md"
LENGTHS = (10, 1000, 10_000)
TURNS = 8
TEXT = "a message of ordinary length, as people write them when they talk to an assistant about the day"


def python_of(name: str) -> Path:
    """Return the interpreter of a framework's test environment."""
    folder = Path(os.environ.get("AFORESAID_ADAPTERS") or ROOT / ".adapters")
    return folder / name / "bin" / "python"


class Store(NamedTuple):
    """A session in a store: add texts in turns of two, and load all of them."""

    add: Callable[[list[str]], Awaitable[Any]]
    load: Callable[[], Awaitable[int]]


Make = Callable[[Path, AsyncExitStack], Awaitable[Store]]


async def _manager(folder: Path, stack: AsyncExitStack) -> Any:
    import aforesaid

    url = f"sqlite:///{folder / 'ours.db'}"
    models = aforesaid.Models(embedder=None)
    return (await stack.enter_async_context(aforesaid.open(url, models=models))).of("kim")


async def openai_theirs(folder: Path, _: AsyncExitStack) -> Store:
    from agents import SQLiteSession

    return _openai(SQLiteSession("s", folder / "theirs.db"))


async def openai_ours(folder: Path, stack: AsyncExitStack) -> Store:
    from aforesaid.adapters.openai_agents import AforesaidSession

    return _openai(AforesaidSession("s", await _manager(folder, stack)))


def _openai(session: Any) -> Store:
    async def add(texts: list[str]) -> None:
        await session.add_items([{"role": "user", "content": text} for text in texts])

    async def load() -> int:
        return len(await session.get_items())

    return Store(add, load)


async def llama_theirs(folder: Path, _: AsyncExitStack) -> Store:
    from llama_index.core.storage.chat_store.sql import SQLAlchemyChatStore

    uri = f"sqlite+aiosqlite:///{folder / 'theirs.db'}"
    return _llama(SQLAlchemyChatStore(table_name="t", async_database_uri=uri))


async def llama_ours(folder: Path, stack: AsyncExitStack) -> Store:
    from aforesaid.adapters.llama_index import AforesaidChatStore

    return _llama(AforesaidChatStore(await _manager(folder, stack)))


def _llama(store: Any) -> Store:
    from llama_index.core.base.llms.types import ChatMessage

    async def add(texts: list[str]) -> None:
        await store.add_messages("s", [ChatMessage(role="user", content=text) for text in texts])

    async def load() -> int:
        return len(await store.get_messages("s"))

    return Store(add, load)


async def langgraph_theirs(folder: Path, stack: AsyncExitStack) -> Store:
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    saver = AsyncSqliteSaver.from_conn_string(str(folder / "theirs.db"))
    return _langgraph(await stack.enter_async_context(saver))


async def langgraph_ours(folder: Path, stack: AsyncExitStack) -> Store:
    from aforesaid.adapters.langgraph import AforesaidSaver

    return _langgraph(AforesaidSaver(await _manager(folder, stack)))


def _langgraph(saver: Any) -> Store:
    from langchain_core.messages import AIMessage, HumanMessage
    from langgraph.graph import START, MessagesState, StateGraph

    builder: Any = StateGraph(MessagesState)
    builder.add_node("answer", lambda _: {"messages": [AIMessage(content=TEXT)]})
    builder.add_edge(START, "answer")
    graph = builder.compile(checkpointer=saver)
    thread: Any = {"configurable": {"thread_id": "s"}}

    async def add(texts: list[str]) -> None:
        if len(texts) > 2:
            given = [HumanMessage(content=text) for text in texts]
            await graph.aupdate_state(thread, {"messages": given}, as_node="answer")
        else:
            await graph.ainvoke({"messages": [HumanMessage(content=texts[0])]}, thread)

    async def load() -> int:
        return len((await graph.aget_state(thread)).values["messages"])

    return Store(add, load)


async def strands_theirs(folder: Path, _: AsyncExitStack) -> Store:
    from strands.session.file_session_manager import FileSessionManager

    return _strands(FileSessionManager(session_id="s", storage_dir=str(folder / "theirs")))


async def strands_ours(folder: Path, _: AsyncExitStack) -> Store:
    from aforesaid.adapters.strands import AforesaidSessionRepository, open_manager

    return _strands(AforesaidSessionRepository(open_manager(f"sqlite:///{folder / 'ours.db'}", owner="kim")))


def _strands(repository: Any) -> Store:
    from strands.types.session import Session, SessionAgent, SessionMessage, SessionType

    if repository.read_session("s") is None:
        repository.create_session(Session(session_id="s", session_type=SessionType.AGENT))
    if repository.read_agent("s", "a") is None:
        repository.create_agent("s", SessionAgent(agent_id="a", state={}, conversation_manager_state={}))
    found = repository.list_messages("s", "a")
    numbers = [found[-1].message_id + 1 if found else 0]

    async def add(texts: list[str]) -> None:
        def write() -> None:
            for text in texts:
                message: Any = {"role": "user", "content": [{"text": text}]}
                repository.create_message("s", "a", SessionMessage.from_message(message, numbers[0]))
                numbers[0] += 1

        await asyncio.to_thread(write)

    async def load() -> int:
        return len(await asyncio.to_thread(repository.list_messages, "s", "a"))

    return Store(add, load)


FRAMEWORKS: dict[str, tuple[str, Make, Make, tuple[int, ...]]] = {
    "langgraph": ("AsyncSqliteSaver", langgraph_theirs, langgraph_ours, LENGTHS),
    "openai-agents": ("SQLiteSession", openai_theirs, openai_ours, LENGTHS),
    "llama-index": ("SQLAlchemyChatStore", llama_theirs, llama_ours, LENGTHS),
    # One transaction per message: ten thousand of them would take most of the run.
    "strands": ("FileSessionManager", strands_theirs, strands_ours, LENGTHS[:2]),
}


async def measure(make: Make, length: int) -> dict[str, float]:
    """Return the milliseconds of a turn and of a load, the bytes of a turn, and the turns of two writers."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with AsyncExitStack() as stack:
            store = await make(folder, stack)
            await store.add([f"{number} {TEXT}" for number in range(length)])
        # Sizes of closed files: an open store has a write-ahead log of any size.
        before, times = _bytes(folder), []
        async with AsyncExitStack() as stack:
            store = await make(folder, stack)
            for _ in range(TURNS):
                began = time.perf_counter()
                await store.add([TEXT, TEXT])
                times.append(time.perf_counter() - began)
        size = (_bytes(folder) - before) / TURNS
        async with AsyncExitStack() as stack:
            store = await make(folder, stack)
            began = time.perf_counter()
            stored = await store.load()
            load = time.perf_counter() - began
    return {"turn": min(times) * 1000, "load": load * 1000, "bytes": size, "stored": stored}


async def two_writers(make: Make) -> str:
    """Return how many of 20 turns of two writers are there afterwards, or the error that one got."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with AsyncExitStack() as stack:
            stores = [await make(folder, stack), await make(folder, stack)]
            await stores[0].add([TEXT, TEXT])
            before = await stores[0].load()
            each = before if before > 1 else 2

            async def talk(store: Store) -> int:
                done = 0
                for _ in range(10):
                    try:
                        await store.add([TEXT, TEXT])
                    except Exception:  # noqa: BLE001  # an error is the honest outcome of a conflict
                        break
                    done += 1
                return done

            accepted = sum(await asyncio.gather(*map(talk, stores)))
        async with AsyncExitStack() as stack:
            found = (await (await make(folder, stack)).load() - before) // each
    return f"{found} of {accepted} accepted"


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


async def _measured(name: str) -> list[dict[str, Any]]:
    own, theirs, ours, lengths = FRAMEWORKS[name]
    rows = []
    for label, make in ((own, theirs), ("Aforesaid", ours)):
        writers = await two_writers(make)
        for length in lengths:
            found = await measure(make, length)
            rows.append({"framework": name, "store": label, "length": length, "writers": writers, **found})
    return rows


def main() -> None:
    """Measure every framework and write the page."""
    rows: list[dict[str, Any]] = []
    for name in FRAMEWORKS:
        if not python_of(name).exists():
            print(f"{name} was not measured: `make test-adapters` creates its environment")
            continue
        command = [str(python_of(name)), "-W", "ignore", "-m", "benchmarks.frameworks", name]
        done = subprocess.run(command, check=True, cwd=ROOT, env=environment(), stdout=subprocess.PIPE)
        rows += json.loads(done.stdout.splitlines()[-1])
    PAGE.write_text(page(rows))


def page(rows: list[dict[str, Any]]) -> str:
    """Return the page."""
    lines = [
        "# Adapters next to the frameworks' own stores",
        "",
        "Written by `python -m benchmarks.frameworks`. A turn is two messages, the best of eight.",
        "With LangGraph it is a whole run of a graph, of which the saver is a part. Bytes are those of all",
        "files after closing, in whole pages. Two writers add ten turns each to one session at once;",
        "LangGraph's state is that of the newest checkpoint, and the turns that it lacks are in our log.",
        "Strands' own manager overwrites; ours refuses the second writer.",
        "",
        "| framework | store | messages before | turn | load | bytes of a turn | turns of two writers |",
        "| --- | --- | ---: | ---: | ---: | ---: | --- |",
    ]
    lines += [
        f"| {row['framework']} | {row['store']} | {row['length']:,} | {row['turn']:.1f} ms "
        f"| {row['load']:.1f} ms | {row['bytes']:,.0f} | {row['writers']} |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(asyncio.run(_measured(sys.argv[1]))))
    else:
        main()
