"""Store documents from another place: repeatable, verified by digests."""

import json
from collections.abc import AsyncIterator, Callable, Iterable
from hashlib import sha256
from typing import NamedTuple, TypeAlias

import msgspec

from aforesaid.contracts import ConversationStore, Document, Entry, Place
from aforesaid.contracts.listing import document_pages
from aforesaid.errors import StoreDamaged
from aforesaid.model.clock import to_micros
from aforesaid.model.conversations import Conversation

# Digests that are equal for equal conversations: each has one canonical form.
#
# Times compare by instant, and the order of keys in objects does not matter. Pure functions.


_encoder = msgspec.json.Encoder(order="sorted")
_MOMENTS = ("created_at", "updated_at", "last_message_at", "expires_at")


class Digest:
    """A SHA-256 over a record and its entries in reading order, without documents."""

    def __init__(self, record: Conversation) -> None:
        self._hash = sha256(_canonical_record(record))

    def add(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self._hash.update(_canonical_entry(entry))

    def __str__(self) -> str:
        return self._hash.hexdigest()


class DocumentsDigest:
    """A SHA-256 over the documents of an owner or conversation, by kind and key."""

    def __init__(self) -> None:
        self._hash = sha256()

    def add(self, documents: Iterable[Document]) -> None:
        for document in documents:
            self._hash.update(_canonical_document(document))

    def __str__(self) -> str:
        return self._hash.hexdigest()


def fingerprint(entry: Entry) -> bytes:
    """Return a short hash of one entry, for comparing many."""
    return sha256(_canonical_entry(entry)).digest()[:16]


def _canonical_record(record: Conversation) -> bytes:
    fields = {name: value for name, value in record.typed().items() if name != "messages"}
    instants = {name: to_micros(fields[name]) for name in _MOMENTS if fields[name] is not None}
    return _encoder.encode(fields | instants) + b"\n"


def _canonical_document(document: Document) -> bytes:
    data = sha256(document.data).hexdigest()
    moment = to_micros(document.updated_at)
    fields = [document.kind, document.key, document.version, moment, data, document.conversation_id]
    return _encoder.encode(fields) + b"\n"


def _canonical_entry(entry: Entry) -> bytes:
    message = entry.message.with_(timestamp=None)
    place = [entry.sequence, entry.revision, to_micros(entry.stored_at), entry.position.micros]
    try:
        body = _encoder.encode(message)
    except UnicodeEncodeError:
        # A lone surrogate has no UTF-8 form, but an escape sequence is valid JSON.
        body = json.dumps(msgspec.to_builtins(message), sort_keys=True).encode()
    return b"%b %b\n" % (_encoder.encode(place), body)


# Store documents from another place: repeatable, verified afterwards.
#
# Documents derived from a conversation are replaced as a whole: afterwards the target has exactly those of
# the source. An owner's documents are stored one by one: additional documents in the target stay, and a
# changed one is a conflict.


# Documents read and stored together; each may have megabytes.
CHUNK = 16

Documents: TypeAlias = Callable[[], AsyncIterator[list[Document]]]
"""A source of documents: in chunks, sorted by kind and key."""


class DocumentsResult(NamedTuple):
    """The outcome for an owner's documents."""

    stored: int
    conflicts: tuple[Place, ...]


async def documents_of(
    store: ConversationStore, conversation_id: str | None = None
) -> AsyncIterator[list[Document]]:
    """Yield all documents of a conversation, or of the owner, in chunks, sorted by kind and key."""
    for kind in await store.document_kinds(conversation_id=conversation_id):
        async for chunk in document_pages(store, kind, conversation_id=conversation_id, limit=CHUNK):
            yield chunk


async def store_derived(source: Documents, target: ConversationStore, conversation_id: str) -> int:
    """Make the target contain exactly these documents of a conversation; return the number stored."""
    wanted = DocumentsDigest()
    stored = 0
    places = set[Place]()
    async for chunk in source():
        wanted.add(chunk)
        places |= {_place(document) for document in chunk}
        new = [document for document in chunk if await _existing(document, target) != document]
        await target.restore_documents(new)
        stored += len(new)
    # Only after all are stored: an interrupted copy keeps what the target had.
    await _drop_others(target, conversation_id, places)
    await _verify(wanted, target, conversation_id)
    return stored


async def store_owned(source: Documents, target: ConversationStore) -> DocumentsResult:
    """Store an owner's documents, except those changed in the target."""
    stored = 0
    conflicts: list[Place] = []
    async for chunk in source():
        new: list[Document] = []
        for document in chunk:
            existing = await _existing(document, target)
            # A lower version is an earlier copy of this document. A higher or different one was changed here.
            if existing is None or existing.version < document.version:
                new.append(document)
            elif existing != document:
                conflicts.append(_place(document))
        await target.restore_documents(new)
        for document in new:
            if await _existing(document, target) != document:
                raise StoreDamaged(f"the copy of document {document.key!r} differs from its source")
        stored += len(new)
    return DocumentsResult(stored, tuple(conflicts))


async def _existing(document: Document, target: ConversationStore) -> Document | None:
    return await target.get_document(document.kind, document.key, conversation_id=document.conversation_id)


async def _drop_others(target: ConversationStore, conversation_id: str, places: set[Place]) -> None:
    """Remove documents that the source no longer has."""
    async for chunk in documents_of(target, conversation_id):
        for document in chunk:
            if _place(document) not in places:
                await target.delete_document(document.kind, document.key, conversation_id=conversation_id)


async def _verify(wanted: DocumentsDigest, target: ConversationStore, conversation_id: str) -> None:
    found = DocumentsDigest()
    async for chunk in documents_of(target, conversation_id):
        found.add(chunk)
    if str(found) != str(wanted):
        raise StoreDamaged(
            f"the copied documents of conversation {conversation_id} differ from their source "
            f"(SHA-256 {found}, in the source {wanted})"
        )


def _place(document: Document) -> Place:
    return Place(document.kind, document.key, document.conversation_id)
