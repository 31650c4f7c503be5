"""Records, sessions and documents of an encrypted store."""

import logging
from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from aforesaid.contracts import (
    Document,
    LogEnd,
    Tally,
    check_data,
    check_restorable_documents,
    parse_place,
)
from aforesaid.encryption import KEYS_KIND
from aforesaid.errors import InvalidInput, KeyUnavailable, StoreDamaged
from aforesaid.layers.encrypted import records, seals
from aforesaid.layers.encrypted.base import EncryptedStoreBase
from aforesaid.layers.encrypted.seals import DataKeys, InvalidSeal
from aforesaid.model.conversations import Changes, Conversation, Page, Query, check_count
from aforesaid.model.lineages import first_sequence
from aforesaid.telemetry import describe

# Records and sessions. The text fields of a record are sealed if `Encryption.records` is set.


log = logging.getLogger("aforesaid.layers.encrypted")


class SealedConversations(EncryptedStoreBase):
    """Conversations without their messages."""

    async def create(self, conversation: Conversation) -> Conversation:
        sealed = await self._seal_record(conversation)
        await self.inner.create(sealed)
        await self._after_create(conversation)
        return conversation

    async def get(self, conversation_id: str) -> Conversation | None:
        return await self._open_maybe(await self.inner.get(conversation_id))

    async def update(
        self, conversation_id: str, changes: Changes, *, expected_revision: int | None = None
    ) -> Conversation:
        log_id = self._log_id(conversation_id)
        if self._seals_records:
            keys = await self._keys_to_write(log_id)
            changes = records.seal_changes(changes, keys, self._owner, log_id.conversation_id)
        record = await self.inner.update(conversation_id, changes, expected_revision=expected_revision)
        cached = self._shared.log(log_id)
        moved_by_us = cached.end is not None and cached.end.revision + 1 == record.revision
        cached.end = cached.end._replace(revision=record.revision) if cached.end and moved_by_us else None
        return await self._open_record(record)

    async def find(self, query: Query) -> Page:
        if not self._seals_records:
            page = await self.inner.find(query)
            if not any(record.lineage for record in page.conversations):
                return page
            return replace(page, conversations=tuple(self._readable(page.conversations, await self._keys())))
        keys = await self._keys()
        # Without keys no tag is sealed, and the query matches nothing.
        asked = query if keys is None else records.seal_query(query, keys, self._owner)
        page = await self.inner.find(asked)
        return replace(page, conversations=tuple(self._readable(page.conversations, keys)))

    async def delete(self, conversation_id: str, *, expected_revision: int | None = None) -> Tally:
        log_id = self._log_id(conversation_id)
        try:
            return await self.inner.delete(conversation_id, expected_revision=expected_revision)
        finally:
            self._shared.forget(log_id)

    async def family(self, root_id: str) -> list[Conversation]:
        return self._readable(await super().family(root_id), await self._keys())

    async def kept_expired(self) -> list[Conversation]:
        return self._readable(await super().kept_expired(), await self._keys())

    # Sessions

    async def resume(
        self, session_id: str, fresh: Conversation, *, active_since: datetime | None = None
    ) -> Conversation:
        sealed = await self._seal_record(fresh)
        record = await self.inner.resume(session_id, sealed, active_since=active_since)
        if record.id == fresh.id and record == sealed:
            await self._after_create(fresh)
            return fresh
        return await self._open_record(record)

    async def session(self, session_id: str) -> Conversation | None:
        return await self._open_maybe(await self.inner.session(session_id))

    # Inside

    async def _after_create(self, conversation: Conversation) -> None:
        """Ensure that the new conversation has a key, even if the owner was cleared a moment ago."""
        await self._shared.keyring.get_or_create(self._owner, refresh=True)
        first = first_sequence(conversation.lineage)
        end = LogEnd(conversation.revision, first, conversation.last_message_at)
        self._shared.log(self._log_id(conversation.id)).end = end

    async def _open_maybe(self, record: Conversation | None) -> Conversation | None:
        return None if record is None else await self._open_record(record)

    def _readable(self, found: Iterable[Conversation], keys: DataKeys | None) -> list[Conversation]:
        opened: list[Conversation] = []
        for record in found:
            try:
                opened.append(self._opened_record(record, keys))
            except (KeyUnavailable, StoreDamaged) as error:
                log.warning("conversation %s cannot be opened: %s", record.id, describe(error))
        return opened


