"""LlamaIndex: `Memory` over a SQLite file. A turn is one `aput_messages`, a window what `aget` gives."""

from collections.abc import Sequence
from typing import Any, ClassVar

from benchmarks.peers.contract import BUDGET, WINDOW, Peer, roles


class SQLMemory(Peer):
    packages: ClassVar[Sequence[str]] = ("llama-index-core", "sqlalchemy", "aiosqlite")
    modules: ClassVar[Sequence[str]] = ("llama_index.core.memory",)
    has_budget: ClassVar[bool] = True
    limits: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        self.place = ""
        self._memories: dict[str, Any] = {}

    async def open(self, place: str) -> None:
        self.place = place

    def of(self, session: str) -> Any:
        from llama_index.core.memory import Memory

        if session not in self._memories:
            uri = f"sqlite+aiosqlite:///{self.place}/memory.db"
            self._memories[session] = Memory.from_defaults(
                session_id=session, async_database_uri=uri, **self.limits
            )
        return self._memories[session]

    async def append_turn(self, session: str, question: str, answer: str, *, fresh: bool = False) -> None:
        await self.of(session).aput_messages(_messages([question, answer]))

    async def grow(self, session: str, texts: Sequence[str]) -> None:
        await self.of(session).aput_messages(_messages(texts))

    async def window(self, session: str, *, fresh: bool = False) -> list[str]:
        return (await self.fitting(session))[-WINDOW:]

    async def fitting(self, session: str) -> list[str]:
        return [message.content for message in await self.of(session).aget()]

    async def everything(self, session: str) -> list[str]:
        return [message.content for message in await self.of(session).aget_all(status=None)]


class SmallSQLMemory(SQLMemory):
    """With a budget like the others', in place of its own."""

    limits: ClassVar[dict[str, Any]] = {"token_limit": BUDGET, "token_flush_size": BUDGET // 10}


def _messages(texts: Sequence[str]) -> list[Any]:
    from llama_index.core.llms import ChatMessage

    return [ChatMessage(role=role, content=text) for role, text in roles(texts)]
