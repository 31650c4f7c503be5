"""OpenAI Agents SDK: `SQLiteSession`, `AdvancedSQLiteSession`, `RedisSession`. A turn is one `add_items`."""

from collections.abc import Sequence
from typing import Any, ClassVar

from benchmarks.peers.contract import WINDOW, Peer, roles


class _Sessions(Peer):
    packages: ClassVar[Sequence[str]] = ("openai-agents",)
    modules: ClassVar[Sequence[str]] = ("agents",)
    dialect: ClassVar[str] = "openai_responses"

    def __init__(self) -> None:
        self.place = ""
        self._sessions: dict[str, Any] = {}

    async def open(self, place: str) -> None:
        self.place = place

    def make(self, session: str) -> Any:
        raise NotImplementedError

    def of(self, session: str) -> Any:
        if session not in self._sessions:
            self._sessions[session] = self.make(session)
        return self._sessions[session]

    async def append_turn(self, session: str, question: str, answer: str, *, fresh: bool = False) -> None:
        await self.of(session).add_items(_items([question, answer]))

    async def grow(self, session: str, texts: Sequence[str]) -> None:
        await self.of(session).add_items(_items(texts))

    async def window(self, session: str, *, fresh: bool = False) -> list[str]:
        return _texts(await self.of(session).get_items(limit=WINDOW))

    async def everything(self, session: str) -> list[str]:
        return _texts(await self.of(session).get_items())

    async def remember(self, session: str, items: Sequence[Any]) -> None:
        await self.of(session).add_items(list(items))

    async def recent(self, session: str, most: int) -> list[Any]:
        return list(await self.of(session).get_items(limit=most))

    async def close(self) -> None:
        for one in self._sessions.values():
            one.close()


class SQLite(_Sessions):
    def make(self, session: str) -> Any:
        from agents import SQLiteSession

        return SQLiteSession(session, f"{self.place}/sessions.db")


class Advanced(_Sessions):
    def make(self, session: str) -> Any:
        from agents.extensions.memory import AdvancedSQLiteSession

        return AdvancedSQLiteSession(
            session_id=session, db_path=f"{self.place}/advanced.db", create_tables=True
        )


class Redis(_Sessions):
    """One client for all sessions, as an application has."""

    packages: ClassVar[Sequence[str]] = ("openai-agents", "redis")

    async def open(self, place: str) -> None:
        from redis.asyncio import Redis as Client

        self.client = Client.from_url(place)

    def make(self, session: str) -> Any:
        from agents.extensions.memory import RedisSession

        return RedisSession(session_id=session, redis_client=self.client)

    async def written(self) -> int:
        return int((await self.client.info("persistence")).get("aof_current_size", 0))

    async def close(self) -> None:
        await self.client.aclose()


def _items(texts: Sequence[str]) -> list[dict[str, str]]:
    return [{"role": role, "content": text} for role, text in roles(texts)]


def _texts(items: Sequence[Any]) -> list[str]:
    return [item["content"] for item in items]
