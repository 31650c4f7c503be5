"""Shared by the contacts of all owners: bounded name indexes in memory, and the identification queue.

An owner's index is read from the store once. Changes through this memory update it immediately. Changes by
other processes or by SQL appear when it is read again, at most a minute later.

A turn only enqueues its messages. A background task searches them for client names after a short delay. When
the queue is full, the oldest task is dropped and counted. Failures are logged and never affect the
conversation.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from aforesaid._internal.bounded import BoundedDict
from aforesaid._internal.tasks import Background
from aforesaid.contacts.book import PAGE, contact_from_document
from aforesaid.contracts import ConversationStore, Document
from aforesaid.contracts.listing import document_pages
from aforesaid.errors import AforesaidError, InvalidId, StoreDamaged
from aforesaid.model.contacts import KIND, Contact
from aforesaid.model.messages import Message
from aforesaid.telemetry import describe, telemetry

if TYPE_CHECKING:
    from aforesaid.contacts.name_index import NameIndex

log = logging.getLogger("aforesaid.contacts")

# Seconds between a turn and its processing, so that the answer goes first.
QUIET = 0.25
# Maximum number of conversations in the queue.
MOST_WAITING = 1_000
# Maximum number of messages per conversation; the latest are kept.
MOST_MESSAGES = 50
# Maximum seconds that closing waits for the queue.
CLOSING_SECONDS = 2.0

_dropped = telemetry.counter("aforesaid_client_notes_dropped_total")


class ConversationKey(NamedTuple):
    """A conversation of an owner."""

    owner: str
    conversation_id: str


Link: TypeAlias = Callable[[str, Sequence[Message]], Awaitable[object]]
"""Links a conversation to the client that its messages name."""


class _PendingMessages(NamedTuple):
    store: ConversationStore
    link: Link
    messages: list[Message]


class IdentificationQueue:
    """The queue and its background task."""

    def __init__(
        self, resources: "ContactResources", *, quiet: float = QUIET, max_conversations: int = MOST_WAITING
    ) -> None:
        self._resources = resources
        self._quiet = quiet
        self._max_conversations = max_conversations
        self._pending: OrderedDict[ConversationKey, _PendingMessages] = OrderedDict()
        self._background = Background(self._work, lambda: bool(self._pending), name="aforesaid-clients")

    def enqueue(
        self,
        owner: str,
        store: ConversationStore,
        conversation_id: str,
        messages: Sequence[Message],
        *,
        link: Link,
    ) -> None:
        """Enqueue the user messages, unless the owner is known to have no contacts."""
        if self._background.is_closed or self._resources.is_known_empty(owner):
            return
        user_messages = [message for message in messages if message.role == "user"]
        if not user_messages:
            return
        key = ConversationKey(owner, conversation_id)
        pending = self._pending.get(key)
        if pending is None:
            pending = self._pending[key] = _PendingMessages(store, link, [])
        pending.messages.extend(user_messages)
        del pending.messages[:-MOST_MESSAGES]
        if len(self._pending) > self._max_conversations:
            # Bounded: under constant load the oldest conversations lose their search for names, not their
            # turns.
            self._pending.popitem(last=False)
            _dropped.add()
        now = self._background.here().time()
        if self._background.is_idle:
            self._background.begin_at(lambda: now + self._quiet)

    def forget(self, owner: str, conversation_id: str | None) -> None:
        """Drop pending messages before the data of the owner or conversation are removed."""
        for key in list(self._pending):
            if key.owner == owner and conversation_id in (None, key.conversation_id):
                del self._pending[key]

    async def wait_until_idle(self) -> None:
        """Wait until the queue is empty."""
        await self._background.done()

    async def close(self) -> None:
        """Process the queue within a time limit, only for owners with contacts, then stop."""
        try:
            async with asyncio.timeout(CLOSING_SECONDS):
                await self._drop_owners_without_contacts()
                await self.wait_until_idle()
        except TimeoutError:
            log.warning("closed before all clients were identified")
        finally:
            await self._background.close()

    async def _drop_owners_without_contacts(self) -> None:
        """Ask the store which owners have contacts, so that closing builds no index for the others."""
        stores = {key.owner: pending.store for key, pending in self._pending.items()}
        for owner, store in stores.items():
            try:
                found = not store.degraded and await self._resources.has_contacts(owner, store)
            except AforesaidError as error:
                log.warning("skipped client identification on close: %s", describe(error))
                found = False
            if not found:
                self.forget(owner, None)

    async def _work(self) -> None:
        while self._pending:
            key, pending = self._pending.popitem(last=False)
            await self._process(key, pending)

    async def _process(self, key: ConversationKey, pending: _PendingMessages) -> None:
        try:
            await pending.link(key.conversation_id, pending.messages)
        except AforesaidError as error:
            log.warning(
                "linking conversation %s to a client failed: %s", key.conversation_id, describe(error)
            )
        except Exception:  # the edge of a background task: other conversations must continue
            log.exception("linking conversation %s to a client failed", key.conversation_id)


# Seconds before an index is checked for changes by others.
FRESH_SECONDS = 60.0
# Contacts of all owners in indexes. The least recently used owner is evicted first.
MOST_CONTACTS = 500_000
# Changes applied on the event loop; more build a new index on a thread.
FEW = 20


class _OwnerContacts:
    """One owner's index, the time it was read, and the contacts changed during the read."""

    def __init__(self) -> None:
        from aforesaid.contacts.name_index import NameIndex

        self.index: NameIndex = NameIndex()
        self.read_at: float | None = None
        self.touched: set[str] = set()


