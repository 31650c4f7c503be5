"""Open a memory from a URL."""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Generator, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from copy import copy
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from msgspec.structs import replace

from aforesaid._internal.arguments import validated
from aforesaid._internal.bounded import BoundedDict
from aforesaid._internal.tasks import AsyncWithOnly, ended, start_background
from aforesaid.contracts import (
    JOURNAL,
    Auditing,
    Backend,
    CopyHolder,
    Embedder,
    TokenCounter,
    Wrapper,
    capability,
)
from aforesaid.contracts.listing import check_complete
from aforesaid.errors import (
    AforesaidError,
    ConversationNotFound,
    InvalidId,
    InvalidSetting,
    KeyUnavailable,
    RevisionConflict,
    StoreDamaged,
    shown,
)
from aforesaid.intake.messages import ImagePolicy, Redactor
from aforesaid.intake.unstored_turns import UnstoredTurns
from aforesaid.layers.build import Layers, layered
from aforesaid.memory.latest import LatestMessages
from aforesaid.memory.manager import ConversationManager
from aforesaid.memory.options import ImageOptions, Models, Retention, archives_at, images_of, retention_of
from aforesaid.model.clock import Clock, system_clock
from aforesaid.model.conversations import DEFAULT_TTL, Query, check_span
from aforesaid.model.ids import IdSource, new_id
from aforesaid.model.lifetimes import Archiving, RetentionRules
from aforesaid.notes.records import NotesCache, purge_notes
from aforesaid.retention.rules import Expiring, sweep_forever
from aforesaid.settings import ConversationConfig
from aforesaid.stores.blobs import blobs_at, owner_key, purge_blobs
from aforesaid.stores.urls import backend_for, is_server
from aforesaid.summaries.service import SummaryResources
from aforesaid.telemetry import describe, events
from aforesaid.tokens import is_ready, ready
from aforesaid.transfer.owner_scope import OwnerScope

if TYPE_CHECKING:
    from aforesaid.analytics.usage import UsageLog
    from aforesaid.layers.resilient import Health
    from aforesaid.retention.receipts import Receipt

log = logging.getLogger("aforesaid.memory")

# The most owners whose last sweep of sessions is remembered.
MOST_SWEPT = 10_000

L = TypeVar("L")


class OwnersFirst:
    """A memory, used like the handle of an owner, says how to get the handle."""

    if not TYPE_CHECKING:  # a type checker would accept every name

        def __getattr__(self, name: str) -> Any:
            why = f"{type(self).__name__!r} object has no attribute {name!r}"
            if not name.startswith("_") and hasattr(ConversationManager, name):
                why += f"; name an owner first: memory.of('erin').{name}"
            raise AttributeError(why, name=name, obj=self)


