"""LangGraph as chat memory: a graph of one node over `MessagesState`, compiled with a checkpointer.

A turn is one `ainvoke` with the question, whose node gives the answer. A history is put in by one
`aupdate_state`. A window is read from `aget_state`, or cut by `trim_messages`.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any, ClassVar

from benchmarks.peers.contract import BUDGET, WINDOW, Peer, roles


class _Graph(Peer):
    packages: ClassVar[Sequence[str]] = ("langgraph", "langgraph-checkpoint-sqlite")
    modules: ClassVar[Sequence[str]] = ("langgraph.graph", "langchain_core.messages")
    has_budget: ClassVar[bool] = True

    def __init__(self) -> None:
        self._open = AsyncExitStack()
        self.graph: Any = None

    async def saver(self, place: str) -> Any:
        raise NotImplementedError

    async def open(self, place: str) -> None:
        from langchain_core.runnables import RunnableConfig
        from langgraph.graph import START, MessagesState, StateGraph

        async def answering(state: MessagesState, config: RunnableConfig) -> Any:
            return {"messages": [("assistant", config["configurable"]["answer"])]}

        builder = StateGraph(MessagesState)
        builder.add_node("assistant", answering)
        builder.add_edge(START, "assistant")
        self.graph = builder.compile(checkpointer=await self.saver(place))

    async def append_turn(self, session: str, question: str, answer: str, *, fresh: bool = False) -> None:
        config = {"configurable": {"thread_id": session, "answer": answer}}
        await self.graph.ainvoke({"messages": [("user", question)]}, config)

    async def grow(self, session: str, texts: Sequence[str]) -> None:
        await self.graph.aupdate_state(_thread(session), {"messages": roles(texts)})

    async def messages(self, session: str) -> list[Any]:
        state = await self.graph.aget_state(_thread(session))
        return list(state.values.get("messages", []))

    async def window(self, session: str, *, fresh: bool = False) -> list[str]:
        return [message.content for message in (await self.messages(session))[-WINDOW:]]

    async def fitting(self, session: str) -> list[str]:
        from langchain_core.messages import trim_messages

        kept = trim_messages(
            await self.messages(session),
            max_tokens=BUDGET,
            strategy="last",
            token_counter="approximate",
            start_on="human",
        )
        return [message.content for message in kept]

    async def everything(self, session: str) -> list[str]:
        return [message.content for message in await self.messages(session)]

    async def close(self) -> None:
        await self._open.aclose()


class SQLite(_Graph):
    async def saver(self, place: str) -> Any:
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

        return await self._open.enter_async_context(AsyncSqliteSaver.from_conn_string(f"{place}/graph.db"))


class Postgres(_Graph):
    packages: ClassVar[Sequence[str]] = ("langgraph", "langgraph-checkpoint-postgres", "psycopg")

    async def saver(self, place: str) -> Any:
        from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

        self._saver = await self._open.enter_async_context(AsyncPostgresSaver.from_conn_string(place))
        await self._saver.setup()
        return self._saver

    async def written(self) -> int:
        async with self._saver.conn.cursor() as cursor:
            await cursor.execute("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint AS bytes")
            return int((await cursor.fetchone())["bytes"])


def _thread(session: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": session}}
