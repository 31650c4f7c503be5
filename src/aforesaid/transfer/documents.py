"""Documents into a store: repeatable, and proven afterwards. Below: `digests`. Above: `bringing`.

What is derived from a conversation follows it: afterwards the target has exactly what the source has.
An owner's documents are brought one by one: what the target has besides stays, and so does what was
written to there, which is a conflict.
"""

from collections.abc import AsyncIterator, Callable
from typing import NamedTuple, TypeAlias

from aforesaid.contracts import ConversationStore, Document, Place
from aforesaid.errors import StoreDamaged
from aforesaid.transfer.digests import DocumentsDigest

CHUNK = 16
"""Documents that are read, and stored, in one go: each may have megabytes."""

Documents: TypeAlias = Callable[[], AsyncIterator[list[Document]]]
"""Where documents come from: in chunks, sorted by kind and key."""


class BroughtDocuments(NamedTuple):
    """What became of an owner's documents."""

    stored: int
    conflicts: tuple[Place, ...]


async def documents_of(
    store: ConversationStore, conversation_id: str | None = None
) -> AsyncIterator[list[Document]]:
    """All documents of a conversation, or of the owner, in chunks, sorted by kind and key."""
    for kind in await store.document_kinds(conversation_id=conversation_id):
        after = None
        while chunk := await store.documents(kind, conversation_id=conversation_id, after=after, limit=CHUNK):
            yield chunk
            after = chunk[-1].key


async def bring_derived(given: Documents, target: ConversationStore, conversation_id: str) -> int:
    """Make the target hold these documents of a conversation and no others; how many were stored."""
    wanted = DocumentsDigest()
    stored = 0
    places = set[Place]()
    async for chunk in given():
        wanted.add(chunk)
        places |= {_place(document) for document in chunk}
        new = [document for document in chunk if await _there(document, target) != document]
        await target.restore_documents(new)
        stored += len(new)
    await _drop_others(target, conversation_id, places)
    await _prove(wanted, target, conversation_id)
    return stored


async def bring_owned(given: Documents, target: ConversationStore) -> BroughtDocuments:
    """Bring an owner's documents, unless the target was written to."""
    stored = 0
    conflicts: list[Place] = []
    async for chunk in given():
        new: list[Document] = []
        for document in chunk:
            there = await _there(document, target)
            if there is None or there.version < document.version:
                new.append(document)
            elif there != document:
                conflicts.append(_place(document))
        await target.restore_documents(new)
        for document in new:
            if await _there(document, target) != document:
                raise StoreDamaged(f"the copy of document {document.key!r} is not what was copied")
        stored += len(new)
    return BroughtDocuments(stored, tuple(conflicts))


async def _there(document: Document, target: ConversationStore) -> Document | None:
    return await target.get_document(document.kind, document.key, conversation_id=document.conversation_id)


async def _drop_others(target: ConversationStore, conversation_id: str, places: set[Place]) -> None:
    """What the source let go since an earlier copy."""
    async for chunk in documents_of(target, conversation_id):
        for document in chunk:
            if _place(document) not in places:
                await target.delete_document(document.kind, document.key, conversation_id=conversation_id)


async def _prove(wanted: DocumentsDigest, target: ConversationStore, conversation_id: str) -> None:
    found = DocumentsDigest()
    async for chunk in documents_of(target, conversation_id):
        found.add(chunk)
    if str(found) != str(wanted):
        raise StoreDamaged(
            f"the copy of the documents of conversation {conversation_id} is not what was copied "
            f"(SHA-256 {found}, in the source {wanted})"
        )


def _place(document: Document) -> Place:
    return Place(document.kind, document.key, document.conversation_id)
