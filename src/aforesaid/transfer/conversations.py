"""One conversation into a store: repeatable, never over something newer, and proven afterwards.

Below: `digests`, `documents`. Above: `copying` and `importing`, which say where conversations come from.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from aforesaid.contracts import ConversationStore, Document, Entry
from aforesaid.errors import Conflict, ConversationNotFound, StoreDamaged
from aforesaid.model.conversations import Conversation, is_expired
from aforesaid.transfer.digests import Digest, fingerprint
from aforesaid.transfer.documents import BroughtDocuments, bring_derived

_log = logging.getLogger("aforesaid.moving")

CHUNK = 1000
"""Entries that are read, and stored, in one go."""


class CopyReport(Struct, frozen=True, kw_only=True):
    """What a copy or an import did."""

    owners: int = 0
    conversations: int = 0
    """All that were met: `copied`, `unchanged`, `expired` and those that changed meanwhile."""
    copied: int = 0
    unchanged: int = 0
    entries: int = 0
    """Entries that were stored; what was there already does not count."""
    sessions: int = 0
    """Sessions that were bound."""
    unreadable: int = 0
    """Messages that the source could not read, and that are not in the target therefore."""
    documents: int = 0
    """Documents that were stored, of owners and of conversations."""
    expired: int = 0
    """Conversations of a file whose time is over: nothing of them is stored."""
    changed_meanwhile: tuple[str, ...] = ()
    """Conversations that the source changed or removed while they were copied. Run it again for them."""


Progress: TypeAlias = Callable[[CopyReport], None]
Outcome: TypeAlias = Literal["copied", "unchanged", "expired", "changed_meanwhile", "conflict"]


class Brought(NamedTuple):
    """What became of one conversation."""

    conversation_id: str
    outcome: Outcome
    entries: int = 0
    sessions: int = 0
    unreadable: int = 0
    documents: int = 0


class Given(ABC):
    """A conversation where it comes from. Its log can be read as often as it takes."""

    record: Conversation
    sessions: Iterable[str]

    @abstractmethod
    def log(self) -> AsyncIterator[list[Entry]]:
        """The entries in reading order, in chunks."""

    @abstractmethod
    def documents(self) -> AsyncIterator[list[Document]]:
        """What is derived from it, in chunks, sorted by kind and key."""

    @abstractmethod
    async def has_changed(self) -> bool:
        """Whether it is no longer what it was when it was read."""


class Tally:
    """Counts what is brought, and tells whoever wants to know."""

    def __init__(self, progress: Progress | None) -> None:
        self.report = CopyReport()
        self._progress = progress
        self._conflicts: list[str] = []
        self._kept_documents: list[str] = []

    def owner(self) -> None:
        self._now(owners=self.report.owners + 1)

    def add_documents(self, owner: str, brought: BroughtDocuments) -> None:
        self._kept_documents += [f"{owner}: {place.kind} {place.key}" for place in brought.conflicts]
        self._now(documents=self.report.documents + brought.stored)

    def add(self, brought: Brought) -> None:
        report, outcome = self.report, brought.outcome
        if outcome == "conflict":
            self._conflicts.append(brought.conversation_id)
        changed = (brought.conversation_id,) if outcome == "changed_meanwhile" else ()
        self._now(
            conversations=report.conversations + 1,
            copied=report.copied + (outcome == "copied"),
            unchanged=report.unchanged + (outcome == "unchanged"),
            expired=report.expired + (outcome == "expired"),
            entries=report.entries + brought.entries,
            sessions=report.sessions + brought.sessions,
            unreadable=report.unreadable + brought.unreadable,
            documents=report.documents + brought.documents,
            changed_meanwhile=report.changed_meanwhile + changed,
        )

    def _now(self, **counts: object) -> None:
        self.report = replace(self.report, **counts)
        if self._progress is not None:
            self._progress(self.report)

    def done(self) -> CopyReport:
        """The report. Raises `Conflict` when something was left as it is, and names it."""
        if self._kept_documents:
            raise Conflict(
                f"{len(self._kept_documents)} documents and {len(self._conflicts)} conversations were left "
                "as they are, because the target was written to and holds something else than the source; "
                f"the others are there: {', '.join(self._kept_documents + self._conflicts)}"
            )
        if self._conflicts:
            raise Conflict(
                f"{len(self._conflicts)} of {self.report.conversations} conversations were left as they are, "
                "because the target was written to and holds something else than the source; the others are "
                f"there: {', '.join(self._conflicts)}"
            )
        return self.report


async def bring(given: Given, target: ConversationStore) -> Brought:
    """Make the target hold this conversation, unless it holds a newer one. Raises `StoreDamaged` if it
    does not read back as it was given."""
    record = given.record
    if is_expired(record, now=target.now()):
        return Brought(record.id, "expired")
    there = await target.get(record.id)
    try:
        return await _bring(given, target, there)
    except ConversationNotFound:
        # It expired or was removed while it was read; or else the target lost what it was given.
        if is_expired(record, now=target.now()):
            return Brought(record.id, "expired")
        if not await given.has_changed():
            raise
        if there is None:
            await target.delete(record.id)  # what the source forgot is not to live on in a copy
        return Brought(record.id, "changed_meanwhile")


async def _bring(given: Given, target: ConversationStore, there: Conversation | None) -> Brought:
    brought = await _bring_log(given, target, there)
    if brought.outcome not in ("copied", "unchanged"):
        return brought
    stored = await bring_derived(given.documents, target, given.record.id)
    return brought._replace(documents=stored)


async def _bring_log(given: Given, target: ConversationStore, there: Conversation | None) -> Brought:
    if there is None:
        return await _store(given, target, known=frozenset())
    difference = await _compare(given, target, there)
    if difference.is_conflict(given.record, there):
        return Brought(given.record.id, "conflict")
    if difference.surplus:
        return await _replace(given, target)
    if difference.missing or there != given.record:
        return await _store(given, target, known=difference.same)
    return Brought(given.record.id, "unchanged", sessions=await _bind(given, target))


class _Difference(NamedTuple):
    """How the log in the target differs: by sequence numbers."""

    same: frozenset[int]
    missing: bool
    surplus: bool
    clashes: bool

    def is_conflict(self, given: Conversation, there: Conversation) -> bool:
        """Whether the target was written to on its own account, so that going on would lose something.

        What a copy that was broken off leaves has the record of its source and some of its entries. What
        an earlier copy left has an earlier revision, and perhaps entries that the source replaced since.
        """
        if self.clashes or there.revision > given.revision:
            return True
        return there.revision == given.revision and (self.surplus or _chosen(there) != _chosen(given))


def _chosen(record: Conversation) -> Conversation:
    """The record without what a store may derive from the messages that it has so far."""
    return replace(record, message_count=0, last_message_at=None, last_message_from=None)


async def _compare(given: Given, target: ConversationStore, record: Conversation) -> _Difference:
    there: dict[int, bytes] = {}
    async for entries in log_of(target, given.record.id):
        there |= {entry.sequence: fingerprint(entry) for entry in entries}
    same = set[int]()
    missing = clashes = redone = False
    async for entries in _readable(given):
        for entry in entries:
            found = there.get(entry.sequence)
            missing |= found is None
            differs = found is not None and found != fingerprint(entry)
            # The source may have taken words out of a message since the last copy: its revision says so.
            redone |= differs and entry.revision > record.revision
            clashes |= differs and entry.revision <= record.revision
            same.add(entry.sequence)
    surplus = redone or not there.keys() <= same
    return _Difference(frozenset(same & there.keys()), missing, surplus, clashes)


async def _replace(given: Given, target: ConversationStore) -> Brought:
    """The source replaced its history since the last copy: so does the target, and keeps its sessions."""
    sessions = await target.sessions(given.record.id)
    await target.delete(given.record.id)
    brought = await _store(given, target, known=frozenset())
    for session_id in sessions:
        await target.bind(session_id, given.record.id)
    return brought


async def _store(given: Given, target: ConversationStore, *, known: frozenset[int]) -> Brought:
    stored = unreadable = 0
    async for entries in given.log():
        unreadable += _tell_unreadable(entries)
        new = [entry for entry in entries if entry.sequence not in known and entry.unreadable is None]
        if new:
            await target.restore(given.record, new)
            stored += len(new)
    if not stored:
        await target.restore(given.record, [])
    if not await _is_proven(given, target):
        return Brought(given.record.id, "changed_meanwhile", stored)
    return Brought(given.record.id, "copied", stored, await _bind(given, target), unreadable)


async def _is_proven(given: Given, target: ConversationStore) -> bool:
    """Whether both sides read alike; False when they cannot, because the source went on meanwhile."""
    wanted = Digest(given.record)
    async for entries in _readable(given):
        wanted.add(entries)
    there = await target.get(given.record.id)
    if there is None:
        raise ConversationNotFound(given.record.id)
    found = Digest(there)
    async for entries in log_of(target, given.record.id):
        found.add(entries)
    if str(found) == str(wanted):
        return True
    if await given.has_changed():
        return False
    raise StoreDamaged(
        f"the copy of conversation {given.record.id} is not what was copied "
        f"(SHA-256 {found}, in the source {wanted})"
    )


async def _bind(given: Given, target: ConversationStore) -> int:
    bound = set(await target.sessions(given.record.id))
    new = [session_id for session_id in given.sessions if session_id not in bound]
    for session_id in new:
        await target.bind(session_id, given.record.id)
    return len(new)


async def _readable(given: Given) -> AsyncIterator[list[Entry]]:
    async for entries in given.log():
        yield [entry for entry in entries if entry.unreadable is None]


def _tell_unreadable(entries: Iterable[Entry]) -> int:
    unreadable = [entry for entry in entries if entry.unreadable is not None]
    for entry in unreadable:
        where = (entry.conversation_id, entry.sequence)
        _log.warning("conversation %s: message %d cannot be read and is not copied", *where)
    return len(unreadable)


async def log_of(store: ConversationStore, conversation_id: str) -> AsyncIterator[list[Entry]]:
    """A conversation's entries in reading order, in chunks. What is stored meanwhile shifts none of them."""
    offset = 0
    last = None
    while True:
        page = await store.page(conversation_id, limit=CHUNK, offset=offset)
        fresh = [entry for entry in page if last is None or entry.position > last]
        if fresh:
            last = fresh[-1].position
            yield fresh
        if len(page) < CHUNK:
            return
        offset += len(page)
