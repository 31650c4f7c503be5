"""Store one conversation from another place: repeatable, never over a newer version, verified afterwards."""

import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from aforesaid.contracts import ConversationStore, Document, Entry
from aforesaid.errors import Conflict, ConversationNotFound, StoreDamaged
from aforesaid.model.conversations import Conversation, is_expired
from aforesaid.transfer.documents import Digest, DocumentsResult, fingerprint, store_derived

_log = logging.getLogger("aforesaid.transfer")

# Entries read and stored together.
CHUNK = 1000


class CopyReport(Struct, frozen=True, kw_only=True):
    """The outcome of a copy or an import."""

    owners: int = 0
    conversations: int = 0
    """Sum of `copied`, `unchanged`, `expired`, conflicts and those in `changed_meanwhile`."""
    copied: int = 0
    unchanged: int = 0
    entries: int = 0
    """Entries stored, without those that existed already."""
    sessions: int = 0
    """Sessions bound."""
    unreadable: int = 0
    """Messages that are unreadable in the source and therefore missing in the target."""
    documents: int = 0
    """Documents stored, of owners and conversations."""
    expired: int = 0
    """Expired conversations in a file, which are not stored."""
    changed_meanwhile: tuple[str, ...] = ()
    """Conversations changed or removed in the source during the copy. Repeat the copy for them."""


Progress: TypeAlias = Callable[[CopyReport], None]
Outcome: TypeAlias = Literal["copied", "unchanged", "expired", "changed_meanwhile", "conflict"]


class StoreResult(NamedTuple):
    """The outcome of one conversation."""

    conversation_id: str
    outcome: Outcome
    entries: int = 0
    sessions: int = 0
    unreadable: int = 0
    documents: int = 0


class SourceConversation(ABC):
    """A conversation in its source. Its log can be read repeatedly."""

    record: Conversation
    sessions: Iterable[str]

    @abstractmethod
    def log(self) -> AsyncIterator[list[Entry]]:
        """Yield the entries in reading order, in chunks."""

    @abstractmethod
    def documents(self) -> AsyncIterator[list[Document]]:
        """Yield the derived documents in chunks, sorted by kind and key."""

    @abstractmethod
    async def has_changed(self) -> bool:
        """Return whether the source has changed since the record was read."""


class ReportBuilder:
    """Counts outcomes and reports progress."""

    def __init__(self, progress: Progress | None) -> None:
        self.report = CopyReport()
        self._progress = progress
        self._conflicts: list[str] = []
        self._document_conflicts: list[str] = []

    def add_owner(self) -> None:
        self._update(owners=self.report.owners + 1)

    def add_documents(self, owner: str, result: DocumentsResult) -> None:
        self._document_conflicts += [f"{owner}: {place.kind} {place.key}" for place in result.conflicts]
        self._update(documents=self.report.documents + result.stored)

    def add(self, result: StoreResult) -> None:
        report, outcome = self.report, result.outcome
        if outcome == "conflict":
            self._conflicts.append(result.conversation_id)
        changed = (result.conversation_id,) if outcome == "changed_meanwhile" else ()
        self._update(
            conversations=report.conversations + 1,
            copied=report.copied + (outcome == "copied"),
            unchanged=report.unchanged + (outcome == "unchanged"),
            expired=report.expired + (outcome == "expired"),
            entries=report.entries + result.entries,
            sessions=report.sessions + result.sessions,
            unreadable=report.unreadable + result.unreadable,
            documents=report.documents + result.documents,
            changed_meanwhile=report.changed_meanwhile + changed,
        )

    def _update(self, **counts: object) -> None:
        self.report = replace(self.report, **counts)
        if self._progress is not None:
            self._progress(self.report)

    def finish(self) -> CopyReport:
        """Return the report. Raise `Conflict` naming everything that was not overwritten."""
        if self._document_conflicts:
            raise Conflict(
                f"{len(self._document_conflicts)} documents and {len(self._conflicts)} conversations "
                "were not overwritten, because they were changed in the target; all others were copied: "
                f"{', '.join(self._document_conflicts + self._conflicts)}"
            )
        if self._conflicts:
            raise Conflict(
                f"{len(self._conflicts)} of {self.report.conversations} conversations were not overwritten, "
                "because they were changed in the target; all others were copied: "
                f"{', '.join(self._conflicts)}"
            )
        return self.report


async def store_conversation(source: SourceConversation, target: ConversationStore) -> StoreResult:
    """Store this conversation in the target, unless the target has a newer one.

    Raise `StoreDamaged` if it does not read back as it was.
    """
    record = source.record
    if is_expired(record, now=target.now()):
        return StoreResult(record.id, "expired")
    existing = await target.get(record.id)
    try:
        return await _store_with_documents(source, target, existing)
    except ConversationNotFound:
        # It expired, the source removed it, or the target lost it.
        if is_expired(record, now=target.now()):
            return StoreResult(record.id, "expired")
        if not await source.has_changed():
            raise
        if existing is None:
            await target.delete(record.id)  # data removed from the source must not survive in a copy
        return StoreResult(record.id, "changed_meanwhile")


async def _store_with_documents(
    source: SourceConversation, target: ConversationStore, existing: Conversation | None
) -> StoreResult:
    result = await _store_log(source, target, existing)
    if result.outcome not in ("copied", "unchanged"):
        return result
    stored = await store_derived(source.documents, target, source.record.id)
    return result._replace(documents=stored)


