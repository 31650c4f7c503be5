"""Aforesaid, with its defaults: tokens are counted and what is said can be searched for by its words.

Search by meaning is off: it works in quiet moments, which a benchmark has none of. The first message waits
until what counting needs is loaded; jobs measure only after that.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

from benchmarks.peers.contract import BUDGET, WINDOW, Peer, roles

OWNER = "erin"


class _Aforesaid(Peer):
    packages: ClassVar[Sequence[str]] = ("aforesaid",)
    modules: ClassVar[Sequence[str]] = ("aforesaid", "apsw")
    has_budget: ClassVar[bool] = True
    options: ClassVar[str] = ""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}

    def url(self, place: str) -> str:
        return place

    async def open(self, place: str) -> None:
        import aforesaid
        from aforesaid.windows import WindowPolicy

        self.memory = await aforesaid.open(
            self.url(place),
            ttl=None,
            retention=aforesaid.Retention(sweep_every=None),
            models=aforesaid.Models(embedder=None),
        )
        self.manager = self.memory.of(OWNER)
        self._last = WindowPolicy(max_messages=WINDOW)
        self._budget = WindowPolicy(max_tokens=BUDGET)

    async def of(self, session: str, *, fresh: bool) -> str:
        if fresh or session not in self._ids:
            self._ids[session] = (await self.manager.get_or_create_conversation(session)).id
        return self._ids[session]

    async def append_turn(self, session: str, question: str, answer: str, *, fresh: bool = False) -> None:
        async with self.manager.turn(await self.of(session, fresh=fresh)) as turn:
            turn.user(question)
            turn.assistant(answer)

    async def grow(self, session: str, texts: Sequence[str]) -> None:
        from aforesaid.model.messages import Message

        conversation_id = await self.of(session, fresh=True)
        said = [Message(role=role, content=text) for role, text in roles(texts)]  # type: ignore[arg-type]
        for start in range(0, len(said), 1_000):
            await self.manager.append(conversation_id, said[start : start + 1_000])

    async def window(self, session: str, *, fresh: bool = False) -> list[str]:
        return await self._context(session, self._last, fresh=fresh)

    async def fitting(self, session: str) -> list[str]:
        return await self._context(session, self._budget, fresh=False)

    async def _context(self, session: str, policy: Any, *, fresh: bool) -> list[str]:
        context = await self.manager.load_context(await self.of(session, fresh=fresh), policy=policy)
        return [str(message.content) for message in context.messages]

    async def everything(self, session: str) -> list[str]:
        conversation_id = await self.of(session, fresh=True)
        count = (await self.manager.get_conversation(conversation_id)).message_count
        return [str(one.content) for one in await self.manager.messages(conversation_id, limit=count or 1)]

    async def close(self) -> None:
        await self.memory.close()


class SQLite(_Aforesaid):
    packages: ClassVar[Sequence[str]] = ("aforesaid", "apsw")

    def url(self, place: str) -> str:
        return f"sqlite:///{place}/memory.db{self.options}"


class SQLiteWithoutSearch(SQLite):
    options: ClassVar[str] = "?search=off"


class Redis(_Aforesaid):
    packages: ClassVar[Sequence[str]] = ("aforesaid", "redis")

    async def open(self, place: str) -> None:
        from redis.asyncio import Redis as Client

        self.client: Any = Client.from_url(place)
        await super().open(place)

    async def written(self) -> int:
        return int((await self.client.info("persistence")).get("aof_current_size", 0))

    async def close(self) -> None:
        await self.client.aclose()
        await super().close()


class Postgres(_Aforesaid):
    packages: ClassVar[Sequence[str]] = ("aforesaid", "psycopg")

    async def open(self, place: str) -> None:
        import psycopg

        self.connection: Any = await psycopg.AsyncConnection.connect(place, autocommit=True)
        await super().open(place)

    async def written(self) -> int:
        sql = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint"
        return int((await (await self.connection.execute(sql)).fetchone())[0])

    async def close(self) -> None:
        await self.connection.close()
        await super().close()