@validated
class Memory(AsyncWithOnly, OwnersFirst):
    """An open store with the conversations of all owners. `of` returns the handle of one owner.

    Use it as `async with aforesaid.open(url) as memory:`, or `memory = await aforesaid.open(url)` and `await
    memory.close()`.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        config: ConversationConfig | None = None,
        ttl: timedelta | None = DEFAULT_TTL,
        idle_after: timedelta | None = None,
        retention: Retention | RetentionRules | None = None,
        images: ImageOptions | ImagePolicy = "placeholder",
        models: Models = Models(),  # noqa: B008  a frozen value
        redact: Redactor | None = None,
        ids: IdSource = new_id,
        holders: Sequence[CopyHolder] = (),
    ) -> None:
        from aforesaid.contacts.resources import ContactResources
        from aforesaid.layers.branched import PrefixCache
        from aforesaid.search.resources import SearchResources

        self._config = config or ConversationConfig()
        self._ttl = check_span(ttl, field="ttl")
        self._idle_after = check_span(idle_after, field="idle_after")
        self._retention = retention_of(retention)
        self._images = images_of(images)
        self._models = models
        self._redact = redact
        self._ids = ids
        self.backend = backend
        self.blobs = None if self._images.blobs is None else blobs_at(self._images.blobs)
        self.archives = archives_at(self._retention.archives)
        # Components with copies of stored data, which erasures must reach. Append to register one.
        self.holders = list(holders)
        self._counter = models.load_tokenizer()
        self.search_resources = SearchResources(models.load_embedder(self._config.encoder))
        self.notes_cache = NotesCache()
        self.summary_resources = SummaryResources(models.load_summarizer(self._config.summaries))
        self.latest = LatestMessages()
        self.note_detection = models.load_detection(self._config.detect_notes)
        self.contact_resources = ContactResources()
        self.unstored = UnstoredTurns()
        self.prefixes = PrefixCache()
        self.usage = _usage_log(self.backend)
        # Bounded: an owner that is evicted is only swept once more than necessary.
        self._session_sweeps: BoundedDict[str, datetime] = BoundedDict(MOST_SWEPT)
        self._background: list[asyncio.Task[None]] = []

    def of(self, owner: str) -> ConversationManager:
        """Return the handle of one owner: a user, a device, a tenant. It is the only access to the owner's
        data.
        """
        if owner == JOURNAL:
            raise InvalidId(f"owner must not be {JOURNAL!r}: the name is taken", field="owner", value=owner)
        return self._of(self.scope(owner))

    def scope(self, owner: str) -> OwnerScope:
        """Return every place that may contain this owner's data."""
        return OwnerScope(
            owner=owner,
            store=self.backend.of(owner),
            backend=self.backend,
            blobs=None if self.blobs is None else self.blobs.of(owner),
            archives=None if self.archives is None else self.archives.of(owner),
            holders=self._all_holders(),
            rules=self._retention.of(owner),
        )

    def _all_holders(self) -> tuple[CopyHolder, ...]:
        around = [capability(each, CopyHolder) for each in (self.backend, self.archives)]
        own: tuple[CopyHolder, ...] = (
            self.search_resources,
            self.notes_cache,
            self.contact_resources,
            self.unstored,
        )
        own += self.note_detection, self.latest, self.prefixes, self.usage
        return (*(holder for holder in around if holder is not None), *own, *self.holders)

    def _of(self, scope: OwnerScope) -> ConversationManager:
        from aforesaid.search.searcher import Searcher

        return ConversationManager(
            config=self._config,
            ids=self._ids,
            ttl=self._ttl,
            idle_after=self._idle_after,
            counter=self._counter,
            images=self._images.policy,
            redact=self._redact,
            scope=scope,
            searcher=Searcher(scope.store, self.search_resources, scope.owner),
            summaries=self.summary_resources,
            notes_cache=self.notes_cache,
            note_detection=self.note_detection,
            latest=self.latest,
            session_sweeps=self._session_sweeps,
            contact_resources=self.contact_resources,
            unstored=self.unstored,
            prefixes=self.prefixes,
            usage=self.usage,
        )

    async def owners(self) -> AsyncIterator[str]:
        """Yield every owner that has data. For operators."""
        async for owner in self.backend.owners():
            if owner != JOURNAL:
                yield owner

    def acting_as(self, actor: str, *, source: str = "") -> Self:
        """Return this memory with an actor: the audit trail records the actions of its handles under this
        name.

        `source` is an address or a device. Without an audit trail this is the same memory. The view stays
        open as long as the opened memory.
        """
        auditing = capability(self.backend, Auditing)
        if auditing is None:
            return self
        # A shallow copy shares caches and queues, but not the background tasks: the view is never closed.
        view = copy(self)
        view.backend = auditing.acting_as(actor, source=source)
        view._background = []
        return view

    async def purge_expired(self) -> int:
        """Remove every owner's expired conversations and notes; return how many conversations."""
        from aforesaid.layers.branched import settle

        purged = 0
        # A list first: a purge that removes an owner's last data would change the listing.
        for owner in [owner async for owner in self.owners()]:
            with _skip_owner("expired notes are not removed"):
                whole = await self.backend.of(owner).authoritative()
                blobs = None if self.blobs is None else self.blobs.of(owner)
                purged += await settle(whole, blobs)  # the store keeps what living branches show
                await purge_notes(whole)
        purged += await self.backend.purge_expired()
        events.conversations_expired(purged)
        if self.blobs is not None:
            await purge_blobs(self.blobs, self.backend)
        return purged

    async def would_purge(self, within: timedelta = timedelta(0)) -> list[tuple[str, Expiring]]:
        """Return what a purge would remove now, or after some time, by owner and with the reason: a
        dry run.
        """
        found = []
        async for owner in self.owners():
            found += [(owner, one) for one in await self.of(owner).expiring(within)]
        return sorted(found, key=lambda pair: pair[1].expires_at)

    async def archive_old(self, archiving: Archiving | None = None) -> int:
        """Archive conversations that were idle for long enough and delete old archives; return how many were
        archived. By default use the policy that the memory was opened with.
        """
        policy = archiving or self._retention.archiving
        if policy is None:
            return 0
        if self.archives is None:
            raise InvalidSetting("archiving needs a place: archives='some/folder'", field="archives")
        archived = 0
        async for owner in self.owners():
            with _skip_owner("conversations are not archived"):
                archived += await self._archive_old(self.of(owner), policy.after)
        if policy.delete_after is not None:
            await self.archives.delete_older(self.backend.of(JOURNAL).now() - policy.delete_after)
        return archived

    async def _archive_old(self, manager: ConversationManager, after: timedelta) -> int:
        archived = 0
        cursor: str | None = None
        whole = await manager.store.authoritative()
        while True:
            page = check_complete(await whole.find(Query(date_to=whole.now() - after, after=cursor)))
            for record in page.conversations:
                try:
                    await manager.archive(record.id)
                    archived += 1
                except (RevisionConflict, ConversationNotFound):
                    continue  # written to or archived meanwhile
                except StoreDamaged as error:
                    # Skip it; archive the others.
                    log.warning("conversation %s is not archived: %s", record.id, describe(error))
            cursor = page.next
            if cursor is None:
                return archived

    async def resume_erasures(self) -> "list[Receipt]":
        """Resume interrupted erasures. `start` and every sweep call this."""
        from aforesaid.retention.erasure import resume

        return await resume(self.backend, self.scope, name_of=self._name_of)

    def _name_of(self, digest: str) -> str | None:
        """Return the name of the owner with this digest, if this memory has copies of the owner's data."""
        cached = (
            *self.search_resources.owners(),
            *self.notes_cache.owners(),
            *self.contact_resources.owners(),
        )
        return next((owner for owner in cached if owner_key(owner) == digest), None)

    async def sweep(self) -> int:
        """Run all periodic maintenance: unfinished erasures and moves to archives, purge, archiving; return
        how many expired.
        """
        await self.resume_erasures()
        await self._finish_archiving()
        await self._collect_analytics()  # before the purge: what expires stays in the numbers
        purged = await self.purge_expired()  # before archiving, which fails when the archive folder is full
        await self.archive_old()
        return purged

    async def _collect_analytics(self) -> None:
        from aforesaid.analytics.collection import collect

        for owner in [owner async for owner in self.owners()]:
            with _skip_owner("analytics are not up to date"):
                await collect(self.backend.of(owner))
        await self.usage.write_all()  # after the count, which finds the agents

    async def _finish_archiving(self) -> None:
        """Finish moves between store and archives that a crash has interrupted."""
        if self.archives is None:
            return
        from aforesaid.transfer.archives.moves import finish_interrupted

        async for owner in self.owners():
            scope = self.scope(owner)
            assert scope.archives is not None
            with _skip_owner("interrupted archives are not finished"):
                await finish_interrupted(scope.store, scope.archives, blobs=scope.blobs)

    async def health(self) -> "Health | None":
        """Return the state of breaker, spool and dead letters; None without the resilient layer."""
        from aforesaid.layers.resilient import ResilientBackend

        layer = self.layer(ResilientBackend)
        return None if layer is None else await layer.health()

    def layer(self, kind: type[L]) -> L | None:
        """Return the layer of this kind around the store, or None."""
        layer: object = self.backend
        while not isinstance(layer, kind):
            if not isinstance(layer, Wrapper):
                return None
            layer = layer.inner
        return layer

    async def start(self) -> Self:
        """Open the store, finish interrupted erasures, and start background tasks: sweep, loading.

        Only the first two are awaited.
        """
        await self.backend.open()
        await self._finish_erasures()
        if not self._background:
            self._background = [start_background(work, name=name) for name, work in self._background_tasks()]
        return self

    def _background_tasks(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        if self._retention.sweep_every is not None:
            yield "aforesaid-sweep", sweep_forever(self, every=self._retention.sweep_every)
        if self._models.preload and not is_ready(self._counter):
            yield "aforesaid-warm", _load_counter(self._counter)
        embedder = self.search_resources.embedder
        if self._models.preload and embedder is not None:
            yield "aforesaid-load-encoder", _load_encoder(embedder)

    async def _finish_erasures(self) -> None:
        try:
            await self.resume_erasures()
        except AforesaidError as error:
            log.warning("unfinished erasures cannot be read; the sweep tries again: %s", describe(error))

    async def close(self) -> None:
        """Finish accepted work and release everything, also when cancelled. Closing twice is allowed."""
        background, self._background = self._background, []
        # Callbacks run in reverse order: first whatever may still write, last the store. All of them run,
        # even if one fails.
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.backend.close)
            stack.push_async_callback(self.usage.close)
            stack.push_async_callback(self.search_resources.close)
            stack.push_async_callback(self.contact_resources.close)
            stack.push_async_callback(self.summary_resources.close)
            stack.push_async_callback(self.note_detection.close)
            stack.push_async_callback(self.unstored.close)
            for task in background:
                stack.push_async_callback(ended, task)

    def __await__(self) -> Generator[Any, None, Self]:
        return self.start().__await__()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


