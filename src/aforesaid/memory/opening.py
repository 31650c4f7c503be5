"""Opening a memory: from a URL to handles bound to owners. Below: manager, stores. Above: surfaces."""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Generator, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from copy import copy
from datetime import datetime, timedelta
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, cast

from aforesaid._internal.arguments import is_path, validated
from aforesaid._internal.deadlines import ended
from aforesaid.contracts import JOURNAL, Backend, CopyHolder, Embedder, Summarizer, TokenCounter
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
from aforesaid.intake.images import Images, check_images
from aforesaid.intake.redaction import Redactor
from aforesaid.intake.unstored_turns import UnstoredTurns
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.clock import Clock, system_clock
from aforesaid.model.conversations import DEFAULT_TTL, Query, check_span
from aforesaid.model.ids import IdSource, new_id
from aforesaid.model.lifetimes import Archiving, Retention, RetentionRules, retention_of
from aforesaid.notes.records import KnownNotes, purge_notes
from aforesaid.retention.rules import Expiring
from aforesaid.retention.sweep import SWEEP_EVERY, sweep_forever
from aforesaid.settings import ConversationConfig
from aforesaid.stores.blobs import BlobBackend, blobs_at, purge_blobs
from aforesaid.stores.owner_scope import OwnerScope
from aforesaid.stores.urls import SERVERS, backend_for, is_server
from aforesaid.summaries.service import SummaryResources
from aforesaid.telemetry import describe, events
from aforesaid.tokens import counter_for, default_counter, is_ready, ready

if TYPE_CHECKING:
    from aforesaid.layers.build import CacheChoice, ResilienceChoice
    from aforesaid.layers.options import AuditChoice, EncryptionChoice
    from aforesaid.layers.resilient import Health
    from aforesaid.retention.receipts import Receipt
    from aforesaid.transfer.archives import ArchiveFolder

log = logging.getLogger("aforesaid.memory")

L = TypeVar("L")