class ContactResources:
    """Created once per memory and passed to every owner's manager."""

    def __init__(
        self,
        *,
        fresh_seconds: float = FRESH_SECONDS,
        most_contacts: int = MOST_CONTACTS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.queue = IdentificationQueue(self)
        self._fresh_seconds = fresh_seconds
        self._monotonic = monotonic
        self._owners: BoundedDict[str, _OwnerContacts] = BoundedDict(
            most_contacts, size=lambda cached: len(cached.index)
        )

    async def index_of(self, owner: str, store: ConversationStore) -> "NameIndex":
        """Return the owner's index, updated from the store if it is stale."""
        cached = self._owners.get(owner)
        if cached is None:
            cached = self._owners[owner] = await asyncio.to_thread(_OwnerContacts)
        if not self._is_fresh(cached):
            await self._read(cached, store)
        self._evict_others(owner)
        return cached.index

    def is_known_empty(self, owner: str) -> bool:
        """Return whether the owner is known to have no contacts."""
        cached = self._owners.get(owner)
        return cached is not None and not len(cached.index) and self._is_fresh(cached)

    async def has_contacts(self, owner: str, store: ConversationStore) -> bool:
        """Return whether the owner has contacts, from the cache or from the store."""
        cached = self._owners.get(owner)
        if cached is not None and self._is_fresh(cached):
            return len(cached.index) > 0
        return bool(await store.documents(KIND, limit=1))

    def owners(self) -> list[str]:
        """Return the owners with cached contacts."""
        return list(self._owners)

    def written(self, owner: str, contact: Contact) -> None:
        cached = self._owners.get(owner)
        if cached is not None:
            cached.touched.add(contact.id)
            cached.index.put(contact)

    def removed(self, owner: str, client_id: str) -> None:
        cached = self._owners.get(owner)
        if cached is not None:
            cached.touched.add(client_id)
            cached.index.remove(client_id)

    async def remove_copies(
        self, owner: str, conversation_id: str | None, *, until: datetime | None = None
    ) -> Mapping[str, int]:
        """Drop the owner's copies in memory. Implements `CopyHolder`."""
        self.queue.forget(owner, conversation_id)
        if conversation_id is not None:
            return {}
        cached = self._owners.pop(owner, None)
        return {"cached_copies": 0 if cached is None else len(cached.index.contacts)}

    async def close(self) -> None:
        """Process the queue within a time limit, and clear the cache."""
        await self.queue.close()
        self._owners.clear()

    def _is_fresh(self, cached: _OwnerContacts) -> bool:
        return cached.read_at is not None and self._monotonic() - cached.read_at < self._fresh_seconds

    async def _read(self, cached: _OwnerContacts, store: ConversationStore) -> None:
        """Update the index from the store. Contacts changed here during the read keep their new state."""
        begun = self._monotonic()
        touched: set[str] = set()
        cached.touched = touched
        versions, changed = await self._changed(cached.index, store)
        removed_ids = [one for one in cached.index.contacts if one not in versions]
        if len(changed) + len(removed_ids) > FEW:
            await self._rebuild(cached, removed_ids, changed)
        else:
            for client_id in set(removed_ids) - touched:
                cached.index.remove(client_id)
            for contact in changed:
                if contact.id not in touched:
                    cached.index.put(contact)
        cached.read_at = begun

    async def _changed(
        self, index: "NameIndex", store: ConversationStore
    ) -> tuple[dict[str, int], list[Contact]]:
        """Return the versions of all stored contacts, and the contacts that differ from the index."""
        versions: dict[str, int] = {}
        changed: list[Contact] = []
        async for documents in document_pages(store, KIND, limit=PAGE):
            versions.update((one.key, one.version) for one in documents)
            fresh = [one for one in documents if _version(index, one.key) != one.version]
            if fresh:
                changed += await asyncio.to_thread(_decode_contacts, fresh)
        return versions, changed

    async def _rebuild(self, cached: _OwnerContacts, removed_ids: list[str], changed: list[Contact]) -> None:
        """Build a new index on a thread and replace the old one when it is complete."""
        kept = cached.index.contacts.keys() - set(removed_ids)
        contacts = {one: cached.index.contacts[one] for one in kept} | {one.id: one for one in changed}
        index = await asyncio.to_thread(_index_of, list(contacts.values()))
        for client_id in cached.touched:
            latest = cached.index.contacts.get(client_id)
            if latest is None:
                index.remove(client_id)
            else:
                index.put(latest)
        cached.index = index

    def _evict_others(self, owner: str) -> None:
        """Mark the owner as used and evict other owners until the total fits."""
        self._owners.use(owner)
        self._owners.remeasure()  # indexes grow after they are cached


def _version(index: "NameIndex", client_id: str) -> int:
    indexed = index.contacts.get(client_id)
    return 0 if indexed is None else indexed.version


def _index_of(contacts: list[Contact]) -> "NameIndex":
    from aforesaid.contacts.name_index import NameIndex

    return NameIndex(contacts)


def _decode_contacts(documents: list[Document]) -> list[Contact]:
    """Return the contacts in documents; log and skip damaged ones."""
    contacts = []
    for document in documents:
        try:
            contacts.append(contact_from_document(document))
        except (StoreDamaged, InvalidId) as error:
            log.warning("skipped an unreadable contact: %s", describe(error))
    return contacts
