"""What the clients of all owners share: indexes in memory, within bounds, and what waits to be read.

An owner's index is read from the store once. Changes made through this memory reach it at once; those of
other processes, and of plain SQL, when it is read again, at most a minute later. Below: the book, the
index. Above: the association, the manager.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from aforesaid.contacts.book import PAGE, contact_in
from aforesaid.contacts.queue import Waiting
from aforesaid.contracts import ConversationStore, Document
from aforesaid.errors import InvalidId, StoreDamaged
from aforesaid.model.contacts import KIND, Contact
from aforesaid.telemetry import describe

if TYPE_CHECKING:
    from aforesaid.contacts.name_index import NameIndex

log = logging.getLogger("aforesaid.clients")

FRESH_SECONDS = 60.0
"""How long an index is used before somebody looks whether others have changed contacts."""
MOST_CONTACTS = 500_000
"""Contacts, of all owners together, in indexes. Whoever was looked for longest ago goes first."""
FEW = 20
"""Changes that enter an index on the event loop; more make a new index on a thread."""


class _Held:
    """One owner's index, when it was read, and what changed while it was being read."""

    def __init__(self) -> None:
        from aforesaid.contacts.name_index import NameIndex

        self.index: NameIndex = NameIndex()
        self.read_at: float | None = None
        self.touched: set[str] = set()


class ContactResources:
    """Made once for a memory; handed to every owner's manager."""

    def __init__(
        self,
        *,
        fresh_seconds: float = FRESH_SECONDS,
        most_contacts: int = MOST_CONTACTS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.waiting = Waiting(self)
        self._fresh_seconds = fresh_seconds
        self._most_contacts = most_contacts
        self._monotonic = monotonic
        self._held: OrderedDict[str, _Held] = OrderedDict()

    async def index_of(self, owner: str, store: ConversationStore) -> "NameIndex":
        """The owner's index, as fresh as it has to be."""
        held = self._held.get(owner)
        if held is None:
            held = self._held[owner] = await asyncio.to_thread(_Held)
        if not self._is_fresh(held):
            await self._read(held, store)
        self._used(owner)
        return held.index

    def has_none(self, owner: str) -> bool:
        """Whether the owner is known to have no contacts: there is nobody to look for."""
        held = self._held.get(owner)
        return held is not None and not len(held.index) and self._is_fresh(held)

    async def has_some(self, owner: str, store: ConversationStore) -> bool:
        """Whether the owner has contacts: as it is known, or else as the store says."""
        held = self._held.get(owner)
        if held is not None and self._is_fresh(held):
            return len(held.index) > 0
        return bool(await store.documents(KIND, limit=1))

    def written(self, owner: str, contact: Contact) -> None:
        held = self._held.get(owner)
        if held is not None:
            held.touched.add(contact.id)
            held.index.put(contact)

    def removed(self, owner: str, client_id: str) -> None:
        held = self._held.get(owner)
        if held is not None:
            held.touched.add(client_id)
            held.index.remove(client_id)

    async def remove_copies(
        self, owner: str, conversation_id: str | None, *, until: datetime | None = None
    ) -> Mapping[str, int]:
        """Let go of copies in memory, as `CopyHolder` asks."""
        self.waiting.forget(owner, conversation_id)
        if conversation_id is not None:
            return {}
        held = self._held.pop(owner, None)
        return {"cached_copies": 0 if held is None else len(held.index.contacts)}

    async def close(self) -> None:
        """Look through what waits where that is done in a moment, and let go of everything."""
        await self.waiting.close()
        self._held.clear()

    def _is_fresh(self, held: _Held) -> bool:
        return held.read_at is not None and self._monotonic() - held.read_at < self._fresh_seconds

    async def _read(self, held: _Held, store: ConversationStore) -> None:
        """Bring the index up to what the store holds; what changes here meanwhile stays as it was changed."""
        begun = self._monotonic()
        touched: set[str] = set()
        held.touched = touched
        versions, changed = await self._changed(held.index, store)
        gone = [one for one in held.index.contacts if one not in versions]
        if len(changed) + len(gone) > FEW:
            await self._rebuild(held, gone, changed)
        else:
            for client_id in set(gone) - touched:
                held.index.remove(client_id)
            for contact in changed:
                if contact.id not in touched:
                    held.index.put(contact)
        held.read_at = begun

    async def _changed(
        self, index: "NameIndex", store: ConversationStore
    ) -> tuple[dict[str, int], list[Contact]]:
        """The versions of all contacts in the store, and those contacts that the index does not have so."""
        versions: dict[str, int] = {}
        changed: list[Contact] = []
        after: str | None = None
        while True:
            documents = await store.documents(KIND, after=after, limit=PAGE)
            versions.update((one.key, one.version) for one in documents)
            fresh = [one for one in documents if _version(index, one.key) != one.version]
            if fresh:
                changed += await asyncio.to_thread(_readable, fresh)
            if len(documents) < PAGE:
                return versions, changed
            after = documents[-1].key

    async def _rebuild(self, held: _Held, gone: list[str], changed: list[Contact]) -> None:
        """Many at once: a new index, made on a thread, that takes the old one's place when it is done."""
        kept = held.index.contacts.keys() - set(gone)
        contacts = {one: held.index.contacts[one] for one in kept} | {one.id: one for one in changed}
        index = await asyncio.to_thread(_index_of, list(contacts.values()))
        for client_id in held.touched:
            latest = held.index.contacts.get(client_id)
            if latest is None:
                index.remove(client_id)
            else:
                index.put(latest)
        held.index = index

    def _used(self, owner: str) -> None:
        """Others go until what is held fits; the owner's own stays."""
        if owner in self._held:
            self._held.move_to_end(owner)
        while (
            len(self._held) > 1 and sum(len(one.index) for one in self._held.values()) > self._most_contacts
        ):
            self._held.popitem(last=False)


def _version(index: "NameIndex", client_id: str) -> int:
    known = index.contacts.get(client_id)
    return 0 if known is None else known.version


def _index_of(contacts: list[Contact]) -> "NameIndex":
    from aforesaid.contacts.name_index import NameIndex

    return NameIndex(contacts)


def _readable(documents: list[Document]) -> list[Contact]:
    """The contacts in documents; one that cannot be read is left out and said."""
    contacts = []
    for document in documents:
        try:
            contacts.append(contact_in(document))
        except (StoreDamaged, InvalidId) as error:
            log.warning("a contact is set aside: %s", describe(error))
    return contacts
