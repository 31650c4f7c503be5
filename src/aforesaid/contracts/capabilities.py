"""What some stores can do besides, each a protocol that is asked for by name. Below: stores, entries."""

from collections.abc import AsyncIterator, Callable, Hashable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from aforesaid.contracts.documents import Document, Listing
from aforesaid.contracts.entries import Entry, Position
from aforesaid.contracts.stores import ConversationStore
from aforesaid.model.messages import Role


class Change(Struct, frozen=True, kw_only=True):
    """A conversation moved to this revision; None when it is gone. What changed is read from the store."""

    conversation_id: str
    revision: int | None


@runtime_checkable
class Watchable(Protocol):
    """A store that can tell when another task, process or machine changed something of this owner."""

    def watch(self, conversation_id: str | None = None) -> AbstractAsyncContextManager[AsyncIterator[Change]]:
        """Changes to one conversation, or to all of this owner's. Once entered, none is missed.

        Several changes in quick succession may come as one, with the last revision.
        """
        ...


MOST_MADE = 8
"""Things made of one glance that are remembered."""


class LogSnapshot(Struct, frozen=True, eq=False, kw_only=True):
    """What a context is made from, as it stood at one moment."""

    message_count: int
    front: Sequence[Entry]
    """The first entries of the log."""
    tail: Sequence[Entry]
    """The last ones, in reading order. They are the first ones too where the log is short."""
    documents: Sequence[Document]
    """Of the owner, of one kind."""
    head: str | None = None
    """The sealed head of the log; see `Sealable`."""
    _made: dict[Hashable, Any] = {}

    def made(self, by: Hashable) -> Any:
        """What was made of exactly this; None where nothing was. A store may give the same glance again while
        nothing has changed, and what was made of it goes with it."""
        return self._made.get(by)

    def keep(self, by: Hashable, made: object) -> None:
        """Remember what was made of this, by whom or by what rules."""
        if len(self._made) >= MOST_MADE:
            self._made.clear()
        self._made[by] = made


@runtime_checkable
class SnapshotReader(Protocol):
    """A store that reads in one step what others are asked for part by part."""

    async def read_snapshot(
        self, conversation_id: str, *, front: int, tail: int, documents: Listing
    ) -> LogSnapshot:
        """What `get`, `page`, `tail` and `documents` say, at most so many of each, all of one moment.

        Raises `ConversationNotFound`. A caller who is cancelled is let go at once, here and where the
        store reads.
        """
        ...


@runtime_checkable
class Erasing(Protocol):
    """A backend with files or tables in which what was deleted could still be found."""

    async def scrub(self, owner: str | None) -> tuple[str, ...]:
        """Make what was deleted of this owner unreadable there too; returns what remains, as sentences.

        So is what was deleted from the journal. None stands for an owner whose name is not known any more.
        Done again, it goes on where it was. What is not its business (a server's own log, backups) is
        documented, not returned.
        """
        ...


class LogEnd(NamedTuple):
    """Where a log ends: what a message that is stored next will be given."""

    revision: int
    next_sequence: int
    last_message_at: datetime | None
    head: str | None = None
    """What the layer above committed itself to when it wrote last; see `Sealable`."""


@runtime_checkable
class Sealable(Protocol):
    """A store that a layer which seals messages can stand on.

    The layer must know the place of a message before the store assigns it, and it commits itself to the whole
    log with every write: the last sealed message of `append`, `rewrite`, `replace` or `restore` carries the
    head of the log (see `contracts.entries.with_head`). The store splits the head off, keeps it with the
    record in the same transaction, and never reads it. A turn that carries a head and is stored in part
    already is refused with `TurnPartlyStored`, since the head commits to all of it. A turn that goes on from
    another head than the log has is refused with `RevisionConflict`. A `rewrite` without messages removes the
    head.
    """

    async def log_end(self, conversation_id: str) -> LogEnd | None:
        """Where the log ends; None when there is no such conversation."""
        ...

    async def reseal(self, conversation_id: str, entries: Sequence[Entry]) -> int:
        """Another stored form of the same messages, in their places; returns how many were exchanged.

        Nothing else moves: no revision, no counter. An entry that is no longer there at this position and
        revision is passed over.
        """
        ...

    async def exchange_head(self, conversation_id: str, old: str | None, new: str) -> bool:
        """Put another head in the place of this one; False when it is no longer there. Nothing else moves."""
        ...


