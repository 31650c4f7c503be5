"""Records and sessions. The text fields of a record are sealed if `Encryption.records` is set."""

import logging
from collections.abc import Iterable
from datetime import datetime

from msgspec.structs import replace

from aforesaid.contracts import LogEnd, Tally
from aforesaid.errors import KeyUnavailable, StoreDamaged
from aforesaid.layers.encrypted import records
from aforesaid.layers.encrypted.base import EncryptedStoreBase
from aforesaid.layers.encrypted.seals import DataKeys
from aforesaid.model.conversations import Changes, Conversation, Page, Query
from aforesaid.telemetry import describe

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
        cached = self._backend.log(log_id)
        moved_by_us = cached.end is not None and cached.end.revision + 1 == record.revision
        cached.end = cached.end._replace(revision=record.revision) if cached.end and moved_by_us else None
        return await self._open_record(record)

    async def find(self, query: Query) -> Page:
        if not self._seals_records:
            return await self.inner.find(query)
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
            self._backend.forget(log_id)

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
        await self._backend.keyring.get_or_create(self._owner, refresh=True)
        end = LogEnd(conversation.revision, 1, conversation.last_message_at)
        self._backend.log(self._log_id(conversation.id)).end = end

    async def _seal_record(self, record: Conversation) -> Conversation:
        if not self._seals_records:
            return record
        keys = await self._backend.keyring.get_or_create(self._owner, refresh=True)
        return records.seal_record(record, keys, self._owner)

    async def _open_maybe(self, record: Conversation | None) -> Conversation | None:
        return None if record is None else await self._open_record(record)

    async def _open_record(self, record: Conversation) -> Conversation:
        if not self._seals_records:
            return record
        return records.open_record(record, await self._keys(), self._owner)

    def _readable(self, found: Iterable[Conversation], keys: DataKeys | None) -> list[Conversation]:
        opened: list[Conversation] = []
        for record in found:
            try:
                opened.append(records.open_record(record, keys, self._owner))
            except (KeyUnavailable, StoreDamaged) as error:
                log.warning("conversation %s cannot be opened: %s", record.id, describe(error))
        return opened
