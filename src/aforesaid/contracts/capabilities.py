"""Optional capabilities of stores and backends: one protocol each, queried with `capability`."""

from collections.abc import AsyncIterator, Callable, Hashable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from copy import copy
from datetime import datetime
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeAlias, TypeVar, runtime_checkable

from msgspec import Struct

from aforesaid.contracts.documents import Document, Listing
from aforesaid.contracts.entries import Entry, Position
from aforesaid.contracts.stores import Backend, ConversationStore
from aforesaid.model.conversations import Conversation
from aforesaid.model.lineages import Lineage
from aforesaid.model.messages import Role

T = TypeVar("T")


class Wrapper:
    """A store or backend around another one. It has every capability of `inner` that it does not hide."""

    adds: ClassVar[tuple[type, ...]] = ()
    """Capabilities that the wrapper has even when `inner` lacks them."""
    hides: ClassVar[tuple[type, ...]] = ()
    """Capabilities of `inner` that would bypass the wrapper."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self._inner_capabilities: dict[type, Any] = {}

    def with_inner(self, inner: Any) -> Self:
        """Return a copy around another `inner`. Both share caches and counters."""
        view = copy(self)
        view.inner = inner
        view._inner_capabilities = {}
        return view

    def inner_capability(self, protocol: type[T]) -> T:
        """Return the capability of `inner`. Call it only where `capability` has found one."""
        # Cached: `isinstance` with a protocol takes microseconds, and a sealed turn asks several times.
        found: T | None = self._inner_capabilities.get(protocol)
        if found is None:
            found = self._inner_capabilities[protocol] = capability(self.inner, protocol)
            assert found is not None, f"{type(self.inner).__name__} is not {protocol.__name__}"
        return found


def capability(part: object, protocol: type[T]) -> T | None:
    """Return the object through which a store or backend offers this capability; None if it lacks it.

    A wrapper that implements the capability is that object, provided that its `inner` has the capability too.
    A wrapper that does not implement it is passed over. Keep the result where it is needed often.
    """
    if not isinstance(part, Wrapper):
        return part if isinstance(part, protocol) else None
    # Before `hides`, so that a layer can replace a capability of `inner` by its own.
    if protocol in part.adds:
        return part  # type: ignore[return-value]
    if protocol in part.hides:
        return None
    found = capability(part.inner, protocol)
    return part if found is not None and isinstance(part, protocol) else found


class Change(Struct, frozen=True, kw_only=True):
    """A conversation reached this revision; None means it was removed. Read the store for the details."""

    conversation_id: str
    revision: int | None


@runtime_checkable
class Watchable(Protocol):
    """A store that reports changes by other tasks, processes or machines to this owner's data."""

    def watch(self, conversation_id: str | None = None) -> AbstractAsyncContextManager[AsyncIterator[Change]]:
        """Watch one conversation, or all of this owner's. No change is missed once the block is entered.

        Several changes in quick succession may arrive as one, with the last revision.
        """
        ...


# The most values that a snapshot caches.
MOST_CACHED = 8


class LogSnapshot(Struct, frozen=True, eq=False, kw_only=True):
    """Both ends of a log and an owner's documents of one kind, read in one step. Input of a context."""

    message_count: int
    front: Sequence[Entry]
    """The first entries of the log."""
    tail: Sequence[Entry]
    """The last entries, in reading order. In a short log they overlap with `front`."""
    documents: Sequence[Document]
    """The owner's documents of one kind."""
    head: str | None = None
    """The sealed head of the log; see `Sealable`."""
    lineage: Lineage = ()
    """The lineage of a branch, as in its record. The other fields are the conversation's own part."""
    record: Conversation | None = None
    """The record, as `get` returns it; None where only `get` can return it."""
    _cache: dict[Hashable, Any] = {}

    def cached(self, key: Hashable) -> Any:
        """Return the value computed earlier from this snapshot, or None.

        A store may return the same snapshot again while nothing has changed, so derived values are cached on
        it.
        """
        return self._cache.get(key)

    def cache(self, key: Hashable, value: object) -> None:
        """Cache a value that was computed from this snapshot. The key names the computation."""
        # Few keys are in use at a time, one for each combination of policy and counter.
        if len(self._cache) >= MOST_CACHED:
            self._cache.clear()
        self._cache[key] = value


@runtime_checkable
class SnapshotReader(Protocol):
    """A store that reads a log and documents in one step."""

    async def read_snapshot(
        self, conversation_id: str, *, front: int, tail: int, documents: Listing
    ) -> LogSnapshot:
        """Return what `get`, `page`, `tail` and `documents` return, up to these limits, from one point in
        time.

        Raise `ConversationNotFound`. A cancelled call returns at once, and the store stops reading.
        """
        ...


@runtime_checkable
class Scrubbable(Protocol):
    """A backend whose files or tables may still contain deleted data."""

    async def scrub(self, owner: str | None) -> tuple[str, ...]:
        """Make this owner's deleted data unrecoverable; return what remains, as sentences.

        Entries deleted from the journal are included. None means an owner whose name is no longer known. A
        repeated call continues where the previous one stopped. Data outside the backend (a server's own log,
        backups) is documented, not returned.
        """
        ...


