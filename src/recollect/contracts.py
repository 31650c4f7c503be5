"""What a store is, a token counter, an agent, stated once. Below: values. Above: who writes or uses one.

A `Backend` is opened from a URL and owns connections, schema and sweeping. It hands out one
`ConversationStore` per owner, and nothing on that store takes an owner, so nothing can forget to.
`recollect.testing.StoreContract` is this page as tests: a class that passes it is a store.

The rules that types cannot say:

- A conversation that is not there, has expired, or belongs to another owner is one and the same:
  `get` and `session` answer None, everything else raises `ConversationNotFound`.
- An append is one turn and one transaction: all of it is stored, or nothing. When it returns, the
  turn is as durable as the store can make it. It reads nothing of the past; its cost does not grow.
- A message id is an idempotency key within its conversation. A message whose id is known already
  and says the same is not stored again; one that says something else raises `MessageConflict`.
- Messages read back in order of time, ties in order of arrival. A message without a timestamp gets
  the moment it is stored, by `conversations.stamp_for`, one moment for the whole turn: so turns
  that meet never interleave.
- A caller that is cancelled leaves a whole turn or none.
- `restore` puts a conversation where it was read from elsewhere, numbers and moments included. It
  alone sets what other calls derive. What has expired and is brought back alive starts empty, as
  with `create`.
- A message that cannot be read does not keep the others from being read: its entry says why, in
  `unreadable`, and its message is an empty one that holds the place.
- A document without a conversation is its owner's and stays until it is deleted. One with a
  conversation is derived from that conversation's log and goes with it: when it is deleted, purged
  or has expired, and when its history is rewritten. An append leaves it as it is.
- Errors are those of `recollect.errors`; a driver's own errors never come through.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct
from msgspec.structs import replace

from recollect.clock import from_micros, parse_moment, to_micros
from recollect.conversations import Changes, Conversation, Page, Query, check_count, started
from recollect.errors import DocumentConflict, InvalidInput, MessageConflict, StoreDamaged, shown
from recollect.ids import parse_name, parse_uuid
from recollect.messages import SEALED, Message, Role


class Position(NamedTuple):
    """Where a message stands in the reading order: its time, then its sequence number."""

    micros: int
    sequence: int


def check_position(position: Position | None) -> None:
    """Refuse a position that no message can have."""
    if position is None:
        return
    micros, sequence = position
    try:
        from_micros(micros)
        check_count(sequence, field="before", least=0)
    except (TypeError, OverflowError):
        raise InvalidInput(f"before must be the position of an entry; got {shown(position)}") from None


class Entry(Struct, frozen=True, kw_only=True):
    """A message once it has a place. Its message always has a timestamp."""

    conversation_id: str
    sequence: int
    revision: int
    stored_at: datetime
    message: Message
    unreadable: str | None = None
    """Why the message that is stored here cannot be read; `message` then only holds its place."""

    @property
    def position(self) -> Position:
        assert self.message.timestamp is not None
        return Position(to_micros(self.message.timestamp), self.sequence)


def why_unreadable(entry: Entry) -> str | None:
    """Why nobody above the store can read this entry; None when it can be read."""
    if entry.unreadable is None and entry.message.dialect == SEALED:
        return "it is encrypted, and there is no master key here"
    return entry.unreadable


def set_aside(
    conversation_id: str, position: Position, *, revision: int, stored_at: datetime, why: str
) -> Entry:
    """The entry of a message that cannot be read: an empty one in its place, so that the rest still loads."""
    return Entry(
        conversation_id=conversation_id,
        sequence=position.sequence,
        revision=revision,
        stored_at=stored_at,
        message=Message(role="system", content="", timestamp=from_micros(position.micros)),
        unreadable=why,
    )


def check_says_the_same(stored: Entry, message: Message) -> None:
    """Refuse a message whose id is taken: by one that says something else, or that cannot be read."""
    if stored.unreadable is not None:
        raise StoreDamaged(
            f"message id {shown(message.message_id)} in conversation {stored.conversation_id} belongs to a "
            f"message that cannot be read, and nothing was stored: {stored.unreadable}"
        )
    if not stored.message.says_the_same_as(message):
        raise MessageConflict(stored.conversation_id, str(message.message_id))


class Cleared(Struct, frozen=True, kw_only=True):
    """What `clear` removed."""

    conversations: int = 0
    messages: int = 0
    documents: int = 0


class Document(Struct, frozen=True, kw_only=True):
    """Something that is kept beside the log: a note, a setting, a wrapped key, a summary, vectors.

    Its owner's, or derived from one conversation. Versions start at 1 and rise by 1 with every change.
    """

    kind: str
    key: str
    data: bytes
    version: int
    updated_at: datetime
    conversation_id: str | None = None


LARGEST_DOCUMENT = 16 * 1024 * 1024
"""Bytes of data in one document."""
LONGEST_KIND = 200
LONGEST_KEY = 1024
"""Bytes, in UTF-8, of a document's kind and of its key: an owner and both fit into one index entry."""