async def _store_log(
    source: SourceConversation, target: ConversationStore, existing: Conversation | None
) -> StoreResult:
    if existing is None:
        return await _store(source, target, existing_sequences=frozenset())
    difference = await _compare(source, target, existing)
    if difference.is_conflict(source.record, existing):
        return StoreResult(source.record.id, "conflict")
    if difference.surplus:
        return await _replace(source, target)
    if difference.missing or existing != source.record:
        return await _store(source, target, existing_sequences=difference.same)
    return StoreResult(source.record.id, "unchanged", sessions=await _bind(source, target))


class _Difference(NamedTuple):
    """How the target's log differs from the source's, by sequence."""

    same: frozenset[int]
    missing: bool
    surplus: bool
    clashes: bool

    def is_conflict(self, source: Conversation, existing: Conversation) -> bool:
        """Return whether the target was changed independently, so that storing would lose data.

        An interrupted copy leaves the source's record with some of its entries. An earlier copy leaves an
        earlier revision, possibly with entries that the source has replaced since.
        """
        if self.clashes or existing.revision > source.revision:
            return True
        return existing.revision == source.revision and (
            self.surplus or _without_derived(existing) != _without_derived(source)
        )


def _without_derived(record: Conversation) -> Conversation:
    """Return the record without the fields that a store derives from its messages."""
    return record.with_(message_count=0, last_message_at=None, last_message_from=None)


async def _compare(
    source: SourceConversation, target: ConversationStore, record: Conversation
) -> _Difference:
    # Hashes instead of entries: both logs together may not fit into memory.
    existing: dict[int, bytes] = {}
    async for entries in log_of(target, source.record.id):
        existing |= {entry.sequence: fingerprint(entry) for entry in entries}
    same = set[int]()
    missing = clashes = replaced = False
    async for entries in _readable(source):
        for entry in entries:
            found = existing.get(entry.sequence)
            missing |= found is None
            differs = found is not None and found != fingerprint(entry)
            # A higher revision shows that the source redacted the message after the last copy.
            replaced |= differs and entry.revision > record.revision
            clashes |= differs and entry.revision <= record.revision
            same.add(entry.sequence)
    surplus = replaced or not existing.keys() <= same
    return _Difference(frozenset(same & existing.keys()), missing, surplus, clashes)


async def _replace(source: SourceConversation, target: ConversationStore) -> StoreResult:
    """Replace the target's log after the source replaced its own; keep the target's sessions."""
    # Deleting a conversation removes its sessions, which may be more than the source has.
    sessions = await target.sessions(source.record.id)
    await target.delete(source.record.id)
    result = await _store(source, target, existing_sequences=frozenset())
    for session_id in sessions:
        await target.bind(session_id, source.record.id)
    return result


async def _store(
    source: SourceConversation, target: ConversationStore, *, existing_sequences: frozenset[int]
) -> StoreResult:
    stored = unreadable = 0
    async for entries in source.log():
        unreadable += _log_unreadable(entries)
        new = [
            entry
            for entry in entries
            if entry.sequence not in existing_sequences and entry.unreadable is None
        ]
        if new:
            await target.restore(source.record, new)
            stored += len(new)
    # The record may have changed without new entries, and an empty conversation has a record too.
    if not stored:
        await target.restore(source.record, [])
    if not await _verify(source, target):
        return StoreResult(source.record.id, "changed_meanwhile", stored)
    return StoreResult(source.record.id, "copied", stored, await _bind(source, target), unreadable)


async def _verify(source: SourceConversation, target: ConversationStore) -> bool:
    """Return whether both sides are equal; False if the source changed meanwhile. Raise `StoreDamaged`."""
    # Read both sides again: what was written is not evidence of what was stored.
    wanted = Digest(source.record)
    async for entries in _readable(source):
        wanted.add(entries)
    existing = await target.get(source.record.id)
    if existing is None:
        raise ConversationNotFound(source.record.id)
    found = Digest(existing)
    async for entries in log_of(target, source.record.id):
        found.add(entries)
    if str(found) == str(wanted):
        return True
    if await source.has_changed():
        return False
    raise StoreDamaged(
        f"the copy of conversation {source.record.id} differs from its source "
        f"(SHA-256 {found}, in the source {wanted})"
    )


async def _bind(source: SourceConversation, target: ConversationStore) -> int:
    bound = set(await target.sessions(source.record.id))
    new = [session_id for session_id in source.sessions if session_id not in bound]
    for session_id in new:
        await target.bind(session_id, source.record.id)
    return len(new)


async def _readable(source: SourceConversation) -> AsyncIterator[list[Entry]]:
    async for entries in source.log():
        yield [entry for entry in entries if entry.unreadable is None]


def _log_unreadable(entries: Iterable[Entry]) -> int:
    unreadable = [entry for entry in entries if entry.unreadable is not None]
    for entry in unreadable:
        where = (entry.conversation_id, entry.sequence)
        _log.warning("conversation %s: skipped unreadable message %d", *where)
    return len(unreadable)


async def log_of(store: ConversationStore, conversation_id: str) -> AsyncIterator[list[Entry]]:
    """Yield a conversation's entries in reading order, in chunks, unaffected by concurrent appends."""
    offset = 0
    last = None
    while True:
        page = await store.page(conversation_id, limit=CHUNK, offset=offset)
        # A concurrent message with an earlier time shifts the offsets, so that a page repeats entries.
        fresh = [entry for entry in page if last is None or entry.position > last]
        if fresh:
            last = fresh[-1].position
            yield fresh
        if len(page) < CHUNK:
            return
        offset += len(page)