class LogEnd(NamedTuple):
    """The end of a log: the values that the next stored message continues from."""

    revision: int
    next_sequence: int
    last_message_at: datetime | None
    head: str | None = None
    """The commitment that the layer above stored with its last write; see `Sealable`."""


@runtime_checkable
class Sealable(Protocol):
    """A store that supports a layer that encrypts messages.

    The layer needs a message's place before the store assigns it, and every write commits to the whole log:
    the last sealed message of `append`, `rewrite`, `replace` or `restore` carries the head of the log (see
    `contracts.entries.with_head`).

    - The store splits the head off, stores it with the record in the same transaction, and never interprets
      it.
    - A turn with a head that is partly stored already raises `TurnPartlyStored`, because the head commits to
      all of it.
    - A turn, replacement or restore that continues from another head than the log's raises
      `RevisionConflict`. The comparison is part of the transaction.
    - A `rewrite` without messages removes the head.
    """

    async def log_end(self, conversation_id: str) -> LogEnd | None:
        """Return the end of the log; None when there is no such conversation."""
        ...

    async def reseal(self, conversation_id: str, entries: Sequence[Entry]) -> int:
        """Store another encrypted form of the same messages in place; return how many were exchanged.

        Revisions and counters stay. An entry that is no longer at this position and revision is skipped.
        """
        ...

    async def exchange_head(self, conversation_id: str, old: str | None, new: str) -> bool:
        """Replace this head by another one; return False when the head is no longer `old`. Nothing else
        changes.
        """
        ...


@runtime_checkable
class Branchable(Protocol):
    """A store that keeps branches; the layer `aforesaid.layers.branched` builds them from these methods.

    - A record keeps its lineage, and the first message of a branch gets the sequence
      `lineages.first_sequence`.
    - An expired conversation is not purged while a branch of its family (the conversations with the same
      root) is alive, and `expired` leaves it out. `kept_expired` returns it.
    """

    def including_expired(self) -> ConversationStore:
        """Return a view of this store, for reading only, in which nothing has expired."""
        ...

    async def family(self, root_id: str) -> list[Conversation]:
        """Return the records of all branches with this root, expired or not, in the order of their ids."""
        ...

    async def kept_expired(self) -> list[Conversation]:
        """Return the expired conversations that are kept because a branch of their family is alive."""
        ...

    async def last_sequence(self, conversation_id: str) -> int:
        """Return the last sequence that the conversation has assigned. Raise `ConversationNotFound`."""
        ...


@runtime_checkable
class Spooling(Protocol):
    """A backend that accepts turns while its store is unavailable and replays them later."""

    inner: Backend
    """The store itself, without the spool."""

    def replay_turns_through(self, around: Callable[[str, ConversationStore], ConversationStore]) -> None:
        """Replay an owner's turns through the store that `around` returns for the owner and the
        inner store.
        """
        ...


@runtime_checkable
class CopyHolder(Protocol):
    """A component outside the store that contains copies of its data: a cache, a spool, an archive."""

    async def remove_copies(
        self, owner: str, conversation_id: str | None, *, until: datetime | None = None
    ) -> Mapping[str, int]:
        """Permanently remove its copies of this conversation, or of everything the owner has.

        With `until`, data created after that time that exists nowhere else must stay. Return how much was
        removed, by kind. Having no copies is not an error.
        """
        ...


# The owner under which a memory records unfinished work. `Memory.of` refuses it.
JOURNAL = "aforesaid.journal"


@runtime_checkable
class Auditable(Protocol):
    """A store that records its use in an audit trail."""

    async def audit_action(self, action: str, conversation_id: str = "", *, count: int = 0) -> None:
        """Record an action of a higher layer: a search, an export, an erasure."""
        ...


async def audit_action(
    store: ConversationStore, action: str, conversation_id: str = "", *, count: int = 0
) -> None:
    """Record the action if the store has an audit trail. Only counts and ids, never queries or results."""
    auditable = capability(store, Auditable)
    if auditable is not None:
        await auditable.audit_action(action, conversation_id, count=count)


@runtime_checkable
class Auditing(Protocol):
    """A backend that records its use in an audit trail."""

    inner: Backend
    """The backend without the trail."""

    def acting_as(self, actor: str, *, source: str = "") -> Backend:
        """Return a view of this backend that records calls under this actor."""
        ...

    async def denied(self, action: str, owner: str = "") -> None:
        """Record a request that was refused before it reached the store."""
        ...


@runtime_checkable
class Measurable(Protocol):
    """A backend that knows how much space its data takes."""

    async def disk_usage(self) -> Mapping[str, int]:
        """Return the bytes of each part: a table, an index, a file."""
        ...


@runtime_checkable
class FileBacked(Protocol):
    """A backend that stores its data in one file."""

    path: str