class Place(NamedTuple):
    """Where a document is: its kind and key, and whose it is; checked."""

    kind: str
    key: str
    conversation_id: str | None = None

    def check_version(self, actual: int, expected: int | None) -> None:
        """Refuse a write that insists on a version which is not there. 0 is a document that is not there."""
        if expected is not None and actual != expected:
            raise DocumentConflict(self.kind, self.key, expected=expected, actual=actual)

    def document(self, data: bytes, *, version: int, updated_at: datetime) -> Document:
        return Document(
            kind=self.kind,
            key=self.key,
            data=data,
            version=version,
            updated_at=updated_at,
            conversation_id=self.conversation_id,
        )


def parse_place(kind: object, key: object, conversation_id: object = None) -> Place:
    """The place that these names mean, or an error that says which of them cannot be used."""
    return Place(
        parse_kind(kind),
        _parse_short(key, field="key", longest=LONGEST_KEY),
        parse_holder(conversation_id),
    )


def parse_kind(kind: object) -> str:
    return _parse_short(kind, field="kind", longest=LONGEST_KIND)


def parse_holder(conversation_id: object) -> str | None:
    """The conversation that documents belong to; None is their owner."""
    return None if conversation_id is None else parse_uuid(conversation_id, field="conversation_id")


def _parse_short(value: object, *, field: str, longest: int) -> str:
    name = parse_name(value, field=field)
    if len(name.encode()) > longest:
        raise InvalidInput(
            f"{field} must have at most {longest} bytes in UTF-8; got {len(name.encode())}",
            field=field,
            value=value,
        )
    return name


def check_data(data: object) -> bytes:
    """A document's data, or an error."""
    if not isinstance(data, bytes):
        raise InvalidInput(f"data must be bytes; got {shown(data)}", field="data", value=data)
    if len(data) > LARGEST_DOCUMENT:
        raise InvalidInput(
            f"data must have at most {LARGEST_DOCUMENT:,} bytes; got {len(data):,}", field="data", value=data
        )
    return data


def check_expected(expected_version: int | None, *, least: int) -> int | None:
    """A version that a caller insists on, or None."""
    if expected_version is not None:
        check_count(expected_version, field="expected_version", least=least)
    return expected_version


def restorable_documents(documents: Sequence[Document]) -> dict[Place, Document]:
    """What `restore_documents` was given, checked: each by its place, all of one holder."""
    given: dict[Place, Document] = {}
    for document in documents:
        place = parse_place(document.kind, document.key, document.conversation_id)
        check_data(document.data)
        check_count(document.version, field="version", least=1)
        parse_moment(document.updated_at, field="updated_at")
        given[place] = document
    holders = {place.conversation_id for place in given}
    if len(holders) > 1:
        raise InvalidInput(
            "documents of several conversations cannot be restored in one step",
            field="conversation_id",
            value=holders,
        )
    return given


class Listing(NamedTuple):
    """Which documents are asked for, checked. No key is empty, so all keys come after the empty text."""

    kind: str
    conversation_id: str | None
    after: str
    limit: int


