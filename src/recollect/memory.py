"""Opening a memory: from a URL to handles bound to owners. Below: manager, stores. Above: surfaces."""

import asyncio
from collections.abc import AsyncIterator, Generator
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from recollect.blobs import BlobBackend, blobs_at, purge_blobs
from recollect.clock import Clock, system_clock
from recollect.contracts import Backend, Embedder, TokenCounter
from recollect.conversations import DEFAULT_TTL, check_span
from recollect.ids import IdSource, new_id
from recollect.manager import ConversationManager
from recollect.pictures import Images, check_images
from recollect.retention import SWEEP_EVERY, sweep_forever
from recollect.search.encoders import installed_encoder
from recollect.search.room import SearchRoom
from recollect.search.searching import Searcher
from recollect.settings import ConversationConfig
from recollect.stores.urls import backend_for
from recollect.tokens import counter_for


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
        images: Images = "placeholder",
        blobs: BlobBackend | None = None,
        embedder: Embedder | None = None,
    ) -> None:
        check_images(images, has_blobs=blobs is not None)
        self.backend = backend
        self.blobs = blobs
        self.search_room = SearchRoom(embedder)
        self._images = images
        self._counter = counter
        self._config = config or ConversationConfig()
        self._ids = ids
        self._ttl = check_span(ttl, field="ttl")
        self._idle_after = check_span(idle_after, field="idle_after")
        self._sweep_every = check_span(sweep_every, field="sweep_every")
        self._sweeper: asyncio.Task[None] | None = None

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
        """Open the store and start sweeping."""
        await self.backend.open()
        if self._sweep_every is not None and self._sweeper is None:
            self._sweeper = asyncio.create_task(
                sweep_forever(self, every=self._sweep_every), name="recollect-sweep"
            )
        return self

    async def close(self) -> None:
        """Finish what was accepted and let go. Closing twice is fine."""
        sweeper, self._sweeper = self._sweeper, None
        try:
            if sweeper is not None:
                await _end(sweeper)
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


async def _end(sweeper: "asyncio.Task[None]") -> None:
    """Stop sweeping, also when another loop than this one does it."""
    loop = sweeper.get_loop()
    if loop is asyncio.get_running_loop():
        sweeper.cancel()
        await asyncio.wait([sweeper])
    elif not loop.is_closed():
        loop.call_soon_threadsafe(sweeper.cancel)


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
    images: Images = "placeholder",
    blobs: str | Path | BlobBackend | None = None,
    embedder: Embedder | Literal["installed"] | None = "installed",
) -> Memory:
    """The memory at a URL; without one, in memory only.

    `ttl`: how long a conversation is kept after its last activity; None keeps it. `idle_after`: a
    session that was silent for longer starts a fresh conversation; None never does. `sweep_every`:
    how often expired conversations are removed in the background; None leaves it to you. `model`:
    whose tokens are counted when a message is stored, once and for all; without it they are counted
    when a token budget asks for them. `images`: what is kept of a picture: "placeholder" words in
    its place, "keep" the picture in the log, "blobs" its bytes beside the log, in `blobs`: a folder
    that belongs to this memory alone, or a `BlobBackend`. `embedder`: what search by meaning is done
    with: the encoder of `recollect[semantic]` where it is installed, one of your own, or None for
    search by words alone.
    """
    return Memory(
        backend_for(url, clock=clock),
        config=config,
        ids=ids,
        ttl=ttl,
        idle_after=idle_after,
        sweep_every=sweep_every,
        counter=None if model is None else counter_for(model),
        images=images,
        blobs=None if blobs is None else blobs_at(blobs),
        embedder=installed_encoder() if embedder == "installed" else embedder,
    )