@contextmanager
def _skip_owner(what: str) -> Iterator[None]:
    """Log and skip an owner whose data cannot be decrypted or read."""
    try:
        yield
    except (KeyUnavailable, StoreDamaged) as error:
        log.warning("one owner skipped: %s: %s", what, describe(error))


def _usage_log(backend: Backend) -> "UsageLog":
    from aforesaid.analytics.usage import UsageLog

    return UsageLog(backend.of)


async def _load_counter(counter: TokenCounter) -> None:
    """Load a counter in advance, so that the first message does not wait for it."""
    try:
        await ready(counter)
    except AforesaidError as error:
        log.warning("messages will not be counted: %s", error)


async def _load_encoder(embedder: Embedder) -> None:
    """Load an encoder in advance, so that the first question does not wait for it."""
    from aforesaid.search.vectors import encode_text

    try:
        await encode_text(embedder, "hello")
    except AforesaidError as error:
        log.warning("messages will be searched by words only: %s", describe(error))


@validated
def open(  # noqa: A001  aforesaid.open() is the documented name
    url: str = "memory://",
    *,
    config: ConversationConfig | None = None,
    ttl: timedelta | None = DEFAULT_TTL,
    idle_after: timedelta | None = None,
    retention: Retention | RetentionRules | None = None,
    layers: Layers = Layers(),  # noqa: B008  a frozen value
    images: ImageOptions | ImagePolicy = "placeholder",
    models: Models = Models(),  # noqa: B008  a frozen value
    redact: Redactor | None = None,
    clock: Clock = system_clock,
    ids: IdSource = new_id,
) -> Memory:
    """Open the store at a URL; by default in memory only. `aforesaid.connect` opens the memory of a server.

    **Conversations expire 30 days after their last activity** and are then removed. `ttl=None` keeps
    everything; `conversation.expires_at` is the time of each.

    - `config`: sizes and limits of contexts, searches, notes and summaries.
    - `ttl`: how long a conversation is kept after its last activity, 30 days by default; None means forever.
    - `idle_after`: a session that was idle for longer starts a new conversation; None never does.
    - `retention`: lifetimes by channel, tag and owner, archiving and the sweep (`Retention`), or
      `RetentionRules` alone.
    - `layers`: encryption, audit trail, cache, resilience and measurements around the store (`Layers`).
    - `images`: "placeholder" stores text in place of an image, "keep" stores the image in the log,
      `ImageOptions` also stores images in a folder.
    - `models`: token counter, embedder and summarizer (`Models`).
    - `redact`: a function that receives every message before it is stored and returns it, changed or not, or
      None to omit it.
    - `clock`, `ids`: the sources of times and ids, for tests.
    """
    if is_server(url):
        raise InvalidSetting(
            f"{shown(url)} is the URL of a server: use `aforesaid.connect`", field="url", value=url
        )
    if layers.encryption is not None and images_of(images).policy == "blobs":
        raise InvalidSetting(
            "images stored as blobs are not encrypted: use images='keep' or 'placeholder'",
            field="images",
            value=images,
        )
    options, settings = retention_of(retention), config or ConversationConfig()
    # Archives of an encrypted memory are sealed with the same master key.
    options = replace(options, archives=archives_at(options.archives, layers.encryption))
    return Memory(
        layered(backend_for(url, clock=clock), url, layers, cache_ttl=settings.cache_ttl, clock=clock),
        config=settings,
        ttl=ttl,
        idle_after=idle_after,
        retention=options,
        images=images,
        models=models,
        redact=redact,
        ids=ids,
    )
