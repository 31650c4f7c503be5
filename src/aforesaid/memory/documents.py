"""An application's own documents: state of other programs, next to the log, with compare-and-swap.

A document belongs to a conversation or to the owner. It is encrypted, copied, exported and removed like the
rest of the owner's data. Kinds that start with `state/` stay when the words of a message change; all others
count as derived from the log and are removed then, because they may contain the old words.
"""

from aforesaid.contracts import ConversationStore, Document
from aforesaid.contracts.documents import APPLICATION, LONGEST_KIND, parse_kind
from aforesaid.errors import ConversationNotFound, InvalidInput
from aforesaid.memory.records import Records
from aforesaid.model.conversations import check_count

# The most documents in one answer.
MOST_LISTED = 1000


class ApplicationDocuments:
    """One owner's application documents."""

    def __init__(self, store: ConversationStore, records: Records) -> None:
        self._store = store
        self._records = records

    async def put_document(
        self,
        kind: str,
        key: str,
        data: bytes,
        *,
        conversation_id: str | None = None,
        expected_version: int | None = None,
    ) -> Document:
        """Store an application's data under a kind and a key, replacing an earlier document.

        With `conversation_id`, it belongs to that conversation; a missing one with a name is created. With
        `expected_version`, raise `DocumentConflict` unless the document has that version; 0 means that there
        is none. Kinds that start with `state/` stay when a message is redacted; others are removed then.
        """
        # Before anything is created: a bad kind must not leave an empty conversation.
        stored_kind = application_kind(kind)
        holder = None if conversation_id is None else await self._records.for_writing(conversation_id)
        stored = await self._store.put_document(
            stored_kind, key, data, conversation_id=holder, expected_version=expected_version
        )
        return _as_given(stored)

    async def get_document(
        self, kind: str, key: str, *, conversation_id: str | None = None
    ) -> Document | None:
        """Return an application's document; None where there is none."""
        try:
            found = await self._store.get_document(
                application_kind(kind), key, conversation_id=conversation_id
            )
        except ConversationNotFound:
            return None
        return None if found is None else _as_given(found)

    async def list_documents(
        self, kind: str, *, conversation_id: str | None = None, after: str | None = None, limit: int = 100
    ) -> list[Document]:
        """Return documents of a kind, sorted by key, with keys greater than `after`; at most 1,000."""
        check_count(limit, field="limit", least=0)
        try:
            found = await self._store.documents(
                application_kind(kind),
                conversation_id=conversation_id,
                after=after,
                limit=min(limit, MOST_LISTED),
            )
        except ConversationNotFound:
            # A conversation that does not exist has no documents: adapters read before their
            # first write.
            return []
        return [_as_given(document) for document in found]

    async def delete_document(
        self,
        kind: str,
        key: str,
        *,
        conversation_id: str | None = None,
        expected_version: int | None = None,
    ) -> bool:
        """Remove an application's document; return whether there was one."""
        try:
            return await self._store.delete_document(
                application_kind(kind),
                key,
                conversation_id=conversation_id,
                expected_version=expected_version,
            )
        except ConversationNotFound:
            return False


def application_kind(kind: str) -> str:
    """Return the stored kind. Raise `InvalidInput` for a name that cannot be used."""
    stored = APPLICATION + parse_kind(kind)
    # The prefix keeps applications away from our own kinds, and takes its part of the length.
    if len(stored.encode()) > LONGEST_KIND:
        raise InvalidInput(
            f"kind must have at most {LONGEST_KIND - len(APPLICATION)} bytes", field="kind", value=kind
        )
    return stored


def _as_given(document: Document) -> Document:
    return Document(
        kind=document.kind.removeprefix(APPLICATION),
        key=document.key,
        data=document.data,
        version=document.version,
        updated_at=document.updated_at,
        conversation_id=document.conversation_id,
    )
