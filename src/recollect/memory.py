"""Opening a memory: from a URL to handles bound to owners. Below: manager, stores. Above: surfaces."""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Generator, Iterator
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from recollect.blobs import BlobBackend, blobs_at, purge_blobs
from recollect.clock import Clock, system_clock
from recollect.contracts import Backend, Embedder, TokenCounter
from recollect.conversations import DEFAULT_TTL, check_span
from recollect.errors import RecollectError
from recollect.ids import IdSource, new_id
from recollect.manager import ConversationManager
from recollect.pictures import Images, check_images
from recollect.retention import SWEEP_EVERY, sweep_forever
from recollect.search.encoders import installed_encoder
from recollect.search.room import SearchRoom
from recollect.search.searching import Searcher
from recollect.settings import ConversationConfig
from recollect.stores.urls import backend_for
from recollect.tokens import counter_for, default_counter, is_ready, ready

log = logging.getLogger("recollect.memory")


class Memory:
    """A store, open, with everybody's conversations in it. `of` gives the handle of one owner.

    Use it as `async with recollect.open(url) as memory:`, or `memory = await recollect.open(url)`
    and `await memory.close()`.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        config: ConversationConfig | None = None,
        ids: IdSource = new_id,
        ttl: timedelta | None = DEFAULT_TTL,
        idle_after: timedelta | None = None,
        sweep_every: timedelta | None = SWEEP_EVERY,
        counter: TokenCounter | None = None,
        warm: bool = True,
        images: Images = "placeholder",
        blobs: BlobBackend | None = None,
        embedder: Embedder | None = None,
    ) -> None:
        check_images(images, has_blobs=blobs is not None)
        self.backend = backend
        self.blobs = blobs
        self.search_room = SearchRoom(embedder)
        self._images = images
        self._counter = counter or default_counter()
        self._warm = warm
        self._config = config or ConversationConfig()
        self._ids = ids
        self._ttl = check_span(ttl, field="ttl")
        self._idle_after = check_span(idle_after, field="idle_after")
        self._sweep_every = check_span(sweep_every, field="sweep_every")
        self._background: list[asyncio.Task[None]] = []

    def of(self, owner: str) -> ConversationManager:
        """The handle of one owner: a user, a device, a tenant. Everything goes through it."""
        store = self.backend.of(owner)
        return ConversationManager(
            store,
            config=self._config,
            ids=self._ids,
            ttl=self._ttl,
            idle_after=self._idle_after,
            counter=self._counter,
            images=self._images,
            blobs=None if self.blobs is None else self.blobs.of(owner),
            searcher=Searcher(store, self.search_room, owner),
        )

    def owners(self) -> AsyncIterator[str]:
        """Everybody who has a conversation here. For operators."""
        return self.backend.owners()

    async def purge_expired(self) -> int:
        """Remove every owner's expired conversations now; returns how many."""
        purged = await self.backend.purge_expired()
        if self.blobs is not None:
            await purge_blobs(self.blobs, self.backend)
        return purged

    async def start(self) -> Self:
        """Open the store, start sweeping, and load what counting needs; that does not wait for either."""
        await self.backend.open()
        if not self._background:
            self._background = [asyncio.create_task(work, name=name) for name, work in self._chores()]
        return self

    def _chores(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        if self._sweep_every is not None:
            yield "recollect-sweep", sweep_forever(self, every=self._sweep_every)
        if self._warm and not is_ready(self._counter):
            yield "recollect-warm", _load(self._counter)

    async def close(self) -> None:
        """Finish what was accepted and let go. Closing twice is fine."""
        background, self._background = self._background, []
        try:
            for task in background:
                await _end(task)
            await self.search_room.close()
        finally:
            await self.backend.close()

    def __await__(self) -> Generator[Any, None, Self]:
        return self.start().__await__()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def _load(counter: TokenCounter) -> None:
    """Load a counter before anybody waits for it."""
    try:
        await ready(counter)
    except RecollectError as error:
        log.warning("messages will not be counted: %s", error)


async def _end(task: "asyncio.Task[None]") -> None:
    """Stop what runs in the background, also when another loop than this one does it."""
    loop = task.get_loop()
    if loop is asyncio.get_running_loop():
        task.cancel()
        await asyncio.wait([task])
    elif not loop.is_closed():
        loop.call_soon_threadsafe(task.cancel)


def open(  # noqa: A001  recollect.open() is the name people will look for
    url: str = "memory://",
    *,
    config: ConversationConfig | None = None,
    clock: Clock = system_clock,
    ids: IdSource = new_id,
    ttl: timedelta | None = DEFAULT_TTL,
    idle_after: timedelta | None = None,
    sweep_every: timedelta | None = SWEEP_EVERY,
    model: str | None = None,
    warm: bool = True,
    images: Images = "placeholder",
    blobs: str | Path | BlobBackend | None = None,
    embedder: Embedder | Literal["installed"] | None = "installed",
) -> Memory:
    """The memory at a URL; without one, in memory only.

    `ttl`: how long a conversation is kept after its last activity; None keeps it. `idle_after`: a
    session that was silent for longer starts a fresh conversation; None never does. `sweep_every`:
    how often expired conversations are removed in the background; None leaves it to you. `model`:
    whose tokens are counted when a message is stored, once and for all; without it, those of
    `o200k_base`, or an estimate where tiktoken is not installed. `warm`: whether what counting needs
    is loaded in the background at once, and not when the first message waits for it. `images`: what
    is kept of a picture: "placeholder" words in its place, "keep" the picture in the log, "blobs" its
    bytes beside the log, in `blobs`: a folder that belongs to this memory alone, or a `BlobBackend`.
    `embedder`: what search by meaning is done with: the encoder of `recollect[semantic]` where it is
    installed, one of your own, or None for search by words alone.
    """
    return Memory(
        backend_for(url, clock=clock),
        config=config,
        ids=ids,
        ttl=ttl,
        idle_after=idle_after,
        sweep_every=sweep_every,
        counter=None if model is None else counter_for(model),
        warm=warm,
        images=images,
        blobs=None if blobs is None else blobs_at(blobs),
        embedder=installed_encoder() if embedder == "installed" else embedder,
    )
