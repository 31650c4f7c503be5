"""One owner's conversation records: sessions, metadata, lists, and the watching of changes."""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Any

from msgspec import UNSET

from aforesaid._internal.freshness import noting_freshness
from aforesaid.contracts import Change, ConversationStore, Watchable, capability
from aforesaid.contracts.listing import known_records
from aforesaid.contracts.names import learn_name
from aforesaid.errors import (
    ContactNotFound,
    ConversationExists,
    ConversationNotFound,
    StoreError,
    StoreUnavailable,
)
from aforesaid.model.contacts import KIND as CONTACTS
from aforesaid.model.conversations import (
    Changes,
    Channel,
    Conversation,
    Page,
    Priority,
    Query,
    Status,
    started,
)
from aforesaid.model.ids import ConversationKey, IdSource, conversation_key, is_uuid, parse_uuid
from aforesaid.model.lifetimes import RetentionRules
from aforesaid.model.messages import parse_tags
from aforesaid.retention.rules import Lifetimes
from aforesaid.settings import ConversationConfig
from aforesaid.summaries.service import Summaries
from aforesaid.telemetry import describe, events
from aforesaid.transfer.owner_scope import OwnerScope
from aforesaid.windows import with_latest

# One owner's conversation records: sessions, metadata, lists.


log = logging.getLogger("aforesaid.manager")