@runtime_checkable
class Bounded(Protocol):
    """A backend that may limit the length of a conversation."""

    max_messages: int | None
    """The number of newest messages that a conversation keeps; None means all."""


@runtime_checkable
class ServerBacked(Protocol):
    """A backend whose data is on a server of its own, with its own clock and extensions."""

    async def server_time(self) -> datetime:
        """Return the time on the server's clock."""
        ...

    async def data_identity(self) -> str:
        """Return a value that stays the same while the data exists, and differs after the data was deleted
        or replaced by other data."""
        ...

    async def missing_extensions(self) -> tuple[str, ...]:
        """Return the optional extensions that the server does not offer to this role."""
        ...


class SchemaVersion(Struct, frozen=True, kw_only=True):
    """The migrations applied to a store and those of this release. `found` 0 means a store that does not
    exist yet.
    """

    found: int
    needed: int


@runtime_checkable
class Migratable(Protocol):
    """A backend with a schema, which `open` migrates."""

    async def schema_version(self) -> SchemaVersion:
        """Read the version without opening or changing the store. Raise `StoreForeign` for a store that is
        not ours.
        """
        ...


class Match(Struct, frozen=True, kw_only=True, gc=False):
    """A message that contains at least one of the search terms.

    `gc=False`: a search creates hundreds of these, and they cannot form reference cycles.
    """

    conversation_id: str
    position: Position
    role: Role
    """The author of the message."""
    counts: tuple[int, ...]
    """How often each search term occurs in the message, in the order of the terms."""
    length: int
    """The number of terms in the message."""


class Matches(Struct, frozen=True, kw_only=True):
    """What an index returns for some terms: everything that the shared scoring needs."""

    found: tuple[Match, ...]
    """The best matches, by the index's own rough ranking."""
    frequencies: tuple[int, ...]
    """For each term, the number of the owner's messages that contain it."""
    messages: int
    """The number of the owner's indexed messages."""
    terms: int
    """The number of terms in all of them."""


@runtime_checkable
class Searchable(Protocol):
    """A store with its own full-text index over `search.analysis.indexed_terms`."""

    async def matches(self, terms: Sequence[str], *, limit: int) -> Matches:
        """Return this owner's messages that contain any of these terms, at most `limit`, best first.

        Expired conversations are excluded from every number. Every term is accepted; a term that no message
        can contain has no matches.
        """
        ...


class Label(NamedTuple):
    """The texts by which a conversation is found, besides its messages."""

    conversation_id: str
    client_name: str | None
    subject: str | None


def label_of(record: Conversation) -> Label:
    """Return the label of a record."""
    return Label(record.id, record.client_name, record.subject)


class LabelChanges(NamedTuple):
    """Labels that changed after a mark, and the mark for the next call."""

    mark: int
    changed: Sequence[Label]


@runtime_checkable
class Labelled(Protocol):
    """A store that reports changes of labels, so that an index of them in memory is cheap to keep current."""

    async def labels_since(self, mark: int) -> LabelChanges:
        """Return the labels that changed after this mark; 0 means all.

        Removed conversations are not reported, and expired ones may be: the reader of an index reads the
        records. A lower mark than the given one means that the store was replaced.
        """
        ...


class RecordChanges(NamedTuple):
    """Conversations that changed after a mark, and the mark for the next call."""

    mark: str
    changed: Sequence[str] | None
    """Their ids, those of removed conversations included; None if any conversation may have changed."""


@runtime_checkable
class ChangeTracking(Protocol):
    """A store that reports which conversations changed, so that an index in memory is cheap to update."""

    async def changes_since(self, mark: str | None) -> RecordChanges:
        """Return the conversations that were created, changed or removed after this mark.

        A change that was stored before the call is reported. A conversation that expires is not: its record
        contains the time. For None, and for the mark of data that were replaced, `changed` is None.
        """
        ...


class VectorMatch(Struct, frozen=True, kw_only=True):
    """A message and the similarity of its vector to the query."""

    conversation_id: str
    position: Position
    similarity: float
    """The cosine of the angle between the two vectors; 1 means the same direction."""


@runtime_checkable
class VectorSearchable(Protocol):
    """A store that compares vectors itself: those in its documents of the kind `vectors/<model>`."""

    async def nearest(
        self, model: str, vector: Sequence[float], *, limit: int, around: Sequence[float] | None = None
    ) -> list[VectorMatch] | None:
        """Return this owner's messages with the most similar vectors. The search is exact.

        Only vectors of the same dimension and conversations that have not expired count. With `around`, that
        point is the origin of the angles. Return None when the server cannot compare vectors; the caller then
        reads the documents.
        """
        ...


Progress: TypeAlias = Callable[[int], None]
"""Called with the number of messages processed so far."""


@runtime_checkable
class Reindexable(Protocol):
    """A backend whose index may lack messages: stored before the index existed, or by another process."""

    async def reindex(self, progress: Progress | None = None) -> int:
        """Index missing messages in bounded steps, so that other work can proceed; return how many.

        `progress` is called after each step.
        """
        ...
