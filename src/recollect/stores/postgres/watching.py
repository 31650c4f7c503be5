"""Hearing of changes: one listening connection for all watchers of a backend. Above: `backend`, `store`.

A notification says which conversation moved, and where to; no content travels. A watcher remembers
where its conversations stand, so that after a lost connection it is told what it has missed.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import psycopg
from psycopg.rows import tuple_row

from recollect.contracts import Change
from recollect.deadlines import ended
from recollect.errors import RecollectError, StoreClosed
from recollect.stores.postgres.connections import SQL, Connection, translated
from recollect.stores.postgres.keys import digest_of

logger = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 30.0
"""How often a silent connection is asked if it is still there."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
"""Seconds between attempts to connect again."""

WRITERS_PAUSE = 0.01
"""Seconds between looks at whether earlier writers are done. A turn takes about a thousandth."""

Revisions = Callable[[], Awaitable[dict[str, int]]]


class Watcher(AsyncIterator[Change]):
    """The changes that one caller has not seen yet, each conversation once, with its last revision."""

    def __init__(self, owner: str, conversation_id: str | None, revisions: Revisions) -> None:
        self.owner = digest_of(owner)
        self._conversation_id = conversation_id
        self._revisions = revisions
        self._standing: dict[str, int | None] = {}
        self._pending: dict[str, int | None] = {}
        self._wake = asyncio.Event()
        self._closed = False

    async def remember(self) -> None:
        """Take note of where things stand."""
        self._standing = dict(await self._revisions())

    async def catch_up(self) -> None:
        """Find out what has changed while nothing could be heard."""
        found = await self._revisions()
        for conversation_id in {*found, *self._standing}:
            self.tell(conversation_id, found.get(conversation_id))

    def tell(self, conversation_id: str, revision: int | None) -> None:
        if self._conversation_id not in (None, conversation_id):
            return
        if self._standing.get(conversation_id) == revision:
            return
        self._standing[conversation_id] = revision
        self._pending[conversation_id] = revision
        self._wake.set()

    def close(self) -> None:
        self._closed = True
        self._wake.set()

    async def __anext__(self) -> Change:
        while not self._pending:
            if self._closed:
                raise StoreClosed
            self._wake.clear()
            await self._wake.wait()
        conversation_id = next(iter(self._pending))
        return Change(conversation_id=conversation_id, revision=self._pending.pop(conversation_id))


class Listener:
    """Listens while somebody watches, and connects again when the connection is lost."""

    def __init__(self, connect: Callable[[], Awaitable[Connection]], server: str) -> None:
        self._connect = connect
        self._server = server
        self._watchers: set[Watcher] = set()
        self._task: asyncio.Task[None] | None = None
        self._connection: Connection | None = None
        self._changing = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def watch(
        self, owner: str, conversation_id: str | None, revisions: Revisions
    ) -> AsyncIterator[AsyncIterator[Change]]:
        watcher = Watcher(owner, conversation_id, revisions)
        async with self._changing:
            await self._start()
            self._watchers.add(watcher)
        try:
            # After the listening has begun: what happens from here on is heard.
            await watcher.remember()
            yield watcher
        finally:
            self._watchers.discard(watcher)
            async with self._changing:  # somebody else may be coming in
                if not self._watchers:
                    await self._stop()

    async def close(self) -> None:
        for watcher in self._watchers:
            watcher.close()
        async with self._changing:
            await self._stop()

    async def _start(self) -> None:
        if self._task is None:
            with translated(self._server):
                await self._begin()
            self._task = asyncio.create_task(self._listen(), name="recollect-listener")

    async def _stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            await ended(task)
            await self._end()

    async def _begin(self) -> None:
        self._connection = connection = await self._connect()
        try:
            await connection.execute(SQL["listen"])
            await connection.execute(SQL["attend"])
            await _earlier_writers_done(connection)
        except BaseException:
            await self._end()
            raise

    async def _end(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _listen(self) -> None:
        """Hear what there is; when the connection is lost, connect again and catch up."""
        pause = FIRST_PAUSE
        while True:
            try:
                if self._connection is None:
                    await self._begin()
                    await self._catch_up()
                    pause = FIRST_PAUSE
                await self._hear()
            except (psycopg.Error, RecollectError) as error:
                logger.warning("%s: listening again in %.2f s after: %s", self._server, pause, error)
            await self._end()
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _hear(self) -> None:
        while (connection := self._connection) is not None:
            async for notification in connection.notifies(timeout=HEARTBEAT_SECONDS):
                self._dispatch(notification.payload)
            await connection.execute(b"SELECT 1")

    async def _catch_up(self) -> None:
        for watcher in tuple(self._watchers):
            await watcher.catch_up()

    def _dispatch(self, payload: str) -> None:
        owner, _, rest = payload.partition(" ")
        conversation_id, _, revision = rest.partition(" ")
        if revision != "-" and not revision.isdecimal():
            return  # anybody who may connect may notify: what is not ours means nothing
        for watcher in self._watchers:
            if watcher.owner == owner:
                watcher.tell(conversation_id, None if revision == "-" else int(revision))


async def _earlier_writers_done(connection: Connection) -> None:
    """Wait for those who wrote before anybody attended, and have not committed yet.

    They may not tell. Their changes count as made before the watch began, so they have to be over by then.
    """
    seen = await _writers(connection, None)
    while seen:
        await asyncio.sleep(WRITERS_PAUSE)
        seen = await _writers(connection, seen)


async def _writers(connection: Connection, seen: list[str] | None) -> list[str]:
    async with connection.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(SQL["writers"], {"seen": seen})
        return [name for (name,) in await cursor.fetchall()]
