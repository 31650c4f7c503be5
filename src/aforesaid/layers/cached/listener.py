"""Watch the changes of recently read owners, and invalidate what they change."""

import asyncio
import logging
from typing import cast

from aforesaid._internal.bounded import BoundedDict
from aforesaid._internal.tasks import LoopWatch, ended
from aforesaid.contracts import ConversationStore, Watchable
from aforesaid.errors import StoreError
from aforesaid.layers.cached.memory import ConversationCache
from aforesaid.telemetry import describe

log = logging.getLogger("aforesaid.cached")

MAX_WATCHED = 64
"""Owners that are watched at once: on some stores each watch costs a connection. Other reads are checked."""


def _cancel(_: str, task: "asyncio.Task[None]") -> None:
    task.cancel()


class ChangeListener:
    """One background task per watched owner."""

    def __init__(self, cache: ConversationCache) -> None:
        self._cache = cache
        self._tasks: BoundedDict[str, asyncio.Task[None]] = BoundedDict(MAX_WATCHED, on_evict=_cancel)
        self._active: set[str] = set()
        self._loop = LoopWatch()

    def covers(self, owner: str, store: ConversationStore) -> bool:
        """Return whether the owner's changes arrive now; start a watch if there is none."""
        if self._loop.has_changed():
            self._forget_tasks()
        if owner not in self._tasks:
            self._start(owner, cast(Watchable, store))
        self._tasks.use(owner)
        return owner in self._active

    def _forget_tasks(self) -> None:
        """Drop tasks that ended with their event loop, and everything that may have changed since."""
        for owner in self._tasks:
            self._cache.invalidate_owner(owner)
        self._tasks.clear()
        self._active.clear()

    def _start(self, owner: str, store: Watchable) -> None:
        task = asyncio.create_task(self._watch(owner, store), name="aforesaid-cache-watch")
        self._tasks[owner] = task
        task.add_done_callback(lambda _: self._finish(owner, task))

    async def _watch(self, owner: str, store: Watchable) -> None:
        try:
            async with store.watch() as changes:
                # Data that were read before the watch began may have changed before it, without notification.
                self._cache.invalidate_owner(owner)
                self._active.add(owner)
                async for change in changes:
                    self._cache.apply_change(owner, change)
        except StoreError as error:
            log.info("cannot watch for changes, reads are checked instead: %s", describe(error))

    def _finish(self, owner: str, task: "asyncio.Task[None]") -> None:
        if self._tasks.get(owner) is task:
            del self._tasks[owner]
        self._active.discard(owner)
        self._cache.invalidate_owner(owner)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the cache's watch failed", exc_info=error)

    async def close(self) -> None:
        """Cancel every watch and wait for its end."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        await ended(*tasks)
