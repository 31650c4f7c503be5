"""Store documents from another place: repeatable, verified afterwards.

Documents derived from a conversation are replaced as a whole: afterwards the target has exactly those of
the source. An owner's documents are stored one by one: additional documents in the target stay, and a
changed one is a conflict.
"""

from collections.abc import AsyncIterator, Callable
from typing import NamedTuple, TypeAlias

from aforesaid.contracts import ConversationStore, Document, Place
from aforesaid.contracts.listing import document_pages
from aforesaid.errors import StoreDamaged
from aforesaid.transfer.digests import DocumentsDigest

CHUNK = 16
"""Documents read and stored together; each may have megabytes."""

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
