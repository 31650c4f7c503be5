"""Shared by the contacts of all owners: bounded name indexes in memory, and the identification queue.

An owner's index is read from the store once. Changes through this memory update it immediately. Changes by
other processes or by SQL appear when it is read again, at most a minute later.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from aforesaid._internal.bounded import BoundedDict
from aforesaid.contacts.book import PAGE, contact_from_document
from aforesaid.contacts.queue import IdentificationQueue
from aforesaid.contracts import ConversationStore, Document
from aforesaid.errors import InvalidId, StoreDamaged
from aforesaid.model.contacts import KIND, Contact
from aforesaid.telemetry import describe

if TYPE_CHECKING:
    from aforesaid.contacts.name_index import NameIndex

log = logging.getLogger("aforesaid.clients")

FRESH_SECONDS = 60.0
"""Seconds before an index is checked for changes by others."""
MOST_CONTACTS = 500_000
"""Contacts of all owners in indexes. The least recently used owner is evicted first."""
FEW = 20
"""Changes applied on the event loop; more build a new index on a thread."""


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
        after: str | None = None
        while True:
            documents = await store.documents(KIND, after=after, limit=PAGE)
            versions.update((one.key, one.version) for one in documents)
            fresh = [one for one in documents if _version(index, one.key) != one.version]
            if fresh:
                changed += await asyncio.to_thread(_decode_contacts, fresh)
            if len(documents) < PAGE:
                return versions, changed
            after = documents[-1].key

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