# Documents: their data are sealed, kinds and keys are not. The layer hides its own documents.


class SealedDocuments(EncryptedStoreBase):
    """Documents with sealed data."""

    async def put_document(
        self,
        kind: str,
        key: str,
        data: bytes,
        *,
        conversation_id: str | None = None,
        expected_version: int | None = None,
    ) -> Document:
        parse_place(kind, key, conversation_id)
        _check_kind(kind)
        check_data(data)
        if conversation_id is None:
            keys = await self._shared.keyring.get_or_create(self._owner, refresh=True)
        else:
            keys = await self._keys_to_write(self._log_id(conversation_id))
        sealed = seals.seal_bytes(data, keys.current, self._bound_to(kind, key, conversation_id))
        kept = await self.inner.put_document(
            kind, key, sealed, conversation_id=conversation_id, expected_version=expected_version
        )
        return replace(kept, data=data)

    async def get_document(
        self, kind: str, key: str, *, conversation_id: str | None = None
    ) -> Document | None:
        if kind == KEYS_KIND:
            return None
        found = await self.inner.get_document(kind, key, conversation_id=conversation_id)
        if found is None:
            return None
        try:
            return await self._open_document(found)
        except InvalidSeal as error:
            raise StoreDamaged(f"document {kind!r} {key!r} cannot be read: {error}") from error

    async def documents(
        self, kind: str, *, conversation_id: str | None = None, after: str | None = None, limit: int = 100
    ) -> list[Document]:
        if kind == KEYS_KIND:
            return []
        check_count(limit, field="limit", least=0)
        opened: list[Document] = []
        while True:
            wanted = limit - len(opened)
            found = await self.inner.documents(
                kind, conversation_id=conversation_id, after=after, limit=wanted
            )
            opened += await self._open_documents(found)
            # Unreadable documents are left out, so read on until the page is full.
            if len(found) < wanted or len(opened) == limit:
                return opened
            after = found[-1].key

    async def _open_documents(self, found: Sequence[Document]) -> list[Document]:
        """Decrypt the documents; log and leave out those that cannot be decrypted."""
        opened: list[Document] = []
        for document in found:
            try:
                opened.append(await self._open_document(document))
            except InvalidSeal as error:
                log.warning("a document of kind %s is set aside: %s", document.kind, describe(error))
        return opened

    async def document_kinds(self, *, conversation_id: str | None = None) -> list[str]:
        kinds = await self.inner.document_kinds(conversation_id=conversation_id)
        return [kind for kind in kinds if kind != KEYS_KIND]

    async def delete_document(
        self,
        kind: str,
        key: str,
        *,
        conversation_id: str | None = None,
        expected_version: int | None = None,
    ) -> bool:
        _check_kind(kind)
        return await self.inner.delete_document(
            kind, key, conversation_id=conversation_id, expected_version=expected_version
        )

    async def restore_documents(self, documents: Sequence[Document]) -> None:
        given = check_restorable_documents(documents)
        keys = await self._shared.keyring.get_or_create(self._owner, refresh=True)
        sealed = []
        for place, document in given.items():
            _check_kind(place.kind)
            bound_to = self._bound_to(place.kind, place.key, place.conversation_id)
            sealed.append(replace(document, data=seals.seal_bytes(document.data, keys.current, bound_to)))
        await self.inner.restore_documents(sealed)

    # Inside

    def _bound_to(self, kind: str, key: str, conversation_id: str | None) -> bytes:
        """Return what binds a document to its owner, kind and key."""
        return msgspec.json.encode(("document", self._owner, conversation_id, kind, key))

    async def _open_document(self, document: Document) -> Document:
        keys = await self._keys([seals.sealed_by(document.data)])
        if keys is None:
            raise InvalidSeal("there is no data key for this owner")
        return replace(document, data=self.open_data(document, keys))

    def open_data(self, document: Document, keys: DataKeys) -> bytes:
        """Return the decrypted data of a stored document. Raise `InvalidSeal`."""
        bound_to = self._bound_to(document.kind, document.key, document.conversation_id)
        return seals.open_bytes(document.data, keys, bound_to)


def _check_kind(kind: str) -> None:
    if kind == KEYS_KIND:
        raise InvalidInput(
            f"documents of the kind {KEYS_KIND!r} hold keys and are not for callers", field="kind"
        )