def parse_listing(kind: str, conversation_id: str | None, after: str | None, limit: int) -> Listing:
    return Listing(
        parse_kind(kind),
        parse_holder(conversation_id),
        "" if after is None else parse_name(after, field="after"),
        check_count(limit, field="limit", least=0),
    )


class Appended:
    """What an append did: the record as it was then, and which messages were new and which were known.

    Most callers look at none of it, so a store may hand in functions that are asked only then.
    """

    __slots__ = ("_conversation", "_new", "known")

    def __init__(
        self,
        *,
        conversation: Conversation | Callable[[], Conversation],
        new: tuple[Entry, ...] | Callable[[], tuple[Entry, ...]],
        known: tuple[Entry, ...] = (),
    ) -> None:
        self._conversation = conversation
        self._new = new
        self.known = known

    @property
    def conversation(self) -> Conversation:
        if not isinstance(self._conversation, Conversation):
            self._conversation = self._conversation()
        return self._conversation

    @property
    def new(self) -> tuple[Entry, ...]:
        if not isinstance(self._new, tuple):
            self._new = self._new()
        return self._new

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Appended):
            return NotImplemented
        return self._compared() == other._compared()

    __hash__ = None  # type: ignore[assignment]  # messages may hold lists and dicts

    def __repr__(self) -> str:
        return f"Appended(conversation={self.conversation!r}, new={self.new!r}, known={self.known!r})"

    def _compared(self) -> tuple[object, ...]:
        return self.conversation, self.new, self.known


