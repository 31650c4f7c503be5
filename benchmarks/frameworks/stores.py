"""Each framework's own store and our adapter, as the same two calls: add texts, and load all of them."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

LENGTHS = (10, 1000, 10_000)
TEXT = "a message of ordinary length, as people write them when they talk to an assistant about the day"


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


async def claude_theirs(folder: Path, _: AsyncExitStack) -> Store:
    from claude_agent_sdk import InMemorySessionStore

    return _claude(_in_memory(folder, InMemorySessionStore))


async def claude_ours(folder: Path, stack: AsyncExitStack) -> Store:
    from aforesaid.adapters.claude_agent_sdk import AforesaidSessionStore

    return _claude(AforesaidSessionStore(await _manager(folder, stack)))


def _claude(store: Any) -> Store:
    key = {"project_key": "p", "session_id": "s"}

    async def add(texts: list[str]) -> None:
        await store.append(key, [_claude_entry(text) for text in texts])

    async def load() -> int:
        return len(await store.load(key) or [])

    return Store(add, load)


def _claude_entry(text: str) -> dict[str, Any]:
    return {"type": "user", "uuid": str(uuid.uuid4()), "message": {"role": "user", "content": text}}


def _in_memory(folder: Path, make: Callable[[], Any]) -> Any:
    """Return the one store in memory of a measurement: a file would be opened again."""
    return _held.setdefault(folder, make())


_held: dict[Path, Any] = {}


FRAMEWORKS: dict[str, tuple[str, Make, Make, tuple[int, ...]]] = {
    "langgraph": ("AsyncSqliteSaver", langgraph_theirs, langgraph_ours, LENGTHS),
    "openai-agents": ("SQLiteSession", openai_theirs, openai_ours, LENGTHS),
    "llama-index": ("SQLAlchemyChatStore", llama_theirs, llama_ours, LENGTHS),
    "claude-agent-sdk": ("InMemorySessionStore", claude_theirs, claude_ours, LENGTHS),
    # One transaction per message: ten thousand of them would take most of the run.
    "strands": ("FileSessionManager", strands_theirs, strands_ours, LENGTHS[:2]),
}