@runtime_checkable
class Spooling(Protocol):
    """A backend that accepts turns while its store is away, and replays them later."""

    def replay_turns_through(self, around: Callable[[str, ConversationStore], ConversationStore]) -> None:
        """Replay an owner's turns through what `around` makes of the owner's store inside."""
        ...


@runtime_checkable
class Holds(Protocol):
    """Something beside the store that holds copies of what is in it: a cache, a spool, an archive."""

    async def forgets(
        self, owner: str, conversation_id: str | None, *, until: datetime | None = None
    ) -> Mapping[str, int]:
        """Remove what it holds of this conversation, or of everything that the owner has, for good.

        With `until`, what was made after that moment and is nowhere else must stay. Returns how much went,
        by kind. Holding nothing is no error.
        """
        ...


JOURNAL = "aforesaid.journal"
"""The owner under whom a memory notes what it must not forget to do. No handle is given out for it."""


@runtime_checkable
class Noted(Protocol):
    """A store whose use is noted in an audit trail."""

    async def note(self, action: str, conversation_id: str = "", *, count: int = 0) -> None:
        """Note something that is done above the store: a search, an export, an erasure."""
        ...


async def note(store: ConversationStore, action: str, conversation_id: str = "", *, count: int = 0) -> None:
    """Note it where there is a trail. Count and ids only: never what was asked or found."""
    if isinstance(store, Noted):
        await store.note(action, conversation_id, count=count)


class SchemaVersion(Struct, frozen=True, kw_only=True):
    """How many migrations a store has seen, and how many this release has. 0 is a store not yet made."""

    found: int
    needed: int


@runtime_checkable
class Migrated(Protocol):
    """A backend with a schema, which `open` brings up to date."""

    async def schema_version(self) -> SchemaVersion:
        """Look, without opening and without changing anything. Raises `StoreForeign` for what is not ours."""
        ...


class Match(Struct, frozen=True, kw_only=True, gc=False):
    """A message that holds at least one of the terms that were looked for.

    There are hundreds for every search, in no cycle: they are none of the collector's business.
    """

    conversation_id: str
    position: Position
    role: Role
    """Who speaks."""
    counts: tuple[int, ...]
    """How often each of the terms occurs in it, in their order."""
    length: int
    """How many terms it has."""


class Matches(Struct, frozen=True, kw_only=True):
    """What an index knows of some terms: all that a score is computed from, by one rule for all stores."""

    found: tuple[Match, ...]
    """The best, by the index's own rough ranking."""
    frequencies: tuple[int, ...]
    """For each term, in how many of the owner's messages it occurs."""
    messages: int
    """How many messages of the owner are indexed."""
    terms: int
    """How many terms they have together."""


@runtime_checkable
class Searchable(Protocol):
    """A store with an index of its own over `search.analysis.indexed_terms`. See `docs/glossary.md`."""

    async def matches(self, terms: Sequence[str], *, limit: int) -> Matches:
        """The messages of this owner that hold any of these terms, at most `limit`, the best first.

        Only conversations that have not expired count, in every number. No term is refused: one that no
        message can have is found nowhere.
        """
        ...


class Nearby(Struct, frozen=True, kw_only=True):
    """A message whose vector was compared with another."""

    conversation_id: str
    position: Position
    similarity: float
    """The cosine of the angle between the two: 1 is the same way."""


@runtime_checkable
class Nearest(Protocol):
    """A store that compares vectors where they lie: those in its documents of the kind `vectors/<model>`."""

    async def nearest(
        self, model: str, vector: Sequence[float], *, limit: int, around: Sequence[float] | None = None
    ) -> list[Nearby] | None:
        """This owner's messages whose vectors point most nearly the same way, every vector compared.

        Only vectors of the same length count, and only conversations that have not expired. With
        `around`, the angle is that which is seen from there. None when the server cannot compare
        vectors: then the documents are there to be read.
        """
        ...


Progress: TypeAlias = Callable[[int], None]
"""Told how much is done."""


@runtime_checkable
class Reindexed(Protocol):
    """A backend whose index may lack what was stored without it: earlier, or by another process."""

    async def reindex(self, progress: Progress | None = None) -> int:
        """Index what is not, in bounded steps, so that others get in between; returns how many messages.

        `progress` is told their number so far after each step.
        """
        ...
