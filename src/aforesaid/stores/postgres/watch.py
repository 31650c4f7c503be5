"""Watch conversations with one listening connection for all watchers of a backend.

A notification is only a hint, because every role that may connect can send one. It names an owner and a
conversation by keyed digests (`keys.Tags`). After a hint, a watcher reads the store and reports actual
changes, so a forged or repeated hint costs one read. After a lost connection, everything is read.

Behind a transaction pooler LISTEN succeeds and nothing ever arrives. So the listener notifies itself before
it trusts a connection. If that notification does not arrive, watchers poll, and the listener tries again
later.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from typing import Any, Literal

import psycopg
from psycopg.rows import tuple_row

from aforesaid._internal.tasks import ended, start_background
from aforesaid.contracts import Change
from aforesaid.errors import AforesaidError, StoreClosed, StoreUnavailable
from aforesaid.stores.postgres.connections import SQL, Connection, translated
from aforesaid.stores.postgres.rows import Tags

logger = logging.getLogger(__name__)

# Seconds between checks of a silent connection.
HEARTBEAT_SECONDS = 30.0
# Seconds between attempts to reconnect or to read again.
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
# Seconds between checks while some writers may not notify yet. A turn takes about a millisecond.
FIRST_CHECK, LONGEST_CHECK = 0.01, 2.0

# Seconds in which a notification to itself reaches a listener that works.
PROBE_SECONDS = 1.0
# Seconds between reads of all revisions where notifications do not arrive, and between attempts to listen.
POLL_SECONDS, RETRY_SECONDS = 1.0, 60.0

Delivery = Literal["notifications", "polling"]
"""How changes by other processes reach this one."""

ReadRevisions = Callable[[Collection[str] | None], Awaitable[dict[str, int]]]
"""Reads the revisions of these conversations, or of all."""


class Hints:
    """Conversations that may have changed, without duplicates, in the order of the hints."""

    def __init__(self) -> None:
        self.ids: dict[str, None] = {}
        self.everything = False

    def __bool__(self) -> bool:
        return self.everything or bool(self.ids)

    def add(self, other: "Hints") -> None:
        self.ids |= other.ids
        self.everything |= other.everything


class Watcher(AsyncIterator[Change]):
    """An iterator over changes: each conversation once, with its last revision."""

    def __init__(self, owner: str, conversation_id: str | None, read: ReadRevisions) -> None:
        self._owner = owner
        self._conversation_id = conversation_id
        self._read = read
        self._revisions: dict[str, int] = {}
        self._by_tag: dict[str, str] = {}
        self._hints = Hints()
        self._changes: dict[str, int | None] = {}
        self._tags = Tags(b"")
        self.owner_tag = ""
        self._wake = asyncio.Event()
        self._closed = False

    async def begin(self) -> None:
        """Read the current revisions, to which later ones are compared."""
        self._revisions = await self._read(self._scope())
        self._by_tag |= {self._tags.conversation(each): each for each in self._revisions}

    def follow(self, tags: Tags) -> None:
        """Use these tags from now on. After the database was replaced, the tags differ."""
        self._tags, self.owner_tag = tags, tags.owner(self._owner)
        known = self._revisions if self._conversation_id is None else (self._conversation_id,)
        self._by_tag = {tags.conversation(each): each for each in known}

    # Hints

    def hint(self, conversation_tag: str) -> None:
        """Record that a conversation of this owner may have changed."""
        known = self._by_tag.get(conversation_tag)
        if known is not None:
            self._hints.ids[known] = None
        elif self._conversation_id is None:
            self._hints.everything = True  # a conversation created since
        else:
            return
        self._wake.set()

    def hint_everything(self) -> None:
        self._hints.everything = True
        self._wake.set()

    def close(self) -> None:
        self._closed = True
        self._wake.set()

    # Reading the store after a hint

    async def __anext__(self) -> Change:
        pause = FIRST_PAUSE
        while not self._changes:
            if self._closed:
                raise StoreClosed
            self._wake.clear()
            if not self._hints:
                await self._wake.wait()
                continue
            try:
                await self._verify()
            except StoreUnavailable as error:
                logger.warning("retrying to read changes in %.2f s after: %s", pause, error)
                await self._wait(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
        conversation_id = next(iter(self._changes))
        return Change(conversation_id=conversation_id, revision=self._changes.pop(conversation_id))

    async def _wait(self, seconds: float) -> None:
        """Wait for this time, or until the watcher is closed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._closed:
                    self._wake.clear()
                    await self._wake.wait()

    async def _verify(self) -> None:
        """Read the conversations of the hints; record those that have changed."""
        hints, self._hints = self._hints, Hints()
        wanted = self._scope() if hints.everything else list(hints.ids)
        try:
            found = await self._read(wanted)
        except BaseException:
            self._hints.add(hints)  # keep the hints when the read fails or is cancelled
            raise
        compared = {*self._revisions, *found} if wanted is None else wanted
        # Also conversations that are known but were not found: they have been removed.
        for conversation_id in compared:
            self._compare(conversation_id, found.get(conversation_id))

    def _compare(self, conversation_id: str, revision: int | None) -> None:
        if self._revisions.get(conversation_id) == revision:
            return
        if revision is None:
            del self._revisions[conversation_id]
        else:
            self._revisions[conversation_id] = revision
            self._by_tag[self._tags.conversation(conversation_id)] = conversation_id
        self._changes[conversation_id] = revision

    def _scope(self) -> list[str] | None:
        return None if self._conversation_id is None else [self._conversation_id]