@validated
class Memory:
    """A store, open, with everybody's conversations in it. `of` gives the handle of one owner.

    Use it as `async with aforesaid.open(url) as memory:`, or `memory = await aforesaid.open(url)`
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
        retention: Retention | RetentionRules | None = None,
        archives: "ArchiveFolder | None" = None,
        redact: Redactor | None = None,
        holders: Sequence[CopyHolder] = (),
        embedder: Embedder | None = None,
        summarizer: Summarizer | Literal["extract"] | None = None,
    ) -> None:
        from aforesaid.contacts.resources import ContactResources
        from aforesaid.search.resources import SearchResources

        check_images(images, has_blobs=blobs is not None)
        self._retention = retention_of(retention)
        if self._retention.archiving is not None and archives is None:
            raise InvalidSetting("archiving needs a place: archives='some/folder'", field="archives")
        self.backend = backend
        self.blobs = blobs
        self.archives = archives
        self.holders = list(holders)
        """What holds copies of what is stored, to be told of erasures: append to it."""
        self._redact = redact
        self.search_resources = SearchResources(embedder)
        by_config = None if config is None or config.summaries == "off" else config.summaries
        self.known_notes = KnownNotes()
        self.summary_resources = SummaryResources(_summarizer(summarizer or by_config))
        self.contact_resources = ContactResources()
        self.unstored = UnstoredTurns()
        self._swept: dict[str, datetime] = {}
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
        if owner == JOURNAL:
            raise InvalidId(f"owner must not be {JOURNAL!r}: the name is taken", field="owner", value=owner)
        return self._of(self.scope(owner))

    def scope(self, owner: str) -> OwnerScope:
        """Everywhere that something of this owner can be."""
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
        around = [each for each in (self.backend, self.archives) if isinstance(each, CopyHolder)]
        own = self.search_resources, self.known_notes, self.contact_resources, self.unstored
        return (*around, *own, *self.holders)

    def _of(self, scope: OwnerScope) -> ConversationManager:
        from aforesaid.search.searcher import Searcher

        return ConversationManager(
            config=self._config,
            ids=self._ids,
            ttl=self._ttl,
            idle_after=self._idle_after,
            counter=self._counter,
            images=self._images,
            redact=self._redact,
            scope=scope,
            searcher=Searcher(scope.store, self.search_resources, scope.owner),
            summaries=self.summary_resources,
            known_notes=self.known_notes,
            swept=self._swept,
            contact_resources=self.contact_resources,
            unstored=self.unstored,
        )

    async def owners(self) -> AsyncIterator[str]:
        """Everybody who has something here. For operators."""
        async for owner in self.backend.owners():
            if owner != JOURNAL:
                yield owner

    def acting_as(self, actor: str, *, source: str = "") -> Self:
        """This memory for somebody: what its handles do is noted in the audit trail under this name.

        `source` is where they are: an address, a device. Without a trail there is nothing to note, and
        this is the same memory. It stays open as long as the memory that was opened.
        """
        acting = getattr(self.backend, "acting_as", None)
        if acting is None:
            return self
        view = copy(self)
        view.backend = acting(actor, source=source)
        view._background = []
        return view

    async def purge_expired(self) -> int:
        """Remove every owner's expired conversations and notes now; returns how many conversations."""
        purged = await self.backend.purge_expired()
        for owner in [owner async for owner in self.owners()]:
            with _passed_over("notes that have expired are not removed"):
                await purge_notes(await self.backend.of(owner).authoritative())
        events.conversations_expired(purged)
        if self.blobs is not None:
            await purge_blobs(self.blobs, self.backend)
        return purged

    async def would_purge(self, within: timedelta = timedelta(0)) -> list[tuple[str, Expiring]]:
        """What a purge would remove now, or will after some time, of whom and why: a dry run."""
        found = []
        async for owner in self.owners():
            found += [(owner, one) for one in await self.of(owner).expiring(within)]
        return sorted(found, key=lambda pair: pair[1].expires_at)

    async def archive_old(self, archiving: Archiving | None = None) -> int:
        """Archive what has been silent for long enough, and delete archives that are; returns how many were
        archived. Without a policy, by the one that the memory was opened with."""
        policy = archiving or self._retention.archiving
        if policy is None:
            return 0
        if self.archives is None:
            raise InvalidSetting("archiving needs a place: archives='some/folder'", field="archives")
        archived = 0
        async for owner in self.owners():
            with _passed_over("conversations are not archived"):
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
                    continue  # somebody wrote to it, or was first: it is not old, or it is done
                except StoreDamaged as error:
                    # It stays where it is; the others are archived.
                    log.warning("conversation %s is not archived: %s", record.id, describe(error))
            cursor = page.next
            if cursor is None:
                return archived

    async def resume_erasures(self) -> "list[Receipt]":
        """Go on with erasures that were cut short. Done when the memory is opened, and by every sweep."""
        from aforesaid.retention.erasure import resume

        return await resume(self.backend, self.scope)

    async def sweep(self) -> int:
        """All that is done now and then: unfinished erasures, the purge, archives; returns what expired."""
        await self.resume_erasures()
        purged = await self.purge_expired()  # first: a folder of archives that is full must not keep it
        await self.archive_old()
        return purged

    async def health(self) -> "Health | None":
        """How the store is doing: breaker, spool, dead letters. None without the resilient layer."""
        from aforesaid.layers.resilient import ResilientBackend

        layer = self.layer(ResilientBackend)
        return None if layer is None else await layer.health()

    def layer(self, kind: type[L]) -> L | None:
        """The layer of this kind around the store, where there is one."""
        layer: object = self.backend
        while layer is not None and not isinstance(layer, kind):
            layer = getattr(layer, "inner", None)
        return layer

    async def start(self) -> Self:
        """Open the store, finish erasures that were cut short, start sweeping, and load what counting needs.

        Only the first two are waited for.
        """
        await self.backend.open()
        await self._finish_erasures()
        if not self._background:
            self._background = [asyncio.create_task(work, name=name) for name, work in self._chores()]
        return self

    def _chores(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        if self._sweep_every is not None:
            yield "aforesaid-sweep", sweep_forever(self, every=self._sweep_every)
        if self._warm and not is_ready(self._counter):
            yield "aforesaid-warm", _load(self._counter)

    async def _finish_erasures(self) -> None:
        try:
            await self.resume_erasures()
        except AforesaidError as error:
            log.warning(
                "unfinished erasures cannot be looked for; the sweep tries again: %s", describe(error)
            )

    async def close(self) -> None:
        """Finish what was accepted and let go, also when cancelled on the way. Closing twice is fine."""
        background, self._background = self._background, []
        async with AsyncExitStack() as leaving:  # from the last to the first
            leaving.push_async_callback(self.backend.close)
            leaving.push_async_callback(self.search_resources.close)
            leaving.push_async_callback(self.contact_resources.close)
            leaving.push_async_callback(self.summary_resources.close)
            leaving.push_async_callback(self.unstored.close)
            for task in background:
                leaving.push_async_callback(ended, task)

    def __await__(self) -> Generator[Any, None, Self]:
        return self.start().__await__()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


@contextmanager
def _passed_over(what: str) -> Iterator[None]:
    """An owner whose data cannot be opened is said, and does not keep others from being looked after."""
    try:
        yield
    except (KeyUnavailable, StoreDamaged) as error:
        log.warning("of one owner %s: %s", what, describe(error))


async def _load(counter: TokenCounter) -> None:
    """Load a counter before anybody waits for it."""
    try:
        await ready(counter)
    except AforesaidError as error:
        log.warning("messages will not be counted: %s", error)


def _summarizer(given: Summarizer | str | None) -> Summarizer | None:
    if given is None:
        return None
    if isinstance(given, str):
        if given != "extract":
            raise InvalidSetting.not_in("summarizer", given, ("extract",))
        from aforesaid.summaries.extractive import ExtractiveSummarizer

        return ExtractiveSummarizer()
    return given


def archives_at(
    archives: "str | Path | ArchiveFolder | None", encryption: "EncryptionChoice | None"
) -> "ArchiveFolder | None":
    """The folder of archives. What leaves an encrypted store for it is sealed too."""
    if archives is None:
        return None
    from aforesaid.transfer.archives import ArchiveFolder

    folder = archives if isinstance(archives, ArchiveFolder) else ArchiveFolder(_path(archives, "archives"))
    if encryption is None or folder.sealer is not None:
        return folder
    from aforesaid.encryption.sealers import ProviderSealer
    from aforesaid.layers.options import encryption_of

    return ArchiveFolder(folder.folder, sealer=ProviderSealer(encryption_of(encryption).master))


def _path(given: str | Path, field: str) -> Path:
    if not is_path(given):
        raise InvalidSetting(f"{field} must be a path; got {shown(given)}", field=field, value=given)
    return Path(given)


def _check_blobs(images: Images, *, encrypted: bool) -> None:
    if encrypted and images == "blobs":
        raise InvalidSetting(
            "pictures that are kept as blobs are not encrypted: use images='keep' or 'placeholder'",
            field="images",
            value=images,
        )


def _behind_server(url: str, **options: Any) -> Memory:
    """The memory of a server. Its client stands above this module, and is found by name as stores are."""
    scheme = url.partition(":")[0].lower()
    return cast(Memory, import_module(SERVERS[scheme]).RemoteMemory(url, **options))


def _check_left_to_server(**given: bool) -> None:
    """Refuse what would be without effect. What only says how a store is run is left unsaid."""
    for name, is_given in given.items():
        if is_given:
            raise InvalidSetting(f"{name} is the server's to decide: set it there", field=name)


@validated
def open(  # noqa: A001  aforesaid.open() is the name people will look for
    url: str = "memory://",
    *,
    key: str | None = None,
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
    retention: Retention | RetentionRules | None = None,
    archives: "str | Path | ArchiveFolder | None" = None,
    redact: Redactor | None = None,
    encryption: "EncryptionChoice | None" = None,
    audit: "AuditChoice | None" = None,
    resilience: "ResilienceChoice" = "auto",
    cache: "CacheChoice" = "off",
    embedder: Embedder | Literal["installed"] | None = "installed",
    summarizer: Summarizer | Literal["extract"] | None = None,
    observe: bool = False,
) -> Memory:
    """The memory at a URL; without one, in memory only.

    An `https://` URL is that of a server, and `key` what opens it: the handles have the same methods and give
    the same values, `config`, `ids`, `idle_after` and `redact` hold here, and the rest is the server's to
    decide. `ttl`: how long a conversation is kept after its last activity; None keeps it. `idle_after`: a
    session that was silent for longer starts a fresh conversation; None never does. `sweep_every`: how
    often expired conversations are removed in the background; None leaves it to you. `model`: whose
    tokens are counted when a message is stored, once and for all; without it, those of `o200k_base`, or
    an estimate where tiktoken is not installed. `warm`: whether what counting needs is loaded in the
    background at once, and not when the first message waits for it. `images`: what is kept of a
    picture: "placeholder" words in its place, "keep" the picture in the log, "blobs" its bytes beside
    the log, in `blobs`: a folder that belongs to this memory alone, or a `BlobBackend`. `retention`:
    lifetimes by channel, tag and owner for those who set no rules of their own, and when the sweep
    archives. `archives`: a folder for that, which belongs to this memory alone. `redact`: sees every
    message before it is stored, and gives it back, changed or not, or None to leave it out.
    `encryption`: where the master key is (`env:NAME`, `file:PATH`, the key itself, a `KeyProvider`), or
    an `Encryption`: what is kept is sealed, and pictures are not kept as blobs. `audit`: the path of
    the file, or an `AuditTrail`, in which everything that is done is noted. `resilience`: what happens
    when the store is away; "auto" keeps turns in a spool for a store behind a network, and is "off" for
    an embedded one. A store or server that this machine has never reached must be there when the memory is
    opened, unless `Resilience(start_unreached=True)`. `cache`: a `Cache` remembers reads. `embedder`: what
    search by meaning is done with: the encoder of `aforesaid[semantic]` where it is installed, one of your
    own, or None for search by words alone. `summarizer`: what makes summaries of what a context no longer
    shows, in the background: "extract" quotes the sentences that say most, one of your own may ask a model;
    None is what `config` says, and that is none by default. `observe`: whether the store's operations are
    timed one by one, as a server does; calls of the manager always are.
    """
    if is_server(url):
        _check_left_to_server(
            clock=clock is not system_clock,
            ttl=ttl != DEFAULT_TTL,
            model=model is not None,
            images=images != "placeholder",
            blobs=blobs is not None,
            retention=retention is not None,
            archives=archives is not None,
            encryption=encryption is not None,
            audit=audit is not None,
            summarizer=summarizer is not None,
        )
        return _behind_server(
            url,
            key=key,
            config=config,
            ids=ids,
            idle_after=idle_after,
            redact=redact,
            start_unreached=getattr(resilience, "start_unreached", False),
        )
    if key is not None:
        raise InvalidSetting("a key opens a server, and this is the URL of a store", field="key")
    from aforesaid.layers.build import layered
    from aforesaid.search.encoders import installed_encoder

    _check_blobs(images, encrypted=encryption is not None)
    backend = layered(
        backend_for(url, clock=clock),
        url,
        resilience=resilience,
        cache=cache,
        encryption=encryption,
        audit=audit,
        observe=observe,
        clock=clock,
    )
    return Memory(
        backend,
        config=config,
        ids=ids,
        ttl=ttl,
        idle_after=idle_after,
        sweep_every=sweep_every,
        counter=None if model is None else counter_for(model),
        warm=warm,
        images=images,
        blobs=None if blobs is None else blobs_at(blobs),
        retention=retention,
        archives=archives_at(archives, encryption),
        redact=redact,
        embedder=installed_encoder() if embedder == "installed" else embedder,
        summarizer=summarizer,
    )