class Records:
    """One owner's conversation records and sessions."""

    def __init__(
        self,
        scope: OwnerScope,
        config: ConversationConfig,
        lifetimes: Lifetimes,
        *,
        ids: IdSource,
        ttl: timedelta | None,
        idle_after: timedelta | None,
    ) -> None:
        self.scope = scope
        self.store = scope.store
        self.config = config
        self._lifetimes = lifetimes
        self._ids = ids
        self._ttl = ttl
        self._idle_after = idle_after
        # Set by a manager: its records contain their summaries.
        self.summaries: Summaries | None = None

    async def get_or_create_conversation(
        self, session_id: str, client_id: str | None = None, channel: Channel = "voice"
    ) -> Conversation:
        """Return the session's conversation with its latest messages; create one when there is none.

        The same session id gives the same conversation, also after a restart, until it expires or, with
        `idle_after`, has been idle for longer. With the setting `continue_minutes`, a new session id
        continues the owner's last conversation. Raise `ContactNotFound` for an unknown client.
        """
        if client_id is not None:
            client_id = await self._known_client(client_id)
        if self.config.continue_minutes:
            await self._continue_last(session_id)
        record = await self.resume(session_id, client_id=client_id, channel=channel)
        if client_id is not None and record.client_id is None:
            record = await self._link(record.id, Changes(client_id=client_id))
        latest = await with_latest(self.store, record, self.config.context_window_size)
        return await self._with_summary(latest)

    async def _continue_last(self, session_id: str) -> None:
        """Bind a new session id to the owner's last conversation, if that was active recently."""
        if await self.session(session_id) is not None:
            return
        since = self.store.now() - timedelta(minutes=self.config.continue_minutes)
        for record in (await self.store.find(Query(date_from=since, limit=1))).conversations:
            with suppress(ConversationNotFound):  # removed meanwhile
                await self.store.bind(session_id, record.id)

    async def session(self, session_id: str) -> Conversation | None:
        """Return the record of the session's conversation; None when there is none or it was idle for too
        long.
        """
        record = await self.store.session(session_id)
        since = self._active_since(self.store.now())
        return None if record is None or (since is not None and record.last_activity < since) else record

    async def resume(self, session_id: str, **metadata: Any) -> Conversation:
        """Return the record of the session's conversation; create one when there is none."""
        fresh = self._fresh(self._ids(), **metadata)
        active_since = self._active_since(fresh.created_at)
        record = await self.store.resume(session_id, fresh, active_since=active_since)
        if record.id != fresh.id:
            return record
        events.conversation_started(record.id, record.channel)
        return await self._lifetimes.for_new(record)

    def _fresh(self, conversation_id: str, **metadata: Any) -> Conversation:
        """Return a new record with its lifetime by channel and tag.

        This reads no store, so that `resume` and `create` store the record in one step.
        """
        now = self.store.now()
        fresh = started(conversation_id, now=now, ttl=self._ttl, **metadata)
        if not self.scope.rules:
            return fresh
        ttl = self._lifetimes.applied(fresh, RetentionRules()).ttl
        return started(conversation_id, now=now, ttl=ttl, **metadata)

    async def for_writing(self, conversation_id: str, *, expected_revision: int | None = None) -> str:
        """Return the id of a conversation to write to. Create a named one that does not exist."""
        if type(conversation_id) is str and is_uuid(conversation_id):
            return conversation_id
        key = conversation_key(conversation_id, owner=self.store.owner)
        await self.create_named(key, expected_revision=expected_revision)
        return key.id

    async def create_named(self, key: ConversationKey, *, expected_revision: int | None = None) -> None:
        """Create the conversation if the caller gave a name and it does not exist."""
        if key.name is not None:
            learn_name(self, key.id, key.name)
        # A new conversation has revision 0, so nothing is created for a write that expects another one.
        if key.name is not None and not expected_revision:
            await self._create_if_missing(key.id, key.name)

    async def _create_if_missing(self, conversation_id: str, name: str) -> None:
        try:
            if await self.store.get(conversation_id) is not None:
                return
        except StoreUnavailable:
            # The record is not in the last known state. The spool keeps the new one, and its replay leaves an
            # existing conversation of this name unchanged.
            pass
        with suppress(ConversationExists):  # created concurrently
            record = await self.store.create(self._fresh(conversation_id, name=name))
            events.conversation_started(record.id, record.channel)
            await self._lifetimes.for_new(record)

    def _active_since(self, now: datetime) -> datetime | None:
        return None if self._idle_after is None else now - self._idle_after

    async def get_conversation(self, conversation_id: str) -> Conversation:
        """Return the record with its summary, without messages. Raise `ConversationNotFound`."""
        record = await self.store.get(conversation_id)
        if record is None:
            raise ConversationNotFound(conversation_id)
        return await self._with_summary(record)

    async def _with_summary(self, record: Conversation) -> Conversation:
        if self.summaries is None or not record.message_count:
            return record
        try:
            summary = await self.summaries.summary(record.id)
        except StoreError as error:
            log.warning("conversation %s: summary not read: %s", record.id, describe(error))
            return record
        return record if summary is None else record.with_(summary=summary.text)

    async def list(
        self,
        *,
        client_id: str | None = None,
        channel: Channel | None = None,
        status: Status | None = None,
        priority: Priority | None = None,
        assigned_to: str | None = None,
        tags: Sequence[str] = (),
        date_from: datetime | None = None,
        date_to: datetime | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> Page:
        """Return a page of conversations that match all filters, most recently active first."""
        query = Query(
            client_id=client_id,
            channel=channel,
            status=status,
            priority=priority,
            assigned_to=assigned_to,
            tags=parse_tags(tags),
            date_from=date_from,
            date_to=date_to,
            limit=self.config.search_limit if limit is None else limit,
            after=after,
        )
        return await self.store.find(query)

    async def update_metadata(
        self,
        conversation_id: str,
        status: Status | None = None,
        priority: Priority | None = None,
        subject: str | None = None,
        tags: Sequence[str] | None = None,
        *,
        channel: Channel | None = None,
        assigned_to: str | None = None,
        notes: str | None = None,
        unread_count: int | None = None,
        ttl: timedelta | None = None,
        clear: Collection[str] = (),
        expected_revision: int | None = None,
    ) -> Conversation:
        """Change the given fields. None leaves a field unchanged; a name in `clear` empties it.

        With `expected_revision`, raise `RevisionConflict` after a concurrent write.
        """
        changes = Changes.of(
            clear,
            status=status,
            priority=priority,
            subject=subject,
            tags=None if tags is None else parse_tags(tags),
            channel=channel,
            assigned_to=assigned_to,
            notes=notes,
            unread_count=unread_count,
            ttl=ttl,
        )
        conversation_id = await self.for_writing(conversation_id, expected_revision=expected_revision)
        changes = await self._lifetimes.with_lifetime(conversation_id, changes)
        updated = await self.store.update(conversation_id, changes, expected_revision=expected_revision)
        if changes.status is not UNSET or changes.assigned_to is not UNSET:
            from aforesaid.analytics.events import record_changes

            await record_changes(self.store, conversation_id, changes)
        if ttl is not None or "ttl" in clear:
            await self._lifetimes.remember(conversation_id, updated.ttl)
        if "client_id" in clear:
            from aforesaid.contacts.association import mark_unlinked

            await mark_unlinked(self.store, conversation_id)
        return updated

    async def associate_client(self, conversation_id: str, client_id: str, client_name: str) -> Conversation:
        """Link the conversation to a client. Raise `ContactNotFound` for an unknown one."""
        client_id = await self._known_client(client_id)
        changes = Changes(client_id=client_id, client_name=client_name)
        linked = await self._link(await self.for_writing(conversation_id), changes)
        events.client_associated(linked.id)
        return linked

    async def _known_client(self, client_id: str) -> str:
        """Return the canonical id of a contact. Raise `ContactNotFound`."""
        key = parse_uuid(client_id, field="client_id")
        if not await self._has_client(key):
            raise ContactNotFound(key)
        return key

    async def _has_client(self, client_id: str) -> bool:
        try:
            return await self.store.get_document(CONTACTS, client_id) is not None
        except StoreUnavailable:
            return True  # unknown during an outage: the write is accepted, or fails by itself

    async def _link(self, conversation_id: str, changes: Changes) -> Conversation:
        linked = await self.store.update(conversation_id, changes)
        assert linked.client_id is not None
        if not await self._has_client(linked.client_id):
            # Removed after the first check, maybe after its conversations were unlinked.
            await self.store.update(conversation_id, Changes(client_id=None))
            raise ContactNotFound(linked.client_id)
        return linked

    async def mark_read(self, conversation_id: str) -> Conversation:
        """Set the number of unread messages to 0."""
        return await self.store.update(conversation_id, Changes(unread_count=0))

    async def leave_session(self, session_id: str) -> None:
        """Unbind the session. Its conversation stays; the next message starts another one."""
        await self.store.unbind(session_id)


# Watch for changes: of one conversation, or of all conversations of an owner.


# Seconds between two polls of one conversation, each of which reads one record.
POLL_SECONDS = 0.25
# Seconds between two polls of all of an owner's conversations, each of which reads all records.
POLL_ALL_SECONDS = 1.0

Revisions = dict[str, int]


def watch(
    store: ConversationStore, conversation_id: str | None = None
) -> AbstractAsyncContextManager[AsyncIterator[Change]]:
    """Watch one conversation, or all of an owner's. Stores that are not `Watchable` are polled."""
    if conversation_id is not None:
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
    watchable = capability(store, Watchable)
    if watchable is not None:
        return watchable.watch(conversation_id)
    return poll(store, conversation_id)


@asynccontextmanager
async def poll(
    store: ConversationStore, conversation_id: str | None = None
) -> AsyncIterator[AsyncIterator[Change]]:
    """Report changes of a store that is not `Watchable`, by polling."""
    previous = await _revisions(store, conversation_id)
    yield _changes(store, conversation_id, previous)


async def _changes(
    store: ConversationStore, conversation_id: str | None, previous: Revisions
) -> AsyncIterator[Change]:
    every = POLL_ALL_SECONDS if conversation_id is None else POLL_SECONDS
    while True:
        with noting_freshness() as freshness:
            current = await _revisions(store, conversation_id)
        if freshness.degraded:
            current = (
                previous | current
            )  # while the store is unavailable, a missing conversation may still exist
        for change in differences(previous, current):
            yield change
        previous = current
        await asyncio.sleep(every)


def differences(before: Revisions, after: Revisions) -> list[Change]:
    """Return the changes between two polls."""
    removed = [Change(conversation_id=one, revision=None) for one in before if one not in after]
    return removed + [
        Change(conversation_id=one, revision=revision)
        for one, revision in after.items()
        if before.get(one) != revision
    ]


async def _revisions(store: ConversationStore, conversation_id: str | None) -> Revisions:
    if conversation_id is not None:
        record = await store.get(conversation_id)
        return {} if record is None else {record.id: record.revision}
    return {record.id: record.revision async for record in known_records(store)}