class Listener:
    """Listens while there are watchers; reconnects after a lost connection."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[Connection]],
        notify: Callable[[bytes, str], Awaitable[object]],
        server: str,
    ) -> None:
        """`connect` opens the listening connection; `notify` sends a payload as other processes do."""
        self._connect = connect
        self._notify = notify
        self._server = server
        # How changes arrive; None before the first watcher.
        self.delivery: Delivery | None = None
        self._watchers: set[Watcher] = set()
        self._tags = Tags(b"")
        self._task: asyncio.Task[None] | None = None
        self._connection: Connection | None = None
        # Serializes starting and stopping, so that no watcher joins a listener that is about to stop.
        self._changing = asyncio.Lock()
        # Whether writers know that this connection listens.
        self._is_listening = False
        # Transactions that started writing before that and may commit without a notification.
        self._writers: list[str] = []

    @contextlib.asynccontextmanager
    async def watch(
        self, owner: str, conversation_id: str | None, read: ReadRevisions
    ) -> AsyncIterator[AsyncIterator[Change]]:
        watcher = Watcher(owner, conversation_id, read)
        async with self._changing:
            await self._start()
            watcher.follow(self._tags)
            self._watchers.add(watcher)
        try:
            # Start listening first, so that no later change is missed.
            await watcher.begin()
            yield watcher
        finally:
            self._watchers.discard(watcher)
            async with self._changing:  # another watcher may be starting
                if not self._watchers:
                    await self._stop()

    async def close(self) -> None:
        for watcher in self._watchers:
            watcher.close()
        async with self._changing:
            await self._stop()

    # Starting and stopping

    async def _start(self) -> None:
        if self._task is None:
            with translated(self._server):
                await self._begin()
            self._task = start_background(self._listen(), name="aforesaid-listener")

    async def _stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            await ended(task)
            await self._end()

    async def _begin(self) -> None:
        self._is_listening, self._writers = False, []
        self._connection = connection = await self._connect()
        try:
            ((key,),) = await _fetch(connection, "listen")
            self._tags = Tags(bytes(key))
            # Before writers learn of this listener: a pooler would keep the announcement for another client.
            if await self._arrives(connection, bytes(key)):
                self._set_delivery("notifications")
                await self._update_state(connection)
            else:
                self._set_delivery("polling")
                await self._end()
        except BaseException:
            await self._end()
            raise

    async def check(self) -> Delivery:
        """Return how changes arrive; find out if no watcher has."""
        async with self._changing:
            if self.delivery is None:
                await self._start()
                if not self._watchers:
                    await self._stop()
        assert self.delivery is not None, "starting determines it"
        return self.delivery

    async def _arrives(self, connection: Connection, key: bytes) -> bool:
        """Return whether a notification of another connection reaches this one."""
        probe = f"probe {secrets.token_hex(8)}"
        await self._notify(key, probe)
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                async for notification in connection.notifies(timeout=PROBE_SECONDS):
                    if notification.payload == probe:
                        return True
                    self._dispatch(notification.payload)
        except TimeoutError:
            pass
        return False

    def _set_delivery(self, delivery: Delivery) -> None:
        if delivery == "polling" and self.delivery != "polling":
            logger.warning(
                "%s: notifications do not arrive, as behind a transaction pooler: changes of other processes "
                "are polled every %.0f s; the options listen_host and listen_port name the server itself",
                self._server,
                POLL_SECONDS,
            )
        elif delivery == "notifications" and self.delivery == "polling":
            logger.info("%s: notifications arrive again", self._server)
        self.delivery = delivery

    async def _end(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    # Listening

    async def _listen(self) -> None:
        """Dispatch notifications; after a lost connection, reconnect and read everything."""
        pause = FIRST_PAUSE
        while True:
            try:
                if self._connection is None:
                    await self._begin()
                    self._follow()
                    pause = FIRST_PAUSE
                await (self._receive() if self._connection is not None else self._poll())
                continue
            except (psycopg.Error, AforesaidError) as error:
                logger.warning(
                    "%s: reconnecting the listener in %.2f s after: %s", self._server, pause, error
                )
            except Exception:  # without this task, no watcher gets any change
                logger.exception("%s: the listener failed; reconnecting in %.2f s", self._server, pause)
            await self._end()
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _poll(self) -> None:
        """Read all revisions for a while; then try to listen again."""
        for _ in range(int(RETRY_SECONDS / POLL_SECONDS)):
            await asyncio.sleep(POLL_SECONDS)
            self._hint_everything()

    async def _receive(self) -> None:
        check = FIRST_CHECK
        while (connection := self._connection) is not None:
            is_settled = self._is_listening and not self._writers
            pause = HEARTBEAT_SECONDS if is_settled else check
            async for notification in connection.notifies(timeout=pause):
                self._dispatch(notification.payload)
            if is_settled:
                # A connection that a firewall dropped is as silent as one without notifications.
                await connection.execute(b"SELECT 1")
            else:
                check = min(check * 2, LONGEST_CHECK)
                await self._check_again(connection)

    async def _update_state(self, connection: Connection) -> None:
        """Make writers notify, and find earlier transactions that may not."""
        if not self._is_listening:
            ((self._is_listening,),) = await _fetch(connection, "announce_listener")
            self._writers = await _writers(connection, None) if self._is_listening else []
        elif self._writers:
            self._writers = await _writers(connection, self._writers)

    async def _check_again(self, connection: Connection) -> None:
        """Update the listening state, and read everything that may have changed without a notification."""
        was_listening, writers = self._is_listening, self._writers
        await self._update_state(connection)
        if not was_listening or self._writers != writers:
            self._hint_everything()

    def _follow(self) -> None:
        for watcher in self._watchers:
            watcher.follow(self._tags)
        self._hint_everything()

    def _hint_everything(self) -> None:
        for watcher in self._watchers:
            watcher.hint_everything()

    def _dispatch(self, payload: str) -> None:
        owner_tag, _, conversation_tag = payload.partition(" ")
        for watcher in self._watchers:
            if watcher.owner_tag == owner_tag:
                watcher.hint(conversation_tag)


async def _writers(connection: Connection, seen: list[str] | None) -> list[str]:
    return [name for (name,) in await _fetch(connection, "open_writers", seen=seen)]


async def _fetch(connection: Connection, query: str, **values: Any) -> list[tuple[Any, ...]]:
    async with connection.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(SQL[query], values)
        return await cursor.fetchall()