class ConversationStore(Protocol):
    """One owner's conversations."""

    # Records

    async def create(self, conversation: Conversation) -> Conversation:
        """Keep a new, empty conversation. Raises `ConversationExists`."""
        ...

    async def get(self, conversation_id: str) -> Conversation | None:
        """The record, without messages."""
        ...

    async def update(
        self, conversation_id: str, changes: Changes, *, expected_revision: int | None = None
    ) -> Conversation:
        """Change what is given; the revision moves by one."""
        ...

    async def find(self, query: Query) -> Page:
        """One page of records, most recently active first, equal moments by id, descending."""
        ...

    async def delete(self, conversation_id: str, *, expected_revision: int | None = None) -> None:
        """Remove the conversation with all that belongs to it. What is not there is no error.

        With `expected_revision`, only if nobody wrote to it since, whether it has expired or not.
        """
        ...

    # Sessions

    async def resume(
        self, session_id: str, fresh: Conversation, *, active_since: datetime | None = None
    ) -> Conversation:
        """The conversation that the session is bound to; else `fresh`, created and bound in the same step.

        With `active_since`, a conversation whose last activity lies before it is let go: it stays
        where it is, and the session is bound to `fresh`.
        """
        ...

    async def session(self, session_id: str) -> Conversation | None:
        """The conversation that the session is bound to."""
        ...

    async def bind(self, session_id: str, conversation_id: str) -> None:
        """Bind the session to this conversation, whatever it was bound to before."""
        ...

    async def unbind(self, session_id: str) -> None:
        """Forget the session. Its conversation stays."""
        ...

    async def sessions(self, conversation_id: str) -> list[str]:
        """The sessions that are bound to the conversation, sorted."""
        ...

    # The log

    async def append(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        """Store one turn, all of it or nothing. With `expected_revision`, only if nobody wrote since.

        When every message is known already nothing changes and nothing is refused: a retry of a
        write that did succeed succeeds.
        """
        ...

    async def rewrite(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        """Put these messages in the place of all there are, in one step. Sequence numbers go on."""
        ...

    async def tail(self, conversation_id: str, *, limit: int, before: Position | None = None) -> list[Entry]:
        """The last `limit` entries in reading order, or the last that stand before a position."""
        ...

    async def page(self, conversation_id: str, *, limit: int, offset: int = 0) -> list[Entry]:
        """Entries in reading order, counted from the oldest."""
        ...

    async def entry(self, conversation_id: str, message_id: str) -> Entry | None:
        """The entry that holds this message id."""
        ...

    async def replace(
        self, conversation_id: str, message: Message, *, expected_revision: int | None = None
    ) -> Entry:
        """Put the message in the place of the one that holds its id: the one way to change what was said.

        Place, time, role and the moment of storing stay; the revisions of entry and record move on. What
        is derived from the log goes. Raises `MessageNotFound`.
        """
        ...

    # Moving

    async def restore(self, conversation: Conversation, entries: Sequence[Entry]) -> None:
        """Keep the record and the entries exactly as given, expired or not, in one step.

        An entry whose sequence is there already is left as it is, so that a long conversation can be
        brought in parts, and a part twice; the record that is given last holds. New messages go on
        after the largest sequence. An id that another entry holds raises `MessageConflict`.
        """
        ...

    # Documents

    async def put_document(
        self,
        kind: str,
        key: str,
        data: bytes,
        *,
        conversation_id: str | None = None,
        expected_version: int | None = None,
    ) -> Document:
        """Keep the data under this kind and key, in the place of what is there.

        With `expected_version`, only if that is the version there, and 0 only if there is none; else
        `DocumentConflict`.
        """
        ...

    async def get_document(
        self, kind: str, key: str, *, conversation_id: str | None = None
    ) -> Document | None:
        """The document of this kind and key."""
        ...

    async def documents(
        self, kind: str, *, conversation_id: str | None = None, after: str | None = None, limit: int = 100
    ) -> list[Document]:
        """Documents of a kind by their keys, which sort by code point; those with keys after `after`."""
        ...

    async def document_kinds(self, *, conversation_id: str | None = None) -> list[str]:
        """The kinds that there are documents of, sorted."""
        ...

    async def delete_document(
        self,
        kind: str,
        key: str,
        *,
        conversation_id: str | None = None,
        expected_version: int | None = None,
    ) -> bool:
        """Remove the document; whether there was one. With `expected_version`, only that version of it."""
        ...

    async def restore_documents(self, documents: Sequence[Document]) -> None:
        """Keep the documents exactly as given, whatever is there, in one step.

        For moving: it alone sets versions and moments. All belong to the owner, or all to one
        conversation.
        """
        ...

    # Retention

    async def purge_expired(self) -> int:
        """Remove this owner's expired conversations; returns how many."""
        ...

    async def expired(self, *, by: datetime, limit: int = 100) -> list[Conversation]:
        """The records that a purge at this moment removes, those that expire first in front.

        For a look at what a purge will do: it alone shows records that have expired.
        """
        ...

    async def clear(self) -> "Cleared":
        """Remove all that this owner has, expired or not: conversations, sessions, documents."""
        ...

    def now(self) -> datetime:
        """The store's time: what it stamps messages with and judges expiry by."""
        ...

    @property
    def degraded(self) -> bool:
        """Whether an answer given now would come from the last known state; see `recollect.freshness`."""
        return False

    # Whole histories, written once over the rest

    async def load(self, conversation_id: str) -> list[dict[str, Any]]:
        """The whole history as dicts, oldest first; empty when there is none. Leaves out the unreadable."""
        if await self.get(conversation_id) is None:
            return []
        entries = await self.page(conversation_id, limit=_EVERYTHING)
        return [entry.message.to_dict() for entry in entries if why_unreadable(entry) is None]

    async def save(self, conversation_id: str, history: Sequence[dict[str, Any]]) -> None:
        """Make this the whole history, and the conversation if there is none.

        A history that goes on where the stored one ends only costs what is new. Somebody else's
        turn in between raises `RevisionConflict` and is not overwritten.
        """
        messages = [Message.from_dict(document) for document in history]
        record = await self.get(conversation_id)
        if record is None:
            record = await self.create(started(conversation_id, now=self.now()))
        found = await self.page(conversation_id, limit=_EVERYTHING)
        entries = [entry for entry in found if why_unreadable(entry) is None]
        if _goes_on_from(entries, history):
            new = messages[len(entries) :]
            await self.append(conversation_id, new, expected_revision=record.revision)
        else:
            await self.rewrite(conversation_id, messages, expected_revision=record.revision)


def _goes_on_from(entries: Sequence[Entry], history: Sequence[dict[str, Any]]) -> bool:
    return len(history) >= len(entries) and all(
        _is_as_given(entry.message, document) for entry, document in zip(entries, history, strict=False)
    )


def _is_as_given(message: Message, document: dict[str, Any]) -> bool:
    """Whether a stored message is what a document says; what it does not say may be anything."""
    given = Message.from_dict(document)
    same_labels = all(
        getattr(message, name) == getattr(given, name) for name in _LABELS if document.get(name) is not None
    )
    return same_labels and message.says_the_same_as(given)


_LABELS = ("timestamp", "content_type", "agent_name", "message_id", "tags")


_EVERYTHING = 2**53


def replacing(held: Entry, message: Message) -> Message:
    """The message as it takes the place of a stored one: with its time. Another role is refused, where
    the one that was stored can be read."""
    if held.unreadable is None and message.role != held.message.role:
        raise InvalidInput(
            f"role must stay {held.message.role}; got {shown(message.role)}", field="role", value=message.role
        )
    return message.with_(timestamp=held.message.timestamp)


def replaced(held: Entry, message: Message, *, revision: int) -> Entry:
    """The entry with other words in it."""
    return replace(held, message=message, revision=revision, unreadable=None)


def replaced_id(message: Message) -> str:
    """The id of the message that shall be replaced."""
    if message.message_id is None:
        raise InvalidInput("a message that replaces another names it by message_id", field="message_id")
    return message.message_id


def restorable(conversation: Conversation, entries: Sequence[Entry]) -> tuple[Conversation, dict[int, Entry]]:
    """What `restore` was given, checked: the record without messages, each sequence once."""
    for field in ("created_at", "updated_at", "last_message_at", "expires_at"):
        moment = getattr(conversation, field)
        if moment is not None or field.endswith("ated_at"):
            parse_moment(moment, field=field)
    for field in ("revision", "message_count"):
        check_count(getattr(conversation, field), field=field, least=0)
    given: dict[int, Entry] = {}
    ids: dict[str, int] = {}
    for entry in entries:
        _check_entry(conversation.id, entry)
        message_id = entry.message.message_id
        if given.setdefault(entry.sequence, entry) is not entry or message_id is None:
            continue
        if ids.setdefault(message_id, entry.sequence) != entry.sequence:
            raise MessageConflict(conversation.id, message_id)
    return (replace(conversation, messages=()) if conversation.messages else conversation), given


def _check_entry(conversation_id: str, entry: Entry) -> None:
    if entry.conversation_id != conversation_id:
        raise InvalidInput(
            f"an entry of conversation {entry.conversation_id} cannot be restored into {conversation_id}",
            field="conversation_id",
            value=entry.conversation_id,
        )
    check_count(entry.sequence, field="sequence", least=1)
    check_count(entry.revision, field="revision", least=0)
    parse_moment(entry.stored_at, field="stored_at")
    if entry.message.timestamp is None:
        raise InvalidInput("an entry's message has a timestamp", field="timestamp")
    if entry.unreadable is not None:
        raise InvalidInput(
            f"entry {entry.sequence} holds no message that could be restored: {entry.unreadable}",
            field="unreadable",
            value=entry.unreadable,
        )


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


@runtime_checkable
class Backend(Protocol):
    """A place where conversations are kept: opened once, shared by all owners."""

    async def open(self) -> None:
        """Connect and prepare the schema. Errors name the file or server."""
        ...

    async def close(self) -> None:
        """Finish what was accepted, then let go. Closing twice is fine; using afterwards is `StoreClosed`."""
        ...

    def of(self, owner: str) -> ConversationStore:
        """The store of one owner. Costs nothing and may be called before `open`."""
        ...

    def owners(self) -> AsyncIterator[str]:
        """Everybody who has a conversation or a document here. For operators."""
        ...

    async def purge_expired(self, now: datetime | None = None) -> int:
        """Remove every owner's expired conversations; returns how many."""
        ...


@runtime_checkable
class Erasing(Protocol):
    """A backend with files or tables in which what was deleted could still be found."""

    async def scrub(self, owner: str) -> tuple[str, ...]:
        """Make what was deleted of this owner unreadable there too; returns what remains, as sentences.

        Done again, it goes on where it was. What is not its business (a server's own log, backups) is
        documented, not returned.
        """
        ...


class LogEnd(NamedTuple):
    """Where a log ends: what a message that is stored next will be given."""

    revision: int
    next_sequence: int
    last_message_at: datetime | None


@runtime_checkable
class Sealable(Protocol):
    """A store that a layer which seals messages can stand on: it must know places before they are taken."""

    async def log_end(self, conversation_id: str) -> LogEnd | None:
        """Where the log ends; None when there is no such conversation."""
        ...

    async def reseal(self, conversation_id: str, entries: Sequence[Entry]) -> int:
        """Another stored form of the same messages, in their places; returns how many were exchanged.

        Nothing else moves: no revision, no counter. An entry that is no longer there at this position and
        revision is passed over.
        """
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


JOURNAL = "recollect.journal"
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


class Match(Struct, frozen=True, kw_only=True):
    """A message that holds at least one of the terms that were looked for."""

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


class Embedder(Protocol):
    """Turns texts into vectors: texts of like meaning into vectors that point the same way."""

    @property
    def name(self) -> str:
        """The model's name, a part of the kind of every vector that it made."""
        ...

    @property
    def dimension(self) -> int: ...

    def embed(self, texts: Sequence[str]) -> Any:
        """A numpy array of float32 with one row for each text, each of length 1.

        Takes its time: call it off the event loop.
        """
        ...


class TokenCounter(Protocol):
    """Counts as a model does, or nearly. One name always gives the same counts, so they can be kept by it."""

    @property
    def name(self) -> str: ...

    def count_text(self, text: str) -> int:
        """How many tokens the text is. Any text has a count; loading at the first one may take a moment."""
        ...


Stop = Literal["end", "tools", "length", "pause"]
"""Why an agent stopped: it has answered, it waits for tools, it ran out of room, or it wants to go on."""

OnText = Callable[[str], None]
"""Told each piece of an answer as it arrives. Called on the event loop, so it must not wait."""


class Ask(Struct, frozen=True, kw_only=True):
    """What an agent is asked: a valid window with the question at its end, or a tool loop under way."""

    messages: tuple[Message, ...]
    """Oldest first, in any dialect: an agent writes them in its own."""
    system: str = ""
    """The system prompt, which is not in the log."""
    tools: tuple[dict[str, Any], ...] = ()
    """What it may call, described in its dialect: `ToolRegistry.definitions`."""
    may_call: bool = True
    """Whether it may call a tool now. Where it may not, the tools are still described."""


class Usage(Struct, frozen=True, kw_only=True):
    """Tokens as the provider counted them: all that went in, cached or not, and all that came out."""

    input_tokens: int = 0
    output_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
        )


class Reply(Struct, frozen=True, kw_only=True):
    """One reply: words, calls of tools, or both, exactly as they were given."""

    messages: tuple[Message, ...]
    """In the agent's dialect. Calls wait for their results: the loop fetches them and asks again."""
    stop: Stop = "end"
    usage: Usage | None = None


class Agent(Protocol):
    """Whoever replies: a model behind a provider, or something built in. One question, one reply.

    It keeps nothing between two questions. What goes wrong is an `AgentError`: a provider's own
    errors never come through, and no error or log says a secret. An answer that broke off, or was
    refused, is an error too: a `Reply` is whole.
    """

    @property
    def name(self) -> str:
        """The `agent_name` of what it says."""
        ...

    @property
    def dialect(self) -> str:
        """The dialect of its replies."""
        ...

    async def reply(self, ask: Ask, *, on_text: OnText | None = None) -> Reply:
        """The reply. With `on_text` it is streamed: the words of the reply, piece by piece, go there too."""
        ...

    async def close(self) -> None:
        """Let go of what it opened itself. Closing twice is fine."""
        ...
